"""Import of checkpoints of the code released with the paper.

Such a file is a pickled list: the network's state (its names prefixed by `module.`), then the optimizer's. It is opened
with `weights_only=True`, so a file that tries to run code is refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from scorefield.networks import RefineNet
from scorefield.noise import geometric

_NAMES: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"^begin_conv\.", "begin."),
    (r"^end_conv\.", "end."),
    (r"^normalizer\.", "norm."),
    (r"^res(\d)\.(\d)\.", lambda m: f"blocks.{2 * int(m[1]) + int(m[2]) - 2}."),
    (r"\.normalize(\d)\.", r".norm\1."),
    (r"\.(conv2|shortcut)\.conv\.", r".\1."),
    (r"^refine(\d)\.", lambda m: f"refine.{int(m[1]) - 1}."),
    (r"\.adapt_convs\.", ".adapt."),
    (r"\.output_convs\.", ".output."),
    (r"\.(\d)_(\d)_(norm|conv)\.", lambda m: f".{m[3]}s.{2 * int(m[1]) + int(m[2]) - 3}."),
    (r"\.msf\.", ".fuse."),
    (r"\.crp\.", ".pool."),
]
"""Parts of their parameter names, and ours."""
_FIX = "give a .pth file that the paper's code wrote, complete and unchanged"


def open_released(path: Path) -> dict[str, Tensor]:
    """The network's state in a released checkpoint, in their names without the prefix."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:  # for a damaged file, PyTorch raises errors of any kind
        raise ValueError(
            f"{path} is damaged, not a checkpoint of the released code, or refused for safety because it holds more "
            f"than tensors: {type(error).__name__} ({_FIX})"
        ) from error
    state = content[0] if isinstance(content, (list, tuple)) and content else content
    if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()):
        raise ValueError(
            f"{path} is not a checkpoint of the released code, which is a list that starts with the network's tensors "
            f"({_FIX})"
        )
    if sum(value.nbytes for value in state.values()) > path.stat().st_size:  # views that claim to be large
        raise ValueError(f"{path} is damaged: its tensors are larger than the file ({_FIX})")
    return {name.removeprefix("module."): value for name, value in state.items()}


def from_released(path: Path, *, sigma_max: float = 1.0, sigma_min: float = 0.01) -> RefineNet:
    """The network of a released NCSN checkpoint. The file does not hold its noise levels: they are given here."""
    state = open_released(path)
    width, channels, levels = _sizes(state, path)
    network = RefineNet(channels=channels, width=width, sigmas=geometric(sigma_max, sigma_min, levels))
    ours = {"sigmas": network.sigmas}
    try:
        for name, value in state.items():
            ours |= _converted(name, value)
        network.load_state_dict(ours)
    except (RuntimeError, IndexError) as error:
        first = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} does not hold the paper's network: {first} ({_FIX})") from error
    return network


def _sizes(state: Mapping[str, Tensor], path: Path) -> tuple[int, int, int]:
    """The network's width, channels and number of noise levels, which three of its tensors must agree on: no network is
    made that is much larger than the file."""
    names = ("begin_conv.weight", "normalizer.embed.weight", "res1.0.conv1.weight")
    if missing := [name for name in names if name not in state]:
        raise ValueError(f"{path} does not hold the paper's network: it lacks {', '.join(missing)} ({_FIX})")
    first, norm, inner = (tuple(state[name].shape) for name in names)
    (width, channels), levels = (*first, 0, 0)[:2], (*norm, 0)[0]
    expected = (width, channels, 3, 3), (levels, 3 * width), (width, width, 3, 3)
    if (first, norm, inner) != expected or 0 in (width, channels, levels):
        shapes = ", ".join(f"{name} has the shape {tuple(state[name].shape)}" for name in names)
        raise ValueError(f"{path} does not hold the paper's network: {shapes} ({_FIX})")
    return width, channels, levels


def _converted(name: str, value: Tensor) -> dict[str, Tensor]:
    """Our entries for one of theirs. Their norm is γ((x − μ)/s + α(μ − m)/v) + β, so that our α is their γα."""
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    if not name.endswith(".embed.weight"):
        return {name: value}
    stem = name.removesuffix("embed.weight")
    gamma, alpha, beta = value.chunk(3, dim=1)
    return {f"{stem}gamma": gamma, f"{stem}alpha": gamma * alpha, f"{stem}beta": beta}
