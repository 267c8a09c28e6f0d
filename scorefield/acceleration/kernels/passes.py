"""The passes over an image that CondInstanceNorm++ is made of, for some channels of one sample, to which the pointers
to x and dz point.

The symbols are those of norm.py. What differs between norms (a bias, an ELU, other gradients of x) is an argument at
run time, so that the kernels, which compile slowly, are compiled once for all of them.

`flag`, `tile` and `rows_of` serve the other kernels too.
"""

from __future__ import annotations

import triton
import triton.language as tl


def rows_of(tile: int, pixels: int, columns: int) -> int:
    """The number of pixels that, with that many columns of channels, make a tile of that size."""
    return max(1, min(tile // columns, triton.next_power_of_2(pixels)))


@triton.jit
def flag(yes, like):
    """A number, 0 or 1, as a mask of that shape."""
    return tl.zeros_like(like) + yes > 0


@triton.jit
def tile(first, channel, N, C, ROWS: tl.constexpr):
    """The places of ROWS pixels from the first on, among N pixels with C channels, and which of them exist."""
    row = first + tl.arange(0, ROWS)
    return row[:, None] * C + channel[None, :], (row < N)[:, None] & (channel < C)[None, :]


@triton.jit
def moments(x_ptr, channel, N, C, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Mean and 1/s of each channel, chunk by chunk, by Chan's formula."""
    mean = tl.zeros([COLUMNS], tl.float32)
    scatter = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, N, ROWS):
        place, mask = tile(first, channel, N, C, ROWS)
        x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
        count = tl.minimum(N - first, ROWS).to(tl.float32)
        here = tl.sum(x, 0) / count
        apart = tl.where(mask, x - here[None, :], 0.0)
        delta = here - mean
        whole = first + count
        scatter += tl.sum(apart * apart, 0) + delta * delta * (first * count / whole)
        mean += delta * (count / whole)
    return mean, 1.0 / tl.sqrt(scatter / N + eps)


@triton.jit
def shifted(mean, bias_ptr, channel, C, has_bias):
    """μ: the means with the bias."""
    return mean + tl.load(bias_ptr + channel, mask=(channel < C) & flag(has_bias, channel), other=0.0)


@triton.jit
def among(mu, channel, C, eps):
    """m and r, from the means of all channels: how they compare."""
    inside = channel < C
    m = tl.sum(tl.where(inside, mu, 0.0), 0) / C
    apart = tl.where(inside, mu - m, 0.0)
    return m, 1.0 / tl.sqrt(tl.sum(apart * apart, 0) / (C - 1) + eps)


@triton.jit
def look_up(table_ptr, level, channel, C):
    """One of the tables γ, α, β at this level."""
    return tl.load(table_ptr + level * C + channel, mask=channel < C, other=0.0)


@triton.jit
def gradient(x_ptr, dz_ptr, place, mask, channel, mean, rstd, gamma, shift, elu, made):
    """x̂, and dy = dz · ELU'(γ x̂ + shift), z having been made multiplied by `made`."""
    hat = (tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32) - mean[None, :]) * rstd[None, :]
    y = hat * gamma[None, :] + shift[None, :]
    dy = made * tl.load(dz_ptr + place, mask=mask, other=0.0).to(tl.float32)
    return hat, tl.where((y <= 0) & flag(elu, channel)[None, :], dy * tl.exp(tl.minimum(y, 0.0)), dy)


@triton.jit
def sums(
    x_ptr, dz_ptr, channel, mean, rstd, gamma, shift, elu, made, N, C, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """S₁ and S₂ of each channel."""
    s1 = tl.zeros([ROWS, COLUMNS], tl.float32)
    s2 = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, N, ROWS):
        place, mask = tile(first, channel, N, C, ROWS)
        hat, dy = gradient(x_ptr, dz_ptr, place, mask, channel, mean, rstd, gamma, shift, elu, made)
        s1 += dy
        s2 += dy * hat
    return tl.sum(s1, 0), tl.sum(s2, 0)


@triton.jit
def through_means(alpha, s1, apart, r, C):
    """dμ."""
    du = alpha * s1
    return r * (du - tl.sum(du, 0) / C) - r * r * r * apart / (C - 1) * tl.sum(du * apart, 0)
