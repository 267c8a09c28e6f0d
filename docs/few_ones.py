"""Why are there so few ones among samples? Annealed Langevin dynamics with the exact score of MNIST, without a network.

The data are 5,000 training digits, a point each, so that with noise they are a mixture of 5,000 Gaussians.

    python docs/few_ones.py    (five minutes on two cores; it needs MNIST's files, see the README on data)
"""

import torch
from torch import Tensor

from scorefield import Score, annealed_langevin, data, geometric, last
from scorefield.evaluation.digits import judge
from scorefield.images import to_bytes, to_float


def exact(points: Tensor) -> Score:
    """The score of these equally likely points (N, D) with noise:  (E[point | x] − x)/σ²."""

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        weights = torch.softmax((x @ points.T - points.square().sum(1) / 2) / sigma**2, 1)
        return (weights @ points - x) / sigma**2

    return score


def main() -> None:
    """The paper's uniform start, another start, and a schedule with a larger first σ and nearly the same ratio."""
    torch.manual_seed(0)
    score = exact(to_float(data.load("mnist").pixels[:5_000]).flatten(1))
    uniform, normal = torch.rand(400, 784), torch.randn(400, 784)
    for words, start, sigmas in (
        ("uniform start, σ₁ = 1", uniform, geometric(1, 0.01, 10)),
        ("N(0, 1) start, σ₁ = 1", normal, geometric(1, 0.01, 10)),
        ("uniform start, σ₁ = 2", uniform, geometric(2, 0.01, 12)),
    ):
        x = last(annealed_langevin(score, start, sigmas, step_size=2e-5, steps=100, denoise=True))
        histogram = judge(to_bytes(x.unflatten(1, (1, 28, 28)))).histogram
        print(f"{words}, digits 0 to 9:", " ".join(f"{count / sum(histogram):5.1%}" for count in histogram))


if __name__ == "__main__":
    main()
