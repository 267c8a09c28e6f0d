"""Are the error bars of `posterior` right? Random mixtures, whose posteriors are known in closed form.

    python scripts/restoration_coverage.py --out docs/measurements/coverage.json

Each problem is a mixture of three Gaussians in four dimensions, a random matrix A with two rows, a noise from 0.03 to
0.5, a truth x₀ drawn from the mixture, and y = A x₀ + noise · z. From samples of x₀ given y come the 90 % credible
intervals of all coordinates. Of n samples these reach from the j-th smallest to the j-th largest, j = (n + 1)/20: if
the samples are from the posterior, so that each place of x₀ among them is equally likely, they cover x₀ in just 90 %.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from scorefield import heun, karras, last
from scorefield.posteriors import Measurement, posterior, residual

D, K, ROWS = 4, 3, 2
LEVEL = 0.9


@dataclass(frozen=True)
class Result:
    """What one method reached."""

    method: str
    coverage: float
    """The share of coordinates whose credible interval covers the truth."""
    coverage_error: float
    """Standard error, over problems."""
    width: float
    """The mean width of the intervals, divided by that of as many exact samples."""
    residual: float
    """The root mean square of ‖A x − y‖/(noise √M)."""
    seconds: float


class Problems:
    """Random problems, in float64. Rows p·n ... (p + 1)·n − 1 of a batch belong to problem p."""

    def __init__(self, problems: int, samples: int, seed: int = 0) -> None:
        self.n, self.each, draw = problems, samples, torch.Generator().manual_seed(seed)

        def randn(*shape: int) -> Tensor:
            return torch.randn(problems, *shape, generator=draw, dtype=torch.float64)

        def rand(*shape: int) -> Tensor:
            return torch.rand(problems, *shape, generator=draw, dtype=torch.float64)

        self.means, self.variances, weights = randn(K, D), (0.2 + 0.4 * rand(K, D)).square(), 0.2 + rand(K)
        self.weights = weights / weights.sum(1, keepdim=True)
        self.noise = (math.log(0.03) + math.log(0.5 / 0.03) * rand(1, 1)).exp()
        self.matrix = randn(ROWS, D) / math.sqrt(D) / self.noise  # in units of the noise, which is 1 for all then
        k = torch.multinomial(self.weights, 1, generator=draw)[:, 0]
        rows = torch.arange(problems)
        self.truth = self.means[rows, k] + self.variances[rows, k].sqrt() * randn(D)
        self.y = torch.einsum("pmd,pd->pm", self.matrix, self.truth) + randn(ROWS)

    def measure(self, x: Tensor, unit: Tensor | float = 1.0) -> Tensor:
        """A x, in units of the noise, or times a unit for each problem."""
        return torch.einsum("pmd,pnd->pnm", self.matrix * unit, x.unflatten(0, (self.n, self.each))).flatten(0, 1)

    def score(self, x: Tensor, sigma: Tensor) -> Tensor:
        """∇ₓ log q_σ(x) of each problem's mixture."""
        offset = self.means[:, None] - x.unflatten(0, (self.n, self.each))[:, :, None]
        variance = (self.variances + sigma**2)[:, None]
        log_joint = self.weights.log()[:, None] - (offset**2 / variance + variance.log()).sum(3) / 2
        return (log_joint.softmax(2)[..., None] * offset / variance).sum(2).flatten(0, 1)

    def exact(self, seed: int = 1) -> Tensor:
        """Samples of the posteriors: mixtures of N(μₖ + Gₖ(y − A μₖ), (I − Gₖ A) Sₖ),  Gₖ = Sₖ Aᵀ (A Sₖ Aᵀ + I)⁻¹."""
        draw = torch.Generator().manual_seed(seed)
        a, s = self.matrix[:, None], torch.diag_embed(self.variances)
        whole = a @ s @ a.mT + torch.eye(ROWS, dtype=torch.float64)
        gain = torch.linalg.solve(whole, a @ s).mT
        r = self.y[:, None] - (a @ self.means[..., None])[..., 0]
        fit = (r * torch.linalg.solve(whole, r)).sum(2) + torch.logdet(whole)
        means = self.means + (gain @ r[..., None])[..., 0]
        roots = torch.linalg.cholesky(s - gain @ a @ s)
        k = torch.multinomial((self.weights.log() - fit / 2).softmax(1), self.each, replacement=True, generator=draw)
        z = torch.randn(self.n, self.each, D, 1, generator=draw, dtype=torch.float64)
        rows = torch.arange(self.n)[:, None]
        return (means[rows, k] + (roots[rows, k] @ z)[..., 0]).flatten(0, 1)

    def sample(self, method: str, steps: int, strength: float = 1.0, seed: int = 2) -> Tensor:
        """Samples by `posterior` and Heun's method from σ = 20 to 0. dps, which does not know the noise, depends on the
        unit of y, and gets the measurement as it is."""
        draw = torch.Generator().manual_seed(seed)
        unit = self.noise if method == "dps" else torch.ones_like(self.noise)
        y = (self.y * unit[:, 0]).repeat_interleave(self.each, 0)
        operator = partial(self.measure, unit=unit)
        score = posterior(self.score, y, operator, noise=1.0, method=method, iterations=ROWS, strength=strength)
        x = 20 * torch.randn(len(y), D, generator=draw, dtype=torch.float64)
        return last(heun(score, x, [*karras(20, 0.02, steps).tolist(), 0]))

    def width(self, x: Tensor) -> Tensor:
        """Widths of the intervals, (P, D)."""
        return self.interval(x).diff(dim=0)[0]

    def interval(self, x: Tensor) -> Tensor:
        """Both ends of the credible interval of each coordinate, (2, P, D)."""
        j = round((self.each + 1) * (1 - LEVEL) / 2)
        return x.unflatten(0, (self.n, self.each)).sort(1).values[:, [j - 1, -j]].movedim(1, 0)

    def result(self, method: str, x: Tensor, seconds: float) -> Result:
        low, high = self.interval(x)
        covered = ((low <= self.truth) & (self.truth <= high)).double().mean(1)
        y = self.y.repeat_interleave(self.each, 0)
        return Result(
            method,
            coverage=round(covered.mean().item(), 4),
            coverage_error=round(covered.std().item() / math.sqrt(self.n), 4),
            width=round((self.width(x).mean() / self.width(self.exact()).mean()).item(), 3),
            residual=round(residual(x, Measurement(y, self.measure, 1.0)).square().mean().sqrt().item(), 3),
            seconds=round(seconds, 1),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="How often 90 % credible intervals cover the truth, by method.")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--samples", type=int, default=99)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--out", type=Path, default=Path("coverage.json"))
    words = parser.parse_args()
    problems = Problems(words.problems, words.samples)
    results = [problems.result("exact samples", problems.exact(3), 0.0)]
    for method, strength in (("mmps", 1.0), ("dps", 1.0), ("dps", 4.0), ("diffpir", 1.0), ("diffpir", 0.5)):
        began = time.perf_counter()
        x = problems.sample(method, words.steps, strength)
        name = method if strength == 1 else f"{method}, strength {strength:g}"
        results.append(problems.result(name, x, time.perf_counter() - began))
    for each in results:
        print(
            f"{each.method:<22} coverage {each.coverage:.1%} ± {each.coverage_error:.1%}   width {each.width:5.2f}   "
            f"residual {each.residual:6.2f}   {each.seconds} s"
        )
    settings = {"problems": words.problems, "samples": words.samples, "steps": words.steps, "level": LEVEL}
    command = f"python scripts/restoration_coverage.py --out {words.out}"
    text = json.dumps({"command": command, **settings, "results": [asdict(each) for each in results]}, indent=2)
    words.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
