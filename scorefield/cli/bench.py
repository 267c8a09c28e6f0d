"""scorefield bench."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import tyro

from scorefield.cli.app import Device, JsonFile, command, prepare_file, say
from scorefield.files import write_json
from scorefield.progress import plural

Network = Literal["cifar10", "mnist", "unet-cifar10", "unet-mnist"]
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
"""Rows of the table: label, key of the numbers, unit. Of those without a unit more is better, of the others less."""
COLUMNS = ("plain", "eager", "compiled", "fast")


@command
def bench(
    network: Annotated[Network, tyro.conf.Positional] = "cifar10",
    /,
    *,
    device: Device = "auto",
    compiled: Literal["auto", "yes", "no"] = "auto",
    json_file: JsonFile = None,
) -> None:
    """Measure how fast this machine trains and samples: the fast path against what plain PyTorch does.

    The columns: plain is float32 without TF32, kernel by kernel; eager is bfloat16, kernel by kernel; compiled is the
    same network by torch.compile, in bfloat16; fast is what train and sample do. The last columns say how many times
    better the fast path is.

    On a CPU a narrower network is measured with small batches. There all columns are plain PyTorch in float32; plain
    and fast differ in the memory layout, and in the threads that share a batch in sampling. Only the fast training of a
    U-Net is in bfloat16, if the CPU has instructions for it. For the paper's networks the last rows compare PyTorch's
    own threads with the rule that sampling follows, also beside a program that keeps one core busy. For a U-Net they
    compare a call of the network in its real width with its convolutions alone. A warning is printed if other programs
    use the machine.

    Example: scorefield bench cifar10 --json bench.json

    Args:
        network: The recipe whose network is measured. cifar10 and mnist have the paper's.
        compiled: Measure torch.compile, too. It compiles for a minute or more; auto is yes on a GPU and no on a CPU.
    """
    from scorefield.distributed import pick_device
    from scorefield.training.bench import benchmark

    prepare_file(json_file, "--json")
    wanted = {"auto": None, "yes": True, "no": False}[compiled]
    found = benchmark(network, pick_device(device), compiled=wanted, say=say)
    for line in table(found):
        print(line)
    if json_file is not None:
        given = {"device": device, "compiled": compiled}
        options = "".join(f" --{name} {value}" for name, value in given.items() if value != "auto")
        write_json(json_file, {"command": f"scorefield bench {network}{options} --json {json_file.name}", **found})


def table(found: dict[str, Any]) -> list[str]:
    """The numbers for people."""
    paths = {name: found["paths"][name] for name in COLUMNS if name in found["paths"]}
    fast, against = paths["fast"], [name for name in ("plain", "compiled") if name in paths]

    def row(label: str, values: dict[str, float], unit: str) -> str:
        gains = [values["fast"] / values[name] if not unit else values[name] / values["fast"] for name in against]
        numbers = "".join(f" {values[name]:9.4g}" for name in paths)
        return f"{label:38}{numbers}{''.join(f' {gain:12.2f}×' for gain in gains)} {unit}".rstrip()

    lines = [
        f"{found['network']}, width {found['width']}, {found['gflop_per_image']:.3g} GFLOP per image and call, on "
        f"{found['device']} (peak, of matrix products: {found['peak_tflops']:.3g} TFLOP/s)",
        "".join([" " * 38, *(f" {name:>9}" for name in paths), *(f" {name + '/fast':>13}" for name in against)]),
    ]
    for label, key, unit in ((f"training step, batch {fast['train_batch']}", "train_ms", "ms"), *ROWS):
        lines.append(row(label, {name: numbers[key] for name, numbers in paths.items()}, unit))
    for size in fast["sample_ms"]:
        label = f"network call of {plural(int(size), 'image')}"
        lines.append(row(label, {name: numbers["sample_ms"][size] for name, numbers in paths.items()}, "ms"))
    lines += _beside(found.get("step_ms_beside_a_busy_program", {}))
    if (one := found.get("one_image")) is not None:
        lines.append(
            f"one image, width {one['width']}, {plural(one['threads'], 'thread')}: {one['call_ms']:.4g} ms a network "
            f"call, {one['convolutions_ms']:.4g} ms its convolutions alone, ratio {one['ratio']:.2f}"
        )
    if (samples := found.get("samples")) is not None:
        lines.append(f"{samples['n']} samples in {samples['calls']} calls: {samples['seconds']:.2f} s")
    if (compiled := paths.get("compiled")) is not None:
        training, sampling = compiled["first_step_seconds"], compiled["first_call_seconds"]
        lines.append(f"torch.compile: {training:.0f} s to the first training step, {sampling:.0f} s to the first call")
    lines.append(f"from the start of the process to the end of the first training step: {fast['start_seconds']:.1f} s")
    return lines


def _beside(jobs: dict[str, Any]) -> list[str]:
    """PyTorch's own threads, and the rule that sampling follows: milliseconds of a step, idle and busy."""
    lines = [f"{'':38} {'PyTorch':>9} {'our rule':>9}"] if jobs else []
    for job, times in jobs.items():
        for when in ("idle", "busy"):
            label = f"a step of {job}" + (", beside a busy program" if when == "busy" else "")
            one, other = times["pytorch"][when], times["scorefield"][when]
            lines.append(f"{label:38} {one:9.4g} {other:9.4g} {one / other:9.2f}× ms")
    return lines
