"""Noise: schedules, draws of σ for training, and random numbers that belong to one sample alone.

A noise schedule is a 1-D tensor of decreasing sigmas.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from scorefield.score import expand, same_shape
from scorefield.spacing import check_geometric, check_rho, spaced

RandnLike = Callable[[Tensor], Tensor]
"""x -> standard normal noise of x's shape, type and device."""

DrawSigma = Callable[[Tensor], Tensor]
"""x -> σ for each example, (B,), or rows of such, (L, B), over which a loss is averaged."""


def geometric(sigma_max: float, sigma_min: float, levels: int) -> Tensor:
    """σ₁ > ... > σ_L with σ₁/σ₂ = ... = σ_{L−1}/σ_L, σ₁ = sigma_max and σ_L = sigma_min exactly (Section 4.1)."""
    check_geometric(sigma_max, sigma_min, levels)
    ratio = torch.linspace(0, 1, levels, dtype=torch.float64)
    sigmas = sigma_max * (sigma_min / sigma_max) ** ratio
    sigmas[-1] = sigma_min
    return sigmas.to(torch.get_default_dtype())


def karras(sigma_max: float, sigma_min: float, levels: int, *, rho: float = 7.0) -> Tensor:
    """σᵢ = (σ_max^(1/ρ) + i/(L−1) (σ_min^(1/ρ) − σ_max^(1/ρ)))^ρ,  i = 0 ... L−1 (Karras et al. 2022, Eq. 5).

    ρ = 1 spaces the sigmas evenly. A larger ρ makes the steps shorter at small σ; ρ → ∞ is `geometric`.
    """
    check_rho(rho)
    return torch.tensor(spaced(sigma_max, sigma_min, levels, rho=rho), dtype=torch.get_default_dtype())


def as_schedule(sigmas: Tensor | Sequence[float]) -> Tensor:
    """The sigmas as a tensor (L,), after checking that they are positive, finite and decreasing."""
    sigmas = sigmas if isinstance(sigmas, Tensor) else torch.tensor(sigmas, dtype=torch.get_default_dtype())
    if sigmas.ndim != 1 or not len(sigmas):
        raise ValueError(f"sigmas must be a list of noise levels, shape (L,); got {tuple(sigmas.shape)}")
    if not sigmas.is_floating_point():
        raise ValueError(f"sigmas must be floating point; got {sigmas.dtype} (sigmas.float())")
    if not (sigmas.isfinite().all() and (sigmas > 0).all()):
        raise ValueError(f"sigmas must be positive and finite; got {sigmas.tolist()}")
    if not (sigmas.diff() < 0).all():
        cure = "flip them" if (sigmas.diff() > 0).all() else "sort them and drop repeated ones"
        raise ValueError(f"sigmas must decrease; got {sigmas[0]:g} ... {sigmas[-1]:g} ({cure})")
    return sigmas


def one_level(sigmas: Tensor | Sequence[float], *, generator: torch.Generator | None = None) -> DrawSigma:
    """One level for each example, drawn uniformly: Eq. 6 in expectation, at the cost of one network call."""
    schedule = as_schedule(sigmas)

    def draw(x: Tensor) -> Tensor:
        device = generator.device if generator else x.device
        level = torch.randint(len(schedule), x.shape[:1], generator=generator, device=device)
        return schedule.to(x.device)[level.to(x.device)]

    return draw


def level_at(schedule: Tensor, u: Tensor) -> Tensor:
    """The levels that uniform numbers u in [0, 1) choose: `one_level` with random numbers of the caller's.

    The schedule is not checked, because that would look at its values, which a recording on a GPU cannot do.
    """
    return schedule[(u * len(schedule)).long()]


def log_normal(
    mean: float, std: float, *, sigma_range: tuple[float, float], generator: torch.Generator | None = None
) -> DrawSigma:
    """ln σ ~ N(mean, std²) for each example, for a network that accepts all σ in a range; a σ outside of it is moved to
    its nearest end."""

    def draw(x: Tensor) -> Tensor:
        device = generator.device if generator else x.device
        z = torch.randn(x.shape[:1], generator=generator, device=device).to(x.device)
        return log_normal_at(z, mean, std, sigma_range)

    return draw


def log_normal_at(z: Tensor, mean: float, std: float, sigma_range: tuple[float, float]) -> Tensor:
    """The σ that standard normal numbers z choose: `log_normal` with random numbers of the caller's."""
    return (mean + std * z).exp().clamp(*sigma_range)


def every_level(sigmas: Tensor | Sequence[float]) -> DrawSigma:
    """All levels for all examples, (L, B): the full sum of Eq. 6, at the cost of L network calls."""
    schedule = as_schedule(sigmas)

    def draw(x: Tensor) -> Tensor:
        return schedule.to(x.device)[:, None].expand(-1, len(x))

    return draw


def perturb(x: Tensor, sigma: Tensor, *, randn_like: RandnLike = torch.randn_like) -> Tensor:
    """x̃ = x + σz ~ q_σ(x̃ | x)."""
    return x + expand(sigma, x) * same_shape(randn_like(x), x, "randn_like")


def gaussian(z: Tensor) -> Tensor:
    """v ~ N(0, I) from standard normal z."""
    return z


def rademacher(z: Tensor) -> Tensor:
    """v uniform on {−1, 1}ᴰ from standard normal z. The variance of vᵀAv then has no part from A's diagonal."""
    return torch.ones_like(z).copysign(z)


class SampleNoise:
    """Noise for a batch in which sample k depends on ``seeds[k]`` and on how many draws came before: on nothing else.

    So a seed gives the same noise in any batch, on any number of processes, and, but for the last bits of log and cos,
    on any device.

        noise = SampleNoise(range(64))
        x = noise.rand_like(torch.empty(64, 1, 28, 28))
        states = annealed_langevin(score, x, sigmas, ..., randn_like=noise.randn_like)

    The generator is Philox4x32-10 (Salmon et al., 2011), which has no state: key = seed, counter = (position in the
    sample, number of the draw). A `torch.Generator` for each sample would cost a loop over the batch at every step;
    this costs about ten times `torch.randn_like` on a CPU, which next to a network is little, and one launch on a GPU.
    """

    def __init__(self, seeds: Iterable[int], *, device: torch.device | str = "cpu") -> None:
        seeds = [operator.index(seed) for seed in seeds]
        if not seeds:
            raise ValueError("no seeds (give one for each sample)")
        if not all(0 <= seed < 2**64 for seed in seeds):
            raise ValueError(f"seeds must be whole numbers from 0 to 2⁶⁴ − 1; got {min(seeds)} ... {max(seeds)}")
        self._key = torch.tensor([[seed & _MASK for seed in seeds], [seed >> 32 for seed in seeds]]).unsqueeze(-1)
        self._device = torch.device(device)
        self._key = self._key.to(_drawn_on(self._device))
        self._draws = 0

    @classmethod
    def at_step(cls, seed: int, step: int, places: range, *, device: torch.device | str = "cpu") -> SampleNoise:
        """Noise for step number `step` of a training run: place k of its batch depends on (seed, step, k) alone."""
        noise = cls([0])
        noise._device = torch.device(
            device
        )  # a key that is replaced below need not go there: a GPU would be waited for
        if (fused := _fused_kernels(torch.empty(0, device=device))) is not None:
            noise._key = fused.keys(seed, step, places, device)
            return noise
        place = torch.arange(places.start, places.stop, device=_drawn_on(noise._device))
        number, one, key = torch.full_like(place, step), torch.ones_like(place), torch.full_like(place, seed)
        low, high, *_ = philox((place, number, torch.zeros_like(place), one), (key, one))
        noise._key = torch.stack([low, high]).unsqueeze(-1)
        return noise

    def copy(self) -> SampleNoise:
        """The same noise again, from the same place on."""
        return copy(self)  # not a new one: inside a CUDA recording nothing may come from the CPU

    def renew(self, other: SampleNoise) -> None:
        """Become the other one, in the same memory: what was recorded with this noise gets new numbers."""
        self._key.copy_(other._key)
        self._draws = other._draws

    def rand(self, shape: Sequence[int]) -> Tensor:
        """Uniform noise in [0, 1), one tensor of that shape for each sample."""
        return self.rand_like(torch.empty(self._key.shape[1], *shape, device=self._device))

    def randn(self, shape: Sequence[int]) -> Tensor:
        """Standard normal noise, one tensor of that shape for each sample."""
        return self.randn_like(torch.empty(self._key.shape[1], *shape, device=self._device))

    def choice(self, n: int) -> Tensor:
        """A whole number from 0 to n − 1 for each sample, (B,), which depends on the sample's seed alone.

        It is not one of the draws: whether it is asked for does not change the noise that follows.
        """
        zero = torch.zeros_like(self._key[0, :, 0])
        word = philox((zero, zero, zero, torch.ones_like(zero)), (self._key[0, :, 0], self._key[1, :, 0]))[0]
        return (word * n >> 32).to(self._device)

    def randn_like(self, x: Tensor) -> Tensor:
        """Standard normal noise of x's shape, by the method of Box and Muller."""
        if (fused := self._fused(x, normal=True)) is not None:
            return fused
        words, shape = self._words(x), x.shape
        u, v = words.unflatten(-1, (-1, 2)).unbind(-1)
        radius = (-2 * ((u + 0.5) * 2**-32).log()).sqrt()
        angle = v * (2 * math.pi * 2**-32)
        z = torch.stack([radius * angle.cos(), radius * angle.sin()], -1).flatten(1)
        return z[:, : math.prod(shape[1:])].reshape(shape).to(x)

    def rand_like(self, x: Tensor) -> Tensor:
        """Uniform noise in [0, 1) of x's shape."""
        if (fused := self._fused(x, normal=False)) is not None:
            return fused
        u = (self._words(x) * 2**-32)[:, : math.prod(x.shape[1:])].reshape(x.shape)
        return u.to(x).clamp(max=1 - torch.finfo(x.dtype).eps / 2)  # rounding must not make it 1

    def reserve(self, x: Tensor) -> tuple[Tensor, int]:
        """The keys, (2, B, 1), and the number of the next draw, for a kernel that makes the numbers itself."""
        self._check(x)
        self._draws += 1
        return self._key, self._draws - 1

    def _fused(self, x: Tensor, *, normal: bool) -> Tensor | None:
        """The next draw in one launch, where there is a GPU."""
        self._check(x)
        if x.dtype == torch.float64 or self._draws > _MASK or (fused := _fused_kernels(x)) is None:
            return None
        self._draws += 1
        drawn = fused.noise(self._key, self._draws - 1, x.shape, normal=normal).to(x.dtype)
        return drawn if normal or x.dtype == torch.float32 else drawn.clamp(max=1 - torch.finfo(x.dtype).eps / 2)

    def _check(self, x: Tensor) -> None:
        if len(x) != self._key.shape[1]:
            raise ValueError(f"{self._key.shape[1]} seeds cannot serve a batch of {len(x)} (give one seed per sample)")
        self._device, self._key = x.device, self._key.to(_drawn_on(x.device))

    def _words(self, x: Tensor) -> Tensor:
        """At least as many random whole numbers of 32 bits for each sample as it has entries, as floats (B, 4n)."""
        block = torch.arange(-(-math.prod(x.shape[1:]) // 4), device=self._key.device).expand(len(x), -1)
        low, high = torch.full_like(block, self._draws & _MASK), torch.full_like(block, self._draws >> 32)
        self._draws += 1
        words = torch.stack(philox((block, low, high, torch.zeros_like(block)), tuple(self._key)), -1).flatten(1)
        return words.to(torch.float64 if x.dtype == torch.float64 else torch.float32)


def _drawn_on(device: torch.device) -> torch.device:
    """Where noise for that device is computed: on the CPU for Apple GPUs, whose 64-bit arithmetic we could not test."""
    return torch.device("cpu") if device.type == "mps" else device


def _fused_kernels(x: Tensor) -> Any:  # noqa: ANN401
    """The module that draws noise in one launch, if it can be used on this tensor's device."""
    if not x.is_cuda:
        return None
    from scorefield.acceleration import kernels  # not before a GPU needs it: acceleration is built on this module

    if not kernels.usable(x):
        return None
    from scorefield.acceleration.kernels import philox

    return philox


def sample_seeds(seed: int, indices: Iterable[int]) -> list[int]:
    """The seeds of samples number k, k in `indices`, of the run with this seed; no two runs share one."""
    seed, numbers = operator.index(seed), [operator.index(k) for k in indices]
    if not all(0 <= n < 2**32 for n in (seed, *numbers)):
        raise ValueError(f"seed and indices must be whole numbers from 0 to 2³² − 1; got seed {seed}")
    return [(seed << 32) + k for k in numbers]


_MASK = 2**32 - 1


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Philox4x32-10: 4 random words of 32 bits for each counter and key, all kept in int64.

    Each round multiplies two words by constants and mixes the halves of the 64-bit products; a product that wraps
    around to a negative int64 still has the right bits, and the mask takes off the sign that >> drags along.
    """
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32 & _MASK) ^ b ^ k, q & _MASK, (p >> 32 & _MASK) ^ d ^ m, p & _MASK
        k, m = k + 0x9E3779B9 & _MASK, m + 0xBB67AE85 & _MASK
    return a, b, c, d
