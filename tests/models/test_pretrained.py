"""Pretrained models: found by their names, whole, and as good as their reports say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import scorefield
from models.small_models import model
from scorefield.cli import main
from scorefield.cli.evaluate import resolve_subject
from scorefield.cli.options import Sampling
from scorefield.data.named import SETS
from scorefield.distributed import Group
from scorefield.evaluation.digits import judge
from scorefield.evaluation.sources import resolve_model
from scorefield.models import pretrained
from scorefield.models.build import build_sampler
from scorefield.models.model import load
from scorefield.samplers import AnnealedLangevin, ConsistentAnnealed

CPU = torch.device("cpu")
RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two pretrained models, mnist at step 1 and mnist-small at step 2, and an empty working folder."""
    monkeypatch.setattr(pretrained, "FOLDERS", [tmp_path / "beside", tmp_path / "inside"])
    model(tmp_path / "beside" / "mnist.safetensors", step=1)
    model(tmp_path / "inside" / "mnist-small.safetensors", step=2)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_a_pretrained_model_is_loaded_by_its_name(weights: Path) -> None:
    assert scorefield.load("mnist").step == 1
    assert scorefield.load("mnist-small").step == 2
    assert scorefield.load("model:mnist-small").step == 2
    assert scorefield.load("mnist-small", weights="raw").weights == "raw"


def test_a_path_beats_a_name_and_the_prefix_beats_a_path(weights: Path) -> None:
    model(weights / "mnist-small", step=3)
    model(weights / "mnist" / "checkpoints" / "model-00000004.safetensors", step=4)
    assert scorefield.load("mnist-small").step == 3
    assert scorefield.load("mnist").step == 4
    assert scorefield.load("model:mnist-small").step == 2
    model(weights / "model:mnist", step=5)
    assert scorefield.load("model:mnist").step == 1


def test_a_folder_that_hides_a_pretrained_model_is_said_to(weights: Path) -> None:
    (weights / "mnist").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"mnist holds no whole checkpoint .*pretrained model of that name is model:"
    ):
        scorefield.load("mnist")


def test_an_unknown_name_brings_the_list_of_those_known(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = r"\(pretrained models: mnist, mnist-small\)"
    with pytest.raises(FileNotFoundError, match="no file mnits, and no pretrained model of that name " + names):
        scorefield.load("mnits")
    with pytest.raises(FileNotFoundError, match="no pretrained model mnits " + names):
        scorefield.load("model:mnits")
    monkeypatch.setattr(pretrained, "FOLDERS", [weights / "nowhere"])
    with pytest.raises(FileNotFoundError, match=r"\(pretrained models: none in this installation\)"):
        scorefield.load("mnist")


def test_the_commands_take_names(weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["info", "mnist-small"])
    told = capsys.readouterr().out
    assert "mnist-small: refinenet" in told
    assert "scorefield sample mnist-small" in told
    for name in ("mnist-small", "model:mnist"):
        main(["sample", name, "-n", "2", "--device", "cpu", "--out", "samples.npy"])
        assert (weights / "samples.npy").exists()
        (weights / "samples.npy").unlink()
    main(["sample", "mnist-small", "-n", "1", "--device", "cpu", "--out", "image.png"])
    main(["inpaint", "mnist-small", "--image", "image.png", "-n", "1", "--device", "cpu", "--out", "filled.png"])
    capsys.readouterr()
    for command in (["sample", "mnits"], ["info", "mnits"], ["evaluate", "mnits"], ["neighbors", "mnits"]):
        with pytest.raises(SystemExit) as stopped:
            main(command)
        assert stopped.value.code == 2
        assert "pretrained models: mnist, mnist-small" in capsys.readouterr().err


def test_an_objective_without_held_out_images_is_an_error(weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", "model:mnist", "-n", "0", "--device", "cpu"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "there are no held-out images: model:mnist was trained on /home/somebody/photos/" in said


def test_where_images_may_be_meant_a_data_sets_name_is_the_data_set(weights: Path) -> None:
    def step_of(name: str) -> int | None:
        found = resolve_model(name, weights=None, device=CPU)
        return None if found is None else found.step

    assert all(step_of(name) is None for name in SETS)
    assert step_of("mnist:test") is None
    assert step_of("model:mnist") == 1
    assert step_of("mnist-small") == step_of("model:mnist-small") == 2
    (weights / "mnist-small").mkdir()  # a folder of images, say
    assert step_of("mnist-small") is None
    cure = r"\(it is weights/cifar10.safetensors in a checkout: .*; pretrained models: mnist, mnist-small\)"
    with pytest.raises(FileNotFoundError, match="no pretrained model cifar10 " + cure):
        step_of("model:cifar10")
    with pytest.raises(ValueError, match=r"'mnits' does not exist.*mnist, mnist-small; data sets: mnist, cifar10"):
        step_of("mnits")


@pytest.mark.parametrize("name", sorted(pretrained.pretrained_models()))
def test_the_pretrained_models(name: str) -> None:
    """They are whole, small, of one set of weights, and say nothing of the machine they come from."""
    path = pretrained.pretrained_models()[name]
    found = load(f"model:{name}")
    assert len(found.held) == 1
    installed = path.parent == pretrained.FOLDERS[-1]  # in the package, not beside it
    assert path.stat().st_size < (25e6 if installed else 64e6)
    assert installed == (name not in pretrained.LARGE)
    data = "celeba32-train.npy" if name == "celeba" else name.split("-")[0]
    assert found.recipe.data == found.metadata["data"] == data
    with safe_open(path, framework="pt") as file:
        assert "/" not in "".join(file.metadata().values()).replace("ema/", "").replace("raw/", "")
    x = torch.rand(2, *found.shape)
    assert found.score(x, torch.tensor(found.sigmas[0])).isfinite().all()
    with safe_open(path, framework="pt") as file:
        assert "sampler" not in file.metadata()  # a file of the first edition
    assert found.sampler == build_sampler(found.recipe)
    assert found.sampler == AnnealedLangevin(found.sigmas, step_size=2e-5, steps=100)
    assert len(found.sigmas) == 10
    assert found.labels == ()


@pytest.mark.parametrize("command", ["digits", "evaluate", "neighbors"])
def test_a_data_set_is_not_taken_for_the_model_of_its_name(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "x.png")] if command == "neighbors" else []
    with pytest.raises(SystemExit):
        main([command, "mnist", "-n", "4", "--steps", "3", "--denoise", *out])
    why = "--steps, --denoise apply only to models; 'mnist' is images (did you mean model:mnist?)"
    assert why in capsys.readouterr().err
    group = Group(0, 1, CPU)
    assert resolve_subject("mnist", Sampling(n=4), group) is None
    note = capsys.readouterr().err
    assert note.startswith("note: mnist is the data set")
    assert note.endswith("model:mnist\n")
    assert resolve_subject("mnist:test", Sampling(n=4), group) is None
    assert resolve_subject("model:mnist-small", Sampling(n=4, steps=3), group) is not None  # type: ignore[call-arg]
    assert not capsys.readouterr().err


@pytest.mark.parametrize("name", ["mnist", "mnist-small", "cifar10", "celeba"])
def test_a_pretrained_model_is_the_one_that_its_report_tells_of(name: str) -> None:
    report = json.loads((RESULTS / name / "report.json").read_text())
    model = load(f"model:{name}")
    assert report["model"]["digest"] == model.digest[:12]
    assert report["model"]["step"] == model.step


def test_the_files_are_small() -> None:
    sizes = {name: path.stat().st_size for name, path in pretrained.pretrained_models().items()}
    assert sizes["mnist"] <= 16e6
    assert sizes["mnist-small"] <= 2e6


def test_the_small_model_makes_digits() -> None:
    """64 samples by 40 network calls. Of 1,024, 96 of 100 pass; by annealed Langevin dynamics with 250 calls, 91 do."""
    model = load("model:mnist-small")
    sampler = ConsistentAnnealed(calls=40)
    torch.set_num_threads(2)  # this takes twice as long with one
    try:
        ((_, images),) = model.draw(range(64), batch_size=64, sampler=sampler)
    finally:
        torch.set_num_threads(1)
    verdict = judge(images[:, -1])
    assert verdict.accepted > 0.9
    assert verdict.distance_to_uniform < 0.3  # by chance alone: 0.15
    assert sum(count > 0 for count in verdict.histogram) >= 9
