"""Bayes' rule with a score as the prior: from a measurement  y = A x₀ + noise · z,  z ~ N(0, I),  back to images x₀.

    ∇ₓ log q_σ(x | y) = s(x, σ) + ∇ₓ log p(y | x)

is again a score, that of the distribution of all x₀ that explain y, with noise σ added. So every sampler draws from it.
p(y | x) is the mean of N(y; A x₀, noise² I) over all x₀ that may have become x, which must be approximated: see
`posterior`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from scorefield.operators import Function, Operator, check_linear
from scorefield.score import Score, as_sigma, expand, same_shape

METHODS = ("mmps", "dps", "diffpir")
NOISE = 0.01
"""The usual noise of a measurement: two and a half of 255 grey levels."""
DIFFERENTIATED = ("mmps", "dps")
"""Methods that need the score's derivative by x."""
ITERATIONS = 5
"""Of GMRES for mmps, a backward pass each."""
PROXIMAL = 10
"""Of GMRES for diffpir, which only applies A and Aᵀ."""

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Measurement:
    """A measurement y of one image, or of one for each row of a batch, and how its likelihood is computed."""

    y: Tensor
    operator: Map
    noise: float
    method: str = "mmps"
    iterations: int = ITERATIONS
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")
        if not 0 < self.noise < math.inf:
            raise ValueError(f"noise is a standard deviation, positive and finite; got {self.noise} (try 0.01)")
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise ValueError(f"iterations must be a whole number from 1 on; got {self.iterations}")
        if not 0 < self.strength < math.inf:
            raise ValueError(f"strength must be positive and finite; got {self.strength} (1 is usual)")
        if not self.y.is_floating_point():
            fix = "" if self.y.is_complex() else " (for images of 0 ... 255: y.float() / 255)"
            raise ValueError(f"y must hold real floating-point numbers; got {self.y.dtype}{fix}")

    def checked(self, x: Tensor, n: int) -> Measurement:
        """The same for n examples like those of x, with a row of y for each, after checks: y must have the shape of
        A(x), and A must be linear for all methods but dps."""
        made = self.operator(x)
        y = self.y if self.y.ndim == made.ndim else self.y[None]
        if y.shape[1:] != made.shape[1:] or len(y) not in (1, n):
            raise ValueError(
                f"y must have the shape of A(x), {tuple(made.shape[1:])}, or a batch of {n} such; got "
                f"{tuple(self.y.shape)} (is the image of the right size, with the right channels?)"
            )
        if self.method != "dps":
            check_linear(self.operator, x)
        y = y.to(x.device)
        if not torch.where(_as_operator(self.operator, x).measured(y), y, 0).isfinite().all():
            raise ValueError("y has NaN or infinite values (replace them, or use an operator that leaves them out)")
        return replace(self, y=y.expand(n, *y.shape[1:]))

    def rows(self, part: slice) -> Measurement:
        """These rows of a measurement that has one for each example."""
        return replace(self, y=self.y[part])

    def score(self, prior: Score, x: Tensor, sigma: Tensor) -> Tensor:
        """∇ₓ log q_σ(x | y): see `posterior`."""
        with torch.inference_mode(False), torch.no_grad():
            given, x, sigma = replace(self, y=_tracked(self.y)), _tracked(x), _tracked(as_sigma(sigma, x))
            return _LIKELIHOODS[self.method](given, _as_operator(self.operator, x), prior, x, sigma)

    def target(self, operator: Operator, made: Tensor) -> tuple[Tensor, Tensor]:
        """y beside `made`, A(x), with 0 where nothing is measured; and what is measured."""
        measured = operator.measured(made)
        return torch.where(measured, self.y.to(made), 0), measured


def posterior(
    score: Score,
    y: Tensor,
    operator: Map,
    *,
    noise: float,
    method: str = "mmps",
    iterations: int = ITERATIONS,
    strength: float = 1.0,
) -> Score:
    """The score ∇ₓ log q_σ(x | y) for y = A x₀ + noise · z, with `score` as the prior. Any sampler draws from it.

    `operator` is one of `operators`, or any function of batches; `y` is A of one example, for all, or a batch with a
    row for each. In these, m = E[x₀ | x] = x + σ² s(x, σ) and J = ∂m/∂x, so that Cov[x₀ | x] = σ² J:

    - mmps (moment matching, Rozet et al. 2024; the default): p(x₀ | x) is replaced by the Gaussian with its mean and
      covariance, which is exact if the data is Gaussian:  ∇ₓ log p(y | x) = Jᵀ Aᵀ v  with
      (noise² I + σ² A J Aᵀ) v = y − A m,  solved by `iterations` steps of GMRES. Each costs a backward pass, all of
      the same network evaluation.
    - dps (Chung et al. 2023): x₀ is taken to be m, and the gradient's length is set by hand to compensate for that:
      ∇ₓ log p(y | x) = −strength (√M/σ) ∇ₓ ‖y − A m‖,  M the number of measurements. One backward pass. A may be any
      differentiable function.
    - diffpir (Zhu et al. 2023): Cov[x₀ | x] is taken to be strength · σ² I, and J to be as much:
      ∇ₓ log p(y | x) = strength · Aᵀ (noise² I + strength · σ² A Aᵀ)⁻¹ (y − A m). No backward pass.

    mmps and dps need a score with gradients: a network itself, and not one recorded or on threads (`Model.restore`
    sees to that).
    """
    measurement = Measurement(y, operator, noise, method, iterations, strength)
    checked: dict[tuple[object, ...], Measurement] = {}

    def conditioned(x: Tensor, sigma: Tensor) -> Tensor:
        if (kind := (x.shape, x.dtype, x.device)) not in checked:
            checked[kind] = measurement.checked(x, len(x))
        return checked[kind].score(score, x, sigma)

    return conditioned


class _Denoised:
    """m = E[x₀ | x] = x + σ² s(x, σ) by one evaluation of the score, and products with J = ∂m/∂x from the same."""

    def __init__(self, score: Score, x: Tensor, sigma: Tensor) -> None:
        self.variance = expand(sigma, x).square()
        with torch.enable_grad():
            self._x = x.detach().clone().requires_grad_()
            s = same_shape(score(self._x, sigma), x).to(x.dtype)
            self._mean = self._x + self.variance * s
        if not s.requires_grad:
            raise ValueError(
                "the score has no gradients by x, which mmps and dps need (pass the network itself, not one recorded "
                "or on threads; or use diffpir)"
            )
        self.score, self.mean = s.detach(), self._mean.detach()

    def pull(self, u: Tensor) -> Tensor:
        """Jᵀ u. Each row of u gets unit length for it, because networks in 16 bit scale gradients by the largest."""
        length = _norm(u)
        return length * torch.autograd.grad(self._mean, self._x, _divided(u, length), retain_graph=True)[0]

    def gradient(self, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """∇ₓ loss(m)."""
        with torch.enable_grad():
            return torch.autograd.grad(loss(self._mean), self._x)[0]


def _mmps(given: Measurement, operator: Operator, prior: Score, x: Tensor, sigma: Tensor) -> Tensor:
    found = _Denoised(prior, x, sigma)
    made = operator(found.mean)
    y, _ = given.target(operator, made)

    def pull(v: Tensor) -> Tensor:
        return found.pull(operator.adjoint(v))

    return found.score + _solve(pull, operator, y - made, given.noise**2, found.variance, given.iterations)


def _dps(given: Measurement, operator: Operator, prior: Score, x: Tensor, sigma: Tensor) -> Tensor:
    found = _Denoised(prior, x, sigma)
    y, measured = given.target(operator, operator(found.mean))
    root = measured.flatten(1).sum(1).sqrt().to(x).reshape(-1, *(1 for _ in x.shape[1:]))

    def distance(mean: Tensor) -> Tensor:
        return torch.linalg.vector_norm((y - operator(mean)).flatten(1), dim=1).sum()

    return found.score - given.strength * root / expand(sigma, x) * found.gradient(distance)


def _diffpir(given: Measurement, operator: Operator, prior: Score, x: Tensor, sigma: Tensor) -> Tensor:
    s = same_shape(prior(x, sigma), x).to(x.dtype)
    variance = expand(sigma, x).square()
    made = operator(x + variance * s)
    y, _ = given.target(operator, made)

    def pull(v: Tensor) -> Tensor:
        return given.strength * operator.adjoint(v)

    return s + _solve(pull, operator, y - made, given.noise**2, variance, PROXIMAL)


_LIKELIHOODS = {"mmps": _mmps, "dps": _dps, "diffpir": _diffpir}


def _solve(pull: Map, operator: Map, r: Tensor, noise: float, variance: Tensor, iterations: int) -> Tensor:
    """P v with  (noise I + variance · A P) v ≈ r,  by GMRES from v = 0, for each example of a batch: v minimises the
    error of this equation in the space that r and `iterations` − 1 products with the matrix M span.

    P (`pull`) is applied once in each iteration. M need be neither symmetric nor positive: a network's is not quite,
    and conjugate gradients went astray with it. With an orthonormal basis Q of the space, M Q = Q' H.
    """
    size = _norm(r)
    basis, pulled, columns = [_divided(r, size)], list[Tensor](), list[list[Tensor]]()
    for _ in range(iterations):
        pulled.append(pull(basis[-1]))
        w = noise * basis[-1] + _like(variance, r) * operator(pulled[-1])
        least = 100 * torch.finfo(w.dtype).eps * _norm(w)
        column = []
        for q in basis:
            column.append(_dot(q, w))
            w = w - column[-1] * q
        column.append(_norm(w))
        columns.append(column)
        if not (column[-1] > least).any():  # the space holds the solution of every example
            break
        basis.append(_divided(w, column[-1]))
    h = r.new_zeros(len(r), len(columns) + 1, len(columns))
    for k, column in enumerate(columns):
        h[:, : k + 2, k] = torch.cat([entry.flatten(1) for entry in column], 1)
    weights = size.flatten(1) * torch.linalg.pinv(h)[:, :, 0]
    return sum((_like(weights[:, k], each) * each for k, each in enumerate(pulled)), torch.zeros_like(pulled[0]))


def _divided(x: Tensor, size: Tensor) -> Tensor:
    """x/size, or 0 where size is 0."""
    return x / size.clamp_min(torch.finfo(x.dtype).tiny)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩ of each example, (B, 1, ..., 1)."""
    return (a * b).flatten(1).sum(1).reshape(-1, *(1 for _ in a.shape[1:]))


def _norm(a: Tensor) -> Tensor:
    return _dot(a, a).sqrt()


def _like(numbers: Tensor, x: Tensor) -> Tensor:
    """A number for each example, or one for all, shaped to multiply x."""
    return numbers.reshape(-1, *(1 for _ in x.shape[1:])) if numbers.ndim else numbers


def _tracked(x: Tensor) -> Tensor:
    """x, or a copy that autograd takes, if x was made in inference mode."""
    return x.clone() if x.is_inference() else x


def _as_operator(operator: Map, x: Tensor) -> Operator:
    if isinstance(operator, Operator):
        return operator
    return Function(operator, tuple(x.shape[1:]), getattr(operator, "adjoint", None))


def residual(x: Tensor, measurement: Measurement) -> Tensor:
    """‖A x − y‖/(noise √M) of each row of x, (B,), M the number of measurements: 1 in the mean for true posteriors."""
    operator = _as_operator(measurement.operator, x)
    made = operator(x)
    y, measured = measurement.target(operator, made)
    return torch.linalg.vector_norm((made - y).flatten(1), dim=1) / (
        measurement.noise * measured.flatten(1).sum(1).sqrt()
    )
