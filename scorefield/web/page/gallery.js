// The results of this browser: small pictures, each a link to the settings that make it again. They stay in the browser.

import { find, make } from "./ui.js";

const KEY = "results", MOST = 24, SIDE = 96; // results that are kept, and the side of a picture in pixels
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

/** Keeps what a film shows, with the link that makes it again and words for it. It replaces an older result with the same link. */
export function keepResult({ canvas }, link, words) {
  const small = make("canvas", { width: SIDE, height: SIDE }), side = Math.min(canvas.width, canvas.height);
  const context = small.getContext("2d");
  context.fillStyle = "#888";
  context.fillRect(0, 0, SIDE, SIDE);
  const zoom = Math.min(1, SIDE / side); // the upper left part, if the picture is not square
  context.drawImage(canvas, 0, 0, canvas.width * zoom, canvas.height * zoom);
  store([{ picture: small.toDataURL("image/jpeg", 0.8), link, words }, ...results().filter((each) => each.link !== link)]);
  draw();
}

find(".empty", shelf).addEventListener("click", () => { store([]); draw(); find("#main").focus(); });
