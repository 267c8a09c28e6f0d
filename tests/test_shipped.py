"""Models in the box, and small model files to share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

import scorefield
from scorefield import shipped
from scorefield.checkpoint import Model, load, save_model
from scorefield.cli import main
from scorefield.cli.models import Sampler, subject_of
from scorefield.data.named import SETS, name_alone
from scorefield.distributed import Group
from scorefield.evaluation.subjects import model_of
from scorefield.experiments.digits import judge
from scorefield.export import export
from scorefield.generate import drawn
from scorefield.recipes import Recipe, network_of
from scorefield.threads import in_threads

RECIPE = Recipe(width=4, levels=3, sigma_max=0.5, ema=0.9, sample_steps=2, data="/home/somebody/photos")
CPU = torch.device("cpu")
RESULTS = Path(__file__).parents[1] / "docs" / "results"


def weights(seed: int) -> dict[str, Tensor]:
    return network_of(replace(RECIPE, seed=seed), channels=1).state_dict()


def model(path: Path, *, step: int = 7, ema: bool = True, raw: dict[str, Tensor] | None = None) -> Path:
    """A model file with the weights of seeds 1 (raw) and 2 (average)."""
    facts = {"data": "/home/somebody/photos/", "data_digest": "abc", "data_images": "12"}
    average = weights(2) if ema else None
    save_model(path, raw or weights(1), average, recipe=RECIPE, shape=(1, 16, 16), step=step, facts=facts)
    return path


def relative_change(a: Model, b: Model) -> float:
    """Of the scores at every level."""
    x = torch.rand(4, 1, 16, 16)
    one, two = (torch.stack([each.score(x, sigma) for sigma in a.sigmas]) for each in (a, b))
    return ((one - two).norm() / one.norm()).item()


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two shipped models, mnist at step 1 and mnist-small at step 2, and an empty working folder."""
    monkeypatch.setattr(shipped, "FOLDERS", [tmp_path / "beside", tmp_path / "inside"])
    model(tmp_path / "beside" / "mnist.safetensors", step=1)
    model(tmp_path / "inside" / "mnist-small.safetensors", step=2)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


# ---------------------------------------------------------------- names


def test_a_shipped_model_is_loaded_by_its_name(box: Path) -> None:
    assert scorefield.load("mnist").step == 1
    assert scorefield.load("mnist-small").step == 2
    assert scorefield.load("model:mnist-small").step == 2
    assert scorefield.load("mnist-small", weights="raw").weights == "raw"


def test_a_path_beats_a_name_and_the_prefix_beats_a_path(box: Path) -> None:
    model(box / "mnist-small", step=3)
    model(box / "mnist" / "checkpoints" / "model-00000004.safetensors", step=4)
    assert scorefield.load("mnist-small").step == 3
    assert scorefield.load("mnist").step == 4
    assert scorefield.load("model:mnist-small").step == 2
    model(box / "model:mnist", step=5)
    assert scorefield.load("model:mnist").step == 1


def test_a_folder_that_hides_a_shipped_model_is_said_to(box: Path) -> None:
    (box / "mnist").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"mnist holds no whole checkpoint .*shipped model of that name is model:"
    ):
        scorefield.load("mnist")


def test_a_name_that_means_nothing_brings_the_list_of_those_that_do(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = r"\(shipped models: mnist, mnist-small\)"
    with pytest.raises(FileNotFoundError, match="no file mnits, and no shipped model of that name " + names):
        scorefield.load("mnits")
    with pytest.raises(FileNotFoundError, match="no shipped model mnits " + names):
        scorefield.load("model:mnits")
    monkeypatch.setattr(shipped, "FOLDERS", [box / "nowhere"])
    with pytest.raises(FileNotFoundError, match=r"\(shipped models: none in this installation\)"):
        scorefield.load("mnist")


def test_the_commands_take_names(box: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["info", "mnist-small"])
    told = capsys.readouterr().out
    assert "mnist-small: a RefineNet" in told
    assert "scorefield sample mnist-small" in told
    for name in ("mnist-small", "model:mnist"):
        main(["sample", name, "-n", "2", "--device", "cpu", "--out", "samples.npy"])
        assert (box / "samples.npy").exists()
        (box / "samples.npy").unlink()
    main(["sample", "mnist-small", "-n", "1", "--device", "cpu", "--out", "image.png"])
    main(["inpaint", "mnist-small", "--image", "image.png", "-n", "1", "--device", "cpu", "--out", "filled.png"])
    capsys.readouterr()
    for command in (["sample", "mnits"], ["info", "mnits"], ["evaluate", "mnits"], ["neighbors", "mnits"]):
        with pytest.raises(SystemExit) as stopped:
            main(command)
        assert stopped.value.code == 2
        assert "shipped models: mnist, mnist-small" in capsys.readouterr().err


def test_an_objective_without_held_out_images_is_an_error(box: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", "model:mnist", "-n", "0", "--device", "cpu"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "model:mnist was trained on /home/somebody/photos/, of which no held-out images are to be had here" in said


def test_where_images_may_be_meant_a_data_sets_name_is_the_data_set(box: Path) -> None:
    def step_of(name: str) -> int | None:
        found = model_of(name, weights=None, device=CPU)
        return None if found is None else found.step

    assert all(step_of(name) is None for name in SETS)
    assert step_of("mnist:test") is None
    assert step_of("model:mnist") == 1
    assert step_of("mnist-small") == step_of("model:mnist-small") == 2
    (box / "mnist-small").mkdir()  # a folder of images, say
    assert step_of("mnist-small") is None
    cure = r"\(weights/cifar10.safetensors of a checkout is it: name that file; shipped models: mnist, mnist-small\)"
    with pytest.raises(FileNotFoundError, match="no shipped model cifar10 " + cure):
        step_of("model:cifar10")
    with pytest.raises(ValueError, match=r"'mnits' does not exist.*mnist, mnist-small; data sets: mnist, cifar10"):
        step_of("mnits")


@pytest.mark.parametrize("name", sorted(shipped.shipped_models()))
def test_the_models_in_the_box(name: str) -> None:
    """They are whole, small, of one set of weights, and say nothing of the machine they come from."""
    path = shipped.shipped_models()[name]
    found = load(f"model:{name}")
    assert len(found.held) == 1
    assert path.stat().st_size < (25e6 if path.parent == shipped.FOLDERS[-1] else 64e6)  # in the package, or beside it
    assert (path.parent == shipped.FOLDERS[-1]) == (name not in shipped.LARGE)
    data = "celeba32-train.npy" if name == "celeba" else name.split("-")[0]
    assert found.recipe.data == found.facts["data"] == data
    with safe_open(path, framework="pt") as file:
        assert "/" not in "".join(file.metadata().values()).replace("ema/", "").replace("raw/", "")
    x = torch.rand(2, *found.shape)
    assert found.score(x, found.sigmas[0]).isfinite().all()


# ---------------------------------------------------------------- export


def test_an_export_is_small_and_computes_the_same(tmp_path: Path) -> None:
    source = model(tmp_path / "whole.safetensors")
    made = export(source, tmp_path / "small.safetensors")
    before, after = load(source), load(tmp_path / "small.safetensors")
    assert made.held == after.held == (after.weights,) == ("ema",)
    assert made.size == (tmp_path / "small.safetensors").stat().st_size
    assert after.facts["stored"] == "float16"
    assert (after.step, after.shape, after.recipe) == (7, (1, 16, 16), replace(RECIPE, data="photos"))
    assert torch.equal(after.sigmas, before.sigmas)
    assert 0 < relative_change(before, after) < 2e-3
    assert 1e-5 < made.change < 2**-11  # float16 rounds by at most 2⁻¹¹ of a value
    with safe_open(tmp_path / "small.safetensors", framework="pt") as file:
        types = {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert {name for name, kind in types.items() if kind != torch.float16} == {"ema/sigmas"}
    with pytest.raises(ValueError, match="holds ema weights; got weights=raw"):
        load(tmp_path / "small.safetensors", weights="raw")


def test_the_change_is_the_largest_over_all_tensors(tmp_path: Path) -> None:
    raw = {name: torch.ones_like(value) for name, value in weights(1).items()}
    raw["sigmas"] = weights(1)["sigmas"]
    raw["begin.bias"] = torch.full_like(raw["begin.bias"], 1 + 2**-11)  # half way to the next number: rounds to 1
    made = export(model(tmp_path / "m.safetensors", ema=False, raw=raw), tmp_path / "e.safetensors")
    assert made.change == pytest.approx(2**-11 / (1 + 2**-11))


def test_the_weights_and_the_precision_can_be_chosen(tmp_path: Path) -> None:
    source = model(tmp_path / "whole.safetensors")
    for number, kind in enumerate(("raw", "ema")):
        out = tmp_path / f"{kind}.safetensors"
        made = export(source, out, weights=kind, precision="float32")  # type: ignore[arg-type]
        assert made.change == 0
        state = load(out).network.state_dict()
        assert all(torch.equal(state[name], value) for name, value in weights(number + 1).items())
    export(source, tmp_path / "both.safetensors", weights="both")
    both = load(tmp_path / "both.safetensors")
    assert (both.held, both.weights) == (("raw", "ema"), "ema")
    one = model(tmp_path / "one.safetensors", ema=False)
    export(one, tmp_path / "one_small.safetensors")
    assert load(tmp_path / "one_small.safetensors").held == ("raw",)
    for kind in ("ema", "both"):
        with pytest.raises(ValueError, match=f"holds raw weights; got weights={kind}"):
            export(one, tmp_path / "none.safetensors", weights=kind)  # type: ignore[arg-type]
    assert not (tmp_path / "none.safetensors").exists()


@pytest.mark.parametrize(
    ("value", "words"), [(7e4, r"end.weight holds 70000, and float16 reaches to 65504"), (float("inf"), "not finite")]
)
def test_what_float16_cannot_hold_is_refused(value: float, words: str, tmp_path: Path) -> None:
    raw = weights(1)
    raw["end.weight"] = raw["end.weight"].clone()
    raw["end.weight"][0, 1, 2, 0] = value
    source = model(tmp_path / "large.safetensors", ema=False, raw=raw)
    with pytest.raises(ValueError, match=words):
        export(source, tmp_path / "e.safetensors")
    assert not (tmp_path / "e.safetensors").exists()


def test_no_path_of_the_machine_is_left(tmp_path: Path) -> None:
    export(model(tmp_path / "whole.safetensors"), tmp_path / "small.safetensors")
    assert b"somebody" not in (tmp_path / "small.safetensors").read_bytes()
    assert load(tmp_path / "small.safetensors").facts["data"] == "photos"
    names = {"mnist": "mnist", "mnist:test": "mnist:test", "my_images": "my_images", "~/a/b.npy": "b.npy"}
    names |= {r"C:\Users\me\faces": "faces", "/data/mnist": "./mnist", "a/cifar10:test/": "./cifar10:test"}
    assert {source: name_alone(source) for source in names} == names


def test_export_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = str(model(tmp_path / "m.safetensors")), str(tmp_path / "new" / "e.safetensors")
    main(["export", source, "--out", out, "--weights", "raw"])
    told = capsys.readouterr()
    assert told.out.strip() == out
    assert f"raw weights in float16, {Path(out).stat().st_size / 1e6:.2f} MB" in told.err
    assert "of its norm" in told.err
    main(["info", out, "--json"])
    assert json.loads(capsys.readouterr().out)["weights"] == ["raw"]
    main(["info", out])
    assert "raw, stored in float16" in capsys.readouterr().out
    for arguments, words in (
        (["--out", out], "exists already"),
        (["--out", str(tmp_path / "e.pt")], "FILE.safetensors"),
        ([], "--out"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["export", source, *arguments])
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", ["digits", "evaluate", "neighbors"])
def test_a_data_set_is_not_taken_for_the_model_of_its_name(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "x.png")] if command == "neighbors" else []
    with pytest.raises(SystemExit):
        main([command, "mnist", "-n", "4", "--steps", "3", "--denoise", *out])
    why = "--steps, --denoise: for models, and mnist is images (the model of that name is model:mnist)"
    assert why in capsys.readouterr().err
    group = Group(0, 1, CPU)
    assert subject_of("mnist", Sampler(n=4), group) is None
    assert capsys.readouterr().err == "note: mnist is the data set; the model of that name is model:mnist\n"
    assert subject_of("mnist:test", Sampler(n=4), group) is None
    assert subject_of("model:mnist-small", Sampler(n=4, steps=3), group) is not None
    assert not capsys.readouterr().err


@pytest.mark.parametrize("name", ["mnist", "mnist-small"])
def test_a_shipped_model_is_the_one_that_its_report_tells_of(name: str) -> None:
    report = json.loads((RESULTS / name / "report.json").read_text())
    model = load(f"model:{name}")
    assert report["model"]["digest"] == model.digest[:12]
    assert report["model"]["step"] == model.step


def test_the_files_are_small() -> None:
    sizes = {name: path.stat().st_size for name, path in shipped.shipped_models().items()}
    assert sizes["mnist"] <= 16e6
    assert sizes["mnist-small"] <= 2e6


def test_the_small_model_makes_digits() -> None:
    """64 samples as the demo draws them. Of many, 91 of 100 pass; by 10 steps at each level instead of 25, 76 do."""
    model = load("model:mnist-small")
    images = drawn(
        in_threads(model.network, threads=2),
        model.sigmas,
        model.shape,
        range(64),
        batch_size=64,
        steps=25,
        step_size=8e-5,
        seed=0,
    )
    verdict = judge(images[:, -1])
    assert verdict["accepted"] > 0.9
    assert verdict["distance_to_uniform"] < 0.3  # by chance alone: 0.15
    assert sum(count > 0 for count in verdict["histogram"]) >= 9
