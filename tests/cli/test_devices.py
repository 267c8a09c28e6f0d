"""--device and torchrun's variables: what is missing is named, and Apple GPUs work as far as a CPU can tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_mps import OnMps, fake_mps
from PIL import Image
from small_evaluation import dots, read_json
from small_evaluation import small as small

from cli.calls import failure
from scorefield import cli
from scorefield.cli import main
from scorefield.distributed import device_name, float64_device, joined, pick_device
from scorefield.noise import SampleNoise
from scorefield.training.logs import LossMeter
from scorefield.training.trainer import Losses, not_finite


@pytest.mark.parametrize("name", ["meta", "mps:1", "cpu:1", "xpu", "toaster", "cuda:-1", ""])
def test_devices_that_do_not_exist(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = failure(capsys, "sample", run, "--device", name)
    assert (code, said) == (2, f"scorefield: no device is called {name} (use auto, cpu, cuda, cuda:1 or mps)\n")


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has an Apple GPU")
def test_an_apple_gpu_that_is_not_there(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = failure(capsys, "sample", run, "--device", "mps")
    assert (code, said) == (2, "scorefield: this PyTorch sees no Apple GPU (use --device cpu)\n")


def test_a_gpu_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"there is no cuda:3: this machine has 1 GPU$"):
        pick_device("cuda:3")


def test_auto_does_not_choose_an_apple_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")
    assert pick_device("mps") == pick_device("mps:0") == torch.device("mps", 0)
    assert "Apple GPU" in device_name(torch.device("mps"))
    assert [float64_device(name).type for name in ("mps", "cpu", "cuda")] == ["cpu", "cpu", "cuda"]


# ---------------------------------------------------------------- torchrun's variables


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2, but no RANK and no MASTER_ADDR and no MASTER_PORT"),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "WORLD_SIZE=2, but no RANK ("),
        ({"WORLD_SIZE": "many"}, "WORLD_SIZE=many, which is no number"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0 and RANK=0"),
        ({"RANK": "1"}, "WORLD_SIZE=1 and RANK=1"),
        ({"RANK": "-1", "LOCAL_RANK": "x"}, "RANK=-1, LOCAL_RANK=x, which is no number"),
    ],
)
def test_half_of_torchruns_variables(
    given: dict[str, str], words: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    code, said = failure(capsys, "sample", run)
    assert code == 2
    assert words in said
    assert "start several processes with torchrun" in said


def test_several_processes_do_not_share_an_apple_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="without torchrun, or use --device cpu"), joined("mps"):
        pass


# ---------------------------------------------------------------- an Apple GPU, played by the CPU


def test_the_fake_is_as_strict_as_the_real_one() -> None:
    with fake_mps():
        x = torch.zeros(3, 2).to("mps:0")
        assert isinstance(x, OnMps)
        assert (x.device.type, (x + 1)[1:, 0].device.type, (x + 1).cpu()[2, 1].item()) == ("mps", "mps", 1.0)
        with pytest.raises(TypeError, match="float64"):
            x.double()
        with pytest.raises(TypeError, match="float64"):
            torch.zeros(2, dtype=torch.float64, device="mps:0")


def test_an_apple_gpu_makes_the_images_that_a_cpu_makes(run: Path, tmp_path: Path) -> None:
    """By the sampler with a constraint; without one it does less."""
    Image.fromarray(dots(1, 0, (33, 47))[0]).save(tmp_path / "image.png")
    words = ["inpaint", str(run), "--image", str(tmp_path / "image.png"), "-n", "1", "--steps", "1", "--denoise"]
    main([*words, "--device", "cpu", "--out", str(tmp_path / "cpu.npy")])
    with fake_mps():
        main([*words, "--device", "mps", "--out", str(tmp_path / "mps.npy")])
    made = [np.load(tmp_path / f"{device}.npy").astype(int) for device in ("cpu", "mps")]
    assert np.abs(made[0] - made[1]).max() <= 1


def test_an_apple_gpu_measures_what_a_cpu_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", dots(40, 1))
    np.save(tmp_path / "b.npy", dots(50, 2))
    calls = {"evaluate": [], "neighbors": ["--out", str(tmp_path / "n.png")]}
    calls["neighbors --space inception"] = calls["neighbors"]
    for call, more in calls.items():
        found = {}
        for device in ("cpu", "mps"):
            monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / device))
            with fake_mps():
                out = tmp_path / "numbers.json"
                words = [*call.split(), str(tmp_path / "a.npy"), "--data", str(tmp_path / "b.npy"), *more]
                main([*words, "--device", device, "--json", str(out)])
            found[device] = read_json(out)
        names = (
            ("fid", "kid", "precision", "recall", "inception_score") if call == "evaluate" else ("held_out_distance",)
        )
        for name in names:
            assert found["mps"][name] == pytest.approx(found["cpu"][name], rel=1e-5), (call, name)


def test_what_training_needs_of_an_apple_gpu() -> None:
    """The noise, the losses by level and the check for overflow. (Gradients cannot be played.)"""
    place = torch.device("mps", 0)
    with fake_mps():
        noise, same = (SampleNoise.at_step(3, 5, range(4), device=device) for device in (place, "cpu"))
        x, y = noise.randn((2, 3)), same.randn((2, 3))
        assert x.device.type == noise.choice(7).device.type == "mps"
        assert noise._key.device.type == "cpu"  # where the 64-bit arithmetic is
        assert torch.equal(x.cpu(), y)
        assert torch.equal(noise.copy().rand_like(x).cpu(), same.rand_like(y))
        meter = LossMeter([1.0, 0.1], place)
        meter.add(Losses(torch.tensor([1.0, 2.0, 6.0]).to(place), torch.tensor([1.0, 0.1, 0.1]).to(place)), 1)
        with joined("mps") as group:
            assert list(meter.look(group).values()) == [3.0, 1.0, 4.0]
        assert not_finite([x, x]).item() == 0
        assert not_finite([x, (x / 0).log()]).item() == 1


# ---------------------------------------------------------------- memory


def use_up() -> None:
    torch.empty(10**15)


def use_up_by_numpy() -> None:
    np.empty(10**15)


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        (use_up, "can't allocate memory: you tried to allocate 4000000000000000 bytes"),
        (use_up_by_numpy, "Unable to allocate"),
        (failing(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")), "CUDA out of memory"),
        (failing(RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)")), "MPS backend"),
        (failing(MemoryError()), "there is too little"),
    ],
)
def test_too_little_memory_is_told_with_the_fix(
    fail: Callable[[], None], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "run_command", lambda *_: fail())
    for command, fix in {"sample": "--batch-size", "train": "--micro-batch or --width"}.items():
        code, said = failure(capsys, command)
        assert code == 1
        assert said.startswith("scorefield: out of memory: ")
        assert words in said
        assert said.endswith(f"(a smaller {fix} needs less)\n")
        assert said.count("\n") == 1


@pytest.mark.parametrize("words", ["the format of the memory is wrong", "memory_format must be contiguous"])
def test_an_error_that_speaks_of_memory_keeps_its_traceback(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "run_command", lambda *_: failing(RuntimeError(words))())
    with pytest.raises(RuntimeError, match=words):
        main(["sample"])
