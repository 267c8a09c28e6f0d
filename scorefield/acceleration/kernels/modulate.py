"""The middle of the U-Net's blocks: z = SiLU(c h), with a scale c for each channel of each sample, and dropout.

Backwards, from dz, with u = c h:  du = dz SiLU'(u),  dh = c du,  dc = Σ h du over the pixels. Entries were dropped
where z is 0. (Where SiLU(u) itself rounds to 0, u or the slope is 0 as well, in that precision.)

Dropout's random numbers are those of `SampleNoise.rand_like` for an image with channels first: entry n = k N + i, of
channel k and pixel i of N, gets word n mod 4 of counter n // 4. A program computes 4 pixels for each counter.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from scorefield.acceleration.kernels.passes import flag, rows_of, tile
from scorefield.acceleration.kernels.philox import _pair, _philox
from scorefield.acceleration.kernels.residual import silu, silu_slope

TILE, BACK_TILE, STRIP = 1024, 2048, 64
"""Elements that a program processes at once, and in the backward pass its channels."""


@triton.jit
def _some(h_ptr, z_ptr, pixel, channel, c, N, C, uniform, dropout, rest, DROP: tl.constexpr):
    """z of these pixels. `uniform`: a random number for each entry; `rest`: 1/(1 − dropout)."""
    mask = (pixel >= 0) & (pixel < N) & (channel < C)[None, :]
    place = pixel * C + channel[None, :]
    z = silu(tl.load(h_ptr + place, mask=mask, other=0.0).to(tl.float32) * c[None, :])
    if DROP:
        z = tl.where(uniform < dropout, 0.0, z * rest)
    tl.store(z_ptr + place, z.to(z_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["draw", "B", "N"])
def _forward(
    h_ptr, c_ptr, z_ptr, key_ptr, draw, B, N, C, stride, dropout, rest,
    DROP: tl.constexpr, SHIFTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Four times ROWS pixels of one sample. SHIFTED: N is no multiple of 4: channels begin inside of counters."""
    sample = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, COLUMNS)
    c = tl.load(c_ptr + sample * stride + channel, mask=channel < C, other=0.0)
    h_ptr, z_ptr = h_ptr + sample * N * C, z_ptr + sample * N * C
    group = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    pixel = 4 * group[:, None] + tl.zeros_like(channel)[None, :]
    if SHIFTED:
        pixel -= (channel * N % 4)[None, :]
    if DROP:
        counter = (group[:, None] + (channel * N // 4)[None, :]).to(tl.uint32)
        zero = tl.zeros_like(counter)
        k, m = tl.load(key_ptr + sample).to(tl.uint32), tl.load(key_ptr + B + sample).to(tl.uint32)
        p, q, r, s = _philox(counter, zero + draw.to(tl.uint32), zero, zero, k, m)
        first, second = _pair(p, q, False)
        third, fourth = _pair(r, s, False)
    else:
        first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    _some(h_ptr, z_ptr, pixel, channel, c, N, C, first, dropout, rest, DROP)
    _some(h_ptr, z_ptr, pixel + 1, channel, c, N, C, second, dropout, rest, DROP)
    _some(h_ptr, z_ptr, pixel + 2, channel, c, N, C, third, dropout, rest, DROP)
    _some(h_ptr, z_ptr, pixel + 3, channel, c, N, C, fourth, dropout, rest, DROP)


@triton.jit(do_not_specialize=["N", "drop"])
def _backward(
    h_ptr, c_ptr, z_ptr, dz_ptr, dh_ptr, dc_ptr, N, C, stride, rest, drop, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """dh and dc of some channels of one sample."""
    sample = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    c = tl.load(c_ptr + sample * stride + channel, mask=channel < C, other=0.0)
    begin = sample * N * C
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, N, ROWS):
        place, mask = tile(start, channel, N, C, ROWS)
        h = tl.load(h_ptr + begin + place, mask=mask, other=0.0).to(tl.float32)
        z = tl.load(z_ptr + begin + place, mask=mask & flag(drop, channel)[None, :], other=1.0).to(tl.float32)
        dz = tl.load(dz_ptr + begin + place, mask=mask, other=0.0).to(tl.float32)
        du = tl.where(z == 0, 0.0, dz * rest) * silu_slope(h * c[None, :])
        tl.store(dh_ptr + begin + place, (du * c[None, :]).to(dh_ptr.dtype.element_ty), mask=mask)
        total += du * h
    tl.store(dc_ptr + sample * C + channel, tl.sum(total, 0), mask=channel < C)


class _Modulate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, c: Tensor, key: Tensor | None, draw: int, dropout: float) -> Tensor:  # noqa: ANN401
        h = h.contiguous(memory_format=torch.channels_last)
        b, channels, height, width = h.shape
        n, columns = height * width, triton.next_power_of_2(channels)
        z = torch.empty_like(h)
        dropout = 0.0 if key is None else dropout
        shifted = dropout > 0 and n % 4 > 0
        groups = triton.cdiv(n + 3 * shifted, 4)
        rows = rows_of(TILE, groups, columns)
        _forward[b, triton.cdiv(groups, rows)](
            h, c, z, c if key is None else key, draw, b, n, channels, c.stride(0), dropout, 1 / (1 - dropout),
            DROP=dropout > 0, SHIFTED=shifted, ROWS=rows, COLUMNS=columns,
        )  # fmt: skip
        ctx.save_for_backward(h, c, *([z] if dropout else []))
        ctx.dropout = dropout
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        h, c, *dropped = ctx.saved_tensors
        dz = dz.contiguous(memory_format=torch.channels_last)
        b, channels, height, width = h.shape
        n, columns = height * width, min(triton.next_power_of_2(channels), STRIP)
        dh, dc = torch.empty_like(h), torch.empty(b, channels, dtype=torch.float32, device=h.device)
        _backward[b, triton.cdiv(channels, columns)](
            h, c, dropped[0] if dropped else dz, dz, dh, dc, n, channels, c.stride(0), 1 / (1 - ctx.dropout),
            int(bool(dropped)), ROWS=rows_of(BACK_TILE, n, columns), COLUMNS=columns,
        )  # fmt: skip
        return dh, dc, None, None, None


def modulate(h: Tensor, c: Tensor, *, key: Tensor | None = None, draw: int = 0, dropout: float = 0.0) -> Tensor:
    """SiLU(c h), h (B, C, H, W) channels-last, c (B, C) in float32; and with `key`, (2, B, 1), its dropout by the
    numbers of that draw of a SampleNoise with these keys."""
    return _Modulate.apply(h, c, key, draw, dropout)
