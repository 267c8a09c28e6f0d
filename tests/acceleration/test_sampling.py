"""The path that sampling takes on a GPU: Model, Recorded, FusedRefineNet, in float16. The same tests run on a CPU, with
plain PyTorch in the kernels' places and direct calls in the recordings'. Run with: pytest -m gpu tests/acceleration"""

from __future__ import annotations

import logging
import sys
from functools import partial

import numpy as np
import pytest
import torch
from gpu import GPU
from gpu import without_tf32 as without_tf32
from torch import Tensor

import scorefield
from acceleration import direct_calls, plain_kernels
from scorefield import AnnealedLangevin, Model, acceleration
from scorefield.acceleration.graphs import Recorded
from scorefield.networks import RefineNet
from scorefield.noise import SampleNoise
from scorefield.samplers import last

if sys.platform != "linux":  # there Triton comes with the dev extra, so that these tests are never skipped
    pytest.importorskip("triton")

DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]
SAMPLER = AnnealedLangevin((1.0, 0.1), step_size=1e-3, steps=2)


@pytest.fixture(autouse=True)
def _as_on_a_gpu(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu":
        plain_kernels.use(monkeypatch)
        direct_calls.use(monkeypatch)
        monkeypatch.setattr(acceleration, "has_fused_kernels", lambda network: True)


def small_model(device: str, sampler: AnnealedLangevin = SAMPLER) -> Model:
    network = RefineNet(channels=1, width=8, sigmas=sampler.sigmas).requires_grad_(False)
    return Model(network.to(device).to(memory_format=torch.channels_last), (1, 8, 8), sampler)  # type: ignore[call-overload]


# ---------------------------------------------------------------- batch sizes


@pytest.mark.parametrize("device", DEVICES)
def test_image_k_is_the_same_up_to_rounding_for_any_batch_size(device: str) -> None:
    """Four images at once, in batches of which the last is smaller, and one by one; as floats and as bytes."""
    model = small_model(device)
    whole = model.sample(4, seed=3)
    (prepared,) = model._fast.values()
    assert isinstance(prepared, Recorded)
    assert prepared.size == 4
    assert model.fast_score(4) is prepared
    for size in (3, 1):
        assert (model.sample(4, seed=3, batch_size=size) - whole).abs().max() < 2e-3, size
        drawn = np.concatenate([images[:, -1] for _, images in model.draw(range(4), batch_size=size, seed=3)])
        apart = drawn[..., 0].astype(float) - 255 * whole[:, 0].cpu().numpy()
        assert np.abs(apart).max() < 1.5, size  # half of it is the rounding to bytes
        assert [score.size for score in model._fast.values() if isinstance(score, Recorded)] == [size]


@pytest.mark.parametrize("device", DEVICES)
def test_a_user_may_ask_for_float32(device: str) -> None:
    model, image, mask = small_model(device), torch.rand(1, 8, 8), torch.eye(8)
    for draw in (model.sample, partial(model.inpaint, image, mask)):
        fast, exact = (draw(n=2, precision=precision) for precision in ("auto", "float32"))
        (score,) = model._fast.values()
        assert not isinstance(score, Recorded)
        assert 0 < (fast - exact).abs().max() < 1e-2
    with pytest.raises(ValueError, match="precision must be one of auto, float16, float32; got 'fp32'"):
        model.sample(2, precision="fp32")


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU)])
def test_how_far_images_of_other_batch_sizes_are_apart(device: str) -> None:
    """Digits by the pretrained model, 10 steps at each level. In float16 two batch sizes are about as far apart as
    float16 and float32 are. On an H200: by 0.004 to 0.005 in the mean, 11 % of pixels by a grey level, and single ones
    from black to white, because steps amplify what is different. Twice the mean is the limit."""
    model = scorefield.load("model:mnist-small", device=device)
    sampler = AnnealedLangevin(model.sigmas, step_size=2e-4, steps=10)
    whole, plain = (model.sample(12, sampler=sampler, precision=each) for each in ("auto", "float32"))
    for size in (5, 1):
        assert_close(model.sample(12, sampler=sampler, batch_size=size), whole, mean=1e-2, share=0.2)
    assert_close(plain, whole, mean=1e-2, share=0.2)


def assert_close(found: Tensor, expected: Tensor, *, mean: float, share: float) -> None:
    """The mean difference, and the share of pixels that are another grey level."""
    apart = (found - expected).abs()
    changed = ((255 * found).round() != (255 * expected).round()).float().mean()
    told = f"mean {apart.mean():.2e}, largest {apart.max():.2e}, another grey level {changed:.2%}"
    logging.getLogger(__name__).info(told)  # to see it: pytest -m gpu --log-cli-level info
    assert apart.mean() < mean, told
    assert changed < share, told


# ---------------------------------------------------------------- overflow in mid-run

WIDE = AnnealedLangevin((1.0,), step_size=1.0, steps=12, denoise=True)


def fragile_model(device: str) -> Model:
    """Its first convolution stays within float16 for x in [0, 1], and exceeds it once noise has taken x far enough."""
    model = small_model(device, WIDE)
    begin, start = model.network.begin, next(model.states(range(4))).x
    assert isinstance(begin, torch.nn.Conv2d)
    begin.weight.mul_(65_504 * 64 / 2 / begin(2 * start - 1).abs().max())  # 64: activations are stored divided by it
    return model


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.filterwarnings("ignore:step_size")
def test_a_network_that_overflows_float16_in_mid_run_goes_on_in_bfloat16(device: str) -> None:
    """The batch starts again with it. What was yielded before is not yielded twice, and there is one notice."""
    model = fragile_model(device)
    with pytest.warns(UserWarning, match="overflowed float16, so it computes in bfloat16") as notices:
        states = list(model.states(range(4), seed=1))
    assert len([each for each in notices if "float16" in str(each.message)]) == 1
    assert [state.step for state in states] == list(range(WIDE.updates + 1))
    again = list(model.states(range(4), seed=1))  # all of it in bfloat16 now
    same = [torch.equal(one.x, other.x) for one, other in zip(states, again, strict=True)]
    first = same.index(True, 1)
    assert 1 < first < WIDE.updates  # it was not before the first step, nor at the last
    assert all(same[first:])
    assert not any(same[1:first])
    assert torch.equal(model.sample(4, seed=1), states[-1].x.clamp(0, 1))
    exact = last(model.states(range(4), seed=1, precision="float32"))
    assert (states[-1].x - exact).abs().mean() < 0.1 * exact.abs().mean()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.filterwarnings("ignore:step_size")
def test_a_network_that_no_precision_helps_is_an_error_that_names_the_option(device: str) -> None:
    model = small_model(device, WIDE)
    model.network.end.weight[0, 0, 0, 0] = torch.inf  # type: ignore[union-attr, operator]
    with (
        pytest.warns(UserWarning, match="overflowed float16"),
        pytest.raises(FloatingPointError, match=r"score itself returned NaN.*--precision float32"),
    ):
        last(model.states(range(2)))


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_size_that_diverges_is_not_taken_for_an_overflow(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the run started again."""
    sampler, model, starts = AnnealedLangevin((1.0,), step_size=1e30, steps=5), small_model(device), list[int]()
    start = AnnealedLangevin.start

    def counted(sampler: AnnealedLangevin, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
        starts.append(1)
        return start(sampler, noise, shape)

    monkeypatch.setattr(AnnealedLangevin, "start", counted)
    with (
        pytest.warns(UserWarning, match="Langevin dynamics diverges"),
        pytest.raises(FloatingPointError, match="stable is a step size below"),
    ):
        last(model.states(range(2), sampler=sampler))
    assert model.fast_score(2)._fallback is not None  # type: ignore[attr-defined]
    assert len(starts) == 1
