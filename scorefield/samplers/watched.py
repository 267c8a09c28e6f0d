"""A sampler whose progress can be looked at without a network call of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scorefield.samplers.settings import Sampler

if TYPE_CHECKING:
    from torch import Tensor

    from scorefield.noise import SampleNoise
    from scorefield.samplers.base import State
    from scorefield.score import Score


class Wrapped:
    """Any sampler, unchanged. Subclasses change how it starts or what is seen of it."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    @property
    def calls(self) -> int | None:
        return self.sampler.calls

    @property
    def updates(self) -> int:
        return self.sampler.updates

    def start(self, noise: SampleNoise, shape: tuple[int, ...]) -> Tensor:
        return self.sampler.start(noise, shape)

    def __call__(self, score: Score, x: Tensor, **options: Any) -> Iterator[State]:  # noqa: ANN401
        return self.sampler(score, x, **options)


class Watched(Wrapped):
    """The same states. It keeps the last call of the score, whichever the sampler made of it.

    `denoised` is then x + σ² s(x, σ), the mean of all clean images that may have become x.
    """

    def __init__(self, sampler: Sampler) -> None:
        super().__init__(sampler)
        self._call: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, score: Score, x: Tensor, **options: Any) -> Iterator[State]:  # noqa: ANN401
        from scorefield.score import log_density_of

        def watched(x: Tensor, sigma: Tensor) -> Tensor:
            s = score(x, sigma)
            self._call = x, sigma, s
            return s

        if (log_density := log_density_of(score)) is not None:  # a Metropolis test asks for it
            watched.log_density = log_density  # type: ignore[attr-defined]
        return self.sampler(watched, x, **options)

    @property
    def sigma(self) -> float:
        """The largest noise level of the last call; 0 before the first."""
        return 0.0 if self._call is None else self._call[1].max().item()

    @property
    def denoised(self) -> Tensor | None:
        """The estimate of the clean images at the last call; None before the first."""
        from scorefield.score import expand

        if self._call is None:
            return None
        x, sigma, s = self._call
        return x + expand(sigma, x).square() * s.to(x.dtype)
