// The settings that sampling and restoring share: model, class, number of images, seed, sampler and its settings.

import { LONG, Timed } from "./long.js";
import { all, count, dice, digits, explain, find, fromTemplate, make, numberIn, short, tell } from "./ui.js";

const NOTES = {
  1: "The model’s own settings, as in the paper.",
  4: "A quarter of the steps, each four times as long: slightly worse images.",
  10: "A tenth of the steps: rough, but fast.",
};
const NAMES = { 4: "quick", 10: "sketch" };
const LANGEVIN = "annealed_langevin";
const TITLES = {
  annealed_langevin: "Annealed Langevin (paper)", consistent_annealed: "Consistent annealed", heun: "Heun", euler: "Euler (DDIM)",
  dpmpp_2m: "DPM-Solver++ (2M)", dpmpp_3m: "DPM-Solver++ (3M)", adams_bashforth: "Adams and Bashforth", ancestral: "Ancestral",
  predictor_corrector: "Predictor and corrector", annealed_hmc: "Hamiltonian",
};
/** A sampler's name for people. */
export const titleOf = (name) => TITLES[name] ?? name.replaceAll("_", " ");
const FEW = 50; // network calls of a model's own sampler with which the page starts

const option = (value, words) => make("option", { value }, words);

const LATER = ["sampler", "calls", "steps", "step_size", "denoise", "noise", "guidance"]; // what lies under “More settings”
const USUAL = [0, 10]; // weights of guidance without a warning

/** Fills a list of classes: any, each, and none where the model can do without. */
export function listClasses(select, { labels, null_label }, any = "Any") {
  const before = select.value;
  select.replaceChildren(option("", any), ...labels.map((name) => option(name, name)), ...(null_label ? [option("none", "No class")] : []));
  if ([...select.options].some(({ value }) => value === before)) select.value = before;
}

export class Settings extends Timed {
  /**
   * `extra` gives more values of the form, on which the time of a job depends, and `others` what is faster because of
   * them. `usual` is the sampler of a model that the server takes if none is named, and `quick` one for few calls,
   * { sampler, calls }, or null.
   */
  constructor(form, { models, most, n, words, noun, extra = () => ({}), others = () => [], usual = (model) => model.samplers[0], quick = (model) => model.quick }) {
    form.prepend(fromTemplate("settings"));
    super(form, { words, noun, most, work: () => this.read(), faster: (seconds) => this.quicker(seconds) });
    find(".more", form).before(...all(".extra", form));
    find(".more", form).append(...all(".extra-more", form));
    explain(form);
    Object.assign(this, { models, extra, others, usual, quick });
    const more = find(".more", form); // open if the user left it open
    try {
      more.open = localStorage.getItem("more") === "open";
    } catch { /* not allowed */ }
    find("summary", more).addEventListener("click", () => {
      try {
        localStorage.setItem("more", more.open ? "closed" : "open");
      } catch { /* not allowed */ }
    });
    const { model, sampler, calls, seed, steps, step_size } = form.elements;
    this.listModels();
    document.addEventListener("models", () => { this.listModels(); this.setModel({ keep: true }); });
    form.elements.n.value = form.elements.n.defaultValue = Math.min(n, most.n);
    find(".n-label", form).textContent = noun;
    dice(find(".dice", form), seed);
    model.addEventListener("change", () => this.setModel());
    sampler.addEventListener("change", () => this.setSampler());
    for (const radio of form.elements.pace) radio.addEventListener("change", () => this.setPace(Number(radio.value)));
    for (const input of [steps, step_size, calls]) input.addEventListener("input", () => this.matchPace());
    form.elements.guidance.addEventListener("input", () => this.showGuidance());
    this.setModel();
    this.plan();
  }

  /** A line about a weight of guidance that seldom makes sense. */
  showGuidance() {
    const { guidance } = this.form.elements, weight = Number(guidance.value.replace(",", "."));
    const words = weight < USUAL[0] ? "A negative weight leads away from the class." : weight > USUAL[1] ? `Above ${USUAL[1]}, images usually become blocks of black and white.` : null;
    tell(find(".guidance-note", this.form), this.model.null_label ? words : null);
  }

  /** What takes less time than these settings: the sampler for few calls, another method, a faster pace of the paper's, or fewer images. */
  quicker(seconds) {
    const quick = this.quick(this.model), now = this.calls, offers = this.others();
    if (quick) offers.unshift({ part: quick.calls / now, words: `${titleOf(quick.sampler)} with ${quick.calls} calls`, button: "Take the faster sampler", take: () => this.setSampler(quick.sampler, quick.calls) });
    for (const k of this.langevin ? [4, 10] : []) {
      const calls = this.paced(k).steps * this.sampler.sigmas.length;
      offers.push({ part: calls / now, words: `The ${NAMES[k]} pace`, note: NOTES[k], button: `Take the ${NAMES[k]} pace`, take: () => this.setPace(k) });
    }
    const { n } = this.form.elements, fewer = Math.max(1, Math.floor((0.6 * LONG * Number(n.value)) / seconds));
    if (fewer < Number(n.value)) offers.push({ part: fewer / Number(n.value), words: `A job with ${fewer > 1 ? `${fewer} ${this.noun.toLowerCase()}` : `one ${this.noun.toLowerCase().slice(0, -1)}`}`, button: `${this.words} ${fewer}`, take: () => { n.value = fewer; } });
    return offers;
  }

  // -------- the model, its classes and its samplers

  /** Fills the list of models; the chosen one stays chosen. */
  listModels() {
    const { model } = this.form.elements, before = model.value;
    model.replaceChildren(...this.models.map(({ name, kind }) => option(name, kind === "run" ? `${name} (run)` : name)));
    if (this.models.some(({ name }) => name === before)) model.value = before;
    else if (before) model.dispatchEvent(new Event("change"));
  }

  get model() {
    return this.models.find(({ name }) => name === this.form.elements.model.value) ?? this.models[0];
  }

  /** The model's samplers as the server describes them, the usual one first. */
  get samplers() {
    const usual = this.usual(this.model);
    return [usual, ...this.model.samplers.filter(({ name }) => name !== usual.name)];
  }

  /** Shows a model's settings. Its sampler is the usual one, if that makes few calls, or else the one for few calls. */
  setModel({ keep = false } = {}) {
    const { shape: [channels, height, width], parameters, trained, start, data, labels, null_label } = this.model, { samplers } = this, quick = this.quick(this.model);
    const details = [`${width}\u00a0×\u00a0${height}\u00a0pixels, ${channels === 1 ? "grey" : "colour"}`];
    if (parameters) details.push(`${count(parameters)} parameters`);
    if (trained) details.push(`${count(trained)} training steps${data ? ` on ${data}` : ""}${start ? `, starting from ${start}` : ""}`);
    find(".model-details", this.form).textContent = `${details.join("; ")}.`;
    const { sampler, label, guidance } = this.form.elements, before = sampler.value;
    find(".classes", this.form).hidden = find(".classes-help", this.form).hidden = !labels.length;
    guidance.closest(".field").hidden = find(".guidance-help", this.form).hidden = !null_label;
    listClasses(label, this.model);
    this.showGuidance();
    sampler.replaceChildren(...samplers.map(({ name }) => option(name, titleOf(name))));
    if (keep && samplers.some(({ name }) => name === before)) sampler.value = before;
    else if (!quick || samplers[0].calls <= FEW) this.setSampler(samplers[0].name, samplers[0].calls);
    else this.setSampler(quick.sampler, quick.calls);
    this.showFields();
  }

  /** The chosen sampler, as the server describes it. */
  get sampler() {
    const { samplers } = this;
    return samplers.find(({ name }) => name === this.form.elements.sampler.value) ?? samplers[0];
  }

  /** Whether it is annealed Langevin dynamics, which has a T and an ε to choose. */
  get langevin() {
    return this.sampler.name === LANGEVIN;
  }

  /** Whether it is the usual one. */
  get own() {
    return this.sampler.name === this.usual(this.model).name;
  }

  /** Network calls per image with the present settings. */
  get calls() {
    const { steps, calls, denoise } = this.form.elements;
    return this.langevin ? Number(steps.value) * this.sampler.sigmas.length + Number(denoise.checked) : Number(calls.value);
  }

  setSampler(name, calls) {
    if (name) this.form.elements.sampler.value = name;
    this.form.elements.calls.value = calls ?? this.sampler.calls ?? 30;
    if (this.langevin) this.setPace(4);
    this.showFields();
  }

  /** Shows the settings that the chosen sampler has. */
  showFields() {
    const { steps, denoise, calls } = this.form.elements, { langevin } = this;
    for (const part of [find(".pace", this.form), find(".pace-note", this.form), find(".steps-help", this.form), steps.closest(".two"), denoise.closest(".check")]) part.hidden = !langevin;
    calls.closest(".field").hidden = find(".calls-help", this.form).hidden = langevin;
    const whose = this.sampler === this.model.samplers[0] ? "The model’s own. " : this.own ? "The usual one here. " : "";
    find(".sampler-note", this.form).textContent = `${whose}${this.sampler.about.replaceAll("'", "’")}`;
    this.matchPace();
  }

  /** Langevin dynamics diverges if ε is 4σ² of the last noise level or more. */
  get unstable() {
    return 4 * Math.min(...this.sampler.sigmas) ** 2;
  }

  /** T and ε for a pace: k times fewer steps than the usual ones, and longer ones; the server has computed them. */
  paced(k) {
    return this.sampler.paces[k] ?? this.sampler.settings;
  }

  setPace(k) {
    if (!this.langevin) return;
    const { steps, step_size } = this.paced(k);
    this.form.elements.steps.value = steps;
    this.form.elements.step_size.value = short(step_size);
    this.matchPace();
  }

  /** Marks the pace that has the values of the fields, if there is one. */
  matchPace() {
    if (!this.langevin) return;
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

  // -------- the values

  /** The values of the fields; an error names the field that is wrong. */
  read() {
    const { n, seed, label, guidance, calls, steps, step_size, denoise } = this.form.elements, { model, sampler } = this;
    const asked = {
      model: model.name,
      n: numberIn(n, { least: 1, most: this.most.n, whole: true }),
      seed: numberIn(seed, { least: 0, most: 2 ** 32 - 1, whole: true }),
    };
    if (model.labels.length && label.value) asked.label = label.value;
    if (model.null_label) {
      const weight = numberIn(guidance);
      if (weight) asked.guidance = weight;
    }
    if (!this.own) asked.sampler = sampler.name;
    if (this.langevin) {
      const most = Math.max(this.most.steps, sampler.settings.steps);
      asked.steps = numberIn(steps, { least: 1, most, whole: true });
      asked.step_size = numberIn(step_size, { least: Number.MIN_VALUE });
      asked.denoise = denoise.checked;
    } else {
      const wanted = numberIn(calls, { least: 1, most: 100_000, whole: true });
      if (!(this.own && wanted === sampler.calls)) asked.calls = wanted; // else: the model's own noise schedule
    }
    return { ...asked, ...this.extra() };
  }

  /** Sets the fields from a link's parameters. A link without a sampler means the usual one. */
  write(parameters) {
    const { elements } = this.form;
    const model = parameters.get("model");
    if (model && !this.models.some(({ name }) => name === model)) {
      throw new Error(`The link is for the model “${model}”, which this server does not have (it has ${this.models.map((m) => m.name).join(", ")}).`);
    }
    if (model) elements.model.value = model;
    this.setModel();
    const sampler = parameters.get("sampler") ?? this.samplers[0].name;
    if (!this.samplers.some(({ name }) => name === sampler)) throw new Error(`The sampler “${sampler}” of the link does not suit ${this.model.name}.`);
    this.setSampler(sampler);
    for (const name of ["n", "seed"]) elements[name].value = parameters.get(name) ?? elements[name].defaultValue;
    for (const name of ["calls", "steps", "step_size"]) if (parameters.has(name)) elements[name].value = parameters.get(name);
    elements.label.value = parameters.get("label") ?? "";
    if (elements.label.selectedIndex < 0) throw new Error(`${this.model.name} has no class “${parameters.get("label")}”, which the link names.`);
    elements.guidance.value = parameters.get("guidance") ?? "0";
    elements.denoise.checked = ["1", "true"].includes(parameters.get("denoise"));
    this.matchPace();
    this.showGuidance();
    this.plan();
    if (LATER.some((name) => parameters.has(name) && parameters.get(name) !== elements[name]?.dataset.usual)) find(".more", this.form).open = true;
  }

  /** The fields as a link's parameters. */
  query() {
    const asked = this.read();
    if (this.langevin) Object.assign(asked, { step_size: short(asked.step_size), denoise: asked.denoise ? 1 : 0 });
    return new URLSearchParams(asked).toString();
  }
}
