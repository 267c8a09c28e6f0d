"""evaluate and select, with a small random network in Inception's place."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forked import Program, command_line, ended, ranks
from PIL import Image
from small_evaluation import ALONE, Small, dots, read_json
from small_evaluation import small as small

from cli.calls import failure
from scorefield import data, load, samplers
from scorefield.cli import main
from scorefield.cli.evaluate import sample_cache
from scorefield.cli.options import Sampling
from scorefield.evaluation import inception
from scorefield.evaluation.features import measure
from scorefield.evaluation.sources import load_training_images
from scorefield.metrics import frechet_distance
from scorefield.models import checkpoint


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three checkpoints, on 60 grey images of 8 × 8."""
    folder = tmp_path_factory.mktemp("trained")
    np.save(folder / "dots.npy", dots(60, 0))
    options = "--image-size None --width 2 --levels 2 --held-out 6 --steps 6 --batch-size 4 --checkpoint-every 2"
    options += " --log-every 1 --previews 0 --sample-steps 2 --ema 0.5"
    main(["train", "tiny", "--data", str(folder / "dots.npy"), "--out", str(folder / "run"), *options.split()])
    return folder / "run"


def test_the_digest_of_a_model_is_that_of_its_file(trained: Path) -> None:
    assert load(trained).digest == checkpoint.read(checkpoint.model_files(trained)[-1])[1]["sha256"]


# ---------------------------------------------------------------- evaluate


def test_evaluate_a_model(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", str(trained), "-n", "30", "--denoise", "--seed", "3", "--json", str(tmp_path / "e.json")])
    said = capsys.readouterr()
    numbers = read_json(tmp_path / "e.json")
    main(["sample", str(trained), "-n", "30", "--denoise", "--seed", "3", "--out", str(tmp_path / "s.npy")])
    network = Small()
    samples = measure(np.load(tmp_path / "s.npy"), 30, network, ALONE)
    training, held_out = data.split(data.load(str(trained.parent / "dots.npy")), 6)
    reference = measure(training.pixels, 54, network, ALONE)
    assert numbers["fid"] == pytest.approx(frechet_distance(samples.statistics, reference.statistics), rel=1e-6)
    assert numbers["inception_score"] == pytest.approx(samples.classes.result()[0])  # type: ignore[union-attr]
    assert (numbers["n"], numbers["denoised"], numbers["reference"]["n"]) == (30, True, 54)
    assert len(numbers["loss_per_level"]) == 2
    assert numbers["loss"] == pytest.approx(np.mean(numbers["loss_per_level"]))
    assert (numbers["loss_n"], len(held_out)) == (6, 6)
    assert [each["sigma"] for each in numbers["loss_by_sigma"]] == pytest.approx([1.0, 0.05])
    assert [each["loss"] for each in numbers["loss_by_sigma"]] == numbers["loss_per_level"]
    assert numbers["model"]["weights"] == "ema"
    assert numbers["sampler"] == samplers.to_dict(replace(load(trained).sampler, denoise=True))  # type: ignore[type-var]
    assert (numbers["seed"], numbers["sampling_precision"], numbers["calls"]) == (3, "float32", 5)
    (line,) = [line for line in said.out.splitlines() if "FID" in line]
    assert f"{numbers['fid']:.4f}" in line
    assert "n = 30, denoised" in line
    assert training.digest[:12] in said.out
    assert "8 × 8" in said.err
    assert "three equal channels" in said.err


def test_samples_that_were_not_denoised_are_called_so(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, said in (([], "n = 4, not denoised"), (["--denoise"], "n = 4, denoised")):
        main(["evaluate", str(trained), "-n", "4", *options, "--json", str(tmp_path / "e.json")])
        assert read_json(tmp_path / "e.json")["denoised"] is bool(options)
        assert said in capsys.readouterr().out


def test_the_sample_cache_of_a_command_has_its_seed_and_precision(trained: Path) -> None:
    """Here the precision of a GPU is asked for in vain: a CPU computes in float32."""
    model = load(trained)
    made = sample_cache(model, Sampling(n=4, seed=5, precision="float32"))
    assert (made.seed, made.precision, made.sampler) == (5, "float32", model.sampler)
    assert made.folder != sample_cache(model, Sampling(n=4, seed=6)).folder


def test_other_data_are_compared_with_whole_and_changed_data_are_noticed(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    np.save(tmp_path / "other.npy", dots(33, 9))
    main(["evaluate", str(run), "-n", "30", "--data", str(tmp_path / "other.npy"), "--json", str(tmp_path / "e.json")])
    numbers = read_json(tmp_path / "e.json")
    assert (numbers["reference"]["n"], numbers["loss_n"]) == (33, 6)
    original = (trained.parent / "dots.npy").read_bytes()
    try:
        np.save(trained.parent / "dots.npy", dots(61, 0))
        with pytest.warns(UserWarning, match="not what the model was trained on"):
            load_training_images(load(run), None, ALONE)
        (trained.parent / "dots.npy").unlink()
        assert "cannot find what the model was trained on" in failure(capsys, "evaluate", run, "-n", "30")[1]
    finally:
        (trained.parent / "dots.npy").write_bytes(original)


def test_a_model_of_cropped_images_is_compared_with_large_and_with_cropped_ones(tmp_path: Path) -> None:
    large = dots(40, 3, (12, 12))
    np.save(tmp_path / "large.npy", large)
    np.save(tmp_path / "middle.npy", large[:, 2:10, 2:10])
    options = "--crop 8 --image-size 8 --width 2 --levels 2 --held-out 0 --steps 1 --batch-size 4 --previews 0"
    main(["train", "tiny", "--data", str(tmp_path / "large.npy"), "--out", str(tmp_path / "run"), *options.split()])
    model = load(tmp_path / "run")
    found = [load_training_images(model, str(tmp_path / name), ALONE)[0] for name in ("large.npy", "middle.npy")]
    assert np.array_equal(found[0].pixels, found[1].pixels)
    np.save(tmp_path / "small.npy", dots(5, 3, (6, 6)))
    assert load_training_images(model, str(tmp_path / "small.npy"), ALONE)[0].shape == (1, 8, 8)


def test_the_objective_alone_is_the_same_twice(trained: Path, tmp_path: Path) -> None:
    for name in "ab":
        main(["evaluate", str(trained), "-n", "0", "--json", str(tmp_path / f"{name}.json")])
    a, b = read_json(tmp_path / "a.json"), read_json(tmp_path / "b.json")
    assert a == b
    assert "fid" not in a
    raw = tmp_path / "raw.json"
    main(["evaluate", str(trained), "-n", "0", "--weights", "raw", "--json", str(raw)])
    assert read_json(raw)["loss"] != a["loss"]


def test_evaluate_images_of_several_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for k, pixels in enumerate(dots(12, 4, (9, 7, 3))):
        Image.fromarray(pixels).save(folder / f"{k}.png")
    np.save(tmp_path / "a.npy", dots(30, 5, (8, 8, 3)))
    main(["evaluate", str(folder), "--data", str(tmp_path / "a.npy"), "--json", str(tmp_path / "e.json")])
    numbers = read_json(tmp_path / "e.json")
    assert (numbers["n"], numbers["reference"]["n"], "loss" in numbers, "denoised" in numbers) == (12, 30, False, False)
    capsys.readouterr()
    for command in ("evaluate", "neighbors"):
        code, said = failure(capsys, command, folder)
        assert code == 2
        assert "--data" in said
    code, said = failure(capsys, "evaluate", "nowhere", "--data", folder)
    assert code == 2
    assert "'nowhere' does not exist" in said


def test_the_options_of_a_sampler_do_not_apply_to_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", dots(30, 5))
    for options in (["--steps", "3"], ["--weights", "raw"], ["--denoise"], ["--sampler", "annealed_langevin"]):
        code, said = failure(capsys, "evaluate", tmp_path / "a.npy", "--data", tmp_path / "a.npy", *options)
        assert code == 2
        assert options[0] in said
    code, said = failure(capsys, "evaluate", "mnist", "--steps", "3", "--step-size", "1e-4")
    assert code == 2
    for word in ("--steps", "--step-size", "model:mnist"):
        assert word in said


def test_the_objective_alone_needs_a_model_and_held_out_images(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", dots(30, 5))
    for what, words in ((tmp_path / "a.npy", "is images"), ("mnist-small", "no held-out images")):
        code, said = failure(capsys, "evaluate", what, "-n", "0")
        assert code == 2
        assert words in said
    code, said = failure(capsys, "evaluate", trained, "-n", "1")
    assert code == 2
    assert "-n must be 0" in said


def test_without_the_class_layer_a_note_names_the_file_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inception, "load_inception", lambda **_: Small(with_classes=False))
    np.save(tmp_path / "a.npy", dots(30, 5))
    main(["evaluate", str(tmp_path / "a.npy"), "--data", str(tmp_path / "a.npy"), "--json", str(tmp_path / "e.json")])
    assert read_json(tmp_path / "e.json")["inception_score"] is None
    assert "pt_inception-2015-12-05-6726825d.pth" in capsys.readouterr().err


def test_two_processes_measure_what_one_does(trained: Path, tmp_path: Path) -> None:
    """Two processes share sampling, features and statistics, and give the same numbers."""
    before = "from small_evaluation import Small, inception\ninception.load_inception = Small"

    def start(store: str, processes: int) -> list[Program]:
        call = ["evaluate", trained, "-n", "120", "--json", tmp_path / f"{store}.json"]
        folder = {"SCOREFIELD_DATA": str(tmp_path / store)}
        return [command_line(*call, before=before, variables=folder | joined) for joined in ranks(processes)]

    ended(start("one", 1) + start("two", 2))
    one, two = read_json(tmp_path / "one.json"), read_json(tmp_path / "two.json")
    for name in ("fid", "kid", "kid_standard_error", "precision", "recall", "inception_score", "loss"):
        assert two[name] == pytest.approx(one[name], rel=1e-6, abs=1e-9)


# ---------------------------------------------------------------- select


def test_select_takes_the_checkpoint_with_the_smallest_fid(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    main(["select", str(run), "-n", "40"])
    said = capsys.readouterr().out
    chosen = read_json(run / "select.json")
    assert [row["step"] for row in chosen["table"]] == [2, 4, 6]
    assert len({row["fid"] for row in chosen["table"]}) == 3
    assert {row["weights"] for row in chosen["table"]} == {"ema"}
    best = min(chosen["table"], key=lambda row: row["fid"])
    assert chosen["best"] == best
    assert chosen["denoised"] is False
    assert "n = 40, not denoised" in said
    assert load(run / "best").step == best["step"]
    assert load(run).step == 6
    main(["evaluate", str(run / "best"), "-n", "40", "--json", str(tmp_path / "e.json")])
    assert read_json(tmp_path / "e.json")["fid"] == pytest.approx(best["fid"], rel=1e-9)
    with Image.open(run / "select.png") as picture:
        assert picture.width > 400
    (line,) = [line for line in said.splitlines() if line.endswith("best")]
    assert line.split() == [str(best["step"]), f"{best['fid']:.3f}", "best"]
    assert (chosen["sampler"]["steps"], chosen["seed"], chosen["calls"]) == (2, 0, 4)
    main(["select", str(run), "-n", "40", "--weights", "raw"])  # the link is replaced
    again = read_json(run / "select.json")
    assert {row["weights"] for row in again["table"]} == {"raw"}
    assert again["best"]["fid"] != best["fid"]
    assert failure(capsys, "select", tmp_path)[0] == 2


def test_select_leaves_damaged_checkpoints_out(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    first, middle, newest = checkpoint.model_files(run)
    for file in (middle, newest):
        file.write_bytes(file.read_bytes()[:-5])
    main(["select", str(run), "-n", "4"])
    said = capsys.readouterr().err
    assert [row["step"] for row in read_json(run / "select.json")["table"]] == [2]
    for file in (middle, newest):
        (line,) = [line for line in said.splitlines() if str(file) in line]
        assert line.startswith("note: ")
        assert line.endswith("; it is left out")
    first.write_bytes(b"")
    code, said = failure(capsys, "select", run, "-n", "4")
    assert code == 2
    assert said == f"scorefield: all checkpoints of {run} are damaged (train it again, or copy them again)\n"


def test_select_needs_matplotlib_before_it_samples(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, said = failure(capsys, "select", trained, "-n", "4")
    assert (code, said) == (1, "scorefield: figures need matplotlib (pip install matplotlib)\n")
