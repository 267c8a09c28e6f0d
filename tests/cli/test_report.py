"""report: the same numbers and pictures as from the commands that make them one by one."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from small_evaluation import ALONE, read_json
from small_reports import OPTIONS, N, dots, put_mnist, report
from small_reports import run as run
from small_reports import sampled as sampled
from small_reports import small as small
from small_reports import store as store

from cli.calls import failure
from scorefield import data, load, samplers, version
from scorefield.cli import main
from scorefield.data import named
from scorefield.data.images import Pixels
from scorefield.evaluation import PARTS, digits
from scorefield.evaluation import report as parts
from scorefield.evaluation.completions import MASKS
from scorefield.evaluation.records import Report, read_report, to_json
from scorefield.evaluation.report import STEP_SIZES, STEPS, ReportMaker
from scorefield.evaluation.sample_cache import SampleCache
from scorefield.images import grid, to_bytes
from scorefield.models import checkpoint
from scorefield.models.export import export
from scorefield.models.model import save_model
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.progress import silent
from scorefield.samplers import AnnealedLangevin


@pytest.fixture(autouse=True)
def few_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "STEPS", (2, 7))
    monkeypatch.setattr(parts, "STEP_SIZES", (1e-5, 5e-4))


# ---------------------------------------------------------------- the whole report


def test_a_report_says_what_evaluate_and_neighbors_say(
    run: Path, tmp_path: Path, sampled: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(run, tmp_path / "r", "--seed", "2", "--batch-size", "20")
    assert sampled == [20, 10]
    said = capsys.readouterr().out
    for kind in ("plain", "denoised"):
        out = tmp_path / f"{kind}.json"
        last_step = ["--denoise"] if kind == "denoised" else []
        main(["evaluate", str(run), "-n", str(N), "--seed", "2", *last_step, "--json", str(out)])
        alone, here = read_json(out), found["numbers"][kind]
        for key in ("fid", "kid", "kid_standard_error", "precision", "recall", "inception_score", "n", "kept_n"):
            assert here[key] == pytest.approx(alone[key], rel=1e-9), (kind, key)
        for key in ("reference", "inception", "preprocessing", "loss", "loss_by_sigma", "loss_n", "loss_data"):
            assert found["numbers"][key] == alone[key]
    for space, name in (("pixel", "neighbors"), ("inception", "neighbors_inception")):
        out = tmp_path / f"{name}.png"
        call = ["neighbors", str(run), "-n", str(N), "--seed", "2", "--space", space, "--out", str(out)]
        main([*call, "--json", str(tmp_path / "n.json")])
        alone = read_json(tmp_path / "n.json")
        assert {key: alone[key] for key in found["neighbors"][name]} == found["neighbors"][name]
        assert out.read_bytes() == (tmp_path / "r" / f"{name}.png").read_bytes()
    assert sampled == [20, 10]  # these found their samples on the disk
    assert f"{found['numbers']['plain']['fid']:.4f} " in said
    assert f"{found['numbers']['denoised']['fid']:.4f}\n" in said
    for file in (*found["samples"]["files"], *found["stages"]["files"], *found["neighbors"]["files"]):
        assert (tmp_path / "r" / file).is_file()


def test_what_the_report_is_about(run: Path, tmp_path: Path) -> None:
    found = report(run, tmp_path / "dots & more", "--step-size", "2e-4")
    model = load(run)
    assert found["command"] == "scorefield report run --out 'dots & more' -n 30 --step-size 0.0002"
    here = {"machine": "CPU, 1 thread", "processes": 1, "scorefield": version.__version__, "torch": torch.__version__}
    assert found["made_on"] == dict.fromkeys(("sampling", "samples", "stages", "neighbors", "numbers"), here)
    assert found["sampler"] == samplers.to_dict(AnnealedLangevin(model.sigmas, step_size=2e-4, steps=7))
    assert (found["seed"], found["precision"], found["calls"]) == (0, "float32", 14)
    about = found["model"]
    assert (about["step"], about["weights"], about["digest"]) == (4, "ema", model.digest[:12])
    assert about["recipe"]["width"] == 2
    assert about["parameters"] == sum(p.numel() for p in model.network.parameters())
    assert about["data_images"] == 54
    assert about["sigmas"] == pytest.approx([1.0, 0.05])
    assert set(found["seconds"]) == {"preparing", "sampling", "samples", "stages", "neighbors", "numbers"}
    assert found["sampling"] == {"images": N}


def test_a_report_is_read_as_records(run: Path, tmp_path: Path) -> None:
    found = report(run, tmp_path / "r", "--parts", *(part for part in PARTS if part != "real"))
    record = read_report(tmp_path / "r" / "report.json")
    assert isinstance(record, Report)
    assert found["inpainting"]["masks"]["text"]["inside"] is None  # no two neighbouring pixels are hidden
    assert to_json(record) == found
    assert {part for part in PARTS if getattr(record, part) is not None} == set(PARTS) - {"real"}
    assert record.numbers is not None
    assert record.numbers.loss == pytest.approx(np.mean([each.loss for each in record.numbers.loss_by_sigma]))
    assert samplers.from_dict(record.sampler) == load(run).sampler


def test_the_baseline_with_its_one_level(tmp_path: Path) -> None:
    np.save(tmp_path / "dots.npy", dots(60, 0))
    call = ["train", "tiny", "--data", str(tmp_path / "dots.npy"), "--out", str(tmp_path / "run"), "--image-size"]
    call += ["None", *OPTIONS.replace("--levels 2", "--levels 1 --sigma-max 0.05").split(), "--steps", "1"]
    main([*call, "--sample-steps", "30"])
    found = report(tmp_path / "run", tmp_path / "r")
    assert found["stages"]["steps"] == [0, 3, 5, 8, 11, 14, 16, 19, 22, 25, 27, 30]
    assert len(found["numbers"]["loss_by_sigma"]) == 1


def test_the_record_of_an_imported_model(run: Path) -> None:
    model = replace(load(run), metadata={"data": "unknown", "imported_from": "checkpoint.pth", "version": "1"})
    found = parts.describe_model(model)
    assert (found.data, found.imported_from, found.data_digest) == ("unknown", "checkpoint.pth", None)


def test_numbers_that_are_not_finite_are_printed_as_dashes(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(run, tmp_path / "r", "--parts", "numbers")
    found["numbers"]["denoised"]["fid"] = found["numbers"]["loss"] = None
    (tmp_path / "r" / "report.json").write_text(json.dumps(found))
    capsys.readouterr()
    report(run, tmp_path / "r", "--parts", "numbers")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  fid")]
    assert line.split() == ["fid", f"{found['numbers']['plain']['fid']:.4f}", "–"]


# ---------------------------------------------------------------- pictures


def small_picture(path: Path, width: int) -> Pixels:
    """A picture as it was before it was enlarged, `width` pixels wide."""
    with Image.open(path) as opened:
        pixels = np.asarray(opened)
    zoom = pixels.shape[1] // width
    return pixels[::zoom, ::zoom]


def test_the_pictures_of_samples(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parts.SHOWN == 100
    monkeypatch.setattr(parts, "SHOWN", 20)
    found = report(run, tmp_path / "r", "--parts", "samples")
    assert found["samples"] == {"files": ["samples.png", "samples_denoised.png"], "shown": 20}
    assert found["sampling"]["images"] == 20  # no more than are shown
    for name, last_step in (("samples.png", []), ("samples_denoised.png", ["--denoise"])):
        main(["sample", str(run), "-n", "20", *last_step, "--out", str(tmp_path / "s.npy")])
        sheet = grid(np.load(tmp_path / "s.npy"), columns=10)[..., 0]
        assert np.array_equal(small_picture(tmp_path / "r" / name, 142), sheet)


@pytest.mark.parametrize("denoise", [False, True])
def test_the_stages_go_from_uniform_noise_to_the_samples(run: Path, tmp_path: Path, denoise: bool) -> None:
    last_step = ["--denoise"] if denoise else []
    found = report(run, tmp_path / "r", "--parts", "stages", *last_step)["stages"]
    total = 14 + denoise
    assert found["steps"][0] == 0
    assert found["steps"][-1] == total
    assert len(found["steps"]) == 12
    assert max(np.diff(found["steps"])) - min(np.diff(found["steps"])) <= 1
    assert found["sigmas"][0] is None
    assert found["sigmas"][1:3] == [1.0, 1.0]
    assert found["sigmas"][-1] == pytest.approx(0.0 if denoise else 0.05)
    picture = small_picture(tmp_path / "r" / "stages.png", 12 * 14 + 2)
    model = load(run)
    sampler = AnnealedLangevin(model.sigmas, step_size=model.recipe.step_size, steps=7, denoise=denoise)
    states = {state.step: state.x for state in model.states(range(10), sampler=sampler)}
    assert torch.equal(states[0], SampleNoise(sample_seeds(0, range(10))).rand(model.shape))
    for column, step in enumerate(found["steps"]):
        expected = to_bytes(states[step])[..., 0]
        for row in range(10):
            top, left = 2 + row * 14, 2 + column * 14
            assert np.array_equal(picture[top : top + 12, left : left + 12], expected[row])


# ---------------------------------------------------------------- what the neighbours are compared with


def test_where_nothing_is_held_out_the_report_says_so(run: Path, tmp_path: Path) -> None:
    call = ["--parts", "neighbors"]
    assert report(run, tmp_path / "r", *call)["neighbors"]["others"] == "held-out images"
    np.save(tmp_path / "more.npy", dots(60, 1))
    found = report(run, tmp_path / "s", *call, "--data", str(tmp_path / "more.npy"))["neighbors"]
    assert found["others"] == "training images, each against the others"


# ---------------------------------------------------------------- the run's losses


def test_the_runs_losses_are_in_the_report(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = report(run, tmp_path / "r", "--parts", "stages")["training"]
    with (run / "log.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert training["log"]["columns"] == rows[0]
    assert training["log"]["rows"] == [[int(row[0]), *(float(v) if v else None for v in row[1:])] for row in rows[1:]]
    assert [row[0] for row in training["held_out"]["rows"]] == [2, 4]
    assert training["seconds"] == float(rows[-1][-1])
    assert training["images_per_second"] == pytest.approx(4 * 4 / float(rows[-1][-1]))
    early = checkpoint.model_files(run)[0]
    assert report(early, tmp_path / "early", "--parts", "stages")["training"]["seconds"] == float(rows[2][-1])
    alone = tmp_path / "model.safetensors"
    shutil.copyfile(early, alone)
    assert "training" not in report(alone, tmp_path / "alone", "--parts", "stages")
    named = report(alone, tmp_path / "named", "--parts", "stages", "--run", str(run))
    assert named["training"]["log"] == training["log"]
    more = report(alone, tmp_path / "named", "--parts", "samples")  # the run is known from before
    assert more["training"] == named["training"]
    assert more["command"] == named["command"].replace("--parts stages", "--parts samples stages")
    assert " --run " in more["command"]
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (other / "recipe.json").write_text((run / "recipe.json").read_text().replace('"width": 2', '"width": 3'))
    capsys.readouterr()
    for place, word in ((tmp_path / "none", "recipe.json"), (other, "width")):
        code, said = failure(capsys, "report", alone, "--out", tmp_path / "wrong", "--run", place)
        assert code == 2
        assert word in said


# ---------------------------------------------------------------- completions, and other settings of the sampler


def test_held_out_images_are_completed(run: Path, tmp_path: Path, sampled: list[int]) -> None:
    found = report(run, tmp_path / "out", "--parts", "inpainting")
    assert found["command"].endswith("--parts inpainting")
    assert not {"samples", "numbers", "sampling"} & set(found)
    assert sampled == []
    told = found["inpainting"]["masks"]
    assert list(told) == list(MASKS)
    for name, numbers in told.items():
        assert (numbers["images"], numbers["completions"]) == (6, 8)
        assert numbers["known_error"] == pytest.approx(1, abs=0.1)
        assert numbers["distance"] > 0.05
        with Image.open(tmp_path / "out" / f"inpainting_{name}.png") as picture:
            zoom = picture.height // (6 * 14 + 2)
            assert picture.size == (zoom * (10 * 14 + 2), zoom * (6 * 14 + 2))  # six rows of ten


def test_images_that_must_not_be_published_are_not_shown(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = replace(named.SETS["celeba"], name="dots")
    monkeypatch.setitem(named.SETS, "dots", hidden)
    report(run, tmp_path / "out", "--parts", "inpainting")
    with Image.open(tmp_path / "out" / "inpainting_left.png") as picture:
        assert picture.width / picture.height == (9 * 14 + 2) / (14 + 2)  # one of six for each of five masks


def test_without_held_out_images_there_is_nothing_to_complete(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Path(load(run).recipe.data)
    save_model_without_data(run, tmp_path / "alone.safetensors")
    options = ["--out", str(tmp_path / "out"), "--parts", "inpainting", "--data"]
    for source in (str(data), str(tmp_path / "statistics.npz")):
        np.savez(tmp_path / "statistics.npz", mu=np.zeros(4), sigma=np.eye(4))
        code, said = failure(capsys, "report", tmp_path / "alone.safetensors", *options, source)
        assert code == 2
        assert "no held-out images" in said


def test_other_images_than_the_models_own_are_completed(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "other.npy", dots(3, 5))
    options = ["--data", str(tmp_path / "other.npy"), "--parts", "inpainting", "--steps", "2", "--step-size", "5e-4"]
    export(run, tmp_path / "alone.safetensors")  # its own images cannot be found
    main(["report", str(tmp_path / "alone.safetensors"), "--out", str(tmp_path / "out"), *options])
    assert read_json(tmp_path / "out" / "report.json")["inpainting"]["masks"]["left"]["images"] == 3


def test_images_of_other_channels_than_the_models_are_not_completed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "colour.npy", dots(20, 5)[..., None].repeat(3, -1))
    call = ["--out", str(tmp_path / "out"), "--parts", "inpainting", "--data", str(tmp_path / "colour.npy")]
    code, said = failure(capsys, "report", run, *call)
    assert code == 2
    for words in ("colour.npy", "(3, 12, 12)", "(1, 12, 12)", "--data"):
        assert words in said


def save_model_without_data(run: Path, path: Path) -> None:
    """A model whose own data cannot be found."""
    model = load(run)
    recipe = replace(model.recipe, data="nowhere")
    save_model(path, model.network.state_dict(), None, recipe=recipe, shape=model.shape, step=model.step, metadata={})


def test_data_that_were_moved_are_known_again_and_what_was_held_out_of_them(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["export", str(run), "--out", str(tmp_path / "alone.safetensors"), "--precision", "float32"])
    shutil.copyfile(load(run).recipe.data, tmp_path / "moved.npy")
    parts, model = ["--steps", "2", "--parts", "inpainting", "numbers"], tmp_path / "alone.safetensors"
    before = report(run, tmp_path / "before", *parts)
    after = report(model, tmp_path / "after", *parts, "--data", str(tmp_path / "moved.npy"))
    assert after["inpainting"] == before["inpainting"]
    assert (after["numbers"]["loss"], after["numbers"]["loss_n"]) == (before["numbers"]["loss"], 6)
    assert after["numbers"]["reference"]["n"] == before["numbers"]["reference"]["n"] == 54
    np.save(Path(load(model).recipe.data), dots(60, 9))  # others of that name, in the working folder
    main(["evaluate", str(model), "-n", "0", "--data", str(tmp_path / "moved.npy"), "--json", str(tmp_path / "e.json")])
    assert read_json(tmp_path / "e.json")["loss"] == before["numbers"]["loss"]


def test_images_that_are_named_are_completed_instead_of_the_models_own(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "other.npy", dots(3, 5))
    np.savez(tmp_path / "statistics.npz", mu=np.zeros(4), sigma=np.eye(4))  # in which there are none
    parts = ["--steps", "2", "--parts", "inpainting"]
    own = report(run, tmp_path / "own", *parts)["inpainting"]
    named = report(run, tmp_path / "named", *parts, "--data", str(tmp_path / "other.npy"))
    none = report(run, tmp_path / "none", *parts, "--data", str(tmp_path / "statistics.npz"))
    assert own["masks"]["left"]["images"] == 6
    assert named["inpainting"]["masks"]["left"]["images"] == 3
    assert none["inpainting"] == own


def test_images_given_as_data_are_not_shown_either_if_they_may_not_be(run: Path, tmp_path: Path) -> None:
    save_model_without_data(run, tmp_path / "alone.safetensors")
    place = tmp_path / "store" / "CelebA"
    place.mkdir(parents=True)
    np.save(place / "CelebA-faces.npy", np.random.default_rng(0).integers(0, 256, (20, 12, 12), dtype=np.uint8))
    model = load(tmp_path / "alone.safetensors")
    cache = SampleCache(model, AnnealedLangevin(model.sigmas, step_size=1e-5, steps=1))
    maker = ReportMaker(cache, N, 8, str(place / "CelebA-faces.npy"), tmp_path, ALONE, silent)
    images, _ = maker.training
    maker.unseen = images  # as if they had been held out
    maker.inpainting()
    with Image.open(tmp_path / "inpainting_left.png") as picture:
        assert picture.width / picture.height == (9 * 14 + 2) / (4 * 14 + 2)
    shown = np.concatenate(maker.images_to_complete(5))  # several masks on one image would show all of it
    assert len(np.unique(shown, axis=0)) == len(shown) == 20
    assert np.array_equal(np.concatenate(maker.images_to_complete(1)), images.pixels[:10])
    maker.unseen = images.first(4)
    with pytest.raises(ValueError, match="4 images are too few for 5 masks"):
        maker.prepare(["inpainting"])


def test_other_settings_of_the_sampler(run: Path, tmp_path: Path, sampled: list[int]) -> None:
    """Each cell is what evaluate says of samples by these settings."""
    found = report(run, tmp_path / "out", "--parts", "robustness")["robustness"]
    assert found["n"] == N
    assert [(cell["step_size"], cell["steps"]) for cell in found["cells"]] == [
        (1e-5, 2), (1e-5, 7), (5e-4, 2), (5e-4, 7)]  # fmt: skip
    assert sampled == [N] * 4
    cell = found["cells"][1]
    options = ["-n", str(N), "--step-size", "1e-5", "--steps", "7", "--json", str(tmp_path / "one.json")]
    main(["evaluate", str(run), *options])
    alone = read_json(tmp_path / "one.json")
    assert sampled == [N] * 4  # the same samples
    for name in ("fid", "kid", "kid_standard_error", "precision", "recall", "n"):
        assert cell[name] == pytest.approx(alone[name], rel=1e-9), name
    assert len({cell["fid"] for cell in found["cells"]}) == 4


@pytest.mark.filterwarnings("ignore:step_size 1e.200 is not below")
def test_settings_that_diverge_are_recorded(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "STEP_SIZES", (1e-5, 1e200))
    cells = report(run, tmp_path / "out", "--parts", "robustness")["robustness"]["cells"]
    assert ["diverged" in cell for cell in cells] == [False, False, True, True]
    assert "fid" in cells[0]


def test_parts_are_added_to_a_report(run: Path, tmp_path: Path) -> None:
    report(run, tmp_path / "out")
    before = read_json(tmp_path / "out" / "report.json")
    assert "--parts" not in before["command"]
    after = report(run, tmp_path / "out", "--parts", "robustness")
    assert after["command"].endswith("--parts samples stages neighbors numbers robustness")
    assert after["numbers"] == before["numbers"]
    assert after["robustness"]["cells"][3]["fid"] == before["numbers"]["plain"]["fid"]  # of the same samples


def test_the_settings_are_those_that_the_paper_speaks_of() -> None:
    """Section 5: ε between 5e-6 and 5e-5, T = 100 and any other."""
    assert STEP_SIZES == (5e-6, 2e-5, 5e-5)
    assert STEPS == (10, 30, 100)


# ---------------------------------------------------------------- real images


def test_the_data_sets_test_images_are_measured_as_the_samples_are(
    run: Path, store: Path, tmp_path: Path, sampled: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    put_mnist(store, {"train": 40, "t10k": 12})
    found = report(run, tmp_path / "r", "--data", "mnist", "--parts", "numbers", "real")
    for name in ("mnist", "mnist:test"):
        np.save(tmp_path / name.replace(":", "-"), data.load(name, image_size=(12, 12)).pixels)
    files = [str(tmp_path / "mnist-test.npy"), "--data", str(tmp_path / "mnist.npy")]
    main(["evaluate", *files, "--json", str(tmp_path / "e.json")])
    alone = read_json(tmp_path / "e.json")
    for key in ("fid", "kid", "precision", "recall", "n", "kept_n"):
        assert found["real"][key] == pytest.approx(alone[key], rel=1e-9)
    assert (found["real"]["name"], found["real"]["n"]) == ("mnist:test", 12)

    before = found.pop("real")  # without it, nothing else is made again
    (tmp_path / "r" / "report.json").write_text(json.dumps(found))
    sampled.clear()
    capsys.readouterr()
    assert report(run, tmp_path / "r", "--data", "mnist", "--parts", "real")["real"] == before
    assert sampled == []
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "fid, mnist:test" in line]
    assert f"{before['fid']:.4f}" in line
    assert "n = 12" in line


def test_without_a_test_split_there_are_no_such_images(
    run: Path, tmp_path: Path, sampled: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = failure(capsys, "report", run, "--out", tmp_path / "r", "--parts", "numbers", "real")
    assert code == 2
    assert "dots.npy has no test images" in said
    assert sampled == []


# ---------------------------------------------------------------- another sampler


@dataclass(frozen=True)
class Single(AnnealedLangevin):
    """Algorithm 1 without the setting for a last denoising step."""

    name: ClassVar[str] = "single"
    denoise: bool = field(default=False, init=False)


def test_a_sampler_without_a_denoising_step_has_the_same_samples_twice(
    run: Path, tmp_path: Path, sampled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(samplers.SAMPLERS, "single", Single)
    model = load(run)
    maker = ReportMaker(SampleCache(model, Single(model.sigmas)), 20, 20, None, tmp_path, ALONE, silent)
    maker.prepare(["samples", "numbers"])
    assert maker.draw(20) == 20
    assert sampled == [20]
    maker.samples()
    assert (tmp_path / "samples.png").read_bytes() == (tmp_path / "samples_denoised.png").read_bytes()
    numbers = maker.numbers()
    assert numbers is not None
    assert numbers.plain == numbers.denoised


# ---------------------------------------------------------------- digits


def test_digits_are_judged(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mnist(store, {"train": 40, "t10k": 12})
    options = OPTIONS.replace("--sample-steps 7", "--sample-steps 1").replace("--held-out 6", "--held-out 0")
    main(["train", "tiny", "--data", "mnist", "--out", str(tmp_path / "run"), "--image-size", "None", "--steps", "1",
          *options.split()])  # fmt: skip

    for file in (store / "mnist").glob("t10k-*"):  # the test of the classifier is in its file
        file.unlink()

    def none(*_: object, **__: object) -> bytes:
        raise OSError("no network")

    monkeypatch.setattr(named, "download", none)
    found = report(tmp_path / "run", tmp_path / "r", "--parts", "numbers")
    for kind, last_step in (("plain", []), ("denoised", ["--denoise"])):
        main(["sample", str(tmp_path / "run"), "-n", str(N), *last_step, "--out", str(tmp_path / "s.npy")])
        assert found["digits"][kind] == to_json(digits.judge(np.load(tmp_path / "s.npy")))
        assert found["digits"][kind]["n"] == N
    assert found["digits"]["test"] == to_json(digits.load_classifier().test)


def test_which_models_make_digits(run: Path) -> None:
    model = load(run)
    digits = replace(model, recipe=replace(model.recipe, data="mnist"), shape=(1, 28, 28))
    assert parts.has_digits(digits)
    assert not parts.has_digits(replace(digits, shape=(1, 12, 12)))
    assert not parts.has_digits(replace(digits, recipe=model.recipe))


# ---------------------------------------------------------------- wrong calls


def test_wrong_calls(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    np.savez(tmp_path / "stats.npz", mu=np.zeros(24), sigma=np.eye(24))
    np.save(tmp_path / "colour.npy", dots(30, 1, (12, 12, 3)))
    np.save(tmp_path / "two.npy", dots(2, 1))
    ok: list[str | Path] = ["--out", tmp_path / "r"]
    cases: list[tuple[list[str | Path], int, list[str]]] = [
        ([run, "--out", tmp_path / "file" / "r"], 1, ["cannot make the folder"]),
        ([run, *ok, "-n", "1"], 2, ["-n", "from 2"]),
        ([run, *ok, "--parts"], 2, ["--parts", "samples, stages"]),
        ([run, *ok, "--data", tmp_path / "stats.npz"], 2, ["holds no images", "--parts samples stages numbers"]),
        ([tmp_path / "none", *ok], 2, ["no file"]),
        ([run, *ok, "--data", tmp_path / "none"], 2, ["does not exist"]),
        ([run, *ok, "--data", tmp_path / "colour.npy"], 2, ["(3, 12, 12)", "--parts samples stages numbers"]),
        ([run, *ok, "--data", tmp_path / "two.npy"], 2, ["has 2 images", "too few"]),
        ([run, *ok, "--name", "mine"], 2, ["--name"]),
    ]
    for arguments, expected, words in cases:
        code, said = failure(capsys, "report", *arguments)
        assert code == expected, said
        for each in words:
            assert each in said
        assert "sampling" not in said
