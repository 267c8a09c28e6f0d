"""Why so few ones? Annealed Langevin dynamics with the exact score of MNIST, which no network had to learn.

The data are 5,000 training digits, one point each, so that with noise they are a mixture of 5,000 Gaussians:
python docs/few_ones.py    (two minutes on two cores; needs MNIST's files, see the README on data)
"""

import torch
from torch import Tensor

from scorefield import annealed_langevin, data, geometric, last
from scorefield.experiments.digits import judge
from scorefield.images import to_bytes, to_float

torch.manual_seed(0)
digits = to_float(data.load("mnist").pixels[:5_000]).flatten(1)


def score(x: Tensor, sigma: Tensor) -> Tensor:
    """(E[digit | x] − x)/σ²."""
    weights = torch.softmax((x @ digits.T - digits.square().sum(1) / 2) / sigma**2, 1)
    return (weights @ digits - x) / sigma**2


for largest, levels in ((1, 10), (2, 12)):  # the paper's, and one more of the same ratio, or nearly so
    sigmas = geometric(largest, 0.01, levels)
    x = last(annealed_langevin(score, torch.rand(400, 784), sigmas, step_size=2e-5, steps=100, denoise=True))
    told = judge(to_bytes(x.unflatten(1, (1, 28, 28))))
    shares = " ".join(f"{count / sum(told['histogram']):5.1%}" for count in told["histogram"])
    print(f"σ₁ = {largest:2}: shares of 0 to 9: {shares}")
