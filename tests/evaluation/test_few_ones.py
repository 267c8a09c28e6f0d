"""The script in docs/ that samples MNIST by its exact score."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch

from scorefield import GaussianMixture


def test_the_exact_score_is_that_of_the_mixture() -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "few_ones.py"))
    torch.manual_seed(0)
    points, x = torch.rand(7, 5, dtype=torch.float64), torch.rand(4, 5, dtype=torch.float64)
    mixture = GaussianMixture(points, 0.0, torch.ones(7))
    for sigma in (0.1, 2.0):
        level = torch.tensor(sigma, dtype=torch.float64)
        torch.testing.assert_close(script["exact"](points)(x, level), mixture.score(x, level))
