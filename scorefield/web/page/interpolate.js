// Interpolate: the images on the way from one to another, and a slider through them.

import { post, stillThere } from "./api.js";
import { Film } from "./film.js";
import { keepResult } from "./gallery.js";
import { Timed } from "./long.js";
import { listClasses } from "./settings.js";
import { all, copy, count, dice, explain, find, make, numberIn, remember, remembered, showFieldError, tell } from "./ui.js";

const ENDS = ["image", "to_image"];
const exampleOf = (end) => end.replace("image", "example"); // the field with the name of an example

const BODY = `
<p class="notice cannot" hidden>This needs a model for all noise levels, and this server has none: the paper’s networks know a list of them. Train one (<code>scorefield train unet-mnist --out runs/mine</code>) and start the server with it (<code>scorefield serve runs/mine</code>).</p>
<div class="columns">
<form class="controls" autocomplete="off" novalidate>
<label class="field"><span>Model</span><select name="model"></select></label>
<p class="small help model-details" data-about="model"></p>
<fieldset class="segments ends"><legend>Between</legend>
<label><input type="radio" name="ends" value="seeds" checked><span>Two seeds</span></label>
<label><input type="radio" name="ends" value="images"><span>Two images</span></label>
</fieldset>
<div class="two from-seeds">
<label class="field"><span>First seed</span><span class="pair"><input name="seed" inputmode="numeric" value="0"><button type="button" class="dice round" aria-label="Another first seed" title="Another seed"></button></span></label>
<label class="field"><span>Second seed</span><span class="pair"><input name="to_seed" inputmode="numeric" value="1"><button type="button" class="dice round" aria-label="Another second seed" title="Another seed"></button></span></label>
</div>
<p class="small help from-seeds" data-about="seed to_seed">The ends are the images that Sample draws first with these seeds.</p>
<div class="from-images" hidden>
<div class="end" data-end="image"><p class="label">First image</p><div class="examples"></div><label class="button">Choose a file<input type="file" class="hidden-input" accept="image/*"></label><span class="small chosen"></span><p class="small wrong-file" role="alert" hidden></p></div>
<div class="end" data-end="to_image"><p class="label">Second image</p><div class="examples"></div><label class="button">Choose a file<input type="file" class="hidden-input" accept="image/*"></label><span class="small chosen"></span><p class="small wrong-file" role="alert" hidden></p></div>
<p class="small note">The noise that becomes each image is computed first, which takes a while.</p>
</div>
<div class="two">
<label class="field class-field"><span>Class</span><select name="label"></select></label>
<label class="field"><span>Images</span><input name="frames" inputmode="numeric" value="9"></label>
</div>
<p class="small help" data-about="label frames">The number of images includes both ends.<span class="class-help"> All images have the class that is chosen<span class="from-seeds">; with “Of each end” it changes half-way between the ends</span>.</span></p>
<label class="field from-seeds"><span>Network calls per image</span><input name="calls" inputmode="numeric"></label>
<p class="small help from-seeds" data-about="calls">More calls take longer and follow the path to the image more closely.</p>
</form>
<div class="work">
<figure class="between"><div class="stage"><canvas class="large" role="img" aria-label="One of the images"></canvas></div>
<label class="field"><span class="place">Drag to go from one to the other</span><input type="range" class="way" min="0" max="8" step="1" value="0" disabled></label></figure>
<h2>All of them</h2>
</div>
</div>
`;

export function makeTab(root, { models, limits }) {
  root.insertAdjacentHTML("beforeend", BODY);
  const form = find("form", root), way = find(".way", root), large = find(".large", root), { model: chosen, seed, to_seed, label, frames, calls } = form.elements;
  const able = () => models.filter(({ range }) => range), model = () => able().find(({ name }) => name === chosen.value);
  const given = {}; // the chosen image of each end: { name, file } or { name, example }
  let shown = "", pressed = 0, running = Promise.resolve();
  const between = () => find("[name=ends]:checked", root).value;

  const film = new Film(find(".work", root), {
    kind: "between",
    across: (n, room) => Math.max(1, Math.min(n, Math.floor(room / 64))),
    onShow: showPlace,
    downloads: (film) => {
      const link = make("button", { type: "button" }, "Copy the link"), linked = shown.includes("?");
      link.addEventListener("click", () => copy(`${location.origin}/${shown}`, link));
      return [film.download("Row (PNG)", "grid.png", "interpolation.png"), film.download("Animation (GIF)", "annealing.gif", "interpolation.gif"),
        film.download("Array (NPY)", "images.npy", "interpolation.npy"), ...(linked ? [link] : [make("span", { className: "small" }, "A link cannot hold your own images.")])];
    },
  });

  // -------- the settings

  explain(form);
  const timed = new Timed(form, {
    words: "Interpolate", noun: "Images", most: { seconds: limits.work_seconds }, work,
    faster: () => (between() === "seeds" ? [{ part: model().flow.calls / Number(calls.value), words: `A path of ${model().flow.calls} calls`, button: `Take ${model().flow.calls} calls`, take: () => { calls.value = model().flow.calls; } }] : []),
  });

  /** The classes, and what it means to choose none. */
  function showClasses() {
    const { labels, null_label } = model(), seeds = between() === "seeds";
    listClasses(label, { labels, null_label: null_label && seeds }, seeds ? "Of each end" : null_label ? "No class" : "Choose one");
  }

  function listModels() {
    const before = chosen.value, names = able().map(({ name }) => name);
    chosen.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    if (names.includes(before)) chosen.value = before;
    find(".cannot", root).hidden = names.length > 0;
    find(".columns", root).hidden = !names.length;
    if (names.length && chosen.value !== before) setModel();
  }

  function setModel() {
    const { shape: [channels, height, width], parameters, flow, labels, examples } = model();
    find(".model-details", form).textContent = `${width}\u00a0×\u00a0${height}\u00a0pixels, ${channels === 1 ? "grey" : "colour"}; ${count(parameters)} parameters.`;
    find(".class-field", form).hidden = find(".class-help", form).hidden = !labels.length;
    showClasses();
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
    timed.plan();
  }

  const choices = {}; // how often each end was chosen: a later choice counts

  /** Takes an image for an end, after the server has read it. */
  async function setEnd(end, image) {
    const words = find(".chosen", end), wrong = find(".wrong-file", end), name = end.dataset.end, mine = (choices[name] = (choices[name] ?? 0) + 1);
    try {
      if (image?.file) {
        const body = new FormData();
        body.append("model", model().name);
        body.append("image", image.file, image.name);
        await post("/api/fit", body);
      }
    } catch (error) {
      if (mine === choices[name]) tell(wrong, `${image.name}: ${error.message}`);
      return;
    }
    if (mine !== choices[name]) return;
    tell(wrong, null);
    given[name] = image;
    words.textContent = image?.name ?? "";
    for (const button of all(".examples button", end)) button.setAttribute("aria-pressed", String(button.value === image?.example));
  }

  function showEnds() {
    const seeds = between() === "seeds";
    for (const part of all(".from-seeds", form)) part.hidden = !seeds;
    find(".from-images", form).hidden = seeds;
    if (model()) showClasses();
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
  document.addEventListener("models", listModels);

  /** The samples that take as long: between images, the solver decides on the calls, and the server knows about how many. */
  function work() {
    const asked = read(), { sampler, calls, solver_calls } = model().flow;
    return { model: asked.model, n: asked.n, sampler, calls: between() === "seeds" ? asked.calls ?? calls : solver_calls };
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

  async function interpolate({ link: linked = false } = {}) {
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
    const { shape, trained } = model(), key = `job ${trained} ${link}`, again = linked ? await stillThere(remembered(key)) : null; // after a reload
    const may = again || (await timed.mayStart(work(), { link: linked }));
    if (!may || mine !== pressed) return;
    way.disabled = true;
    running = film.run("/api/interpolate", body, { n, shape, start: find(".primary", form), again, onJob: (job) => {
      shown = own ? "#/interpolate" : link;
      if (location.hash !== shown) history[linked ? "replaceState" : "pushState"](null, "", shown);
      if (!own) remember(key, job);
    } });
    const status = await running;
    if (mine !== pressed || !film.frames.length) return;
    Object.assign(way, { disabled: false, max: n - 1, value: 0 });
    showPlace(film);
    if (status?.state === "done" && !own && film.watched) keepResult(film, link, `From ${images ? "one example to another" : `seed ${fields.seed} to ${fields.to_seed}`}, ${fields.model}`);
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
      const name = parameters.get("model"), refuse = (words) => tell(find(".error", root), words);
      if (name && !able().some((each) => each.name === name)) {
        refuse(`The link is for the model “${name}”, which this server does not have, or which knows a list of noise levels alone.`);
        return;
      }
      if (name) chosen.value = name;
      setModel();
      for (const each of ["seed", "to_seed", "frames", "calls"]) if (parameters.has(each)) form.elements[each].value = parameters.get(each);
      const images = ENDS.some((end) => parameters.has(exampleOf(end))), named = parameters.get("label") ?? "";
      find(`[name=ends][value=${images ? "images" : "seeds"}]`, root).checked = true;
      showEnds();
      label.value = images && named === "none" ? "" : named;
      if (label.selectedIndex < 0) {
        label.value = "";
        refuse(`${model().name} has no class “${named}”, which the link names.`);
        return;
      }
      if (images && !ENDS.every((end) => model().examples.includes(parameters.get(exampleOf(end))))) {
        refuse(`The link must name two of these examples: ${model().examples.join(", ")}.`);
        return;
      }
      for (const end of all(".end", form)) {
        const example = parameters.get(exampleOf(end.dataset.end));
        if (example) await setEnd(end, { name: `Example ${example}`, example });
      }
      shown = link;
      timed.plan(); // takes an earlier warning back
      refuse(null);
      interpolate({ link: true });
    },
  };
}
