// A mixture of Gaussians in the plane, whose score is known at every noise level, and the distance of points to it.
// Points are one Float64Array: x₁, y₁, x₂, y₂, ... The same formulas as in scorefield/distributions.py.

export class Mixture {
  /** Σₖ wₖ N(μₖ, s²). means: [[x, y], ...]; std: s, the same for all modes; of the weights only the ratios matter. */
  constructor({ means, weights, std }) {
    const total = weights.reduce((sum, each) => sum + each, 0);
    Object.assign(this, { means, std, weights: weights.map((each) => each / total) });
  }

  /** ∇ₓ log q_σ(x) = Σₖ p(k | x) (μₖ − x)/(s² + σ²). */
  score(x, sigma) {
    const variance = this.std ** 2 + sigma ** 2, out = new Float64Array(x.length);
    this.#each(x, variance, (i, sum, mx, my) => {
      out[i] = (mx / sum - x[i]) / variance;
      out[i + 1] = (my / sum - x[i + 1]) / variance;
    });
    return out;
  }

  /** log q_σ(x). */
  logProb(x, sigma) {
    const variance = this.std ** 2 + sigma ** 2, out = new Float64Array(x.length / 2);
    this.#each(x, variance, (i, sum, mx, my, top) => { out[i / 2] = top + Math.log(sum) - Math.log(2 * Math.PI * variance); });
    return out;
  }

  /** For each point: Σₖ pₖ and Σₖ pₖ μₖ, where log pₖ = log wₖ − |x − μₖ|²/2v − top, and top is the largest of them. */
  #each(x, variance, use) {
    const modes = this.means.length, log = new Float64Array(modes), logWeights = this.weights.map(Math.log);
    const across = this.means.map(([u]) => u), up = this.means.map(([, v]) => v);
    for (let i = 0; i < x.length; i += 2) {
      let top = -Infinity;
      for (let k = 0; k < modes; k++) {
        const a = across[k] - x[i], b = up[k] - x[i + 1];
        log[k] = logWeights[k] - (a * a + b * b) / (2 * variance);
        if (log[k] > top) top = log[k];
      }
      let sum = 0, mx = 0, my = 0;
      for (let k = 0; k < modes; k++) {
        const p = Math.exp(log[k] - top);
        sum += p;
        mx += p * across[k];
        my += p * up[k];
      }
      use(i, sum, mx, my, top);
    }
  }

  /** Exact samples of q_σ, one for each point of the noise. The same noise gives the same samples, only wider. */
  sample(sigma, noise) {
    const u = noise.uniform(), z = noise.normal(), x = new Float64Array(z.length), width = Math.hypot(this.std, sigma);
    for (let i = 0; i < x.length; i += 2) {
      let k = 0;
      for (let left = u[i]; k < this.weights.length - 1 && (left -= this.weights[k]) > 0;) k++;
      x[i] = this.means[k][0] + width * z[i];
      x[i + 1] = this.means[k][1] + width * z[i + 1];
    }
    return x;
  }

  /** The numbers of the points that are nearest to each mode. */
  counts(x) {
    const found = this.means.map(() => 0);
    for (let i = 0; i < x.length; i += 2) {
      let nearest = 0, least = Infinity;
      this.means.forEach(([u, v], k) => {
        const away = (u - x[i]) ** 2 + (v - x[i + 1]) ** 2;
        if (away < least) [nearest, least] = [k, away];
      });
      found[nearest]++;
    }
    return found;
  }
}

const DIRECTIONS = 16, PLACES = 4001;

/**
 * The sliced Wasserstein distance between points and the mixture: the mean over directions of ∫ |F_N(t) − F(t)| dt, where
 * F_N is the share of the points whose projection is at most t and F the mixture's own, a sum of normal distribution functions.
 */
export function distanceTo({ means, weights, std }, x) {
  const n = x.length / 2;
  const along = Array.from({ length: DIRECTIONS }, (_, d) => {
    const c = Math.cos((Math.PI * d) / DIRECTIONS), s = Math.sin((Math.PI * d) / DIRECTIONS);
    return { points: Float64Array.from({ length: n }, (_, k) => c * x[2 * k] + s * x[2 * k + 1]).sort(), means: means.map(([u, v]) => c * u + s * v) };
  });
  const low = Math.min(...along.map((each) => Math.min(each.points[0], ...each.means.map((m) => m - 8 * std))));
  const high = Math.max(...along.map((each) => Math.max(each.points[n - 1], ...each.means.map((m) => m + 8 * std))));
  const step = (high - low) / (PLACES - 1);
  let total = 0;
  for (const { points, means: centres } of along) {
    for (let j = 0, below = 0; j < PLACES; j++) {
      const t = j === PLACES - 1 ? high : low + j * step;
      while (below < n && points[below] <= t) below++;
      let exact = 0;
      for (let k = 0; k < centres.length; k++) exact += weights[k] * normalBelow((t - centres[k]) / std);
      total += Math.abs(below / n - exact) * (j % (PLACES - 1) ? step : step / 2);
    }
  }
  return total / DIRECTIONS;
}

/** The normal distribution function: a power series near 0, a continued fraction far from it. */
function normalBelow(z) {
  const size = Math.abs(z);
  if (size > 9) return z < 0 ? 0 : 1;
  const density = Math.exp(-z * z / 2) / Math.sqrt(2 * Math.PI);
  if (size < 4) {
    let term = size, sum = size;
    for (let k = 3; term > 1e-17 * sum; k += 2) sum += term *= (size * size) / k;
    return z < 0 ? 0.5 - density * sum : 0.5 + density * sum;
  }
  let fraction = size;
  for (let k = 40; k > 0; k--) fraction = size + k / fraction;
  return z < 0 ? density / fraction : 1 - density / fraction;
}
