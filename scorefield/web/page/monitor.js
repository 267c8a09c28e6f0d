// Monitor: the training runs of the server, updated every few seconds, and the logs of pretrained models.

import { get } from "./api.js";
import { Chart } from "./chart.js";
import { drawSheet } from "./sheet.js";
import { all, count, digits, duration, find, make, tell } from "./ui.js";

const EVERY = 3000; // milliseconds between two updates
const PRETRAINED = ["mnist-small", "mnist", "unet-mnist"]; // whose logs come with the page: scripts/write_training_logs.py
const EARLIER = 5; // the earlier steps that the chart against σ shows
const RUNS = 6; // colours of runs; their dashes tell them apart too
const DASHES = ["", "7 3", "2 3", "10 3 2 3", "5 2", "1 2"];

/** Colours from light amber for the largest σ to dark violet for the smallest: their lightness alone tells them apart. */
const levelColour = (k, levels) => {
  const t = k / Math.max(1, levels - 1);
  return `oklch(calc(var(--level) - ${(0.3 * t).toFixed(3)}) 0.15 ${(430 - 150 * t).toFixed(1)})`;
};
const runColour = (k) => `var(--run-${k % RUNS})`;

/** A column of a log as [step, value] pairs; empty if there is no such column. */
function column({ columns = [], rows = [] } = {}, name) {
  const k = columns.indexOf(name);
  return k < 0 ? [] : rows.map((row) => [row[0], row[k]]);
}

/** The sigmas at which a log has the loss, as in its columns loss@SIGMA, the largest first. */
const sigmasOf = ({ columns = [] } = {}) => columns.filter((name) => name.startsWith("loss@")).map((name) => name.slice(5)).sort((a, b) => b - a);

/** The loss against σ in one row of a log, from the smallest σ on. */
const againstSigma = (log, row) => sigmasOf(log).reverse().map((sigma) => [Number(sigma), row[log.columns.indexOf(`loss@${sigma}`)]]);

/** The last held-out loss that a run measured: that of the averaged weights, if it has them. */
const heldOut = ({ held_out = {} }) => (held_out.columns?.includes("ema_held_out") ? "ema_held_out" : "held_out");
const newest = (points) => points.findLast(([, value]) => value != null)?.[1];

const BODY = `
<div class="none card" hidden>
<div><p>This server was started without a training run of yours, so those of pretrained models are shown. To see your own, start it with the folder of a run, or several:</p>
<pre><code>scorefield serve runs/mine</code></pre></div>
<div><p>No run yet? This command trains on a folder of your images for 20 minutes. The server may be started before it:</p>
<pre><code>scorefield train unet --data my_images --minutes 20 --out runs/mine</code></pre></div>
</div>
<div class="some">
<fieldset class="runs" hidden><legend>Runs</legend></fieldset>
<p class="notice trouble" role="alert" hidden></p>
<dl class="tiles"></dl>
<div class="scroll"><table class="tally" hidden><thead></thead><tbody></tbody></table></div>
<p class="small source" hidden></p>
<div class="bar" role="progressbar" aria-label="Training progress" aria-valuemin="0" aria-valuemax="100" hidden><i></i></div>
<div class="charts" hidden>
<div class="card wide"><div class="chart-head"><h2 class="levels-title">Loss at each noise level</h2><div class="chart-tools"><div class="segments" role="radiogroup" aria-label="The horizontal axis">
<label><input type="radio" name="loss-over" value="step" checked><span>over steps</span></label>
<label><input type="radio" name="loss-over" value="sigma"><span>by σ</span></label>
</div><label class="check"><input type="checkbox" class="log" checked>Log axes</label></div></div><p class="small levels-note"></p><div class="chart" data-chart="levels"></div></div>
<div class="card samples"><h2>Samples</h2><div class="stage"><canvas role="img" aria-label="Samples" hidden></canvas></div><label class="field"><span class="when"></span><input type="range" min="0" max="0" value="0"></label></div>
<div class="card"><h2 class="losses-title"></h2><div class="chart" data-chart="held_out"></div></div>
<div class="card"><h2>Learning rate</h2><div class="chart" data-chart="rate"></div></div>
<div class="card"><h2>Images per second</h2><div class="chart" data-chart="speed"></div></div>
</div>
<details hidden><summary>Recipe</summary><dl class="recipe"></dl></details>
</div>
`;

export function makeTab(root) {
  root.insertAdjacentHTML("beforeend", BODY);
  const chart = (name, height, label, more = {}) => new Chart(find(`[data-chart=${name}]`, root), { height, label: `${label} Arrow keys read it.`, ...more });
  const charts = {
    levels: chart("levels", 320, "Training loss.", { log: true }),
    held_out: chart("held_out", 220, "Loss on training and on held-out images over the steps.", { log: true }),
    rate: chart("rate", 220, "Learning rate over the steps.", { zero: true }),
    speed: chart("speed", 220, "Training images per second over the steps.", { zero: true }),
  };
  const sheet = find(".samples canvas", root), slider = find(".samples input", root);
  let chosen = null, samples = [], samplesOf = null, timer = null, seen = "", shown = []; // shown: the runs that are chosen
  let drawn = "", damaged = false; // the picture that is shown
  let none = ""; // the text in place of a picture
  let pretrained = null; // the logs of pretrained models, which do not change

  const log = find(".log", root);
  log.addEventListener("change", () => show(shown));
  for (const radio of all("[name=loss-over]", root)) radio.addEventListener("change", () => { charts.levels.at = null; showLosses(); });
  slider.addEventListener("input", () => showSample(Number(slider.value)));

  function showSample(k) {
    const sample = samples[k], is = sample ? JSON.stringify(sample) : "";
    if (is !== drawn) damaged = false;
    find(".when", root).textContent = damaged ? "This picture is damaged." : sample ? `At step ${count(sample.step)}, ${k + 1} of ${samples.length}` : none;
    slider.disabled = samples.length < 2;
    slider.hidden = !sample;
    find(".samples .stage", root).hidden = !sample;
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

  /** A checkbox for each run. At first one is chosen: one that trains, or the first. */
  function listRuns(runs) {
    const names = runs.map(({ name }) => name);
    chosen = new Set(names.filter((name) => chosen?.has(name)));
    if (!chosen.size && seen !== names.join("\n")) chosen.add((runs.find(({ state }) => state === "training") ?? runs[0]).name);
    if (names.join("\n") === seen) return;
    seen = names.join("\n");
    const labels = runs.map(({ name }, k) => {
      const box = make("input", { type: "checkbox", name: "run", value: name, checked: chosen.has(name) });
      box.addEventListener("change", () => { chosen[box.checked ? "add" : "delete"](name); look(); });
      const swatch = make("i");
      swatch.style.color = runColour(k);
      return make("label", { className: "check" }, box, swatch, name);
    });
    find(".runs", root).replaceChildren(find(".runs legend", root), ...labels);
    find(".runs", root).hidden = runs.length < 2;
  }

  // -------- what the chosen runs have

  function show(runs) {
    const before = shown[0];
    shown = runs;
    const [first] = runs, several = runs.length > 1;
    const troubles = runs.map((run) => (run.error ? `${run.name} cannot be read: ${run.error}` : run.state === "waiting" ? `The training ${several ? `of ${run.name} ` : ""}has not begun yet. It is shown as soon as it does.` : ""));
    tell(find(".trouble", root), runs.length ? troubles.filter(Boolean).join(" ") || null : "Choose a run.");
    const readable = runs.filter(({ recipe }) => recipe);
    for (const part of [".charts", "details"]) find(part, root).hidden = !readable.length;
    for (const each of Object.values(charts)) each.empty = runs.some(({ state }) => state === "training") ? "Nothing measured yet" : "Nothing measured";
    const recorded = runs.filter(({ source }) => source), bare = recorded.filter((run) => !run.log.rows.length);
    const kept = bare.length ? ` Only ${several ? `the held-out losses of ${bare.map(({ name }) => name).join(" and ")}` : "its held-out losses"} were kept.` : "";
    tell(find(".source", root), recorded.length ? `Recorded when the pretrained model was trained; from ${recorded.map(({ source }) => source).join(" and ")} of the source code.${kept}` : null);
    find(".tiles", root).hidden = several || !first;
    find(".tally", root).hidden = !several;
    if (several) showTally(runs);
    else if (first) find(".tiles", root).replaceChildren(...pairs(facts(first)));
    const bar = find(".some > .bar", root);
    bar.hidden = several || first?.state !== "training" || !first.recipe;
    if (!bar.hidden) {
      bar.setAttribute("aria-valuenow", Math.round((100 * first.step) / first.steps));
      find("i", bar).style.setProperty("--full", Math.min(1, first.step / first.steps));
    }
    if (!readable.length) return;
    for (const each of [charts.levels, charts.held_out]) each.log = log.checked;
    for (const each of Object.values(charts)) each.xLog = several && log.checked; // their lengths may be very different
    showLosses();
    showOthers();
    showSamples(readable[0], before);
    for (const { place, lines } of Object.values(charts)) place.closest(".card").hidden = !lines.length && runs.every(({ source }) => source);
    find(".samples", root).hidden = Boolean(readable[0].source); // the logs of pretrained models have none
    find(".recipe", root).replaceChildren(...pairs(readable[0].recipe));
    find("details summary", root).textContent = readable.length > 1 ? `Recipe of ${readable[0].name}` : "Recipe";
  }

  function facts(run) {
    const last = run.log?.rows?.at(-1), loss = last?.[run.log.columns.indexOf("loss")], held = newest(column(run.held_out, heldOut(run)));
    const finishing = run.state === "training" && run.steps && run.step >= run.steps; // its last samples are being drawn
    const left = run.state === "training" && run.step && !finishing ? (run.seconds / run.step) * (run.steps - run.step) : null;
    const tiles = { Run: run.name, State: finishing ? "drawing samples" : run.state };
    if (run.steps) tiles.Step = run.step === run.steps ? count(run.step) : `${count(run.step)} of ${count(run.steps)}`;
    if (loss != null) tiles.Loss = digits(loss);
    else if (held != null) tiles["Held-out loss"] = digits(held);
    if (run.images_per_second) tiles["Images per second"] = count(Math.round(run.images_per_second));
    if (run.seconds) tiles["Time spent"] = duration(run.seconds);
    if (left) tiles["Time left"] = left < 1 ? duration(left) : `about ${duration(left)}`;
    return tiles;
  }

  function showTally(runs) {
    const rows = runs.map((run) => ({ ...facts(run), "Held-out loss": digits(newest(column(run.held_out, heldOut(run))) ?? NaN) }));
    const names = ["Run", "State", "Step", "Loss", "Held-out loss", "Time spent"];
    const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
    const body = rows.map((row) => make("tr", {}, ...names.map((name) => make("td", {}, row[name] && row[name] !== "NaN" ? row[name] : "–"))));
    find(".tally thead", root).replaceChildren(head);
    find(".tally tbody", root).replaceChildren(...body);
  }

  /** The place of a run in the list, which gives it its colour. */
  const place = (run) => seen.split("\n").indexOf(run.name);
  const looks = (run) => ({ colour: runColour(place(run)), dash: DASHES[place(run) % RUNS] });

  /** The losses by noise level of one run, or the mean ones of several; over the steps, or against σ. */
  function showLosses() {
    const runs = shown.filter(({ recipe }) => recipe), [run] = runs, several = runs.length > 1;
    const over = find("[name=loss-over]:checked", root).value === "sigma";
    Object.assign(charts.levels, { lasting: !over }, over ? { xLog: true, xName: "σ", where: (x) => `at σ = ${digits(x)}` } : { xLog: several && log.checked, xName: "step", where: (x) => `at step ${count(x)}` });
    const newestRow = ({ log }) => log.rows.at(-1);
    let lines;
    if (!over && several) lines = runs.map((each) => ({ name: each.name, points: column(each.log, "loss"), ...looks(each) }));
    else if (!over) lines = sigmasOf(run.log).map((sigma, k, { length }) => ({ name: `σ ${digits(Number(sigma))}`, colour: levelColour(k, length), points: column(run.log, `loss@${sigma}`) }));
    else if (several) lines = runs.filter(newestRow).map((each) => ({ name: each.name, points: againstSigma(each.log, newestRow(each)), dots: true, ...looks(each) }));
    else lines = againstSigmaOverTime(run.log);
    find(".levels-title", root).textContent = several ? "Loss" : over ? "Loss by σ" : "Loss at each noise level";
    const notes = over ? ["Grey: earlier steps.", "The newest step of each run."] : ["", "The mean over the noise levels."];
    find(".levels-note", root).textContent = notes[Number(several)];
    charts.levels.show(lines);
  }

  /** The newest step, and before it in grey steps at equal distances on a logarithmic scale. */
  function againstSigmaOverTime(log) {
    const { rows } = log, last = rows.length - 1;
    if (last < 0) return [];
    const kept = new Set(Array.from({ length: EARLIER }, (_, k) => Math.round((last + 1) ** (k / EARLIER)) - 1));
    const lines = [...kept].filter((k) => k < last).map((k) => ({ name: `step ${count(rows[k][0])}`, points: againstSigma(log, rows[k]), colour: "var(--edge)", faint: true }));
    return [...lines, { name: `step ${count(rows[last][0])}`, points: againstSigma(log, rows[last]), colour: "var(--run-0)", dots: true }];
  }

  function showOthers() {
    const runs = shown.filter(({ recipe }) => recipe), several = runs.length > 1, [run] = runs;
    const trained = runs.some((each) => !each.source || each.log.rows.length);
    find(".losses-title", root).textContent = trained ? "Training and held-out loss" : "Held-out loss";
    charts.held_out.show(several
      ? runs.flatMap((each) => [
        { name: `${each.name}, training`, points: column(each.log, "loss"), colour: runColour(place(each)), faint: true, quiet: true },
        { name: each.name, points: column(each.held_out, heldOut(each)), ...looks(each) },
      ])
      : [
        { name: "training", points: column(run.log, "loss"), colour: "var(--edge)" },
        { name: "held out, raw weights", points: column(run.held_out, "held_out"), colour: runColour(1), dash: "6 3" },
        { name: "held out, moving average", points: column(run.held_out, "ema_held_out"), colour: runColour(0) },
      ]);
    const each = (name, label) => runs.map((one) => ({ name: several ? one.name : label, points: column(one.log, name), ...(several ? looks(one) : { colour: runColour(0) }) }));
    charts.rate.show(each("learning_rate", "learning rate"));
    charts.speed.show(each("images_per_second", "images per second"));
  }

  function showSamples(run, before) {
    none = !run.recipe.previews ? "This run draws no samples: previews is 0 in its recipe."
      : run.state === "training" ? "No samples yet: they are drawn at each checkpoint." : "There are no samples: the run stopped before its first checkpoint, or its samples diverged.";
    const following = before?.name !== run.name || samplesOf !== run.name || Number(slider.value) >= samples.length - 1;
    samplesOf = run.name;
    samples = (run.samples ?? []).map((sample) => ({ ...sample, n: run.recipe.previews, shape: run.shape }));
    slider.max = Math.max(0, samples.length - 1);
    if (following) slider.value = slider.max;
    find(".samples h2", root).textContent = shown.length > 1 ? `Samples of ${run.name}` : "Samples";
    showSample(Number(slider.value));
  }

  const pairs = (values) => Object.entries(values).map(([name, value]) =>
    make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, String(value ?? "–"))));

  async function look() {
    clearTimeout(timer);
    try {
      pretrained ??= await Promise.all(PRETRAINED.map((name) => get(`/static/logs/${name}.json`)));
      const { runs: own } = await get("/api/runs"), runs = [...own, ...pretrained];
      find(".none", root).hidden = own.length > 0;
      listRuns(runs);
      const asked = runs.filter(({ name }) => chosen.has(name)), names = [...chosen].join("\n");
      const found = await Promise.all(asked.map((run) => (run.source || run.state === "waiting" ? run : get(`/api/runs/${encodeURIComponent(run.name)}`))));
      if (names === [...chosen].join("\n")) show(found);
    } catch { /* a lost server is shown already; a file that is half written is read next time */ }
    clearTimeout(timer);
    timer = setTimeout(() => { if (!root.hidden && !document.hidden) look(); }, EVERY);
  }

  document.addEventListener("visibilitychange", () => { if (!root.hidden && !document.hidden) look(); });
  document.addEventListener("server-back", () => { if (!root.hidden) look(); });
  return { open: look };
}
