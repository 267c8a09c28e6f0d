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
export const percent = (x) => `${Math.round(100 * x)} %`;
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 100) return `${s} s`;
  if (s < 6000) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

/** Makes a button set a random seed in the field beside it. */
export function dice(button, input) {
  button.append(icon("dice"));
  button.addEventListener("click", () => {
    input.value = Math.floor(Math.random() * 1e6);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

/** The number in a field, or an error that names the field. */
export function numberIn(input, { least = -Infinity, most = Infinity, whole = false } = {}) {
  const text = whole ? input.value.trim() : input.value.trim().replace(",", ".");
  const value = text === "" ? NaN : Number(text);
  const good = Number.isFinite(value) && value >= least && value <= most && (!whole || Number.isInteger(value));
  input.setAttribute("aria-invalid", String(!good));
  if (good) return value;
  input.focus();
  const name = find("span", input.closest("label")).textContent;
  const bounds = Number.isFinite(most) ? `from ${short(least)} to ${short(most)}` : least === Number.MIN_VALUE ? "above 0" : `${short(least)} or more`;
  throw new Error(`${name}: ${whole ? "a whole number" : "a number"} ${bounds} is needed, not “${input.value}”.`);
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
  } catch { /* not allowed, or full: then it is lost */ }
}

/** Shows a message, or hides it if there is none. */
export function tell(element, words) {
  if (element.textContent === (words ?? "") && element.hidden === !words) return; // a screen reader would read it again
  element.textContent = words ?? "";
  element.hidden = !words;
  if (words) element.scrollIntoView({ block: "nearest" });
}
