// Understand: a mixture of Gaussians in the plane, its score field, and points that follow it by two methods.

import { post, runJob } from "./api.js";
import { FieldError, all, colour, count, dice, digits, find, icon, keep, make, numberIn, onTheme, percentages, recalled, showFieldError, tell } from "./ui.js";

const EXTENT = 8; // the plane is [-8, 8] × [-8, 8]
const METHODS = ["langevin", "annealed"];
const SECONDS = 7; // time to play a whole run
const still = matchMedia("(prefers-reduced-motion: reduce)"); // then only the end is shown
const FIELDS = ["n", "seed", "steps", "step_size", "sigma_max", "sigma_min", "levels"];
const PAPER = () => [{ x: -5, y: -5, weight: 0.2 }, { x: 5, y: 5, weight: 0.8 }];

export function makeTab(root, { limits }) {
  const form = find("form", root);
  const seek = find(".seek", root), playButton = find(".play", root), stop = find(".stop", form), start = find(".primary", form);
  const notice = make("p", { className: "notice error", hidden: true });
  notice.setAttribute("role", "alert");
  form.prepend(notice);
  const kept = recalled("understand"); // over a reload of the page
  let modes = kept?.modes ?? PAPER();
  for (const name of FIELDS) form.elements[name].value = kept?.fields[name] ?? form.elements[name].value;
  let abort = null, ticking = null, clock = 0; // the clock goes from 0 to 1 over a run
  let looking = true; // at the sigma of the slider, not at that of the run
  const panels = all(".plane", root).map((plane) => ({
    plane, method: plane.dataset.method, canvas: find("canvas", plane), sigmaLabel: find(".sigma", plane.closest("figure")), frames: [], field: null,
  }));

  const total = () => modes.reduce((sum, { weight }) => sum + weight, 0) || 1;
  const mixture = () => ({ means: modes.map(({ x, y }) => [x, y]), weights: modes.map(({ weight }) => weight / total()) });
  let range = [20, 1]; // the largest and the smallest sigma: the fields', unless they are wrong
  const lookedAt = () => range[0] * (range[1] / range[0]) ** Number(form.elements.look.value);

  // -------- drawing

  const toScreen = (canvas, x, y) => [((x + EXTENT) / (2 * EXTENT)) * canvas.width, ((EXTENT - y) / (2 * EXTENT)) * canvas.height];

  function frameOf(panel) {
    const { frames } = panel;
    if (!frames.length) return null;
    const step = clock * frames[0].total;
    let k = frames.length - 1;
    while (k > 0 && frames[k].step > step) k--;
    return frames[k];
  }

  function draw(panel) {
    const { canvas, plane, field, method } = panel;
    const ratio = devicePixelRatio || 1;
    const size = Math.round(plane.clientWidth * ratio);
    if (!size) return;
    if (canvas.width !== size) canvas.width = canvas.height = size;
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, size, size);
    if (field) {
      drawDensity(context, field, size);
      drawArrows(context, field, size);
    }
    const frame = frameOf(panel);
    context.fillStyle = colour(method === "langevin" ? "plain" : "annealed");
    context.globalAlpha = 0.75;
    const radius = Math.max(1.2, size / 300);
    for (const [x, y] of frame?.points ?? []) {
      const [u, v] = toScreen(canvas, x, y);
      context.beginPath();
      context.arc(u, v, radius, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  /** Draws the density as a soft glow: the field's grid, smoothly enlarged. */
  function drawDensity(context, { log_prob: values, side }, size) {
    const highest = Math.max(...values);
    const small = make("canvas", { width: side, height: side });
    const pixels = small.getContext("2d");
    const data = pixels.createImageData(side, side);
    const [r, g, b] = rgb(colour("glow"));
    values.forEach((value, k) => data.data.set([r, g, b, 190 * Math.exp(value - highest) ** 0.6], 4 * k));
    pixels.putImageData(data, 0, 0);
    context.imageSmoothingEnabled = true;
    context.imageSmoothingQuality = "high";
    const cell = size / (side - 1); // the outermost points of the grid lie on the edges
    context.drawImage(small, -cell / 2, -cell / 2, size + cell, size + cell);
  }

  /** Draws arrows. Their length grows with the square root of the score, so that weak ones are visible too. */
  function drawArrows(context, { arrows, strongest }, size) {
    context.strokeStyle = colour("soft");
    context.lineWidth = Math.max(1, size / 700);
    context.globalAlpha = 0.55;
    context.beginPath();
    const longest = size / 30;
    for (const [x, y, u, v] of arrows) {
      const norm = Math.hypot(u, v);
      if (norm < 1e-12) continue;
      const length = longest * (0.25 + 0.75 * Math.sqrt(norm / strongest));
      const [a, b] = [(u / norm) * length, (-v / norm) * length];
      const [px, py] = toScreen(context.canvas, x, y);
      const [tx, ty] = [px + a / 2, py + b / 2];
      context.moveTo(px - a / 2, py - b / 2);
      context.lineTo(tx, ty);
      context.moveTo(tx - 0.35 * a + 0.2 * b, ty - 0.35 * b - 0.2 * a);
      context.lineTo(tx, ty);
      context.lineTo(tx - 0.35 * a - 0.2 * b, ty - 0.35 * b + 0.2 * a);
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  // -------- the field, requested when the noise or the modes change

  const fields = new Map(); // by mixture and sigma
  let fieldError = null; // the notice may also be about a run, which a field does not take back

  async function updateField(panel) {
    const frame = frameOf(panel);
    const sigma = Number((panel.method === "langevin" ? range[1] : frame && !looking ? frame.sigma : lookedAt()).toPrecision(4));
    panel.sigmaLabel.textContent = `σ = ${digits(sigma)}`;
    const wanted = { ...mixture(), sigma, points: 24 };
    const key = JSON.stringify(wanted);
    panel.wanted = key;
    if (fields.has(key)) {
      panel.field = fields.get(key);
      return;
    }
    if (panel.asking) return; // one request at a time; the latest is sent when the answer has come
    panel.asking = true;
    try {
      const answer = await (await post("/api/field", wanted)).json();
      const field = shaped(answer);
      if (fields.size > 200) fields.clear();
      fields.set(key, field);
      panel.field = field;
      if (notice.textContent === fieldError) tell(notice, null);
    } catch (error) {
      if (error.status) tell(notice, fieldError = error.message);
      panel.wanted = key;
      return;
    } finally {
      panel.asking = false;
    }
    draw(panel);
    if (panel.wanted !== key) updateField(panel).then(() => draw(panel));
  }

  /** The answer with its rows from top to bottom, as on screens. */
  function shaped({ x, score, log_prob }) {
    const order = x.map((_, k) => k).sort((a, b) => x[b][1] - x[a][1] || x[a][0] - x[b][0]);
    const arrows = order.map((k) => [...x[k], ...score[k]]);
    return {
      side: Math.round(Math.sqrt(x.length)),
      log_prob: order.map((k) => log_prob[k]),
      arrows,
      strongest: Math.max(...arrows.map(([, , u, v]) => Math.hypot(u, v)), 1e-12),
    };
  }

  function refresh() {
    for (const panel of panels) {
      updateField(panel);
      draw(panel);
    }
    showShares();
  }

  // -------- the modes: handles on the planes, rows in the table

  function layOut() {
    for (const { plane } of panels) {
      for (const old of all(".handle", plane)) old.remove();
      modes.forEach((mode, k) => plane.append(handle(plane, mode, k)));
    }
    find("tbody", root).replaceChildren(...modes.map(row));
    find(".add", root).disabled = modes.length >= 8;
    refresh();
  }

  function place(element, { x, y }, k) {
    element.style.left = `${((x + EXTENT) / (2 * EXTENT)) * 100}%`;
    element.style.top = `${((EXTENT - y) / (2 * EXTENT)) * 100}%`;
    element.setAttribute("aria-label", `Mode ${k + 1} at ${digits(x)}, ${digits(y)}. Drag it, or move it with the arrow keys.`);
  }

  function handle(plane, mode, k) {
    const element = make("button", { type: "button", className: "handle" }, String(k + 1));
    element.dataset.mode = k;
    place(element, mode, k);
    const moveTo = (x, y) => {
      const inside = (value) => Math.min(EXTENT - 0.5, Math.max(0.5 - EXTENT, Number(value.toFixed(2))));
      Object.assign(mode, { x: inside(x), y: inside(y) });
      for (const each of all(`.handle[data-mode="${k}"]`, root)) place(each, mode, k);
      forget();
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
    slider.addEventListener("input", () => { mode.weight = Number(slider.value); forget(); });
    const remove = make("button", { type: "button", title: "Remove", disabled: modes.length < 2 }, "×");
    remove.setAttribute("aria-label", `Remove mode ${k + 1}`);
    remove.addEventListener("click", () => {
      modes.splice(k, 1);
      layOut();
      forget();
      focusOn(find(`tbody tr:nth-child(${Math.min(k, modes.length - 1) + 1}) button`, root), find(".add", root)); // this button is gone
    });
    const line = make("tr");
    for (const content of [String(k + 1), slider, "", "", "", remove]) line.append(make("td", {}, content));
    line.children[2].className = "true";
    METHODS.forEach((method, i) => { line.children[3 + i].className = method; });
    return line;
  }

  /** Shows the share of the points that are nearest to each mode. */
  function showShares() {
    const fill = (column, texts) => texts.forEach((text, k) => { find(`tbody tr:nth-child(${k + 1}) .${column}`, root).textContent = text; });
    fill("true", percentages(modes.map(({ weight }) => weight)));
    for (const panel of panels) {
      const points = frameOf(panel)?.points;
      const counts = modes.map(() => 0);
      for (const [x, y] of points ?? []) {
        const away = modes.map((mode) => (mode.x - x) ** 2 + (mode.y - y) ** 2);
        counts[away.indexOf(Math.min(...away))] += 1;
      }
      fill(panel.method, points ? percentages(counts) : modes.map(() => "–"));
    }
  }

  /** Removes the points of the last run: the mixture has changed. */
  function forget() {
    abort?.abort();
    pause();
    clock = 0;
    looking = true;
    for (const panel of panels) panel.frames = [];
    seek.disabled = playButton.disabled = true;
    seek.value = 0;
    find(".time", root).textContent = "";
    keepAll();
    refresh();
  }

  const keepAll = () => keep("understand", { modes, fields: Object.fromEntries(FIELDS.map((name) => [name, form.elements[name].value])) });

  // -------- running, and the clock that both planes share

  /** The largest and the smallest sigma of the fields. */
  function readRange() {
    const { sigma_max, sigma_min } = form.elements;
    const [high, low] = [sigma_max, sigma_min].map((input) => numberIn(input, { least: 0.02, most: 100 }));
    if (high <= low) throw new FieldError(`Largest σ must be above Smallest σ, not ${digits(high)} and ${digits(low)}.`, sigma_max, sigma_min);
    return [high, low];
  }

  function settings() {
    const { n, seed, steps, step_size, levels } = form.elements;
    const [sigma_max, sigma_min] = readRange();
    const asked = {
      ...mixture(),
      n: numberIn(n, { least: 1, most: limits.points, whole: true }),
      seed: numberIn(seed, { least: 0, most: 2 ** 32 - 1, whole: true }),
      steps: numberIn(steps, { least: 1, most: limits.updates, whole: true }),
      step_size: numberIn(step_size, { least: Number.MIN_VALUE }),
      sigma_max,
      sigma_min,
      levels: numberIn(levels, { least: 2, most: limits.levels, whole: true }),
    };
    const updates = asked.steps * asked.levels;
    if (updates > limits.updates) throw new FieldError(`Steps per level times Levels: at most ${count(limits.updates)} steps in all, not ${count(updates)}.`, steps, levels);
    return asked;
  }

  async function run() {
    let asked;
    try {
      asked = settings();
      showFieldError(form, null);
    } catch (error) {
      showFieldError(form, error);
      return;
    }
    forget();
    tell(notice, null);
    const mine = abort = new AbortController();
    stop.hidden = false;
    if (document.activeElement === start) stop.focus(); // a disabled button loses the focus
    start.disabled = true;
    const words = find(".time", root);
    words.textContent = "sending …";
    play();
    // Both methods start from the same points. Langevin takes as many steps as annealing takes over all levels.
    try {
      const status = await runJob("/api/playground", { ...asked, method: "both" }, {
        signal: mine.signal,
        onWait: (left) => { words.textContent = `queue full, ${left} s`; },
        onStatus: ({ state, position }) => { if (state === "queued" && position) words.textContent = `${position} ahead`; },
        onFrame: (frame) => {
          if (mine === abort && !mine.signal.aborted) for (const panel of panels) panel.frames.push({ ...frame, points: frame.points[panel.method] });
        },
      });
      if (status.state === "failed") throw new Error(status.error);
    } catch (error) {
      if (!mine.signal.aborted) tell(notice, error.message);
    }
    if (mine !== abort) return;
    if (mine.signal.aborted) pause();
    start.disabled = false;
    if (document.activeElement === stop) start.focus({ preventScroll: true });
    stop.hidden = true;
  }

  /** The part of the run that has arrived. The clock does not run ahead of it. */
  const ready = () => { const last = panels[0].frames.at(-1); return last ? last.step / last.total : 0; };

  function play() {
    if (clock >= 1) clock = 0;
    playButton.replaceChildren(icon("pause"));
    playButton.setAttribute("aria-label", "Pause");
    let before = performance.now(), drawn = [];
    const tick = (now) => {
      const ahead = still.matches ? 1 : (now - before) / 1000 / SECONDS;
      clock = Math.max(clock, Math.min(ready(), clock + ahead));
      before = now;
      const frames = panels.map(frameOf);
      if (frames.some((frame, k) => frame !== drawn[k])) at(clock); // only if there is a new frame: there are 60
      else seek.value = 1000 * clock;
      drawn = frames;
      if (!start.disabled && clock >= ready()) pause(); // all frames have arrived and were shown
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

  function at(time) {
    clock = time;
    looking = false;
    seek.disabled = playButton.disabled = false;
    seek.value = 1000 * clock;
    const { step, total: all } = frameOf(panels[1]) ?? frameOf(panels[0]) ?? {};
    find(".time", root).textContent = step == null ? "" : `step ${step} / ${all}`;
    const sigma = frameOf(panels[1])?.sigma;
    if (sigma) {
      const [high, low] = range;
      form.elements.look.value = Math.log(sigma / high) / Math.log(low / high);
      showLook();
    }
    refresh();
  }

  /** Takes the fields' sigmas; wrong ones are shown, but the cursor stays: the other field may be next. */
  function setRange() {
    try {
      range = readRange();
    } catch (error) {
      showFieldError(form, error, { focus: false });
    }
    showLook();
  }

  const showLook = () => { find(".look", root).textContent = digits(lookedAt()); };

  // -------- events

  form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
  stop.addEventListener("click", () => { abort?.abort(); pause(); });
  playButton.append(icon("play"));
  playButton.addEventListener("click", () => (ticking ? pause() : play()));
  seek.addEventListener("input", () => { pause(); at(Math.min(ready(), seek.value / 1000)); });
  form.elements.look.addEventListener("input", () => { pause(); looking = true; showLook(); refresh(); });
  form.addEventListener("input", keepAll);
  for (const name of ["sigma_max", "sigma_min"]) form.elements[name].addEventListener("change", () => { setRange(); forget(); });
  dice(find(".dice", form), form.elements.seed);
  find(".add", root).addEventListener("click", () => {
    const angle = 2.4 * modes.length; // places apart from each other
    modes.push({ x: Number((5 * Math.cos(angle)).toFixed(1)), y: Number((5 * Math.sin(angle)).toFixed(1)), weight: 0.5 });
    layOut();
    forget();
    focusOn(find(".add", root), find(".reset", root)); // it is disabled after the last
  });
  find(".reset", root).addEventListener("click", () => { modes = PAPER(); layOut(); forget(); });
  const resized = new ResizeObserver(() => panels.forEach(draw));
  for (const { plane } of panels) resized.observe(plane);
  onTheme(() => panels.forEach(draw));

  let laid = false;
  return {
    open() {
      if (laid) return;
      laid = true;
      setRange();
      layOut();
    },
  };
}

/** Puts the focus on the first of these buttons that is not disabled. */
const focusOn = (...buttons) => buttons.find(({ disabled }) => !disabled)?.focus();

const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
