// The settings that sampling and inpainting share: model, number of images, seed, steps, step size, denoising.

import { count, dice, digits, find, fromTemplate, make, numberIn, short } from "./ui.js";

const NOTES = {
  1: "The model’s own settings, as in the paper.",
  4: "A quarter of the steps, each four times as long: slightly worse images.",
  10: "A tenth of the steps: rough, but fast.",
};

export class Settings {
  constructor(form, { models, most, n, words, noun }) {
    form.prepend(fromTemplate("settings"));
    Object.assign(this, { form, models, most });
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
    this.setModel();
    this.setPace(4);
  }

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
    const pace = this.form.elements.pace.value;
    if (pace) this.setPace(Number(pace));
    this.matchPace();
  }

  /** Langevin dynamics diverges if ε is 4σ² of the last noise level or more. */
  get unstable() {
    return 4 * Math.min(...this.model.sigmas) ** 2;
  }

  /** T and ε for a pace: the model's own, with k times fewer steps, each k times as long. */
  paced(k) {
    const { steps, step_size } = this.model;
    const longest = Math.max(step_size, 0.75 * this.unstable);
    return { steps: Math.max(1, Math.round(steps / k)), step_size: Number(Math.min(step_size * k, longest).toPrecision(6)) };
  }

  setPace(k) {
    const { steps, step_size } = this.paced(k);
    this.form.elements.steps.value = steps;
    this.form.elements.step_size.value = short(step_size);
    this.matchPace();
  }

  /** Marks the pace that has the values of the fields, if there is one. */
  matchPace() {
    const { steps, step_size, pace } = this.form.elements;
    let note = "Your own settings.";
    for (const radio of pace) {
      const own = this.paced(Number(radio.value));
      radio.checked = Number(steps.value) === own.steps && Number(step_size.value) === own.step_size;
      if (radio.checked) note = NOTES[radio.value];
    }
    if (Number(step_size.value) >= this.unstable) note = `This ε is too large: from 4σ² = ${digits(this.unstable)} on, images diverge.`;
    find(".pace-note", this.form).textContent = note;
  }

  /** The values of the fields; an error names the field that is wrong. */
  read() {
    const { n, seed, steps, step_size, denoise } = this.form.elements;
    return {
      model: this.model.name,
      n: numberIn(n, { least: 1, most: this.most.n, whole: true }),
      seed: numberIn(seed, { least: 0, most: 2 ** 32 - 1, whole: true }),
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
  }

  /** The fields as a link's parameters. */
  query() {
    const { denoise, step_size, ...others } = this.read();
    return new URLSearchParams({ ...others, step_size: short(step_size), denoise: denoise ? 1 : 0 }).toString();
  }
}
