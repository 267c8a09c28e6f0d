// Sample: shows how noise becomes images while the server computes them.

import { stillThere } from "./api.js";
import { Film } from "./film.js";
import { keepResult } from "./gallery.js";
import { Settings } from "./settings.js";
import { copy, find, make, remember, remembered, showFieldError, tell } from "./ui.js";
import { showFilms } from "./films.js";

export function makeTab(root, { models, limits }) {
  const form = find("form", root);
  const settings = new Settings(form, { models, most: { n: limits.n, steps: limits.steps, seconds: limits.work_seconds }, n: 16, words: "Draw", noun: "Images" });
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
  let current = ""; // those of the address
  let running = Promise.resolve();
  let opened = 0;
  const address = (query) => `${location.origin}/#/sample?${query}`;
  const blank = () => film.expect(Math.min(Number(form.elements.n.value) || 16, limits.n), settings.model.shape);
  blank();
  const narrow = matchMedia("(max-width: 48rem)"), order = () => (narrow.matches ? form.before(find(".work", root)) : form.after(find(".work", root)));
  order(); // on a phone the film comes first, for the keyboard too
  narrow.addEventListener("change", order);
  showFilms(find(".work", root), form, () => settings.model);
  for (const name of ["n", "model"]) form.elements[name].addEventListener("change", () => { if (!film.frames.length && !find(".primary", form).disabled) blank(); });

  function complain(error) {
    tell(find(".error", root), error.inputs ? null : error.message);
    if (error.inputs) showFieldError(form, error);
  }

  async function draw({ link = false } = {}) {
    const mine = ++opened;
    let asked;
    try {
      asked = settings.read();
      showFieldError(form, null);
    } catch (error) {
      complain(error);
      return;
    }
    const query = settings.query(), { shape, trained } = settings.model, key = `job ${trained} ${query}`;
    const again = link ? await stillThere(remembered(key)) : null; // after a reload, or the browser's Back
    const may = again || (await settings.mayStart(asked, { link }));
    if (mine !== opened) return; // drawn again, or the address changed
    if (link) current = query;
    if (!may) {
      if (link) showNothing();
      return;
    }
    drawn = current = query;
    if (location.hash !== `#/sample?${drawn}`) history[link ? "replaceState" : "pushState"](null, "", address(drawn));
    running = film.run("/api/sample", asked, { n: asked.n, shape, start: find(".primary", form), again, onJob: (job) => remember(key, job) });
    const status = await running;
    if (status?.state === "done" && film.watched) keepResult(film, `#/sample?${query}`, `${asked.n} × ${asked.model}${asked.label ? `, ${asked.label}` : ""}, seed ${asked.seed}`);
  }

  /** The images before do not belong to the settings of the link. */
  function showNothing() {
    drawn = "";
    tell(find(".error", root), null);
    blank();
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); draw(); });

  return {
    /** A link with settings draws images with them, if that does not take long; a link without leaves the page as it is. */
    async open(parameters) {
      const query = parameters.toString();
      if (!query) {
        if (current) history.replaceState(null, "", address(current));
        return;
      }
      try {
        settings.write(parameters);
        if (settings.query() === drawn) return;
      } catch (error) {
        showNothing();
        complain(error);
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
