"""Guidance and no class, through Model."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from guidable import NAMES, guidable, guidable_file
from labelled import Labelled
from torch import Tensor

from scorefield import AnnealedLangevin, Heun, Model, SampleNoise, guided, load
from scorefield.acceleration.threads import in_threads
from scorefield.images import to_bytes
from scorefield.noise import sample_seeds
from scorefield.samplers import last


@pytest.fixture
def model() -> Model:
    return guidable()


def by_hand(model: Model, n: int, label: Tensor, weight: float, seed: int = 0) -> Tensor:
    """Heun's samples with the formula of guidance, by the network and the sampler alone."""
    noise, sampler = SampleNoise(sample_seeds(seed, range(n))), Heun(calls=3).scheduled(model.accepted)

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        s1, s0 = model.network(x, sigma, label=label), model.network(x, sigma)
        return (1 + weight) * s1 - weight * s0

    return last(sampler(score, sampler.start(noise, model.shape), randn_like=noise.randn_like)).clamp(0, 1)


@pytest.mark.parametrize("weight", [0.0, 1.5, -1.0])
def test_samples_are_those_of_the_formula(weight: float, model: Model) -> None:
    label = torch.tensor([0, 2, 1, 1])
    samples = model.sample(4, seed=3, label=label.tolist(), guidance=weight)
    torch.testing.assert_close(samples, by_hand(model, 4, label, weight, seed=3))
    other = model.sample(4, seed=3, label=label.tolist(), guidance=weight + 1)
    assert (samples - other).abs().max() > 1e-3


def test_no_class_is_the_network_without_a_label(model: Model) -> None:
    without = by_hand(model, 3, torch.full((3,), -1), 0.0)
    ways: list[Any] = ["none", -1, np.int64(-1), ["none", -1, "none"], torch.full((3,), -1)]
    for label in ways:
        torch.testing.assert_close(model.sample(3, label=label), without)
    torch.testing.assert_close(model.sample(3, label="dog", guidance=-1.0), without)
    assert (model.sample(3, label="dog") - without).abs().max() > 1e-3


def test_drawn_classes_are_those_of_the_samples(model: Model) -> None:
    """Drawing the same samples with the classes given changes nothing."""
    numbers = range(3, 9)
    classes = model.drawn_classes(numbers, seed=5)
    assert classes is not None
    assert len(set(classes)) > 1
    drawn = last(model.states(numbers, seed=5))
    assert torch.equal(last(model.states(numbers, seed=5, label=classes)), drawn)
    assert not torch.equal(last(model.states(numbers, seed=5, label=[(k + 1) % 3 for k in classes])), drawn)
    assert model.drawn_classes(numbers, label="dog") == [1] * 6


def test_a_class_that_is_called_none_is_a_class() -> None:
    model = guidable(("all", "none", "some"))
    assert torch.equal(model.sample(2, label="none"), model.sample(2, label=1))
    assert not torch.equal(model.sample(2, label="none"), model.sample(2, label=-1))
    assert not torch.equal(model.sample(2, label="none", guidance=1.0), model.sample(2, label="none"))


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_sample_k_still_depends_on_the_seed_and_k_alone(batch_size: int, model: Model) -> None:
    """With a random class each, and with classes of which some are none."""
    for label in (None, [0, -1, 2, -1, -1]):
        whole = model.sample(5, seed=1, label=label, guidance=2.0)
        torch.testing.assert_close(
            model.sample(5, seed=1, label=label, guidance=2.0, batch_size=batch_size), whole, atol=1e-5, rtol=0
        )
        alone = last(model.states([4, 2], seed=1, label=label and [label[4], label[2]], guidance=2.0)).clamp(0, 1)
        torch.testing.assert_close(alone, whole[[4, 2]], atol=1e-5, rtol=0)
    classes = SampleNoise(sample_seeds(1, range(5))).choice(3)
    torch.testing.assert_close(model.sample(5, seed=1, guidance=2.0), by_hand(model, 5, classes, 2.0, seed=1))


def test_each_call_is_one_of_twice_the_batch_for_which_the_score_is_prepared(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, seen = list[int](), list[int]()
    whole, forward = Model.fast_score, model.network.forward

    def prepared(model: Model, size: int, precision: str) -> Any:  # noqa: ANN401
        sizes.append(size)
        return whole(model, size, precision)

    def watched(x: Tensor, *arguments: Any, **options: Any) -> Tensor:  # noqa: ANN401
        seen.append(len(x))
        return forward(x, *arguments, **options)

    monkeypatch.setattr(Model, "fast_score", prepared)
    monkeypatch.setattr(model.network, "forward", watched)
    model.sample(5, guidance=1.0, batch_size=3)
    assert (sizes, seen) == ([6, 6], [6] * 3 + [4] * 3)
    sizes.clear()
    seen.clear()
    model.sample(5, batch_size=3)
    assert (sizes, seen) == ([3, 3], [3] * 3 + [2] * 3)


def test_threads_and_guidance(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = model.sample(5, guidance=1.0)
    monkeypatch.setattr("scorefield.acceleration.in_threads", lambda network, work: in_threads(network, threads=2))
    shared = guidable()
    assert shared.fast_score(5) is not shared.network
    torch.testing.assert_close(shared.sample(5, guidance=1.0), alone, atol=1e-5, rtol=0)


def test_completions_and_drawn_images_are_guided(model: Model) -> None:
    image, mask = torch.full(model.shape, 0.25), torch.zeros(4, 4)
    mask[:, :2] = 1
    settings: dict[str, Any] = {"seed": 2, "label": "7", "guidance": 1.5}
    filled = model.inpaint(image, mask, n=3, **settings)
    states = last(model.states(range(3), known=(image, mask), **settings)).clamp(0, 1)
    assert torch.equal(filled, states)
    assert (filled[..., 2:] - model.inpaint(image, mask, n=3, seed=2, label="7")[..., 2:]).abs().max() > 1e-3
    ((_, images),) = model.draw(range(3), batch_size=3, known=(image, mask), **settings)
    assert np.array_equal(images[:, -1], to_bytes(states))


def test_guidance_with_the_papers_sampler(model: Model) -> None:
    """Annealed Langevin dynamics takes the guided score as any other."""
    sampler, label = AnnealedLangevin((1.0, 0.2), step_size=1e-3, steps=2), torch.tensor([1, 2])
    noise = SampleNoise(sample_seeds(0, range(2)))
    score = guided(partial(model.network, label=label), model.network, 3.0)
    wanted = last(sampler(score, sampler.start(noise, model.shape), randn_like=noise.randn_like)).clamp(0, 1)
    torch.testing.assert_close(model.sample(2, label=[1, 2], guidance=3.0, sampler=sampler), wanted)


def test_a_file_with_classes_is_loaded_with_its_network(tmp_path: Path, model: Model) -> None:
    loaded = load(guidable_file(tmp_path / "m.safetensors"))
    assert (loaded.labels, loaded.null_label) == (NAMES, True)
    settings: dict[str, Any] = {"label": "dog", "guidance": 1.0}
    assert torch.equal(loaded.sample(2, **settings), model.sample(2, **settings))


class NeedsClass(Labelled):
    """A network of a user that knows nothing of no class."""


def models_that_need_a_class() -> list[Model]:
    sampler = AnnealedLangevin((1.0, 0.1), step_size=5e-3, steps=3)
    known = guidable()
    return [
        Model(NeedsClass(3), (1, 4, 4), sampler, labels=NAMES),
        replace(known, recipe=replace(known.recipe, label_dropout=0.0)),  # has never been without a label
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_a_network_that_needs_a_class(which: int) -> None:
    model = models_that_need_a_class()[which]
    assert not model.null_label
    wrong: list[str | int | list[str | int]] = ["none", -1, [0, "none"]]
    for label in wrong:
        with pytest.raises(
            ValueError, match=r"no class is called .*, and the network cannot do without one \(train it"
        ):
            model.sample(2, label=label)
    with pytest.raises(ValueError, match=r"guidance compares with no class, which the network does not know; got 2"):
        model.sample(2, label="cat", guidance=2.0)
    assert model.sample(2, label="cat", guidance=0.0).shape == (2, 1, 4, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guidance": math.nan}, "guidance must be finite; got nan"),
        ({"guidance": math.inf}, "guidance must be finite; got inf"),
        ({"guidance": -1e30}, "guidance must be from −1000 to 1000; got -1e.30"),
        ({"guidance": 1.0, "label": "none"}, "guidance is towards a class; got 1.0 for no class"),
        ({"guidance": 1.0, "label": -1}, "guidance is towards a class; got 1.0 for no class"),
        ({"label": -2}, "no class is called -2"),
        ({"label": "None"}, "no class is called 'None'"),
        ({"label": torch.tensor([0, 3])}, "no class is called 3"),
    ],
)
def test_wrong_settings(options: dict[str, Any], message: str, model: Model) -> None:
    for call in (partial(model.sample, 2), lambda **given: list(model.draw(range(2), batch_size=1, **given))):
        with pytest.raises(ValueError, match=message):
            call(**options)
    image, mask = torch.zeros(model.shape), torch.eye(4)
    with pytest.raises(ValueError, match=message):
        model.inpaint(image, mask, n=2, **options)


def test_a_model_without_classes_cannot_be_guided() -> None:
    model = guidable(())
    assert not model.null_label
    with pytest.raises(ValueError, match=r"guidance is towards a class, and this model has none; got 1.0 \(leave it"):
        model.sample(1, guidance=1.0)
    with pytest.raises(ValueError, match="this model has no class labels; got label='none'"):
        model.sample(1, label="none")
    with pytest.raises(ValueError, match="finite"):
        model.sample(1, guidance=math.nan)
