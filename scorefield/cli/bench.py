"""scorefield bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from scorefield.cli.app import app, prepare_file, say, write_json


@app.command
def bench(
    network: Annotated[Literal["cifar10", "mnist"], tyro.conf.Positional] = "cifar10",
    /,
    *,
    device: str = "auto",
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Measure how fast this machine trains and samples: the plain float32 network against the fast path.

    On a CPU a narrow network at small sizes, where both paths are plain PyTorch and differ in the memory's layout.

    Example: scorefield bench cifar10 --json bench.json

    Args:
        network: The paper's network for which data set.
        device: auto (a GPU where there is one), cpu, cuda, cuda:1, ...
        json_file: Write the numbers to this file as well.
    """
    from scorefield.training.bench import benchmark
    from scorefield.distributed import pick_device

    if json_file is not None:
        prepare_file(json_file, "--json")
    found = benchmark(network, pick_device(device), say=say)
    _tell(found)
    if json_file is not None:
        write_json(json_file, found)


def _tell(found: dict[str, Any]) -> None:
    print(
        f"{found['network']}, width {found['width']}, {found['gflop_per_image']:.2f} GFLOP per image and call, on "
        f"{found['device']} (matrix products: {found['peak_tflops']:.3g} TFLOP/s)"
    )
    plain, fast = found["paths"]["plain"], found["paths"]["fast"]
    rows = [
        (f"training step, batch {fast['train_batch']}", "train_ms", "ms"),
        ("  images per second", "train_images_per_second", ""),
        ("  TFLOP/s", "train_tflops", ""),
        ("  share of the peak", "train_share", ""),
        ("  first step", "first_step_seconds", "s"),
        ("  peak memory", "peak_memory_gib", "GiB"),
        ("sampling, images and calls per second", "calls_per_second", ""),
        ("  TFLOP/s", "sample_tflops", ""),
        ("  share of the peak", "sample_share", ""),
    ]
    print(f"{'':40} {'plain':>10} {'fast':>10} {'ratio':>7}")
    for label, key, unit in rows:
        ratio = max(plain[key], fast[key]) / max(min(plain[key], fast[key]), 1e-12)
        print(f"{label:40} {plain[key]:10.4g} {fast[key]:10.4g} {ratio:6.1f}× {unit}")
    for size in fast["sample_ms"]:
        one, other = plain["sample_ms"][size], fast["sample_ms"][size]
        print(f"{f'network call of {size} images':40} {one:10.4g} {other:10.4g} {one / other:6.1f}× ms")
    print(f"from the start of the process to full speed: {fast['start_seconds']:.1f} s")
