"""Models: samples by number, classes, completions, and the one road that draws them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from labelled import Labelled
from torch import Tensor

from models.small_models import model as model_file
from scorefield import AnnealedLangevin, Model, SampleNoise, load
from scorefield.acceleration.threads import in_threads
from scorefield.images import to_bytes
from scorefield.models.model import kept_steps
from scorefield.noise import sample_seeds
from scorefield.samplers import last
from scorefield.score import expand

SAMPLER = AnnealedLangevin((1.0, 0.1), step_size=5e-3, steps=3)
NAMES = ("zero", "one", "two", "three", "4")


@pytest.fixture
def model() -> Model:
    """Without classes; a score that mixes all pixels of an image."""

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return (x.mean((1, 2, 3), keepdim=True) - x) / (0.1 + expand(sigma, x) ** 2)

    network = torch.nn.Module()
    network.forward = score
    return Model(network, (1, 4, 3), SAMPLER)


@pytest.fixture
def with_classes() -> Model:
    """Five classes; each asks for images of its own grey, k/5, and records the labels that it was called with."""
    return Model(Recording(), (1, 2, 2), SAMPLER, labels=NAMES)


class Recording(Labelled):
    def __init__(self) -> None:
        super().__init__(5)
        self.requires_grad_(False)
        self.seen = list[list[int]]()

    def forward(self, x: Tensor, sigma: Tensor, *, label: Tensor) -> Tensor:
        self.seen.append(label.tolist())
        return super().forward(x, sigma, label=label)


def classes_of(model: Model, n: int, **options: Any) -> list[int]:  # noqa: ANN401
    """The label that the network got for each sample."""
    assert isinstance(model.network, Recording)
    model.network.seen.clear()
    size = options.get("batch_size") or n
    model.sample(n, **options)
    seen = model.network.seen
    assert len(seen) == SAMPLER.calls * -(-n // size)
    starts = range(0, len(seen), SAMPLER.calls)
    assert all(seen[k] == seen[start] for start in starts for k in range(start, start + SAMPLER.calls))
    return [label for start in starts for label in seen[start]]


# ---------------------------------------------------------------- samples


def test_samples_are_floats_in_the_unit_interval(model: Model) -> None:
    samples = model.sample(5, seed=1)
    assert samples.shape == (5, 1, 4, 3)
    assert samples.dtype == torch.float32
    assert 0 <= samples.min() < samples.max() <= 1
    assert not torch.equal(samples, model.sample(5, seed=2))
    assert torch.equal(samples, model.sample(5, seed=1))


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 3}, {"batch_size": 100}])
def test_sample_k_depends_on_the_seed_and_k_alone(options: dict[str, Any], model: Model) -> None:
    whole = model.sample(7, seed=3)
    torch.testing.assert_close(model.sample(7, seed=3, **options), whole)
    torch.testing.assert_close(model.sample(4, seed=3, **options), whole[:4])
    torch.testing.assert_close(last(model.states([6, 2], seed=3)).clamp(0, 1), whole[[6, 2]])


def test_states_begin_with_the_start_noise_and_end_with_the_sample(model: Model) -> None:
    states = list(model.states(range(3), seed=9))
    noise = SampleNoise(sample_seeds(9, range(3)))
    assert torch.equal(states[0].x, noise.rand((1, 4, 3)))
    assert (states[0].step, states[0].sigma.item()) == (0, 1.0)
    assert [state.step for state in states] == list(range(SAMPLER.updates + 1))
    assert torch.equal(states[-1].x.clamp(0, 1), model.sample(3, seed=9))


def test_another_sampler_than_the_models_own(model: Model) -> None:
    other = AnnealedLangevin((0.5,), step_size=1e-3, steps=2, denoise=True)
    assert not torch.equal(model.sample(2, sampler=other), model.sample(2))
    states = list(model.states(range(2), sampler=other))
    assert [state.sigma.item() for state in states] == pytest.approx([0.5, 0.5, 0.5, 0.0])


def test_threads_give_the_same_samples(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = model.sample(5)
    monkeypatch.setattr("scorefield.acceleration.in_threads", lambda network, work: in_threads(network, threads=2))
    shared = Model(model.network, model.shape, SAMPLER)
    assert shared.fast_score(5) is not model.network
    torch.testing.assert_close(shared.sample(5), alone)


@pytest.mark.parametrize("options", [{"n": 0}, {"n": -1}, {"n": 2, "batch_size": 0}, {"n": 2, "batch_size": -1}])
def test_impossible_numbers_are_refused(options: dict[str, Any], model: Model) -> None:
    with pytest.raises(ValueError, match="n and batch_size must be at least 1"):
        model.sample(**options)


# ---------------------------------------------------------------- many of them, as bytes


def test_drawn_images_are_the_samples_batch_by_batch(model: Model) -> None:
    batches = list(model.draw(range(3, 8), batch_size=2, seed=4))
    assert [list(numbers) for numbers, _ in batches] == [[3, 4], [5, 6], [7]]
    images = np.concatenate([part for _, part in batches])
    assert images.shape == (5, 1, 4, 3, 1)
    assert np.array_equal(images[:, -1], to_bytes(model.sample(8, seed=4))[3:])


@pytest.mark.parametrize(("frames", "steps"), [(1, [6]), (2, [3, 6]), (3, [2, 4, 6]), (99, [1, 2, 3, 4, 5, 6])])
def test_frames_are_evenly_spaced_states_without_the_start(frames: int, steps: list[int], model: Model) -> None:
    ((_, images),) = model.draw(range(2), batch_size=2, frames=frames)
    states = {state.step: state.x for state in model.states(range(2))}
    assert np.array_equal(images, np.stack([to_bytes(states[step]) for step in steps], axis=1))


def test_kept_steps_are_evenly_spaced_with_both_ends() -> None:
    assert kept_steps(10, 3) == {0, 5, 10}
    assert kept_steps(3, 99) == {0, 1, 2, 3}
    assert kept_steps(1000, 2) == {0, 1000}


def test_progress_counts_the_updates_of_all_batches(model: Model) -> None:
    told = list[tuple[str, int, int]]()

    def track(items: Iterable[Any], what: str, total: int) -> Iterator[Any]:
        done = 0
        for item in items:
            yield item
            done += 1
        told.append((what, done, total))

    list(model.draw(range(5), batch_size=2, track=track, what="drawing"))
    assert told == [("drawing", 18, 18)]


def test_no_numbers_no_images(model: Model) -> None:
    assert list(model.draw(range(0), batch_size=2)) == []


# ---------------------------------------------------------------- completions


def test_completions_keep_what_is_known(model: Model) -> None:
    image, mask = torch.full((1, 4, 3), 0.5), torch.zeros(4, 3)
    mask[:2] = 1
    sampler = AnnealedLangevin((0.5, 1e-4), step_size=1e-9, steps=3)
    filled = model.inpaint(image, mask, n=4, seed=1, sampler=sampler)
    assert filled.shape == (4, 1, 4, 3)
    torch.testing.assert_close(filled[:, :, :2], torch.full((4, 1, 2, 3), 0.5), atol=1e-3, rtol=0)
    assert filled[:, :, 2:].std(0).min() > 1e-3
    for other in (mask.bool(), mask[None], mask.double()):
        assert torch.equal(model.inpaint(image, other, n=4, seed=1, sampler=sampler), filled)
    torch.testing.assert_close(model.inpaint(image, mask, n=4, seed=1, sampler=sampler, batch_size=3), filled)


def test_an_image_of_its_own_for_each_sample(model: Model) -> None:
    images, masks = torch.rand(3, 1, 4, 3), (torch.rand(3, 1, 4, 3) < 0.5).float()
    batches = model.draw(range(3), batch_size=2, known=(images, masks))
    together = np.concatenate([part for _, part in batches])
    for k in range(3):
        alone = last(model.states([k], known=(images[k], masks[k])))
        assert np.array_equal(together[k, -1], to_bytes(alone)[0])


@pytest.mark.parametrize(
    ("image", "mask", "message"),
    [
        (torch.zeros(1, 3, 4), torch.ones(4, 3), r"image must have the model's shape \(1, 4, 3\)"),
        (torch.zeros(1, 4, 3, dtype=torch.uint8), torch.ones(4, 3), r"floats in \[0, 1\]; got torch.uint8"),
        (torch.zeros(1, 4, 3), torch.ones(3, 4), "mask must broadcast"),
        (torch.zeros(1, 4, 3), torch.full((4, 3), 255), "mask must hold only 0"),
        (torch.full((1, 4, 3), torch.nan), torch.ones(4, 3), "NaN"),
    ],
)
def test_what_cannot_be_completed(image: Tensor, mask: Tensor, message: str, model: Model) -> None:
    with pytest.raises(ValueError, match=message):
        model.inpaint(image, mask, n=1)


# ---------------------------------------------------------------- classes


def test_a_class_by_its_name_or_number(with_classes: Model) -> None:
    assert classes_of(with_classes, 3, label="two") == [2, 2, 2]
    assert classes_of(with_classes, 3, label=2) == [2, 2, 2]
    assert classes_of(with_classes, 2, label=np.int64(3)) == [3, 3]
    assert classes_of(with_classes, 2, label="4") == [4, 4]
    assert torch.equal(with_classes.sample(3, label="two"), with_classes.sample(3, label=2))
    assert not torch.equal(with_classes.sample(3, label="two"), with_classes.sample(3, label="one"))


@pytest.mark.parametrize("batch_size", [None, 1, 2, 5])
@pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
def test_a_class_for_each_sample(kind: Any, batch_size: int | None, with_classes: Model) -> None:  # noqa: ANN401
    chosen = [4, 0, 1, 1, 3]
    assert classes_of(with_classes, 5, label=kind(chosen), batch_size=batch_size) == chosen


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_drawn_images_have_a_class_each(batch_size: int, with_classes: Model) -> None:
    chosen = [4, 0, 1, 1, 3]
    batches = with_classes.draw(range(10, 15), batch_size=batch_size, label=chosen, seed=2)
    images = np.concatenate([part for _, part in batches])
    for k, label in enumerate(chosen):
        alone = last(with_classes.states([10 + k], label=label, seed=2))
        assert np.array_equal(images[k, -1], to_bytes(alone)[0])


@pytest.mark.parametrize("options", [{}, {"batch_size": 3}, {"batch_size": 1}])
def test_a_random_class_depends_on_the_seed_and_the_number_alone(options: dict[str, Any], with_classes: Model) -> None:
    many = classes_of(with_classes, 40, seed=1)
    assert set(many) == {0, 1, 2, 3, 4}
    assert classes_of(with_classes, 40, seed=1, **options) == many
    assert classes_of(with_classes, 7, seed=1, **options) == many[:7]
    assert classes_of(with_classes, 40, seed=2) != many
    assert many == SampleNoise(sample_seeds(1, range(40))).choice(5).tolist()
    torch.testing.assert_close(
        with_classes.sample(9, seed=1, **options), with_classes.sample(9, seed=1, label=many[:9])
    )


def test_completions_have_a_class_too(with_classes: Model) -> None:
    image, mask = torch.rand(1, 2, 2), torch.tensor([[1, 0], [0, 0]])
    assert isinstance(with_classes.network, Recording)
    with_classes.inpaint(image, mask, n=3, label="three", batch_size=2)
    assert {tuple(seen) for seen in with_classes.network.seen} == {(3, 3), (3,)}


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("five", r"no class is called 'five' \(choose from zero, one, two, three, 4, or a number below 5\)"),
        ("1", "no class is called '1'"),
        (5, "no class is called 5"),
        (-1, "no class is called -1"),
        ([0, 1, 7], "no class is called"),
        ([0, 1], "label must be one class, or one for each of the 3 samples; got 2"),
        ([0, 1, 2, 3], "got 4"),
    ],
)
@pytest.mark.parametrize("batch_size", [None, 2])
def test_classes_that_do_not_exist(label: Any, message: str, batch_size: int | None, with_classes: Model) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=message):
        with_classes.sample(3, label=label, batch_size=batch_size)
    with pytest.raises(ValueError, match=message):
        list(with_classes.draw(range(3), label=label, batch_size=batch_size or 9))


def test_a_model_without_classes_has_none_to_choose(model: Model) -> None:
    for label in (0, "zero", [0, 1]):
        with pytest.raises(ValueError, match="this model has no class labels"):
            model.sample(2, label=label)


def test_the_score_of_a_class(with_classes: Model) -> None:
    x, label = torch.rand(2, 1, 2, 2), torch.tensor([0, 3])
    sigma = torch.tensor(0.5)
    expected = (torch.tensor([0.0, 0.6])[:, None, None, None] - x) / 1.25
    torch.testing.assert_close(with_classes.score(x, sigma, label), expected)
    torch.testing.assert_close(with_classes.score(x, sigma, label=label), expected)


# ---------------------------------------------------------------- what a model says of itself


def test_what_a_model_says_of_itself(model: Model, with_classes: Model, tmp_path: Path) -> None:
    assert model.device == torch.device("cpu")
    assert model.parameters == 0
    assert with_classes.parameters == 5
    assert model.sigmas == (1.0, 0.1)  # of its sampler: the network accepts any
    assert model.sigma_range == (0.1, 1.0)
    loaded = load(model_file(tmp_path / "m.safetensors"))
    assert loaded.sigma_range == (loaded.sigmas[-1], loaded.sigmas[0])
    assert loaded.sigmas == tuple(loaded.network.accepted_sigmas.tolist())  # type: ignore[operator]
    assert not loaded.network.training
    assert not any(parameter.requires_grad for parameter in loaded.network.parameters())
    assert "network" not in repr(loaded).split("recipe")[0]


def test_the_fast_score_is_kept(model: Model) -> None:
    assert model.fast_score(3) is model.fast_score(8)
