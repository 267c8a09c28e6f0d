// Inpaint: an image, a hole painted on it, and several completions.

import { blobOf } from "./api.js";
import { Editor } from "./editor.js";
import { Film } from "./film.js";
import { Settings } from "./settings.js";
import { all, count, find, make, remember, remembered, save, tell } from "./ui.js";

export function makeTab(root, { models, limits }) {
  const form = find("form", root);
  const settings = new Settings(form, { models, most: { n: limits.completions, steps: limits.steps }, n: 5, words: "Fill the hole", noun: "Completions" });
  let asked = 0; // answers may arrive in another order than the requests were sent
  let source = null; // { name, file } or { name, example, file }
  let running = Promise.resolve();
  let hole = JSON.parse(remembered("hole") ?? "[]"); // width, height and pixels, kept over a reload of the page
  let sent = null; // { mask, source } of the completions that are shown

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
      const { mask, source: { example, file } } = sent;
      const given = example ? [own("Example (PNG)", file, `${example}.png`)] : [];
      return [film.download("Sheet (PNG)", "grid.png", "completions.png"), film.download("Animation (GIF)", "annealing.gif", "completions.gif"),
        own("Mask (PNG)", mask, "mask.png"), ...given];
    },
  });
  const showError = (words) => tell(find(".error", root), words);
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
      if (editor.pointer == null && editor.hidden.length <= 2 ** 16) remember("hole", JSON.stringify([editor.width, editor.height, editor.hidden.join("")]));
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
      if (chosen.file.size > limits.upload_bytes) throw new Error(`${chosen.name} has ${count(chosen.file.size)} bytes, but at most ${count(limits.upload_bytes)} are allowed. Make it smaller first.`);
      const body = new FormData();
      body.append("model", settings.model.name);
      body.append("image", chosen.file, chosen.name);
      const image = await createImageBitmap(await blobOf("/api/fit", { method: "POST", body }));
      if (mine !== asked) return;
      source = chosen;
      for (const button of all(".examples button", root)) button.setAttribute("aria-pressed", String(button.value === chosen.example));
      editor.setImage(image);
      find("#fitted", root).textContent = `${chosen.name}, as the model sees it: ${image.width}\u00a0×\u00a0${image.height}\u00a0pixels.`;
      showImageError(null);
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
    if (source && !source.example) use(source);
    else if (buttons.length) useExample(examples[0]);
    else {
      source = null;
      find("#fitted", root).textContent = "";
    }
    if (!editor.count) editor.preset("left");
    editor.undos = []; // the first hole was not painted by the user
    editor.changed();
  }
  form.elements.model.addEventListener("change", setModel);
  form.elements.n.addEventListener("change", () => { if (!film.frames.length && !find(".primary", form).disabled) film.expect(Math.min(Number(form.elements.n.value) || 5, limits.completions), settings.model.shape); });

  // -------- the job

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = new FormData();
    try {
      const { denoise, ...others } = settings.read();
      if (!source) throw new Error(`Choose an image first: a file${settings.model.examples?.length ? ", or one of the examples" : ", dropped or pasted"}.`);
      if (!editor.count) throw new Error("Nothing is hidden: paint over a part of the image, or take a ready-made hole.");
      for (const [name, value] of Object.entries(others)) body.append(name, value);
      body.append("denoise", denoise ? "1" : "0");
      if (source.example) body.append("example", source.example);
      else body.append("image", source.file, source.name);
      find(".primary", form).disabled = true; // until the job ends, so that a second click does nothing
      sent = { mask: await editor.png(), source };
      if (editor.name) body.append("mask", editor.name);
      else body.append("mask", sent.mask, "mask.png");
      const { shape } = settings.model, seen = editor.snapshot();
      running = film.run("/api/inpaint", body, {
        n: others.n, shape, start: find(".primary", form),
        onJob: () => {
          find(".given canvas", root).replaceWith(seen);
          find(".given", root).hidden = false;
        },
      });
    } catch (error) {
      find(".primary", form).disabled = false;
      showError(error.message);
    }
  });

  return { open: setModel };
}
