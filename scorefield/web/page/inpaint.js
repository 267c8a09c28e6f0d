// Inpaint: an image, a hole painted on it, and several completions.

import { blobOf, post, stillThere } from "./api.js";
import { Editor } from "./editor.js";
import { Film } from "./film.js";
import { Settings } from "./settings.js";
import { all, count, find, fromText, keep, make, recalled, save, showFieldError, tell, toText } from "./ui.js";

const KEPT = 2e6; // bytes: a larger file is kept over a reload as the model sees it, since a browser keeps only a few MB

export function makeTab(root, { models, limits }) {
  const form = find("form", root);
  const settings = new Settings(form, { models, most: { n: limits.completions, steps: limits.steps, seconds: limits.work_seconds }, n: 5, words: "Fill the hole", noun: "Completions" });
  let asked = 0, pressed = 0; // answers may arrive in another order than the requests were sent
  let source = null; // { name, file } or { name, example, file }
  let running = Promise.resolve();
  let sent = null; // { mask, example, file } of the completions that are shown
  // kept over a reload of the page: the hole (width, height and pixels), the image, the settings, and the last job
  let hole = recalled("hole") ?? [], image = recalled("image") ?? {};

  const film = new Film(find(".work", root), {
    kind: "completion",
    across: (n, room) => { // rows of the same length, five at most
      const rows = Math.ceil(n / (room > 480 ? 5 : 3));
      return Math.ceil(n / rows);
    },
    downloads: (film) => {
      // the files that the command line below needs
      const own = (words, blob, name) => {
        const button = make("button", { type: "button" }, words);
        button.addEventListener("click", () => save(blob, name));
        return button;
      };
      const { mask, example, file } = sent;
      const given = example ? [own("Example (PNG)", file, `${example}.png`)] : [];
      return [film.download("Sheet (PNG)", "grid.png", "completions.png"), film.download("Animation (GIF)", "annealing.gif", "completions.gif"),
        own("Mask (PNG)", mask, "mask.png"), ...given];
    },
  });
  const showError = (words) => tell(find(".error", root), words);
  const keepSettings = () => {
    try {
      keep("inpaint", settings.query());
    } catch { /* a field is wrong */ }
  };
  try {
    settings.write(new URLSearchParams(recalled("inpaint") ?? ""));
  } catch { /* the server has other models now */ }
  for (const kind of ["input", "change"]) form.addEventListener(kind, keepSettings);
  const showImageError = (words) => tell(find(".image-error", root), words); // beside the choice of an image

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

  /** Show the image as the model sees it. */
  async function use(chosen) {
    const mine = ++asked;
    try {
      if (chosen.file.size > limits.upload_bytes) throw new Error(`the file has ${count(chosen.file.size)} bytes, but at most ${count(limits.upload_bytes)} are allowed. Make it smaller first.`);
      const body = new FormData();
      body.append("model", settings.model.name);
      body.append("image", chosen.file, chosen.name);
      const answer = await post("/api/fit", body), fitted = await answer.blob(), note = answer.headers.get("X-Note");
      const image = await createImageBitmap(fitted);
      if (mine !== asked) return;
      source = chosen;
      for (const button of all(".examples button", root)) button.setAttribute("aria-pressed", String(button.value === chosen.example));
      editor.setImage(image);
      find("#fitted", root).textContent = `${chosen.name}, as the model sees it: ${image.width}\u00a0×\u00a0${image.height}\u00a0pixels.`;
      tell(find(".image-note", root), note && `${decodeURIComponent(note)}.`);
      showImageError(null);
      const { name, example, file } = chosen, text = example ? null : await toText(file.size <= KEPT ? file : fitted);
      if (mine === asked) keep("image", { name, example, file: text });
    } catch (error) {
      if (mine === asked) showImageError(`${chosen.name}: ${error.message}`);
    }
  }

  async function useExample(name) {
    try {
      await use({ name: `Example ${name}`, example: name, file: await blobOf(`/api/examples/${encodeURIComponent(name)}.png`) });
    } catch (error) {
      showImageError(error.message);
    }
  }

  const useFile = (file) => file && use({ name: file.name || "pasted.png", file });
  const input = find("[type=file]", root);
  input.addEventListener("change", () => { useFile(input.files[0]); input.value = ""; });

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
    running.then(() => { // a job of another model was stopped
      if (name !== modelShown) return;
      film.expect(Number(form.elements.n.value) || 5, shape);
      find(".given", root).hidden = true;
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
  }
  form.elements.model.addEventListener("change", setModel);
  form.elements.n.addEventListener("change", () => { if (!film.frames.length && !find(".primary", form).disabled) film.expect(Math.min(Number(form.elements.n.value) || 5, limits.completions), settings.model.shape); });

  // -------- the job

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const mine = ++pressed;
    let asked;
    try {
      asked = settings.read();
      showFieldError(form, null);
      if (!source) throw new Error(`Choose an image first: a file${settings.model.examples?.length ? ", or one of the examples" : ", dropped or pasted"}.`);
      if (!editor.count) throw new Error("Nothing is hidden: paint over a part of the image, or take a ready-made hole.");
    } catch (error) {
      if (error.inputs) showFieldError(form, error);
      else showError(error.message);
      return;
    }
    const { name, example, file } = source, { shape } = settings.model, seen = editor.snapshot(), ready = editor.name, painted = editor.png();
    if (!(await settings.mayStart(asked))) return;
    const mask = await painted;
    if (mine !== pressed || asked.model !== settings.model.name) return; // pressed again, or another model
    const body = new FormData();
    for (const [field, value] of Object.entries(asked)) body.append(field, field === "denoise" ? Number(value) : value);
    if (example) body.append("example", example);
    else body.append("image", file, name);
    if (ready) body.append("mask", ready);
    else body.append("mask", mask, "mask.png");
    sent = { mask, example, file };
    running = film.run("/api/inpaint", body, {
      n: asked.n, shape, start: find(".primary", form),
      onJob: async (job) => {
        showGiven(seen);
        keep("completions", { job, model: asked.model, n: asked.n, mask: await toText(mask), seen: seen.toDataURL(), example });
      },
    });
  });

  function showGiven(seen) {
    find(".given canvas", root).replaceWith(seen);
    find(".given", root).hidden = false;
  }

  /** Shows the completions from before a reload, if the server still has them. */
  async function showAgain() {
    const last = recalled("completions"), before = pressed;
    if (last?.model !== settings.model.name || !(await stillThere(last.job))) return;
    const seen = await createImageBitmap(fromText(last.seen));
    const canvas = find(".given canvas", root);
    Object.assign(canvas, { width: seen.width, height: seen.height });
    canvas.getContext("2d").drawImage(seen, 0, 0);
    const file = last.example && (await blobOf(`/api/examples/${encodeURIComponent(last.example)}.png`));
    if (pressed !== before || last.model !== settings.model.name) return; // the user was faster
    sent = { mask: fromText(last.mask), example: last.example, file };
    await film.run("/api/inpaint", null, { n: last.n, shape: settings.model.shape, start: find(".primary", form), again: last.job, onJob: () => showGiven(canvas) });
  }

  let fresh = true;
  return {
    open() {
      setModel();
      if (fresh) running = running.then(showAgain).catch(() => {}); // they are lost, which a new press mends
      fresh = false;
    },
  };
}
