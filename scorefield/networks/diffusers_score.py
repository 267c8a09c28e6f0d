"""Networks of the package diffusers as scores. Nothing of that package is imported: its objects are called."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scorefield.score import checked, expand, same_shape

PREDICTIONS = ("epsilon", "v_prediction", "sample")


class DiffusersScore(nn.Module):
    """s(x, σ) of a `UNet2DModel` that was trained with a DDPM or EDM scheduler; made by `from_diffusers`.

    A DDPM network knows x_t = √ᾱ v + √(1 − ᾱ) z, which is (v + σz)/√(1 + σ²) with σ = √((1 − ᾱ)/ᾱ). So with
    x_t = x/√(1 + σ²), and the time t that has this σ, its output gives the noise ε ≈ E[z | x], and  s(x, σ) = −ε/σ.

    An EDM network has σ already; its scheduler makes a denoiser D of it, and  s(x, σ) = (D(x, σ) − x)/σ².
    """

    null_label = False
    unet: Any
    log_sigmas: Tensor

    def __init__(self, unet: Any, scheduler: Any, *, unit_pixels: bool, continuous: bool) -> None:  # noqa: ANN401
        super().__init__()
        config = unet.config
        self.unet, self._scheduler = unet, scheduler
        self._scale = 2.0 if unit_pixels else 1.0
        self._continuous = continuous and config.get("time_embedding_type", "positional") != "learned"
        self._prediction = scheduler.config["prediction_type"]
        self._edm = hasattr(scheduler, "precondition_outputs")
        self.channels = int(config["in_channels"])
        self.labels = int(config.get("num_class_embeds") or 0)
        if self._edm:
            ends = [float(scheduler.config["sigma_min"]), float(scheduler.config["sigma_max"])]
            sigmas = torch.tensor(ends, dtype=torch.float64)
        else:
            alphas = torch.as_tensor(scheduler.alphas_cumprod).double()
            sigmas = ((1 - alphas) / alphas).sqrt()
            sigmas = sigmas[sigmas.isfinite()]  # the last is not where the schedule ends in noise alone
        self.register_buffer("log_sigmas", sigmas.log().float(), persistent=False)
        self._range = float(sigmas[0]) / self._scale, float(sigmas[-1]) / self._scale

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images that it was trained on."""
        size = self.unet.config.get("sample_size")
        if size is None:
            raise ValueError("the network does not say how large its images are (give the shape yourself)")
        height, width = (size, size) if isinstance(size, int) else size
        return self.channels, int(height), int(width)

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The smallest and the largest noise level that the network was trained on."""
        return self._range

    @property
    def sigmas_of_training(self) -> Tensor:
        """The noise levels of the scheduler's times, the largest first; of an EDM scheduler, both ends."""
        return self.log_sigmas.exp().flip(0) / self._scale

    def forward(self, x: Tensor, sigma: Tensor | float, label: Tensor | None = None) -> Tensor:
        sigma = checked(x, sigma, zero=False)
        self._check(x, sigma, label)
        v, level = (2 * x - 1, 2 * sigma) if self._scale == 2 else (x, sigma)
        level = level.to(v.dtype).expand(len(v)) if not level.ndim else level.to(v.dtype)
        return self._scale * (self._edm_score(v, level, label) if self._edm else self._vp_score(v, level, label))

    def _vp_score(self, v: Tensor, sigma: Tensor, label: Tensor | None) -> Tensor:
        wide = expand(sigma, v)
        scale = (1 + wide.square()).rsqrt()  # √ᾱ; and √(1 − ᾱ) is σ √ᾱ
        noisy = v * scale
        out = self._call(noisy, self._time(sigma), label)
        if self._prediction == "epsilon":
            noise = out
        elif self._prediction == "v_prediction":
            noise = scale * (out + wide * noisy)
        else:
            noise = (v - out) / wide
        return -noise / wide

    def _edm_score(self, v: Tensor, sigma: Tensor, label: Tensor | None) -> Tensor:
        wide = expand(sigma, v)
        out = self._call(self._scheduler.precondition_inputs(v, wide), self._scheduler.precondition_noise(sigma), label)
        return (self._scheduler.precondition_outputs(v, out, wide) - v) / wide.square()

    def _time(self, sigma: Tensor) -> Tensor:
        """The time t with this σ: ln σ is linear between two of the scheduler's times. A σ that is one of theirs has
        just that time."""
        table = self.log_sigmas
        wanted = sigma.to(table).log()
        right = torch.searchsorted(table, wanted.contiguous()).clamp(1, len(table) - 1)
        low, high = table[right - 1], table[right]
        time = (right - 1 + (wanted - low) / (high - low)).clamp(0, len(table) - 1)
        whole = time.round()
        return torch.where((time - whole).abs() < 1e-3, whole, time) if self._continuous else whole.long()

    def _call(self, noisy: Tensor, time: Tensor, label: Tensor | None) -> Tensor:
        """The network's output, without the variances that some networks give as well."""
        dtype = next(self.unet.parameters()).dtype
        labels = {} if label is None else {"class_labels": label.expand(len(noisy))}
        out: Tensor = self.unet(noisy.to(dtype), time, return_dict=False, **labels)[0]
        return same_shape(out[:, : self.channels].to(noisy.dtype), noisy, "the network")

    def _check(self, x: Tensor, sigma: Tensor, label: Tensor | None) -> None:
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(f"x must have shape (B, {self.channels}, H, W); got {tuple(x.shape)}")
        low, high = self._range
        if sigma.device.type == "cpu" and not ((sigma >= low * (1 - 1e-3)) & (sigma <= high * (1 + 1e-3))).all():
            raise ValueError(
                f"the network accepts noise levels from {low:g} to {high:g}; got sigma {sigma.flatten()[:8].tolist()} "
                f"(sigma.clamp({low:g}, {high:g}) takes the nearest)"
            )
        if (label is None) == bool(self.labels):
            fix = f"label=torch.tensor([...]), from 0 to {self.labels - 1}" if self.labels else "leave label out"
            raise ValueError(f"the network has {self.labels or 'no'} classes; got label={label} ({fix})")


def from_diffusers(
    model: Any,  # noqa: ANN401
    scheduler: Any = None,  # noqa: ANN401
    *,
    unit_pixels: bool = True,
    continuous: bool = True,
) -> DiffusersScore:
    """A `UNet2DModel` of the package diffusers as a score: of a pipeline, or with the scheduler it was trained with.

    The scheduler is any with `alphas_cumprod` (DDPM, DDIM, ...), for networks that predict the noise, v or the image,
    or an EDM scheduler. `label` goes to networks with classes.

    Those networks know pixels in [−1, 1]. With `unit_pixels` the score is for pixels in [0, 1], as everything here, and
    σ is in the same unit: half of theirs. `continuous`: networks are asked at times between those of their training for
    the σ between theirs; otherwise at the nearest.

    `sf.Model(score, score.shape, sampler)` makes a model of it, which samples, completes and restores images.
    """
    unet = getattr(model, "unet", model)
    if hasattr(model, "vae") or hasattr(model, "vqvae"):
        raise ValueError(
            f"{type(model).__name__} makes images of latents, and its network is a score of these (for that: "
            "from_diffusers(pipeline.unet, pipeline.scheduler, unit_pixels=False))"
        )
    scheduler = scheduler or getattr(model, "scheduler", None)
    if scheduler is None:
        raise ValueError(
            "a network alone does not say how it was trained (pass its scheduler too: from_diffusers(unet, scheduler))"
        )
    config = getattr(unet, "config", None)
    if config is None or "in_channels" not in config or "cross_attention_dim" in config:
        raise ValueError(f"the network must be a UNet2DModel of diffusers; got {type(unet).__name__}")
    prediction = getattr(scheduler, "config", {}).get("prediction_type")
    vp, edm = hasattr(scheduler, "alphas_cumprod"), hasattr(scheduler, "precondition_outputs")
    if not (vp or edm) or prediction not in PREDICTIONS or config.get("time_embedding_type") == "fourier":
        raise ValueError(
            f"cannot make a score of a {type(unet).__name__} with a {type(scheduler).__name__} and the prediction type "
            f"{prediction} (wanted: a DDPM or EDM scheduler, and a prediction of {', '.join(PREDICTIONS)})"
        )
    return DiffusersScore(unet, scheduler, unit_pixels=unit_pixels, continuous=continuous)
