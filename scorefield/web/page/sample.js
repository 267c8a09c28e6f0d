// Sample: shows how noise becomes images while the server computes them.

import { Film } from "./film.js";
import { Settings } from "./settings.js";
import { copy, find, make, remember, remembered, tell } from "./ui.js";

export function makeTab(root, { models, limits }) {
  const form = find("form", root);
  const settings = new Settings(form, { models, most: { n: limits.n, steps: limits.steps }, n: 16, words: "Draw", noun: "Images" });
  const film = new Film(find(".work", root), {
    kind: "sample",
    downloads: (film) => {
      const link = make("button", { type: "button" }, "Copy the link");
      link.addEventListener("click", () => copy(address(drawn), link));
      return [film.download("Grid (PNG)", "grid.png", "samples.png"), film.download("Animation (GIF)", "annealing.gif", "annealing.gif"),
        film.download("Array (NPY)", "images.npy", "samples.npy"), link];
    },
  });
  let drawn = ""; // the settings of the images that are shown
  let running = Promise.resolve();
  let opened = 0;
  const address = (query) => `${location.origin}/#/sample?${query}`;
  const blank = () => film.expect(Math.min(Number(form.elements.n.value) || 16, limits.n), settings.model.shape);
  blank();
  for (const name of ["n", "model"]) form.elements[name].addEventListener("change", () => { if (!film.frames.length && !find(".primary", form).disabled) blank(); });

  function draw({ link = false } = {}) {
    let asked;
    try {
      asked = settings.read();
    } catch (error) {
      tell(find(".error", root), error.message);
      return;
    }
    drawn = settings.query();
    if (location.hash !== `#/sample?${drawn}`) history[link ? "replaceState" : "pushState"](null, "", address(drawn));
    const { shape, trained } = settings.model, key = `job ${trained} ${drawn}`;
    running = film.run("/api/sample", asked, {
      n: asked.n, shape, start: find(".primary", form),
      again: link ? remembered(key) : null, // after a reload, or the browser's Back: the server may still have the job
      onJob: (job) => remember(key, job),
    });
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); draw(); });

  return {
    /** A link with settings draws images with them; a link without leaves the page as it is. */
    async open(parameters) {
      const query = parameters.toString();
      if (!query) {
        if (drawn) history.replaceState(null, "", address(drawn));
        return;
      }
      try {
        settings.write(parameters);
        if (settings.query() === drawn) return;
      } catch (error) {
        tell(find(".error", root), error.message);
        return;
      }
      const mine = ++opened;
      find(".stop", root).click(); // a job that may still run
      await running;
      if (mine !== opened) return; // the address changed again
      draw({ link: true });
    },
  };
}
