"""Record how models make samples, for the web page, which plays these films before the user draws any.

    python scripts/record_films.py mnist-small
    python scripts/record_films.py cifar10 --sampler annealed_langevin --calls 250 -n 9

A film is scorefield/web/page/films/NAME.webp, the frames one below the other, and an entry in films/films.json, which
says how it was made. It shows the estimate of the clean images, x + σ² s(x, σ), at the network calls, and the samples
at the end. Record a model again when its weights change. cifar10 needs the paper's sampler, since its samples
by consistent_annealed with few calls are blurred.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import scorefield as sf
from scorefield import samplers
from scorefield.files import write_json
from scorefield.images import grid, to_bytes
from scorefield.samplers.watched import Watched

FILMS = Path(sf.__file__).parent / "web" / "page" / "films"


def record(
    name: str, *, source: str, sampler: str | None, calls: int, n: int, frames: int, seed: int, quality: int
) -> dict[str, Any]:
    """Make the film of a model, and return its entry."""
    model = sf.load(source, device="cpu")
    chosen = sampler or ("consistent_annealed" if model.accepted.listed else "dpmpp_2m")
    settings = samplers.changed(model.sampler, {"calls": calls}, name=chosen, accepted=model.accepted)
    settings = samplers.with_denoising(settings, True)
    began, films, sigmas = time.perf_counter(), list[list[Tensor]](), list[float]()
    batches: list[tuple[list[int], Any]] = [(list(range(n)), None)]
    if model.labels:  # the classes in turn
        batches = [([k], model.labels[k % len(model.labels)]) for k in range(n)]
    for numbers, label in batches:
        watched, film, sigmas = Watched(settings), list[Tensor](), []
        for state in model.states(numbers, seed=seed, sampler=watched, label=label):
            end = state.x
            if watched.denoised is not None:
                film.append(watched.denoised)
                sigmas.append(watched.sigma)
        films.append([*film, end])
    sigmas.append(0.0)
    kept = np.linspace(0, len(sigmas) - 1, min(frames, len(sigmas))).round().astype(int).tolist()
    pixels = [to_bytes(torch.cat([film[k] for film in films])) for k in kept]
    columns = math.ceil(math.sqrt(n))
    sheet = np.concatenate([grid(images, columns=columns, gap=0, background=0) for images in pixels])
    picture = Image.fromarray(sheet[..., 0] if sheet.shape[-1] == 1 else sheet)
    FILMS.mkdir(exist_ok=True)
    picture.save(FILMS / f"{name}.webp", quality=quality, method=6)
    print(f"{name}: {time.perf_counter() - began:.0f} s, {(FILMS / f'{name}.webp').stat().st_size / 1000:.0f} kB")
    return {
        "frames": len(kept),
        "sigmas": [float(f"{sigmas[k]:.4g}") for k in kept],
        "n": n,
        "columns": columns,
        "shape": list(model.shape),
        "digest": model.digest[:12],
        "trained": model.step,
        "sampler": settings.name,
        "calls": settings.calls,
        "seed": seed,
        **({"labels": [label for _, label in batches]} if model.labels else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names of models, or NAME=FILE for a model that is not installed yet")
    parser.add_argument(
        "--sampler", help="default: consistent_annealed, or dpmpp_2m for a network for all noise levels"
    )
    parser.add_argument("--calls", type=int, default=30, help="network calls per image")
    parser.add_argument("-n", type=int, default=16, help="number of images")
    parser.add_argument("--frames", type=int, default=24, help="the most frames")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quality", type=int, default=85, help="of WebP, up to 100")
    arguments = vars(parser.parse_args())
    index = FILMS / "films.json"
    for given in arguments.pop("models"):
        name, _, file = given.partition("=")
        entry = record(name, source=file or name, **arguments)
        known = json.loads(index.read_text(encoding="utf-8")) if index.exists() else {}
        write_json(index, dict(sorted({**known, name: entry}.items())))


if __name__ == "__main__":
    main()
