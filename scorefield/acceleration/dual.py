"""The network of Fig. 1 and its derivative along a direction, in one pass by fused kernels.

`derivatives.forward_mode` computes the same for any network. Here values and derivatives go through each convolution
together, as one batch of twice the size, and everything between two convolutions is one kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scorefield.acceleration.kernels.dual import norm_elu
from scorefield.acceleration.kernels.pool import double, halve
from scorefield.derivatives import Field, dot
from scorefield.networks import resnet
from scorefield.networks.resnet import Block, Resize, ResNet

RESIZE: dict[Resize, Resize] = {resnet.same: resnet.same, resnet.half: halve, resnet.double: double}


class Dual:
    """The QuadraticForm of this network. It ignores the field that it is called with."""

    def __init__(self, network: ResNet) -> None:
        self._network = network

    def __call__(self, s: Field, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """s(x) and vᵀ∇s(x)v."""
        value, along_v = self.along(x, v)
        return value, dot(v, along_v)

    def along(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """s(x) and ∇s(x)v."""
        begin, end, last = self._network.begin, self._network.end, self._network.norm
        blocks = [block for block in self._network.blocks if isinstance(block, Block)]
        z = torch.cat([2 * x - 1, 2 * v]).contiguous(memory_format=torch.channels_last)
        z, active = norm_elu(_linear(begin, z), _bias(begin), blocks[0].norm1)
        for block, after in zip(blocks, [*(other.norm1 for other in blocks[1:]), last], strict=True):
            z, active = _block(block, z, active, after)
        value, along_v = _linear(end, active).chunk(2)
        return value + _bias(end).view(-1, 1, 1), along_v


def _block(block: Block, z: Tensor, active: Tensor, after: nn.GroupNorm) -> tuple[Tensor, Tensor]:
    """The output of the block, and the ELU of its norm `after`, with which the next block begins.

    Biases are added after resizing, which does not change them."""
    resize = RESIZE[block.resize]
    _, middle = norm_elu(resize(_linear(block.first, active)), _bias(block.first), block.norm2)
    change, bias, z = _linear(block.second, middle), _bias(block.second), resize(z)
    if isinstance(block.shortcut, nn.Conv2d):
        z, bias = _linear(block.shortcut, z), bias + _bias(block.shortcut)
    return norm_elu(change, bias, after, z)


def _linear(convolution: nn.Conv2d, z: Tensor) -> Tensor:
    """The convolution without its bias, which derivatives do not have."""
    return F.conv2d(z, convolution.weight, padding=convolution.padding)


def _bias(convolution: nn.Conv2d) -> Tensor:
    assert convolution.bias is not None
    return convolution.bias
