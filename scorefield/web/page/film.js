// The images of a job: drawn on a canvas as they arrive, with a progress bar, and played again afterwards.

import { GONE, blobOf, get, runJob } from "./api.js";
import { all, colour, copy, digits, duration, find, fromTemplate, icon, make, onTheme, save, tell } from "./ui.js";

const GAP = 6; // between images, in CSS pixels
const SECONDS = 5; // time to play all frames

/** An image that is loaded and decoded. If that fails, it is tried once more; then it is null. */
async function picture(address, tries = 2) {
  const image = new Image();
  image.src = address;
  try {
    await image.decode();
    return image;
  } catch {
    return tries > 1 ? picture(`${address}${address.includes("?") ? "&" : "?"}again`, tries - 1) : null;
  }
}

export class Film {
  /**
   * Adds itself to `place`. `kind` begins the names of saved files; `across(n, room)` is the number of images in a row.
   * `onShow` is called after each drawing, of a frame or of the noise before.
   */
  constructor(place, { kind, downloads, onShow, across = (n) => Math.ceil(Math.sqrt(n)) }) {
    place.append(fromTemplate("film"));
    const root = this.root = find(".film", place);
    Object.assign(this, { kind, makeDownloads: downloads, onShow, across, view: "denoised", frames: [], n: 16, columns: 4, shape: [1, 28, 28], shown: -1, chosen: -1 });
    this.canvas = find("canvas", root);
    this.seek = find(".seek", root);
    this.playButton = find(".play", root);
    this.playButton.append(icon("play"));
    this.bar = find(".bar", root);
    this.seek.addEventListener("input", () => { this.pause(); this.show(Math.min(Number(this.seek.value), this.frames.length - 1)); });
    this.playButton.addEventListener("click", () => (this.timer ? this.pause() : this.play()));
    for (const radio of all(".view input", root)) {
      radio.name = `view-${kind}`;
      radio.addEventListener("change", () => this.setView(radio.value));
    }
    this.canvas.addEventListener("click", (event) => this.saveOne(this.cellAt(event)));
    this.canvas.addEventListener("pointermove", (event) => this.choose(this.cellAt(event)));
    this.canvas.addEventListener("pointerleave", () => this.choose(-1));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.choose(-1));
    find(".copy", root).addEventListener("click", (event) => copy(find(".command code", root).textContent, event.target));
    document.addEventListener("server-back", () => { if (!this.timer && find(".error", root).textContent === GONE) tell(find(".error", root), null); });
    new ResizeObserver(() => this.draw()).observe(find(".stage", root));
    onTheme(() => this.draw());
  }

  /** Prepares for n images of this shape; noise is shown until they arrive. */
  expect(n, shape) {
    this.pause();
    n = Math.min(Math.max(1, Math.round(n) || 1), 1024);
    const sheetColumns = Math.ceil(Math.sqrt(n)); // images in a row of a frame, as the server sends it
    Object.assign(this, { n, shape, sheetColumns, frames: [], shown: -1, chosen: -1, status: null, sigmas: null });
    find(".sigma", this.root).textContent = "";
    this.progress("", 0);
    this.noise = noiseSheet(shape, sheetColumns, Math.ceil(n / sheetColumns));
    this.seek.disabled = this.playButton.disabled = true;
    this.seek.max = this.seek.value = 0;
    find(".time", this.root).textContent = "";
    find(".after", this.root).hidden = true;
    tell(find(".warning", this.root), null);
    this.canvas.setAttribute("aria-label", `${n} images, not drawn yet`);
    this.canvas.classList.remove("ready");
    this.draw();
  }

  /**
   * Runs a job from its request to its end and shows its frames and its progress. Errors are shown, not thrown.
   *
   * The images before stay until the server has accepted the job. `again` is a job of the server to show again.
   */
  async run(path, body, { n, shape, start, again, onJob }) {
    const abort = new AbortController();
    const stop = find(".stop", this.root);
    const onStop = () => abort.abort(new DOMException("stopped", "AbortError"));
    stop.addEventListener("click", onStop);
    stop.hidden = false;
    this.root.classList.remove("idle");
    if (document.activeElement === start) stop.focus(); // a disabled button loses the focus
    start.disabled = true;
    find(".after", this.root).hidden = true;
    tell(find(".error", this.root), null);
    const narrow = innerWidth < 768; // after a reload the browser scrolls to where the page was
    if (!again) (narrow ? this.root : find(".stage", this.root)).scrollIntoView({ block: narrow ? "start" : "nearest" });
    this.progress(again ? "" : "Sending …", 0);
    this.watched = !again; // whether it was not done before
    let known; // the first status has come, with the noise levels that frames are shown with
    let arrived = new Promise((resolve) => { known = resolve; });
    try {
      this.status = await runJob(path, body, {
        signal: abort.signal,
        again,
        onJob: (job) => {
          onJob?.(job);
          this.expect(n, shape);
        },
        onWait: (left, why) => this.progress(`The queue is full; trying again in ${left} s.`, 0, why),
        onStatus: (status) => { this.watched ||= ["queued", "running"].includes(status.state); this.showStatus(status); known(); },
        onFrame: (frame) => { // loaded in parallel, shown in order; one that fails is left out
          const { view } = this, image = picture(this.addressOf(frame));
          arrived = arrived.then(async () => this.add(frame, await image, view));
        },
      });
      await arrived;
      this.ended(abort.signal.aborted);
    } catch (error) {
      this.progress(abort.signal.aborted ? "Stopped." : "", 0);
      if (!abort.signal.aborted) tell(find(".error", this.root), error.message);
      find(".after", this.root).hidden = !this.frames.length; // the images before are still there
    } finally {
      stop.removeEventListener("click", onStop);
      start.disabled = false;
      if (document.activeElement === stop) start.focus({ preventScroll: true });
      stop.hidden = true;
    }
    return this.status;
  }

  /** Makes the progress bar: one part for each noise level of the sampler. */
  showLevels(sigmas) {
    this.sigmas = sigmas;
    this.bar.replaceChildren(...sigmas.map((sigma) => make("i", { title: `σ = ${digits(sigma)}` })));
  }

  progress(words, part, spoken = words) {
    find(".status", this.root).textContent = words;
    const parts = [...this.bar.children];
    parts.forEach((each, k) => each.style.setProperty("--full", Math.min(1, Math.max(0, part * parts.length - k))));
    this.bar.setAttribute("aria-valuenow", Math.round(100 * part));
    const live = find(".live", this.root);
    if (spoken !== live.textContent) live.textContent = spoken;
  }

  showStatus(status) {
    this.status = status;
    if (!this.sigmas) this.showLevels(status.settings.sampler.sigmas);
    this.sheetColumns = status.columns ?? this.sheetColumns;
    const words = (status.command ?? "").split(" ").map((word) => make("span", {}, word));
    find(".command code", this.root).replaceChildren(...words.flatMap((word, k) => (k ? [" ", word] : [word])));
    const warning = find(".warning", this.root);
    if (warning.hidden && status.warning) tell(warning, `Warning: ${status.warning}.`);
    const part = status.total ? status.step / status.total : 0;
    if (status.state === "queued") {
      const ahead = status.position;
      this.progress(ahead ? `Waiting: ${ahead} ${ahead === 1 ? "job" : "jobs"} ahead.` : "About to start …", 0);
    } else if (status.state === "running") {
      const left = status.total === 1 ? "Working …" : status.seconds_left == null ? "" : `${duration(status.seconds_left)} left`;
      this.progress(left, part, !part ? "Started" : part < 1 ? `${25 * Math.floor(4 * part)} %` : "The last images arrive");
    }
    if (!this.frames.length) this.caption(status);
  }

  caption({ sigma, level }) {
    const words = !level ? "" : !sigma ? "denoised" : `σ = ${digits(sigma)}, level ${level} of ${this.sigmas.length}`;
    find(".sigma", this.root).textContent = words;
  }

  /** `stopped`: by the user. */
  ended(stopped) {
    const { state, seconds, error } = this.status;
    const part = this.status.total ? this.status.step / this.status.total : 1;
    const complete = this.frames.at(-1)?.step === this.status.total;
    if (state === "done") this.progress(complete ? `Done in ${duration(seconds)}.` : "", 1);
    if (state === "done" && !complete) tell(find(".error", this.root), "The last images could not be loaded. Reload the page to try again.");
    if (state === "cancelled") this.progress(`${stopped ? "Stopped" : "The server stopped this"} after ${duration(seconds)}.`, part);
    if (state === "cancelled" && !stopped) setTimeout(() => get("/api/models").catch(() => {}), 1000); // it may be gone, and is then waited for
    if (state === "failed") {
      this.progress("", part, "Failed");
      tell(find(".error", this.root), error ?? "The job failed.");
    }
    if (!this.frames.length) return;
    this.seek.max = this.frames.length - 1;
    this.canvas.classList.add("ready");
    find(".downloads", this.root).replaceChildren(...this.makeDownloads(this));
    find(".same", this.root).textContent = state === "done" ? "This command draws the same images." : "This command draws these images to the end.";
    find(".after", this.root).hidden = false;
  }

  /** The address of a frame's images: the estimates of the clean ones, or as they are. */
  addressOf(frame) {
    return (this.view === "denoised" && frame.denoised) || (frame.noisy ?? frame.image);
  }

  /** Shows all frames as estimates of the clean images, or with their noise. */
  async setView(view) {
    this.view = view;
    const { frames } = this;
    await Promise.all(frames.map((frame) => this.turn(frame)));
    if (this.view === view && frames === this.frames) this.draw();
  }

  /** Gives a frame the images of the present view. */
  async turn(frame) {
    const { view } = this;
    const image = await (frame.views[view] ??= picture(this.addressOf(frame)));
    if (this.view === view && image) frame.image = image;
  }

  add(frame, image, view) {
    if (!image) return;
    const following = this.shown === this.frames.length - 1;
    const added = { ...frame, noisy: frame.image, image, views: { [view]: image } };
    this.frames.push(added);
    if (view !== this.view) this.turn(added).then(() => this.draw());
    const last = this.frames.length - 1;
    this.seek.max = frame.step ? Math.max(last, Math.round((last * frame.total) / frame.step)) : last; // an estimate of the number of frames to come
    this.seek.disabled = this.playButton.disabled = this.frames.length < 2;
    if (following && !this.timer) this.show(this.frames.length - 1);
  }

  show(k) {
    const frame = this.frames[k];
    if (!frame) return;
    this.shown = k;
    this.seek.value = k;
    this.seek.setAttribute("aria-valuetext", `step ${frame.step} of ${frame.total}, sigma ${digits(frame.sigma ?? 0)}`);
    find(".time", this.root).textContent = `step ${frame.step} / ${frame.total}`;
    this.canvas.setAttribute("aria-label", `${this.n} images after step ${frame.step} of ${frame.total}`);
    this.caption(frame);
    this.draw();
  }

  play() {
    if (this.shown >= this.frames.length - 1) this.show(0);
    this.playIcon("pause", "Pause");
    this.timer = setInterval(() => {
      if (this.shown >= this.frames.length - 1) this.pause();
      else this.show(this.shown + 1);
    }, (1000 * SECONDS) / this.frames.length);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.playIcon("play", "Play");
  }

  playIcon(name, label) {
    this.playButton.replaceChildren(icon(name));
    this.playButton.setAttribute("aria-label", label);
  }

  /** Draws the images, enlarged a whole number of times, so that all their pixels have the same size. */
  draw() {
    const [, height, width] = this.shape;
    const { n } = this;
    const ratio = devicePixelRatio || 1;
    const room = this.canvas.parentElement.clientWidth - 24;
    if (room <= 0) return;
    const columns = this.columns = this.across(n, room);
    const rows = Math.ceil(n / columns);
    const { zoom, gap } = Object.assign(this, layOut(this.shape, columns, rows, room));
    this.canvas.width = columns * width * zoom + gap * (columns - 1);
    this.canvas.height = rows * height * zoom + gap * (rows - 1);
    this.canvas.style.width = `${this.canvas.width / ratio}px`;
    const sheet = this.frames[this.shown]?.image ?? this.noise;
    if (!sheet) return;
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.globalAlpha = sheet === this.noise ? 0.35 : 1;
    for (let k = 0; k < n; k++) {
      const [x, y] = this.corner(k);
      context.drawImage(sheet, ...this.inSheet(k), width, height, x, y, width * zoom, height * zoom);
    }
    context.globalAlpha = 1;
    this.onShow?.(this);
    if (this.chosen < 0) return;
    const [x, y] = this.corner(this.chosen);
    context.strokeStyle = colour("mark");
    context.lineWidth = 2 * ratio;
    context.strokeRect(x, y, width * zoom, height * zoom);
  }

  /** The left and top of image k in a frame as the server sends it. */
  inSheet(k) {
    const [, height, width] = this.shape;
    return [(k % this.sheetColumns) * width, Math.floor(k / this.sheetColumns) * height];
  }

  /** The left and top of image k on the canvas. */
  corner(k) {
    const [, height, width] = this.shape;
    return [(k % this.columns) * (width * this.zoom + this.gap), Math.floor(k / this.columns) * (height * this.zoom + this.gap)];
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * Math.ceil(this.n / this.columns));
    const k = row * this.columns + column;
    return column >= 0 && column < this.columns && k >= 0 && k < this.n ? k : -1;
  }

  choose(k) {
    if (!this.canvas.classList.contains("ready")) k = -1;
    if (k === this.chosen) return;
    this.chosen = k;
    this.canvas.title = k < 0 ? "" : `Save image ${k + 1}`;
    this.draw();
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns }[event.key];
    if (step) {
      const k = this.chosen < 0 ? 0 : this.chosen + step;
      if (k >= 0 && k < this.n) this.choose(k);
      if (this.chosen >= 0) find(".live", this.root).textContent = `Image ${this.chosen + 1} of ${this.n}`;
    } else if (event.key === "Enter") this.saveOne(this.chosen);
    else return;
    event.preventDefault();
  }

  /** Saves one image of the frame that is shown, in the model's size. */
  saveOne(k) {
    const frame = this.frames[this.shown];
    if (k < 0 || !frame || !this.canvas.classList.contains("ready")) return;
    const [, height, width] = this.shape;
    const canvas = make("canvas", { width, height });
    canvas.getContext("2d").drawImage(frame.image, ...this.inSheet(k).map((each) => -each));
    canvas.toBlob((blob) => save(blob, `${this.kind}-${k + 1}.png`));
  }

  /** A button that saves one of the job's files. The server keeps them for ten minutes. */
  download(words, file, name) {
    const button = make("button", { type: "button" }, words);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        save(await blobOf(`/api/jobs/${this.status.job}/${file}`), name);
        tell(find(".error", this.root), null);
      } catch (error) {
        const expired = "The server keeps results for ten minutes and has deleted these. Draw them again: the same settings give the same images.";
        tell(find(".error", this.root), error.status === 404 ? expired : error.message);
      }
      button.disabled = false;
    });
    return button;
  }
}

/** How large so many images are drawn in this room, a whole number of times their size; with the gap, in the screen's pixels. */
export function layOut([, height, width], columns, rows, room) {
  const ratio = devicePixelRatio || 1, tall = Math.max(320, innerHeight * 0.68);
  const fit = Math.min((room - GAP * (columns - 1)) / (columns * width), (tall - GAP * (rows - 1)) / (rows * height), 224 / Math.max(width, height));
  return { zoom: Math.max(1, Math.floor(fit * ratio)), gap: Math.round(GAP * ratio) };
}

/** Uniform noise, from which every image starts. */
function noiseSheet([channels, height, width], columns, rows) {
  const canvas = make("canvas", { width: columns * width, height: rows * height });
  const context = canvas.getContext("2d");
  const data = context.createImageData(canvas.width, canvas.height);
  for (let k = 0; k < data.data.length; k += 4) {
    const grey = Math.random() * 256;
    for (let c = 0; c < 3; c++) data.data[k + c] = channels === 1 ? grey : Math.random() * 256;
    data.data[k + 3] = 255;
  }
  context.putImageData(data, 0, 0);
  return canvas;
}
