// Monitor: the runs that the server was given, looked at every few seconds while they train.

import { get } from "./api.js";
import { Chart } from "./chart.js";
import { drawSheet } from "./sheet.js";
import { count, digits, duration, find, make, tell } from "./ui.js";

const EVERY = 3000;

/** Colours of equal strength from warm, the largest sigma, to cool. */
const levelColour = (k, levels) => `oklch(0.64 0.13 ${35 + (235 * k) / Math.max(1, levels - 1)})`;

/** A column of a log as [step, value] pairs; none where there is no such column. */
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
  let drawn = "", damaged = false; // of the picture that is shown
  let none = ""; // said where there is no picture

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
    if (mine !== drawn) return; // another one was chosen meanwhile
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
    tell(find(".trouble", root), run.error ? `${run.name} cannot be read: ${run.error}` : run.state === "waiting" ? "No training there yet. What it does is shown as soon as it begins." : null);
    for (const part of [".some > .bar", ".charts", "details"]) find(part, root).hidden = !run.recipe;
    for (const chart of Object.values(charts)) chart.empty = run.state === "training" ? "Nothing measured yet" : "Nothing measured";
    const levels = (run.log?.columns ?? []).filter((name) => /^loss_\d+$/.test(name));
    const last = run.log?.rows?.at(-1), loss = last?.[run.log.columns.indexOf("loss")];
    const left = run.state === "training" && run.step ? (run.seconds / run.step) * (run.steps - run.step) : null;
    const facts = { Run: run.name, State: run.state };
    if (run.steps) facts.Step = `${count(run.step)} of ${count(run.steps)}`;
    if (loss != null) facts.Loss = digits(loss);
    if (run.images_per_second) facts["Images per second"] = count(Math.round(run.images_per_second));
    if (run.seconds) facts["Time spent"] = duration(run.seconds);
    if (left) facts["Time left"] = `about ${duration(left)}`;
    find(".tiles", root).replaceChildren(...pairs(facts));
    const bar = find(".some > .bar", root);
    bar.setAttribute("aria-valuenow", Math.round((100 * run.step) / run.steps));
    if (!run.recipe) return;
    find("i", bar).style.setProperty("--full", Math.min(1, run.step / run.steps));

    const sigmas = ladder(run.recipe);
    charts.levels.show(levels.map((name, k) => ({
      name: sigmas ? `σ ${digits(sigmas[k])}` : `level ${k + 1}`, colour: levelColour(k, levels.length), points: column(run.log, name),
    })));
    charts.held_out.show([
      { name: "as trained", colour: levelColour(0, 2), points: column(run.held_out, "held_out") },
      { name: "moving average", colour: levelColour(1, 2), points: column(run.held_out, "ema_held_out") },
    ]);
    charts.speed.show([{ name: "images per second", colour: levelColour(1, 2), points: column(run.log, "images_per_second") }]);

    none = !run.recipe.previews ? "This run draws none: previews is 0 in its recipe."
      : run.state === "training" ? "None yet: they are drawn at each checkpoint." : "None were drawn: the run stopped before its first checkpoint, or its samples diverged.";
    const following = Number(slider.value) >= samples.length - 1;
    samples = (run.samples ?? []).map((sample) => ({ ...sample, n: run.recipe.previews, shape: run.shape }));
    slider.max = Math.max(0, samples.length - 1);
    if (following) slider.value = slider.max;
    showSample(Number(slider.value));

    find(".recipe", root).replaceChildren(...pairs(run.recipe ?? {}));
  }

  const pairs = (facts) => Object.entries(facts).map(([name, value]) =>
    make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, String(value ?? "–"))));

  /** The noise levels of a recipe: a geometric sequence. */
  function ladder(recipe) {
    const { sigma_max: high, sigma_min: low, levels } = recipe ?? {};
    if (!high || !low || !levels) return null;
    return Array.from({ length: levels }, (_, k) => high * (low / high) ** (levels > 1 ? k / (levels - 1) : 0));
  }

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
      } else again = seen !== ""; // one that was there comes back
    } catch { /* the notice of a server that is gone is shown already; a run half written is read next time */ }
    clearTimeout(timer);
    if (again) timer = setTimeout(() => { if (!root.hidden && !document.hidden) look(); }, EVERY);
  }

  document.addEventListener("visibilitychange", () => { if (!root.hidden && !document.hidden) look(); });
  document.addEventListener("server-back", () => { if (!root.hidden) look(); });
  return { open: look };
}
