"""Networks that estimate scores."""

from scorefield.networks.mlp import MLP

__all__ = ["MLP"]
