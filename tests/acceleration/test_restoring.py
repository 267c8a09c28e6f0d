"""The fused networks are differentiated by x for restorations: on a CPU with plain PyTorch in their kernels' places."""

from __future__ import annotations

import sys

import pytest
import torch
from gpu import GPU, rel

from acceleration import plain_kernels
from acceleration.test_fused_unet import small_network
from scorefield import geometric, posterior
from scorefield.networks import RefineNet
from scorefield.operators import Blur, Downsample
from scorefield.score import ConditionalScore

if sys.platform != "linux":
    pytest.importorskip("triton")


@pytest.mark.parametrize("kind", ["unet", "refinenet"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_mmps_of_the_fused_networks(kind: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the measurements of two images are a thousand times apart: gradients in 16 bit share one scale."""
    from scorefield.acceleration.refinenet import FusedRefineNet
    from scorefield.acceleration.unet import FusedUNet

    if device == "cpu":
        plain_kernels.use(monkeypatch)
    torch.manual_seed(0)
    scores: tuple[ConditionalScore, ConditionalScore]
    if kind == "unet":
        unet = small_network(device, labels=0, dropout=0.0).eval().requires_grad_(False)
        scores = unet, FusedUNet(unet)
    else:
        refinenet = RefineNet(channels=3, width=8, sigmas=geometric(1.0, 0.1, 3)).to(device).requires_grad_(False)
        scores = refinenet, FusedRefineNet(refinenet)
    x, sigma = torch.rand(2, 3, 16, 16, device=device), torch.tensor(0.1, device=device)
    operator = Downsample(2) @ Blur(0.5)
    y = operator(x) + torch.tensor([1.0, 0.001], device=device)[:, None, None, None] * torch.rand(1, device=device)
    plain, found = (posterior(scores[k], y, operator, noise=0.05)(x, sigma) for k in range(2))
    for k in range(2):
        assert rel(found[k], plain[k]) < 0.02
