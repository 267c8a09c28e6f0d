"""Philox4x32-10 in one launch, bit for bit as in scorefield.noise: keys for samples, uniform and normal noise."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _philox(a, b, c, d, k, m):
    """Ten rounds on words of 32 bits."""
    for _ in tl.static_range(10):
        high_p, low_p = tl.umulhi(a, 0xD2511F53), a * 0xD2511F53
        high_q, low_q = tl.umulhi(c, 0xCD9E8D57), c * 0xCD9E8D57
        a, b, c, d = high_q ^ b ^ k, low_q, high_p ^ d ^ m, low_p
        k, m = k + 0x9E3779B9, m + 0xBB67AE85
    return a, b, c, d


@triton.jit(do_not_specialize=["seed", "step", "first"])
def _keys(key_ptr, seed, step, first, B, BLOCK: tl.constexpr):
    """The key of each place of a training step's batch."""
    place = tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.uint32)
    low, high, _, _ = _philox(
        (first + place).to(tl.uint32), zero + step.to(tl.uint32), zero, zero + 1, zero + seed.to(tl.uint32), zero + 1
    )
    tl.store(key_ptr + place, low.to(tl.int64), mask=place < B)
    tl.store(key_ptr + B + place, high.to(tl.int64), mask=place < B)


@triton.jit
def _pair(u, v, NORMAL: tl.constexpr):
    """Two words of 32 bits as uniform numbers below 1, or as normal ones by the method of Box and Muller."""
    u, v = u.to(tl.float32), v.to(tl.float32)
    if NORMAL:
        radius = tl.sqrt(-2.0 * tl.log((u + 0.5) * 2.3283064365386963e-10))  # 2⁻³²
        angle = v * 1.4629180792671596e-09  # 2π · 2⁻³²
        u, v = radius * tl.cos(angle), radius * tl.sin(angle)
    else:
        u = tl.minimum(u * 2.3283064365386963e-10, 0.99999994)
        v = tl.minimum(v * 2.3283064365386963e-10, 0.99999994)
    return u, v


@triton.jit(do_not_specialize=["draw"])
def _noise(out_ptr, key_ptr, draw, B, n, NORMAL: tl.constexpr, BLOCK: tl.constexpr):
    """n numbers for one sample: four for each counter."""
    sample = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.uint32)
    k = zero + tl.load(key_ptr + sample).to(tl.uint32)
    m = zero + tl.load(key_ptr + B + sample).to(tl.uint32)
    a, b, c, d = _philox(block.to(tl.uint32), zero + draw.to(tl.uint32), zero, zero, k, m)
    out, place = out_ptr + sample * n + 4 * block, 4 * block
    first, second = _pair(a, b, NORMAL)
    third, fourth = _pair(c, d, NORMAL)
    tl.store(out, first, mask=place < n)
    tl.store(out + 1, second, mask=place + 1 < n)
    tl.store(out + 2, third, mask=place + 2 < n)
    tl.store(out + 3, fourth, mask=place + 3 < n)


def keys(seed: int, step: int, places: range, device: torch.device | str) -> Tensor:
    """The keys of `SampleNoise.at_step`, (2, B, 1)."""
    out = torch.empty(2, len(places), 1, dtype=torch.int64, device=device)
    _keys[(1,)](out, seed, step, places.start, len(places), BLOCK=triton.next_power_of_2(len(places)))
    return out


def noise(key: Tensor, draw: int, shape: torch.Size, *, normal: bool) -> Tensor:
    """Draw number `draw` of samples with these keys, float32 of that shape (B, ...)."""
    out = torch.empty(shape, dtype=torch.float32, device=key.device)
    n = math.prod(shape[1:])
    block = min(256, triton.next_power_of_2(triton.cdiv(n, 4)))
    _noise[len(out), triton.cdiv(n, 4 * block)](out, key, draw, len(out), n, NORMAL=normal, BLOCK=block)
    return out
