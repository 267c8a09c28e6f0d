// The settings that sampling and inpainting share: model, number of images, seed, steps, step size, denoising. Also how
// long a job with them takes, and a warning before a long one.

import { estimate } from "./api.js";
import { about, count, dice, digits, find, fromTemplate, make, numberIn, short } from "./ui.js";

const NOTES = {
  1: "The model’s own settings, as in the paper.",
  4: "A quarter of the steps, each four times as long: slightly worse images.",
  10: "A tenth of the steps: rough, but fast.",
};
const NAMES = { 4: "quick", 10: "sketch" };
const LONG = 60; // seconds: a job that takes longer needs a second press
const TWICE = 600; // milliseconds: two presses within this time are a double click, or a key held down
const PAUSE = 250; // milliseconds after a change of the settings until the server is asked how long they take

export class Settings {
  constructor(form, { models, most, n, words, noun }) {
    form.prepend(fromTemplate("settings"));
    Object.assign(this, { form, models, most, words, noun, warned: null, planned: 0, timer: null });
    const { model, seed, steps, step_size } = form.elements;
    this.listModels();
    document.addEventListener("models", () => { this.listModels(); this.setModel(); });
    form.elements.n.value = Math.min(n, most.n);
    find(".primary", form).textContent = words;
    find(".n-label", form).textContent = noun;
    dice(find(".dice", form), seed);
    model.addEventListener("change", () => this.setModel());
    for (const radio of form.elements.pace) radio.addEventListener("change", () => this.setPace(Number(radio.value)));
    for (const input of [steps, step_size]) input.addEventListener("input", () => this.matchPace());
    for (const kind of ["input", "change"]) form.addEventListener(kind, () => this.plan());
    find(".faster", form).addEventListener("click", () => this.takeFaster());
    this.setModel();
    this.setPace(4);
    this.plan();
  }

  // -------- how long a job takes

  /** Takes a warning back, and shows how long a job with the present settings takes. */
  plan() {
    const mine = ++this.planned;
    this.unwarn();
    this.showCost(null);
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      let seconds = null;
      try {
        seconds = await estimate(this.read());
      } catch { /* a field is wrong */ }
      if (mine === this.planned) this.showCost(seconds);
    }, PAUSE);
  }

  showCost(seconds) {
    find(".cost", this.form).textContent = !seconds ? "" : `Takes ${about(seconds)}.`;
  }

  /**
   * Whether a job with these settings may start: if it takes more than a minute, only after a warning and a second press.
   * A link starts no job of unknown length.
   */
  async mayStart(asked, { link = false } = {}) {
    const key = JSON.stringify(asked), { warned } = this;
    if (warned?.key === key) {
      const early = performance.now() - warned.at < TWICE;
      warned.at = performance.now();
      if (!early) this.unwarn();
      return !early;
    }
    const mine = ++this.planned;
    const slow = setTimeout(() => { find(".cost", this.form).textContent = "Measuring how long this takes …"; }, PAUSE); // once for each model
    const seconds = (await estimate(asked)) ?? (await estimate(asked)); // a slow measurement is known the second time
    clearTimeout(slow);
    if (seconds == null ? !link : seconds <= LONG) {
      if (mine === this.planned) this.showCost(seconds);
      return true;
    }
    if (mine === this.planned) this.warn(asked, seconds, link); // else: the settings have changed
    return false;
  }

  warn(asked, seconds, link) {
    const { form, words, noun, most } = this, over = seconds > most.seconds;
    const part = (k) => this.paced(k).steps / asked.steps; // of the steps, and so of the time
    const pace = [4, 10].find((k) => part(k) < 1 && !(part(k) * seconds > most.seconds));
    const less = pace ? `The ${NAMES[pace]} pace takes ${about(part(pace) * seconds)}. ${NOTES[pace]}` : `Fewer ${noun.toLowerCase()} take less time.`;
    find(".primary", form).textContent = seconds == null || over ? words : `${words}: ${about(seconds)}`;
    this.showCost(null);
    const button = find(".faster", form);
    button.hidden = seconds == null || !pace;
    if (pace) button.textContent = `Take the ${NAMES[pace]} pace`;
    const next = over ? `This server allows ${about(most.seconds)}.` : link ? `Press “${words}” to start.` : "Press again to start.";
    find(".confirm p", form).textContent = seconds == null ? next : `These settings take ${about(seconds)}. ${next} ${less}`;
    find(".confirm", form).hidden = false;
    find(".confirm", form).scrollIntoView({ block: "nearest" });
    this.warned = { key: JSON.stringify(asked), at: performance.now(), pace };
  }

  unwarn() {
    if (!this.warned) return;
    this.warned = null;
    find(".confirm", this.form).hidden = true;
    find(".primary", this.form).textContent = this.words;
  }

  /** Starts the job at the faster pace that the warning offers. */
  takeFaster() {
    this.setPace(this.warned.pace);
    this.plan();
    this.warned = { key: JSON.stringify(this.read()), at: -Infinity };
    find(".primary", this.form).focus(); // this button disappears
    this.form.requestSubmit();
  }

  // -------- the model and the pace

  /** Fills the list of models; the chosen one stays chosen. */
  listModels() {
    const { model } = this.form.elements, before = model.value;
    model.replaceChildren(...this.models.map(({ name, kind }) => make("option", { value: name }, kind === "run" ? `${name} (run)` : name)));
    if (this.models.some(({ name }) => name === before)) model.value = before;
    else if (before) model.dispatchEvent(new Event("change"));
  }

  get model() {
    return this.models.find(({ name }) => name === this.form.elements.model.value) ?? this.models[0];
  }

  setModel() {
    const { shape: [channels, height, width], parameters, trained, start, data } = this.model;
    const details = [`${width}\u00a0×\u00a0${height}\u00a0pixels, ${channels === 1 ? "grey" : "colour"}`];
    if (parameters) details.push(`${count(parameters)} parameters`);
    if (trained) details.push(`${count(trained)} training steps${data ? ` on ${data}` : ""}${start ? `, starting from ${start}` : ""}`);
    find(".model-details", this.form).textContent = `${details.join("; ")}.`;
    const { pace, steps, denoise } = this.form.elements;
    for (const part of [find(".pace", this.form), steps.closest(".two"), denoise.closest(".check")]) part.hidden = !this.langevin;
    if (pace.value || !steps.value) this.setPace(Number(pace.value || 4));
    this.matchPace();
  }

  /** Whether the model's own sampler is annealed Langevin dynamics, which has a T and an ε to choose. */
  get langevin() {
    return this.model.steps != null;
  }

  /** Langevin dynamics diverges if ε is 4σ² of the last noise level or more. */
  get unstable() {
    return 4 * Math.min(...this.model.sigmas) ** 2;
  }

  /** T and ε for a pace: k times fewer steps than the model's own, and longer ones; the server has computed them. */
  paced(k) {
    return this.model.paces[k] ?? { steps: this.model.steps, step_size: this.model.step_size };
  }

  setPace(k) {
    if (!this.langevin) return this.matchPace();
    const { steps, step_size } = this.paced(k);
    this.form.elements.steps.value = steps;
    this.form.elements.step_size.value = short(step_size);
    this.matchPace();
  }

  /** Marks the pace that has the values of the fields, if there is one. */
  matchPace() {
    const { steps, step_size, pace } = this.form.elements;
    if (!this.langevin) {
      const { name, calls } = this.model.sampler;
      find(".pace-note", this.form).textContent = `The model’s own sampler: ${name}${calls ? `, ${count(calls)} network calls per image` : ""}.`;
      return;
    }
    let note = "Your own settings.";
    for (const radio of pace) {
      const own = this.paced(Number(radio.value));
      radio.checked = Number(steps.value) === own.steps && Number(step_size.value) === own.step_size;
      if (radio.checked) note = NOTES[radio.value];
    }
    if (Number(step_size.value) >= this.unstable) note = `This ε is too large: from 4σ² = ${digits(this.unstable)} on, images diverge.`;
    find(".pace-note", this.form).textContent = note;
  }

  // -------- the values

  /** The values of the fields; an error names the field that is wrong. */
  read() {
    const { n, seed, steps, step_size, denoise } = this.form.elements;
    const asked = {
      model: this.model.name,
      n: numberIn(n, { least: 1, most: this.most.n, whole: true }),
      seed: numberIn(seed, { least: 0, most: 2 ** 32 - 1, whole: true }),
    };
    if (!this.langevin) return asked; // the model's own sampler and settings
    return {
      ...asked,
      steps: numberIn(steps, { least: 1, most: Math.max(this.most.steps, this.model.steps), whole: true }),
      step_size: numberIn(step_size, { least: Number.MIN_VALUE }),
      denoise: denoise.checked,
    };
  }

  /** Sets the fields from a link's parameters. */
  write(parameters) {
    const { elements } = this.form;
    const model = parameters.get("model");
    if (model && !this.models.some(({ name }) => name === model)) {
      throw new Error(`The link is for the model “${model}”, which this server does not have (it has ${this.models.map((m) => m.name).join(", ")}).`);
    }
    if (model) elements.model.value = model;
    this.setModel();
    for (const name of ["n", "seed", "steps", "step_size"]) if (parameters.has(name)) elements[name].value = parameters.get(name);
    if (parameters.has("denoise")) elements.denoise.checked = ["1", "true"].includes(parameters.get("denoise"));
    this.matchPace();
    this.plan();
  }

  /** The fields as a link's parameters. */
  query() {
    const { denoise, step_size, ...others } = this.read();
    const langevin = this.langevin ? { step_size: short(step_size), denoise: denoise ? 1 : 0 } : {};
    return new URLSearchParams({ ...others, ...langevin }).toString();
  }
}
