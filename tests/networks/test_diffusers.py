"""Networks of the package diffusers as scores: against exact scores, and against that package's own schedulers."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import scorefield as sf

MEAN, STD = 0.3, 0.2
"""Of made-up data, every pixel of which is normal, in [−1, 1]."""
ALPHAS = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), 0)
SIGMAS = ((1 - ALPHAS) / ALPHAS).sqrt()


class ExactUNet(nn.Module):
    """What a perfect network predicts of x_t for that data."""

    def __init__(self, prediction: str, **config: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.prediction = prediction
        self.config = {"in_channels": 1, "out_channels": 1, "sample_size": 4, **config}
        self.nothing = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.asked: list[Tensor] = []

    def forward(self, x: Tensor, time: Tensor, *, return_dict: bool) -> tuple[Tensor]:
        assert not return_dict
        self.asked.append(time)
        alpha = ALPHAS[time.long()].reshape(-1, 1, 1, 1)
        variance = alpha * STD**2 + 1 - alpha
        noise = (1 - alpha).sqrt() * (x - alpha.sqrt() * MEAN) / variance
        clean = (x - (1 - alpha).sqrt() * noise) / alpha.sqrt()
        outputs = {"epsilon": noise, "sample": clean, "v_prediction": alpha.sqrt() * noise - (1 - alpha).sqrt() * clean}
        out = outputs[self.prediction]
        return (torch.cat([out, out + 1], 1) if self.config["out_channels"] == 2 else out,)


def scheduler(prediction: str) -> SimpleNamespace:
    return SimpleNamespace(alphas_cumprod=ALPHAS, config={"prediction_type": prediction})


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("out_channels", [1, 2], ids=["", "with_variances"])
def test_the_score_of_normal_data_is_exact(prediction: str, out_channels: int) -> None:
    """s(x, σ) = −(x − m)/(s² + σ²), in either unit of the pixels."""
    unet = ExactUNet(prediction, out_channels=out_channels)
    v = torch.randn(4, 1, 4, 4, dtype=torch.float64) * 2
    sigma = SIGMAS[[3, 200, 700, 999]]
    wide = sigma.reshape(-1, 1, 1, 1)
    score = sf.from_diffusers(unet, scheduler(prediction), unit_pixels=False)
    torch.testing.assert_close(score(v, sigma), -(v - MEAN) / (STD**2 + wide**2), rtol=1e-5, atol=1e-5)
    assert torch.equal(unet.asked[0], torch.tensor([3.0, 200.0, 700.0, 999.0]))
    x, mean, std = (v + 1) / 2, (MEAN + 1) / 2, STD / 2
    score = sf.from_diffusers(unet, scheduler(prediction))
    exact = -(x - mean) / (std**2 + (wide / 2) ** 2)
    torch.testing.assert_close(score(x, sigma / 2), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(score(x, sigma[1] / 2)[1], exact[1], rtol=1e-5, atol=1e-5)
    assert score.sigma_range == pytest.approx((SIGMAS[0].item() / 2, SIGMAS[-1].item() / 2))
    torch.testing.assert_close(score.sigmas_of_training.double(), SIGMAS.flip(0) / 2, rtol=1e-5, atol=0)


def test_times_between_those_of_training() -> None:
    """Where σ is geometric: between the first two it grows by a half, and is far from linear."""
    unet = ExactUNet("epsilon")
    between = SIGMAS[[0, 499]] ** 0.75 * SIGMAS[[1, 500]] ** 0.25
    x = torch.zeros(2, 1, 4, 4, dtype=torch.float64)
    for continuous, times in ((True, [0.25, 499.25]), (False, [0, 499])):
        sf.from_diffusers(unet, scheduler("epsilon"), unit_pixels=False, continuous=continuous)(x, between)
        torch.testing.assert_close(unet.asked[-1], torch.tensor(times), rtol=0, atol=2e-2)
    learned = ExactUNet("epsilon", time_embedding_type="learned")  # an embedding for each time of training
    sf.from_diffusers(learned, scheduler("epsilon"), unit_pixels=False)(x, between)
    assert torch.equal(learned.asked[-1], torch.tensor([0, 499]))


def test_a_schedule_that_ends_in_noise_alone() -> None:
    alphas = ALPHAS.clone()
    alphas[-1] = 0
    score = sf.from_diffusers(
        ExactUNet("v_prediction"), SimpleNamespace(alphas_cumprod=alphas, config={"prediction_type": "v_prediction"})
    )
    assert score.sigma_range[1] == pytest.approx(SIGMAS[-2].item() / 2)


def test_a_model_of_it_samples_that_data() -> None:
    score = sf.from_diffusers(ExactUNet("epsilon"), scheduler("epsilon"), continuous=False)
    assert score.shape == (1, 4, 4)
    model = sf.Model(score, score.shape, sf.Heun(calls=39))
    assert model.sigma_range == score.sigma_range
    images = model.sample(200, seed=1)
    assert images.mean().item() == pytest.approx((MEAN + 1) / 2, abs=4 * STD / 2 / math.sqrt(3200))
    assert images.std().item() == pytest.approx(STD / 2, rel=0.07)


def test_wrong_use_is_said() -> None:
    unet, ddpm = ExactUNet("epsilon"), scheduler("epsilon")
    for arguments, why in (
        ((unet,), "a network alone does not say how it was trained"),
        ((nn.Linear(1, 1), ddpm), "must be a UNet2DModel of diffusers; got Linear"),
        ((ExactUNet("epsilon", cross_attention_dim=8), ddpm), "must be a UNet2DModel"),
        (
            (unet, SimpleNamespace(config={"prediction_type": "epsilon"})),
            "cannot make a score of a ExactUNet with a Simple",
        ),
        ((unet, scheduler("flow")), "the prediction type flow"),
        ((ExactUNet("epsilon", time_embedding_type="fourier"), ddpm), "cannot make"),
        ((SimpleNamespace(unet=unet, scheduler=ddpm, vqvae=None),), "makes images of latents"),
    ):
        with pytest.raises(ValueError, match=why):
            sf.from_diffusers(*arguments)
    score, x = sf.from_diffusers(SimpleNamespace(unet=unet, scheduler=ddpm)), torch.zeros(2, 1, 4, 4)
    for call, why in (
        (partial(score, x, 100.0), r"accepts noise levels from 0.005\d* to 78.\d*; got sigma \[100.0\] \(sigma.clamp"),
        (partial(score, x[:, :, 0], 1.0), r"x must have shape \(B, 1, H, W\)"),
        (partial(score, x, 0.0), "sigma must be positive"),
        (partial(score, x, 1.0, label=torch.zeros(2, dtype=torch.long)), r"has no classes; .*\(leave label out"),
        (
            partial(sf.from_diffusers(ExactUNet("epsilon", num_class_embeds=3), ddpm), x, 1.0),
            "has 3 classes; got la",
        ),
    ):
        with pytest.raises(ValueError, match=why):
            call()


@pytest.fixture(scope="module")
def diffusers() -> Any:  # noqa: ANN401
    """The package, where it is installed and works."""
    return pytest.importorskip("diffusers", exc_type=ImportError)


def unet(diffusers: Any, **settings: Any) -> Any:  # noqa: ANN401
    """A tiny random one, in float64 so that differences are of method and not of rounding."""
    torch.manual_seed(3)
    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    sizes = {"sample_size": 8, "in_channels": 2, "out_channels": 2, "layers_per_block": 1, "norm_num_groups": 4}
    made = diffusers.UNet2DModel(block_out_channels=(8, 16), attention_head_dim=8, **blocks, **sizes, **settings)
    return made.double().eval().requires_grad_(False)


def sampled(network: Any, scheduler: Any, x: Tensor, **conditions: Tensor) -> Tensor:  # noqa: ANN401
    """By the scheduler's own steps, as its pipelines make them."""
    scheduler.set_timesteps(scheduler.num_inference_steps)  # or it goes on where it was
    for time in scheduler.timesteps:
        out = network(scheduler.scale_model_input(x, time), time, **conditions).sample
        x = scheduler.step(out, time, x).prev_sample
    return x


def agree(ours: Tensor, theirs: Tensor, start: Tensor) -> None:
    scale = theirs.std()
    assert (ours - theirs).abs().max() < 1e-4 * scale
    assert (theirs - start).abs().max() > scale / 10


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_eulers_method_agrees_with_ddim(diffusers: Any, prediction: str) -> None:  # noqa: ANN401
    network = unet(diffusers)
    ddim = diffusers.DDIMScheduler(prediction_type=prediction, clip_sample=False, num_train_timesteps=1000)
    ddim.set_timesteps(12)
    alphas = ddim.alphas_cumprod.double()[ddim.timesteps]
    sigmas = ((1 - alphas) / alphas).sqrt()
    z = torch.randn(3, 2, 8, 8, dtype=torch.float64)
    score = sf.from_diffusers(network, ddim, unit_pixels=False)
    ours = sf.last(sf.euler(score, z / alphas[0].sqrt(), [*sigmas.tolist(), 0.0]))
    agree(ours, sampled(network, ddim, z), z)
    score = sf.from_diffusers(network, ddim)
    images = sf.last(sf.euler(score, (z / alphas[0].sqrt() + 1) / 2, [*(sigmas / 2).tolist(), 0.0]))
    agree(images, (sampled(network, ddim, z) + 1) / 2, z)


def test_a_class_goes_to_the_network(diffusers: Any) -> None:  # noqa: ANN401
    network, label = unet(diffusers, num_class_embeds=3), torch.tensor([0, 2, 1])
    ddim = diffusers.DDIMScheduler(clip_sample=False)
    ddim.set_timesteps(5)
    alphas = ddim.alphas_cumprod.double()[ddim.timesteps]
    z = torch.randn(3, 2, 8, 8, dtype=torch.float64)
    score = sf.from_diffusers(network, ddim, unit_pixels=False)
    assert score.labels == 3

    def draw(label: Tensor) -> Tensor:
        path = [*((1 - alphas) / alphas).sqrt().tolist(), 0.0]
        return sf.last(sf.euler(partial(score, label=label), z / alphas[0].sqrt(), path))

    agree(draw(label), sampled(network, ddim, z, class_labels=label), z)
    assert (draw(label) - draw(label.flip(0))).abs().max() > 1e-3
    score = sf.from_diffusers(network.float(), ddim)
    model = sf.Model(score, (2, 8, 8), sf.Euler(calls=3), labels=("a", "b", "c"))
    assert model.sample(2, label="b").isfinite().all()


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_eulers_method_agrees_with_edms(diffusers: Any, prediction: str) -> None:  # noqa: ANN401
    network, edm = unet(diffusers), diffusers.EDMEulerScheduler(prediction_type=prediction)
    edm.set_timesteps(12)
    x = 80 * torch.randn(3, 2, 8, 8, dtype=torch.float64)
    score = sf.from_diffusers(network, edm, unit_pixels=False)
    assert score.sigma_range == pytest.approx((0.002, 80))
    agree(sf.last(sf.euler(score, x, edm.sigmas.double().tolist())), sampled(network, edm, x), x)
    half = sf.from_diffusers(network, edm)
    images = sf.last(sf.euler(half, (x + 1) / 2, (edm.sigmas.double() / 2).tolist()))
    agree(images, (sampled(network, edm, x) + 1) / 2, x)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_heuns_method_agrees(diffusers: Any) -> None:  # noqa: ANN401
    """10 levels from 999 down by 111 are whole times."""
    network, heun = unet(diffusers), diffusers.HeunDiscreteScheduler(timestep_spacing="linspace")
    heun.set_timesteps(10)
    sigmas = list(dict.fromkeys(heun.sigmas.tolist()))
    x = sigmas[0] * torch.randn(3, 2, 8, 8, dtype=torch.float64)
    score = sf.from_diffusers(network, heun, unit_pixels=False)
    agree(sf.last(sf.heun(score, x, sigmas)), sampled(network, heun, x), x)


def test_dpm_solver_agrees_with_edms(diffusers: Any) -> None:  # noqa: ANN401
    network, edm = unet(diffusers), diffusers.EDMDPMSolverMultistepScheduler(lower_order_final=False)
    edm.set_timesteps(12)
    x = 80 * torch.randn(3, 2, 8, 8, dtype=torch.float64)
    score = sf.from_diffusers(network, edm, unit_pixels=False)
    agree(sf.last(sf.dpmpp_2m(score, x, edm.sigmas.double().tolist())), sampled(network, edm, x), x)
