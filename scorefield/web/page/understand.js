// Understand: a mixture of Gaussians in the plane, its score, and points that two samplers move. Computed in the browser.

import { Chart } from "./chart.js";
import { Mixture } from "./mixture.js";
import { Noise } from "./random.js";
import { SAMPLERS, start } from "./samplers.js";
import { FieldError, all, colour, copy, count, dice, digits, find, icon, keep, make, numberIn, onTheme, percentages, recalled, showFieldError, tell } from "./ui.js";

const EXTENT = 8; // the plane is [-8, 8] × [-8, 8]
const MODES = 8, FRAMES = 120; // the most of each
const STOPS = 40; // the most places at which the arrow keys stop in a run
const PAGE = 4; // the places that Page Up and Page Down pass
const SECONDS = 6; // time to play a whole run
const PATIENCE = 400; // milliseconds without a change before the curves are measured anew, and the address is changed
const SIDES = ["left", "right"];
const still = matchMedia("(prefers-reduced-motion: reduce)"); // then the end is shown, until the user presses Play
const USUAL = { n: 600, seed: 0, sigma_max: 20, sigma_min: 1, levels: 10, step_size: 0.1 };
const BOUNDS = {
  n: { least: 1, most: 2000, whole: true }, seed: { least: 0, most: 2 ** 32 - 1, whole: true }, sigma_max: { least: 0.05, most: 100 },
  sigma_min: { least: 0.05, most: 100 }, levels: { least: 2, most: 20, whole: true }, step_size: { least: 1e-4, most: 10 },
};
const PAPER = () => [{ x: -5, y: -5, weight: 0.2 }, { x: 5, y: 5, weight: 0.8 }];
const EXACT = { title: "Exact samples", short: "Exact", about: "Points drawn from the mixture itself: what a sampler should make.", calls: [], usual: 0 };
const SCORE = { title: "The score alone", short: "Score", about: "No points: the arrows are all that a sampler knows of the data.", calls: [], usual: 0 };
const METHODS = { exact: EXACT, score: SCORE, ...SAMPLERS };
const STEPS = [
  {
    title: "The score", left: ["exact", 0], right: ["score", 0],
    words: "On the left are exact samples of data with two modes, which hold 20 % and 80 % of it. The score, ∇ log q(x), points to where the data become denser: the arrows. A sampler knows nothing else of the data (right), and has to make points like those on the left. Drag a mode: the arrows follow.",
  },
  {
    title: "Wrong weights", left: ["exact", 0], right: ["langevin", 1000],
    words: "Langevin dynamics follows the arrows, with a little noise. Its points (right) start anywhere and find the modes, but in the wrong proportion: about half of them end in each. Between the modes, where there is almost no density, the score does not tell how much lies beyond, so a point stays on the side where it started. More steps hardly help.",
  },
  {
    title: "Noise levels", left: ["langevin", 1000], right: ["annealed_langevin", 1000],
    words: "Strong noise merges the modes into one, and its score does depend on their weights: move the slider and look. Annealed Langevin dynamics (right) starts there. As the noise falls, the points divide in the right proportion. This is why the paper trains one network for many noise levels.",
  },
  {
    title: "Fewer calls", left: ["annealed_langevin", 1000], right: ["dpmpp_2m", 10],
    words: "Every step asks the network for the score, which is what sampling costs. Annealed Langevin dynamics asks 1,000 times (left). Later samplers aim each step better and take longer ones: DPM-Solver++ is nearer to the exact distribution after 10 calls (right). The chart shows the distance by the number of calls. Try the others.",
  },
];

const BODY = `
<ol class="steps"></ol>
<div class="caption"><p class="prose" aria-live="polite"></p><button type="button" class="primary next"></button></div>
<p class="notice error" role="alert" hidden></p>
<div class="lab">
<figure data-side="left"><figcaption><select class="method" aria-label="Method on the left" aria-describedby="help-method"></select><select class="calls" aria-label="Network calls on the left" aria-describedby="help-calls"></select><span class="sigma"></span></figcaption><div class="plane"><canvas role="img"></canvas></div><p class="small about"></p></figure>
<figure data-side="right"><figcaption><select class="method" aria-label="Method on the right" aria-describedby="help-method"></select><select class="calls" aria-label="Network calls on the right" aria-describedby="help-calls"></select><span class="sigma"></span></figcaption><div class="plane"><canvas role="img"></canvas></div><p class="small about"></p></figure>
<div class="player"><button type="button" class="play round" aria-label="Play"></button><div class="track"><input type="range" class="seek" min="0" max="1000" value="0"><div class="ends small"><span></span><span></span></div></div><output class="time small"></output></div>
<p class="small key"><span id="help-method">Method: how the points are made.</span> <span id="help-calls">Calls: how often it asks for the score of all points; more take longer.</span></p>
<div class="margin">
<table class="shares"><caption>Share of the points nearest to each mode</caption>
<thead><tr><th scope="col">Mode</th><th scope="col">Weight</th><th scope="col">True</th><th scope="col" class="left"></th><th scope="col" class="right"></th><th><span class="sr">Remove</span></th></tr></thead><tbody></tbody></table>
<p class="small" id="help-weight">Weight: a mode’s part of the data, compared with the other weights.</p>
<div class="buttons"><button type="button" class="add">Add a mode</button><button type="button" class="reset">As in the paper</button><button type="button" class="link">Copy link</button></div>
<p class="small own-modes" hidden>The text above is about the paper’s two modes. These are others.</p>
<div class="distance"><h2>Distance to the exact distribution</h2>
<p class="small">Of 10,000 points, by the number of calls. Even exact samples have a small distance, by chance.</p>
<div class="chart curve"></div></div>
</div>
</div>
<details class="more"><summary>Settings</summary>
<form class="fields" autocomplete="off" novalidate>
<label class="field"><span>Points</span><input name="n" inputmode="numeric" aria-describedby="help-n"><small id="help-n">In each plane. The chart uses 10,000.</small></label>
<label class="field"><span>Seed</span><span class="pair"><input name="seed" inputmode="numeric" aria-describedby="help-seed"><button type="button" class="dice round" aria-label="Another seed" title="Another seed"></button></span><small id="help-seed">The same seed gives the same picture.</small></label>
<label class="field"><span>Largest σ</span><input name="sigma_max" inputmode="decimal" aria-describedby="help-sigma_max"><small id="help-sigma_max">The first noise level: more than the distance between the modes.</small></label>
<label class="field"><span>Smallest σ</span><input name="sigma_min" inputmode="decimal" aria-describedby="help-sigma_min"><small id="help-sigma_min">The width of the modes in the data, where sampling ends.</small></label>
<label class="field"><span>Levels</span><input name="levels" inputmode="numeric" aria-describedby="help-levels"><small id="help-levels">Noise levels of annealed Langevin, evenly spaced in log σ.</small></label>
<label class="field"><span>Step size ε</span><input name="step_size" inputmode="decimal" aria-describedby="help-step_size"><small id="help-step_size">Of Langevin with 1,000 calls; with fewer calls the steps are longer.</small></label>
</form></details>
`;

export function makeTab(root) {
  root.insertAdjacentHTML("beforeend", BODY);
  const form = find("form", root), seek = find(".seek", root), playButton = find(".play", root), notice = find(".notice", root);
  const chart = new Chart(find(".curve", root), {
    height: 210, log: true, xLog: true, xName: "calls", where: (x) => `with up to ${count(x)} calls`, briefly: (x) => `${count(x)} calls`, least: { x: [5, 1000], y: [0.02, 3] }, label: "Distance to the exact distribution by the number of calls. Arrow keys read it.",
  });
  let step = 1, modes = PAPER(), fields = { ...USUAL };
  let clock = 0, ticking = null; // the clock goes from 0 to 1 over a run
  const panels = SIDES.map((side) => {
    const figure = find(`[data-side=${side}]`, root);
    return { side, figure, plane: find(".plane", figure), canvas: find("canvas", figure), method: "exact", calls: 0, frames: [] };
  });

  // -------- computing: the runs on both sides, for these modes and settings

  const mixture = () => new Mixture({ means: modes.map(({ x, y }) => [x, y]), weights: modes.map(({ weight }) => weight), std: fields.sigma_min });
  const problem = () => ({ ...fields, mixture: mixture() });
  const lastCalls = {}; // of each method when it was last shown
  let noises = new Map(), noisesOf = ""; // the random numbers, kept while modes are dragged

  /** The noise of this seed and number of points, which is made only once. */
  function noise() {
    const key = `${fields.seed} ${fields.n}`;
    if (key !== noisesOf) [noises, noisesOf] = [new Map(), key];
    const made = new Noise(fields.seed, fields.n);
    let draws = 0;
    const kept = (kind) => () => {
      const name = `${kind} ${++draws}`;
      made.draws = draws - 1;
      if (!noises.has(name)) noises.set(name, Float32Array.from(made[kind]()));
      return noises.get(name);
    };
    return { uniform: kept("uniform"), normal: kept("normal") };
  }

  function compute(panel) {
    const { method, calls } = panel;
    panel.frames = [];
    if (!moves(panel)) return;
    const every = Math.max(1, Math.floor(calls / FRAMES));
    let end;
    for (const state of start(method, calls, problem(), noise())) {
      end = state;
      if (state.step % every === 0) panel.frames.push(state);
    }
    if (panel.frames.at(-1) !== end) panel.frames.push(end);
    lastCalls[method] = end.calls;
  }

  /** The run at this time: the state before it, and the points on their way to the next. */
  function now({ method, frames }) {
    if (!frames.length) {
      const sigma = leader() ? now(leader()).sigma : fields.sigma_min, made = mixture();
      return { sigma, x: method === "score" ? [] : made.sample(Math.sqrt(Math.max(0, sigma ** 2 - made.std ** 2)), noise()), calls: 0 };
    }
    const at = clock * (frames.length - 1), k = Math.floor(at + 1e-9), state = frames[k], next = frames[k + 1];
    if (!next || at <= k) return state;
    return { ...state, x: state.x.map((a, i) => a + (at - k) * (next.x[i] - a)) };
  }

  /** The side whose noise level falls while it runs. A side without a sampler shows the same level. */
  const leader = () => panels.findLast((panel) => moves(panel) && panel.method !== "langevin");

  /** The times at which the arrow keys stop: where the noise level changes, or every few frames where it does not. */
  function stops() {
    const { frames } = leader() ?? panels.find(moves), last = frames.length - 1;
    const found = [...frames.keys()].filter((k) => !leader() || k % last === 0 || frames[k].sigma !== frames[k - 1].sigma);
    const every = Math.ceil(found.length / STOPS);
    return found.filter((k, i) => i % every === 0 || k === last).map((k) => k / last);
  }

  // -------- drawing

  function draw({ canvas, plane, side }, { x, sigma }) {
    const size = Math.round(plane.clientWidth * (devicePixelRatio || 1));
    if (!size) return;
    if (canvas.width !== size) canvas.width = canvas.height = size;
    const context = canvas.getContext("2d");
    const toScreen = (u, v) => [((u + EXTENT) / (2 * EXTENT)) * size, ((EXTENT - v) / (2 * EXTENT)) * size];
    context.clearRect(0, 0, size, size);
    drawField(context, mixture(), sigma, size, plane.clientWidth, toScreen, x.length ? 0.5 : 0.9);
    context.fillStyle = colour(side === "left" ? "plain" : "annealed");
    context.globalAlpha = 0.7;
    context.beginPath();
    const radius = Math.max(1.2, size / 260);
    for (let i = 0; i < x.length; i += 2) {
      const [u, v] = toScreen(x[i], x[i + 1]);
      if (!(Math.abs(u) < 2 * size && Math.abs(v) < 2 * size)) continue;
      context.moveTo(u + radius, v);
      context.arc(u, v, radius, 0, 2 * Math.PI);
    }
    context.fill();
    context.globalAlpha = 1;
  }

  /** Shows both sides as they are at this time. */
  function refresh() {
    const states = panels.map((panel) => {
      const state = now(panel);
      return { ...state, fine: state.x.every((each) => Math.abs(each) < 1e6), counts: mixture().counts(state.x) };
    });
    panels.forEach((panel, k) => draw(panel, states[k]));
    panels.forEach(({ figure, method, canvas, frames }, k) => {
      const { sigma, calls, fine } = states[k], total = frames.at(-1)?.calls;
      find(".sigma", figure).textContent = fine ? `σ = ${digits(sigma)}` : "diverges";
      const shares = modes.map((_, m) => `Mode ${m + 1}: ${percentages(states[k].counts)[m]}`).join(", ");
      canvas.setAttribute("aria-label", method === "score" ? `The score over the density at σ = ${digits(sigma)}.` : `${METHODS[method].title} over the score and the density at σ = ${digits(sigma)}. ${shares} of the points.`);
      find(".about", figure).textContent = !total ? METHODS[method].about : `${METHODS[method].about} Call ${count(calls)} of ${count(total)}.`;
    });
    showShares(states);
    seek.value = 1000 * clock;
    const level = leader() ? `σ = ${digits(now(leader()).sigma)}` : `${Math.round(100 * clock)} %`;
    find(".time", root).textContent = level;
    seek.setAttribute("aria-valuetext", level);
  }

  // -------- the modes: handles on the planes, rows in the table

  function layOut() {
    for (const { plane } of panels) {
      for (const old of all(".handle", plane)) old.remove();
      modes.forEach((mode, k) => plane.append(handle(plane, mode, k)));
    }
    find("tbody", root).replaceChildren(...modes.map(row));
    find(".add", root).disabled = modes.length >= MODES;
  }

  function place(element, { x, y }, k) {
    element.style.left = `${((x + EXTENT) / (2 * EXTENT)) * 100}%`;
    element.style.top = `${((EXTENT - y) / (2 * EXTENT)) * 100}%`;
    element.setAttribute("aria-label", `Mode ${k + 1} at ${digits(x)}, ${digits(y)}. Drag it, or move it with the arrow keys.`);
  }

  function handle(plane, mode, k) {
    const share = make("span");
    share.setAttribute("aria-hidden", "true"); // the table has it
    const element = make("button", { type: "button", className: "handle" }, String(k + 1), share);
    element.dataset.mode = k;
    place(element, mode, k);
    const moveTo = (x, y) => {
      const inside = (value) => Math.min(EXTENT - 0.5, Math.max(0.5 - EXTENT, Number(value.toFixed(2))));
      Object.assign(mode, { x: inside(x), y: inside(y) });
      for (const each of all(`.handle[data-mode="${k}"]`, root)) place(each, mode, k);
      changed();
    };
    element.addEventListener("pointerdown", (event) => { element.setPointerCapture(event.pointerId); });
    element.addEventListener("pointermove", (event) => {
      if (!element.hasPointerCapture(event.pointerId)) return;
      const box = plane.getBoundingClientRect();
      moveTo(((event.clientX - box.left) / box.width) * 2 * EXTENT - EXTENT, EXTENT - ((event.clientY - box.top) / box.height) * 2 * EXTENT);
    });
    element.addEventListener("keydown", (event) => {
      const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!arrow) return;
      event.preventDefault();
      const by = event.shiftKey ? 1 : 0.25;
      moveTo(mode.x + by * arrow[0], mode.y + by * arrow[1]);
    });
    return element;
  }

  function row(mode, k) {
    const slider = make("input", { type: "range", min: 0.02, max: 1, step: 0.01, value: mode.weight });
    slider.setAttribute("aria-label", `Weight of mode ${k + 1}`);
    slider.setAttribute("aria-describedby", "help-weight");
    slider.addEventListener("input", () => { mode.weight = Number(slider.value); changed(); });
    const remove = make("button", { type: "button", title: "Remove", disabled: modes.length < 2 }, "×");
    remove.setAttribute("aria-label", `Remove mode ${k + 1}`);
    remove.addEventListener("click", () => {
      modes.splice(k, 1);
      layOut();
      changed();
      focusOn(find(`tbody tr:nth-child(${Math.min(k, modes.length - 1) + 1}) button`, root), find(".add", root)); // this button is gone
    });
    const line = make("tr");
    for (const content of [String(k + 1), slider, "", "", "", remove]) line.append(make("td", {}, content));
    ["true", ...SIDES].forEach((name, i) => { line.children[2 + i].className = name; });
    return line;
  }

  /** Shows the share of the points that are nearest to each mode. */
  function showShares(states) {
    find(".own-modes", root).hidden = JSON.stringify(modes) === JSON.stringify(PAPER());
    const rows = all("tbody tr", root);
    const fill = (column, texts) => texts.forEach((text, k) => { find(`.${column}`, rows[k]).textContent = text; });
    fill("true", percentages(modes.map(({ weight }) => weight)));
    panels.forEach(({ side, plane }, k) => {
      const { fine, counts, x } = states[k], texts = fine && x.length ? percentages(counts) : modes.map(() => "–");
      fill(side, texts);
      const labels = all(".handle span", plane);
      labels.forEach((share, m) => { share.textContent = x.length ? texts[m] : ""; });
      placeShares(labels, plane.clientWidth);
    });
  }

  /** Puts each share below its mode, or above or beside it, where it covers nothing; without such a place it is in the table alone. */
  function placeShares(labels, size) {
    const box = (x, y, width, height) => ({ x, y, left: x - width / 2, right: x + width / 2, top: y - height / 2, bottom: y + height / 2 });
    const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
    const inside = ({ left, right, top, bottom }) => left >= 0 && right <= size && top >= 0 && bottom <= size;
    const handle = labels[0].parentElement.offsetWidth, sizes = labels.map(({ offsetWidth, offsetHeight }) => [offsetWidth, offsetHeight]);
    const taken = modes.map(({ x, y }) => box(((x + EXTENT) / (2 * EXTENT)) * size, ((EXTENT - y) / (2 * EXTENT)) * size, handle, handle));
    labels.forEach((label, k) => {
      const { x, y } = taken[k], [width, height] = sizes[k], up = (handle + height) / 2, aside = (handle + width) / 2;
      const near = Math.min(Math.max(x, width / 2), size - width / 2); // not beyond the edges
      const places = [[near, y + up], [near, y - up], [x + aside, y], [x - aside, y]].map(([a, b]) => box(a, b, width, height));
      const free = places.find((each) => inside(each) && taken.every((other) => apart(each, other)));
      label.style.visibility = free ? "" : "hidden";
      if (!free) return;
      label.style.transform = `translate(-50%, -50%) translate(${free.x - x}px, ${free.y - y}px)`;
      taken.push(free);
    });
  }

  // -------- the distance to the exact distribution, measured by a worker

  let worker = null, waiting = null, curvesOf = "", curves = {}; // curves: { name: [[calls, distance], ...] } of one problem

  function measure() {
    clearTimeout(waiting);
    const asked = problem(), { n, seed, ...same } = asked, key = JSON.stringify(same);
    if (key !== curvesOf) {
      [curvesOf, curves] = [key, {}];
      worker?.terminate();
      worker = null;
    }
    showCurves();
    const wanted = panels.map(({ method }) => method).filter((name, k, names) => SAMPLERS[name] && names.indexOf(name) === k && !curves[name]);
    if (worker && !wanted.length) return;
    waiting = setTimeout(() => {
      worker ??= new Worker(new URL("./curves.js", import.meta.url), { type: "module" });
      worker.onmessage = ({ data: { name, calls, distance } }) => {
        (curves[name] ??= []).push([calls, distance]);
        showCurves();
      };
      const exact = !curves.exact;
      for (const name of exact ? [...wanted, "exact"] : wanted) curves[name] = [];
      worker.postMessage({ problem: { ...same, mixture: { ...asked.mixture } }, names: wanted, exact });
    }, PATIENCE);
  }

  /** The curves of both sides, those that were measured before in grey, and what as many exact samples have. */
  function showCurves() {
    const chosen = panels.map(({ method }) => method);
    const ours = Object.entries(curves).filter(([name]) => name !== "exact").map(([name, points]) => {
      const side = chosen.lastIndexOf(name);
      const style = side < 0 ? { colour: "var(--edge)", faint: true } : { colour: `var(--${["plain", "annealed"][side]})`, dash: side ? "" : "6 3" };
      const own = panels.filter(({ method }) => method === name).map(({ frames }) => frames.at(-1).calls);
      const places = own.length ? [...new Set(own)] : [lastCalls[name]];
      return { name: METHODS[name].short, points, places, dots: true, order: side, ...style };
    });
    const measured = ours.flatMap(({ points }) => points.map(([calls]) => calls));
    const exact = curves.exact?.length && measured.length ? [[Math.min(...measured), curves.exact[0][1]], [Math.max(...measured), curves.exact[0][1]]] : [];
    chart.empty = "Measuring …";
    chart.show([...ours.sort((a, b) => a.order - b.order), { name: "exact samples", colour: "var(--soft)", dash: "2 3", points: exact }]);
  }

  // -------- changes, and the address that describes them

  let pending = null, later = null, current = recalled("understand-link") ?? "";

  /** The mixture or a setting has changed: the same run at the same time is computed anew, once for each picture on the screen. */
  function changed() {
    pending ??= requestAnimationFrame(() => {
      pending = null;
      panels.forEach(compute);
      refresh();
      measure();
      clearTimeout(later);
      later = setTimeout(remember, PATIENCE); // browsers limit how often the address may change
    });
  }

  /** The settings that are not the usual ones of this step, as they stand in a link. */
  function query() {
    const parameters = new URLSearchParams({ step });
    panels.forEach(({ side, method, calls }) => {
      if (`${[method, calls]}` !== `${STEPS[step - 1][side]}`) parameters.set(side, calls ? `${method}:${calls}` : method);
    });
    if (JSON.stringify(modes) !== JSON.stringify(PAPER())) parameters.set("modes", modes.map(({ x, y, weight }) => [x, y, weight].join(",")).join(";"));
    for (const [name, value] of Object.entries(fields)) if (value !== USUAL[name]) parameters.set(name, value);
    return decodeURIComponent(parameters.toString()); // readable: commas and colons may stand in a fragment
  }

  function remember() {
    clearTimeout(later);
    keep("understand-link", current = query());
    const here = location.hash.startsWith("#/understand"); // not if the user has just chosen another tab
    if (!root.hidden && here) history.replaceState(null, "", `#/understand?${current}`);
  }

  /** Takes the settings of a link; what is not allowed is named, and left as usual. */
  function read(parameters) {
    const wrong = [];
    const take = (name, good, use) => { if (parameters.has(name)) { if (good(parameters.get(name))) use(parameters.get(name)); else wrong.push(name); } };
    const allowed = ({ least, most, whole }) => (text) => text.trim() !== "" && Number(text) >= least && Number(text) <= most && (!whole || Number.isInteger(Number(text)));
    step = 1;
    take("step", allowed({ least: 1, most: STEPS.length, whole: true }), (text) => { step = Number(text); });
    for (const panel of panels) {
      [panel.method, panel.calls] = STEPS[step - 1][panel.side];
      const parts = (text) => [text.split(":")[0], Number(text.split(":")[1] ?? 0)];
      take(panel.side, (text) => { const [name, calls] = parts(text); return Object.hasOwn(METHODS, name) && (METHODS[name].calls.includes(calls) || !(METHODS[name].calls.length || calls)); },
        (text) => { [panel.method, panel.calls] = parts(text); });
    }
    modes = PAPER();
    const triples = (text) => text.split(";").map((each) => each.split(",").map((word) => (word.trim() ? Number(word) : NaN)));
    take("modes", (text) => triples(text).length <= MODES && triples(text).every(([x, y, weight, ...more]) => Math.abs(x) <= EXTENT && Math.abs(y) <= EXTENT && weight >= 0.02 && weight <= 1 && !more.length),
      (text) => { modes = triples(text).map(([x, y, weight]) => ({ x, y, weight })); });
    fields = { ...USUAL };
    for (const name of Object.keys(USUAL)) take(name, allowed(BOUNDS[name]), (text) => { fields[name] = Number(text); });
    if (fields.sigma_max <= fields.sigma_min) {
      wrong.push("sigma_max");
      Object.assign(fields, { sigma_max: USUAL.sigma_max, sigma_min: USUAL.sigma_min });
    }
    for (const name of Object.keys(USUAL)) form.elements[name].value = fields[name];
    tell(notice, wrong.length ? `The link has a value that is not allowed: ${wrong.join(", ")}. The usual one is taken.` : null);
  }

  /** Reads the fields. Wrong ones are shown, but the cursor stays: the other field may be next. */
  function readFields() {
    try {
      const found = Object.fromEntries(Object.keys(USUAL).map((name) => [name, numberIn(form.elements[name], BOUNDS[name])]));
      const { sigma_max, sigma_min } = form.elements;
      if (found.sigma_max <= found.sigma_min) throw new FieldError(`Largest σ must be above Smallest σ, not ${digits(found.sigma_max)} and ${digits(found.sigma_min)}.`, sigma_max, sigma_min);
      fields = found;
      showFieldError(form, null);
      changed();
    } catch (error) {
      showFieldError(form, error, { focus: false });
    }
  }

  // -------- steps and methods

  function showStep() {
    all(".steps button", root).forEach((button, k) => {
      if (k + 1 === step) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    find(".caption p", root).textContent = STEPS[step - 1].words;
    find(".next", root).textContent = step < STEPS.length ? `Next: ${STEPS[step].title}` : "Again from the start";
  }

  function showMethods() {
    for (const { figure, method, calls } of panels) {
      find(".method", figure).value = method;
      const select = find(".calls", figure);
      select.replaceChildren(...METHODS[method].calls.map((each) => make("option", { value: each, selected: each === calls }, `${count(each)} calls`)));
      select.hidden = !METHODS[method].calls.length;
    }
    panels.forEach(({ side, method }) => { find(`thead .${side}`, root).textContent = METHODS[method].short; });
    for (const part of [".player", ".distance", "#help-calls"]) find(part, root).hidden = !panels.some(moves);
    const has = Boolean(leader());
    seek.setAttribute("aria-label", has ? "Noise level σ" : "Time");
    const [from, to] = all(".ends span", root);
    from.textContent = has ? `noise σ = ${digits(fields.sigma_max)}` : "start";
    to.textContent = has ? `data, σ = ${digits(fields.sigma_min)}` : "end";
  }

  /** Shows a step, or other methods, from the start. */
  function begin() {
    showStep();
    showMethods();
    panels.forEach(compute);
    clock = still.matches ? 1 : 0;
    refresh();
    measure();
    remember();
    if (still.matches || !panels.some(moves)) pause();
    else play();
  }

  function choose(number) {
    step = number;
    for (const panel of panels) [panel.method, panel.calls] = STEPS[step - 1][panel.side];
    begin();
  }

  // -------- the clock that both sides share

  function play() {
    if (clock >= 1) clock = 0;
    playButton.replaceChildren(icon("pause"));
    playButton.setAttribute("aria-label", "Pause");
    let before = null;
    const tick = (time) => {
      clock = Math.min(1, clock + (before === null ? 0 : Math.min(time - before, 100) / 1000 / SECONDS));
      before = time;
      refresh();
      if (clock >= 1 || root.hidden) pause();
      else ticking = requestAnimationFrame(tick);
    };
    cancelAnimationFrame(ticking);
    ticking = requestAnimationFrame(tick);
  }

  function pause() {
    cancelAnimationFrame(ticking);
    ticking = null;
    playButton.replaceChildren(icon("play"));
    playButton.setAttribute("aria-label", "Play");
  }

  // -------- events

  find(".steps", root).append(...STEPS.map(({ title }, k) => {
    const button = make("button", { type: "button" }, make("b", {}, String(k + 1)), title);
    button.addEventListener("click", () => choose(k + 1));
    return make("li", {}, button);
  }));
  find(".next", root).addEventListener("click", () => choose((step % STEPS.length) + 1));
  for (const panel of panels) {
    const select = find(".method", panel.figure);
    select.append(...Object.entries(METHODS).map(([name, { title }]) => make("option", { value: name }, title)));
    select.addEventListener("change", () => {
      panel.method = select.value;
      const { calls, usual } = METHODS[panel.method];
      if (!calls.includes(panel.calls)) panel.calls = usual;
      begin();
    });
    const calls = find(".calls", panel.figure);
    calls.addEventListener("change", () => { panel.calls = Number(calls.value); begin(); });
  }
  playButton.addEventListener("click", () => (ticking ? pause() : play()));
  const goTo = (time) => { pause(); clock = time; refresh(); };
  seek.addEventListener("input", () => goTo(seek.value / 1000));
  seek.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, PageDown: -PAGE, ArrowRight: 1, ArrowUp: 1, PageUp: PAGE }[event.key];
    if (!by) return;
    event.preventDefault();
    const times = stops(), here = by > 0 ? times.findLastIndex((time) => time <= clock) : times.findIndex((time) => time >= clock);
    goTo(times[Math.min(Math.max(here + by, 0), times.length - 1)]);
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); readFields(); });
  form.addEventListener("change", () => { readFields(); showMethods(); });
  dice(find(".dice", form), form.elements.seed);
  find(".dice", form).addEventListener("click", readFields);
  find(".add", root).addEventListener("click", () => {
    const angle = 2.4 * modes.length; // places apart from each other
    modes.push({ x: Number((5 * Math.cos(angle)).toFixed(1)), y: Number((5 * Math.sin(angle)).toFixed(1)), weight: 0.5 });
    layOut();
    changed();
    focusOn(find(".add", root), find(".reset", root)); // it is disabled after the last
  });
  find(".reset", root).addEventListener("click", () => { modes = PAPER(); layOut(); changed(); });
  find(".link", root).addEventListener("click", ({ target }) => copy(`${location.origin}/#/understand?${query()}`, target));
  const resized = new ResizeObserver(() => { if (opened) refresh(); });
  for (const { plane } of panels) resized.observe(plane);
  onTheme(() => { if (opened) refresh(); });

  let opened = false;
  return {
    /** A link sets everything; without one the tab is as it was left. */
    open(parameters) {
      const asked = decodeURIComponent(parameters.toString()) || current;
      if (opened && asked === query()) {
        remember();
        return;
      }
      opened = true;
      read(new URLSearchParams(asked));
      layOut();
      begin();
    },
  };
}

/** Draws the density as a soft glow, and arrows whose length grows with the square root of the score. */
function drawField(context, mixture, sigma, size, width, toScreen, strength) {
  const noise = Math.sqrt(Math.max(0, sigma ** 2 - mixture.std ** 2)); // sigma is the width of a mode with its noise
  const side = 56;
  const density = mixture.logProb(gridOf(side), noise), highest = Math.max(...density);
  const small = make("canvas", { width: side, height: side }), pixels = small.getContext("2d"), data = pixels.createImageData(side, side);
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour("glow").slice(k, k + 2), 16));
  density.forEach((value, k) => data.data.set([r, g, b, 190 * Math.exp(value - highest) ** 0.6], 4 * k));
  pixels.putImageData(data, 0, 0);
  context.imageSmoothingQuality = "high";
  const cell = size / (side - 1); // the outermost points of the grid lie on the edges
  context.drawImage(small, -cell / 2, -cell / 2, size + cell, size + cell);

  const arrows = Math.max(11, Math.min(23, Math.round(width / 17))), x = gridOf(arrows), score = mixture.score(x, noise);
  let strongest = 1e-12;
  for (let i = 0; i < x.length; i += 2) strongest = Math.max(strongest, Math.hypot(score[i], score[i + 1]));
  context.strokeStyle = colour("soft");
  context.lineWidth = Math.max(1, size / 700);
  context.globalAlpha = strength;
  context.beginPath();
  for (let i = 0; i < x.length; i += 2) {
    const norm = Math.hypot(score[i], score[i + 1]);
    if (norm < 1e-12) continue;
    const length = (0.72 * size * (0.25 + 0.75 * Math.sqrt(norm / strongest))) / arrows;
    const [a, b] = [(score[i] / norm) * length, (-score[i + 1] / norm) * length];
    const [px, py] = toScreen(x[i], x[i + 1]), [tx, ty] = [px + a / 2, py + b / 2];
    context.moveTo(px - a / 2, py - b / 2);
    context.lineTo(tx, ty);
    context.moveTo(tx - 0.35 * a + 0.2 * b, ty - 0.35 * b - 0.2 * a);
    context.lineTo(tx, ty);
    context.lineTo(tx - 0.35 * a - 0.2 * b, ty - 0.35 * b + 0.2 * a);
  }
  context.stroke();
  context.globalAlpha = 1;
}

/** A regular grid over the plane, in rows from the top to the bottom. */
function gridOf(side) {
  const x = new Float64Array(2 * side * side), step = (2 * EXTENT) / (side - 1);
  for (let k = 0; k < side * side; k++) {
    x[2 * k] = -EXTENT + (k % side) * step;
    x[2 * k + 1] = EXTENT - Math.floor(k / side) * step;
  }
  return x;
}

/** Whether this side has a sampler, which moves points. */
const moves = ({ method }) => METHODS[method].calls.length > 0;

/** Puts the focus on the first of these buttons that is not disabled. */
const focusOn = (...buttons) => buttons.find(({ disabled }) => !disabled)?.focus();
