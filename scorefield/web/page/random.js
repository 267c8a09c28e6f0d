// Seeded random numbers. Those of point k depend on the seed and on k alone, not on how many points there are.

/** Mixes the bits of a 32-bit number. */
function mix(h) {
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

const UNIT = 2 ** -32;

export class Noise {
  /** Random numbers for n points in the plane: `uniform` and `normal` give the next ones, two for each point. */
  constructor(seed, n) {
    this.n = n;
    this.draws = 0;
    const start = mix(mix(seed) ^ Math.floor(seed / 2 ** 32));
    this.keys = [1, 2].map((axis) => Uint32Array.from({ length: n }, (_, k) => mix(mix(start + Math.imul(axis, 0x9e3779b9)) ^ mix(k + 1))));
  }

  /** Numbers in (0, 1). */
  uniform() {
    const draw = mix(++this.draws), [first, second] = this.keys, u = new Float64Array(2 * this.n);
    for (let k = 0; k < this.n; k++) {
      u[2 * k] = (mix(first[k] ^ draw) + 0.5) * UNIT;
      u[2 * k + 1] = (mix(second[k] ^ draw) + 0.5) * UNIT;
    }
    return u;
  }

  /** Numbers from N(0, 1), by Box and Muller's method: a pair of uniform ones makes a pair of normal ones. */
  normal() {
    const z = this.uniform();
    for (let k = 0; k < z.length; k += 2) {
      const radius = Math.sqrt(-2 * Math.log(z[k])), angle = 2 * Math.PI * z[k + 1];
      z[k] = radius * Math.cos(angle);
      z[k + 1] = radius * Math.sin(angle);
    }
    return z;
  }
}
