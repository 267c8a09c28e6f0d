"""How fast training and sampling are on this machine: the fast path against what plain PyTorch does."""

from __future__ import annotations

import gc
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from scorefield import acceleration
from scorefield.acceleration.beside import measure as beside_a_busy_program
from scorefield.acceleration.threads import multiplications, pytorch_threads, shares
from scorefield.distributed import Group, device_name
from scorefield.models.build import build_network, build_schedule
from scorefield.models.model import Model
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.networks.unet import Conv
from scorefield.progress import plural
from scorefield.samplers import AdamsBashforth
from scorefield.score import ConditionalScore
from scorefield.training import run
from scorefield.training.trainer import Batch, Trainer

Shape = tuple[int, int, int]
SHAPES: dict[str, Shape] = {
    "mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
    "unet-mnist": (1, 28, 28),
    "unet-cifar10": (3, 32, 32),
}
CPU_WIDTHS = {"mnist": 16, "cifar10": 16, "unet-cifar10": 32}
"""Narrower networks, for a CPU."""
LABELS = 10
"""The number of classes of both data sets."""

Way = Literal["fast", "plain", "eager", "compiled"]
"""How the network is computed: as `train` and `sample` do it; in float32, kernel by kernel; in bfloat16, kernel by
kernel; and by torch.compile, in bfloat16. On a CPU all are float32, except fast training of a U-Net on a CPU that has
instructions for bfloat16."""


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


def benchmark(
    name: str,
    device: torch.device,
    *,
    compiled: bool | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Times, rates and memory of one of the networks; on a CPU of a narrower one, with small batches.

    Shares are relative to the speed of large matrix products. `compiled`: whether to measure torch.compile, too, which
    takes minutes; by default on a GPU.
    """
    recipe, shape, cpu = RECIPES[name], SHAPES[name], device.type == "cpu"
    sizes = Sizes(recipe.batch_size, (recipe.batch_size, 512), 20)
    if cpu:
        recipe, sizes = replace(recipe, width=CPU_WIDTHS.get(name, recipe.width)), Sizes(8, (8,), 3)
    paths, warnings = {}, busy(device)
    for warning in warnings:
        say(f"warning: {warning}, so that the times below may be too long (run it again when the machine is idle)")
    for way in ways(device, compiled=compiled):
        with chosen_precision(tf32=way != "plain"):
            began = time.perf_counter()
            paths[way] = measure_training(recipe, shape, way, device, sizes)
            paths[way] |= measure_sampling(recipe, shape, way, device, sizes)
        say(f"{way}: measured in {time.perf_counter() - began:.0f} s")
    flop, peak = forward_flop(new_network(recipe, shape), shape, recipe.sigma_max), matrix_peak(device)
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
    return {
        "network": name,
        "width": recipe.width,
        "device": device_name(device),
        "torch": torch.__version__,
        "training_arithmetic": _arithmetic(recipe, shape, device),
        "gflop_per_image": flop / 1e9,
        "peak_tflops": peak / 1e12,
        "warnings": warnings,
        "paths": paths,
        **(_on_a_cpu(name, recipe, shape) if cpu else {}),
    }


def _arithmetic(recipe: Recipe, shape: Shape, device: torch.device) -> str:
    """The type of number that the fast way trains with."""
    network = new_network(recipe, shape, device=device)
    return str(run.arithmetic(recipe, network, device)).removeprefix("torch.")


def _on_a_cpu(name: str, recipe: Recipe, shape: Shape) -> dict[str, Any]:
    """What is measured on a CPU alone: for the paper's networks the rule for threads, for a U-Net, in its real width,
    how much of a call is convolutions, and how long a few samples take."""
    if recipe.network != "unet":
        beside = beside_a_busy_program()
        return {"step_ms_beside_a_busy_program": beside} if beside else {}
    whole = RECIPES[name]
    one = {"width": whole.width, **measure_convolutions(new_network(whole, shape).eval(), shape)}
    samples = {"n": 16, "calls": 10, "seconds": sampling_seconds(recipe, shape, n=16, calls=10)}
    return {"one_image": one, "samples": samples}


def ways(device: torch.device, *, compiled: bool | None = None) -> Sequence[Way]:
    """What is measured on this device. The fast path comes first, because it also measures how long a fresh process
    takes."""
    gpu = device.type == "cuda"
    found: list[Way] = ["fast", "plain"]
    if gpu:
        found.append("eager")
    if gpu if compiled is None else compiled:
        found.append("compiled")
    return found


def measure_training(recipe: Recipe, shape: Shape, way: Way, device: torch.device, sizes: Sizes) -> dict[str, Any]:
    """Milliseconds of an update, seconds until the first one is done, and the largest amount of memory used."""
    cuda, (channels, height, width) = device.type == "cuda", shape
    forget(way, device)
    trainer = new_trainer(recipe, new_network(recipe, shape, way, device), way, device)
    pixels = torch.randint(0, 256, (sizes.batch, height, width, channels), dtype=torch.uint8, device=device)
    batch = Batch(pixels, labels_for(recipe, sizes.batch, device))
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    trainer.step(batch, 0)
    finish(device)
    first, started, numbers = time.perf_counter() - began, seconds_since_start(), count(1)
    ms = milliseconds(lambda: trainer.step(batch, next(numbers)), sizes.repeats, device)
    memory = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "train_ms": ms,
        "train_batch": sizes.batch,
        "train_images_per_second": sizes.batch / ms * 1e3,
        "first_step_seconds": first,
        "start_seconds": started if way == "fast" else None,
        "peak_memory_gib": memory / 2**30,
    }


def new_trainer(recipe: Recipe, network: nn.Module, way: Way, device: torch.device) -> Trainer:
    """The trainer that `train` makes; for eager and compiled what it makes for a network of a user's own, which has no
    kernels. The compiled one draws the random numbers of its dropout by torch.rand_like."""
    group = Group(0, 1, device)
    if way == "fast":
        return run._trainer(recipe, group, network)
    if way == "plain":
        return run._trainer(replace(recipe, precision="float32"), group, network)
    own = replace(recipe, network=type(network).__name__)
    with without_kernels():
        return run._trainer(own, group, torch.compile(network) if way == "compiled" else network)  # type: ignore[arg-type]


@torch.no_grad()
def measure_sampling(recipe: Recipe, shape: Shape, way: Way, device: torch.device, sizes: Sizes) -> dict[str, Any]:
    """Milliseconds of a network call, by the number of images, and the seconds of the first one."""
    forget(way, device)
    network, sigma = new_network(recipe, shape, way, device).eval(), build_schedule(recipe)[3].to(device)
    other = way in ("eager", "compiled")
    autocast = run.autocast(run.arithmetic(recipe, nn.Identity(), device), device) if other else nullcontext
    firsts, times = list[float](), dict[str, float]()
    for size in sizes.sampling:
        score: ConditionalScore = network
        if way == "fast":
            score = acceleration.for_sampling(network, shape, size=size)
        elif way == "compiled":
            score = torch.compile(network, dynamic=False)
        labels = labels_for(recipe, size, device)
        call = partial(
            score, torch.rand(size, *shape, device=device), sigma, **({} if labels is None else {"label": labels})
        )
        with autocast():
            began = time.perf_counter()
            call()
            finish(device)
            firsts.append(time.perf_counter() - began)
            times[str(size)] = milliseconds(call, sizes.repeats, device)
    return {"sample_ms": times, "first_call_seconds": firsts[0]}


def new_network(recipe: Recipe, shape: Shape, way: Way = "fast", device: torch.device | str = "cpu") -> nn.Module:
    """The recipe's network, channels-last; for the plain way in PyTorch's default memory layout."""
    network = build_network(recipe, channels=shape[0], labels=LABELS if recipe.labels else 0).to(device)
    return network.to(memory_format=torch.contiguous_format) if way == "plain" else network  # type: ignore[call-overload]


def labels_for(recipe: Recipe, n: int, device: torch.device) -> Tensor | None:
    """Classes of n images, where the network learns them."""
    return torch.arange(n, device=device) % LABELS if recipe.labels else None


@torch.no_grad()
def measure_convolutions(network: nn.Module, shape: Shape, *, repeats: int = 9) -> dict[str, float]:
    """Milliseconds of a U-Net's call for one image, and of its convolutions and linear maps alone: medians, with the
    number of threads that sampling uses for one image."""
    call = partial(network, torch.rand(1, *shape), torch.tensor(0.5))
    alone = convolutions_of(network, call)
    _, threads = shares(torch.get_num_threads(), 1, multiplications(network, shape))
    with pytorch_threads(threads):
        whole, convs = medians(call, lambda: [each() for each in alone], repeats=repeats)
    return {"threads": threads, "call_ms": whole, "convolutions_ms": convs, "ratio": whole / convs}


def convolutions_of(network: nn.Module, call: Callable[[], object]) -> list[Callable[[], Tensor]]:
    """The convolutions and linear maps that a call of the network makes, each with its input there."""
    found = list[Callable[[], Tensor]]()

    def note(conv: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found.append(partial(conv.forward, *inputs))

    hooks = [conv.register_forward_pre_hook(note) for conv in network.modules() if isinstance(conv, Conv)]
    call()
    for hook in hooks:
        hook.remove()
    return found


def medians(*works: Callable[[], object], repeats: int) -> list[float]:
    """The median time of each, in milliseconds, in turns, so that all of them meet the same machine."""
    times: list[list[float]] = [[] for _ in works]
    for repeat in range(repeats + 1):
        for each, work in zip(times, works, strict=True):
            began = time.perf_counter()
            work()
            if repeat:  # the first does not count
                each.append((time.perf_counter() - began) * 1e3)
    return [statistics.median(each) for each in times]


def sampling_seconds(recipe: Recipe, shape: Shape, *, n: int, calls: int) -> float:
    """How long n samples in that many network calls take on a CPU, in a process that has not sampled before."""
    sampler = AdamsBashforth(calls=calls)
    names = tuple(map(str, range(LABELS))) if recipe.labels else ()
    model = Model(new_network(recipe, shape).eval(), shape, sampler, names, recipe=recipe)
    began = time.perf_counter()
    model.sample(n)
    return time.perf_counter() - began


def forward_flop(network: nn.Module, shape: Shape, sigma: float) -> int:
    """Floating-point operations of a network call for one image: twice the number of multiplications.

    Attention is computed by plain matrix products, because not all of its kernels are counted.
    """
    device = acceleration.device_of(network)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        network(torch.rand(1, *shape, device=device), torch.tensor(sigma, device=device))
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


def forget(way: Way, device: torch.device) -> None:
    """Free what the measurement before has left: memory, and compiled code, so that each one compiles its own."""
    gc.collect()
    if way == "compiled":  # otherwise Dynamo would be imported for nothing, which takes seconds
        torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def without_kernels() -> Iterator[None]:
    """Inside, networks are not given fused kernels."""
    before = os.environ.get("SCOREFIELD_PLAIN")
    os.environ["SCOREFIELD_PLAIN"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["SCOREFIELD_PLAIN"]
        else:
            os.environ["SCOREFIELD_PLAIN"] = before


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
