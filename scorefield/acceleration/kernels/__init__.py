"""Triton kernels for NVIDIA GPUs: each computes what a few lines of PyTorch elsewhere compute, in one launch.

The plain lines are the reference that tests compare with, and what runs where there is no GPU or no Triton.
"""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from importlib.util import find_spec

import torch


@lru_cache
def _work(device: int) -> bool:
    """Whether this machine can compile and run them: tried once, with the smallest."""
    if find_spec("triton") is None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        from scorefield.acceleration.kernels.philox import keys

        keys(0, 0, range(2), torch.device("cuda", device))
    except Exception as error:  # no compiler, no headers, another driver: Triton raises of all kinds
        warnings.warn(f"no fused kernels, so the plain network it is: {error}", stacklevel=3)
        return False
    return True


def usable(x: torch.Tensor) -> bool:
    """Whether the kernels can work on this tensor, which takes the current GPU, NVIDIA's since Ampere.

    SCOREFIELD_PLAIN=1 switches them off.
    """
    if not x.is_cuda or torch.version.cuda is None or os.environ.get("SCOREFIELD_PLAIN"):
        return False
    return x.device.index == torch.cuda.current_device() and _work(x.device.index)
