"""Train the classifier behind `scorefield digits` again: about twelve minutes on one core.

    python scripts/train_digit_classifier.py --out classifier.safetensors [--seed 0]

It needs MNIST with its labels (see the README on data; they are downloaded if necessary). It prints the accuracy on the
test set, and the share of images that it rejects of each kind that is not a digit: kinds that it was trained on, and
kinds that it was not. The weights of seed 0 are scorefield/evaluation/mnist_classifier.safetensors.

The classifier has an eleventh class, for images that are not digits. They are made from digits and from noise, anew for
each pass through the data. Each kind is a function of digits x, as many digits y of other classes, and a random
generator. All images are floats (N, 1, 28, 28); values outside [0, 1] are clipped in the end.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from scorefield import data
from scorefield.data.images import Images, Pixels
from scorefield.evaluation.digits import KIND, NO_DIGIT, Network, classify, judge, new_network
from scorefield.evaluation.records import ClassifierTest
from scorefield.images import to_bytes, to_float
from scorefield.models import checkpoint
from scorefield.progress import Track, silent, track
from scorefield.version import __version__

WEIGHT = 0.1
"""Weight of mistakes about images that are not digits in the loss: some of those images could pass for a digit."""
SIDE = 28
Kind = Callable[[Tensor, Tensor, Generator], Tensor]


def main(arguments: list[str] | None = None) -> None:
    """Train on MNIST's training set, measure on its test set, and write the weights."""
    parser = argparse.ArgumentParser(
        description="Train the classifier behind `scorefield digits` again: about twelve minutes on one core."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.safetensors", help="File for the weights.")
    parser.add_argument("--seed", type=int, default=0, help="Another seed gives another classifier.")
    options = parser.parse_args(arguments)
    if options.out.suffix != ".safetensors":
        parser.error(f"classifiers are .safetensors files; got --out {options.out} (name it FILE.safetensors)")
    test = make(options.out, seed=options.seed, track=track)
    print(
        f"MNIST's test set: accuracy {test.accuracy:.2%}, accepted as digits {test.accepted:.2%}, with noise "
        f"{test.noisy_accepted:.2%}",
        file=sys.stderr,
    )
    for kinds, words in ((test.rejected, "trained on"), (test.rejected_unseen, "not trained on")):
        for name, share in kinds.items():
            print(f"  {name:12} rejected {share:.2%}   {words}", file=sys.stderr)
    print(options.out)


def make(path: Path, *, seed: int = 0, track: Track[Any] = silent) -> ClassifierTest:
    """Train on MNIST's training set, write the weights, and return the test on its test set."""
    training, test = (data.load(name, track=track) for name in ("mnist", "mnist:test"))
    labels, test_labels = (_labels(images) for images in (training, test))
    network = train(training.pixels, labels, seed=seed, track=track)
    network.half().float()  # as it will be after reading the file
    found = measure(network, test.pixels, test_labels)
    save(path, network, found, {"made_by": f"train_digit_classifier.py --seed {seed}", "data_digest": training.digest})
    return found


def _labels(images: Images) -> Tensor:
    if images.labels is None:
        raise FileNotFoundError(f"the labels of {images.name} are missing (put MNIST's label files beside the images)")
    return torch.tensor(images.labels)


def save(path: Path, network: nn.Sequential, test: ClassifierTest, metadata: dict[str, str]) -> None:
    """A file for `load_classifier`, with the weights in float16 and the test of the classifier."""
    tensors = {name: v.half() if v.is_floating_point() else v for name, v in network.state_dict().items()}
    checkpoint.write(
        path, tensors, {**metadata, "kind": KIND, "version": __version__, "real": json.dumps(asdict(test))}
    )


# ---------------------------------------------------------------- training


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
    """A network that distinguishes the digits with these labels, and images that are not digits.

    The result depends on the arguments alone, on the same kind of machine. A pass takes about a minute on one core.
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
    pixels: Pixels, labels: Tensor, *, passes: int, size: int, generator: Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """`size` digits and half as many images that are not, with their classes; half of all warped, all with noise."""
    count = len(pixels) // size
    for _ in range(passes):
        order = torch.randperm(len(pixels), generator=generator)[: count * size]
        half = order[: len(order) // 2]
        others = no_digits(to_float(pixels[half]), labels[half], generator)
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


def _warped(x: Tensor, generator: Generator) -> Tensor:
    """Images rotated by up to 11 degrees, sheared, scaled by up to 12 % and shifted by up to 2 pixels."""
    most = torch.tensor([0.2, 0.15, 0.12, 0.12, 2 / 14, 2 / 14])
    angle, shear, wide, high, right, down = ((2 * torch.rand(len(x), 6, generator=generator) - 1) * most).T
    first = torch.stack([angle.cos() * wide.exp(), shear - angle.sin(), right], dim=1)
    second = torch.stack([angle.sin(), angle.cos() * high.exp(), down], dim=1)
    places = F.affine_grid(torch.stack([first, second], dim=1), list(x.shape), align_corners=False)
    return F.grid_sample(x, places, align_corners=False)


def measure(network: Network, pixels: Pixels, labels: Tensor) -> ClassifierTest:
    """Test the network on digits that it was not trained on, and on images that are not digits, made from them.

    accuracy: the share whose most likely digit is right. noisy_accepted: with noise of standard deviation 0.01, which
    samples have. rejected: the share of each kind that is not accepted as a digit.
    """
    generator = torch.Generator().manual_seed(0)
    x, classifier = to_float(pixels), partial(classify, network)
    noisy = to_bytes(x + 0.01 * torch.randn(x.shape, generator=generator))
    verdict = judge(pixels, classifier)
    noisy_accepted = judge(noisy, classifier).accepted

    def rejected(kinds: Mapping[str, Kind]) -> dict[str, float]:
        made = ((name, to_bytes(no_digits(x, labels, generator, {name: kind}))) for name, kind in kinds.items())
        return {name: 1 - judge(images, classifier).accepted for name, images in made}

    return ClassifierTest(
        accuracy=(classifier(pixels)[0] == labels).double().mean().item(),
        n=verdict.n,
        accepted=verdict.accepted,
        histogram=verdict.histogram,
        distance_to_uniform=verdict.distance_to_uniform,
        noisy_accepted=noisy_accepted,
        rejected=rejected(SEEN),
        rejected_unseen=rejected(UNSEEN),
    )


# ---------------------------------------------------------------- images that are not digits


def no_digits(x: Tensor, labels: Tensor, generator: Generator, kinds: Mapping[str, Kind] | None = None) -> Tensor:
    """As many images that are not digits as there are digits x, (N, 1, 28, 28), in equal numbers of each kind."""
    kinds = SEEN if kinds is None else kinds
    x, y = _pairs(x, labels, generator)
    parts = [kind(x[k :: len(kinds)], y[k :: len(kinds)], generator) for k, kind in enumerate(kinds.values())]
    return torch.cat(parts).clamp(0, 1)


def _pairs(x: Tensor, labels: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """The digits in a random order, and for each one of another class: among digits sorted by class, one far away."""
    n = len(x)
    x = x[labels.argsort(stable=True)]
    far = torch.randint(n // 4, n - n // 4 + 1, (n,), generator=generator)
    order = torch.randperm(n, generator=generator)
    return x[order], x[(order + far) % n]


def _each(x: Tensor, generator: Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """A uniform random number for each image."""
    return low + (high - low) * torch.rand(len(x), 1, 1, 1, generator=generator)


def _moved(x: Tensor, by: Tensor) -> Tensor:
    """Each pixel replaced by the one at an offset (right, down) in pixels, (N, 28, 28, 2)."""
    ticks = torch.linspace(-1, 1, SIDE)
    places = torch.stack(torch.meshgrid(ticks, ticks, indexing="xy"), dim=-1)
    return F.grid_sample(x, places + by * 2 / (SIDE - 1), align_corners=True)


def _shifted(x: Tensor, generator: Generator, most: int) -> Tensor:
    by = torch.randint(-most, most + 1, (len(x), 1, 1, 2), generator=generator)
    return _moved(x, by.expand(-1, SIDE, SIDE, -1))


def _shuffled(x: Tensor, size: int, generator: Generator) -> Tensor:
    """Images cut into squares of this size, which are put in a random order."""
    squares = F.unfold(x, size, stride=size)
    order = torch.rand(len(x), 1, squares.shape[2], generator=generator).argsort(2)
    return F.fold(squares.gather(2, order.expand_as(squares)), (SIDE, SIDE), size, stride=size)


def _waves(x: Tensor, points: int, generator: Generator) -> Tensor:
    """A smooth random function on each image, interpolated from normal values at points × points positions."""
    return F.interpolate(
        torch.randn(len(x), 1, points, points, generator=generator), (SIDE, SIDE), mode="bicubic", align_corners=True
    )


# ---------------------------------------------------------------- kinds that the classifier is trained on


def noise(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Uniform noise, sparse or dense, faint or strong, half of it blurred."""
    there = torch.rand(x.shape, generator=generator) < _each(x, generator, 0.05)
    made = torch.rand(x.shape, generator=generator) * there
    made = torch.where(_each(x, generator) < 0.5, made, 1.5 * F.avg_pool2d(made, 3, stride=1, padding=1))
    return made * _each(x, generator, 0.3)


def drowned(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Digits with strong noise, as they are when annealing ends too early."""
    return x + _each(x, generator, 0.2, 0.6) * torch.randn(x.shape, generator=generator)


def permuted(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """The pixels of a digit in a random order."""
    return _shuffled(x, 1, generator)


def patches(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """The squares of 4 × 4 or 7 × 7 pixels of a digit in a random order."""
    return torch.where(_each(x, generator) < 0.5, _shuffled(x, 4, generator), _shuffled(x, 7, generator))


def rolled(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Halves exchanged: upper and lower, left and right, or both."""
    which = _each(x, generator, 0, 3)
    across = torch.where(which < 2, x.roll(14, 3), x.roll((14, 14), (2, 3)))
    return torch.where(which < 1, x.roll(14, 2), across)


def composed(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Two digits on top of each other, or half of one and half of the other."""
    first = torch.arange(SIDE) < SIDE // 2
    other = _shifted(y, generator, 3)
    halves = torch.where(_each(x, generator) < 0.5, first, first[:, None])
    return torch.where(_each(x, generator) < 0.6, torch.maximum(x, other), torch.where(halves, x, other))


def smeared(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """A digit distorted by 5 to 9 pixels in random directions."""
    by = torch.cat([_waves(x, 5, generator), _waves(x, 5, generator)], dim=1)
    return _moved(x, (by * _each(x, generator, 5, 9)).permute(0, 2, 3, 1))


def strokes(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Two to four curved strokes anywhere: b(t) = (1 − t)² a + 2t(1 − t) b + t² c."""
    n, most = len(x), 4
    a, b, c = 2 + 24 * torch.rand(3, n, most, 1, 2, generator=generator)
    t = torch.linspace(0, 1, 20)[:, None]
    points = (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c
    absent = torch.arange(most) >= torch.randint(2, most + 1, (n, 1), generator=generator)
    points[absent] = 1000.0
    pixels = torch.cartesian_prod(torch.arange(float(SIDE)), torch.arange(float(SIDE)))
    parts = [torch.cdist(pixels, part).amin(2) for part in points.flatten(1, 2).split(256)]
    return _each(x, generator, 1.3, 2.8) - torch.cat(parts).reshape(x.shape)


def blobs(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Spots where a smooth random function is high, or curves where it is near 0; in the whole image or in a disc."""
    f = torch.where(_each(x, generator) < 0.5, _waves(x, 5, generator), _waves(x, 8, generator))
    spots, curves = 3 * (f - _each(x, generator, 0.2, 0.9)), 1.4 - 4 * f.abs()
    ticks = torch.arange(SIDE) - (SIDE - 1) / 2
    disc = ticks**2 + ticks[:, None] ** 2 < _each(x, generator, 8, 18) ** 2
    return torch.where(_each(x, generator) < 0.5, spots, curves) * disc


def blank(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Black, grey, or black with a few dots."""
    grey = _each(x, generator) * (_each(x, generator) < 0.4)
    return grey + (torch.rand(x.shape, generator=generator) < _each(x, generator, -0.02, 0.02))


def inverted(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Black or grey on white."""
    return 1 - x * _each(x, generator, 0.3)


# ---------------------------------------------------------------- kinds that it is only tested on


def scrambled(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """A digit's Fourier transform with the phases of noise: strokes everywhere, but no digit."""
    phases = torch.fft.rfft2(torch.rand(x.shape, generator=generator)).angle()
    made = torch.fft.irfft2(torch.polar(torch.fft.rfft2(x).abs(), phases), s=(SIDE, SIDE))
    return made / made.amax((2, 3), keepdim=True)


def torn(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Strips of four rows, each shifted to the side by up to 8 pixels."""
    by = torch.randint(-8, 9, (len(x), SIDE // 4), generator=generator).repeat_interleave(4, dim=1)
    right = by[:, :, None].expand(-1, -1, SIDE)
    return _moved(x, torch.stack([right, torch.zeros_like(right)], dim=-1))


def averaged(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """The mean of two digits."""
    return (x + y) / 2


def pair(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Two digits, narrow, side by side."""
    return torch.cat([F.avg_pool2d(x, (1, 2)), F.avg_pool2d(y, (1, 2))], dim=3)


def four(x: Tensor, y: Tensor, generator: Generator) -> Tensor:
    """Four small digits."""
    above, below = pair(x, y, generator), pair(y, x, generator)
    return torch.cat([F.avg_pool2d(above, (2, 1)), F.avg_pool2d(below, (2, 1))], dim=2)


SEEN: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (noise, drowned, permuted, patches, rolled, composed, smeared, strokes, blobs, blank, inverted)
}
UNSEEN: dict[str, Kind] = {kind.__name__: kind for kind in (scrambled, torn, averaged, pair, four)}


if __name__ == "__main__":
    main()
