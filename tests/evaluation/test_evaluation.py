"""Features in one pass, references and metrics, with a small random network in Inception's place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_evaluation import ALONE, Small, dots
from small_evaluation import small as small

from scorefield import data
from scorefield.data.images import Pixels
from scorefield.evaluation import features
from scorefield.evaluation.features import (
    is_statistics_file,
    make_reference,
    measure,
    random_places,
    read_statistics,
)
from scorefield.evaluation.numbers import compare
from scorefield.evaluation.sources import choose_images, may_be_shown
from scorefield.metrics import ClassScore, Statistics, frechet_distance, kernel_distance, precision_recall

# ---------------------------------------------------------------- one pass


def test_one_pass_in_batches_gives_the_statistics_of_all_features(small: Small) -> None:
    pixels = dots(130, 1, (8, 8, 3))
    found = measure(pixels, 130, small, ALONE, batch_size=17)
    features = small(torch.tensor(pixels))
    whole = Statistics.empty(24)
    whole.add(features)
    # features are float32, and rounded otherwise in batches of another size
    rounding: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(found.statistics.covariance, whole.covariance, **rounding)
    torch.testing.assert_close(found.kept, features[random_places(130).argsort()])
    score = ClassScore.empty(130, 5)
    score.add(small.logits(features), random_places(130))
    assert found.classes is not None
    assert found.classes.result() == pytest.approx(score.result())
    alone = measure(pixels, 130, small, ALONE, batch_size=1000)
    torch.testing.assert_close(alone.statistics.scatter, found.statistics.scatter, **rounding)


def test_memory_does_not_grow_with_n(small: Small) -> None:
    """Images are read batch by batch, and the features of at most 10,000 random ones are kept."""
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

    found = measure(Many(), 25_000, small, ALONE, batch_size=1000)
    assert (max(asked), sum(asked), found.n) == (1000, 25_000, 25_000)
    assert len(found.kept) == 10_000
    numbers = random_places(25_000).argsort()[:10_000]
    expected = small(torch.as_tensor(numbers % 256).byte()[:, None, None, None].expand(-1, 8, 8, 1))
    torch.testing.assert_close(found.kept, expected)


def _saved(pixels: Pixels) -> str:
    path = Path(os.environ["SCOREFIELD_DATA"]) / "some.npy"
    path.parent.mkdir(exist_ok=True)
    np.save(path, pixels)
    return str(path)


def test_sorted_images_are_measured_as_shuffled_ones(small: Small) -> None:
    """A folder is sorted by name, and so often by class: the groups for KID and the splits must be mixed."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 256, (10, 8, 8, 1))
    kinds = np.sort(rng.integers(0, 10, 400)), rng.integers(0, 10, 400)
    noisy = (classes[each] + rng.normal(0, 8, (400, 8, 8, 1)) for each in kinds)
    by_class, mixed = (np.clip(each, 0, 255).astype(np.uint8) for each in noisy)
    one, two = (measure(pixels, 400, small, ALONE) for pixels in (by_class, mixed))
    assert one.classes is not None
    assert two.classes is not None
    assert one.classes.result()[0] == pytest.approx(two.classes.result()[0], rel=0.1)
    value, error = kernel_distance(one.kept, two.kept)
    assert abs(value) < 4 * error
    chosen = choose_images(_saved(by_class), 100, ALONE)
    assert len(chosen) == 100
    numbers = {int(np.abs(classes - image).sum((1, 2, 3)).argmin()) for image in chosen[0:100]}
    assert numbers == set(range(10))


# ---------------------------------------------------------------- references


def test_what_is_compare(small: Small) -> None:
    a = measure(dots(50, 1, (8, 8, 1)), 50, small, ALONE)
    images = data.Images(dots(40, 2, (8, 8, 1)), "forty", "f" * 64)
    reference = make_reference(images, small, ALONE)
    b = measure(images.pixels, 40, small, ALONE)
    metrics = compare(a, reference)
    assert metrics.fid == frechet_distance(a.statistics, b.statistics)
    assert (metrics.kid, metrics.kid_standard_error) == kernel_distance(a.kept, b.kept)
    assert (metrics.precision, metrics.recall) == precision_recall(a.kept, b.kept)
    assert (metrics.n, metrics.kept_n, metrics.notes) == (50, (50, 40), ())
    for n, notes in ((24, 1), (25, 0)):
        assert len(compare(measure(dots(n, 1, (8, 8, 1)), n, small, ALONE), reference).notes) == notes
    few = compare(measure(dots(5, 1, (8, 8, 1)), 5, small, ALONE), reference).notes[0]
    assert "5 images are too few" in few
    assert "24 features of the samples" in few


def test_the_reference_is_computed_once(small: Small, tmp_path: Path) -> None:
    images = data.Images(dots(40, 2, (8, 8, 1)), "forty", "f" * 64)
    first = make_reference(images, small, ALONE)
    calls = small.calls
    again = make_reference(images, small, ALONE)
    assert small.calls == calls
    assert frechet_distance(first.moments, again.moments) == pytest.approx(0, abs=1e-9)
    assert (again.n, again.digest, again.name) == (40, "f" * 12, "forty")
    (entry,) = (tmp_path / "store" / "cache").glob("features-*.safetensors")
    entry.write_bytes(entry.read_bytes()[:-9])
    make_reference(images, small, ALONE)
    assert small.calls > calls
    other = data.Images(dots(40, 3, (8, 8, 1)), "forty", "e" * 64)
    assert frechet_distance(make_reference(other, small, ALONE).moments, first.moments) > 1e-3
    calls, small.digest = small.calls, "another network"
    make_reference(other, small, ALONE)
    assert small.calls > calls


@pytest.mark.parametrize("form", ["sigma", "cov_triu"])
def test_statistics_files(form: str, small: Small, tmp_path: Path) -> None:
    found = measure(dots(50, 1, (8, 8, 1)), 50, small, ALONE)
    covariance = found.statistics.covariance.numpy()
    second = {"sigma": covariance, "cov_triu": covariance[np.triu_indices(24)]}[form]
    np.savez(tmp_path / "stats.npz", **{"mu": found.statistics.mean.numpy(), form: second})  # type: ignore[arg-type]
    assert is_statistics_file(str(tmp_path / "stats.npz"))
    reference = read_statistics(str(tmp_path / "stats.npz"))
    assert torch.equal(reference.moments.covariance, found.statistics.covariance)
    metrics = compare(found, reference)
    assert metrics.fid == pytest.approx(0, abs=1e-9)
    assert metrics.kid is None
    assert any("holds no images" in note for note in metrics.notes)
    np.savez(tmp_path / "images.npz", images=dots(3, 1))
    assert not is_statistics_file(str(tmp_path / "images.npz"))


@pytest.mark.parametrize(("pieces", "batches"), [(3, 6), (5, 9)], ids=["in the middle", "after the last piece"])
@pytest.mark.filterwarnings("ignore:Inception's features of 230 images take hours")
def test_a_slow_reference_goes_on_where_it_stopped(
    pieces: int, batches: int, tmp_path: Path, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "KEPT", 100)
    images = data.Images(dots(230, 3, (8, 8, 1)), "dots", "a" * 64)
    whole = make_reference(images, small, ALONE)
    (file,) = (tmp_path / "store" / "cache").glob("features-*")
    file.unlink()
    monkeypatch.setattr(features, "MANY", 200)
    monkeypatch.setattr(features, "PIECE", 50)
    calls = small.calls

    def interrupted(items: Any, what: str, total: int) -> Any:  # noqa: ANN401
        assert total == 5
        yield from list(items)[:pieces]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_reference(images, small, ALONE, track=interrupted)
    assert small.calls - calls == batches  # a piece is two batches, and the last one a single batch
    found = make_reference(images, small, ALONE)
    assert small.calls - calls == 10 - 1
    assert found.n == whole.n == 230
    torch.testing.assert_close(found.moments.mean, whole.moments.mean)
    torch.testing.assert_close(found.moments.covariance, whole.moments.covariance)
    assert found.kept is not None
    assert whole.kept is not None
    torch.testing.assert_close(found.kept, whole.kept)
    assert len(list((tmp_path / "store" / "cache").glob("features-*"))) == 1
    make_reference(images, small, ALONE)
    assert small.calls - calls == 9


# ---------------------------------------------------------------- which images may be shown


def test_images_of_a_set_that_may_not_be_shown_are_known_by_their_name() -> None:
    assert may_be_shown("mnist")
    assert may_be_shown("cifar10:test")
    assert may_be_shown("/data/photos")
    for source in ("celeba", "celeba:test", "/data/CelebA-faces.npy", "./celeba/", "aligned_celeba"):
        assert not may_be_shown(source), source
