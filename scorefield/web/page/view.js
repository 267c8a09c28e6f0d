// The view of an image: how large its pixels are drawn, and which part of it is visible.

const EASY = 24; // CSS pixels: a pixel of this size is easy to hit, so zooming ends there
const LARGEST = 560; // CSS pixels: the largest width and height of the view

export class View {
  /** The canvas is as large as the visible part and does not scroll; the element behind it is as large as the image. */
  constructor(canvas, { onChange }) {
    const ground = canvas.parentElement, pane = ground.parentElement, stage = pane.parentElement;
    Object.assign(this, { canvas, ground, pane, stage, factor: 1, easiest: 1, scrolls: false, width: 1, height: 1, zoom: 0, left: 0, top: 0 });
    pane.addEventListener("scroll", onChange);
    new ResizeObserver(onChange).observe(stage);
  }

  /** Prepares to draw an image of this size; false if there is no room. Sets `zoom`, the screen pixels per pixel. */
  lay(width, height) {
    const { canvas, ground, pane, stage } = this;
    const ratio = devicePixelRatio || 1, room = stage.clientWidth - 24;
    if (room <= 0) return false;
    if (width !== this.width || height !== this.height) this.factor = 1;
    const wide = Math.min(room, LARGEST), tall = Math.min(Math.max(300, innerHeight * 0.62), LARGEST);
    const fit = Math.max(1, Math.floor(Math.min(wide / width, tall / height) * ratio)); // a whole number, so that all pixels have the same size
    this.easiest = 2 ** Math.max(0, Math.ceil(Math.log2((EASY * ratio) / fit)));
    this.factor = Math.min(this.factor, this.easiest);
    const zoom = fit * this.factor, whole = [width * zoom, height * zoom];
    const most = [wide, Math.max(0.75 * wide, (height * fit) / ratio)]; // about as high as before, so that the buttons below stay in place
    this.scrolls = this.factor > 1 || whole[0] > wide * ratio; // larger than the view
    pane.classList.toggle("zoomed", this.scrolls);
    ["width", "height"].forEach((side, k) => {
      ground.style[side] = `${whole[k] / ratio}px`;
      pane.style[side] = `${Math.min(most[k], whole[k] / ratio)}px`;
    });
    const seen = [pane.clientWidth, pane.clientHeight].map((side, k) => (this.scrolls ? Math.min(whole[k], Math.floor(side * ratio)) : whole[k]));
    [canvas.width, canvas.height] = seen;
    canvas.style.width = `${canvas.width / ratio}px`;
    Object.assign(this, { width, height, zoom, left: Math.round(pane.scrollLeft * ratio), top: Math.round(pane.scrollTop * ratio) });
    return true;
  }

  /** The place of an event, in pixels of the image. */
  at({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    const x = this.left + ((clientX - box.left) / box.width) * this.canvas.width;
    const y = this.top + ((clientY - box.top) / box.height) * this.canvas.height;
    return [x / this.zoom, y / this.zoom];
  }

  /** The left, top, right and bottom edges of the visible pixels, partly visible ones included. */
  get edges() {
    const { left, top, zoom, canvas, width, height } = this;
    if (!zoom) return [0, 0, width, height];
    const end = [Math.ceil((left + canvas.width) / zoom), Math.ceil((top + canvas.height) / zoom)];
    return [Math.floor(left / zoom), Math.floor(top / zoom), Math.min(width, end[0]), Math.min(height, end[1])];
  }

  /** The middle of the pixel in the middle of the visible part. */
  get middle() {
    const [left, top, right, bottom] = this.edges;
    return [Math.floor((left + right) / 2) + 0.5, Math.floor((top + bottom) / 2) + 0.5];
  }

  /** Zooms by a factor, around a place or around the middle of the visible part. */
  by(times, place) {
    const { zoom, canvas, left, top } = this;
    const [x, y] = place ?? [(left + canvas.width / 2) / zoom, (top + canvas.height / 2) / zoom];
    this.factor = Math.min(this.easiest, Math.max(1, this.factor * times));
    if (!this.lay(this.width, this.height)) return;
    const ratio = devicePixelRatio || 1;
    this.pane.scrollTo((x * this.zoom - canvas.width / 2) / ratio, (y * this.zoom - canvas.height / 2) / ratio);
  }

  /** Scrolls by CSS pixels. */
  pan(x, y) {
    this.pane.scrollBy(x, y);
  }

  /** Scrolls just as far as needed to show everything within `reach` pixels of a place. */
  reveal([x, y], reach) {
    const { zoom, canvas, left, top } = this;
    const ratio = devicePixelRatio || 1;
    const beyond = (middle, start, size) => Math.min(0, (middle - reach) * zoom - start) + Math.max(0, (middle + reach) * zoom - start - size);
    this.pan(beyond(x, left, canvas.width) / ratio, beyond(y, top, canvas.height) / ratio);
    this.lay(this.width, this.height); // updates the visible part
  }
}
