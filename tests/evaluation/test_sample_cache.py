"""The sample cache: drawn once, continued where it stopped, and never the samples of other settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from guidable import guidable_file
from small_evaluation import ALONE
from small_evaluation import sampled as sampled
from small_evaluation import small as small
from torch import Tensor

from scorefield import acceleration, samplers
from scorefield.distributed import Group
from scorefield.evaluation import sample_cache
from scorefield.evaluation.sample_cache import SampleCache, cached_batch_size
from scorefield.images import to_bytes
from scorefield.models.build import build_network
from scorefield.models.model import Model, load, save_model
from scorefield.models.recipes import Recipe
from scorefield.noise import SampleNoise
from scorefield.samplers import AnnealedLangevin, Heun, State, last

SAMPLER = AnnealedLangevin((1.0, 0.05), step_size=1e-4, steps=2)


@dataclass(frozen=True)
class Steps:
    """A sampler that has no denoising step: x ← x + 1/8 s(x, 1)."""

    name: ClassVar[str] = "steps"
    steps: int = samplers.option(3, "Number of steps.")

    @property
    def calls(self) -> int:
        return self.steps

    @property
    def updates(self) -> int:
        return self.steps

    def start(self, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
        return noise.rand(shape)

    def __call__(self, score: Any, x: Tensor, **_: object) -> Iterator[State]:  # noqa: ANN401
        sigma = torch.ones(())
        yield State(x, sigma, 0)
        for step in range(1, self.steps + 1):
            x = x + score(x, sigma) / 8
            yield State(x, sigma, step)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model of grey images of 8 × 8, with raw and averaged weights."""
    recipe = Recipe(width=2, levels=2, sigma_min=0.05)
    raw, ema = (build_network(replace(recipe, seed=seed), channels=1).state_dict() for seed in (0, 1))
    save_model(tmp_path / "model.safetensors", raw, {"ema": ema}, recipe=recipe, shape=(1, 8, 8), step=1)
    return tmp_path / "model.safetensors"


@pytest.fixture
def model(file: Path) -> Model:
    return load(file)


def test_the_key_is_made_from_all_that_decides_what_samples_look_like(
    model: Model, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(sampler: AnnealedLangevin = SAMPLER, of: Model = model, **options: Any) -> Path:  # noqa: ANN401
        return SampleCache(of, sampler, **options).folder

    usual = folder(seed=7)
    assert folder(AnnealedLangevin((1.0, 0.05), step_size=1e-4, steps=2), seed=7) == usual
    assert folder(seed=7, of=load(file)) == usual
    assert folder(seed=7, precision="float32") == usual  # what a CPU computes in anyway
    monkeypatch.setattr(sample_cache, "sampling_precision", lambda network, precision: "float16")
    others = [folder(seed=7)]
    monkeypatch.setattr(sample_cache, "sampling_precision", acceleration.sampling_precision)
    others += [folder(seed=8), folder(seed=7, of=load(file, weights="raw"))]
    changes = ({"steps": 3}, {"step_size": 2e-4}, {"denoise": True}, {"sigmas": (1.0, 0.1)})
    others += [folder(replace(SAMPLER, **change), seed=7) for change in changes]
    other = build_network(replace(model.recipe, seed=5), channels=1).state_dict()
    save_model(tmp_path / "other.safetensors", other, None, recipe=model.recipe, shape=model.shape, step=1)
    others.append(folder(seed=7, of=load(tmp_path / "other.safetensors", weights="raw")))
    assert len({usual, *others}) == 9


def test_samples_are_drawn_in_the_precision_and_with_the_seed_of_the_key(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those without the last denoising step, which come from the same run. Here auto is float16, as on a GPU."""
    seen: list[tuple[int, str]] = []
    states = Model.states

    def watched(*arguments: Any, **options: Any) -> Iterator[State]:  # noqa: ANN401
        seen.append((options["seed"], options["precision"]))
        return states(*arguments, **options)

    monkeypatch.setattr(Model, "states", watched)
    monkeypatch.setattr(sample_cache, "sampling_precision", lambda network, name: {"auto": "float16"}.get(name, name))
    cache = SampleCache(model, replace(SAMPLER, denoise=True), seed=7, precision="float32")
    plain = cache.with_denoising(False)
    assert plain.folder == SampleCache(model, SAMPLER, seed=7, precision="float32").folder
    assert plain.folder != SampleCache(model, SAMPLER, seed=7).folder
    cache.draw(3, ALONE, batch_size=3)
    assert seen == [(7, "float32")]
    assert plain.missing(3) == []


def test_a_sampler_without_a_name_and_a_model_without_a_file_have_no_cache(model: Model) -> None:
    with pytest.raises(ValueError, match="register"):
        SampleCache(model, Steps())
    assert model.sample(2, sampler=Steps()).shape == (2, 1, 8, 8)  # elsewhere it works
    with pytest.raises(ValueError, match="without a file"):
        SampleCache(Model(model.network, model.shape, model.sampler), SAMPLER)


def test_samples_are_drawn_once_and_go_on_where_they_stopped(
    model: Model, file: Path, sampled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_cache, "CHUNK", 3)
    cache = SampleCache(model, SAMPLER, seed=7)

    def interrupted(states: Any, what: str, total: int) -> Any:  # noqa: ANN401
        for state in states:
            if len(sampled) == 3:
                raise KeyboardInterrupt
            yield state

    with pytest.raises(KeyboardInterrupt):
        cache.draw(14, ALONE, batch_size=3, track=interrupted)
    sampled.clear()
    samples = cache.draw(14, ALONE, batch_size=100)
    assert sampled == [8]  # six were there
    expected = to_bytes(last(model.states(range(14), seed=7, sampler=SAMPLER)))
    assert np.array_equal(samples[0:14], expected)
    assert np.array_equal(samples[4:8], expected[4:8])
    assert np.array_equal(cache.draw(4, ALONE, batch_size=9)[0:4], expected[:4])
    part = cache.read(range(3, 5))  # of a file of three
    assert part is not None
    assert np.array_equal(part, expected[3:5])
    shorter = cache.draw(13, ALONE, batch_size=9)  # has a last file of its own, beside the longer one
    assert np.array_equal(shorter[0:13], expected[:13])
    assert np.array_equal(samples[0:14], expected)
    sampled.clear()
    cache.draw(16, ALONE, batch_size=2)  # the last file but one had two of three; at most two at once
    assert sampled == [2, 1, 1]
    sampled.clear()
    SampleCache(model, replace(SAMPLER, denoise=True), seed=7).draw(3, ALONE, batch_size=9)
    SampleCache(load(file, weights="raw"), SAMPLER, seed=7).draw(3, ALONE, batch_size=9)
    assert sampled == [3, 3]


def test_progress_counts_the_updates_of_all_batches(model: Model) -> None:
    seen: list[tuple[int, int]] = []

    def counted(states: Any, what: str, total: int) -> Any:  # noqa: ANN401
        steps = [state.step for state in states]
        seen.append((len(steps), total))
        yield from ()

    SampleCache(model, replace(SAMPLER, denoise=True)).draw(70, ALONE, batch_size=30, track=counted)
    assert seen == [(5 * 3, 5 * 3)]  # 2 · 2 + 1 updates; batches of 30, 20 and 20


def test_one_run_of_the_sampler_gives_what_two_would(
    model: Model, tmp_path: Path, sampled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, denoised = SampleCache(model, SAMPLER, seed=3).pair(70, ALONE, batch_size=60)
    assert sampled == [50, 20]
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "other"))
    kinds = (SAMPLER, replace(SAMPLER, denoise=True))
    apart = [SampleCache(model, kind, seed=3).draw(70, ALONE, batch_size=100) for kind in kinds]
    assert sampled == [50, 20, 70, 70]
    assert np.array_equal(plain[:70], apart[0][:70])
    assert np.array_equal(denoised[:70], apart[1][:70])
    assert not np.array_equal(plain[:70], denoised[:70])


def test_samples_that_are_there_are_not_drawn_again_for_a_pair(model: Model, sampled: list[int]) -> None:
    cache = SampleCache(model, replace(SAMPLER, denoise=True), seed=3)
    cache.draw(60, ALONE, batch_size=100)
    assert cache.missing(70) == [range(50, 70)]
    cache.pair(60, ALONE, batch_size=100)
    assert sampled == [60]


def test_a_sampler_without_a_denoising_step_gives_a_pair_of_the_same_samples(
    model: Model, sampled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(samplers.SAMPLERS, "steps", Steps)
    plain, denoised = SampleCache(model, Steps()).pair(5, ALONE, batch_size=5)
    assert plain is denoised
    assert sampled == [5]
    assert np.array_equal(plain[:5], to_bytes(model.sample(5, sampler=Steps())))


def test_batches_are_small_where_large_ones_gain_nothing() -> None:
    assert cached_batch_size(500, ALONE) == 50
    assert cached_batch_size(20, ALONE) == 20
    assert cached_batch_size(500, Group(0, 1, torch.device("cuda"))) == 500


# ---------------------------------------------------------------- classes and guidance


@pytest.fixture
def with_classes(tmp_path: Path) -> Model:
    return load(guidable_file(tmp_path / "guidable.safetensors"))


def test_the_key_has_the_class_and_the_guidance(with_classes: Model) -> None:
    def folder(**options: Any) -> Path:  # noqa: ANN401
        return SampleCache(with_classes, Heun(calls=3), **options).folder

    kinds: list[dict[str, Any]] = [{}, {"label": "cat"}, {"label": "dog"}, {"label": "none"}, {"guidance": 1.0}]
    kinds += [{"guidance": 2.0}, {"guidance": -1.0}, {"label": "cat", "guidance": 1.0}, {"label": "7", "guidance": 1.0}]
    assert len({folder(**kind) for kind in kinds}) == len(kinds)
    for label, number in (("cat", 0), ("7", 2), ("none", -1)):
        assert folder(label=label) == folder(label=number)
    assert folder(label="cat", guidance=1) == folder(label="cat", guidance=1.0)
    assert folder(label=None, guidance=-0.0) == folder()


def test_caches_of_versions_without_guidance_stay_valid(with_classes: Model) -> None:
    sampler = Heun(calls=3)
    settings = json.dumps(samplers.to_dict(sampler), sort_keys=True)
    key = repr((1, with_classes.digest, "raw", settings, 7, "float32"))
    name = hashlib.sha256(key.encode()).hexdigest()[:24]
    assert SampleCache(with_classes, sampler, seed=7).folder.name == name


@pytest.mark.parametrize("options", [{"label": "dog", "guidance": 1.5}, {"label": "none"}, {"guidance": 1.5}])
def test_samples_have_the_class_and_the_guidance_of_the_key(
    options: dict[str, Any], with_classes: Model, sampled: list[int]
) -> None:
    sampler = Heun(sigmas=(2.0, 0.5))
    usual = SampleCache(with_classes, sampler)
    cache = SampleCache(with_classes, with_classes.sampler, **options).with_sampler(sampler)
    drawn = [each.draw(4, ALONE, batch_size=4)[:4] for each in (usual, cache, cache)]
    assert sampled == [4, 4]
    assert np.array_equal(drawn[1], to_bytes(with_classes.sample(4, sampler=sampler, **options)))
    assert np.array_equal(drawn[1], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])


def test_a_class_or_guidance_that_is_not_possible_is_refused_at_once(with_classes: Model, model: Model) -> None:
    with pytest.raises(ValueError, match="no class is called 'bird'"):
        SampleCache(with_classes, Heun(calls=3), label="bird")
    with pytest.raises(ValueError, match="guidance is towards a class, and this model has none"):
        SampleCache(model, SAMPLER, guidance=1.0)
