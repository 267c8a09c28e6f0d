"""An independent judge of MNIST's samples: a classifier of digits with an eleventh class, for what is no digit.

An ordinary classifier is sure of itself on anything. This one has seen images that are no digits too, made of digits
and of noise, so that more than 0.9 of confidence in a digit is a verdict. Kinds of such images that it never saw check
that it learned more than those it saw. `scorefield train-digits --out FILE` makes the weights anew, from a seed.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scorefield import data
from scorefield.models import checkpoint
from scorefield.data.images import Pixels
from scorefield.data.named import mnist_file
from scorefield.evaluation.no_digits import SEEN, UNSEEN, Kind, no_digits
from scorefield.images import to_bytes, to_float
from scorefield.progress import Track, silent
from scorefield.version import __version__

SHAPE = (28, 28, 1)
CONFIDENCE = 0.9
"""A sample is accepted where the classifier is surer than this that it is a certain digit."""
NO_DIGIT = 10
"""The class beside 0 ... 9."""
WEIGHT = 0.1
"""Of a mistake about an image that is no digit, in training: some of them could pass for one."""
WEIGHTS = Path(__file__).parent / "mnist_classifier.safetensors"

LABEL_FILES = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}
LABEL_SHA256 = {
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""Of the unpacked files."""
LABEL_MAGIC = 0x00000801


# ---------------------------------------------------------------- the judge


@dataclass(frozen=True)
class Classifier:
    """Tells digits, and what is none."""

    network: Callable[[Tensor], Tensor]
    """Images (B, 1, 28, 28) in [0, 1] -> logits (B, 11), the last of them for no digit."""
    real: dict[str, Any]
    """What it says of MNIST's test set."""
    digest: str = ""

    @torch.no_grad()
    def __call__(self, pixels: Pixels) -> tuple[Tensor, Tensor]:
        """The most likely digit of each image, (N,), and its probability among all eleven classes, (N,)."""
        check_shape(pixels.shape[1:])
        batches = (np.ascontiguousarray(pixels[k : k + 500]) for k in range(0, len(pixels), 500))
        p = torch.cat([self.network(to_float(batch)).softmax(1) for batch in batches])
        confidence, digits = p[:, :NO_DIGIT].max(1)
        return digits, confidence


def check_shape(shape: tuple[int, ...]) -> None:
    """Images of another shape (H, W, C) than MNIST's are an error."""
    if tuple(shape) != SHAPE:
        got = " × ".join(map(str, shape))
        raise ValueError(
            f"the judge of digits takes images of 28 × 28 × 1 pixels, white on black as MNIST's; got {got} "
            "(other images are measured by: scorefield evaluate)"
        )


def judge(pixels: Pixels, classifier: Classifier | None = None) -> dict[str, Any]:
    """What the classifier says of images, bytes (N, 28, 28, 1), beside what it says of MNIST's test set.

    accepted: the share p that it calls a digit, with its standard error. histogram: how many of each digit among
    those, h. distance_to_uniform: ½ Σ |h/Σh − 1/10|; distance_by_chance: its mean over as many draws of a fair die
    with ten faces, about 5 √(2/π · 0.09/Σh).
    """
    classifier = classifier or load_classifier()
    if not len(pixels):
        raise ValueError("there is no image to judge (give one at least)")
    digits, confidence = classifier(pixels)
    accepted = confidence > CONFIDENCE
    n, p = len(pixels), accepted.double().mean().item()
    histogram = torch.bincount(digits[accepted], minlength=10)
    total = int(histogram.sum())
    return {
        "n": n,
        "accepted": p,
        "accepted_standard_error": share_error(p, n),
        "histogram": histogram.tolist(),
        "distance_to_uniform": (histogram.double() / total - 0.1).abs().sum().item() / 2 if total else math.nan,
        "distance_by_chance": 5 * math.sqrt(2 / math.pi * 0.09 / total) if total else math.nan,
        "confidence": CONFIDENCE,
        "real": classifier.real,
    }


def share_error(p: float, n: int) -> float:
    """The standard error √(q(1 − q)/(n + 2)) of a share p of n, with one more of each kind, so that none is certain."""
    q = (p * n + 1) / (n + 2)
    return math.sqrt(q * (1 - q) / (n + 2))


def load_classifier(path: Path = WEIGHTS) -> Classifier:
    """The classifier in a file that `save` wrote; by default the shipped one."""
    tensors, metadata = checkpoint.read(path)
    if metadata.get("kind") != "scorefield digit classifier":
        raise ValueError(f"{path} is no classifier of digits (scorefield train-digits makes one)")
    network = new_network()
    network.load_state_dict({name: v.float() if v.is_floating_point() else v for name, v in tensors.items()})
    return Classifier(network.eval().requires_grad_(False), json.loads(metadata["real"]), metadata["sha256"])


# ---------------------------------------------------------------- its training


def new_network() -> nn.Sequential:
    """Four convolutions and a linear layer, 111,000 weights."""

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


def train(
    pixels: Pixels,
    labels: Tensor,
    *,
    passes: int = 10,
    batch_size: int = 128,
    learning_rate: float = 3e-3,
    seed: int = 0,
    track: Track[tuple[Tensor, Tensor]] = silent,
) -> nn.Sequential:
    """A network that tells the digits of these labels, and images that are none: made of them anew for each pass.

    A function of the arguments alone, on one kind of machine. About a minute for each pass on one core.
    """
    steps = passes * (len(pixels) // batch_size)
    if not steps:
        raise ValueError(f"{len(pixels)} images are too few for batches of {batch_size} (set a smaller batch_size)")
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = new_network().train()
    optimizer = torch.optim.AdamW(network.parameters())
    weight = torch.ones(11).index_fill(0, torch.tensor(NO_DIGIT), WEIGHT)
    batches = _batches(pixels, labels, passes=passes, size=batch_size, generator=generator)
    for step, (x, classes) in enumerate(track(batches, "training the classifier", steps)):
        done = step / steps
        optimizer.param_groups[0]["lr"] = learning_rate * min(0.01 + done / 0.15, (1 - done) / 0.85)
        optimizer.zero_grad()
        F.cross_entropy(network(x), classes, weight=weight).backward()
        optimizer.step()
    return network.eval()


def _batches(
    pixels: Pixels, labels: Tensor, *, passes: int, size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """`size` digits and half as many images that are none, half of them warped, all noisy, with their classes."""
    count = len(pixels) // size
    for _ in range(passes):
        order = torch.randperm(len(pixels), generator=generator)[: count * size]
        others = no_digits(to_float(pixels[order[: len(order) // 2]]), labels[order[: len(order) // 2]], generator)
        shuffled = others[torch.randperm(len(others), generator=generator)]
        for digits, none in zip(order.split(size), shuffled.split(size // 2), strict=False):
            x = torch.cat([to_float(pixels[digits]), none])
            x = torch.where(torch.rand(len(x), 1, 1, 1, generator=generator) < 0.5, x, _warped(x, generator))
            deviation = 0.03 * torch.rand(len(x), 1, 1, 1, generator=generator)
            x = (x + deviation * torch.randn(x.shape, generator=generator)).clamp(0, 1)
            yield (
                x.contiguous(memory_format=torch.channels_last),
                torch.cat([labels[digits], torch.full((len(none),), NO_DIGIT)]),
            )


def _warped(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images turned by up to 11 degrees, sheared, scaled by up to 12 % and shifted by up to 2 pixels."""
    most = torch.tensor([0.2, 0.15, 0.12, 0.12, 2 / 14, 2 / 14])
    angle, shear, wide, high, right, down = ((2 * torch.rand(len(x), 6, generator=generator) - 1) * most).T
    first = torch.stack([angle.cos() * wide.exp(), shear - angle.sin(), right], dim=1)
    second = torch.stack([angle.sin(), angle.cos() * high.exp(), down], dim=1)
    places = F.affine_grid(torch.stack([first, second], dim=1), list(x.shape), align_corners=False)
    return F.grid_sample(x, places, align_corners=False)


def measured(classifier: Classifier, pixels: Pixels, labels: Tensor) -> dict[str, Any]:
    """The classifier's numbers on digits that it has not learned from, and on images that are no digits made of them.

    accuracy: the share whose most likely digit is right. noisy_accepted: as samples come, with noise of standard
    deviation 0.01. rejected: the share of each kind that is not called a digit; rejected_unseen: of kinds not learned.
    """
    generator = torch.Generator().manual_seed(0)
    x = to_float(pixels)
    noisy = to_bytes(x + 0.01 * torch.randn(x.shape, generator=generator))

    def rejected(kind: Kind) -> float:
        return 1 - judge(to_bytes(no_digits(x, labels, generator, {"one": kind})), classifier)["accepted"]

    told = judge(pixels, classifier)
    return {
        "accuracy": (classifier(pixels)[0] == labels).double().mean().item(),
        **{name: told[name] for name in ("n", "accepted", "histogram", "distance_to_uniform")},
        "noisy_accepted": judge(noisy, classifier)["accepted"],
        "rejected": {name: rejected(kind) for name, kind in SEEN.items()},
        "rejected_unseen": {name: rejected(kind) for name, kind in UNSEEN.items()},
    }


def save(path: Path, network: nn.Sequential, real: dict[str, Any], facts: dict[str, str]) -> None:
    """A file for `load_classifier`, its weights in float16, with what the classifier says of real digits."""
    tensors = {name: v.half() if v.is_floating_point() else v for name, v in network.state_dict().items()}
    kind = {"kind": "scorefield digit classifier", "version": __version__, "real": json.dumps(real)}
    checkpoint.write(path, tensors, {**facts, **kind})


def make(path: Path, *, seed: int = 0, track: Track[Any] = silent) -> dict[str, Any]:
    """Train on MNIST's training set, write the weights, and return the numbers on its test set."""
    training, test = (data.load(name, track=track) for name in ("mnist", "mnist:test"))
    labels = {part: labels_of(part, track=track) for part in ("train", "test")}
    for images, part in ((training, "train"), (test, "test")):
        if len(images) != len(labels[part]):
            raise ValueError(f"mnist: {len(images)} images, but {len(labels[part])} labels in {LABEL_FILES[part]}")
    network = train(training.pixels, labels["train"], seed=seed, track=track)
    network.half().float()  # as it will be read again
    real = measured(Classifier(network, {}), test.pixels, labels["test"])
    save(path, network, real, {"made_by": f"scorefield train-digits --seed {seed}", "data_digest": training.digest})
    return real


# ---------------------------------------------------------------- labels


def labels_of(part: str, *, track: Track[Any] = silent) -> Tensor:
    """MNIST's labels, (N,)."""
    name = LABEL_FILES[part]
    return _idx(*mnist_file(name, LABEL_SHA256[name], track=track))


def _idx(content: bytes, path: Path) -> Tensor:
    """IDX: a magic number (unsigned bytes, one axis), its length, both big-endian, and the bytes."""
    magic, n = struct.unpack(">2I", content[:8].ljust(8, b"\0"))
    found = np.frombuffer(content, np.uint8, offset=min(8, len(content)))
    if magic != LABEL_MAGIC or n != len(found) or not n or found.max() > 9:
        raise ValueError(f"{path} is no IDX file of labels 0 ... 9 (delete it, and it is downloaded anew)")
    return torch.tensor(found).long()
