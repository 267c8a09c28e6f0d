"""The network of Fig. 1 and its derivative along a direction, in one pass by fused kernels.

`derivatives.forward_mode` computes the same of any network. Here values and derivatives go through each convolution
together, as one batch of twice the size, and through what is between two convolutions in one launch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scorefield.derivatives import Field, dot
from scorefield.kernels.dual import elu
from scorefield.kernels.pool import double, halve
from scorefield.networks import resnet
from scorefield.networks.resnet import Block, Resize, ResNet

RESIZE: dict[Resize, Resize] = {resnet.same: resnet.same, resnet.half: halve, resnet.double: double}


class Dual:
    """A QuadraticForm of this network, whatever field it is given."""

    def __init__(self, network: ResNet) -> None:
        self._network = network

    def __call__(self, s: Field, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """s(x) and vᵀ∇s(x)v."""
        value, along_v = self.along(x, v)
        return value, dot(v, along_v)

    def along(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """s(x) and ∇s(x)v."""
        z = torch.cat([2 * x - 1, 2 * v]).contiguous(memory_format=torch.channels_last)
        z, active = elu(z, z.new_zeros(z.shape[1]))
        for block in self._network.blocks:
            assert isinstance(block, Block)
            z, active = _block(block, z, active)
        value, along_v = _linear(self._network.end, active).chunk(2)
        return value + _bias(self._network.end).view(-1, 1, 1), along_v


def _block(block: Block, z: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """What comes out of the block, and the ELU of it, with which the next one begins; resizing changes no bias."""
    resize = RESIZE[block.resize]
    _, middle = elu(resize(_linear(block.first, active)), _bias(block.first))
    change, bias, z = _linear(block.second, middle), _bias(block.second), resize(z)
    if isinstance(block.shortcut, nn.Conv2d):
        z, bias = _linear(block.shortcut, z), bias + _bias(block.shortcut)
    return elu(change, bias, z)


def _linear(convolution: nn.Conv2d, z: Tensor) -> Tensor:
    """Without its bias, which derivatives do not have."""
    return F.conv2d(z, convolution.weight, padding=convolution.padding)


def _bias(convolution: nn.Conv2d) -> Tensor:
    assert convolution.bias is not None
    return convolution.bias
