"""The network of the paper's Fig. 2."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with softplus between them, for vectors of `dim` entries and a single noise level."""

    def __init__(self, *, dim: int = 2, width: int = 128, layers: int = 3) -> None:
        super().__init__()
        if layers < 2:
            raise ValueError(f"layers must be at least 2; got {layers}")
        self.dim = dim
        first, *others = [nn.Linear(n, m) for n, m in pairwise([dim] + [width] * (layers - 1) + [dim])]
        self.layers = nn.Sequential(first, *(part for layer in others for part in (nn.Softplus(), layer)))

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        """s(x), whatever the σ: the network is trained for one level only."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"x must have shape (B, {self.dim}); got {tuple(x.shape)}")
        return self.layers(x)
