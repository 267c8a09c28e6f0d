"""Import of checkpoints of the code released with the paper.

Such a file is a pickled list: the network's state (its names prefixed by `module.`), then the optimizer's. It is opened
with `weights_only=True`, so a file that tries to run code is refused.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
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
_DIMENSIONS = {"begin_conv.weight": 4, "normalizer.embed.weight": 2}
"""Number of dimensions of the tensors that give the network's size."""


def open_released(path: Path) -> dict[str, Tensor]:
    """The network's state in a released checkpoint, in their names without the prefix."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a checkpoint of the released code, or it was refused for safety because it holds more than "
            f"tensors ({type(error).__name__})"
        ) from error
    state = content[0] if isinstance(content, (list, tuple)) and content else content
    if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()):
        raise ValueError(
            f"{path} is not a checkpoint of the released code, which is a list that starts with the network's tensors"
        )
    return {name.removeprefix("module."): value for name, value in state.items()}


def from_released(path: Path, *, sigma_max: float = 1.0, sigma_min: float = 0.01) -> RefineNet:
    """The network of a released NCSN checkpoint. The file does not hold its noise levels: they are given here."""
    state = open_released(path)
    missing = _DIMENSIONS.keys() - state.keys()
    if missing or any(state[name].ndim != n for name, n in _DIMENSIONS.items()):
        raise ValueError(
            f"{path} does not hold the paper's network: it lacks {', '.join(sorted(missing or _DIMENSIONS))}"
        )
    width, channels = state["begin_conv.weight"].shape[:2]
    levels = len(state["normalizer.embed.weight"])
    network = RefineNet(channels=channels, width=width, sigmas=geometric(sigma_max, sigma_min, levels))
    ours = {"sigmas": network.sigmas}
    for name, value in state.items():
        ours |= _converted(name, value)
    try:
        network.load_state_dict(ours)
    except RuntimeError as error:
        raise ValueError(f"{path} does not hold the paper's network: {error}") from error
    return network


def _converted(name: str, value: Tensor) -> dict[str, Tensor]:
    """Our entries for one of theirs. Their norm is γ((x − μ)/s + α(μ − m)/v) + β, so that our α is their γα."""
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    if not name.endswith(".embed.weight"):
        return {name: value}
    stem = name.removesuffix("embed.weight")
    gamma, alpha, beta = value.chunk(3, dim=1)
    return {f"{stem}gamma": gamma, f"{stem}alpha": gamma * alpha, f"{stem}beta": beta}
