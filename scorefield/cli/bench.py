"""scorefield bench."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import tyro

from scorefield.cli.app import Device, JsonFile, command, prepare_file, say
from scorefield.files import write_json
from scorefield.progress import plural

ROWS = [
    ("  images per second", "train_images_per_second", ""),
    ("  TFLOP/s", "train_tflops", ""),
    ("  share of the peak", "train_share", ""),
    ("  first step", "first_step_seconds", "s"),
    ("  peak memory", "peak_memory_gib", "GiB"),
    ("sampling, images and calls per second", "calls_per_second", ""),
    ("  TFLOP/s", "sample_tflops", ""),
    ("  share of the peak", "sample_share", ""),
]
"""Rows of the table: label, key of the numbers, unit."""


@command
def bench(
    network: Annotated[Literal["cifar10", "mnist"], tyro.conf.Positional] = "cifar10",
    /,
    *,
    device: Device = "auto",
    json_file: JsonFile = None,
) -> None:
    """Measure how fast this machine trains and samples: the plain float32 network against the fast path.

    On a CPU a narrower network is measured with small batches. There both paths are plain PyTorch; they differ in the
    memory layout, and in the threads that share a batch in sampling. The last rows compare PyTorch's own threads with
    the rule that sampling follows, also beside a program that keeps one core busy. A warning is printed if other
    programs use the machine.

    Example: scorefield bench cifar10 --json bench.json

    Args:
        network: The data set whose network, the paper's, is measured.
    """
    from scorefield.distributed import pick_device
    from scorefield.training.bench import benchmark

    prepare_file(json_file, "--json")
    found = benchmark(network, pick_device(device), say=say)
    _print(found)
    if json_file is not None:
        write_json(json_file, {"command": f"scorefield bench {network} --json {json_file.name}", **found})


def _print(found: dict[str, Any]) -> None:
    plain, fast = found["paths"]["plain"], found["paths"]["fast"]
    print(
        f"{found['network']}, width {found['width']}, {found['gflop_per_image']:.2f} GFLOP per image and call, on "
        f"{found['device']} (peak, of matrix products: {found['peak_tflops']:.3g} TFLOP/s)"
    )
    print(f"{'':40} {'plain':>10} {'fast':>10} {'ratio':>7}")
    for label, key, unit in ((f"training step, batch {fast['train_batch']}", "train_ms", "ms"), *ROWS):
        one, other = plain[key], fast[key]
        print(f"{label:40} {one:10.4g} {other:10.4g} {max(one, other) / max(min(one, other), 1e-12):6.1f}× {unit}")
    for size, other in fast["sample_ms"].items():
        one, label = plain["sample_ms"][size], f"network call of {plural(int(size), 'image')}"
        print(f"{label:40} {one:10.4g} {other:10.4g} {one / other:6.1f}× ms")
    for job, times in found.get("step_ms_beside_a_busy_program", {}).items():
        for when in ("idle", "busy"):
            label = f"a step of {job}" + (", beside a busy program" if when == "busy" else "")
            one, other = times["pytorch"][when], times["scorefield"][when]
            print(f"{label:40} {one:10.4g} {other:10.4g} {one / other:6.1f}× ms")
    print(f"from the start of the process to the end of the first training step: {fast['start_seconds']:.1f} s")
