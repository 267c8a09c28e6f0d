"""Triton kernels for NVIDIA GPUs. Each does in one launch what a few lines of plain PyTorch do elsewhere.

The plain lines are the reference in tests, and run where there is no GPU or no Triton.
"""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from importlib.util import find_spec

import torch


@lru_cache
def _work(device: int) -> bool:
    """Whether this machine can compile and run the kernels. It is tried once, with the smallest one."""
    if find_spec("triton") is None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        import triton  # noqa: F401
    except Exception as error:
        return _cannot_run(error)
    from scorefield.acceleration.kernels.philox import keys  # an error in our own modules must not pass for Triton's

    try:
        keys(0, 0, range(2), torch.device("cuda", device))
    except Exception as error:  # no compiler, no headers, another driver: Triton raises many kinds of errors
        return _cannot_run(error)
    return True


def _cannot_run(error: Exception) -> bool:
    warnings.warn(f"the fused kernels do not run here, so the plain network is used: {error}", stacklevel=4)
    return False


def usable(x: torch.Tensor) -> bool:
    """Whether the kernels can work on this tensor: it must be on the current GPU, an NVIDIA GPU from Ampere on.

    SCOREFIELD_PLAIN=1 switches the kernels off.
    """
    if not x.is_cuda or torch.version.cuda is None or os.environ.get("SCOREFIELD_PLAIN"):
        return False
    return x.device.index == torch.cuda.current_device() and _work(x.device.index)
