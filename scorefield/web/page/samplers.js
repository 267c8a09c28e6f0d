// The samplers of scorefield/samplers/ for points in the plane: generators that yield { x, sigma, step } for step 0 and
// after each update. score(x, σ) gives the scores of all points, randn() as many normal numbers. The names are Python's.

import { Mixture } from "./mixture.js";

/** The sum of c · x over the given [c, x]. */
function sum(...terms) {
  const out = new Float64Array(terms[0][1].length);
  for (const [c, x] of terms) for (let i = 0; i < out.length; i++) out[i] += c * x[i];
  return out;
}

/** Eq. 4:  x ← x + ε/2 s(x, σ) + √ε z,  `steps` times. */
export const langevin = (score, x, sigma, { step_size, steps, randn }) => annealed_langevin(score, x, [sigma], { step_size, steps, randn });

/** Algorithm 1:  for each σᵢ, `steps` updates  x ← x + αᵢ/2 s(x, σᵢ) + √αᵢ z,  αᵢ = ε σᵢ²/σ_L². */
export function* annealed_langevin(score, x, sigmas, { step_size, steps, randn }) {
  let step = 0;
  yield { x, sigma: sigmas[0], step };
  for (const sigma of sigmas) {
    const alpha = step_size * (sigma / sigmas.at(-1)) ** 2;
    for (let t = 0; t < steps; t++) {
      x = sum([1, x], [alpha / 2, score(x, sigma)], [Math.sqrt(alpha), randn()]);
      yield { x, sigma, step: ++step };
    }
  }
}

/** The states of a sampler that goes from each σ to the next by update(x, i), or by the updates update(x, i)[0], [1], ... */
function* walk(x, sigmas, update) {
  let step = 0;
  yield { x, sigma: sigmas[0], step };
  for (let i = 0; i < sigmas.length - 1; i++) yield { x: x = update(x, i), sigma: sigmas[i + 1], step: ++step };
}

/** dx/dσ = −σ s(x, σ), the slope of the probability flow. */
const slope = (score, x, sigma) => sum([-sigma, score(x, sigma)]);
/** D = x + σ² s(x, σ), the denoised points. */
const denoised = (score, x, sigma) => sum([1, x], [sigma ** 2, score(x, sigma)]);

/** x ← x + (σᵢ₊₁ − σᵢ) dᵢ. */
export const euler = (score, x, sigmas) => walk(x, sigmas, (x, i) => sum([1, x], [sigmas[i + 1] - sigmas[i], slope(score, x, sigmas[i])]));

/** An Euler step, then the mean of the slopes at both its ends. A step to σ = 0 is Euler's. */
export const heun = (score, x, sigmas) => walk(x, sigmas, (x, i) => {
  const h = sigmas[i + 1] - sigmas[i], d = slope(score, x, sigmas[i]);
  const predicted = sum([1, x], [h, d]);
  return sigmas[i + 1] === 0 ? predicted : sum([1, x], [h / 2, d], [h / 2, slope(score, predicted, sigmas[i + 1])]);
});

/** DPM-Solver++(2M): in λ = −ln σ,  x ← e⁻ʰ x + (1 − e⁻ʰ)(Dᵢ + h/(2h₁) (Dᵢ − Dᵢ₋₁)). */
export function dpmpp_2m(score, x, sigmas) {
  const past = [];
  return walk(x, sigmas, (x, i) => {
    past[i] = denoised(score, x, sigmas[i]);
    const ratio = sigmas[i + 1] / sigmas[i];
    const bend = i > 0 && ratio > 0 ? Math.log(1 / ratio) / (2 * Math.log(sigmas[i - 1] / sigmas[i])) : 0;
    const before = past[i - 1] ?? past[i];
    return sum([ratio, x], [(1 - ratio) * (1 + bend), past[i]], [-(1 - ratio) * bend, before]);
  });
}

/** DPM-Solver++(3M): D is replaced by the parabola through its last three values. */
export function dpmpp_3m(score, x, sigmas) {
  const past = [];
  return walk(x, sigmas, (x, i) => {
    past[i] = denoised(score, x, sigmas[i]);
    const ratio = sigmas[i + 1] / sigmas[i], made = sum([ratio, x], [1 - ratio, past[i]]);
    if (i === 0 || ratio === 0) return made;
    const h = -Math.log(ratio), i1 = h - (1 - ratio);
    const h1 = Math.log(sigmas[i - 1] / sigmas[i]), first = sum([1 / h1, past[i]], [-1 / h1, past[i - 1]]);
    if (i === 1) return sum([1, made], [i1, first]);
    const h2 = Math.log(sigmas[i - 2] / sigmas[i - 1]), second = sum([1 / h2, past[i - 1]], [-1 / h2, past[i - 2]]);
    const i2 = (h * h - 2 * i1 + h1 * i1) / (h1 + h2);
    return sum([1, made], [i1 + i2, first], [-i2, second]);
  });
}

/** x ← x + ∫ p(σ) dσ,  where the polynomial p goes through the last four slopes, fewer in the first steps. */
export function adams_bashforth(score, x, sigmas, { order = 4 } = {}) {
  const past = [];
  return walk(x, sigmas, (x, i) => {
    past[i] = slope(score, x, sigmas[i]);
    const used = Array.from({ length: Math.min(order, i + 1) }, (_, k) => i - k);
    const weights = adamsWeights(used.map((k) => sigmas[k]), sigmas[i], sigmas[i + 1]);
    return sum([1, x], ...used.map((k, j) => [weights[j], past[k]]));
  });
}

/** ∫ ℓⱼ(σ) dσ, where ℓⱼ is the polynomial that is 1 at node j and 0 at the others, by Gauss's rule with two points. */
function adamsWeights(nodes, start, end) {
  const middle = (start + end) / 2, reach = (end - start) / (2 * Math.sqrt(3));
  const basis = (j, at) => nodes.reduce((product, node, k) => (k === j ? product : (product * (at - node)) / (nodes[j] - node)), 1);
  return nodes.map((_, j) => ((end - start) / 2) * (basis(j, middle - reach) + basis(j, middle + reach)));
}

/** x at σ' is drawn from q(x_σ' | x_σ, x₀ = D), the reverse of adding noise. */
export const ancestral = (score, x, sigmas, { randn }) => walk(x, sigmas, (x, i) => {
  const [now, after] = [sigmas[i], sigmas[i + 1]];
  const up = (after * Math.sqrt(now ** 2 - after ** 2)) / now, down = Math.sqrt(after ** 2 - up ** 2);
  const moved = sum([1, x], [(1 - down / now) * now ** 2, score(x, now)]);
  return up ? sum([1, moved], [up, randn()]) : moved;
});

/** At each σᵢ a Langevin step with ε = 2 (r σᵢ)², then  x ← x + (σᵢ² − σᵢ₊₁²) s + √(σᵢ² − σᵢ₊₁²) z. */
export const predictor_corrector = (score, x, sigmas, { randn, snr = 0.16 }) => walk(x, sigmas, (x, i) => {
  const corrected = sum([1, x], [2 * (snr * sigmas[i]) ** 2, score(x, sigmas[i])], [2 * snr * sigmas[i], randn()]);
  const variance = sigmas[i] ** 2 - sigmas[i + 1] ** 2, moved = sum([1, corrected], [variance, score(corrected, sigmas[i])]);
  return sigmas[i + 1] ? sum([1, moved], [Math.sqrt(variance), randn()]) : moved;
});

/** x ← x + η σᵢ² s(x, σᵢ) + β σᵢ₊₁ z:  the noise that is left is just that of σᵢ₊₁. */
export function consistent_annealed(score, x, sigmas, { randn }) {
  const ratio = Math.max(...(sigmas.length > 2 ? sigmas.slice(1, -1).map((after, i) => after / sigmas[i]) : [0.5]));
  const eta = Math.min(1.5 * (1 - ratio), 1);
  return walk(x, sigmas, (x, i) => {
    const now = sigmas[i], after = sigmas[i + 1], taken = after ? Math.max(eta, 1 - after / now) : 1;
    const moved = sum([1, x], [taken * now ** 2, score(x, now)]), fresh = after ** 2 - ((1 - taken) * now) ** 2;
    return after && fresh > 1e-12 * after ** 2 ? sum([1, moved], [Math.sqrt(fresh), randn()]) : moved;
  });
}

/** Sigmas from high to low, evenly spaced in σ^(1/ρ); for an infinite ρ, in log σ. */
export function spaced(high, low, levels, rho) {
  if (levels === 1) return [high];
  const ends = rho === Infinity ? [Math.log(high), Math.log(low)] : [high ** (1 / rho), low ** (1 / rho)];
  const back = rho === Infinity ? Math.exp : (value) => value ** rho;
  return Array.from({ length: levels }, (_, k) => (k === 0 ? high : k === levels - 1 ? low : back(ends[0] + (k / (levels - 1)) * (ends[1] - ends[0]))));
}

const FEW = [5, 10, 20, 35, 100, 200], MANY = [20, 50, 100, 200, 500, 1000];
const flow = (run, title, short, about, rho = 7, most = (calls) => calls) => ({ run, title, short, about, rho, most, calls: FEW, usual: 20 });

/** What can be chosen. `most` is the number of noise levels that so many calls allow. */
export const SAMPLERS = {
  langevin: { title: "Langevin", short: "Langevin", about: "Follows the score of the data, with a little noise, from uniform noise.", calls: MANY, usual: 1000 },
  annealed_langevin: { title: "Annealed Langevin", short: "Annealed", about: "The paper’s: the same at each noise level in turn, the largest first.", calls: MANY, usual: 1000 },
  euler: flow(euler, "Euler (DDIM)", "Euler", "Follows the probability flow in straight steps, without fresh noise."),
  heun: flow(heun, "Heun", "Heun", "The flow with the mean of the slopes at both ends of each step: two calls.", 7, (calls) => (calls + 1) >> 1),
  dpmpp_2m: flow(dpmpp_2m, "DPM-Solver++(2M)", "DPM++ 2M", "The flow with a line through the last two denoised estimates.", Infinity),
  dpmpp_3m: flow(dpmpp_3m, "DPM-Solver++(3M)", "DPM++ 3M", "The flow with a parabola through the last three denoised estimates.", Infinity),
  adams_bashforth: flow(adams_bashforth, "Adams–Bashforth", "Adams–B.", "The flow with a polynomial through up to four earlier slopes."),
  ancestral: flow(ancestral, "Ancestral", "Ancestral", "Reverses the adding of noise step by step, with fresh noise in each."),
  predictor_corrector: flow(predictor_corrector, "Predictor–corrector", "Pred.–corr.", "A Langevin step and a step to the next noise level in turn.", Infinity, (calls) => calls >> 1),
  consistent_annealed: flow(consistent_annealed, "Consistent annealed", "Consistent", "Steps that leave just the noise of the next level.", Infinity),
};

const LEAST = 0.05; // the last noise level before 0, as a multiple of the modes' width
const EXTENT = 8; // Langevin dynamics starts uniformly in [−8, 8]²
const PAPER = 1000; // the calls for which the step size is given; with fewer the steps are longer, so that T ε stays the same

/**
 * A sampler's run on a mixture, with the paper's two kinds of start. Langevin dynamics goes from uniform noise down to
 * σ_min on points, which is the mixture with modes of that width; the others go from exact samples of the first noise
 * level to 0, so that only their own errors are left. `sigma` of a state is the width of a mode with its noise.
 */
export function start(name, calls, { mixture, sigma_max, levels, step_size }, noise) {
  const { std } = mixture, randn = () => noise.normal();
  let made = 0;
  const counting = (of) => (x, sigma) => { made++; return of.score(x, sigma); };
  const whole = function* (states, width) { for (const state of states) yield { ...state, sigma: width(state.sigma), calls: made }; };
  if (name === "langevin" || name === "annealed_langevin") {
    const sigmas = name === "langevin" ? [std] : spaced(sigma_max, std, levels, Infinity);
    const steps = Math.max(1, Math.floor(calls / sigmas.length)), x = Float64Array.from(noise.uniform(), (u) => EXTENT * (2 * u - 1));
    const score = counting(new Mixture({ ...mixture, std: 0 })), settings = { step_size: (step_size * PAPER) / (steps * sigmas.length), steps, randn };
    return whole(annealed_langevin(score, x, sigmas, settings), (sigma) => sigma);
  }
  const { run, rho, most } = SAMPLERS[name];
  const path = [...spaced(sigma_max, LEAST * std, Math.max(1, most(calls)), rho), 0];
  return whole(run(counting(mixture), mixture.sample(path[0], noise), path, { randn }), (sigma) => Math.hypot(std, sigma));
}
