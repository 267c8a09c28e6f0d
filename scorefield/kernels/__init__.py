"""Triton kernels for NVIDIA GPUs: each computes what a few lines of PyTorch elsewhere compute, in one launch.

The plain lines are the reference that tests compare with, and what runs where there is no GPU or no Triton.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec

import torch


@lru_cache
def _triton() -> bool:
    return find_spec("triton") is not None


def usable(x: torch.Tensor) -> bool:
    """Whether the kernels can work on this tensor, on NVIDIA GPUs since Volta. SCOREFIELD_PLAIN=1 switches them off."""
    if not x.is_cuda or torch.version.cuda is None or os.environ.get("SCOREFIELD_PLAIN"):
        return False
    return _triton() and torch.cuda.get_device_capability(x.device) >= (7, 0)
