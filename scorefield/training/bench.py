"""How fast training and sampling are on this machine: the plain float32 network against the fast path."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from scorefield import acceleration
from scorefield.acceleration.beside import measure as beside_a_busy_program
from scorefield.distributed import device_name
from scorefield.models.build import build_network, build_schedule
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.progress import plural
from scorefield.score import ConditionalScore
from scorefield.training.trainer import Batch, RecordedTrainer, Trainer, adam, score_matching

Shape = tuple[int, int, int]
SHAPES: dict[str, Shape] = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


class Sizes(NamedTuple):
    """How much is measured."""

    batch: int
    sampling: tuple[int, ...]
    repeats: int


def busy(device: torch.device) -> list[str]:
    """Warnings about other programs that use this machine, by which the times would be too long."""
    found = []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > max(0.5, cores / 4):
        found.append(f"the load average is {load:.1f} on {plural(cores, 'core')}: other programs are running")
    if device.type == "cuda" and (used := _gpu_utilisation(device)) > 5:
        found.append(f"the GPU is in use by other programs ({used} % of the time)")
    return found


def _gpu_utilisation(device: torch.device) -> int:
    """The share of the time, in %, in which the GPU worked lately; 0 where it is not known."""
    name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    query = ["nvidia-smi", f"--id={name}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def benchmark(name: str, device: torch.device, *, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Times, rates and memory of one of the paper's networks; on a CPU of a narrower one, with small batches.

    Shares are relative to the speed of large matrix products.
    """
    recipe, shape, sizes = RECIPES[name], SHAPES[name], Sizes(128, (128, 512), 20)
    if device.type == "cpu":
        recipe, sizes = replace(recipe, width=16), Sizes(8, (8,), 3)
    paths, warnings = {}, busy(device)
    for warning in warnings:
        say(f"warning: {warning}, so that the times below may be too long (run it again when the machine is idle)")
    for path in ("fast", "plain"):  # the fast one first, because it also measures how long a fresh process takes
        with chosen_precision(tf32=path == "fast"):
            began = time.perf_counter()
            paths[path] = measure_training(recipe, shape, path, device, sizes)
            paths[path]["sample_ms"] = measure_sampling(recipe, shape, path, device, sizes)
        say(f"{path}: measured in {time.perf_counter() - began:.0f} s")
    flop, peak = forward_flop(recipe, shape), matrix_peak(device)
    for numbers in paths.values():
        times = numbers["sample_ms"]
        best = min(times, key=lambda size: times[size] / int(size))
        calls = int(best) / times[best] * 1e3
        train = 3 * flop * numbers["train_images_per_second"]  # a backward pass is twice the work of a forward pass
        numbers |= {
            "train_tflops": train / 1e12,
            "train_share": train / peak,
            "best_sample_size": int(best),
            "calls_per_second": calls,
            "sample_tflops": flop * calls / 1e12,
            "sample_share": flop * calls / peak,
        }
    beside = beside_a_busy_program() if device.type == "cpu" else {}
    return {
        "network": name,
        "width": recipe.width,
        "device": device_name(device),
        "torch": torch.__version__,
        "gflop_per_image": flop / 1e9,
        "peak_tflops": peak / 1e12,
        "warnings": warnings,
        "paths": paths,
        **({"step_ms_beside_a_busy_program": beside} if beside else {}),
    }


def measure_training(recipe: Recipe, shape: Shape, path: str, device: torch.device, sizes: Sizes) -> dict[str, Any]:
    """Milliseconds of an update, seconds until the first one is done, and the largest amount of memory used."""
    network, cuda = new_network(recipe, shape, path, device), device.type == "cuda"
    fused = path == "fast" and acceleration.has_fused_kernels(network)
    score = acceleration.fused(network) if fused else network
    loss = score_matching(score, build_schedule(recipe).to(device), flip=recipe.flip)
    trainer = (RecordedTrainer if fused else Trainer)(network, loss, adam(network, recipe.learning_rate))
    channels, height, width = shape
    pixels = torch.randint(0, 256, (sizes.batch, height, width, channels), dtype=torch.uint8, device=device)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    trainer.step(Batch(pixels), 0)
    finish(device)
    first, started, numbers = time.perf_counter() - began, seconds_since_start(), count(1)
    ms = milliseconds(lambda: trainer.step(Batch(pixels), next(numbers)), sizes.repeats, device)
    memory = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "train_ms": ms,
        "train_batch": sizes.batch,
        "train_images_per_second": sizes.batch / ms * 1e3,
        "first_step_seconds": first,
        "start_seconds": started if path == "fast" else None,
        "peak_memory_gib": memory / 2**30,
    }


@torch.no_grad()
def measure_sampling(recipe: Recipe, shape: Shape, path: str, device: torch.device, sizes: Sizes) -> dict[str, float]:
    """Milliseconds of a network call, by the number of images."""
    network, sigma = new_network(recipe, shape, path, device), build_schedule(recipe)[3].to(device)

    def measure(size: int) -> float:
        fast = path == "fast"
        score: ConditionalScore = acceleration.for_sampling(network, shape, size=size) if fast else network
        x = torch.rand(size, *shape, device=device)
        return milliseconds(lambda: score(x, sigma), sizes.repeats, device)

    return {str(size): measure(size) for size in sizes.sampling}


def new_network(recipe: Recipe, shape: Shape, path: str, device: torch.device) -> nn.Module:
    """The recipe's network, channels-last; for the plain path in PyTorch's default memory layout."""
    network = build_network(recipe, channels=shape[0]).to(device)
    return network if path == "fast" else network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def forward_flop(recipe: Recipe, shape: Shape) -> int:
    """Floating-point operations of a network call for one image: twice the number of multiplications."""
    network = build_network(recipe, channels=shape[0])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.rand(1, *shape), build_schedule(recipe)[0])
    return int(counter.get_total_flops())


def matrix_peak(device: torch.device) -> float:
    """FLOP/s of a large matrix product: bfloat16 on a GPU, float32 on a CPU."""
    n, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a = torch.randn(n, n, device=device, dtype=dtype)
    return 2 * n**3 / milliseconds(lambda: a @ a, 20, device) * 1e3


def milliseconds(work: Callable[[], object], repeats: int, device: torch.device) -> float:
    """The mean time of many calls, after a few that do not count."""
    for _ in range(3):
        work()
    finish(device)
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    finish(device)
    return (time.perf_counter() - began) * 1e3 / repeats


def finish(device: torch.device) -> None:
    """Wait until the device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


@contextmanager
def chosen_precision(*, tf32: bool) -> Iterator[None]:
    """Inside, convolutions may or may not use TF32. Kernels are chosen by trial."""
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, tf32
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = before


def seconds_since_start() -> float:
    """The age of this process on Linux; elsewhere its processor time."""
    if not sys.platform.startswith("linux"):
        return time.process_time()
    ticks = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / 100
