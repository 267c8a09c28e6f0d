"""Likelihood and latents, by the probability flow  dx/dσ = −σ s(x, σ)  from σ_min to σ_max and back.

    log_likelihood(model.score, x, sigma_min=0.001, sigma_max=40)    # log q_σ(x) at σ_min, in nats, (B,)
    latent = encode(model.score, x, sigma_min=0.001, sigma_max=40)   # where x comes from: x at σ_max
    decode(model.score, latent, sigma_min=0.001, sigma_max=40)       # x again

Along the flow the density changes by the divergence of the velocity (instantaneous change of variables, Chen et al.
2018), and at σ_max it is nearly that of a Gaussian, N(c, σ_max² + v), with the data's mean c and variance v:

    log q_σmin(x) = log N(x(σ_max); c, σ_max² + v) − ∫ σ ∇·s(x(σ), σ) dσ.

The solver, an adaptive Runge–Kutta method of order 5 (Dormand & Prince) of torchdiffeq, sees other variables:

    z = (x − c)/√(σ² + v),   θ = arctan(σ/√v):   dz/dθ = −σ √((σ² + v)/v) (s(x, σ) + (x − c)/(σ² + v)).

z would stand still if the data were N(c, v), and is about N(0, I) at the end. What is left to solve is how the data
differs from a Gaussian, so that long steps do. (For `networks.UNet` dz/dθ = −F, its output of unit size.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from scorefield.derivatives import dot
from scorefield.noise import RandnLike, SampleNoise
from scorefield.score import Score, checked, denoised, same_shape

SMALL = 64
"""Examples with up to so many entries have the exact trace by default."""
GREY, SPREAD = 0.5, 0.25**2
"""About the mean and the variance of pixels in [0, 1]."""
LEVELS = 256
"""Grey levels of the images whose bits are counted."""
MOST_STEPS = 2000
"""The solver gives up after so many steps: then the tolerance is finer than the score's rounding errors."""
Probe = Literal["rademacher", "gaussian"]


@dataclass
class Cost:
    """What the solver has used so far. Pass one to several functions to add up theirs."""

    calls: int = 0
    """Network calls, each for the whole batch."""
    products: int = 0
    """Vector-Jacobian products, by backpropagation through such a call; each costs about as much as two calls."""


class BitsPerDim(NamedTuple):
    """Bits per dimension of a batch of images."""

    bits_per_dim: float
    """The mean over the images."""
    error: float
    """Its standard error, by the scatter between images; NaN for a single one."""
    each: Tensor
    """For each image, averaged over the draws, (B,)."""


def log_likelihood(
    score: Score,
    x: Tensor,
    *,
    sigma_min: float,
    sigma_max: float,
    mean: Tensor | float | None = None,
    variance: Tensor | float | None = None,
    probes: int | None = None,
    probe: Probe = "rademacher",
    randn_like: RandnLike = torch.randn_like,
    tolerance: float | None = None,
    cost: Cost | None = None,
) -> Tensor:
    """log q_σ(x) at σ = σ_min in nats, (B,), for a score that accepts all σ from σ_min to σ_max.

    mean, variance: c and v of the data, numbers or tensors that broadcast with x. Give them for a trained network. By
    default the score itself tells them at σ_max: for data N(c, v) the denoised D = x + σ² s is c + J (x − c) with
    J = v/(σ² + v) = tr ∂D/∂x / d. With the exact trace the prior then has the full covariance, (−∂s/∂x)⁻¹.
    probes: the number of random vectors ε of the estimate  tr A ≈ εᵀAε  (Skilling 1989, Hutchinson 1990), which is
    right in the mean; 0 is the exact trace, at the cost of a vector-Jacobian product for each entry of an example.
    Default: exact for up to 64 entries, otherwise 1. Each example has its probes for its whole trajectory, drawn by
    `randn_like`: `SampleNoise(seeds).randn_like` makes those of an example depend on its seed alone.
    probe: rademacher, ±1, has the smaller variance; gaussian.
    tolerance: of the solver, for z and for log q per dimension. Default: 1e-6 for x in float64 or with up to 64
    entries, otherwise 1e-4. The steps are the same for the whole batch, as short as its most difficult example wants
    them, so what an example gets depends on the others, within the tolerance.
    cost: network calls are added to it.
    """
    _check(score, x, sigma_min, sigma_max, tolerance)
    if probes is not None and (not isinstance(probes, int) or probes < 0):
        raise ValueError(f"probes must be a whole number from 0 (the exact trace) on; got {probes}")
    if probe not in ("rademacher", "gaussian"):
        raise ValueError(f"probe must be rademacher or gaussian; got {probe!r}")
    d, cost = x[0].numel(), cost or Cost()
    count = (0 if d <= SMALL else 1) if probes is None else probes
    vectors = [same_shape(randn_like(x), x, "randn_like").detach() for _ in range(count)]
    if probe == "rademacher":
        vectors = [torch.where(each < 0, -1.0, 1.0).to(x) for each in vectors]
    trace = partial(_value_and_trace, vectors=vectors, cost=cost)
    by_score = not vectors and mean is None and variance is None
    if mean is None or variance is None:
        found = _moments(score, x, sigma_max, trace)
        mean, variance = found[0] if mean is None else mean, found[1] if variance is None else variance
    c, v = _as_moments(x, mean, variance)
    end, change = _solve(score, x, sigma_min, sigma_max, c, v, tolerance, trace)
    if by_score:
        log_prior = _log_prior_by_score(score, end.to(x.dtype), sigma_max, cost)
    else:
        log_prior = _summed(-((end - c).square() / (v + sigma_max**2) + (2 * math.pi * (v + sigma_max**2)).log()) / 2)
    stretch = _summed((((v + sigma_max**2) / (v + sigma_min**2)).log() / 2).expand_as(end))  # of x for the same z
    return log_prior + stretch + change


def bits_per_dim(
    score: Score,
    x: Tensor,
    *,
    sigma_min: float,
    sigma_max: float,
    draws: int = 1,
    noise: SampleNoise | None = None,
    mean: Tensor | float | None = GREY,
    variance: Tensor | float | None = SPREAD,
    probes: int | None = None,
    probe: Probe = "rademacher",
    tolerance: float | None = None,
    cost: Cost | None = None,
) -> BitsPerDim:
    """Bits per dimension of images in [0, 1] with 256 grey levels, k/255, by uniform dequantisation:

        −log₂ q_σmin(y)/d + 8,   y = (k + u)/256,   u ~ U[0, 1),   averaged over `draws` of u and of the probes.

    In the mean this is an upper bound of the bits that the model with density q_σmin would need for the image, since
    log ∫ q ≥ mean of log q over the cell of k (Theis et al. 2016). `noise` makes u and the probes; by default from the
    seeds 0, 1, ... of the images. The other arguments are those of `log_likelihood`.
    """
    _check(score, x, sigma_min, sigma_max, tolerance)
    if not isinstance(draws, int) or draws < 1:
        raise ValueError(f"draws must be a whole number from 1 on; got {draws}")
    k = x * (LEVELS - 1)
    if (k - k.round()).abs().max() > 0.01 or k.round().min() < 0 or k.round().max() > LEVELS - 1:
        raise ValueError(
            "x must be images of 256 grey levels, 0, 1/255, ..., 1, which are dequantised here "
            "(x.mul(255).round().clamp(0, 255) / 255; for other data use log_likelihood)"
        )
    noise, each = noise or SampleNoise(range(len(x)), device=x.device), list[Tensor]()
    for _ in range(draws):
        y = (k.round() + noise.rand_like(x)) / LEVELS
        nats = log_likelihood(
            score,
            y,
            sigma_min=sigma_min,
            sigma_max=sigma_max,
            mean=mean,
            variance=variance,
            probes=probes,
            probe=probe,
            randn_like=noise.randn_like,
            tolerance=tolerance,
            cost=cost,
        )
        each.append(-nats / (x[0].numel() * math.log(2)) + math.log2(LEVELS))
    bits = torch.stack(each).mean(0)
    return BitsPerDim(bits.mean().item(), standard_error(bits), bits)


def standard_error(values: Tensor) -> float:
    """Of the mean of independent values; NaN for a single one."""
    return (values.std() / math.sqrt(len(values))).item() if len(values) > 1 else math.nan


def encode(
    score: Score,
    x: Tensor,
    *,
    sigma_min: float,
    sigma_max: float,
    mean: Tensor | float = GREY,
    variance: Tensor | float = SPREAD,
    tolerance: float | None = None,
    cost: Cost | None = None,
) -> Tensor:
    """The latents of x: where the flow takes it from σ_min to σ_max, in x's shape and type.

    They are what deterministic samplers start from to arrive at x. `mean` and `variance` of the data only help the
    solver; the other arguments are those of `log_likelihood`.
    """
    return _moved(score, x, sigma_min, sigma_max, mean, variance, tolerance, cost)


def decode(
    score: Score,
    latent: Tensor,
    *,
    sigma_min: float,
    sigma_max: float,
    mean: Tensor | float = GREY,
    variance: Tensor | float = SPREAD,
    tolerance: float | None = None,
    cost: Cost | None = None,
) -> Tensor:
    """The inverse of `encode`: where the flow takes the latents from σ_max to σ_min.

    From noise, `mean + sigma_max * torch.randn(...)`, this is a deterministic sampler that chooses its own steps.
    """
    return _moved(score, latent, sigma_min, sigma_max, mean, variance, tolerance, cost, back=True)


def spherical(a: Tensor, b: Tensor, shares: Sequence[float]) -> Tensor:
    """Points on the way from a to b at these shares of it, (N, ...): (sin((1 − t)Ω) a + sin(tΩ) b)/sin Ω,  Ω = ∠(a, b).

    They have about the length of a and b, as noise must; on the straight line they would be shorter.
    """
    cosine = torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0, eps=1e-12).item()
    angle = math.acos(max(-1.0, min(1.0, cosine)))
    if math.sin(angle) < 1e-4:  # the same direction, or opposite ones, between which there is no one way
        return torch.stack([(1 - t) * a + t * b for t in shares])
    weights = [(math.sin((1 - t) * angle) / math.sin(angle), math.sin(t * angle) / math.sin(angle)) for t in shares]
    return torch.stack([first * a + second * b for first, second in weights])


Trace = Callable[[Callable[[Tensor], Tensor], Tensor], tuple[Tensor, Tensor]]
"""(f, x) -> f(x) and the trace of its Jacobian, (B,)."""


def _moved(
    score: Score,
    x: Tensor,
    sigma_min: float,
    sigma_max: float,
    mean: Tensor | float,
    variance: Tensor | float,
    tolerance: float | None,
    cost: Cost | None,
    *,
    back: bool = False,
) -> Tensor:
    _check(score, x, sigma_min, sigma_max, tolerance)
    cost = cost or Cost()

    def no_trace(f: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
        cost.calls += 1
        with torch.no_grad():
            return same_shape(f(z), z), torch.zeros(len(z), dtype=z.dtype, device=z.device)

    ends = (sigma_max, sigma_min) if back else (sigma_min, sigma_max)
    return _solve(score, x, *ends, *_as_moments(x, mean, variance), tolerance, no_trace)[0].to(x.dtype)


def _solve(
    score: Score, x: Tensor, start: float, end: float, c: Tensor, v: Tensor, tolerance: float | None, trace: Trace
) -> tuple[Tensor, Tensor]:
    """x at the end of the flow, and the integral of ∇·(dz/dθ) along it, (B,).

    The state is z with that integral, per dimension, as a last column: (B, d + 1).
    """
    odeint = _solver()
    width, low, high = math.sqrt(v.mean().item()), min(start, end), max(start, end)
    d = x[0].numel()
    tolerance = tolerance or (1e-6 if x.dtype == torch.float64 or d <= SMALL else 1e-4)

    def slope(theta: Tensor, state: Tensor) -> Tensor:
        sigma = min(max(width * math.tan(theta.item()), low), high)
        total = v + sigma**2
        level = torch.tensor(sigma, dtype=x.dtype, device=x.device)
        pace = sigma * (sigma**2 + width**2) / width

        def velocity(z: Tensor) -> Tensor:
            at = c + total.sqrt() * z
            s = same_shape(score(at.to(x.dtype), level), x)
            if torch.is_grad_enabled() and not s.requires_grad:
                raise ValueError(
                    "the score has no derivative with respect to x (give one that is differentiable by PyTorch: not "
                    "under torch.no_grad, and no recorded or fused network)"
                )
            return -pace * (s + (at - c) / total) / total.sqrt()

        dz, divergence = trace(velocity, state[:, :-1].reshape(x.shape))
        if not dz.isfinite().all():
            raise FloatingPointError(
                f"the score is NaN or infinite at sigma {sigma:g} (check the model, and that x is like its data)"
            )
        return torch.cat([dz.reshape(len(x), -1), divergence[:, None] / d], 1)

    def worst(error: Tensor) -> Tensor:
        """The solver's norm: of the example with the largest, so that others in the batch do not hide it."""
        rows = error.reshape(len(x), -1)
        return torch.maximum(rows[:, :-1].square().mean(1).sqrt(), rows[:, -1].abs()).max()

    wide = v.dtype
    z = ((x.to(wide) - c) / (v + start**2).sqrt()).reshape(len(x), -1)
    state = torch.cat([z, torch.zeros_like(z[:, :1])], 1)
    thetas = torch.tensor([math.atan(start / width), math.atan(end / width)], dtype=wide, device=x.device)
    options: dict[str, Any] = {"norm": worst, "step_t": thetas[1:], "dtype": wide, "max_num_steps": MOST_STEPS}
    if start < end:  # a longer first step could miss what happens just above σ_min
        options["first_step"] = 2 * thetas[0]
    try:
        with torch.no_grad():
            state = odeint(slope, state, thetas, rtol=tolerance, atol=tolerance, method="dopri5", options=options)[-1]
    except AssertionError as error:
        if "max_num_steps" not in str(error) and "underflow" not in str(error):
            raise
        raise ArithmeticError(
            f"the flow cannot be solved with a tolerance of {tolerance:g}: the score's own rounding errors are larger "
            "(give a larger tolerance)"
        ) from None
    return c + (v + end**2).sqrt() * state[:, :-1].reshape(x.shape), d * state[:, -1]


def _value_and_trace(
    f: Callable[[Tensor], Tensor], z: Tensor, vectors: list[Tensor], cost: Cost
) -> tuple[Tensor, Tensor]:
    """f(z), and tr ∂f/∂z by the mean of εᵀ(∂f/∂z)ε over these vectors ε; exact if there are none."""
    each = vectors or _unit_vectors(z)
    value, products = _value_and_products(f, z, each, cost)
    total = torch.stack([dot(along, epsilon) for along, epsilon in zip(products, each, strict=True)]).sum(0)
    return value, total / (len(vectors) or 1)


def _value_and_products(
    f: Callable[[Tensor], Tensor], z: Tensor, vectors: list[Tensor], cost: Cost
) -> tuple[Tensor, list[Tensor]]:
    """f(z), and εᵀ ∂f/∂z for each of these vectors."""
    with torch.inference_mode(False), torch.enable_grad():
        z = z.detach().clone().requires_grad_()
        value = same_shape(f(z), z)
        lasts = [k == len(vectors) for k in range(1, len(vectors) + 1)]
        pairs = zip(vectors, lasts, strict=True)
        products = [torch.autograd.grad(value, z, v.to(z), retain_graph=not last)[0] for v, last in pairs]
    cost.calls += 1
    cost.products += len(products)
    return value.detach(), products


def _unit_vectors(z: Tensor) -> list[Tensor]:
    d = z[0].numel()
    return list(torch.eye(d, dtype=z.dtype, device=z.device).reshape(d, 1, *z.shape[1:]).expand(d, *z.shape))


def _log_prior_by_score(score: Score, x: Tensor, sigma: float, cost: Cost) -> Tensor:
    """log N(x; m, P⁻¹), (B,), of the Gaussian with the score's value and Jacobian at x:  s = −P(x − m),  ∂s/∂x = −P."""
    level = torch.tensor(sigma, dtype=x.dtype, device=x.device)
    s, rows = _value_and_products(lambda y: score(y, level), x, _unit_vectors(x), cost)
    precision, s = -torch.stack([row.flatten(1) for row in rows], 1), s.flatten(1)
    root, failed = torch.linalg.cholesky_ex((precision + precision.mT) / 2)
    if failed.any():
        raise ArithmeticError(
            f"the score at sigma_max = {sigma:g} is not that of a wide Gaussian (give a larger sigma_max, or mean and "
            "variance of the data)"
        )
    square = dot(s, torch.cholesky_solve(s[..., None], root)[..., 0])
    log_determinant = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
    return (log_determinant - square - s.shape[1] * math.log(2 * math.pi)) / 2


def _summed(terms: Tensor) -> Tensor:
    return terms.flatten(1).sum(1)


def _moments(score: Score, x: Tensor, sigma: float, trace: Trace) -> tuple[Tensor, Tensor]:
    """Mean c and variance v of the data for each example, as the score tells them at a large σ.

    v is at least a millionth of σ², which hardly changes the prior's variance, σ² + v.
    """
    value, total = trace(lambda y: denoised(score, y, sigma), x)
    j = (total / x[0].numel()).clamp(1e-6, 0.999).reshape(-1, *(1 for _ in x.shape[1:]))
    return (value - j * x) / (1 - j), sigma**2 * j / (1 - j)


def _as_moments(x: Tensor, mean: Tensor | float, variance: Tensor | float) -> tuple[Tensor, Tensor]:
    """c and v in the type that the solver uses."""
    dtype = torch.float32 if x.device.type == "mps" else torch.float64
    c, v = (torch.as_tensor(each, dtype=dtype, device=x.device) for each in (mean, variance))
    for name, each in (("mean", c), ("variance", v)):
        try:
            fits = torch.broadcast_shapes(each.shape, x.shape) == x.shape
        except RuntimeError:
            fits = False
        if not fits or not each.isfinite().all() or (each is v and not (each > 0).all()):
            raise ValueError(
                f"{name} must be finite{' and positive' if each is v else ''}, a number or a tensor that broadcasts "
                f"with x, {tuple(x.shape)}; got shape {tuple(each.shape)}"
            )
    return c, v


def _check(score: Score, x: Tensor, sigma_min: float, sigma_max: float, tolerance: float | None) -> None:
    """Raise an error for what can be seen to be wrong before the first call."""
    if not 0 < sigma_min < sigma_max < math.inf:
        raise ValueError(f"sigma_min must be positive and below sigma_max; got {sigma_min} and {sigma_max}")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise ValueError(f"tolerance must be positive; got {tolerance} (1e-4 is usual)")
    checked(x, sigma_min)
    if x.ndim < 2:
        raise ValueError(f"x must be a batch, shape (B, ...); got {tuple(x.shape)} (x[None] or x[:, None])")
    if not x.isfinite().all():
        raise ValueError("x has NaN or infinite entries (remove these examples)")
    while isinstance(score, partial):
        score = score.func
    owner = getattr(score, "__self__", score)  # of a method, such as Model.score
    network = getattr(owner, "network", owner)
    check_levels(getattr(network, "accepted_sigmas", None))
    low, high = getattr(network, "sigma_range", (0, math.inf))
    if not low * 0.999 <= sigma_min < sigma_max <= high * 1.001:
        raise ValueError(
            f"the network accepts noise levels from {low:g} to {high:g}; got sigma_min {sigma_min:g} and sigma_max "
            f"{sigma_max:g} (choose them in that range)"
        )


def check_levels(listed: Tensor | Sequence[float] | None) -> None:
    """Raise an error for a network that knows a list of noise levels."""
    if listed is None or not len(listed):
        return
    raise ValueError(
        f"this network knows {len(listed)} noise levels, up to σ = {float(max(listed)):g}, and has no likelihood or "
        "latents: the flow passes through all levels, and must end at a σ so large that noisy data is a Gaussian of "
        "known density (use a network for all levels in a range, such as those of the recipes unet-mnist and "
        "unet-cifar10)"
    )


def _solver() -> Any:  # noqa: ANN401
    try:
        from torchdiffeq import odeint
    except ImportError as error:
        raise ImportError("likelihoods and latents need torchdiffeq (pip install torchdiffeq)") from error
    return odeint
