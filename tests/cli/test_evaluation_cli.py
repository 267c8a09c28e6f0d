"""evaluate and select, and the samples they leave, with a small random network in Inception's place."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_evaluation import ALONE, dots, numbers_of
from small_evaluation import small as small
from small_network import Small
from torch import Tensor

from scorefield import data, load
from scorefield.models import checkpoint
from scorefield.evaluation import inception
from scorefield.cli import main
from scorefield.evaluation import How, Pool, measured, pool
from scorefield.evaluation.subjects import training_images
from scorefield.models.generate import generate
from scorefield.images import to_bytes
from scorefield.metrics import frechet_distance
from scorefield.noise import sample_seeds
from scorefield.samplers import State, last
from scorefield.score import Score


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three checkpoints, of 60 grey images of 8 × 8."""
    folder = tmp_path_factory.mktemp("trained")
    np.save(folder / "dots.npy", dots(60, 0))
    options = "--image-size None --width 2 --levels 2 --held-out 6 --steps 6 --batch-size 4 --checkpoint-every 2"
    options += " --log-every 1 --previews 0 --sample-steps 2 --ema 0.5"
    main(["train", "tiny", "--data", str(folder / "dots.npy"), "--out", str(folder / "run"), *options.split()])
    return folder / "run"


# ---------------------------------------------------------------- samples on the disk


def test_samples_are_drawn_once_and_go_on_where_they_stopped(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CHUNK", 3)
    model, how = load(trained), How(2, 1e-4, False, 7)
    drawn: list[int] = []
    stop = [True]

    def watched(
        score: Score,
        sigmas: Tensor,
        shape: tuple[int, ...],
        seeds: Sequence[int],
        *,
        step_size: float,
        steps: int,
        denoise: bool,
    ) -> Iterator[State]:
        if stop and len(drawn) == 2:
            raise KeyboardInterrupt
        drawn.append(len(seeds))
        return generate(score, sigmas, shape, seeds, step_size=step_size, steps=steps, denoise=denoise)

    monkeypatch.setattr(pool, "generate", watched)
    with pytest.raises(KeyboardInterrupt):
        Pool(model, how).draw(14, ALONE, batch_size=3)
    drawn.clear()
    stop.clear()
    samples = Pool(model, how).draw(14, ALONE, batch_size=100)
    assert drawn == [8]  # six were there
    seeds = sample_seeds(7, range(14))
    expected = to_bytes(last(generate(model.score, model.sigmas, model.shape, seeds, step_size=1e-4, steps=2)))
    assert np.array_equal(samples[0:14], expected)
    assert np.array_equal(samples[4:8], expected[4:8])
    assert np.array_equal(Pool(model, how).draw(4, ALONE, batch_size=9)[0:4], expected[:4])
    shorter = Pool(model, how).draw(13, ALONE, batch_size=9)  # has a last file of its own, beside the longer one
    assert np.array_equal(shorter[0:13], expected[:13])
    assert np.array_equal(samples[0:14], expected)
    drawn.clear()
    Pool(model, how).draw(16, ALONE, batch_size=2)  # the last file but one had two of three; two at once at most
    assert drawn == [2, 1, 1]
    drawn.clear()
    Pool(model, How(2, 1e-4, True, 7)).draw(3, ALONE, batch_size=9)
    Pool(load(trained, weights="raw"), how).draw(3, ALONE, batch_size=9)
    Pool(load(checkpoint.model_files(trained)[0]), how).draw(3, ALONE, batch_size=9)
    assert drawn == [3, 3, 3]


def test_a_model_file_tells_its_digest(trained: Path) -> None:
    assert load(trained).digest == checkpoint.read(checkpoint.model_files(trained)[-1])[1]["sha256"]


# ---------------------------------------------------------------- evaluate


def test_evaluate_a_model(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", str(trained), "-n", "30", "--denoise", "--seed", "3", "--json", str(tmp_path / "e.json")])
    said = capsys.readouterr()
    numbers = numbers_of(tmp_path / "e.json")
    main(["sample", str(trained), "-n", "30", "--denoise", "--seed", "3", "--out", str(tmp_path / "s.npy")])
    network = Small()
    samples = measured(np.load(tmp_path / "s.npy"), 30, network, ALONE)
    training, held_out = data.split(data.load(str(trained.parent / "dots.npy")), 6)
    reference = measured(training.pixels, 54, network, ALONE)
    assert numbers["fid"] == pytest.approx(frechet_distance(samples.statistics, reference.statistics), rel=1e-6)
    assert numbers["inception_score"] == pytest.approx(samples.classes.result()[0])  # type: ignore[union-attr]
    assert (numbers["n"], numbers["denoised"], numbers["reference"]["n"]) == (30, True, 54)
    assert len(numbers["loss_per_level"]) == 2
    assert numbers["loss"] == pytest.approx(np.mean(numbers["loss_per_level"]))
    assert (numbers["loss_n"], len(held_out)) == (6, 6)
    assert numbers["model"]["weights"] == "ema"
    assert f"FID              {numbers['fid']:.4f}   n = 30, denoised" in said.out
    assert f"(54 images, {training.digest[:12]})" in said.out
    assert "8 × 8 pixels were resized" in said.err
    assert "three equal channels" in said.err


def test_other_data_are_compared_with_whole_and_changed_data_are_noticed(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    np.save(tmp_path / "other.npy", dots(33, 9))
    main(["evaluate", str(run), "-n", "30", "--data", str(tmp_path / "other.npy"), "--json", str(tmp_path / "e.json")])
    numbers = numbers_of(tmp_path / "e.json")
    assert (numbers["reference"]["n"], numbers["loss_n"]) == (33, 6)
    original = (trained.parent / "dots.npy").read_bytes()
    try:
        np.save(trained.parent / "dots.npy", dots(61, 0))
        with pytest.warns(UserWarning, match="is not what the model was trained on"):
            training_images(load(run), None, ALONE)
        (trained.parent / "dots.npy").unlink()
        with pytest.raises(SystemExit):
            main(["evaluate", str(run), "-n", "30"])
        assert "cannot find what the model was trained on" in capsys.readouterr().err
    finally:
        (trained.parent / "dots.npy").write_bytes(original)


def test_a_model_of_cropped_images_is_compared_with_large_and_with_cropped_ones(tmp_path: Path) -> None:
    large = dots(40, 3, (12, 12))
    np.save(tmp_path / "large.npy", large)
    np.save(tmp_path / "middle.npy", large[:, 2:10, 2:10])
    options = "--crop 8 --image-size 8 --width 2 --levels 2 --held-out 0 --steps 1 --batch-size 4 --previews 0"
    main(["train", "tiny", "--data", str(tmp_path / "large.npy"), "--out", str(tmp_path / "run"), *options.split()])
    model = load(tmp_path / "run")
    found = [training_images(model, str(tmp_path / name), ALONE)[0] for name in ("large.npy", "middle.npy")]
    assert np.array_equal(found[0].pixels, found[1].pixels)
    np.save(tmp_path / "small.npy", dots(5, 3, (6, 6)))
    assert training_images(model, str(tmp_path / "small.npy"), ALONE)[0].shape == (1, 8, 8)


def test_the_objective_alone_is_the_same_twice(trained: Path, tmp_path: Path) -> None:
    for name in "ab":
        main(["evaluate", str(trained), "-n", "0", "--json", str(tmp_path / f"{name}.json")])
    a, b = numbers_of(tmp_path / "a.json"), numbers_of(tmp_path / "b.json")
    assert a == b
    assert "fid" not in a
    raw = tmp_path / "raw.json"
    main(["evaluate", str(trained), "-n", "0", "--weights", "raw", "--json", str(raw)])
    assert numbers_of(raw)["loss"] != a["loss"]


def test_evaluate_images_of_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for k, pixels in enumerate(dots(12, 4, (9, 7, 3))):
        Image.fromarray(pixels).save(folder / f"{k}.png")
    np.save(tmp_path / "a.npy", dots(30, 5, (8, 8, 3)))
    main(["evaluate", str(folder), "--data", str(tmp_path / "a.npy"), "--json", str(tmp_path / "e.json")])
    numbers = numbers_of(tmp_path / "e.json")
    assert (numbers["n"], numbers["reference"]["n"], "loss" in numbers, "denoised" in numbers) == (12, 30, False, False)
    capsys.readouterr()
    for call in (["evaluate", str(folder)], ["neighbors", str(folder)], ["evaluate", "nowhere", "--data", str(folder)]):
        with pytest.raises(SystemExit) as stopped:
            main(call)
        assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "say what to compare with" in said
    assert "'nowhere' does not exist" in said


def test_without_the_class_layer_the_message_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inception, "load_inception", lambda **_: Small(with_classes=False))
    np.save(tmp_path / "a.npy", dots(30, 5))
    main(["evaluate", str(tmp_path / "a.npy"), "--data", str(tmp_path / "a.npy"), "--json", str(tmp_path / "e.json")])
    assert numbers_of(tmp_path / "e.json")["inception_score"] is None
    assert "pt_inception-2015-12-05-6726825d.pth" in capsys.readouterr().err


def test_two_processes_measure_what_one_does(trained: Path, tmp_path: Path) -> None:
    """Sampling, features and statistics shared by two: the same numbers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def start(store: str, rank: int, world: int) -> subprocess.Popen[str]:
        call = ["evaluate", str(trained), "-n", "120", "--json", str(tmp_path / f"{store}.json")]
        code = "import scorefield.evaluation.inception as i, small_network\ni.load_inception = small_network.Small\n"
        code += f"from scorefield.cli import main\nmain({call!r})"
        together = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        more = {
            **together,
            "SCOREFIELD_DATA": str(tmp_path / store),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parent),
        }
        return subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **more}, stderr=subprocess.PIPE, text=True
        )

    processes = [start("one", 0, 1), start("two", 0, 2), start("two", 1, 2)]
    for process in processes:
        said = process.communicate(timeout=120)[1]
        assert process.returncode == 0, said
    one, two = numbers_of(tmp_path / "one.json"), numbers_of(tmp_path / "two.json")
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
    chosen = numbers_of(run / "select.json")
    assert [row["step"] for row in chosen["table"]] == [2, 4, 6]
    assert len({row["fid"] for row in chosen["table"]}) == 3
    assert {row["weights"] for row in chosen["table"]} == {"ema"}
    best = min(chosen["table"], key=lambda row: row["fid"])
    assert chosen["best"] == best
    assert load(run / "best").step == best["step"]
    assert load(run).step == 6
    main(["evaluate", str(run / "best"), "-n", "40", "--json", str(tmp_path / "e.json")])
    assert numbers_of(tmp_path / "e.json")["fid"] == pytest.approx(best["fid"], rel=1e-9)
    with Image.open(run / "select.png") as picture:
        assert picture.width > 400
    assert f"{best['fid']:9.3f}   best" in said
    main(["select", str(run), "-n", "40", "--weights", "raw"])  # the link is replaced
    again = numbers_of(run / "select.json")
    assert {row["weights"] for row in again["table"]} == {"raw"}
    assert again["best"]["fid"] != best["fid"]
    with pytest.raises(SystemExit) as stopped:
        main(["select", str(tmp_path)])
    assert stopped.value.code == 2
