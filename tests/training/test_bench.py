"""What `scorefield bench` measures: which ways on which device, by which trainers, and how it counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from gpu import GPU
from torch import Tensor, nn

from scorefield import acceleration
from scorefield.cli.bench import table
from scorefield.models.recipes import RECIPES
from scorefield.networks import UNet
from scorefield.networks.unet import Conv
from scorefield.training import bench, run
from scorefield.training.bench import Sizes, Way, new_network, new_trainer
from scorefield.training.trainer import Batch

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
TINY = replace(RECIPES["unet-tiny"], width=8, sigma_data=0.48)
SHAPE = (1, 8, 8)


def small_unet() -> UNet:
    return UNet(channels=1, width=8, stages=(1,), blocks=(1,), attention=(0,), labels=2).eval()


@pytest.mark.parametrize(
    ("device", "compiled", "expected"),
    [
        (CUDA, None, ["fast", "plain", "eager", "compiled"]),
        (CUDA, False, ["fast", "plain", "eager"]),
        (CPU, None, ["fast", "plain"]),
        (CPU, True, ["fast", "plain", "compiled"]),
    ],
)
def test_what_is_measured_on_a_device(device: torch.device, compiled: bool | None, expected: list[Way]) -> None:
    assert list(bench.ways(device, compiled=compiled)) == expected


@pytest.mark.parametrize(("name", "batch"), [("unet-cifar10", 256), ("unet-mnist", 256), ("cifar10", 128)])
def test_on_a_gpu_the_recipes_own_network_and_batch_are_measured(
    name: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[tuple[object, ...]]()

    def training(recipe: object, shape: object, way: Way, device: object, sizes: Sizes) -> dict[str, Any]:
        seen.append((recipe, way, sizes.batch, sizes.sampling, torch.backends.cudnn.allow_tf32))
        return {"train_images_per_second": 1000.0}

    monkeypatch.setattr(bench, "measure_training", training)
    monkeypatch.setattr(bench, "measure_sampling", lambda *_: {"sample_ms": {"256": 4.0, "512": 5.0}})
    monkeypatch.setattr(bench, "forward_flop", lambda *_: 2 * 10**9)
    monkeypatch.setattr(bench, "matrix_peak", lambda _: 1e14)
    monkeypatch.setattr(bench, "new_network", lambda *_: None)
    monkeypatch.setattr(bench, "_arithmetic", lambda *_: "float16")
    monkeypatch.setattr(bench, "device_name", str)
    monkeypatch.setattr(bench, "busy", lambda _: [])
    found = bench.benchmark(name, CUDA)
    assert seen == [
        (RECIPES[name], way, batch, (batch, 512), way != "plain") for way in ("fast", "plain", "eager", "compiled")
    ]
    fast = found["paths"]["fast"]
    assert fast["train_tflops"] == pytest.approx(6.0)
    assert fast["best_sample_size"] == 512
    assert fast["sample_tflops"] == pytest.approx(2e9 * 512 / 5e-3 / 1e12)
    assert fast["sample_share"] == pytest.approx(fast["sample_tflops"] / 100)
    assert "one_image" not in found


def test_every_way_trains_the_same_network_with_the_same_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 on a CPU they differ by rounding alone. The compiled one is one graph, compiled once."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # Dynamo, without code generation
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    pixels = torch.randint(0, 256, (3, 8, 8, 1), dtype=torch.uint8)
    batch, graphs = Batch(pixels, torch.tensor([0, 5, 9])), list[int]()
    losses = dict[str, Tensor]()
    for way in ("fast", "plain", "eager", "compiled"):
        trainer = new_trainer(TINY, new_network(TINY, SHAPE, way), way, CPU)
        each = []
        for n in range(3):
            each.append(trainer.step(batch, n).values)
            graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        losses[way] = torch.stack(each)
        assert trainer.averages.keys() == {"ema"}
    for way in ("plain", "eager", "compiled"):
        torch.testing.assert_close(losses[way], losses["fast"], rtol=1e-3, atol=1e-4)
    assert graphs == [0] * 9 + [1] * 3


def test_only_the_fast_way_has_fused_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where the kernels can run unless SCOREFIELD_PLAIN is set."""
    fused = list[nn.Module]()

    def note(network: nn.Module, *, dtype: torch.dtype) -> nn.Module:
        fused.append(network)
        network.bad = torch.zeros(())
        return network

    def has_kernels(network: nn.Module) -> bool:
        return isinstance(network, UNet) and not os.environ.get("SCOREFIELD_PLAIN")

    monkeypatch.setattr(acceleration, "has_fused_kernels", has_kernels)
    monkeypatch.setattr(acceleration, "fused", note)
    monkeypatch.setattr(torch, "compile", lambda network, **_: nn.Sequential(network))  # another module around it
    made = {}
    for way in ("fast", "plain", "eager", "compiled"):
        monkeypatch.setattr(run, "_log_variance", lambda network: torch.zeros_like)
        network = new_network(TINY, SHAPE, way)
        trainer = new_trainer(TINY, network, way, CPU)
        made[way] = type(trainer).__name__, bool(fused), type(trainer.network).__name__
        fused.clear()
        assert "SCOREFIELD_PLAIN" not in os.environ
    assert made == {
        "fast": ("RecordedTrainer", True, "UNet"),
        "plain": ("Trainer", False, "UNet"),
        "eager": ("Trainer", False, "UNet"),
        "compiled": ("Trainer", False, "Sequential"),
    }
    monkeypatch.setenv("SCOREFIELD_PLAIN", "0")
    with bench.without_kernels():
        assert os.environ["SCOREFIELD_PLAIN"] == "1"
    assert os.environ["SCOREFIELD_PLAIN"] == "0"


def test_sampling_is_measured_in_the_precision_of_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """In evaluation mode, at every size, with labels; in bfloat16 where the recipe's training would be."""
    seen = list[tuple[object, ...]]()

    class Watched(nn.Module):
        def forward(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
            seen.append((len(x), len(label), self.training, torch.is_autocast_enabled("cpu")))
            return x

    monkeypatch.setattr(bench, "new_network", lambda *_: Watched())
    monkeypatch.setattr(torch, "compile", lambda network, **_: network)
    for way, half in (("fast", False), ("plain", False), ("eager", True), ("compiled", True)):
        seen.clear()
        recipe = replace(TINY, precision="bfloat16")
        found = bench.measure_sampling(recipe, SHAPE, way, CPU, Sizes(2, (2, 4), 1))  # type: ignore[arg-type]
        assert seen == [(n, n, False, half) for n in (2, 4) for _ in range(5)]  # the first, 3 that do not count, and 1
        assert found["sample_ms"].keys() == {"2", "4"}
    monkeypatch.setattr(run, "cpu_has_bfloat16", lambda: True)
    assert run.arithmetic(TINY, nn.Identity(), CPU) is torch.float32  # a CPU's compiled column
    assert run.arithmetic(TINY, new_network(TINY, SHAPE), CPU) is torch.bfloat16


def test_operations_counted_by_hand() -> None:
    """4 × 4 pixels, 8 channels; a block has two 3 × 3 convolutions, a linear map, and attention among 16 places."""
    attention = 16 * 8 * 24 + 2 * 16 * 16 * 8 + 16 * 8 * 8
    down = 2 * (16 * 8 * 8 * 9) + 8 * 8 + attention
    up = 16 * 16 * 8 + 16 * 16 * 8 * 9 + 16 * 8 * 8 * 9 + 8 * 8 + attention
    ends = 16 * 2 * 8 * 9 + 16 * 8 * 1 * 9 + 8 * 8
    assert bench.forward_flop(small_unet(), (1, 4, 4), 1.0) == 2 * (2 * down + up + ends)


@torch.no_grad()
def test_convolutions_alone_are_those_of_a_call() -> None:
    """The same inputs in the same memory layout, and the same outputs, in the same order; no hook is left."""
    network = small_unet().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    outputs = list[Tensor]()
    convs = [module for module in network.modules() if isinstance(module, Conv)]
    hooks = [conv.register_forward_hook(lambda module, inputs, output: outputs.append(output)) for conv in convs]
    call: Callable[[], object] = partial(network, torch.rand(1, 1, 4, 4), torch.tensor(0.5))
    alone = bench.convolutions_of(network, call)
    for hook in hooks:
        hook.remove()
    assert len(alone) == 3 * 5 + 1 + 3  # conv1, conv2, scale, qkv, out; a shortcut; begin, end, embed
    for each, output in zip(alone, outputs, strict=True):
        assert each().stride() == output.stride()
        torch.testing.assert_close(each(), output, rtol=0, atol=0)
    call()
    assert len(alone) == len(outputs) == 19


def test_medians_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = [0.0], list[str]()
    lasts = {"a": iter([90, 1, 5, 2]), "b": iter([90, 30, 10, 20])}

    def work(name: str) -> None:
        order.append(name)
        now[0] += next(lasts[name]) / 1e3

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = bench.medians(partial(work, "a"), partial(work, "b"), repeats=3)
    assert found == [pytest.approx(2.0), pytest.approx(20.0)]
    assert order == ["a", "b"] * 4


def numbers(train_ms: float, call_ms: float) -> dict[str, Any]:
    rates = ("train_images_per_second", "train_tflops", "train_share", "calls_per_second", "sample_tflops")
    return {
        "train_ms": train_ms,
        "train_batch": 256,
        **dict.fromkeys(rates, 1e3 / train_ms),
        "sample_share": 0.1,
        "first_step_seconds": 85.4,
        "first_call_seconds": 21.3,
        "start_seconds": 19.0,
        "peak_memory_gib": 7.5,
        "sample_ms": {"256": call_ms},
    }


def test_the_table_has_all_columns_and_says_where_the_fast_path_is_not_faster() -> None:
    times = {"fast": (40.0, 10.0), "plain": (400.0, 110.0), "eager": (80.0, 30.0), "compiled": (50.0, 8.0)}
    found: dict[str, Any] = {
        "network": "unet-cifar10",
        "width": 128,
        "gflop_per_image": 15.97,
        "device": "a GPU",
        "peak_tflops": 800.0,
        "paths": {way: numbers(*each) for way, each in times.items()},
    }
    lines = table(found)
    assert max(map(len, lines)) <= 110
    head, step, rate = (line.split() for line in lines[1:4])
    assert head == ["plain", "eager", "compiled", "fast", "plain/fast", "compiled/fast"]
    assert step == ["training", "step,", "batch", "256", "400", "80", "50", "40", "10.00×", "1.25×", "ms"]
    assert rate == ["images", "per", "second", "2.5", "12.5", "20", "25", "10.00×", "1.25×"]
    call = next(line for line in lines if line.startswith("network call of 256 images"))
    assert call.split()[-7:] == ["110", "30", "8", "10", "11.00×", "0.80×", "ms"]
    assert "torch.compile: 85 s to the first training step, 21 s to the first call" in lines
    del found["paths"]["compiled"], found["paths"]["eager"]
    assert table(found)[1].split() == ["plain", "fast", "plain/fast"]


class TestOnAGpu:
    pytestmark = GPU

    def test_every_way_runs_on_a_gpu(self) -> None:
        """Only the fast way is recorded."""
        recipe, sizes = replace(TINY, width=16, dropout=0.1), Sizes(16, (16, 32), 2)
        for way in bench.ways(CUDA):
            trainer = new_trainer(recipe, new_network(recipe, (1, 16, 16), way, CUDA), way, CUDA)
            assert (type(trainer).__name__ == "RecordedTrainer") == (way == "fast")
            trained = bench.measure_training(recipe, (1, 16, 16), way, CUDA, sizes)
            sampled = bench.measure_sampling(recipe, (1, 16, 16), way, CUDA, sizes)
            assert trained["train_ms"] > 0
            assert 0 < trained["peak_memory_gib"] < 1
            assert all(0 < ms < 1e4 for ms in sampled["sample_ms"].values())
