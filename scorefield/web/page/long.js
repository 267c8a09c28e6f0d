// How long a job takes, and a warning before a long one: for all tabs that make images.

import { estimate } from "./api.js";
import { about, find, fromTemplate } from "./ui.js";

const TWICE = 600; // milliseconds: two presses within this time are a double click, or a key held down
const PAUSE = 250; // milliseconds after a change of the settings until the server is asked how long they take

export const LONG = 60; // seconds: a job that takes longer needs a second press

export class Timed {
  /**
   * Adds to the form a button with these words, the time that a job takes, and the warning. `work` gives what the server
   * is asked to estimate; `most.seconds` is what it allows. `faster(seconds)` gives what takes less time than these settings:
   * { words, note, button, take }, and either `part`, the share of their time that it takes, or `change`, the fields of
   * `work` that differ.
   */
  constructor(form, { words, noun, most, work, faster }) {
    form.append(fromTemplate("actions"));
    Object.assign(this, { form, words, noun, most, work, faster, warned: null, planned: 0, timer: null });
    find(".primary", form).textContent = words;
    for (const kind of ["input", "change"]) form.addEventListener(kind, () => this.plan());
    find(".faster", form).addEventListener("click", () => this.takeFaster());
  }

  /** Takes a warning back, and shows how long a job with the present settings takes. */
  plan() {
    const mine = ++this.planned;
    this.unwarn();
    this.showCost(null);
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      let seconds = null;
      try {
        seconds = await estimate(this.work());
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
    if (warned?.key === key && !link) {
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
    const faster = seconds && await this.fastEnough(asked, seconds);
    if (mine === this.planned) this.warn(key, seconds, faster, link); // else: the settings have changed
    return false;
  }

  /** The first of what is faster. If that is long, too, another method that is not. */
  async fastEnough(asked, seconds) {
    const all = await Promise.all(this.faster(seconds).map(async (each) => ({
      ...each, seconds: each.change ? (await estimate({ ...asked, ...each.change })) || Infinity : each.part * seconds,
    })));
    const allowed = all.filter((each) => each.seconds < 0.9 * seconds && !(each.seconds > this.most.seconds)), [first] = allowed;
    return first?.seconds > LONG ? allowed.find((each) => each.change && each.seconds <= LONG) ?? first : first;
  }

  warn(key, seconds, faster, link) {
    const { form, words, noun, most } = this, over = seconds > most.seconds, button = find(".faster", form);
    const less = faster ? `${faster.words} takes ${about(faster.seconds)}. ${faster.note ?? ""}` : `Fewer ${noun.toLowerCase()} take less time.`;
    find(".primary", form).textContent = seconds == null || over ? words : `${words}: ${about(seconds)}`;
    this.showCost(null);
    button.hidden = !faster;
    if (faster) button.textContent = faster.button;
    const next = over ? `This server allows ${about(most.seconds)}.` : link ? `Press “${words}” to start.` : "Press again to start.";
    find(".confirm p", form).textContent = seconds == null ? next : `These settings take ${about(seconds)}. ${next} ${less}`.trim();
    find(".confirm", form).hidden = false;
    find(".confirm", form).scrollIntoView({ block: "nearest" });
    this.warned = { key, at: performance.now(), faster };
  }

  unwarn() {
    if (!this.warned) return;
    this.warned = null;
    find(".confirm", this.form).hidden = true;
    find(".primary", this.form).textContent = this.words;
  }

  /** Starts the job with the faster settings that the warning offers. */
  takeFaster() {
    this.warned.faster.take();
    this.plan();
    this.warned = { key: JSON.stringify(this.work()), at: -Infinity };
    find(".primary", this.form).focus(); // this button disappears
    this.form.requestSubmit();
  }
}
