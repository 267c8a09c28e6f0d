"""Pretrained models: found by their names, whole, and as good as their reports say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import scorefield
from models.file_server import FileServer
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
from scorefield.models.catalogue import MODELS, TERMS, Digits
from scorefield.models.model import load
from scorefield.samplers import AnnealedLangevin, ConsistentAnnealed

CPU = torch.device("cpu")
RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two pretrained models, mnist at step 1 and mnist-small at step 2, and an empty working folder."""
    monkeypatch.setattr(pretrained, "FOLDERS", [tmp_path / "inside", tmp_path / "beside"])
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
    names = r"\(did you mean mnist\? pretrained models: celeba, cifar10, mnist, mnist-small, unet-mnist\)"
    with pytest.raises(FileNotFoundError, match="no file mnits, and no pretrained model of that name " + names):
        scorefield.load("mnits")
    with pytest.raises(FileNotFoundError, match="no pretrained model mnits " + names):
        scorefield.load("model:mnits")
    with pytest.raises(FileNotFoundError, match=r"model of that name \(pretrained models: celeba, cif"):
        scorefield.load("something/else")  # like none of them
    with pytest.raises(
        ValueError, match=r"^'cifra10' does not exist, .* \(did you mean cifar10\? pretrained models: ce"
    ):
        resolve_model("cifra10", weights=None, device=CPU)


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
        assert "did you mean mnist? pretrained models: celeba, cifar10, mnist, mnist-small" in capsys.readouterr().err


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
    cure = r".* no server .* yet \(take weights/cifar10.safetensors from a checkout .* or set SCOREFIELD_MODELS_URL"
    with pytest.raises(FileNotFoundError, match=r"model cifar10 \(60 MB\) is not on this machine" + cure):
        step_of("model:cifar10")
    with pytest.raises(ValueError, match=r"'mnits' does not exist.*mnist-small, unet-mnist; data sets: mnist, cifar10"):
        step_of("mnits")


@pytest.mark.parametrize("name", sorted(pretrained.pretrained_models()))
def test_the_pretrained_models(name: str) -> None:
    """They are whole, small, of one set of weights, and say nothing of the machine they come from."""
    path = pretrained.pretrained_models()[name]
    found = load(f"model:{name}")
    assert len(found.held) == 1
    installed = path.parent == pretrained.FOLDERS[0]  # in the package, not beside it
    assert path.stat().st_size < (25e6 if installed else 64e6)
    assert installed == ("mnist" in name)
    data = "celeba32-train.npy" if name == "celeba" else "mnist" if installed else name
    assert found.recipe.data == found.metadata["data"] == data
    with safe_open(path, framework="pt") as file:
        assert "/" not in "".join(file.metadata().values()).replace("ema/", "").replace("raw/", "")
    x = torch.rand(2, *found.shape)
    assert found.score(x, torch.tensor(found.sigma_range[1])).isfinite().all()
    if name.startswith("unet"):
        assert found.sampler.calls == 10
        assert found.labels == tuple("0123456789")
        return
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


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_catalogue_says_what_files_and_reports_say(name: str) -> None:
    entry = MODELS[name]
    if isinstance(entry.quality, Digits):
        report = json.loads((RESULTS / name / "digits.json").read_text())
        assert round(report["accepted"], 3) == entry.quality.accepted
        assert (report["n"], report["calls"]) == (entry.quality.n, entry.quality.calls)
        assert report["model"]["digest"] in load(f"model:{name}").digest
    else:
        report = json.loads((RESULTS / name / "report.json").read_text())
        numbers = report["numbers"]["denoised" if entry.quality.denoised else "plain"]
        assert round(numbers["fid"], 2) == entry.quality.fid
        assert numbers["n"] == entry.quality.n
        assert report["calls"] + entry.quality.denoised == entry.quality.calls
    assert entry.data in TERMS
    assert f"{report['model']['parameters'] / 1e6:.3g} M parameters" in entry.about
    if (path := pretrained.pretrained_models().get(name)) is not None:
        assert path.stat().st_size == entry.size
        assert hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256


def test_every_pretrained_model_is_in_the_catalogue() -> None:
    assert pretrained.pretrained_models().keys() <= MODELS.keys()


@pytest.fixture
def served(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server that has a model called cifar10, at step 9."""
    content = model(tmp_path / "made" / "cifar10.safetensors", step=9).read_bytes()
    entry = replace(MODELS["cifar10"], size=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(MODELS, "cifar10", entry)
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "data"))
    with FileServer(content).running() as server:
        monkeypatch.setenv("SCOREFIELD_MODELS_URL", f"{server.url}/v1/")
        yield server


def test_a_model_that_is_not_here_is_downloaded_once(
    served: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert load("model:cifar10").step == load("cifar10").step == 9
    assert served.asked == [("/v1/cifar10.safetensors", None)]
    assert f"downloading {served.url}/v1/cifar10.safetensors (MiB): 1 of 1" in capsys.readouterr().err
    path = tmp_path / "data" / pretrained.CACHE / f"cifar10-{MODELS['cifar10'].sha256[:8]}.safetensors"
    assert pretrained.find("cifar10") == path
    assert resolve_model("model:cifar10", weights=None, device=CPU) is not None
    assert resolve_model("cifar10", weights=None, device=CPU) is None  # the data set
    main(["info", "cifar10"])
    assert capsys.readouterr().out.startswith("cifar10: refinenet")


def test_the_package_beats_the_checkout_and_the_checkout_the_cache(served: FileServer, tmp_path: Path) -> None:
    load("cifar10")
    for folder, step in (("beside", 10), ("inside", 11)):
        model(tmp_path / folder / "cifar10.safetensors", step=step)
        assert load("cifar10").step == step


def test_a_new_version_of_a_model_replaces_a_downloaded_one(
    served: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load("cifar10")
    served.content = model(tmp_path / "made" / "new.safetensors", step=10).read_bytes()
    digest = hashlib.sha256(served.content).hexdigest()
    monkeypatch.setitem(MODELS, "cifar10", replace(MODELS["cifar10"], size=len(served.content), sha256=digest))
    assert load("cifar10").step == 10


def test_a_download_that_fails_says_how_to_get_the_file(
    served: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fix = r"take weights/cifar10.safetensors from a checkout of scorefield and give the path of that file, or set SCORE"
    good, served.content = served.content, bytes(len(served.content))
    with pytest.raises(FileNotFoundError, match=rf"did not give the file expected: its sha256 is .* \({fix}"):
        load("cifar10")
    served.content = good
    for url, why in (
        ("http://127.0.0.1:9", r"cannot be downloaded: [^<>]*refused[^<>]* \("),
        ("", r"there is no server to download it from yet \("),
    ):
        monkeypatch.setenv("SCOREFIELD_MODELS_URL", url)
        with pytest.raises(FileNotFoundError, match=why + fix):
            load("cifar10")
    monkeypatch.setenv("SCOREFIELD_MODELS_URL", "/somewhere/weights")
    with pytest.raises(ValueError, match="must begin with https://, http:// or file://; got /somewhere/weights"):
        load("cifar10")
    monkeypatch.setenv("SCOREFIELD_MODELS_URL", (tmp_path / "made").as_uri())
    assert load("cifar10").step == 9


def test_models_lists_them_all(
    served: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = model(tmp_path / "inside" / "own.safetensors", step=3)
    load("cifar10")
    capsys.readouterr()
    main(["models", "--json", str(tmp_path / "models.json")])
    table, said = capsys.readouterr()
    lines = {line.split()[0]: line for line in table.splitlines() if line}
    assert list(lines)[:7] == ["name", "unet-mnist", "mnist", "mnist-small", "cifar10", "celeba", "own"]
    assert lines["celeba"] == (
        "celeba       60.3 MB  CelebA    FID 6.21 (n = 10,000, 1,001 calls, denoised)     64e8d0f7  not here"
    )
    assert lines["cifar10"].endswith(f"{MODELS['cifar10'].sha256[:8]}  cache")
    assert lines["mnist"].endswith("checkout, another file")
    assert lines["own"].endswith(f"unknown{' ' * 42}{hashlib.sha256(own.read_bytes()).hexdigest()[:8]}  package")
    assert lines["CelebA:"].strip() == "CelebA: non-commercial research only, by its authors' agreement"
    assert said == f"not here: unet-mnist, celeba; they are downloaded from {served.url}/v1 when first used\n"
    told = json.loads((tmp_path / "models.json").read_text())
    assert told["server"] == f"{served.url}/v1"
    assert told["models"]["celeba"]["path"] is None
    assert told["models"]["celeba"]["sha256"] == MODELS["celeba"].sha256
    assert (told["models"]["celeba"]["fid"], told["models"]["celeba"]["n"]) == (6.21, 10_000)
    assert told["models"]["mnist"]["expected_sha256"] == MODELS["mnist"].sha256
    assert Path(told["models"]["cifar10"]["path"]).is_file()
    monkeypatch.delenv("SCOREFIELD_MODELS_URL")
    main(["models"])
    assert (
        "there is no server to download them from yet (SCOREFIELD_MODELS_URL=ADDRESS names one"
        in capsys.readouterr().err
    )


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
