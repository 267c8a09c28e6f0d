// Monitor: the training runs of the server, updated every few seconds.

import { get } from "./api.js";
import { Chart } from "./chart.js";
import { drawSheet } from "./sheet.js";
import { count, digits, duration, find, make, tell } from "./ui.js";

const EVERY = 3000; // milliseconds between two updates

/** Colours of equal lightness, from warm for the largest sigma to cool for the smallest. */
const levelColour = (k, levels) => `oklch(0.64 0.13 ${35 + (235 * k) / Math.max(1, levels - 1)})`;

/** A column of a log as [step, value] pairs; empty if there is no such column. */
function column({ columns = [], rows = [] } = {}, name) {
  const k = columns.indexOf(name);
  return k < 0 ? [] : rows.map((row) => [row[0], row[k]]);
}

export function makeTab(root) {
  const charts = {
    levels: new Chart(find("[data-chart=levels]", root), { height: 320, log: true, label: "Training loss at each noise level over the steps. Arrow keys read it." }),
    held_out: new Chart(find("[data-chart=held_out]", root), { height: 220, log: true, label: "Loss on held-out images over the steps. Arrow keys read it." }),
    speed: new Chart(find("[data-chart=speed]", root), { height: 220, zero: true, label: "Training images per second over the steps. Arrow keys read it." }),
  };
  const sheet = find(".samples canvas", root), slider = find(".samples input", root);
  let chosen = null, samples = [], timer = null, seen = "";
  let drawn = "", damaged = false; // the picture that is shown
  let none = ""; // the text in place of a picture

  find(".log", root).addEventListener("change", (event) => {
    for (const chart of [charts.levels, charts.held_out]) { chart.log = event.target.checked; chart.draw(); }
  });
  slider.addEventListener("input", () => showSample(Number(slider.value)));

  function showSample(k) {
    const sample = samples[k], is = sample ? JSON.stringify(sample) : "";
    if (is !== drawn) damaged = false;
    find(".when", root).textContent = damaged ? "This picture is damaged." : sample ? `At step ${count(sample.step)}, ${k + 1} of ${samples.length}` : none;
    slider.disabled = samples.length < 2;
    slider.hidden = !sample;
    if (!sample) sheet.hidden = true;
    if (is === drawn) return;
    drawn = is;
    if (sample) drawSample(sample, k);
  }

  async function drawSample(sample, k) {
    const picture = new Image(), mine = drawn;
    picture.src = sample.image;
    const broken = await picture.decode().then(() => false, () => true);
    if (mine !== drawn) return; // the user has chosen another one meanwhile
    sheet.hidden = damaged = broken;
    if (broken) showSample(k);
    else drawSheet(sheet, picture, sample.n, sample.shape);
    sheet.setAttribute("aria-label", `Samples after step ${sample.step}`);
  }

  function listRuns(runs) {
    const names = runs.map(({ name }) => name).join("\n");
    if (names === seen) return;
    seen = names;
    if (!runs.some(({ name }) => name === chosen)) chosen = (runs.find(({ state }) => state === "training") ?? runs[0]).name;
    const labels = runs.map(({ name }) => {
      const radio = make("input", { type: "radio", name: "run", value: name, checked: name === chosen });
      radio.addEventListener("change", () => { chosen = name; samples = []; look(); });
      return make("label", {}, radio, make("span", {}, name));
    });
    find(".runs", root).replaceChildren(...labels);
    find(".runs", root).hidden = runs.length < 2;
  }

  function showRun(run) {
    tell(find(".trouble", root), run.error ? `${run.name} cannot be read: ${run.error}` : run.state === "waiting" ? "The training has not begun yet. It is shown as soon as it does." : null);
    for (const part of [".some > .bar", ".charts", "details"]) find(part, root).hidden = !run.recipe;
    for (const chart of Object.values(charts)) chart.empty = run.state === "training" ? "Nothing measured yet" : "Nothing measured";
    const last = run.log?.rows?.at(-1), loss = last?.[run.log.columns.indexOf("loss")];
    const finishing = run.state === "training" && run.steps && run.step >= run.steps; // its last samples are being drawn
    const left = run.state === "training" && run.step && !finishing ? (run.seconds / run.step) * (run.steps - run.step) : null;
    const tiles = { Run: run.name, State: finishing ? "drawing samples" : run.state };
    if (run.steps) tiles.Step = `${count(run.step)} of ${count(run.steps)}`;
    if (loss != null) tiles.Loss = digits(loss);
    if (run.images_per_second) tiles["Images per second"] = count(Math.round(run.images_per_second));
    if (run.seconds) tiles["Time spent"] = duration(run.seconds);
    if (left) tiles["Time left"] = `about ${duration(left)}`;
    find(".tiles", root).replaceChildren(...pairs(tiles));
    const bar = find(".some > .bar", root);
    bar.setAttribute("aria-valuenow", Math.round((100 * run.step) / run.steps));
    if (!run.recipe) return;
    find("i", bar).style.setProperty("--full", Math.min(1, run.step / run.steps));

    const levels = run.log.columns.filter((name) => name.startsWith("loss@")); // loss@SIGMA: the loss at that noise level
    charts.levels.show(levels.map((name, k) => ({
      name: `σ ${digits(Number(name.split("@")[1]))}`, colour: levelColour(k, levels.length), points: column(run.log, name),
    })));
    charts.held_out.show([
      { name: "raw weights", colour: levelColour(0, 2), points: column(run.held_out, "held_out") },
      { name: "moving average", colour: levelColour(1, 2), points: column(run.held_out, "ema_held_out") },
    ]);
    charts.speed.show([{ name: "images per second", colour: levelColour(1, 2), points: column(run.log, "images_per_second") }]);

    none = !run.recipe.previews ? "This run draws no samples: previews is 0 in its recipe."
      : run.state === "training" ? "No samples yet: they are drawn at each checkpoint." : "There are no samples: the run stopped before its first checkpoint, or its samples diverged.";
    const following = Number(slider.value) >= samples.length - 1;
    samples = (run.samples ?? []).map((sample) => ({ ...sample, n: run.recipe.previews, shape: run.shape }));
    slider.max = Math.max(0, samples.length - 1);
    if (following) slider.value = slider.max;
    showSample(Number(slider.value));

    find(".recipe", root).replaceChildren(...pairs(run.recipe ?? {}));
  }

  const pairs = (values) => Object.entries(values).map(([name, value]) =>
    make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, String(value ?? "–"))));

  async function look() {
    clearTimeout(timer);
    let again = true;
    try {
      const { runs } = await get("/api/runs");
      find(".none", root).hidden = runs.length > 0;
      find(".some", root).hidden = runs.length === 0;
      if (runs.length) {
        listRuns(runs);
        const asked = chosen;
        const known = runs.find(({ name }) => name === asked);
        const run = known.state === "waiting" ? known : await get(`/api/runs/${encodeURIComponent(asked)}`);
        if (asked !== chosen) return;
        showRun(run);
      } else again = seen !== ""; // a run that was there before may come back
    } catch { /* a lost server is shown already; a file that is half written is read next time */ }
    clearTimeout(timer);
    if (again) timer = setTimeout(() => { if (!root.hidden && !document.hidden) look(); }, EVERY);
  }

  document.addEventListener("visibilitychange", () => { if (!root.hidden && !document.hidden) look(); });
  document.addEventListener("server-back", () => { if (!root.hidden) look(); });
  return { open: look };
}
