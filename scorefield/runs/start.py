"""A run that begins with the weights of a model, not with random ones."""

from __future__ import annotations

from pathlib import Path

from scorefield.checkpoint import Model, load
from scorefield.networks import RefineNet
from scorefield.training import TrainingState


def begin_with(model: str | Path, state: TrainingState, network: RefineNet) -> Model:
    """Give the network that is trained, and its moving average if there is one, the model's weights: the averaged ones
    where it has them. Its images may have been of another size, its network must be the same. Returns the model."""
    found = load(model)
    theirs, ours = _about(found.network), _about(network)
    if differing := [name for name in ours if theirs[name] != ours[name]]:
        what = ", ".join(f"{name} {theirs[name]}" for name in differing)
        mine = ", ".join(f"{name} {ours[name]}" for name in differing)
        raise ValueError(f"{model} has {what}, this run {mine}: its weights do not fit (choose alike, or no --start)")
    weights = found.network.state_dict()
    for tensors in (network.state_dict(), state.average or {}):
        for name, value in tensors.items():
            value.copy_(weights[name])
    return found


def _about(network: RefineNet) -> dict[str, str]:
    """What must be alike for weights to mean the same; the levels between two are given by these, as they are in
    geometric progression."""
    sigmas = network.sigmas.tolist()
    return {
        "channels": str(network.begin.in_channels),
        "width": str(network.begin.out_channels),
        "levels": f"{len(sigmas)}, σ = {sigmas[0]:g} … {sigmas[-1]:g}",
    }
