"""evaluate, select and neighbors, with a small random network in Inception's place."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_network import Small
from torch import Tensor

from scorefield import checkpoint, data, inception, load
from scorefield.cli import main
from scorefield.data.images import Pixels
from scorefield.distributed import Group
from scorefield.evaluation import How, Pool, compared, measured, pool, reference_of
from scorefield.evaluation.features import places_of
from scorefield.evaluation.reference import is_statistics_file, statistics_file
from scorefield.evaluation.subjects import rows_of, training_images
from scorefield.generate import generate
from scorefield.images import to_bytes
from scorefield.metrics import ClassScore, Statistics, frechet_distance, kernel_distance, precision_recall
from scorefield.noise import sample_seeds
from scorefield.samplers import State, last
from scorefield.score import Score

ALONE = Group(0, 1, torch.device("cpu"))


def dots(n: int, seed: int, size: tuple[int, ...] = (8, 8)) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, *size), dtype=np.uint8)


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    network = Small()
    monkeypatch.setattr(inception, "load_inception", lambda **_: network)
    return network


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three checkpoints, of 60 grey images of 8 × 8."""
    folder = tmp_path_factory.mktemp("trained")
    np.save(folder / "dots.npy", dots(60, 0))
    options = "--image-size None --width 2 --levels 2 --held-out 6 --steps 6 --batch-size 4 --checkpoint-every 2"
    options += " --log-every 1 --previews 0 --sample-steps 2 --ema 0.5"
    main(["train", "tiny", "--data", str(folder / "dots.npy"), "--out", str(folder / "run"), *options.split()])
    return folder / "run"


# ---------------------------------------------------------------- one pass


def test_a_pass_gives_what_all_features_at_once_give(small: Small) -> None:
    pixels = dots(130, 1, (8, 8, 3))
    found = measured(pixels, 130, small, ALONE, batch_size=17)
    features = small(torch.tensor(pixels))
    whole = Statistics.empty(24)
    whole.add(features)
    torch.testing.assert_close(found.statistics.covariance, whole.covariance)
    torch.testing.assert_close(found.kept, features[places_of(130).argsort()])
    score = ClassScore.empty(130, 5)
    score.add(small.logits(features), places_of(130))
    assert found.classes is not None
    assert found.classes.result() == pytest.approx(score.result())
    alone = measured(pixels, 130, small, ALONE, batch_size=1000)
    torch.testing.assert_close(alone.statistics.scatter, found.statistics.scatter)


def test_memory_does_not_grow_with_n(small: Small) -> None:
    """Images are asked for batch by batch, and the features of 10,000 at most are kept, drawn at random."""
    asked: list[int] = []

    class Many:
        def __len__(self) -> int:
            return 25_000

        def __getitem__(self, part: slice) -> Pixels:
            asked.append(part.stop - part.start)
            return np.broadcast_to(
                (np.arange(part.start, part.stop) % 256).astype(np.uint8)[:, None, None, None],
                (part.stop - part.start, 8, 8, 1),
            )

    found = measured(Many(), 25_000, small, ALONE, batch_size=1000)
    assert (max(asked), sum(asked), found.n) == (1000, 25_000, 25_000)
    assert len(found.kept) == 10_000
    numbers = places_of(25_000).argsort()[:10_000]
    expected = small(torch.as_tensor(numbers % 256).byte()[:, None, None, None].expand(-1, 8, 8, 1))
    torch.testing.assert_close(found.kept, expected)


def test_what_is_compared(small: Small) -> None:
    a = measured(dots(50, 1, (8, 8, 1)), 50, small, ALONE)
    images = data.Images(dots(40, 2, (8, 8, 1)), "forty", "f" * 64)
    reference = reference_of(images, small, ALONE)
    b = measured(images.pixels, 40, small, ALONE)
    numbers = compared(a, reference)
    assert numbers["fid"] == frechet_distance(a.statistics, b.statistics)
    assert (numbers["kid"], numbers["kid_standard_error"]) == kernel_distance(a.kept, b.kept)
    assert (numbers["precision"], numbers["recall"]) == precision_recall(a.kept, b.kept)
    assert (numbers["n"], numbers["notes"]) == (50, [])
    for n, notes in ((24, 1), (25, 0)):
        assert len(compared(measured(dots(n, 1, (8, 8, 1)), n, small, ALONE), reference)["notes"]) == notes
    few = measured(dots(5, 1, (8, 8, 1)), 5, small, ALONE)
    assert (
        "5 images are too few for the covariance of 24 features of the samples" in compared(few, reference)["notes"][0]
    )


def test_the_reference_is_computed_once(small: Small, tmp_path: Path) -> None:
    images = data.Images(dots(40, 2, (8, 8, 1)), "forty", "f" * 64)
    first = reference_of(images, small, ALONE)
    calls = small.calls
    again = reference_of(images, small, ALONE)
    assert small.calls == calls
    assert frechet_distance(first.moments, again.moments) == pytest.approx(0, abs=1e-9)
    assert (again.n, again.digest, again.name) == (40, "f" * 12, "forty")
    (entry,) = (tmp_path / "store" / "cache").glob("features-*.safetensors")
    entry.write_bytes(entry.read_bytes()[:-9])
    reference_of(images, small, ALONE)
    assert small.calls > calls
    other = data.Images(dots(40, 3, (8, 8, 1)), "forty", "e" * 64)
    assert frechet_distance(reference_of(other, small, ALONE).moments, first.moments) > 1e-3
    calls, small.digest = small.calls, "another network"
    reference_of(other, small, ALONE)
    assert small.calls > calls


def test_sorted_images_are_measured_as_shuffled_ones(small: Small) -> None:
    """A folder comes sorted by name, and so often by class: KID's blocks and the splits must not be single classes."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 256, (10, 8, 8, 1))
    kinds = np.sort(rng.integers(0, 10, 400)), rng.integers(0, 10, 400)
    noisy = (classes[each] + rng.normal(0, 8, (400, 8, 8, 1)) for each in kinds)
    by_class, mixed = (np.clip(each, 0, 255).astype(np.uint8) for each in noisy)
    one, two = (measured(pixels, 400, small, ALONE) for pixels in (by_class, mixed))
    assert one.classes is not None
    assert two.classes is not None
    assert one.classes.result()[0] == pytest.approx(two.classes.result()[0], rel=0.1)
    value, error = kernel_distance(one.kept, two.kept)
    assert abs(value) < 4 * error
    chosen = rows_of(_saved(by_class), 100, ALONE)
    assert len(chosen) == 100
    numbers = {int(np.abs(classes - image).sum((1, 2, 3)).argmin()) for image in chosen[0:100]}
    assert numbers == set(range(10))


def _saved(pixels: Pixels) -> str:
    path = Path(os.environ["SCOREFIELD_DATA"]) / "some.npy"
    path.parent.mkdir(exist_ok=True)
    np.save(path, pixels)
    return str(path)


@pytest.mark.parametrize("form", ["sigma", "cov_triu"])
def test_statistics_files(form: str, small: Small, tmp_path: Path) -> None:
    found = measured(dots(50, 1, (8, 8, 1)), 50, small, ALONE)
    covariance = found.statistics.covariance.numpy()
    second = {"sigma": covariance, "cov_triu": covariance[np.triu_indices(24)]}[form]
    np.savez(tmp_path / "stats.npz", **{"mu": found.statistics.mean.numpy(), form: second})  # type: ignore[arg-type]
    assert is_statistics_file(str(tmp_path / "stats.npz"))
    reference = statistics_file(str(tmp_path / "stats.npz"))
    numbers = compared(found, reference)
    assert numbers["fid"] == pytest.approx(0, abs=1e-9)
    assert "kid" not in numbers
    assert any("holds no images" in note for note in numbers["notes"])
    np.savez(tmp_path / "images.npz", images=dots(3, 1))
    assert not is_statistics_file(str(tmp_path / "images.npz"))


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


# ---------------------------------------------------------------- commands


def numbers_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


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


def test_neighbors_of_another_size_in_inception_space(tmp_path: Path) -> None:
    np.save(tmp_path / "training.npy", dots(60, 6))
    np.save(tmp_path / "samples.npy", dots(5, 7, (9, 11, 3)))
    call = ["--data", str(tmp_path / "training.npy"), "--out", str(tmp_path / "n.png"), "--space", "inception"]
    main(["neighbors", str(tmp_path / "samples.npy"), *call])
    with Image.open(tmp_path / "n.png") as picture:  # a sample, the line, ten neighbours of its size
        zoom = picture.height // (5 * 11 + 2)
        assert picture.size == ((15 + 2 + 10 * 13 + 2) * zoom, (5 * 11 + 2) * zoom)


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


@pytest.mark.parametrize("space", ["pixel", "inception"])
def test_planted_copies_raise_the_alarm(space: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training, samples = dots(300, 6), dots(40, 7)
    samples[5] = training[123]
    samples[9] = training[4, :, ::-1]  # mirrored
    np.save(tmp_path / "training.npy", training)
    np.save(tmp_path / "samples.npy", samples)
    np.save(tmp_path / "others.npy", dots(40, 8))
    call = ["--data", str(tmp_path / "training.npy"), "--space", space, "-n", "40", "--out", str(tmp_path / "n.png")]
    main(["neighbors", str(tmp_path / "samples.npy"), *call, "--json", str(tmp_path / "n.json")])
    report = numbers_of(tmp_path / "n.json")
    assert report["alarm"]
    found = {each["sample"]: each["training_image"] for each in report["copies"]}
    assert (found[5], found[9]) == (123, 4)
    assert "ALARM" in capsys.readouterr().out
    main(["neighbors", str(tmp_path / "others.npy"), *call, "--json", str(tmp_path / "n.json")])
    assert not numbers_of(tmp_path / "n.json")["alarm"]
    assert "no sign of memorisation" in capsys.readouterr().out
    main(["neighbors", str(tmp_path / "samples.npy"), *call, "--no-flips", "--json", str(tmp_path / "n.json")])
    assert [each["sample"] for each in numbers_of(tmp_path / "n.json")["copies"]] == [5]


def test_the_picture_of_neighbors(tmp_path: Path) -> None:
    training = dots(30, 6)
    np.save(tmp_path / "training.npy", training)
    np.save(tmp_path / "samples.npy", training[[7, 2]])
    call = ["--data", str(tmp_path / "training.npy"), "--out", str(tmp_path / "n.png")]
    main(["neighbors", str(tmp_path / "samples.npy"), *call])
    with Image.open(tmp_path / "n.png") as opened:
        picture = np.asarray(opened)
    zoom = picture.shape[1] // (12 + 2 + 10 * 10 + 2)
    small = picture[::zoom, ::zoom]
    assert small.shape == (22, 116, 3)
    assert (small[:, 12:14] == (220, 20, 20)).all()
    for row, number in ((2, 7), (12, 2)):
        assert np.array_equal(small[row : row + 8, 2:10, 0], training[number])
        assert np.array_equal(small[row : row + 8, 16:24, 0], training[number])


def test_two_processes_measure_what_one_does(trained: Path, tmp_path: Path) -> None:
    """Sampling, features and statistics shared by two: the same numbers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def start(store: str, rank: int, world: int) -> subprocess.Popen[str]:
        call = ["evaluate", str(trained), "-n", "120", "--json", str(tmp_path / f"{store}.json")]
        code = "import scorefield.inception as i, small_network\ni.load_inception = small_network.Small\n"
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


def test_a_model_file_tells_its_digest(trained: Path) -> None:
    assert load(trained).digest == checkpoint.read(checkpoint.model_files(trained)[-1])[1]["sha256"]
