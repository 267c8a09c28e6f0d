"""Networks that estimate scores."""

from scorefield.networks.mlp import MLP
from scorefield.networks.refinenet import RefineNet
from scorefield.networks.resnet import ResNet
from scorefield.networks.unet import UNet

__all__ = ["MLP", "RefineNet", "ResNet", "UNet"]
