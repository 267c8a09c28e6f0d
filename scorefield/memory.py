"""Errors that say that memory is used up. This module does not import PyTorch."""

from __future__ import annotations

import sys

SIGNS = ("DefaultCPUAllocator", "MPS backend out of memory", "CUDA error: out of memory")
"""What plain RuntimeErrors of PyTorch say, on CPUs and Apple GPUs."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, of Python or of PyTorch, says that memory is used up."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)
