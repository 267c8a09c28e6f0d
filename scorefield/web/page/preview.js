// What is left of an image after a blur, with fewer pixels or without colours, before the server measures it.

import { make } from "./ui.js";

const REACH = 3; // a blur ends at so many standard deviations
const LUMA = [0.299, 0.587, 0.114]; // what red, green and blue add to the brightness

export class Preview {
  constructor(canvas) {
    Object.assign(this, { canvas, image: null, task: null });
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
  }

  show(image, task) {
    Object.assign(this, { image, task });
    this.draw();
  }

  draw() {
    const { image, task, canvas } = this, room = canvas.parentElement.clientWidth - 24;
    if (!image || !task || room <= 0) return;
    const { width, height } = image, ratio = devicePixelRatio || 1;
    const small = make("canvas", { width, height }), context = small.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    const pixels = context.getImageData(0, 0, width, height), [kind, value] = task.split(":");
    measure(pixels, kind, Number(value));
    context.putImageData(pixels, 0, 0);
    const zoom = Math.max(1, Math.floor((Math.min(room, 360) / Math.max(width, height)) * ratio));
    Object.assign(canvas, { width: width * zoom, height: height * zoom });
    canvas.style.width = `${canvas.width / ratio}px`;
    const shown = canvas.getContext("2d");
    shown.imageSmoothingEnabled = false;
    shown.drawImage(small, 0, 0, canvas.width, canvas.height);
  }
}

/** The measurement, enlarged to the image's size, in place. */
function measure({ data, width, height }, kind, value) {
  const at = (x, y, c) => 4 * (y * width + x) + c, before = Float64Array.from(data);
  const each = (change) => {
    for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) for (let c = 0; c < 3; c++) data[at(x, y, c)] = change(x, y, c);
  };
  if (kind === "gray") each((x, y) => LUMA.reduce((sum, part, c) => sum + part * before[at(x, y, c)], 0));
  if (kind === "superres") {
    each((x, y, c) => {
      const [left, top] = [x - (x % value), y - (y % value)];
      let sum = 0;
      for (let v = 0; v < value; v++) for (let u = 0; u < value; u++) sum += before[at(left + u, top + v, c)];
      return sum / value ** 2;
    });
  }
  if (kind !== "blur") return;
  const along = (source, step, size, place) => source.map((old, k) => {
    if (k % 4 === 3) return old;
    const here = place(k), reach = Math.ceil(REACH * value);
    let sum = 0, weights = 0;
    for (let by = Math.max(-reach, -here); by <= Math.min(reach, size - 1 - here); by++) {
      const weight = Math.exp(-(by ** 2) / (2 * value ** 2));
      sum += weight * source[k + by * step];
      weights += weight;
    }
    return sum / weights;
  });
  const rows = along(before, 4, width, (k) => (k >> 2) % width);
  along(rows, 4 * width, height, (k) => Math.floor((k >> 2) / width)).forEach((x, k) => { data[k] = x; });
}
