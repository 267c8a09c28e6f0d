// Interpolate: the images on the way from one to another, and a slider through them.

import { estimate, post } from "./api.js";
import { Film } from "./film.js";
import { keepResult } from "./gallery.js";
import { listClasses } from "./settings.js";
import { about, all, copy, count, dice, explain, find, make, numberIn, showFieldError, tell } from "./ui.js";

const PAUSE = 250; // milliseconds after a change of the settings until the server is asked how long they take
const ENDS = ["image", "to_image"];
const exampleOf = (end) => end.replace("image", "example"); // the field with the name of an example

export function makeTab(root, { models, limits }) {
  const form = find("form", root), way = find(".way", root), large = find(".large", root), { model: chosen, seed, to_seed, label, frames, calls } = form.elements;
  const able = () => models.filter(({ range }) => range), model = () => able().find(({ name }) => name === chosen.value);
  const given = {}; // the chosen image of each end: { name, file } or { name, example }
  let shown = "", timer, planned = 0, pressed = 0, running = Promise.resolve();
  const between = () => find("[name=ends]:checked", root).value;

  const film = new Film(find(".work", root), {
    kind: "between",
    across: (n, room) => Math.max(1, Math.min(n, Math.floor(room / 64))),
    onShow: showPlace,
    downloads: (film) => {
      const link = make("button", { type: "button" }, "Copy the link"), linked = shown.includes("?");
      link.addEventListener("click", () => copy(`${location.origin}/${shown}`, link));
      return [film.download("Row (PNG)", "grid.png", "interpolation.png"), film.download("Animation (GIF)", "annealing.gif", "interpolation.gif"),
        film.download("Array (NPY)", "images.npy", "interpolation.npy"), ...(linked ? [link] : [make("span", { className: "small" }, "There is no link: it could not hold your own images.")])];
    },
  });

  // -------- the settings

  explain(form);

  /** What it means to choose no class. */
  const noClass = () => (between() === "seeds" ? "Of each end" : model().null_label ? "None" : "Choose one");

  function listModels() {
    const before = chosen.value, names = able().map(({ name }) => name);
    chosen.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    if (names.includes(before)) chosen.value = before;
    find(".cannot", root).hidden = names.length > 0;
    find(".columns", root).hidden = !names.length;
    if (names.length) setModel();
  }

  function setModel() {
    const { shape: [channels, height, width], parameters, flow, labels, examples } = model();
    find(".model-details", form).textContent = `${width}\u00a0×\u00a0${height}\u00a0pixels, ${channels === 1 ? "grey" : "colour"}; ${count(parameters)} parameters.`;
    find(".class-field", form).hidden = find(".class-help", form).hidden = !labels.length;
    listClasses(label, model(), noClass());
    calls.value = flow.calls;
    for (const end of all(".end", form)) {
      const buttons = examples.map((example) => {
        const button = make("button", { type: "button", value: example, title: `Example ${example}` }, make("img", { src: `/api/examples/${encodeURIComponent(example)}.png`, alt: `Example ${example}` }));
        button.addEventListener("click", () => setEnd(end, { name: `Example ${example}`, example }));
        return button;
      });
      find(".examples", end).replaceChildren(...buttons);
      const example = examples[ENDS.indexOf(end.dataset.end)];
      if (!given[end.dataset.end]?.file) setEnd(end, example ? { name: `Example ${example}`, example } : null);
    }
    if (!film.frames.length) film.expect(Number(frames.value) || 9, model().shape);
    plan();
  }

  /** Takes an image for an end, after the server has read it. */
  async function setEnd(end, image) {
    const words = find(".chosen", end);
    try {
      if (image?.file) {
        const body = new FormData();
        body.append("model", model().name);
        body.append("image", image.file, image.name);
        await post("/api/fit", body);
      }
    } catch (error) {
      words.textContent = `${image.name}: ${error.message}`;
      return;
    }
    given[end.dataset.end] = image;
    words.textContent = image?.name ?? "";
    for (const button of all(".examples button", end)) button.setAttribute("aria-pressed", String(button.value === image?.example));
  }

  function showEnds() {
    const seeds = between() === "seeds";
    for (const part of all(".from-seeds", form)) part.hidden = !seeds;
    find(".from-images", form).hidden = seeds;
    if (model()) listClasses(label, model(), noClass());
  }

  for (const end of all(".end", form)) {
    const input = find("[type=file]", end);
    input.addEventListener("change", () => {
      const [file] = input.files;
      if (file) setEnd(end, { name: file.name, file });
      input.value = "";
    });
  }
  all(".dice", form).forEach((button, k) => dice(button, [seed, to_seed][k]));
  for (const radio of all("[name=ends]", root)) radio.addEventListener("change", showEnds);
  chosen.addEventListener("change", setModel);
  for (const kind of ["input", "change"]) form.addEventListener(kind, plan);
  document.addEventListener("models", listModels);

  /** Shows how long a job between seeds takes. */
  function plan() {
    const mine = ++planned;
    clearTimeout(timer);
    find(".cost", form).textContent = "";
    timer = setTimeout(async () => {
      let seconds = null;
      try {
        const { n, ...asked } = read();
        if (between() === "seeds") seconds = await estimate({ model: asked.model, n, sampler: model().flow.sampler, calls: asked.calls ?? model().flow.calls });
      } catch { /* a field is wrong */ }
      if (mine === planned) find(".cost", form).textContent = !seconds ? "" : `Takes ${about(seconds)}.`;
    }, PAUSE);
  }

  /** The values of the fields for a request, with the number of images as n. */
  function read() {
    const most = 2 ** 32 - 1, asked = { model: model().name, frames: numberIn(frames, { least: 2, most: limits.n, whole: true }) };
    if (model().labels.length && label.value) asked.label = label.value;
    if (between() === "seeds") {
      Object.assign(asked, { seed: numberIn(seed, { least: 0, most, whole: true }), to_seed: numberIn(to_seed, { least: 0, most, whole: true }) });
      const wanted = numberIn(calls, { least: 1, most: 100_000, whole: true });
      if (wanted !== model().flow.calls) asked.calls = wanted;
    }
    return { ...asked, n: asked.frames };
  }

  // -------- the job

  async function interpolate() {
    const mine = ++pressed;
    let asked;
    try {
      asked = read();
      showFieldError(form, null);
      if (between() === "images" && !ENDS.every((end) => given[end])) throw new Error("Choose two images first.");
    } catch (error) {
      if (error.inputs) showFieldError(form, error);
      else tell(find(".error", root), error.message);
      return;
    }
    const { n, ...fields } = asked, body = new FormData(), images = between() === "images";
    const examples = images ? { example: given.image.example, to_example: given.to_image.example } : {}, own = images && !ENDS.every((end) => given[end].example);
    for (const [name, value] of Object.entries(fields)) body.append(name, value);
    for (const end of images ? ENDS : []) {
      const { name, file, example } = given[end];
      if (file) body.append(end, file, name);
      else body.append(exampleOf(end), example);
    }
    const link = `#/interpolate?${new URLSearchParams({ ...fields, ...(own ? {} : examples) })}`;
    way.disabled = true;
    running = film.run("/api/interpolate", body, { n, shape: model().shape, start: find(".primary", form), onJob: () => {
      shown = own ? "#/interpolate" : link;
      if (location.hash !== shown) history.pushState(null, "", shown);
    } });
    const status = await running;
    if (mine !== pressed || !film.frames.length) return;
    Object.assign(way, { disabled: false, max: n - 1, value: 0 });
    showPlace(film);
    if (status?.state === "done" && !own) keepResult(film, link, `From ${images ? "one example to another" : `seed ${fields.seed} to ${fields.to_seed}`}, ${fields.model}`);
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); interpolate(); });

  /** Draws the image at the slider's place, large. */
  function showPlace(film) {
    const { frames, shown: k, shape: [, height, width], n } = film, sheet = frames[k]?.image ?? film.noise, at = Math.min(Number(way.value), n - 1), ratio = devicePixelRatio || 1;
    const room = Math.min(large.parentElement.clientWidth - 24, 320);
    if (!sheet || room <= 0) return;
    const zoom = Math.max(1, Math.floor((room / Math.max(width, height)) * ratio));
    Object.assign(large, { width: width * zoom, height: height * zoom });
    large.style.width = `${large.width / ratio}px`;
    const context = large.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.globalAlpha = sheet === film.noise ? 0.35 : 1;
    context.drawImage(sheet, ...film.inSheet(at), width, height, 0, 0, large.width, large.height);
    if (sheet === film.noise) return;
    large.setAttribute("aria-label", `Image ${at + 1} of ${n}`);
    find(".place", root).textContent = `Image ${at + 1} of ${n}`;
    way.setAttribute("aria-valuetext", `image ${at + 1} of ${n}`);
  }
  way.addEventListener("input", () => showPlace(film));

  listModels();
  showEnds();

  return {
    /** A link makes its images again. */
    async open(parameters) {
      if (!able().length) return;
      const link = `#/interpolate?${parameters}`;
      if (!parameters.size) {
        if (shown.includes("?")) history.replaceState(null, "", shown);
        return;
      }
      if (link === shown) return;
      find(".stop", root).click(); // a job that may still run
      await running;
      const name = parameters.get("model");
      if (name && !able().some((each) => each.name === name)) {
        tell(find(".error", root), `The link is for the model “${name}”, which this server does not have for all noise levels.`);
        return;
      }
      if (name) chosen.value = name;
      setModel();
      for (const each of ["seed", "to_seed", "frames", "calls"]) if (parameters.has(each)) form.elements[each].value = parameters.get(each);
      find(`[name=ends][value=${parameters.has("example") ? "images" : "seeds"}]`, root).checked = true;
      showEnds();
      label.value = parameters.get("label") ?? "";
      if (label.selectedIndex < 0) label.value = "";
      for (const end of all(".end", form)) {
        const example = parameters.get(exampleOf(end.dataset.end));
        if (example) await setEnd(end, { name: `Example ${example}`, example });
      }
      shown = link;
      interpolate();
    },
  };
}
