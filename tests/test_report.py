"""report: the same numbers and pictures as from the commands that make them singly, and no work done twice."""

from __future__ import annotations

import csv
import json
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_network import Small

from scorefield import bench, checkpoint, inception, load, version
from scorefield.cli import main
from scorefield.data import named
from scorefield.data.images import Pixels
from scorefield.distributed import Group
from scorefield.evaluation import How, Pool, pool
from scorefield.evaluation import report as parts
from scorefield.generate import generate
from scorefield.images import grid, to_bytes
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.runs.history import read_log, run_of, thinned
from scorefield.samplers import State

ALONE = Group(0, 1, torch.device("cpu"))
N = 30


def dots(n: int, seed: int, size: tuple[int, ...] = (12, 12)) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, *size), dtype=np.uint8)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    network = Small()
    monkeypatch.setattr(inception, "load_inception", lambda **_: network)
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    return tmp_path / "store"


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each run of the pool's sampler draws, as they come."""
    drawn: list[int] = []

    def watched(*arguments: Any, **options: Any) -> Iterator[State]:  # noqa: ANN401
        drawn.append(len(arguments[3]))
        return generate(*arguments, **options)

    monkeypatch.setattr(pool, "generate", watched)
    return drawn


OPTIONS = "--width 2 --levels 2 --held-out 6 --batch-size 4 --log-every 1 --previews 0 --sample-steps 7 --ema 0.5"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 60 grey images of 12 × 12, with two checkpoints."""
    folder = tmp_path_factory.mktemp("trained")
    np.save(folder / "dots.npy", dots(60, 0))
    call = ["train", "tiny", "--data", str(folder / "dots.npy"), "--out", str(folder / "run"), "--image-size", "None"]
    main([*call, *OPTIONS.split(), "--steps", "4", "--checkpoint-every", "2", "--evaluate-every", "2"])
    return folder / "run"


def report(model: Path, out: Path, *options: str) -> dict[str, Any]:
    main(["report", str(model), "--out", str(out), "-n", str(N), *options])
    return read(out / "report.json")


def read(path: Path) -> Any:  # noqa: ANN401
    return json.loads(path.read_text())


def small_picture(path: Path, width: int) -> Pixels:
    """A picture as it was before it was enlarged, `width` pixels wide."""
    with Image.open(path) as opened:
        pixels = np.asarray(opened)
    zoom = pixels.shape[1] // width
    return pixels[::zoom, ::zoom]


# ---------------------------------------------------------------- samples with and without the last step


def test_one_run_of_the_sampler_gives_what_two_would(
    run: Path, tmp_path: Path, sampled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, how = load(run), How(5, 1e-4, False, 3)
    plain, denoised = Pool(model, how).pair(70, ALONE, batch_size=60)
    assert sampled == [50, 20]
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "other"))
    apart = [Pool(model, How(5, 1e-4, kind, 3)).draw(70, ALONE, batch_size=100) for kind in (False, True)]
    assert sampled == [50, 20, 70, 70]
    assert np.array_equal(plain[:70], apart[0][:70])
    assert np.array_equal(denoised[:70], apart[1][:70])
    assert not np.array_equal(plain[:70], denoised[:70])


def test_samples_that_are_there_are_not_drawn_again_for_a_pair(run: Path, sampled: list[int]) -> None:
    model, how = load(run), How(5, 1e-4, True, 3)
    Pool(model, how).draw(60, ALONE, batch_size=100)
    assert Pool(model, how).missing(70) == [range(50, 70)]
    Pool(model, how).pair(60, ALONE, batch_size=100)
    assert sampled == [60]


# ---------------------------------------------------------------- the whole of it


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
        alone, here = read(out), found["numbers"][kind]
        for key in ("fid", "kid", "kid_standard_error", "precision", "recall", "inception_score", "n", "kept_n"):
            assert here[key] == pytest.approx(alone[key], rel=1e-9), (kind, key)
        for key in ("reference", "inception", "preprocessing", "loss", "loss_per_level", "loss_n", "loss_data"):
            assert found["numbers"][key] == alone[key]
    for space, name in (("pixel", "neighbors"), ("inception", "neighbors_inception")):
        out = tmp_path / f"{name}.png"
        call = ["neighbors", str(run), "-n", str(N), "--seed", "2", "--space", space, "--out", str(out)]
        main([*call, "--json", str(tmp_path / "n.json")])
        alone = read(tmp_path / "n.json")
        assert {key: alone[key] for key in found["neighbors"][name]} == found["neighbors"][name]
        assert out.read_bytes() == (tmp_path / "r" / f"{name}.png").read_bytes()
    assert sampled == [20, 10]  # these found their samples on the disk
    assert f"{found['numbers']['plain']['fid']:.4f} " in said
    assert f"{found['numbers']['denoised']['fid']:.4f}\n" in said
    for file in (*found["samples"]["files"], *found["stages"]["files"], *found["neighbors"]["files"]):
        assert (tmp_path / "r" / file).is_file()


def test_the_facts_that_stand_beside_the_numbers(run: Path, tmp_path: Path) -> None:
    found = report(run, tmp_path / "dots & more", "--step-size", "2e-4")
    model = load(run)
    assert found["command"] == "scorefield report run --out 'dots & more' -n 30 --step-size 0.0002"
    here = {"machine": "CPU, 1 threads", "processes": 1, "scorefield": version.__version__, "torch": torch.__version__}
    assert found["made_on"] == dict.fromkeys(("sampling", "samples", "stages", "neighbors", "numbers"), here)
    assert found["sampler"] == {"steps": 7, "step_size": 2e-4, "denoise": False, "seed": 0, "precision": "float32"}
    facts = found["model"]
    assert (facts["step"], facts["weights"], facts["digest"]) == (4, "ema", model.digest[:12])
    assert facts["recipe"]["width"] == 2
    assert facts["parameters"] == sum(p.numel() for p in model.network.parameters())
    assert facts["data_images"] == "54"
    assert facts["sigmas"] == pytest.approx([1.0, 0.05])
    assert set(found["seconds"]) == {"preparing", "sampling", "samples", "stages", "neighbors", "numbers"}
    assert found["sampling"] == {"images": N}


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
    model, seeds = load(run), sample_seeds(0, range(10))
    options = {"step_size": model.recipe.step_size, "steps": 7, "denoise": denoise}
    states = {s.step: s.x for s in generate(model.score, model.sigmas, model.shape, seeds, **options)}  # type: ignore[arg-type]
    states[0] = SampleNoise(seeds).rand_like(torch.empty(10, *model.shape))
    for column, step in enumerate(found["steps"]):
        expected = to_bytes(states[step])[..., 0]
        for row in range(10):
            top, left = 2 + row * 14, 2 + column * 14
            assert np.array_equal(picture[top : top + 12, left : left + 12], expected[row])


def test_the_baseline_with_its_one_level(tmp_path: Path) -> None:
    np.save(tmp_path / "dots.npy", dots(60, 0))
    call = ["train", "tiny", "--data", str(tmp_path / "dots.npy"), "--out", str(tmp_path / "run"), "--image-size"]
    call += ["None", *OPTIONS.replace("--levels 2", "--levels 1 --sigma-max 0.05").split(), "--steps", "1"]
    main([*call, "--sample-steps", "30"])
    found = report(tmp_path / "run", tmp_path / "r")
    assert found["stages"]["steps"] == [0, 3, 5, 8, 11, 14, 16, 19, 22, 25, 27, 30]
    assert len(found["numbers"]["loss_per_level"]) == 1


# ---------------------------------------------------------------- going on


def test_an_interrupted_report_goes_on_where_it_stopped(
    run: Path, tmp_path: Path, sampled: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = report(run, tmp_path / "whole")
    shutil.rmtree(tmp_path / "store")
    sampled.clear()

    def stopped(*_: object, **__: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(parts.Work, "neighbors", stopped)
        with pytest.raises(SystemExit) as exit_:
            report(run, tmp_path / "r")
    assert exit_.value.code == 130
    before = read(tmp_path / "r" / "report.json")
    assert set(before) & {"samples", "stages", "neighbors", "numbers"} == {"samples", "stages"}
    assert before["command"].endswith("--parts samples stages")
    assert sampled == [N]
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(parts.Work, "stages", stopped)
        found = report(run, tmp_path / "r")
    assert sampled == [N]
    assert "stages: there already" in capsys.readouterr().err
    assert found["seconds"]["stages"] == before["seconds"]["stages"]
    assert found["sampling"] == {"images": N}
    for part in ("samples", "stages", "neighbors", "numbers", "model", "training"):
        assert found[part] == whole[part]
    (tmp_path / "r" / "stages.png").unlink()
    report(run, tmp_path / "r")
    assert (tmp_path / "r" / "stages.png").is_file()


def test_a_report_of_another_model_or_setting_is_not_lost(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = report(run, tmp_path / "r", "--parts", "numbers")
    report(run, tmp_path / "r", "--parts", "stages")
    both = read(tmp_path / "r" / "report.json")
    assert both["numbers"] == first["numbers"]
    assert both["command"].endswith("--parts stages numbers")
    capsys.readouterr()
    np.save(tmp_path / "dots.npy", dots(60, 1))
    for others in (["--weights", "raw"], ["-n", "20"], ["--data", str(tmp_path / "dots.npy")], ["--seed", "1"]):
        with pytest.raises(SystemExit) as stopped:
            report(run, tmp_path / "r", "--parts", "stages", *others)
        assert stopped.value.code == 2
        assert "of another model or setting (name another --out, or delete it)" in capsys.readouterr().err
    assert read(tmp_path / "r" / "report.json") == both
    (tmp_path / "r" / "report.json").unlink()
    raw = report(run, tmp_path / "r", "--parts", "numbers", "--weights", "raw")
    assert raw["numbers"]["plain"]["fid"] != first["numbers"]["plain"]["fid"]


def test_data_of_the_same_name_in_two_places_are_told_apart(run: Path, tmp_path: Path) -> None:
    for place in "ab":
        (tmp_path / place).mkdir()
        np.save(tmp_path / place / "dots.npy", dots(60, 1))
    call = ["--parts", "numbers", "--data"]
    found = report(run, tmp_path / "r", *call, str(tmp_path / "a" / "dots.npy"))
    assert found["data"].startswith("dots.npy (")
    assert report(run, tmp_path / "r", *call, str(tmp_path / "a" / "dots.npy"))["numbers"] == found["numbers"]
    with pytest.raises(SystemExit):
        report(run, tmp_path / "r", *call, str(tmp_path / "b" / "dots.npy"))


def test_a_report_without_a_part_is_no_reason_to_refuse_another_setting(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(parts.Work, "draw", stopped)
        with pytest.raises(SystemExit):
            report(run, tmp_path / "r")
    assert read(tmp_path / "r" / "report.json")["n"] == N
    assert report(run, tmp_path / "r", "-n", "20", "--parts", "samples")["n"] == 20


def test_each_part_keeps_the_machine_and_the_versions_that_made_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = report(run, tmp_path / "r", "--parts", "samples")
    monkeypatch.setattr(bench, "device_name", lambda _: "another machine")
    monkeypatch.setattr(version, "__version__", "99")
    both = report(run, tmp_path / "r", "--parts", "samples", "neighbors")
    assert both["samples"] == first["samples"]
    for part in ("sampling", "samples"):  # all samples were there
        assert both["made_on"][part] == first["made_on"][part]
    assert both["made_on"]["neighbors"] == {**first["made_on"]["samples"], "machine": "another machine"} | {
        "scorefield": "99"
    }


def test_samples_that_either_kind_lacks_are_counted(run: Path, tmp_path: Path, sampled: list[int]) -> None:
    model = load(run)
    how = How(7, model.recipe.step_size, True, 0)
    Pool(model, how).draw(N, ALONE, batch_size=100)
    shutil.rmtree(Pool(model, How(7, model.recipe.step_size, False, 0)).folder)
    assert sampled == [N]
    assert report(run, tmp_path / "r", "--parts", "samples")["sampling"] == {"images": N}
    assert sampled == [N, N]


# ---------------------------------------------------------------- nothing of the machine on which it was made


@pytest.mark.parametrize("given", [False, True])
def test_a_report_holds_no_path_of_this_machine(
    run: Path,
    tmp_path: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: bool,
) -> None:
    monkeypatch.setattr(inception, "load_inception", lambda **_: Small(with_classes=False))
    np.save(tmp_path / "dots.npy", dots(20, 1))
    options = ["--data", str(tmp_path / "dots.npy")] if given else []
    found = report(run, tmp_path / "r", "-n", "20", *options)
    text = (tmp_path / "r" / "report.json").read_text()
    for place in (run.parent, tmp_path):
        assert str(place) not in text
    names = [found["model"]["data"], found["model"]["recipe"]["data"], found["neighbors"]["data"]]
    names += [found["numbers"]["reference"]["name"], found["numbers"]["loss_data"].split(" (")[0]]
    assert names == ["dots.npy"] * 5
    assert "$SCOREFIELD_DATA/inception brings it" in found["numbers"]["preprocessing"][-1]
    assert ("of the reference dots.npy" in "".join(found["numbers"]["plain"]["notes"])) == given
    capsys.readouterr()
    main(["evaluate", str(run), "-n", "20", "--json", str(tmp_path / "e.json")])
    assert f"in {store / 'inception'} brings it" in capsys.readouterr().err
    assert str(store) not in (tmp_path / "e.json").read_text()


def test_a_place_below_the_working_folder_is_told_from_there(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    command = report(run, tmp_path / "r", "--parts", "stages")["command"]
    assert command == "scorefield report run --out r -n 30 --parts stages"
    shutil.copytree(run, tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    command = report(tmp_path / "runs" / "mine", Path("s"), "--parts", "stages")["command"]
    assert command == "scorefield report runs/mine --out s -n 30 --parts stages"


# ---------------------------------------------------------------- what the neighbours are compared with


def test_where_nothing_is_held_out_the_report_says_so(run: Path, tmp_path: Path) -> None:
    call = ["--parts", "neighbors"]
    assert report(run, tmp_path / "r", *call)["neighbors"]["others"] == "held-out images"
    np.save(tmp_path / "more.npy", dots(60, 1))
    found = report(run, tmp_path / "s", *call, "--data", str(tmp_path / "more.npy"))["neighbors"]
    assert found["others"] == "training images among the others"


def test_numbers_that_are_not_finite_are_told(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(run, tmp_path / "r", "--parts", "numbers")
    found["numbers"]["denoised"]["fid"] = found["numbers"]["loss"] = None
    (tmp_path / "r" / "report.json").write_text(json.dumps(found))
    capsys.readouterr()
    report(run, tmp_path / "r", "--parts", "numbers")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  fid")]
    assert line.split() == ["fid", f"{found['numbers']['plain']['fid']:.4f}", "–"]


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
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (other / "recipe.json").write_text((run / "recipe.json").read_text().replace('"width": 2', '"width": 3'))
    capsys.readouterr()
    for place, words in ((tmp_path / "none", "holds no run"), (other, "run of another model: it differs in width")):
        with pytest.raises(SystemExit) as stopped:
            report(alone, tmp_path / "wrong", "--run", str(place))
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err


def test_logs_are_thinned_evenly_with_both_ends() -> None:
    log = {"columns": ["step", "loss"], "rows": [[k, 1.0 / k] for k in range(1, 2001)]}
    kept = [row[0] for row in thinned(log)["rows"]]
    assert (len(kept), kept[0], kept[-1]) == (200, 1, 2000)
    assert set(np.diff(kept)) <= {10, 11}
    assert thinned({"columns": [], "rows": []}) == {"columns": [], "rows": []}
    assert read_log(Path("nowhere.csv")) == {"columns": [], "rows": []}


def test_the_run_that_a_model_lies_in(run: Path, tmp_path: Path) -> None:
    (tmp_path / "best").symlink_to(checkpoint.model_files(run)[0])
    for model in (run, checkpoint.model_files(run)[0], tmp_path / "best"):
        found = run_of(model)
        assert found is not None
        assert found.samefile(run)
    assert run_of(tmp_path) is None
    assert run_of(Path("mnist-small")) is None


# ---------------------------------------------------------------- digits


def test_digits_are_judged(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store / "mnist").mkdir(parents=True)
    for name, n in (("train-images-idx3-ubyte", 40), ("t10k-images-idx3-ubyte", 12)):
        header = struct.pack(">4I", 0x803, n, 28, 28)
        (store / "mnist" / name).write_bytes(header + dots(n, n, (28, 28)).tobytes())
    options = OPTIONS.replace("--sample-steps 7", "--sample-steps 1").replace("--held-out 6", "--held-out 0")
    main(["train", "tiny", "--data", "mnist", "--out", str(tmp_path / "run"), "--image-size", "None", "--steps", "1",
          *options.split()])  # fmt: skip

    (store / "mnist" / "t10k-images-idx3-ubyte").unlink()  # the judge knows what it says of MNIST's test set
    real = {"n": 10_000, "accepted": 0.985}

    def judge(pixels: Pixels) -> dict[str, Any]:
        return {"n": len(pixels), "accepted": float(pixels.mean()) / 255, "real": real}

    def none(*_: object, **__: object) -> bytes:
        raise OSError("no network")

    monkeypatch.setattr(parts, "judge", judge)
    monkeypatch.setattr(named, "download", none)
    found = report(tmp_path / "run", tmp_path / "r", "--parts", "numbers")
    main(["sample", str(tmp_path / "run"), "-n", str(N), "--denoise", "--out", str(tmp_path / "s.npy")])
    assert found["digits"]["denoised"] | {"real": real} == judge(np.load(tmp_path / "s.npy"))
    assert found["digits"]["test"] == real
    assert found["digits"]["plain"]["n"] == N


def test_a_report_tells_that_a_model_was_imported(run: Path) -> None:
    model = replace(load(run), facts={"data": "unknown", "imported_from": "checkpoint.pth", "version": "1"})
    told = parts.about(model)
    assert (told["data"], told["imported_from"], "version" in told) == ("unknown", "checkpoint.pth", False)


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
    ok = ["--out", str(tmp_path / "r")]
    cases = [
        ([str(run), "--out", str(tmp_path / "file" / "r")], 1, "cannot make the folder"),
        ([str(run), *ok, "-n", "1"], 2, "at least 2"),
        ([str(run), *ok, "--parts"], 2, "--parts needs one or more of samples, stages"),
        ([str(run), *ok, "--data", str(tmp_path / "stats.npz")], 2, "--parts samples stages numbers"),
        ([str(tmp_path / "none"), *ok], 2, "no file"),
        ([str(run), *ok, "--data", str(tmp_path / "none")], 2, "does not exist"),
        ([str(run), *ok, "--data", str(tmp_path / "colour.npy")], 2, "colour.npy of (3, 12, 12) (--parts samples"),
        ([str(run), *ok, "--data", str(tmp_path / "two.npy")], 2, "has 2 images: too few to be anybody's neighbours"),
        ([str(run), *ok, "--name", "mine"], 2, "--name"),
    ]
    for arguments, code, words in cases:
        with pytest.raises(SystemExit) as stopped:
            main(["report", *arguments])
        said = capsys.readouterr().err
        assert stopped.value.code == code, said
        assert words in said
        assert "sampling" not in said
