// The results of this browser: small pictures, each a link to the settings that make it again. They stay in the browser.

import { find, make } from "./ui.js";

const KEY = "results", MOST = 24, SIDE = 96; // results that are kept, and the side of a picture in pixels
const LARGE = 1e5; // characters: a larger image of the user is not kept
const shelf = find("#gallery");
let open = false;

function results() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]");
  } catch { // not allowed, or not ours
    return [];
  }
}

function store(all) {
  for (let kept = all.slice(0, MOST); ; kept = kept.slice(0, -1)) {
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
      return;
    } catch { // full: keep fewer
      if (!kept.length) return;
    }
  }
}

function draw() {
  const all = results();
  shelf.hidden = !open || !all.length;
  find(".shelf", shelf).replaceChildren(...all.map(({ picture, link, words }) => {
    const image = make("img", { src: picture, alt: words, title: words, width: SIDE, height: SIDE });
    return make("li", {}, make("a", { href: link }, image));
  }));
}

/** Shows the results below a tab that makes some. */
export function showGallery(shown) {
  open = shown;
  draw();
}

/** A short name for a text, nearly always another for another text. */
function nameOf(text) {
  let hash = 0;
  for (let k = 0; k < text.length; k++) hash = (Math.imul(hash, 31) + text.charCodeAt(k)) | 0;
  return (hash >>> 0).toString(36);
}

/** The user's own image of a result, { name, text }, if it was kept. */
export const imageOf = (key) => results().find((each) => each.key === key)?.image;

/**
 * Keeps what a film shows, with the link that makes it again and words for it. It replaces an older result with the same
 * link, and of the same image if that is the user's own, { name, text }, which is kept as well if it is small.
 */
export function keepResult(film, link, words, image = null) {
  const { n, shape: [, height, width], frames } = film, sheet = frames.at(-1).image;
  const across = Math.floor(Math.sqrt(n)), cells = across ** 2, size = SIDE / across, side = Math.min(width, height); // the middle of each
  const small = make("canvas", { width: SIDE, height: SIDE }), context = small.getContext("2d");
  for (let k = 0; k < cells; k++) { // if there are more images than cells, some of them, from the first to the last
    const [x, y] = film.inSheet(Math.round((k * (n - 1)) / Math.max(1, cells - 1)));
    context.drawImage(sheet, x + (width - side) / 2, y + (height - side) / 2, side, side, (k % across) * size, Math.floor(k / across) * size, size, size);
  }
  const kept = image?.text.length <= LARGE, key = image ? nameOf(link + image.text) : link;
  const result = { picture: small.toDataURL("image/jpeg", 0.8), link: image ? `${link}&kept=${key}` : link, key, words: image && !kept ? `${words} (without the image)` : words };
  store([kept ? { ...result, image } : result, ...results().filter((each) => (each.key ?? each.link) !== key)]);
  draw();
}

find(".empty", shelf).addEventListener("click", () => { store([]); draw(); find("#main").focus(); });
