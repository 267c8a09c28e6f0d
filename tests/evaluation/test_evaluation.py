"""Features in one pass, references, and the numbers made of them, with a small random network in Inception's place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_evaluation import ALONE, dots
from small_evaluation import small as small
from small_network import Small

from scorefield import data
from scorefield.data.images import Pixels
from scorefield.evaluation import compared, features, measured, reference, reference_of
from scorefield.evaluation.features import places_of
from scorefield.evaluation.reference import is_statistics_file, statistics_file
from scorefield.evaluation.subjects import rows_of
from scorefield.metrics import ClassScore, Statistics, frechet_distance, kernel_distance, precision_recall

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


def _saved(pixels: Pixels) -> str:
    path = Path(os.environ["SCOREFIELD_DATA"]) / "some.npy"
    path.parent.mkdir(exist_ok=True)
    np.save(path, pixels)
    return str(path)


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


# ---------------------------------------------------------------- references


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


@pytest.mark.filterwarnings("ignore:Inception's features of 230 images take hours")
def test_a_slow_reference_goes_on_where_it_stopped(
    tmp_path: Path, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "KEPT", 100)
    images = data.Images(dots(230, 3, (8, 8, 1)), "dots", "a" * 64)
    whole = reference_of(images, small, ALONE)
    (file,) = (tmp_path / "store" / "cache").glob("features-*")
    file.unlink()
    monkeypatch.setattr(reference, "MANY", 200)
    monkeypatch.setattr(reference, "PIECE", 50)
    calls = small.calls

    def interrupted(items: Any, what: str, total: int) -> Any:  # noqa: ANN401
        assert total == 5
        yield from list(items)[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reference_of(images, small, ALONE, track=interrupted)
    assert small.calls - calls == 6  # three pieces of two batches
    found = reference_of(images, small, ALONE)
    assert small.calls - calls == 10 - 1  # the last piece is one batch
    assert found.n == whole.n == 230
    torch.testing.assert_close(found.moments.mean, whole.moments.mean)
    torch.testing.assert_close(found.moments.covariance, whole.moments.covariance)
    assert found.kept is not None
    assert whole.kept is not None
    torch.testing.assert_close(found.kept, whole.kept)
    assert len(list((tmp_path / "store" / "cache").glob("features-*"))) == 1
    reference_of(images, small, ALONE)
    assert small.calls - calls == 9
