// Small helpers that every tab uses: elements, formats of numbers, icons, copying and saving.

export const find = (selector, root = document) => root.querySelector(selector);
export const all = (selector, root = document) => [...root.querySelectorAll(selector)];

/** A new element; properties are set as they are, children are nodes or text. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  Object.assign(element, properties);
  element.append(...children);
  return element;
}

/** A copy of the content of a <template>. */
export const fromTemplate = (id) => find(`#${id}`).content.cloneNode(true);

const PATHS = {
  play: "M7 4.5v15l13-7.5z",
  pause: "M6 5h4v14H6zm8 0h4v14h-4z",
  dice: "M5 3h14a2 2 0 0 1 2 2v14a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2zm0 2v14h14V5zm3.2 1.7a1.5 1.5 0 1 1 0 3 1.5 1.5 0 0 1 0-3zm7.6 7.6a1.5 1.5 0 1 1 0 3 1.5 1.5 0 0 1 0-3zM12 10.5a1.5 1.5 0 1 1 0 3 1.5 1.5 0 0 1 0-3z",
};
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", PATHS[name]);
  path.setAttribute("fill-rule", "evenodd");
  svg.append(path);
  return svg;
}

/** A short form that reads back as the same number: 2e-5, 0.1, 100. */
export const short = (x) => (x !== 0 && Math.abs(x) < 1e-3 ? x.toExponential() : String(x));
/** Three significant digits, for display. */
export function digits(x) {
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return x.toExponential(1);
  const rounded = Number(x.toPrecision(3));
  return Math.abs(rounded) < 1e3 ? String(rounded) : count(rounded);
}
export const count = (x) => x.toLocaleString("en");
/** Shares of a whole as percentages that add up to 100: the largest remainders are rounded up. */
export function percentages(counts) {
  const whole = counts.reduce((sum, each) => sum + each, 0) || 1;
  const exact = counts.map((each) => (100 * each) / whole), rounded = exact.map((each) => Math.floor(each + 1e-9));
  const missing = Math.round(exact.reduce((sum, each) => sum + each, 0)) - rounded.reduce((sum, each) => sum + each, 0);
  const remainders = exact.map((each, k) => [each - rounded[k], k]).sort(([a, k], [b, l]) => b - a || k - l);
  for (const [, k] of remainders.slice(0, missing)) rounded[k] += 1;
  return rounded.map((each) => `${each} %`);
}
export function duration(seconds) {
  const s = Math.round(seconds);
  if (seconds < 1) return "less than 1 s";
  if (s < 100) return `${s} s`;
  if (s < 6000) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}
/** An estimate: less than 1 s, about 2 s, 40 s, 7 min, 3 h. */
export function about(seconds) {
  const round = (x, step) => Math.max(step, step * Math.round(x / step));
  if (seconds < 1) return "less than 1\u00a0s";
  if (seconds < 10) return `about ${round(seconds, 1)}\u00a0s`;
  if (seconds < 90) return `about ${round(seconds, 5)}\u00a0s`;
  if (seconds < 5400) return `about ${round(seconds / 60, 1)}\u00a0min`;
  return `about ${round(seconds / 3600, 1)}\u00a0h`;
}

/** Makes a button set a random seed in the field beside it. */
export function dice(button, input) {
  button.append(icon("dice"));
  button.addEventListener("click", () => {
    input.value = Math.floor(Math.random() * 1e6);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

let explained = 0;
/** Joins each line of help with the fields that it is about, for screen readers. */
export function explain(form) {
  for (const help of all("[data-about]", form)) {
    help.id = `help-${++explained}`;
    for (const name of help.dataset.about.split(" ")) form.elements[name].setAttribute("aria-describedby", help.id);
  }
}

/** An error in one field or more; `showFieldError` shows it there. */
export class FieldError extends Error {
  constructor(message, ...inputs) {
    super(message);
    this.inputs = inputs;
  }
}

/** Shows the error below its field and puts the cursor there. Without an error, removes the last one. */
export function showFieldError(form, error, { focus = true } = {}) {
  let note = find(".wrong", form);
  if (!note) {
    note = make("p", { className: "wrong", id: `wrong-${form.parentElement.closest("section").id}`, hidden: true });
    note.setAttribute("role", "alert");
    form.append(note);
    form.addEventListener("input", () => { if (!note.hidden) showFieldError(form, null); });
  }
  for (const input of form.elements) {
    const wrong = error?.inputs.includes(input) ?? false;
    if (!wrong && input.getAttribute("aria-invalid") !== "true") continue;
    input.setAttribute("aria-invalid", String(wrong));
    const ids = (input.getAttribute("aria-describedby") ?? "").split(" ").filter((id) => id && id !== note.id);
    if (wrong) ids.unshift(note.id);
    if (ids.length) input.setAttribute("aria-describedby", ids.join(" "));
    else input.removeAttribute("aria-describedby");
  }
  if (error) {
    const [first] = error.inputs, label = first.closest(".field"), details = first.closest("details");
    if (details) details.open = true; // a hidden field cannot be focused
    note.remove();
    const beside = [...label.parentElement.children], k = beside.indexOf(label);
    ((label.parentElement.matches(".two") && beside[k | 1]) || label).after(note); // below both fields of a row
    if (focus) first.focus();
  }
  tell(note, error?.message);
}

/** The number in a field, or an error that names the field. */
export function numberIn(input, { least = -Infinity, most = Infinity, whole = false } = {}) {
  const text = whole ? input.value.trim() : input.value.trim().replace(",", ".");
  const value = text === "" ? NaN : Number(text);
  const good = Number.isFinite(value) && value >= least && value <= most && (!whole || Number.isInteger(value));
  if (good) return value;
  const name = find("span", input.closest("label")).textContent;
  const kind = whole ? "a whole number" : "a number", word = (x) => (Math.abs(x) < 1e4 ? short(x) : count(x));
  const from = least === Number.MIN_VALUE ? "above 0" : `from ${word(least)}`, bounds = most < Infinity ? `${from}${least === Number.MIN_VALUE ? ", up" : ""} to ${word(most)}` : `${from} on`;
  throw new FieldError(`${name}: ${kind}${least > -Infinity ? ` ${bounds}` : ""} is needed${text ? `, not “${input.value}”` : ""}.`, input);
}

export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed, or not a secure page: use the older way
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}

/** Hand a blob to the browser as a download. */
export function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Calls back when the colour scheme changes between light and dark, so that canvases are drawn again. */
export const onTheme = (redraw) => matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

/** Text that was kept over a reload of the page, if the browser allows it. */
export function remembered(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}

export function remember(key, text) {
  try {
    sessionStorage.setItem(key, text);
  } catch { // not allowed, or full: then it is lost
    try {
      sessionStorage.removeItem(key);
    } catch { /* not allowed */ }
  }
}

/** The same for a value that is not text. */
export const recalled = (key) => JSON.parse(remembered(key) ?? "null");
export const keep = (key, value) => remember(key, JSON.stringify(value));

/** A file as text, and that text as a file again. */
export const toText = (blob) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(blob);
});
export function fromText(text) {
  const [head, content] = text.split(",");
  return new Blob([Uint8Array.from(atob(content), (each) => each.charCodeAt(0))], { type: head.slice(5).split(";")[0] });
}

/** Shows a message, or hides it if there is none. */
export function tell(element, words) {
  if (element.textContent === (words ?? "") && element.hidden === !words) return; // a screen reader would read it again
  element.textContent = words ?? "";
  element.hidden = !words;
  if (words) element.scrollIntoView({ block: "nearest" });
}
