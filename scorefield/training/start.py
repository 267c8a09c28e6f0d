"""A run that begins with the weights of a model, not with random ones."""

from __future__ import annotations

from pathlib import Path

from scorefield.models.checkpoint import Model, load
from scorefield.networks import RefineNet
from scorefield.training.steps import TrainingState


def begin_with(model: str | Path, state: TrainingState, network: RefineNet) -> Model:
    """Give the network that is trained, and its moving average if there is one, the model's weights: the averaged ones
    where it has them. Its images may have been of another size, its network must be the same. Returns the model."""
    found = load(model)
    theirs, ours = found.network.begin.in_channels, network.begin.in_channels
    if theirs != ours:
        kinds = {1: "grey images", 3: "images in colour"}
        cure = "convert them, or do without --start"
        raise ValueError(
            f"{model} is a model of {kinds[theirs]}, and these are {kinds[ours]}: its weights do not fit ({cure})"
        )
    if (wanted := _options(found.network)) != (mine := _options(network)):
        raise ValueError(f"the weights of {model} do not fit {mine} (give {wanted}, or do without --start)")
    weights = found.network.state_dict()
    for tensors in (network.state_dict(), state.average or {}):
        for name, value in tensors.items():
            value.copy_(weights[name])
    return found


def _options(network: RefineNet) -> str:
    """What must be alike for weights to mean the same, as options of the command line."""
    sigmas = network.sigmas.tolist()
    ladder = f"--levels {len(sigmas)} --sigma-max {sigmas[0]:g} --sigma-min {sigmas[-1]:g}"
    return f"--width {network.begin.out_channels} {ladder}"
