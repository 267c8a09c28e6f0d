"""The one idea: a score is a function ``score(x, sigma)`` that returns a tensor of x's shape,

    s(x, σ) ≈ ∇ₓ log q_σ(x),    q_σ = p_data * N(0, σ²I).

x is a batch, (B, ...). σ is the standard deviation of the noise, a tensor of shape () or (B,), never the index of a
level. Networks, exact mixtures, energies and wrapped denoisers are all scores; objectives, samplers and constraints
take any of them. What depends on more (a label, say) is bound outside: ``partial(network, label=y)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

Score = Callable[[Tensor, Tensor], Tensor]
"""(x, sigma) -> s(x, σ), of x's shape."""

ConditionalScore = Callable[..., Tensor]
"""(x, sigma, **conditions) -> s(x, σ | conditions). A condition is a keyword tensor with one row per example."""

Energy = Callable[[Tensor, Tensor], Tensor]
"""(x, sigma) -> E(x, σ) = −log q_σ(x) + constant, of shape (B,)."""


LogDensity = Callable[[Tensor, Tensor], Tensor]
"""(x, sigma) -> log q_σ(x) + constant, of shape (B,)."""


def as_sigma(sigma: Tensor | float, x: Tensor) -> Tensor:
    """σ as a tensor () or (B,) on x's device; keeps the precision of a σ that is a tensor already."""
    if isinstance(sigma, Tensor) and not sigma.is_floating_point():
        raise ValueError(
            f"sigma is the standard deviation of the noise, not the index of a level; got {sigma.dtype} "
            "(pass sigmas[index])"
        )
    dtype = sigma.dtype if isinstance(sigma, Tensor) else x.dtype
    sigma = torch.as_tensor(sigma, dtype=dtype, device=x.device)
    if sigma.ndim and sigma.shape != x.shape[:1]:
        raise ValueError(
            f"sigma must be a number or one per example, shape ({len(x)},); got {tuple(sigma.shape)} "
            f"for x of shape {tuple(x.shape)} (sigma.flatten() if it was shaped to broadcast)"
        )
    return sigma


def expand(sigma: Tensor | float, x: Tensor) -> Tensor:
    """σ in x's type, shaped to multiply x: () stays (), (B,) becomes (B, 1, ..., 1)."""
    sigma = as_sigma(sigma, x).to(x.dtype)
    return sigma.reshape(-1, *(1 for _ in x.shape[1:])) if sigma.ndim else sigma


def checked(x: Tensor, sigma: Tensor | float, *, zero: bool = True) -> Tensor:
    """What objectives and samplers ask of (x, σ): x in floating point, σ finite and ≥ 0 (> 0 unless `zero`). Returns σ.

    The values of a σ that lies on an accelerator are not looked at: that would stall its queue.
    """
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point; got {x.dtype} (for images of 0 ... 255: x.float() / 255)")
    if not x.ndim:
        raise ValueError(
            "x must be a batch, shape (B, ...); got a single number (x.reshape(1, 1) makes a batch of one)"
        )
    if not x.numel():
        raise ValueError(f"x is empty: shape {tuple(x.shape)} (give at least one example)")
    given = torch.as_tensor(sigma)
    sigma = as_sigma(sigma, x)
    if given.device.type == "cpu" and not torch.compiler.is_compiling():
        if not (given.isfinite().all() and (given >= 0).all()):
            raise ValueError(f"sigma must be finite and not negative; got {given.flatten()[:8].tolist()}")
        if not zero and (given == 0).any():
            raise ValueError("sigma must be positive here; got 0 (objectives.sliced and explicit allow it)")
    return sigma


def same_shape(s: Tensor, x: Tensor, what: str = "a score") -> Tensor:
    """s, if it has x's shape as it must: broadcasting would hide the mistake."""
    if s.shape != x.shape:
        raise ValueError(f"{what} must return x's shape, {tuple(x.shape)}; got {tuple(s.shape)}")
    return s


def unbind(score: ConditionalScore) -> tuple[ConditionalScore, dict[str, Tensor]]:
    """A score without the conditions that `partial` has bound to it, and these: for whatever splits batches."""
    if not isinstance(score, partial):
        return score, {}
    conditions = {name: value for name, value in score.keywords.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in score.keywords.items() if name not in conditions}
    return partial(score.func, *score.args, **others), conditions


def guided(score_with_label: Score, score_without: Score, weight: float) -> Score:
    """Classifier-free guidance (Ho & Salimans 2022):  s = s₁ + w (s₁ − s₀),  with s₁ given a label and s₀ given none.

    w = 0 is s₁ itself, w = −1 is s₀, and w > 0 goes beyond s₁, away from s₀: samples are more typical of their label,
    and less diverse. Others write s₀ + g (s₁ − s₀), which is the same with g = 1 + w: their g = 1 is w = 0 here, and
    their g = 0 is w = −1.

    Two `partial`s of one network, `partial(network, label=y)` and `partial(network, label=torch.full_like(y, −1))`, are
    computed in one call with twice the batch. Other scores are called one after the other.
    """
    if not math.isfinite(weight):
        raise ValueError(f"the weight of guidance must be finite; got {weight} (0 is no guidance)")
    if weight == 0:
        return score_with_label
    (network, given), (other, without) = unbind(score_with_label), unbind(score_without)
    shared = bool(given) and given.keys() == without.keys() and _same_partial(network, other)

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        pairs = {name: (value, without[name]) for name, value in given.items()} if shared else {}
        if pairs and all(a.shape == b.shape and a.shape[:1] == x.shape[:1] for a, b in pairs.values()):
            conditions = {name: torch.cat(pair) for name, pair in pairs.items()}
            twice = torch.cat([x, x])
            both = network(twice, torch.cat([sigma, sigma]) if sigma.ndim else sigma, **conditions)
            s1, s0 = same_shape(both, twice).chunk(2)
        else:
            s1, s0 = (same_shape(each(x, sigma), x) for each in (score_with_label, score_without))
        return s1 + weight * (s1 - s0)

    return score


def _same_partial(one: ConditionalScore, other: ConditionalScore) -> bool:
    """Whether two results of `unbind` are the same function with the same arguments."""
    if not (isinstance(one, partial) and isinstance(other, partial) and one.func == other.func):
        return False
    same_names = len(one.args) == len(other.args) and one.keywords.keys() == other.keywords.keys()
    return (
        same_names
        and all(a is b for a, b in zip(one.args, other.args, strict=True))
        and all(value is other.keywords[name] for name, value in one.keywords.items())
    )


def denoised(score: Score, x: Tensor, sigma: Tensor | float) -> Tensor:
    """Tweedie's formula:  E[x₀ | x] = x + σ² s(x, σ),  the mean of all clean points that may have become x."""
    sigma = checked(x, sigma)
    return x + expand(sigma, x).square() * same_shape(score(x, sigma), x)


def from_denoiser(denoiser: Score) -> Score:
    """s(x, σ) = (D(x, σ) − x)/σ²,  the score of a denoiser D(x, σ) ≈ E[x₀ | x].  Cancels for small σ; needs σ > 0."""

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        return (same_shape(denoiser(x, sigma), x) - x) / expand(sigma, x).square()

    return score


def from_energy(energy: Energy) -> Score:
    """s(x, σ) = −∇ₓE(x, σ).

    Differentiable in turn, so that every objective trains the energy's own parameters. Computed by `torch.func`, which
    composes with the forward mode of sliced score matching and works under `torch.no_grad` as the samplers use it; by
    plain backpropagation for an energy with an autograd.Function that `torch.func` does not take.
    """

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        def total(x: Tensor) -> Tensor:
            e = energy(x, sigma)
            if e.shape != x.shape[:1]:
                raise ValueError(
                    f"an energy must return one number per example, shape ({len(x)},); got {tuple(e.shape)}"
                )
            return e.sum()

        try:
            return -torch.func.grad(total)(x)
        except RuntimeError as error:
            if "setup_context" not in str(error):
                raise
        training = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            x = x if x.requires_grad else x.detach().clone().requires_grad_()
            return -torch.autograd.grad(total(x), x, create_graph=training)[0]

    score.log_density = lambda x, sigma: -energy(x, sigma)  # type: ignore[attr-defined]
    return score


def log_density_of(score: Score) -> LogDensity | None:
    """log q_σ(x) + constant, where a score can tell it: one of `from_energy`, or a method beside a `log_prob`."""
    return getattr(score, "log_density", None) or getattr(getattr(score, "__self__", None), "log_prob", None)
