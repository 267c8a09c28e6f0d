"""How fast training and sampling are on this machine: the plain float32 network against the fast path, in one run."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from scorefield.acceleration import kernels
from scorefield.acceleration.fast import RecordedUpdate, fast, for_sampling
from scorefield.distributed import device_name
from scorefield.models.recipes import RECIPES, Recipe, network_of
from scorefield.networks import RefineNet
from scorefield.score import Score
from scorefield.training.steps import Descent, TrainingState, adam, descent, example_losses, step_loss

SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    batch: int
    sampling: tuple[int, ...]
    repeats: int


def benchmark(name: str, device: torch.device, *, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Times, rates and memory of one of the paper's networks; on a CPU of a narrow one, at small sizes."""
    recipe, shape = RECIPES[name], SHAPES[name]
    sizes = Sizes(128, (128, 512), 20)
    if device.type == "cpu":
        recipe, sizes = replace(recipe, width=16), Sizes(8, (8,), 3)
    paths = {}
    for path in ("fast", "plain"):  # the fast one first, which says how long a fresh process takes to begin
        with precise(path == "plain"):
            began = time.perf_counter()
            paths[path] = training(recipe, shape, path, device, sizes) | sampling(recipe, shape, path, device, sizes)
        say(f"{path}: measured in {time.perf_counter() - began:.0f} s")
    flop, peak = forward_flop(recipe, shape), matrix_peak(device)
    found: dict[str, Any] = {"network": name, "width": recipe.width, "device": device_name(device)}
    found |= {"torch": torch.__version__, "gflop_per_image": flop / 1e9, "peak_tflops": peak / 1e12, "paths": paths}
    for numbers in paths.values():
        best = min(numbers["sample_ms"], key=lambda size: numbers["sample_ms"][size] / int(size))
        rate = int(best) / numbers["sample_ms"][best] * 1e3
        numbers["train_tflops"] = 3 * flop * sizes.batch / numbers["train_ms"] / 1e9
        numbers |= {"calls_per_second": rate, "sample_tflops": rate * flop / 1e12, "best_sample_size": int(best)}
        numbers |= {f"{kind}_share": numbers[f"{kind}_tflops"] * 1e12 / peak for kind in ("train", "sample")}
    return found


def training(
    recipe: Recipe, shape: tuple[int, int, int], path: str, device: torch.device, sizes: Sizes
) -> dict[str, Any]:
    """Milliseconds of an update, seconds until the first is done, and the most memory it takes."""
    network = new_network(recipe, shape, path, device)
    cuda = device.type == "cuda"
    state = TrainingState(network, adam(network, recipe.learning_rate))
    quick = path == "fast" and kernels.usable(network.sigmas)
    losses = example_losses(fast(network) if quick else network, network.sigmas, flip=recipe.flip)
    update: Descent = (
        RecordedUpdate(losses, state, seed=0, clip=0.0) if quick else descent(state, step_loss(losses, seed=0))
    )
    channels, height, width = shape
    pixels = torch.randint(0, 256, (sizes.batch, height, width, channels), dtype=torch.uint8, device=device)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    update(0, pixels)
    finish(device)
    first, started = time.perf_counter() - began, since_start()
    steps = iter(range(1, 10**9))
    ms = milliseconds(lambda: update(next(steps), pixels), sizes.repeats, device)
    memory = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "train_ms": ms,
        "train_batch": sizes.batch,
        "train_images_per_second": sizes.batch / ms * 1e3,
        "first_step_seconds": first,
        "start_seconds": started if path == "fast" else None,
        "peak_memory_gib": memory / 2**30,
    }


def sampling(
    recipe: Recipe, shape: tuple[int, int, int], path: str, device: torch.device, sizes: Sizes
) -> dict[str, Any]:
    """Milliseconds of a network call, by the number of images."""
    network = new_network(recipe, shape, path, device).requires_grad_(False)
    times = {}
    for size in sizes.sampling:
        score: Score = for_sampling(network, shape, size=size) if path == "fast" else network
        x = torch.rand(size, *shape, device=device)
        with torch.no_grad():
            times[str(size)] = milliseconds(lambda s=score, x=x: s(x, network.sigmas[3]), sizes.repeats, device)  # type: ignore[misc]
    return {"sample_ms": times}


def new_network(recipe: Recipe, shape: tuple[int, int, int], path: str, device: torch.device) -> RefineNet:
    """As the recipe makes it, channels-last; the plain path has PyTorch's usual layout."""
    network = network_of(recipe, channels=shape[0]).to(device)
    return network if path == "fast" else network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def forward_flop(recipe: Recipe, shape: tuple[int, int, int]) -> int:
    """Of one image's network call; twice the multiplications."""
    network = network_of(recipe, channels=shape[0])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.rand(1, *shape), network.sigmas[0])
    return int(counter.get_total_flops())


def matrix_peak(device: torch.device) -> float:
    """FLOP/s of a large product of matrices: bfloat16 on a GPU, float32 on a CPU."""
    n, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a = torch.randn(n, n, device=device, dtype=dtype)
    return 2 * n**3 / milliseconds(lambda: a @ a, 20, device) * 1e3


def milliseconds(work: Callable[[], Tensor | tuple[Tensor, ...]], repeats: int, device: torch.device) -> float:
    """The mean of many, after a few that do not count."""
    for _ in range(3):
        work()
    finish(device)
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    finish(device)
    return (time.perf_counter() - began) * 1e3 / repeats


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextmanager
def precise(on: bool) -> Iterator[None]:
    """Inside, no TF32 if `on`; kernels by trial in either case."""
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, not on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = before


def since_start() -> float:
    """Seconds since this process began (Linux), or since Python's clock did."""
    if not sys.platform.startswith("linux"):
        return time.process_time()
    ticks = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / 100
