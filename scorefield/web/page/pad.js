// A pad on which a digit is drawn, white on black as in MNIST, with mouse, finger or pen; or with the keyboard.

import { make } from "./ui.js";

const WIDTH = 0.085; // of the pen, as a part of the pad's side
const MARGIN = 4 / 28; // around a digit, as in MNIST

export class Pad {
  constructor(canvas) {
    Object.assign(this, { canvas, pen: null, at: [canvas.width / 2, canvas.height / 2], down: false });
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.clear();
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      this.pen = event.pointerId;
      this.at = this.place(event);
      this.line(this.at);
    });
    canvas.addEventListener("pointermove", (event) => { if (event.pointerId === this.pen) this.line(this.place(event)); });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { this.pen = null; });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("keyup", (event) => { if (event.key === " ") this.down = false; });
  }

  place({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    return [((clientX - box.left) / box.width) * this.canvas.width, ((clientY - box.top) / box.height) * this.canvas.height];
  }

  line(to) {
    const { context } = this;
    context.beginPath();
    context.moveTo(...this.at);
    context.lineTo(...to);
    context.stroke();
    this.at = to;
  }

  key(event) {
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!arrow && event.key !== " ") return;
    event.preventDefault();
    if (event.key === " ") this.down = true;
    const side = this.canvas.width, to = (arrow ?? [0, 0]).map((by, k) => Math.min(side, Math.max(0, this.at[k] + (by * side) / 28)));
    if (this.down) this.line(to);
    else this.at = to;
  }

  clear() {
    const { context, canvas } = this;
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
    Object.assign(context, { strokeStyle: "#fff", lineWidth: WIDTH * canvas.width, lineCap: "round", lineJoin: "round" });
    this.at = [canvas.width / 2, canvas.height / 2];
  }

  /** The drawing in the size of a model's images, as a PNG. What is drawn is moved to the middle and scaled, as digits of MNIST are. */
  png([, height, width]) {
    const { canvas, context } = this, { data } = context.getImageData(0, 0, canvas.width, canvas.height);
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
