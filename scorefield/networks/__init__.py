"""Networks that estimate scores."""

from scorefield.networks.mlp import MLP
from scorefield.networks.refinenet import RefineNet

__all__ = ["MLP", "RefineNet"]
