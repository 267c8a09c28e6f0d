// The editor: the image as the model sees it, and a hole that is painted on it pixel by pixel.

import { colour, make, onTheme } from "./ui.js";
import { View } from "./view.js";

const PRESETS = {
  left: (x, y, w) => x < Math.floor(w / 2),
  right: (x, y, w) => x >= w - Math.floor(w / 2),
  top: (x, y, w, h) => y < Math.floor(h / 2),
  bottom: (x, y, w, h) => y >= h - Math.floor(h / 2),
  center: (x, y, w, h) => {
    const [left, top] = [Math.floor(w / 4), Math.floor(h / 4)];
    return x >= left && x < w - left && y >= top && y < h - top;
  },
  random: () => Math.random() < 0.5,
};

export class Editor {
  /** `onChange` is called after each change of the hole, `onView` after each drawing. */
  constructor(canvas, { onChange, onTool, onView }) {
    Object.assign(this, { canvas, onChange, onTool, onView, tool: "paint", size: 3, cursor: null, last: null, pointer: null, dragged: null });
    this.view = new View(canvas, { onChange: () => this.draw() });
    this.reset(28, 28);
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => { if (!this.last) this.point(null); });
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("keyup", (event) => { if (event.key === " ") this.held = null; });
    canvas.addEventListener("blur", () => { this.held = null; });
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) this.point(this.cursor ?? this.view.middle); });
    canvas.addEventListener("blur", () => this.point(null));
    onTheme(() => this.draw());
  }

  /** Empties the editor and sets it to the model's size. */
  reset(width, height) {
    if (this.width !== width || this.height !== height) this.hidden = new Uint8Array(width * height); // 1 where the model fills in
    Object.assign(this, { width, height, image: null, cursor: null, undos: [], redos: [] });
    this.changed();
  }

  setImage(image) {
    this.image = image;
    this.draw();
  }

  get count() {
    return this.hidden.reduce((sum, each) => sum + each, 0);
  }

  changed() {
    this.draw();
    this.onChange?.(this);
  }

  /** Saves the hole for undo. */
  remember() {
    this.undos.push(this.hidden.slice());
    if (this.undos.length > 200) this.undos.shift();
    this.redos = [];
  }

  undo(from = this.undos, to = this.redos) {
    if (!from.length) return;
    to.push(this.hidden);
    this.hidden = from.pop();
    this.changed();
  }

  redo() { this.undo(this.redos, this.undos); }

  set(rule) {
    this.remember();
    this.hidden = this.hidden.map((old, k) => Number(rule(k % this.width, Math.floor(k / this.width), this.width, this.height, old)));
    this.changed();
  }

  clear() { this.set(() => 0); }
  invert() { this.set((x, y, w, h, old) => 1 - old); }
  preset(name) { this.set(PRESETS[name]); }

  /** The name of the ready-made mask that equals the hole, if there is one. */
  get name() {
    return ["left", "right", "top", "bottom", "center"].find((name) =>
      this.hidden.every((old, k) => old === Number(PRESETS[name](k % this.width, Math.floor(k / this.width), this.width, this.height))));
  }

  /** The hole as text for a link: a bit for each pixel, in base 64 as links have it. */
  get code() {
    const bytes = new Uint8Array(Math.ceil(this.hidden.length / 8));
    this.hidden.forEach((hidden, k) => { bytes[k >> 3] |= hidden << (k & 7); });
    return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  }

  /** Takes the hole of a link: the name of a ready-made one, or `code`. */
  load(text) {
    if (Object.hasOwn(PRESETS, text)) {
      this.preset(text);
      return;
    }
    let bytes;
    try {
      bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
    } catch {
      bytes = [];
    }
    if (bytes.length !== Math.ceil(this.hidden.length / 8)) throw new Error("The hole of the link is damaged, or belongs to a model of another size.");
    this.set((x, y, w) => (bytes[(y * w + x) >> 3] >> ((y * w + x) & 7)) & 1);
  }

  /** The mask as a PNG of the model's size: white is known, black is hidden. */
  png() {
    const canvas = make("canvas", { width: this.width, height: this.height });
    const context = canvas.getContext("2d");
    const data = context.createImageData(this.width, this.height);
    this.hidden.forEach((hidden, k) => data.data.set(hidden ? [0, 0, 0, 255] : [255, 255, 255, 255], 4 * k));
    context.putImageData(data, 0, 0);
    return new Promise((resolve) => canvas.toBlob(resolve));
  }

  /** The brush's square around a place: its left, top, right and bottom edges. It ends where the visible part ends. */
  square([x, y]) {
    const [left, top] = [Math.round(x - this.size / 2), Math.round(y - this.size / 2)];
    const [least, highest, most, lowest] = this.view.edges;
    return [Math.max(least, left), Math.max(highest, top), Math.min(most, left + this.size), Math.min(lowest, top + this.size)];
  }

  dab(place, value) {
    const [left, top, right, bottom] = this.square(place);
    for (let y = top; y < bottom; y++) this.hidden.fill(value, y * this.width + left, y * this.width + Math.max(left, right));
  }

  /** Paints from one place to another without gaps. */
  stroke([x0, y0], [x1, y1], value) {
    const steps = Math.max(1, Math.ceil(2 * Math.hypot(x1 - x0, y1 - y0)));
    for (let k = 1; k <= steps; k++) this.dab([x0 + ((x1 - x0) * k) / steps, y0 + ((y1 - y0) * k) / steps], value);
  }

  down(event) {
    if (event.button !== 0 && event.button !== 2 && event.button !== 5) return;
    event.preventDefault();
    if (this.dragged) return;
    if (this.pointer != null) { // a second finger: take the stroke of the first back, and move the image instead
      this.up({ pointerId: this.pointer });
      this.undo();
      this.dragged = { pointerId: event.pointerId, clientX: event.clientX, clientY: event.clientY };
      return;
    }
    this.pointer = event.pointerId;
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.focus({ preventScroll: true });
    this.remember();
    const erase = this.tool === "erase" || event.button !== 0; // the right button, or the eraser end of a pen
    this.value = erase ? 0 : 1;
    this.last = this.view.at(event);
    this.dab(this.last, this.value);
    this.cursor = this.last;
    this.changed();
  }

  move(event) {
    if (event.pointerId === this.dragged?.pointerId) {
      const { clientX, clientY } = event;
      this.view.pan(this.dragged.clientX - clientX, this.dragged.clientY - clientY);
      Object.assign(this.dragged, { clientX, clientY });
    }
    if (!this.last) {
      this.point(event.pointerType === "touch" ? null : this.view.at(event));
      return;
    }
    if (event.pointerId !== this.pointer) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const each of events.length ? events : [event]) {
      const place = this.view.at(each);
      this.stroke(this.last, place, this.value);
      this.last = place;
    }
    this.cursor = this.last;
    this.changed();
  }

  up({ pointerId }) {
    if (pointerId === this.dragged?.pointerId) this.dragged = null;
    if (pointerId !== this.pointer) return;
    this.last = this.pointer = null;
    this.onChange?.(this);
  }

  /** A small picture of the image with its hole. */
  snapshot() {
    const zoom = Math.max(1, Math.floor(96 / Math.max(this.width, this.height)));
    const canvas = make("canvas", { width: this.width * zoom, height: this.height * zoom });
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    if (this.image) context.drawImage(this.image, 0, 0, canvas.width, canvas.height);
    this.drawHole(context, zoom, [0, 0, this.width, this.height], 1);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "The image with its hole");
    return canvas;
  }

  point(place) {
    this.cursor = place;
    this.draw();
  }

  /** Zooms in or out around the cursor, if there is one. */
  zoom(times) {
    this.view.by(times, this.cursor);
    this.draw();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return; // these belong to the browser
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const inside = (x, size) => Math.min(size - 0.5, Math.max(0.5, Math.floor(x) + 0.5));
    const here = this.cursor ?? this.view.middle;
    if (arrow) {
      this.cursor = [inside(here[0] + arrow[0], this.width), inside(here[1] + arrow[1], this.height)];
      this.view.reveal(this.cursor, this.size / 2 + 1);
      if (this.held) this.dab(this.cursor, this.held.value); // the space bar is held down: paint on the way
      this.changed();
    } else if (event.key === " ") {
      if (!event.repeat) {
        this.remember();
        this.held = { value: this.tool === "erase" ? 0 : 1 };
        this.cursor = [inside(here[0], this.width), inside(here[1], this.height)];
        this.view.reveal(this.cursor, this.size / 2 + 1);
        this.dab(this.cursor, this.held.value);
        this.changed();
      }
    } else if (event.key >= "1" && event.key <= "5") this.onTool({ size: Number(event.key) });
    else if (event.key === "e" || event.key === "E") this.onTool({ tool: this.tool === "erase" ? "paint" : "erase" });
    else if (event.key === "+" || event.key === "=") this.zoom(2); // = is the same key as + without Shift
    else if (event.key === "-") this.zoom(1 / 2);
    else return;
    event.preventDefault();
  }

  draw() {
    const { canvas, width, height, view } = this;
    if (!view.lay(width, height)) return;
    const ratio = devicePixelRatio || 1, { zoom } = view;
    const context = canvas.getContext("2d");
    context.translate(-view.left, -view.top);
    context.imageSmoothingEnabled = false;
    context.fillStyle = colour("code");
    context.fillRect(0, 0, width * zoom, height * zoom);
    if (this.image) context.drawImage(this.image, 0, 0, width * zoom, height * zoom);
    this.drawHole(context, zoom, view.edges);
    if (zoom >= 8 * ratio) this.drawLines(context, zoom);
    this.drawCursor(context, zoom, ratio);
    this.onView?.(view);
  }

  drawCursor(context, zoom, ratio) {
    if (!this.cursor) return;
    const [left, top, right, bottom] = this.square(this.cursor).map((each) => each * zoom);
    for (const [style, by] of [["#000", 0], ["#fff", ratio]]) {
      context.strokeStyle = style;
      context.lineWidth = 1.5 * ratio;
      context.strokeRect(left - by, top - by, right - left + 2 * by, bottom - top + 2 * by);
    }
  }

  /** Draws the hole hatched, so that it can be seen on black and on white, and a little transparent. */
  drawHole(context, zoom, [left, top, right, bottom], opacity = 0.72) {
    const width = this.width * zoom, height = this.height * zoom;
    context.save();
    context.beginPath();
    for (let y = top; y < bottom; y++) {
      for (let x = left, start; x < right; x++) { // hidden pixels side by side are one rectangle
        if (!this.hidden[y * this.width + x]) continue;
        for (start = x; x < right && this.hidden[y * this.width + x]; x++);
        context.rect(start * zoom, y * zoom, (x - start) * zoom, zoom);
      }
    }
    context.clip();
    context.globalAlpha = opacity;
    context.fillStyle = "#c9673f";
    context.fillRect(0, 0, width, height);
    context.globalAlpha = 0.28;
    context.strokeStyle = "#fff";
    context.lineWidth = Math.max(1, zoom / 8);
    context.beginPath();
    const gap = Math.max(4, zoom / 1.5);
    for (let x = -height; x < width; x += gap) {
      context.moveTo(x, height);
      context.lineTo(x + height, 0);
    }
    context.stroke();
    context.restore();
  }

  drawLines(context, zoom) {
    context.fillStyle = "rgb(128 128 128 / 0.16)";
    for (let x = 1; x < this.width; x++) context.fillRect(x * zoom, 0, 1, this.height * zoom);
    for (let y = 1; y < this.height; y++) context.fillRect(0, y * zoom, this.width * zoom, 1);
  }
}
