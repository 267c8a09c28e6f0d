"""Settings of the samplers that walk down to σ = 0: schedules from a number of calls, counts of calls, and errors."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scorefield import GaussianMixture, Model, SampleNoise, geometric, karras, last
from scorefield.networks import RefineNet
from scorefield.samplers import (
    SAMPLERS,
    AdamsBashforth,
    Ancestral,
    AnnealedHMC,
    AnnealedLangevin,
    ConsistentAnnealed,
    DPMpp2M,
    DPMpp3M,
    Euler,
    Heun,
    NoiseLevels,
    PredictorCorrector,
    changed,
    for_restoring,
    from_dict,
    options,
    to_dict,
)

RANGE = NoiseLevels(0.01, 50.0)
LEVELS = tuple(geometric(1.0, 0.01, 10).tolist())
LIST = NoiseLevels(LEVELS[-1], LEVELS[0], LEVELS)
PATH = {name: cls for name, cls in SAMPLERS.items() if hasattr(cls, "scheduled")}
MIXTURE = GaussianMixture([[0.2, 0.8], [0.7, 0.3]], 0.05, [1, 2])


def test_all_samplers_are_in_the_registry() -> None:
    assert set(PATH) == {
        "adams_bashforth",
        "ancestral",
        "annealed_hmc",
        "consistent_annealed",
        "dpmpp_2m",
        "dpmpp_3m",
        "euler",
        "heun",
        "predictor_corrector",
    }
    for cls in PATH.values():
        assert all(text for _, text in options(cls).values())


@pytest.mark.parametrize("accepted", [RANGE, LIST], ids=["range", "list"])
@pytest.mark.parametrize("name", PATH)
@pytest.mark.parametrize("asked", [None, 7, 19])
def test_the_calls_that_are_promised_are_made(name: str, asked: int | None, accepted: NoiseLevels) -> None:
    """And no more than asked for. The last state has the number that `updates` says."""
    one_each = ("euler", "dpmpp_2m", "dpmpp_3m", "adams_bashforth", "ancestral")
    if asked == 19 and accepted.listed and name in one_each:
        with pytest.raises(ValueError, match="knows 10 noise levels"):
            PATH[name](calls=asked).scheduled(accepted)
        return
    sampler = PATH[name](calls=asked).scheduled(accepted)
    assert asked is None or sampler.calls <= asked
    assert sampler.sigmas[0] == accepted.high
    assert not accepted.listed or set(sampler.sigmas) <= set(accepted.listed)
    calls = 0

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return MIXTURE.score(x, sigma)

    noise = SampleNoise(range(3))
    states = list(sampler(score, sampler.start(noise, (2,)), randn_like=noise.randn_like))
    assert calls == sampler.calls
    assert states[-1].step == sampler.updates == len(states) - 1
    assert states[-1].sigma == 0
    assert from_dict(json.loads(json.dumps(to_dict(sampler)))) == sampler
    assert sampler.scheduled(accepted) == sampler


@pytest.mark.parametrize(
    ("sampler", "levels", "calls"),
    [
        (Heun(calls=18), 9, 17),
        (Heun(calls=35), 18, 35),
        (Heun(), 18, 35),
        (Heun(calls=18, resample=2), 5, 18),
        (Euler(calls=18), 18, 18),
        (DPMpp2M(calls=10, resample=3), 3, 9),
        (PredictorCorrector(calls=20), 10, 20),
        (PredictorCorrector(calls=20, corrections=4), 4, 20),
        (ConsistentAnnealed(calls=20), 20, 20),
        (AnnealedHMC(calls=101), 20, 101),
    ],
)
def test_levels_for_a_range(sampler: Any, levels: int, calls: int) -> None:  # noqa: ANN401
    found = sampler.scheduled(RANGE)
    assert (len(found.sigmas), found.calls) == (levels, calls)
    assert (found.sigmas[0], found.sigmas[-1]) == (50.0, 0.01)


@pytest.mark.parametrize(
    ("sampler", "levels", "calls"),
    [
        (Euler(), 10, 10),
        (Euler(calls=4), 4, 4),
        (Heun(), 10, 19),
        (Heun(calls=18), 9, 17),
        (PredictorCorrector(calls=200), 10, 200),
        (PredictorCorrector(calls=205), 10, 200),
        (PredictorCorrector(calls=7), 7, 7),
        (ConsistentAnnealed(calls=1000), 10, 1000),
        (ConsistentAnnealed(calls=8, steps=2), 4, 8),
        (AnnealedHMC(calls=1001), 10, 1001),
    ],
)
def test_levels_for_a_list(sampler: Any, levels: int, calls: int) -> None:  # noqa: ANN401
    found = sampler.scheduled(LIST)
    assert (len(found.sigmas), found.calls) == (levels, calls)
    assert found.sigmas[0] == LIST.listed[0]
    assert found.sigmas[-1] == LIST.listed[-1]


def test_schedules() -> None:
    torch.testing.assert_close(torch.tensor(Heun(calls=9).scheduled(RANGE).sigmas), karras(50.0, 0.01, 5))
    torch.testing.assert_close(torch.tensor(Heun(calls=9, rho=3).scheduled(RANGE).sigmas), karras(50.0, 0.01, 5, rho=3))
    torch.testing.assert_close(torch.tensor(DPMpp3M(calls=5).scheduled(RANGE).sigmas), geometric(50.0, 0.01, 5))
    assert Euler(calls=1).scheduled(RANGE).sigmas == (50.0,)
    assert Euler(calls=1).scheduled(LIST).sigmas == (1.0,)


def test_karras() -> None:
    """ρ = 1 is even in σ, ρ = 2 in √σ; a huge ρ is geometric. The ends are exact."""
    torch.testing.assert_close(karras(5.0, 1.0, 5, rho=1), torch.tensor([5.0, 4, 3, 2, 1]))
    torch.testing.assert_close(karras(25.0, 1.0, 5, rho=2), torch.tensor([25.0, 16, 9, 4, 1]))
    torch.testing.assert_close(karras(80, 0.002, 9, rho=1e6), geometric(80, 0.002, 9), rtol=1e-4, atol=0)
    sigmas = karras(80, 0.002, 18)
    assert sigmas[0].item() == 80
    assert sigmas[-1].item() == pytest.approx(0.002)
    assert sigmas[1].item() == pytest.approx(57.586, abs=0.001)  # (80^(1/7) + (0.002^(1/7) − 80^(1/7))/17)^7
    with pytest.raises(ValueError, match="rho must be positive"):
        karras(80, 0.002, 18, rho=0)
    with pytest.raises(ValueError, match="sigma_max must exceed"):
        karras(1, 2, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Heun(calls=0), "calls must be a whole number from 1 to 100,000; got 0"),
        (lambda: Heun(calls=10**9), "calls must be a whole number from 1 to 100,000"),
        (lambda: Heun(calls=True), "calls must be a whole number"),
        (lambda: Heun(calls=9, sigmas=(3, 2, 1)), r"3 sigmas make 5 calls; got calls=9"),
        (lambda: Euler(sigmas=(1, 2)), "decreasing"),
        (lambda: Euler(sigmas=(1, 0)), "0 is added at the end"),
        (lambda: Euler(schedule="wild"), "schedule must be karras or geometric"),  # type: ignore[arg-type]
        (lambda: Euler(rho=-1), "rho must be positive"),
        (lambda: Euler(resample=0), "resample must be"),
        (lambda: Heun(churn=-1), "churn and churn_noise"),
        (lambda: Heun(churn_min=3, churn_max=2), "churn_min must not exceed"),
        (lambda: AdamsBashforth(order=5), "order must be"),
        (lambda: Ancestral(eta=2), "eta must be from 0"),
        (lambda: PredictorCorrector(snr=0), "snr must be positive"),
        (lambda: PredictorCorrector(corrections=-1), "corrections must be a whole number from 0"),
        (lambda: ConsistentAnnealed(eta=2.1), "eta must be positive and at most"),
        (lambda: ConsistentAnnealed(eta=math.nan), "eta must be positive and at most"),
        (lambda: ConsistentAnnealed(eta=1.9).scheduled(LIST), r"at most 1 \+ σᵢ₊₁/σᵢ = 1.599"),
        (lambda: Ancestral(eta=math.nan), "eta must be from 0"),
        (lambda: PredictorCorrector(snr=math.nan), "snr must be positive"),
        (lambda: Euler(rho=math.nan), "rho must be positive"),
        (lambda: Euler(sigmas=(math.nan,)), "sigmas must be positive, finite"),
        (lambda: Heun(churn=math.nan), "churn and churn_noise"),
        (lambda: ConsistentAnnealed(steps=10**9).scheduled(LIST), "make 10,000,000,000 calls per image"),
        (lambda: changed(AnnealedLangevin(LEVELS), {"calls": 10**9}), "calls must be a whole number from 1 to 100,000"),
        (lambda: ConsistentAnnealed(steps=0), "steps must be a whole number"),
        (lambda: AnnealedHMC(leapfrog=0), "leapfrog must be a whole number"),
        (lambda: AnnealedHMC(leapfrog_size=2), "leapfrog_size must be positive and below 2"),
        (lambda: AnnealedHMC(calls=3).scheduled(RANGE), "annealed_hmc needs at least 6 calls"),
        (lambda: Euler(sigmas=(60, 1)).scheduled(RANGE), "accepts noise levels from 0.01 to 50; got 60"),
        (lambda: Euler(sigmas=(0.5,)).scheduled(LIST), "knows only certain noise levels; got 0.5"),
        (lambda: Euler(calls=11).scheduled(LIST), "knows 10 noise levels, with which euler makes at most 10 calls"),
        (lambda: Heun(churn=1).scheduled(LIST), "churn needs a network for all noise levels"),
        (lambda: Heun(churn=9, churn_min=40).scheduled(RANGE), r"accepts up to 50; got churn_min=40 .*below 35\.36"),
        (lambda: list(Euler()(MIXTURE.score, torch.zeros(1, 2))), "has no noise schedule yet"),
    ],
)
def test_wrong_settings_are_refused(make: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=message):
        make()


def test_changed_samplers_get_a_schedule() -> None:
    langevin = AnnealedLangevin(LIST.listed, step_size=2e-5, steps=100)
    assert changed(langevin, {"calls": 18}, name="heun") == Heun(calls=18).scheduled(LIST)
    assert changed(langevin, {"calls": 18}, name="heun", accepted=RANGE) == Heun(calls=18).scheduled(RANGE)
    mine = Heun(sigmas=(9, 2, 1))
    assert changed(mine, {"churn": 0.1}, accepted=RANGE) == Heun(sigmas=(9, 2, 1), churn=0.1)
    assert changed(mine, {"calls": 5}, accepted=RANGE) == Heun(calls=5).scheduled(RANGE)
    assert changed(mine, {}, name="annealed_langevin", accepted=LIST) == AnnealedLangevin(LIST.listed)


def test_churn_stays_within_the_noise_levels_of_the_network() -> None:
    """18 levels: γ is churn/18, at most √2 − 1."""
    for churn, gamma in ((0.9, 0.05), (9.0, math.sqrt(2) - 1)):
        found = Heun(calls=35, churn=churn).scheduled(RANGE)
        assert found.churn_max == pytest.approx(RANGE.high / (1 + gamma))
        assert found.changed({"calls": 17}).scheduled(RANGE).churn_max <= RANGE.high
    low = Heun(calls=35, churn=9.0, churn_max=3.0)
    assert low.scheduled(RANGE).churn_max == 3.0


def test_restorations_have_fresh_noise() -> None:
    """In the place of a probability flow. The noise that churn makes is within what the network knows (`scheduled`)."""
    for own in (AdamsBashforth(calls=10), Heun(calls=19), DPMpp2M()):
        found = for_restoring(own, RANGE).scheduled(RANGE)
        assert (type(found), found.calls, found.churn, found.churn_max) == (Heun, 35, 8.0, 25.0)
        assert for_restoring(own, LIST) is own  # churn asks for noise levels that are not in the list
    for noisy in (AnnealedHMC(calls=9), Heun(calls=9, churn=3)):
        assert for_restoring(noisy, RANGE) is noisy
    paper = AnnealedLangevin(LEVELS)
    assert for_restoring(paper, LIST) is paper


def test_calls_of_annealed_langevin_keep_its_way() -> None:
    """T ε stays the same: 250 calls at 10 levels are T = 25 and four times the step."""
    langevin = AnnealedLangevin(LIST.listed, step_size=2e-5, steps=100)
    assert changed(langevin, {"calls": 250}) == replace(langevin, steps=25, step_size=8e-5)
    assert changed(langevin, {"calls": 250, "step_size": 3e-5}) == replace(langevin, steps=25, step_size=3e-5)
    assert changed(langevin, {"calls": 251, "denoise": True}) == replace(
        langevin, steps=25, step_size=8e-5, denoise=True
    )
    with pytest.raises(ValueError, match="annealed_langevin needs at least 10 calls"):
        changed(langevin, {"calls": 9})
    with pytest.raises(ValueError, match="leave out calls or steps"):
        changed(langevin, {"calls": 90, "steps": 3})
    with pytest.raises(ValueError, match=r"its settings are step_size, steps, denoise, calls\)"):
        changed(langevin, {"churn": 1})
    with pytest.raises(ValueError, match=r"its settings are calls, schedule, rho, eta\)"):
        changed(langevin, {"churn": 1}, name="ancestral")


def test_annealed_langevin_for_a_range_is_like_the_papers() -> None:
    """As many levels for a factor of 100 as the paper's 10, and 0.2 σ² for the step size, its 2e-5 for σ = 0.01."""
    found = changed(Heun(), {}, name="annealed_langevin", accepted=NoiseLevels(0.01, 1.0))
    torch.testing.assert_close(torch.tensor(found.sigmas), geometric(1.0, 0.01, 10))
    assert (found.steps, found.step_size) == (100, 2e-5)
    found = changed(Heun(), {}, name="annealed_langevin", accepted=NoiseLevels(0.1, 200.0))
    torch.testing.assert_close(torch.tensor(found.sigmas), geometric(200.0, 0.1, 16))
    assert found.step_size == 2e-3


class Exact(nn.Module):
    """A network for all sigmas from 0.01 to 50 whose score is exact: images of grey 0.25, or, three of four, 0.75."""

    sigma_range = (0.01, 50.0)

    def __init__(self) -> None:
        super().__init__()
        self.mixture = GaussianMixture(torch.tensor([0.25, 0.75])[:, None, None, None].expand(2, 1, 4, 4), 0.02, [1, 3])

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self.mixture.score(x, sigma)


@pytest.mark.parametrize("name", PATH)
def test_a_model_with_any_sampler(name: str) -> None:
    """Model.sample chooses the schedule; images do not depend on the batch; three of four are light."""
    model = Model(Exact(), (1, 4, 4), AnnealedLangevin((1.0, 0.1)))
    sampler = PATH[name](calls={"predictor_corrector": 200, "annealed_hmc": 1000}.get(name, 60))
    images = model.sample(400, seed=3, sampler=sampler, batch_size=400)
    torch.testing.assert_close(images[:3], model.sample(3, seed=3, sampler=sampler, batch_size=2))
    distance = torch.minimum((images - 0.25).abs(), (images - 0.75).abs())
    assert (distance < 0.1).double().mean() > 0.95
    assert (images.mean((1, 2, 3)) > 0.5).double().mean().item() == pytest.approx(0.75, abs=0.1)
    mask = torch.eye(4)
    filled = model.inpaint(torch.full((1, 4, 4), 0.6), mask, n=2, sampler=sampler)
    torch.testing.assert_close(filled[:, 0][:, mask == 1], torch.full((2, 4), 0.6))


def test_the_papers_network_takes_its_own_levels_only() -> None:
    network = RefineNet(channels=1, width=2, sigmas=geometric(1.0, 0.01, 10)).requires_grad_(False)
    model = Model(network, (1, 8, 8), AnnealedLangevin(LIST.listed))
    assert model.accepted == LIST
    images = model.sample(2, sampler=Heun(calls=5))
    assert images.shape == (2, 1, 8, 8)
    with pytest.raises(ValueError, match="knows 10 noise levels"):
        model.sample(2, sampler=Heun(calls=30))
    sigmas = [s.sigma.item() for s in model.states(range(1), sampler=PredictorCorrector(calls=40))]
    assert sorted(set(sigmas), reverse=True) == pytest.approx([*LIST.listed, 0.0])
    assert all(a >= b for a, b in pairwise(sigmas))


def test_starts_around_grey_with_the_noise_of_the_first_level() -> None:
    x = Euler(sigmas=(20.0, 1.0)).start(SampleNoise(range(4000)), (2,))
    assert x.mean().item() == pytest.approx(0.5, abs=4 * 20 / math.sqrt(8000))
    assert x.std().item() == pytest.approx(20, rel=0.05)
    assert torch.equal(last(Euler(sigmas=(20.0,))(lambda x, sigma: torch.zeros_like(x), x)), x)
