// A pad on which a digit is drawn, white on black as in MNIST, with mouse, finger or pen; or with the keyboard.

import { make } from "./ui.js";

const WIDTH = 0.085; // of the pen, as a part of the pad's side
const MARGIN = 4 / 28; // around a digit, as in MNIST

export class Pad {
  /** `onChange` is called after each change of the drawing. */
  constructor(canvas, { onChange }) {
    Object.assign(this, { canvas, onChange, pen: null, down: false, cursor: false });
    this.ink = make("canvas", { width: canvas.width, height: canvas.height }); // the drawing without the cursor
    this.context = this.ink.getContext("2d", { willReadFrequently: true });
    this.clear();
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      this.cursor = false;
      this.pen = event.pointerId;
      this.at = this.place(event);
      this.line(this.at);
    });
    canvas.addEventListener("pointermove", (event) => { if (event.pointerId === this.pen) this.line(this.place(event)); });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { this.pen = null; });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("keyup", (event) => { if (event.key === " ") this.down = false; });
    canvas.addEventListener("focus", () => { this.cursor = canvas.matches(":focus-visible"); this.show(); });
    canvas.addEventListener("blur", () => { this.down = this.cursor = false; this.show(); });
  }

  place({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    return [((clientX - box.left) / box.width) * this.canvas.width, ((clientY - box.top) / box.height) * this.canvas.height];
  }

  /** Draws a line from the last place to this one; a dot if it is the same. */
  line(to) {
    const { context } = this;
    context.beginPath();
    context.arc(...to, context.lineWidth / 2, 0, 2 * Math.PI);
    context.fill();
    context.beginPath();
    context.moveTo(...this.at);
    context.lineTo(...to);
    context.stroke();
    Object.assign(this, { at: to, empty: false });
    this.show();
    this.onChange(this);
  }

  show() {
    const { canvas, at, context: { lineWidth } } = this, shown = canvas.getContext("2d");
    shown.drawImage(this.ink, 0, 0);
    if (!this.cursor) return;
    for (const [style, by] of [["#fff", 0], ["#000", 2]]) { // seen on black and on white
      Object.assign(shown, { strokeStyle: style, lineWidth: 2 });
      shown.beginPath();
      shown.arc(...at, lineWidth / 2 + by, 0, 2 * Math.PI);
      shown.stroke();
    }
  }

  key(event) {
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!arrow && event.key !== " ") return;
    event.preventDefault();
    this.cursor = true;
    if (event.key === " ") this.down = true;
    const side = this.canvas.width, to = (arrow ?? [0, 0]).map((by, k) => Math.min(side, Math.max(0, this.at[k] + (by * side) / 28)));
    if (this.down) this.line(to);
    else this.at = to;
    this.show();
  }

  clear() {
    const { context, canvas } = this;
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
    Object.assign(context, { strokeStyle: "#fff", fillStyle: "#fff", lineWidth: WIDTH * canvas.width, lineCap: "round", lineJoin: "round" });
    Object.assign(this, { at: [canvas.width / 2, canvas.height / 2], empty: true });
    this.show();
    this.onChange(this);
  }

  /** The drawing in the size of a model's images, as a PNG. What is drawn is moved to the middle and scaled, as digits of MNIST are. */
  png([, height, width]) {
    const { ink: canvas, context } = this, { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    let [left, top, right, bottom] = [canvas.width, canvas.height, 0, 0];
    for (let y = 0; y < canvas.height; y++) {
      for (let x = 0; x < canvas.width; x++) {
        if (data[4 * (y * canvas.width + x)] < 128) continue;
        [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x + 1), Math.min(top, y), Math.max(bottom, y + 1)];
      }
    }
    const made = make("canvas", { width, height }), small = made.getContext("2d");
    small.fillStyle = "#000";
    small.fillRect(0, 0, width, height);
    if (right > left) {
      const scale = ((1 - 2 * MARGIN) * Math.min(width, height)) / Math.max(right - left, bottom - top), [w, h] = [(right - left) * scale, (bottom - top) * scale];
      small.imageSmoothingQuality = "high";
      small.drawImage(canvas, left, top, right - left, bottom - top, (width - w) / 2, (height - h) / 2, w, h);
    }
    return new Promise((resolve) => made.toBlob(resolve));
  }
}
