"""Why are there so few ones among samples? Annealed Langevin dynamics with the exact score of MNIST, without a network.

The data are 5,000 training digits, a point each, so that with noise they are a mixture of 5,000 Gaussians.

    python docs/few_ones.py                (ten minutes on two cores; it downloads MNIST if that is missing)
    python docs/few_ones.py 1000 doctor    (1,000 chains, with the settings of the doctor alone)
"""

import sys

import torch
from torch import Tensor

from scorefield import Score, annealed_langevin, data, geometric, last
from scorefield.doctor.advice import PAPER, langevin_schedule
from scorefield.doctor.geometry import measure
from scorefield.evaluation.digits import judge
from scorefield.images import to_bytes, to_float


def exact(points: Tensor) -> Score:
    """The score of these equally likely points (N, D) with noise:  (E[point | x] − x)/σ²."""

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        weights = torch.softmax((x @ points.T - points.square().sum(1) / 2) / sigma**2, 1)
        return (weights @ points - x) / sigma**2

    return score


def main(n: int = 400, only: str = "") -> None:
    """The paper's uniform start, another start, a schedule with a larger first σ and nearly the same ratio; and the
    settings that `scorefield doctor` recommends."""
    torch.manual_seed(0)
    digits = to_float(data.load("mnist").pixels[:5_000])
    score, uniform = exact(digits.flatten(1)), torch.rand(n, 784)
    for words, start, settings in (
        ("uniform start, σ₁ = 1", uniform, PAPER),
        ("N(0, 1) start, σ₁ = 1", torch.randn(n, 784), PAPER),
        ("uniform start, σ₁ = 2", uniform, PAPER._replace(sigma_max=2.0, levels=12)),
        ("uniform start, settings of the doctor", uniform, langevin_schedule(measure(digits[:2000])[0])),
    ):
        if only not in words:
            continue
        sigmas = geometric(settings.sigma_max, settings.sigma_min, settings.levels)
        x = last(
            annealed_langevin(score, start, sigmas, step_size=settings.step_size, steps=settings.steps, denoise=True)
        )
        histogram = judge(to_bytes(x.unflatten(1, (1, 28, 28)))).histogram
        shares = " ".join(f"{count / sum(histogram):5.1%}" for count in histogram)
        print(f"{words} ({settings.calls:,} calls), {n} chains, digits 0 to 9: {shares}")


if __name__ == "__main__":
    main(int((sys.argv[1:2] or ["400"])[0]), "".join(sys.argv[2:3]))
