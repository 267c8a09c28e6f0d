// Restore: an image, what is lost of it, and several images that explain what is left.

import { blobOf, post, stillThere } from "./api.js";
import { Editor } from "./editor.js";
import { Film } from "./film.js";
import { imageOf, keepResult } from "./gallery.js";
import { Pad } from "./pad.js";
import { Preview } from "./preview.js";
import { Settings } from "./settings.js";
import { all, copy, count, digits, find, fromText, keep, make, numberIn, recalled, save, showFieldError, tell, toText } from "./ui.js";

const KEPT = 2e6; // bytes: a larger file is kept over a reload as the model sees it, since a browser keeps only a few MB
const NOTHING = "Nothing is hidden: paint over a part of the image, or take a ready-made hole.";
const IN_LINK = 4096; // pixels: a larger mask that is painted makes a link too long
const FEWER = 19; // network calls of the usual sampler, about half, where its 35 take long
const METHODS = {
  mmps: "The best error bars, but slow.",
  diffpir: "Fast. Its images differ too little from each other.",
  dps: "Faster than moment matching, with worse error bars.",
  replace: "Fast: the paper’s; known pixels are overwritten.",
};
const TASKS = {
  inpaint: "Paint over what is to be hidden, or take a ready-made hole.",
  blur: "The image becomes blurred.",
  superres: "The image is left with fewer pixels.",
  gray: "The image loses its colours.",
};

export function makeTab(root, { models, limits }) {
  const form = find("form", root), { method, noise } = form.elements;
  const task = () => find("[name=task]:checked", root).value;
  const settings = new Settings(form, {
    models, most: { n: limits.completions, steps: limits.steps, seconds: limits.work_seconds }, n: 5, words: "Restore", noun: "Restorations", usual: ({ restoring, samplers }) => restoring ?? samplers[0],
    quick: ({ restoring, range, quick }) => (restoring ? { sampler: restoring.name, calls: FEWER } : range ? null : quick),
    extra: () => ({ task: task() === "inpaint" ? `inpaint:${editor.name ?? "left"}` : taskWords(), method: method.value }),
    others: () => [{ change: { method: "diffpir" }, words: "DiffPIR", note: METHODS.diffpir.split(". ")[1], button: "Take DiffPIR", take: () => { method.value = "diffpir"; showTask(); keepSettings(); } }],
  });
  let asked = 0, pressed = 0; // answers may arrive in another order than the requests were sent
  let source = null; // { name, example, file, fitted }: an own image has no example; fitted is the file as the model sees it
  let running = Promise.resolve();
  let sent = null; // { mask, example, file, link } of the restorations that are shown
  // kept over a reload of the page: the hole (width, height and pixels), the image, the settings, and the last job
  let hole = recalled("hole") ?? [], image = recalled("image") ?? {};

  const film = new Film(find(".work", root), {
    kind: "restoration",
    across: (n, room) => { // rows of the same length, five at most
      const rows = Math.ceil(n / (room > 480 ? 5 : 3));
      return Math.ceil(n / rows);
    },
    onShow: showSpread,
    downloads: (film) => {
      // the files that the command line below needs
      const own = (words, blob, name) => {
        const button = make("button", { type: "button" }, words);
        button.addEventListener("click", () => save(blob, name));
        return button;
      };
      const { mask, example, file, link } = sent, { image } = film.status.settings, copied = make("button", { type: "button" }, "Copy the link");
      copied.addEventListener("click", () => copy(`${location.origin}/${link}`, copied));
      return [film.download("Sheet (PNG)", "grid.png", "restored.png"), film.download("Animation (GIF)", "annealing.gif", "restorations.gif"),
        film.download("Array (NPY)", "images.npy", "restorations.npy"), ...(mask ? [own("Mask (PNG)", mask, "mask.png")] : []),
        ...(example ? [own("Example (PNG)", file, `${example}.png`)] : file ? [own(image.endsWith(".png") ? "Image (PNG)" : "Image", file, image)] : [film.download("Image (PNG)", "original.png", image)]), ...(link ? [copied] : [make("span", { className: "small" }, `A link cannot hold your own ${example ? "hole" : "image"}.`)])];
    },
  });
  find(".readout", film.root).before(find(".beside", root));
  find(".player", film.root).after(find(".numbers", root));
  const showError = (words) => tell(find(".error", root), words);
  const keepSettings = () => {
    try {
      keep("restore", query({ image: false }));
    } catch { /* a field is wrong */ }
  };

  // -------- what is lost

  const preview = new Preview(find(".preview canvas", root));
  const taskWords = () => ({ blur: `blur:${field("blur").value}`, superres: `superres:${field("superres").value}`, gray: "gray" })[task()];
  const field = (name) => find(`[name=${name}]:checked`, root) ?? find(`[name=${name}]`, root);

  function showTask() {
    const chosen = task(), holed = chosen === "inpaint";
    tell(find(".task-note", root), TASKS[chosen]);
    for (const name of ["blur", "superres", "inpaint"]) find(`.task-${name}`, root).hidden = name !== chosen;
    find(".easel:not(.preview)", root).hidden = !holed;
    find(".preview", root).hidden = holed;
    find("output", find(".task-blur", root)).textContent = digits(Number(field("blur").value));
    find("option[value=replace]", method).disabled = !holed;
    if (!holed && method.value === "replace") method.value = "mmps";
    find(".method-note", root).textContent = METHODS[method.value];
    if (holed) editor.draw();
    else preview.show(editor.image, taskWords());
  }
  for (const input of all("[name=task], [name=blur]", root)) input.addEventListener("input", () => { showTask(); settings.plan(); keepSettings(); });
  method.addEventListener("change", showTask);

  /** The possible factors by which this model's images become smaller, as choices. */
  function listFactors([, height, width]) {
    const before = field("superres")?.value ?? "4", factors = [2, 4, 7, 8].filter((k) => height % k === 0 && width % k === 0);
    const fields = factors.map((k) => make("label", {}, make("input", { type: "radio", name: "superres", value: k, checked: String(k) === before }), make("span", {}, `${k} × ${k}`)));
    find(".task-superres", root).replaceChildren(make("legend", {}, "These become one pixel"), ...fields);
    if (factors.length && !find("[name=superres]:checked", root)) find("[name=superres]", root).checked = true;
    for (const input of all("[name=superres]", root)) input.addEventListener("input", () => { showTask(); settings.plan(); keepSettings(); });
    find("[name=task][value=superres]", root).disabled = !factors.length;
  }

  // -------- the editor and its tools

  const editor = new Editor(find(".editor", root), {
    onTool(change) {
      if (change.size) find(`[name=size][value="${change.size}"]`, root).checked = true;
      if (change.tool) find(`[name=tool][value=${change.tool}]`, root).checked = true;
      Object.assign(editor, change);
      editor.draw();
    },
    onChange(editor) {
      const part = editor.count;
      if (part && find(".error", root).textContent === NOTHING) showError(null);
      find(".hole-count", root).textContent = part ? `${count(part)} of ${count(editor.hidden.length)} pixels are hidden.` : "Nothing is hidden yet.";
      find("[data-do=undo]", root).disabled = !editor.undos.length;
      find("[data-do=redo]", root).disabled = !editor.redos.length;
      if (editor.pointer == null && editor.hidden.length <= 2 ** 16) keep("hole", [editor.width, editor.height, editor.hidden.join("")]);
    },
    onView({ factor, easiest, scrolls }) {
      find(".zoom", root).hidden = find(".zoom-help", root).hidden = easiest === 1; // the pixels are large enough already
      find(".scroll-help", root).hidden = !scrolls;
      find(".zoom output", root).textContent = `×\u2009${factor}`;
      find("[data-zoom='0.5']", root).disabled = factor === 1;
      find("[data-zoom='2']", root).disabled = factor === easiest;
    },
  });
  for (const radio of all("[name=tool]", root)) radio.addEventListener("change", () => { editor.tool = radio.value; });
  for (const radio of all("[name=size]", root)) radio.addEventListener("change", () => { editor.size = Number(radio.value); });
  for (const button of all("[data-do]", root)) button.addEventListener("click", () => editor[button.dataset.do]());
  for (const button of all("[data-zoom]", root)) button.addEventListener("click", () => editor.zoom(Number(button.dataset.zoom)));
  for (const button of all("[data-preset]", root)) button.addEventListener("click", () => editor.preset(button.dataset.preset));
  root.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.target.matches("input:not([type])")) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) editor.redo();
    else editor.undo();
  });

  // -------- where the image comes from

  const showImageError = (words) => tell(find(".image-error", root), words); // beside the choice of an image

  /** Shows an image as the model sees it: an example, or a file. Tells whether it is used: another may be asked for meanwhile. */
  async function use(chosen) {
    const mine = ++asked;
    try {
      chosen.file ??= await blobOf(`/api/examples/${encodeURIComponent(chosen.example)}.png`);
      if (chosen.file.size > limits.upload_bytes) throw new Error(`the file has ${count(chosen.file.size)} bytes, but at most ${count(limits.upload_bytes)} are allowed. Make it smaller first.`);
      const body = new FormData();
      body.append("model", settings.model.name);
      body.append("image", chosen.file, chosen.name);
      const answer = await post("/api/fit", body), fitted = await answer.blob(), note = answer.headers.get("X-Note");
      const image = await createImageBitmap(fitted);
      if (mine !== asked) return false;
      source = { ...chosen, fitted };
      for (const button of all(".examples button", root)) button.setAttribute("aria-pressed", String(button.value === chosen.example));
      editor.setImage(image);
      preview.show(image, taskWords());
      find("#fitted", root).textContent = `${chosen.name}, as the model sees it: ${image.width}\u00a0×\u00a0${image.height}\u00a0pixels.`;
      tell(find(".image-note", root), note && `${decodeURIComponent(note)}.`);
      showImageError(null);
      const { name, example, file } = chosen, text = example ? null : await toText(file.size <= KEPT ? file : fitted);
      if (mine === asked) keep("image", { name, example, file: text });
      return mine === asked;
    } catch (error) {
      if (mine === asked) showImageError(`${chosen.name}: ${error.message}`);
      return false;
    }
  }

  const useExample = (example) => use({ name: `Example ${example}`, example });

  const useFile = (file) => file && use({ name: file.name || "pasted.png", file });
  for (const input of all(".drop [type=file]", root)) input.addEventListener("change", () => { useFile(input.files[0]); input.value = ""; });

  const drop = find(".drop", root);
  root.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  root.addEventListener("dragleave", (event) => { if (!root.contains(event.relatedTarget)) drop.classList.remove("over"); });
  root.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (file) useFile(file);
    else showImageError("This is not a file. Save the image first, then drop the file here.");
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find(({ type }) => type.startsWith("image/"));
    if (!root.hidden && file) useFile(file);
  });

  const own = find(".own", root), pad = new Pad(find(".pad canvas", root), { onChange: ({ empty }) => { find(".take", root).disabled = empty; } });
  own.addEventListener("click", () => {
    const shown = find(".pad", root).hidden;
    find(".pad", root).hidden = !shown;
    own.setAttribute("aria-expanded", String(shown));
    if (shown) pad.canvas.focus();
  });
  find(".wipe", root).addEventListener("click", () => pad.clear());
  find(".take", root).addEventListener("click", async () => use({ name: "drawing.png", file: await pad.png(settings.model.shape) }));

  // -------- a model, its size and its examples

  let modelShown;
  function setModel() {
    const { name, shape, examples = [] } = settings.model;
    if (name === modelShown) return;
    modelShown = name;
    if (find(".primary", form).disabled) find(".stop", root).click(); // the running job belongs to the other model
    editor.reset(shape[2], shape[1]);
    if (hole[0] === shape[2] && hole[1] === shape[1]) editor.hidden = Uint8Array.from(hole[2], Number);
    hole = [];
    listFactors(shape);
    const grey = shape[0] === 1, colour = find("[name=task][value=gray]", root);
    colour.disabled = grey;
    colour.parentElement.title = grey ? "This model’s images are grey already." : "";
    if (find("[name=task]:checked", root).disabled) find("[name=task][value=inpaint]", root).checked = true;
    own.hidden = !grey;
    find(".pad", root).hidden ||= !grey;
    running.then(() => { // a job of another model was stopped
      if (name !== modelShown) return;
      film.expect(Number(form.elements.n.value) || 5, shape);
      hideBeside();
    });
    const buttons = examples.map((example) => {
      const image = make("img", { src: `/api/examples/${encodeURIComponent(example)}.png`, alt: `Example ${example}` });
      const button = make("button", { type: "button", value: example, title: `Example ${example}` }, image);
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => useExample(example));
      return button;
    });
    find(".examples", root).replaceChildren(...buttons);
    find(".examples-title", root).hidden = !buttons.length;
    if (image.file) source = { name: image.name, file: fromText(image.file) };
    if (source && !source.example) use(source);
    else if (buttons.length) useExample(examples.includes(image.example) ? image.example : examples[0]);
    else {
      source = null;
      find("#fitted", root).textContent = "";
    }
    if (!editor.count) editor.preset("left");
    editor.undos = []; // the first hole was not painted by the user
    editor.changed();
    image = {};
    showTask();
  }
  form.elements.model.addEventListener("change", setModel);
  form.elements.n.addEventListener("change", () => { if (!film.frames.length && !find(".primary", form).disabled) film.expect(Math.min(Number(form.elements.n.value) || 5, limits.completions), settings.model.shape); });
  for (const kind of ["input", "change"]) form.addEventListener(kind, keepSettings);

  // -------- links

  const fits = () => Boolean(editor.name) || editor.hidden.length <= IN_LINK; // the mask into a link

  /** The settings as a link's parameters. An own image cannot be in a link; a mask can, if it is small. */
  function query({ image = true, mask = fits() } = {}) {
    const parameters = new URLSearchParams(settings.query());
    parameters.set("task", task() === "inpaint" ? "inpaint" : taskWords());
    parameters.set("noise", String(numberIn(noise)));
    if (image && source?.example) parameters.set("example", source.example);
    if (image && task() === "inpaint" && mask) parameters.set("mask", editor.name ?? editor.code);
    return parameters.toString();
  }

  /** Sets everything from a link's parameters; returns the name of its example. */
  function write(parameters) {
    const words = parameters.get("task") ?? "inpaint", [kind, value = ""] = words.split(":");
    if (parameters.has("example")) image = { example: parameters.get("example") }; // so that no other is loaded meanwhile
    settings.write(parameters);
    setModel();
    const example = parameters.get("example");
    image = {};
    if (example && !settings.model.examples.includes(example)) throw new Error(`${settings.model.name} has no example “${example}”, which the link names.`);
    const way = parameters.get("method") ?? "mmps", chosen = find(`[name=task][value="${CSS.escape(kind)}"]`, root);
    const unsuited = () => new Error(`The link’s task “${words}” does not suit ${settings.model.name}.`);
    if (!chosen || chosen.disabled) throw unsuited();
    if (!(way in METHODS) || (way === "replace" && kind !== "inpaint")) throw new Error(`The link’s method “${way}” does not suit its task “${words}”.`);
    noise.value = parameters.get("noise") ?? noise.defaultValue;
    if (kind === "blur") {
      const width = field("blur"), before = width.value;
      width.value = value; // another width than the slider has becomes one of them
      if (!value || Number(width.value) !== Number(value)) {
        width.value = before;
        throw unsuited();
      }
    }
    if (kind === "superres") {
      const factor = find(`[name=superres][value="${CSS.escape(value)}"]`, root);
      if (!factor) throw unsuited();
      factor.checked = true;
    }
    method.value = way;
    chosen.checked = true;
    const mask = parameters.get("mask");
    if (kind === "inpaint" && mask) editor.load(mask);
    showTask();
    settings.plan();
    return example;
  }
  try {
    const before = recalled("restore");
    if (before) write(new URLSearchParams(before));
  } catch { /* the server has other models now */ }

  // -------- the job

  async function restore({ link = false } = {}) {
    const mine = ++pressed;
    let asked, parameters, whole;
    try {
      asked = { ...settings.read(), noise: numberIn(noise, { least: Number.MIN_VALUE, most: 10 }) };
      parameters = query();
      whole = `#/restore?${query({ mask: true })}`;
      showFieldError(form, null);
      if (!source) throw new Error(`Choose an image first: a file${settings.model.examples?.length ? ", or one of the examples" : ", dropped or pasted"}.`);
      if (task() === "inpaint" && !editor.count) throw new Error(NOTHING);
    } catch (error) {
      if (error.inputs) showFieldError(form, error);
      else showError(error.message);
      return;
    }
    const { name, example, file, fitted } = source, { shape } = settings.model, holed = task() === "inpaint", ready = holed && editor.name;
    const painted = holed && !ready ? editor.png() : null, linked = example && (!holed || fits());
    if (!(await settings.mayStart(settings.read(), { link }))) return;
    const [mask, own] = await Promise.all([painted, example ? null : toText(fitted).then((text) => ({ name, text }))]);
    if (mine !== pressed || asked.model !== settings.model.name) return; // pressed again, or another model
    const body = new FormData();
    for (const [key, value] of Object.entries(asked)) body.append(key, key === "denoise" ? Number(value) : value);
    if (holed) body.set("task", ready ? `inpaint:${ready}` : "inpaint");
    if (example) body.append("example", example);
    else body.append("image", file, name);
    if (mask) body.append("mask", mask, "mask.png");
    const address = `#/restore?${parameters}`, shown = linked ? address : "#/restore";
    sent = { mask, example, file, link: linked ? address : null };
    if (location.hash !== shown) history[link ? "replaceState" : "pushState"](null, "", shown);
    const result = { link: whole, words: `${asked.task.split(":")[0]}, ${example ? `example ${example}` : name}, ${asked.model}`, own };
    running = film.run("/api/restore", body, {
      n: asked.n, shape, start: find(".primary", form),
      onJob: async (job) => {
        showBeside(job, shape);
        keep("restorations", { job, model: asked.model, n: asked.n, mask: mask && (await toText(mask)), example, link: sent.link, result });
      },
    });
    ended(await running, result);
  }

  /** Shows the numbers of restorations, and puts them into the gallery: { link, words, own }, unless they were there before. */
  function ended(status, { link, words, own }) {
    showNumbers(status);
    if (status?.state === "done" && film.watched) keepResult(film, link, words, own);
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); restore(); });

  // -------- what is shown beside the restorations

  const panel = (name, words) => make("figure", { className: name }, make("canvas", {}), make("figcaption", { className: "small" }, words));
  const PANELS = { measurement: "What is left", mean: "Mean", deviation: "Deviation", original: "Original" };
  find(".beside", root).replaceChildren(...Object.entries(PANELS).map(([name, words]) => panel(name, words)));
  for (const [name, words] of Object.entries(PANELS)) {
    const canvas = find(`.${name} canvas`, root);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", name === "deviation" ? "Standard deviation" : words);
    if (name === "deviation") canvas.title = "The standard deviation of the restorations: white where they differ most";
  }

  function hideBeside() {
    find(".beside", root).hidden = true;
    tell(find(".numbers", root), null);
  }

  /** Shows the measurement and the original; the mean and the deviation follow with the frames. */
  async function showBeside(job, [, height, width]) {
    tell(find(".numbers", root), null);
    for (const name of Object.keys(PANELS)) Object.assign(find(`.${name} canvas`, root), { width, height }); // empties it
    find(".beside", root).hidden = false;
    find(".deviation figcaption", root).textContent = PANELS.deviation;
    for (const name of ["measurement", "original"]) {
      const image = await blobOf(`/api/jobs/${job}/${name}.png`).then(createImageBitmap, () => null);
      if (image) find(`.${name} canvas`, root).getContext("2d").drawImage(image, 0, 0);
    }
  }

  /** Draws the mean and the standard deviation of the restorations in the frame that is shown. */
  let spread = null;
  function showSpread(film) {
    const sheet = film.frames[film.shown]?.image, [, height, width] = film.shape, size = width * height;
    if (!sheet || sheet === spread) return;
    spread = sheet;
    const reader = make("canvas", { width: sheet.naturalWidth, height: sheet.naturalHeight }).getContext("2d", { willReadFrequently: true });
    reader.drawImage(sheet, 0, 0);
    const sum = new Float64Array(4 * size), squares = new Float64Array(4 * size);
    for (let k = 0; k < film.n; k++) {
      const { data } = reader.getImageData(...film.inSheet(k), width, height);
      for (let i = 0; i < data.length; i++) {
        sum[i] += data[i];
        squares[i] += data[i] ** 2;
      }
    }
    const mean = sum.map((each) => each / film.n), deviation = squares.map((each, i) => Math.sqrt(Math.max(0, each / film.n - mean[i] ** 2)));
    const most = deviation.reduce((one, other) => Math.max(one, other), 0);
    for (const [name, values, scale] of [["mean", mean, 1], ["deviation", deviation, most ? 255 / most : 0]]) {
      const canvas = find(`.${name} canvas`, root), context = canvas.getContext("2d");
      Object.assign(canvas, { width, height });
      const drawn = context.createImageData(width, height);
      values.forEach((value, i) => { drawn.data[i] = i % 4 === 3 ? 255 : Math.round(value * scale); });
      context.putImageData(drawn, 0, 0);
    }
    find(".deviation figcaption", root).textContent = `Deviation, 0 to ${digits(most / 255)}`;
  }

  function showNumbers(status) {
    const { residual, psnr } = status?.numbers ?? {};
    if (residual == null) return;
    const explained = residual < 1.5 ? "the images explain the measurement" : "the images do not quite explain the measurement; more calls may help";
    const error = psnr == null ? "" : ` The mean is ${psnr.toFixed(1)} dB from the original (PSNR).`;
    tell(find(".numbers", root), `Residual ${residual.toFixed(2)}: ${explained} (1 is what noise alone makes).${error}`);
  }

  /** Shows the restorations from before a reload, if the server still has them. */
  async function showAgain() {
    const last = recalled("restorations"), before = pressed;
    if (last?.model !== settings.model.name || !(await stillThere(last.job))) return;
    const file = last.example && (await blobOf(`/api/examples/${encodeURIComponent(last.example)}.png`));
    if (pressed !== before || last.model !== settings.model.name) return; // the user was faster
    sent = { ...last, mask: last.mask && fromText(last.mask), file };
    const { shape } = settings.model;
    ended(await film.run("/api/restore", null, { n: last.n, shape, start: find(".primary", form), again: last.job, onJob: (job) => showBeside(job, shape) }), last.result);
  }

  let fresh = true;
  return {
    /** A link with settings restores its example, if that does not take long. */
    async open(parameters) {
      const here = parameters.toString(), last = recalled("restorations");
      const again = fresh && last?.link === `#/restore?${here}`; // after a reload
      if (here && !again && here !== sent?.link?.slice("#/restore?".length)) {
        fresh = false;
        find(".stop", root).click(); // a job that may still run
        await running;
        const kept = parameters.get("kept"), own = kept && imageOf(kept);
        let example;
        try {
          example = write(parameters);
          showError(null);
        } catch (error) {
          setModel();
          showError(error.message);
          return;
        }
        if (example || own) {
          if (await (example ? useExample(example) : use({ name: own.name, file: fromText(own.text) }))) restore({ link: true });
        } else showError(kept ? "The image of this result was not kept: choose it again." : "The link holds no image: choose one.");
        return;
      }
      setModel();
      if (!here && sent?.link) history.replaceState(null, "", sent.link);
      if (fresh) running = running.then(showAgain).catch(() => {}); // they are lost, which a new press mends
      fresh = false;
    },
  };
}
