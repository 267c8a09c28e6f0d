// A worker that measures samplers on a mixture: their distance to the exact distribution for several numbers of calls.

import { Mixture, distanceTo } from "./mixture.js";
import { Noise } from "./random.js";
import { SAMPLERS, start } from "./samplers.js";

const POINTS = 10000, SETS = 20;
const FAR = 100; // a sampler that ends farther away than this has diverged

onmessage = ({ data: { problem, names, exact } }) => {
  const mixture = new Mixture(problem.mixture);
  const trials = names.flatMap((name) => SAMPLERS[name].calls.map((calls) => ({ name, calls })));
  for (const { name, calls } of trials.sort((a, b) => a.calls - b.calls)) { // the cheap ones first
    let end;
    for (const state of start(name, calls, { ...problem, mixture }, new Noise(0, POINTS))) end = state;
    const distance = end.x.every((each) => Math.abs(each) < 1e6) ? distanceTo(mixture, end.x) : Infinity;
    postMessage({ name, calls: end.calls, distance: distance < FAR ? distance : null });
  }
  if (!exact) return;
  let distance = 0; // the mean over several sets of exact samples
  for (let seed = 1; seed <= SETS; seed++) distance += distanceTo(mixture, mixture.sample(0, new Noise(seed, POINTS))) / SETS;
  postMessage({ name: "exact", calls: 0, distance });
};
