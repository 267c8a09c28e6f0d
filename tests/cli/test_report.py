"""report: the same numbers and pictures as from the commands that make them singly."""

from __future__ import annotations

import csv
import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_reports import OPTIONS, N, dots, read, report
from small_reports import run as run
from small_reports import sampled as sampled
from small_reports import store as store

from scorefield import load, version
from scorefield.models import checkpoint
from scorefield.cli import main
from scorefield.data import named
from scorefield.data.images import Pixels
from scorefield.evaluation import report as parts
from scorefield.models.generate import generate
from scorefield.images import grid, to_bytes
from scorefield.noise import SampleNoise, sample_seeds
from scorefield.training.history import read_log, run_of, thinned

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
    here = {"machine": "CPU, 1 thread", "processes": 1, "scorefield": version.__version__, "torch": torch.__version__}
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


def test_the_baseline_with_its_one_level(tmp_path: Path) -> None:
    np.save(tmp_path / "dots.npy", dots(60, 0))
    call = ["train", "tiny", "--data", str(tmp_path / "dots.npy"), "--out", str(tmp_path / "run"), "--image-size"]
    call += ["None", *OPTIONS.replace("--levels 2", "--levels 1 --sigma-max 0.05").split(), "--steps", "1"]
    main([*call, "--sample-steps", "30"])
    found = report(tmp_path / "run", tmp_path / "r")
    assert found["stages"]["steps"] == [0, 3, 5, 8, 11, 14, 16, 19, 22, 25, 27, 30]
    assert len(found["numbers"]["loss_per_level"]) == 1


def test_a_report_tells_that_a_model_was_imported(run: Path) -> None:
    model = replace(load(run), facts={"data": "unknown", "imported_from": "checkpoint.pth", "version": "1"})
    told = parts.about(model)
    assert (told["data"], told["imported_from"], "version" in told) == ("unknown", "checkpoint.pth", False)


def test_numbers_that_are_not_finite_are_told(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    model, seeds = load(run), sample_seeds(0, range(10))
    options = {"step_size": model.recipe.step_size, "steps": 7, "denoise": denoise}
    states = {s.step: s.x for s in generate(model.score, model.sigmas, model.shape, seeds, **options)}  # type: ignore[arg-type]
    states[0] = SampleNoise(seeds).rand_like(torch.empty(10, *model.shape))
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
    assert found["others"] == "training images among the others"


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
        ([str(run), *ok, "-n", "1"], 2, "from 2 to"),
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
