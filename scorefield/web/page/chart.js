// A line chart as SVG. Its legend shows the values under the pointer and hides or shows lines.

import { count, digits, make } from "./ui.js";

await new Promise((resolve) => { // the styles of the tabs that have charts
  document.head.append(make("link", { rel: "stylesheet", href: "/static/lab.css", onload: resolve, onerror: resolve }));
});

const LEFT = 46, RIGHT = 8, TOP = 8, BOTTOM = 24;

function shape(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text != null) element.textContent = text;
  return element;
}

/** Round numbers between two others, for an axis. */
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((each) => each >= rough);
  const made = [];
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * step; k++) made.push(Number((k * step).toPrecision(6)));
  return made;
}

/** The same for a logarithmic axis: 1, 2 and 5 times powers of ten. */
function logTicks(low, high) {
  const made = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
    for (const k of [1, 2, 5]) made.push(Number((k * 10 ** power).toPrecision(3)));
  }
  const inside = made.filter((each) => each >= low * 0.999 && each <= high * 1.001);
  return inside.length > 7 ? inside.filter((each) => /^[^1-9]*1[^1-9]*$/.test(String(each).replace(/e.*/, ""))) : inside.length > 1 ? inside : ticks(low, high, 4);
}

const capital = (words) => words[0].toUpperCase() + words.slice(1);
const lastOf = (points) => points.findLast(([, value]) => value != null);

export class Chart {
  /**
   * `where` names a place on the x-axis in the legend, `briefly` does it beside a value, and xName names the axis. `least` is
   * what both axes show at least.
   */
  constructor(place, { height = 260, log = false, zero = false, xLog = false, xName = "step", where = (x) => `at step ${count(x)}`, briefly = where, least = {}, label }) {
    Object.assign(this, { place, height, log, zero, xLog, xName, where, briefly, least, label, lines: [], off: new Set(), at: null, lasting: true, empty: "Nothing measured yet" });
    this.svg = shape("svg", { class: "plot", role: "img", tabindex: 0, "aria-label": label });
    this.legend = make("div", { className: "legend" });
    place.append(this.svg, this.legend);
    this.width = 0;
    new ResizeObserver(() => { if (place.clientWidth !== this.width) this.draw(); }).observe(place);
    this.svg.addEventListener("pointermove", (event) => this.hover(event));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || !this.steps?.length) return;
      event.preventDefault();
      const k = this.at == null ? this.steps.length - 1 : this.steps.indexOf(this.at) + by;
      if (this.steps[k] != null) this.point(this.steps[k]);
    });
  }

  /**
   * Lines are { name, colour, points: [[x, value or null], ...] }, and optionally dash, dots, faint, and quiet, which have
   * no legend. Until the pointer is at a place, the legend shows a line's values at its own `places`, or else its latest one,
   * or none if the last of a line is not the latest (`lasting` is false).
   */
  show(lines) {
    this.lines = lines.filter(({ points }) => points.length);
    this.steps = [...new Set(this.lines.flatMap(({ points }) => points.map(([step]) => step)))].sort((a, b) => a - b);
    const ends = this.lines.filter(({ points, quiet }) => !quiet && lastOf(points)).map((line) => `${line.name}: ${this.atRest(line)}`);
    const when = this.latest && `${capital(this.latest)}: `;
    this.svg.setAttribute("aria-label", ends.length && this.lasting ? `${this.label} ${when}${ends.join(", ")}` : this.label);
    this.draw();
  }

  /** What the legend says of a line while the pointer is elsewhere. */
  atRest({ points, places }) {
    const text = (value) => (value == null ? "–" : digits(value));
    if (places) return places.map((place) => `${text(points.find(([x]) => x === place)?.[1])} (${this.briefly(place)})`).join(", ");
    return this.lasting ? text(lastOf(points)?.[1]) : "";
  }

  /** Where the latest values were measured, in words: lines may end at different places. */
  get latest() {
    if (!this.lasting) return "Point at the chart to see values.";
    if (this.lines.some(({ places }) => places)) return "";
    const ends = new Set(this.lines.filter(({ quiet }) => !quiet).flatMap(({ points }) => lastOf(points)?.[0] ?? []));
    return ends.size === 1 ? this.where(...ends) : "latest values";
  }

  get visible() {
    return this.lines.filter(({ name }) => !this.off.has(name));
  }

  draw() {
    const { svg, height } = this;
    const width = this.width = this.place.clientWidth || 480;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const usable = (y) => y != null && Number.isFinite(y) && (!this.log || y > 0);
    const values = this.visible.flatMap(({ points }) => points.map(([, y]) => y)).filter(usable);
    if (!values.length) {
      svg.append(shape("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, this.empty));
      this.drawLegend();
      return;
    }
    const wide = (wanted, ...found) => [Math.min(...found, ...(wanted ?? [])), Math.max(...found, ...(wanted ?? []))];
    const [first, end] = wide(this.least.x, ...this.steps), last = end > first ? end : first + 1;
    let [low, high] = wide(this.least.y, ...values);
    if (this.zero && !this.log) low = 0;
    if (high <= low) high = low + (Math.abs(low) || 1) * 0.1;
    const up = this.log ? Math.log : (y) => y;
    const along = this.xLog ? Math.log : (x) => x;
    this.x = (step) => LEFT + ((along(step) - along(first)) / (along(last) - along(first))) * (width - LEFT - RIGHT);
    const y = (value) => height - BOTTOM - ((up(value) - up(low)) / (up(high) - up(low))) * (height - TOP - BOTTOM);
    for (const value of this.log ? logTicks(low, high) : ticks(low, high, 4)) {
      svg.append(shape("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
      svg.append(shape("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, digits(value)));
    }
    const marks = this.xLog ? logTicks(first, last) : ticks(first, last, width > 440 ? 5 : 3).filter(Number.isInteger);
    for (const step of marks) {
      svg.append(shape("text", { x: Math.min(this.x(step), width - RIGHT - 10), y: height - 6, "text-anchor": "middle" }, this.xLog ? digits(step) : count(step)));
    }
    for (const { name, points, colour, dash = "", dots, faint } of this.visible) {
      let path = "", drawing = false;
      for (const [step, value] of points) {
        if (!usable(value)) continue; // the line goes on to the next that was measured
        path += `${drawing ? "L" : "M"}${this.x(step).toFixed(1)} ${y(value).toFixed(1)}`;
        drawing = true;
      }
      const line = shape("path", { d: path, "stroke-dasharray": dash, class: faint ? "faint" : "" });
      line.dataset.name = name;
      line.style.stroke = colour;
      svg.append(line);
      const alone = points.filter(([, value]) => usable(value)).length === 1; // which makes no line
      points.forEach(([step, value]) => {
        if (!usable(value) || !(dots || alone)) return;
        const dot = shape("circle", { cx: this.x(step), cy: y(value), r: dots ? 2.4 : 3, class: faint ? "faint" : "" });
        dot.style.fill = colour;
        svg.append(dot);
      });
    }
    const room = !marks.length || this.x(marks[0]) > LEFT + 24;
    if (room) svg.append(shape("text", { x: LEFT - 7, y: height - 6, "text-anchor": "end" }, this.xName));
    this.rule = shape("line", { class: "rule", x1: 0, x2: 0, y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
    svg.append(this.rule);
    this.point(this.at);
  }

  hover(event) {
    if (!this.x || !this.steps.length) return;
    const box = this.svg.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * this.width;
    const near = (a, b) => (Math.abs(this.x(b) - place) < Math.abs(this.x(a) - place) ? b : a);
    this.point(this.steps.reduce(near));
  }

  /** Shows the values at a step, or those at rest if it is null. */
  point(step) {
    this.at = step;
    if (this.rule && this.x) {
      this.rule.setAttribute("visibility", step == null ? "hidden" : "visible");
      if (step != null) for (const end of ["x1", "x2"]) this.rule.setAttribute(end, this.x(step));
    }
    this.drawLegend();
  }

  drawLegend() {
    const focused = this.legend.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const light = (name) => { for (const path of this.svg.querySelectorAll("path")) path.classList.toggle("lit", path.dataset.name === name); };
    const entries = this.lines.filter(({ quiet }) => !quiet).map((line) => {
      const { name, colour, points, dash } = line;
      const known = this.at <= lastOf(points)?.[0] ? lastOf(points.filter(([step]) => step <= this.at)) : null; // beyond the last, nothing is known
      const swatch = make("i", { className: dash ? "dashed" : "" });
      swatch.style.color = colour;
      const button = make("button", { type: "button", title: "Show or hide" }, swatch, name, make("b", {}, this.at == null ? this.atRest(line) : known ? digits(known[1]) : "–"));
      button.dataset.name = name;
      button.setAttribute("aria-pressed", String(!this.off.has(name)));
      button.addEventListener("click", () => {
        if (!this.off.delete(name)) this.off.add(name);
        this.draw();
      });
      for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => light(name));
      for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => light(null));
      return button;
    });
    if (entries.length) entries.push(make("span", {}, this.at == null ? this.latest : this.where(this.at)));
    this.legend.replaceChildren(...entries);
    if (focused) entries.find((each) => each.dataset?.name === focused)?.focus();
  }
}
