"""How right are the shares of modes after annealed Langevin dynamics? By how often chains relax as the noise falls.

Mixtures of Gaussians with their exact score, so that only the sampler's own error is left. The doctor's ratio of levels
and step size are kept, and the number of steps T varies.

    python scripts/doctor_weights.py docs/measurements/doctor_weights.json    (a few minutes)
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from scorefield import GaussianMixture, annealed_langevin, geometric, last
from scorefield.distributed import device_name
from scorefield.doctor import geometry
from scorefield.doctor.advice import PAPER, langevin_schedule
from scorefield.doctor.schedules import RELAXATIONS, AnnealingSettings, relaxations
from scorefield.files import write_json

N = 10_000
CASES = ((2, 8.0, (0.2, 0.8)), (16, 14.0, (0.1, 0.3, 0.6)), (64, 12.0, (0.2, 0.8)))
"""Dimensions, distance of the first two modes, and weights."""
TIMES = (0.125, 0.25, 0.5, 1.0, 2.0)


def mixture(dimension: int, apart: float, weights: tuple[float, ...]) -> GaussianMixture:
    torch.manual_seed(0)
    points = torch.randn(len(weights), dimension)
    points = (points - points.mean(0)) * (apart / (points[0] - points[1]).norm())
    return GaussianMixture(means=0.5 + points, stds=0.05, weights=weights)


def shares(data: GaussianMixture, schedule: AnnealingSettings) -> list[float]:
    """The share of the samples near each mode, from the paper's uniform start."""
    torch.manual_seed(1)
    sigmas = geometric(schedule.sigma_max, schedule.sigma_min, schedule.levels)
    start = torch.rand(N, data.means.shape[1])
    x = last(annealed_langevin(data.score, start, sigmas, step_size=schedule.step_size, steps=schedule.steps))
    counts = torch.cdist(x, data.means).argmin(1).bincount(minlength=len(data.means))
    return [round(share, 4) for share in (counts / N).tolist()]


def main() -> None:
    found = []
    for dimension, apart, weights in CASES:
        data = mixture(dimension, apart, weights)
        advised = langevin_schedule(geometry.measure(data.sample(1000))[0])
        tried = [(f"{times:g} T", advised._replace(steps=max(1, round(times * advised.steps)))) for times in TIMES]
        for name, schedule in (*tried, ("the paper's", PAPER)):
            measured = shares(data, schedule)
            eta = schedule.step_size / schedule.sigma_min**2
            row = {
                "dimension": dimension,
                "apart": apart,
                "settings": name,
                **schedule._asdict(),
                "calls": schedule.calls,
                "relaxations": round(relaxations(schedule.steps, eta, schedule.ratio), 1),
                "weights": list(weights),
                "shares": measured,
                "error": round(max(abs(a - b) for a, b in zip(measured, weights, strict=True)), 4),
            }
            print(
                f"D = {dimension}, {name}: {row['relaxations']} relaxations, shares {measured}, off by {row['error']}"
            )
            found.append(row)
    write_json(
        Path(sys.argv[1]),
        {
            "what": "shares of modes after annealed Langevin dynamics with the exact score, from the uniform start",
            "command": f"python scripts/doctor_weights.py {sys.argv[1]}",
            "machine": device_name(torch.device("cpu")),
            "n": N,
            "standard_error": 0.005,
            "advised_relaxations": RELAXATIONS,
            "rows": found,
        },
    )


if __name__ == "__main__":
    main()
