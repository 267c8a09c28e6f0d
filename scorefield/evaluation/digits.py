"""An independent judge of MNIST samples: a classifier of digits with an eleventh class for images that are not digits.

An ordinary classifier is confident about any image. This one was also trained on images that are not digits, made from
digits and from noise, so that a confidence above 0.9 in a digit means something. Kinds of such images that it was not
trained on show that it learned more than those it saw. scripts/train_digit_classifier.py trains it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scorefield.data.images import Pixels
from scorefield.evaluation.records import ClassifierTest, DigitsVerdict, from_json
from scorefield.images import to_float
from scorefield.models import checkpoint

SHAPE = (28, 28, 1)
CONFIDENCE = 0.9
"""A sample is accepted if the probability of its most likely digit is above this."""
NO_DIGIT = 10
"""The class of images that are not digits."""
KIND = "scorefield digit classifier"
WEIGHTS = Path(__file__).parent / "mnist_classifier.safetensors"

Network = Callable[[Tensor], Tensor]
"""Images (B, 1, 28, 28) in [0, 1] -> logits (B, 11), the last for images that are not digits."""
Classify = Callable[[Pixels], tuple[Tensor, Tensor]]
"""Bytes (N, 28, 28, 1) -> the most likely digit of each image, and its probability among all eleven classes, (N,)."""


@dataclass(frozen=True)
class Classifier:
    """A trained classifier, and how good it is."""

    network: Network
    test: ClassifierTest
    digest: str = ""

    def __call__(self, pixels: Pixels) -> tuple[Tensor, Tensor]:
        return classify(self.network, pixels)


@torch.no_grad()
def classify(network: Network, pixels: Pixels) -> tuple[Tensor, Tensor]:
    """The digits that the network sees, as `Classify` returns them."""
    check_shape(pixels.shape[1:])
    batches = (np.ascontiguousarray(pixels[k : k + 500]) for k in range(0, len(pixels), 500))
    p = torch.cat([network(to_float(batch)).softmax(1) for batch in batches])
    confidence, digits = p[:, :NO_DIGIT].max(1)
    return digits, confidence


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise an error for images that do not have MNIST's shape (H, W, C)."""
    if tuple(shape) != SHAPE:
        got = " × ".join(map(str, shape))
        raise ValueError(
            f"the classifier of digits takes images of 28 × 28 × 1 pixels, white on black like MNIST's; got {got} "
            "(to measure other images, use scorefield evaluate)"
        )


def judge(pixels: Pixels, classifier: Classify | None = None, *, asked: Sequence[int] | None = None) -> DigitsVerdict:
    """The verdict on images, bytes (N, 28, 28, 1); by default that of the classifier in this package. `asked` are the
    digits that were asked for, −1 for any.

    accepted: the share p that is called a digit, with its standard error. histogram: how many of each digit are among
    those, h. distance_to_uniform: ½ Σ |h/Σh − 1/10|. distance_by_chance: its mean over Σh draws from ten equally likely
    digits, about 5 √(2/π · 0.09/Σh).
    """
    classifier = classifier or load_classifier()
    if not len(pixels):
        raise ValueError("there are no images to judge (give at least one)")
    digits, confidence = classifier(pixels)
    accepted = confidence > CONFIDENCE
    n, p = len(pixels), accepted.double().mean().item()
    histogram = torch.bincount(digits[accepted], minlength=10)
    total = int(histogram.sum())
    as_asked = None
    if asked is not None and (counted := accepted & (wanted := torch.tensor(asked)).ge(0)).any():
        as_asked = (digits == wanted)[counted].double().mean().item()
    return DigitsVerdict(
        n=n,
        accepted=p,
        accepted_standard_error=share_error(p, n),
        histogram=tuple(histogram.tolist()),
        distance_to_uniform=(histogram.double() / total - 0.1).abs().sum().item() / 2 if total else math.nan,
        distance_by_chance=5 * math.sqrt(2 / math.pi * 0.09 / total) if total else math.nan,
        confidence=CONFIDENCE,
        as_asked=as_asked,
    )


def share_error(p: float, n: int) -> float:
    """The standard error √(q(1 − q)/(n + 2)) of a share p of n, where q counts one more of each kind: it is never 0."""
    q = (p * n + 1) / (n + 2)
    return math.sqrt(q * (1 - q) / (n + 2))


def load_classifier(path: Path = WEIGHTS) -> Classifier:
    """The classifier in a file that scripts/train_digit_classifier.py wrote; by default the one in this package."""
    tensors, metadata = checkpoint.read(path)
    if metadata.get("kind") != KIND:
        raise ValueError(f"{path} is not a classifier of digits (scripts/train_digit_classifier.py makes one)")
    network = new_network()
    network.load_state_dict({name: v.float() if v.is_floating_point() else v for name, v in tensors.items()})
    test = from_json(ClassifierTest, json.loads(metadata["real"]), source=path)
    return Classifier(network.eval().requires_grad_(False), test, metadata["sha256"])


def new_network() -> nn.Sequential:
    """An untrained network: four convolutions and a linear layer, 111,000 weights."""

    def block(before: int, after: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
        convolution = nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU())

    return nn.Sequential(
        block(1, 24, kernel=5, stride=2),
        block(24, 48),
        nn.MaxPool2d(2),
        block(48, 80),
        block(80, 80),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(80 * 3 * 3, 11),
    ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on CPUs
