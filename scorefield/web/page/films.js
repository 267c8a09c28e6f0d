// Recorded films of the pretrained models' sampling, which play until the user draws images: scripts/record_films.py.

import { get } from "./api.js";
import { layOut } from "./film.js";
import { titleOf } from "./settings.js";
import { digits, icon, make } from "./ui.js";

const SECONDS = 4, REST = 2.5; // time to play a film, and to show its end before it begins again
const still = matchMedia("(prefers-reduced-motion: reduce)"); // then the end is shown, until the user presses Play
let index = null; // what films there are, asked for once

/** Plays the film of the model that is chosen in the form. */
export function showFilms(container, form, model) {
  let name = model().name, film = showFilm(container, model());
  form.addEventListener("change", () => {
    if (model().name === name) return;
    name = model().name;
    film.stop();
    film = showFilm(container, model());
  });
}

/**
 * Plays the recorded film of a model, as /api/models describes it, below the container's own .film while that is idle,
 * and in the place of its stage. Without a film of these weights nothing is shown. `stop()` of the answer removes it.
 */
function showFilm(container, { name, shape, trained }) {
  let figure = null, frame = 0, stopped = false, ticking = null, before = null, time = 0, playing = !still.matches;
  const resized = new ResizeObserver(() => draw());
  const seen = new IntersectionObserver(([{ isIntersecting }]) => { before = null; cancelAnimationFrame(ticking); ticking = isIntersecting ? requestAnimationFrame(tick) : null; });
  const canvas = make("canvas"), button = make("button", { type: "button", className: "round" }), sigma = make("span", { className: "small" });
  let film, sheet, picture = null;

  async function load() {
    const films = await (index ??= get("/static/films/films.json"));
    film = films[name];
    if (!film || film.trained !== trained || `${film.shape}` !== `${shape}`) return;
    sheet = new Image();
    sheet.src = `/static/films/${name}.webp`;
    await sheet.decode();
    if (stopped) return;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `A recorded film: ${film.n} samples of ${name} appear, first as blurs, then as images.`);
    const how = `${titleOf(film.sampler)}, ${film.calls} calls`;
    const words = make("figcaption", { className: "small" }, `A recording: ${film.n} samples of ${name} (${how}), each step as the estimate of the clean images.`);
    figure = make("figure", { className: "recorded" }, make("div", { className: "stage" }, canvas), make("div", { className: "row" }, button, sigma), words);
    button.addEventListener("click", () => setPlaying(!playing));
    (container.querySelector(".film") ?? container.lastElementChild)?.after(figure);
    if (!figure.isConnected) container.append(figure);
    container.classList.add("with-film");
    time = playing ? 0 : SECONDS;
    setPlaying(playing);
    resized.observe(figure);
    seen.observe(figure);
  }

  function setPlaying(now) {
    if (now && time >= SECONDS) time = 0;
    playing = now;
    button.replaceChildren(icon(playing ? "pause" : "play"));
    button.setAttribute("aria-label", playing ? "Pause the recording" : "Play the recording");
    button.title = playing ? "Pause" : "Play";
  }

  function tick(now) {
    if (playing && before !== null) time = (time + Math.min(now - before, 100) / 1000) % (SECONDS + REST);
    before = now;
    const at = Math.min(1, time / SECONDS) ** 1.5 * (film.frames - 1); // most happens in the first frames
    if (at !== frame || !picture) {
      frame = at;
      draw();
    }
    ticking = requestAnimationFrame(tick);
  }

  /** Draws the frame before this time, and over it the next one, the more visible the nearer it is. */
  function draw() {
    if (!figure) return;
    const [, height, width] = shape, { n, columns } = film, rows = Math.ceil(n / columns), ratio = devicePixelRatio || 1;
    const room = canvas.parentElement.clientWidth - 24;
    if (room <= 0) return;
    const { zoom, gap } = layOut(shape, columns, rows, room);
    const size = [columns * width * zoom + gap * (columns - 1), rows * height * zoom + gap * (rows - 1)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) {
      [canvas.width, canvas.height] = size;
      canvas.style.width = `${size[0] / ratio}px`;
    }
    picture = canvas.getContext("2d");
    picture.imageSmoothingEnabled = false;
    const first = Math.floor(frame), layers = [[first, 1], [Math.min(first + 1, film.frames - 1), frame - first]];
    for (const [f, alpha] of layers) {
      picture.globalAlpha = alpha;
      for (let k = 0; alpha && k < n; k++) {
        const column = k % columns, row = Math.floor(k / columns);
        picture.drawImage(sheet, column * width, (f * rows + row) * height, width, height, column * (width * zoom + gap), row * (height * zoom + gap), width * zoom, height * zoom);
      }
    }
    picture.globalAlpha = 1;
    sigma.textContent = film.sigmas[first] ? `σ = ${digits(film.sigmas[first])}` : "the samples";
  }

  load().catch(() => {}); // a film is not needed
  return {
    stop() {
      stopped = true;
      cancelAnimationFrame(ticking);
      resized.disconnect();
      seen.disconnect();
      figure?.remove();
      container.classList.remove("with-film");
    },
  };
}
