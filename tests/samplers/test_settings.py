"""Samplers as settings: their dictionaries, their changes, and what they count."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from scorefield import SampleNoise, annealed_langevin, known_pixels
from scorefield.samplers import (
    SAMPLERS,
    AnnealedLangevin,
    Sampler,
    State,
    changed,
    from_dict,
    option,
    options,
    register,
    to_dict,
    with_denoising,
)

SAMPLER = AnnealedLangevin((2.0, 1.0, 0.5), step_size=0.01, steps=4)


def minus(x: Tensor, sigma: Tensor) -> Tensor:
    return -x


def test_a_sampler_runs_the_function_of_its_name() -> None:
    """The same states bit for bit, with a constraint, noise of the caller's and a final denoising."""
    sampler, x = replace(SAMPLER, denoise=True), torch.rand(3, 2)
    assert isinstance(sampler, Sampler)

    def run(by_settings: bool) -> list[State]:
        noise = SampleNoise(range(3))
        known = known_pixels(torch.ones(3, 2), torch.tensor([1, 0]), randn_like=noise.randn_like)
        if by_settings:
            return list(sampler(minus, x, constraint=known, randn_like=noise.randn_like))
        settings: dict[str, Any] = {"step_size": 0.01, "steps": 4, "denoise": True}
        return list(
            annealed_langevin(minus, x, [2.0, 1.0, 0.5], constraint=known, randn_like=noise.randn_like, **settings)
        )

    for one, other in zip(run(True), run(False), strict=True):
        assert torch.equal(one.x, other.x)
        assert (one.sigma, one.step) == (other.sigma, other.step)


@pytest.mark.parametrize("denoise", [False, True])
@pytest.mark.parametrize(("sigmas", "steps"), [((0.1,), 1), ((2.0, 1.0, 0.5), 4)])
def test_calls_and_updates_are_those_actually_made(sigmas: tuple[float, ...], steps: int, denoise: bool) -> None:
    sampler, calls = AnnealedLangevin(sigmas, step_size=1e-3, steps=steps, denoise=denoise), list[float]()

    def counted(x: Tensor, sigma: Tensor) -> Tensor:
        calls.append(sigma.item())
        return -x

    states = list(sampler(counted, torch.zeros(5, 2)))
    assert len(calls) == sampler.calls == steps * len(sigmas) + denoise
    assert states[-1].step == sampler.updates
    assert len(states) == sampler.updates + 1


def test_the_start_is_uniform_noise_and_the_first_draw_of_each_sample() -> None:
    start = SAMPLER.start(SampleNoise([7, 8]), (1, 3, 5))
    assert torch.equal(start, SampleNoise([7, 8]).rand_like(torch.empty(2, 1, 3, 5)))


def test_to_dict_gives_plain_values_and_from_dict_is_its_inverse() -> None:
    sampler = replace(SAMPLER, denoise=True)
    values = to_dict(sampler)
    assert values == {
        "name": "annealed_langevin",
        "sigmas": [2.0, 1.0, 0.5],
        "step_size": 0.01,
        "steps": 4,
        "denoise": True,
    }
    assert from_dict(json.loads(json.dumps(values))) == sampler
    assert from_dict({"name": "annealed_langevin", "sigmas": [1.0]}) == AnnealedLangevin((1.0,))


def test_the_papers_settings_are_the_defaults() -> None:
    sampler = AnnealedLangevin((1.0,))
    assert (sampler.step_size, sampler.steps, sampler.denoise) == (2e-5, 100, False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "leap"}, r"no sampler called leap \(choose from .*annealed_langevin"),
        ({}, "no sampler called None"),
        ({"name": []}, "no sampler called"),
        ({"name": "annealed_langevin", "sigmas": [1.0], "temperature": 2, "eta": 1}, "no setting eta, temperature"),
        ({"name": "annealed_langevin"}, "wrong settings for annealed_langevin: .*sigmas"),
        ({"name": "annealed_langevin", "sigmas": 1.0}, "wrong settings for annealed_langevin"),
        ({"name": "annealed_langevin", "sigmas": [1.0], "step_size": "small"}, "wrong settings for annealed_langevin"),
        ({"name": "annealed_langevin", "sigmas": [1.0], "steps": 0}, "steps must be a whole number"),
    ],
)
def test_dictionaries_that_mean_no_sampler(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dict(values)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigmas": ()}, "positive, finite and decreasing"),
        ({"sigmas": (0.5, 1.0)}, "positive, finite and decreasing"),
        ({"sigmas": (1.0, 1.0)}, "positive, finite and decreasing"),
        ({"sigmas": (1.0, 0.0)}, "positive, finite and decreasing"),
        ({"sigmas": (math.inf, 1.0)}, "positive, finite and decreasing"),
        ({"sigmas": (1.0, math.nan)}, "positive, finite and decreasing"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"steps": 2.0}, "steps must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"step_size": 0.0}, "step_size must be a positive number"),
        ({"step_size": math.nan}, "step_size must be a positive number"),
        ({"step_size": math.inf}, "step_size must be a positive number"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SAMPLER, **settings)


def test_a_sampler_is_a_value() -> None:
    """Frozen, equal to others with the same settings, and a key; a schedule may be given as a tensor."""
    with pytest.raises(FrozenInstanceError):
        SAMPLER.steps = 5  # type: ignore[misc]
    same = AnnealedLangevin(torch.tensor([2.0, 1.0, 0.5]), step_size=0.01, steps=4)  # type: ignore[arg-type]
    assert {SAMPLER: 1}[same] == 1


def test_changed_settings() -> None:
    assert changed(SAMPLER, {"steps": 9, "step_size": None, "denoise": True}) == replace(SAMPLER, steps=9, denoise=True)
    assert changed(SAMPLER, {}, name="annealed_langevin") == SAMPLER
    with pytest.raises(ValueError, match="annealed_langevin has no setting churn, sigma_max"):
        changed(SAMPLER, {"sigma_max": 1.0, "churn": 10})
    with pytest.raises(ValueError, match="has no setting sigmas"):  # the schedule is the model's, not an option
        changed(SAMPLER, {"sigmas": [1.0]})
    with pytest.raises(ValueError, match="no sampler called leap"):
        changed(SAMPLER, {}, name="leap")


def test_options_have_types_and_help() -> None:
    found = options(AnnealedLangevin)
    assert {name: kind for name, (kind, _) in found.items()} == {"step_size": float, "steps": int, "denoise": bool}
    assert all(text.endswith(".") for _, text in found.values())


@pytest.mark.parametrize(
    ("steps", "step_size", "k", "expected"),
    [
        (100, 2e-5, 1, (100, 2e-5)),
        (100, 2e-5, 4, (25, 8e-5)),
        (100, 2e-5, 10, (10, 2e-4)),
        (2, 2e-5, 4, (1, 4e-5)),  # one step of two: twice as long
        (100, 1e-4, 10, (10, 3e-4)),  # ten times as long would be 1e-3, which diverges: at most 3σ²
        (100, 3.5e-4, 4, (25, 3.5e-4)),  # the model's own is longer than that, and stays
    ],
)
def test_a_quicker_pace_goes_as_far(steps: int, step_size: float, k: int, expected: tuple[int, float]) -> None:
    quicker = AnnealedLangevin((1.0, 0.01), step_size=step_size, steps=steps, denoise=True).at_pace(k)
    assert (quicker.steps, quicker.step_size, quicker.denoise) == (*expected, True)


def test_other_steps_go_as_far() -> None:
    fewer = SAMPLER.with_steps(1)
    assert (fewer.steps, fewer.step_size) == (1, 0.04)
    assert fewer.shortfall(SAMPLER) is None
    assert "25% of the model's own" in str(replace(SAMPLER, steps=1).shortfall(SAMPLER))
    assert "--step-size 0.04" in str(replace(SAMPLER, steps=1).shortfall(SAMPLER))  # below 2σ² = 0.5
    long = replace(SAMPLER, step_size=0.4)
    assert "more --steps" in str(replace(long, steps=1).shortfall(long))  # ε = 1.6 would be above it


def test_a_step_size_that_may_diverge_is_warned_of() -> None:
    assert SAMPLER.warning is None
    assert "is not below 4σ² = 1" in str(replace(SAMPLER, step_size=1.0).warning)


def test_denoising_on_and_off_where_a_sampler_has_that_setting() -> None:
    assert with_denoising(SAMPLER, True) == replace(SAMPLER, denoise=True)
    assert with_denoising(with_denoising(SAMPLER, True), False) == SAMPLER


def test_another_sampler_on_the_same_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name; settings of the first do not count for it. Without a denoising step it has none to switch."""
    monkeypatch.setattr("scorefield.samplers.settings.SAMPLERS", dict(SAMPLERS))

    @register
    @dataclass(frozen=True)
    class Other:
        name: ClassVar[str] = "other"
        sigmas: tuple[float, ...]
        eta: float = option(0.5, "Something.")

    assert changed(SAMPLER, {}, name="other") == Other((2.0, 1.0, 0.5))
    assert changed(SAMPLER, {"eta": 2.0}, name="other") == Other((2.0, 1.0, 0.5), eta=2.0)
    with pytest.raises(ValueError, match=r"other has no setting steps \(its settings are eta\)"):
        changed(SAMPLER, {"steps": 3}, name="other")
    assert with_denoising(Other((1.0,)), True) == Other((1.0,))


def test_a_name_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scorefield.samplers.settings.SAMPLERS", dict(SAMPLERS))
    assert register(AnnealedLangevin) is AnnealedLangevin

    class Impostor:
        name: ClassVar[str] = "annealed_langevin"

    with pytest.raises(ValueError, match="a sampler called annealed_langevin already: AnnealedLangevin"):
        register(Impostor)


def test_functions_and_their_modules_do_not_take_each_others_names() -> None:
    """Importing a module sets it as an attribute of its package, which would replace a function of that name."""
    code = (
        "import pkgutil, scorefield, scorefield.samplers as samplers\n"
        "for module in pkgutil.iter_modules(samplers.__path__, 'scorefield.samplers.'):\n"
        "    __import__(module.name)\n"
        "for name in samplers.__all__:\n"
        "    assert type(getattr(samplers, name)).__name__ != 'module', name\n"
        "assert callable(scorefield.langevin) and callable(samplers.langevin)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
