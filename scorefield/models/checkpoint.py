"""Checkpoints: safetensors files that carry all that is needed to use them, and a checksum. Never a pickle.

A model file holds the network's weights, raw (`raw/NAME`) and, where a moving average was kept, averaged (`ema/NAME`).
A training checkpoint is a model file and, beside it, the optimizer's state. Both are written to a temporary name,
synced and renamed: a file that has its final name is whole, and the checksum proves it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from scorefield.files import new_file

FORMAT = 1
"""Increased when older versions of this package can no longer read the files."""
CHECKPOINTS = "checkpoints"
"""The folder inside a run that holds its model files."""

FIX = "use another copy of the file, or another checkpoint"

T = TypeVar("T")


class BrokenCheckpointError(ValueError):
    """The file is cut short, altered, or not a checkpoint."""


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """One safetensors file, whole or not at all. A full disk leaves what was there before and raises OSError."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    header = {**metadata, "format": str(FORMAT)}
    header["sha256"] = _digest(plain, header)
    with new_file(path) as file:
        file.write(_in_order(to_safetensors(plain, header)))


def _in_order(content: bytes) -> bytes:
    """The same safetensors file with its metadata sorted, so that equal content makes equal files."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file that `write` wrote, after checking that nothing changed since."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
    except FileNotFoundError:
        raise FileNotFoundError(f"no file {path}") from None
    except MemoryError:
        raise
    except Exception as error:  # safetensors and PyTorch have errors of their own for damaged files
        released = path.suffix in (".pth", ".pt")
        fix = "a released checkpoint becomes a model with: scorefield import" if released else FIX
        raise BrokenCheckpointError(f"{path} is damaged or no safetensors file: {error} ({fix})") from error
    if "sha256" not in metadata:
        raise BrokenCheckpointError(f"{path} is a safetensors file, but scorefield did not write it ({FIX})")
    plain = {name: value for name, value in metadata.items() if name != "sha256"}
    if metadata["sha256"] != _digest(tensors, plain):
        raise BrokenCheckpointError(f"{path} is damaged: its checksum does not match its content ({FIX})")
    if not (number := metadata.get("format", "")).isdecimal():
        raise BrokenCheckpointError(f"{path} is damaged: its format is {number[:20]!r} ({FIX})")
    if int(number) > FORMAT:
        raise ValueError(
            f"{path} has format {number}, and this scorefield reads formats up to {FORMAT} (install a newer scorefield)"
        )
    return tensors, metadata


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 over the metadata and the tensors' names, types, shapes and bytes."""
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        if value.numel():
            digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def model_files(run: Path) -> list[Path]:
    """The model files of a run folder, oldest first."""
    return sorted((run / CHECKPOINTS).glob("model-*.safetensors"))


def newest_whole(
    files: Sequence[Path], read: Callable[[Path], T], *, skip: Callable[[str], None] = warnings.warn
) -> tuple[Path, T] | None:
    """The newest of these files that can be read, and what `read` makes of it; None if there is none.

    `skip` gets a message about each damaged file that is passed over.
    """
    for path in reversed(files):
        try:
            return path, read(path)
        except BrokenCheckpointError as error:
            skip(f"{error}; using the checkpoint before it")
    return None
