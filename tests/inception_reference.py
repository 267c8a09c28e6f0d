"""The FID network once more, written from its published architecture and without any code of scorefield.

Inception v3 (Szegedy et al., 2015, Table 1) as TensorFlow released it on 2015-12-05: each convolution is followed by
batch normalisation with ε = 0.001 and a ReLU; average pooling does not count the padding; and the last block pools by
the maximum. Names and order of the tensors are those of the file pt_inception-2015-12-05-6726825d.pth. The weights are
numbers from a counter, scaled so that every branch, kernel, padding and ε leaves its mark on the features.

    python tests/inception_reference.py    # writes tests/golden/inception.npz, with which test_inception.py compares
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

GOLDEN = Path(__file__).parent / "golden" / "inception.npz"
SIZE = (139, 107)
"""Height and width of the input: the last blocks see 3 × 2 pixels, so that height and width, the padding and the kind
of pooling matter there too."""
EPSILON = 0.001
SHOWN = 8
"""Every eighth feature is kept in the file."""

Tensors = dict[str, Tensor]


def uniform(shape: tuple[int, ...], stream: int) -> NDArray[np.float64]:
    """Numbers in (−1, 1) that depend on their place and the stream alone, the same with any version of any library."""
    x = np.arange(int(np.prod(shape)), dtype=np.uint32) + np.uint32(stream * 0x9E3779B1 & 0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):  # the finalizer of MurmurHash3
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    return ((x.astype(np.float64) + 0.5) / 2**31 - 1).reshape(shape)


def layers() -> dict[str, tuple[int, int, int, int]]:
    """Channels out, channels in, height and width of every convolution's kernel, by name, in the file's order."""
    found: dict[str, tuple[int, int, int, int]] = {}

    def conv(name: str, before: int, after: int, height: int = 1, width: int | None = None) -> None:
        found[name] = (after, before, height, width or height)

    conv("Conv2d_1a_3x3", 3, 32, 3)
    conv("Conv2d_2a_3x3", 32, 32, 3)
    conv("Conv2d_2b_3x3", 32, 64, 3)
    conv("Conv2d_3b_1x1", 64, 80)
    conv("Conv2d_4a_3x3", 80, 192, 3)
    for block, n, pooled in (("Mixed_5b", 192, 32), ("Mixed_5c", 256, 64), ("Mixed_5d", 288, 64)):
        conv(f"{block}.branch1x1", n, 64)
        conv(f"{block}.branch5x5_1", n, 48)
        conv(f"{block}.branch5x5_2", 48, 64, 5)
        conv(f"{block}.branch3x3dbl_1", n, 64)
        conv(f"{block}.branch3x3dbl_2", 64, 96, 3)
        conv(f"{block}.branch3x3dbl_3", 96, 96, 3)
        conv(f"{block}.branch_pool", n, pooled)
    conv("Mixed_6a.branch3x3", 288, 384, 3)
    conv("Mixed_6a.branch3x3dbl_1", 288, 64)
    conv("Mixed_6a.branch3x3dbl_2", 64, 96, 3)
    conv("Mixed_6a.branch3x3dbl_3", 96, 96, 3)
    for block, c in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        conv(f"{block}.branch1x1", 768, 192)
        conv(f"{block}.branch7x7_1", 768, c)
        conv(f"{block}.branch7x7_2", c, c, 1, 7)
        conv(f"{block}.branch7x7_3", c, 192, 7, 1)
        conv(f"{block}.branch7x7dbl_1", 768, c)
        conv(f"{block}.branch7x7dbl_2", c, c, 7, 1)
        conv(f"{block}.branch7x7dbl_3", c, c, 1, 7)
        conv(f"{block}.branch7x7dbl_4", c, c, 7, 1)
        conv(f"{block}.branch7x7dbl_5", c, 192, 1, 7)
        conv(f"{block}.branch_pool", 768, 192)
    conv("Mixed_7a.branch3x3_1", 768, 192)
    conv("Mixed_7a.branch3x3_2", 192, 320, 3)
    conv("Mixed_7a.branch7x7x3_1", 768, 192)
    conv("Mixed_7a.branch7x7x3_2", 192, 192, 1, 7)
    conv("Mixed_7a.branch7x7x3_3", 192, 192, 7, 1)
    conv("Mixed_7a.branch7x7x3_4", 192, 192, 3)
    for block, n in (("Mixed_7b", 1280), ("Mixed_7c", 2048)):
        conv(f"{block}.branch1x1", n, 320)
        conv(f"{block}.branch3x3_1", n, 384)
        conv(f"{block}.branch3x3_2a", 384, 384, 1, 3)
        conv(f"{block}.branch3x3_2b", 384, 384, 3, 1)
        conv(f"{block}.branch3x3dbl_1", n, 448)
        conv(f"{block}.branch3x3dbl_2", 448, 384, 3)
        conv(f"{block}.branch3x3dbl_3a", 384, 384, 1, 3)
        conv(f"{block}.branch3x3dbl_3b", 384, 384, 3, 1)
        conv(f"{block}.branch_pool", n, 192)
    return found


def weights() -> Tensors:
    """A state dict with the names, shapes and order of the published file. Variances are small, so that ε matters."""
    made: Tensors = {}
    for k, (name, shape) in enumerate(layers().items()):
        after, fan_in = shape[:1], int(np.prod(shape[1:]))
        variance = 0.01 * (1 + 0.8 * uniform(after, 6 * k + 1))
        made[f"{name}.conv.weight"] = _tensor(uniform(shape, 6 * k) * np.sqrt(0.06 / fan_in))
        made[f"{name}.bn.weight"] = _tensor(1 + 0.3 * uniform(after, 6 * k + 2))
        made[f"{name}.bn.bias"] = _tensor(0.2 * uniform(after, 6 * k + 3))
        made[f"{name}.bn.running_mean"] = _tensor(0.02 * uniform(after, 6 * k + 4))
        made[f"{name}.bn.running_var"] = _tensor(variance)
    return made


def image() -> Tensor:
    """An input of the first convolution, (1, 3, H, W) in (−1, 1): smooth, with noise."""
    y, x = np.meshgrid(np.linspace(0, 3, SIZE[0]), np.linspace(0, 2, SIZE[1]), indexing="ij")
    smooth = np.stack([np.sin(2 * y + x), np.cos(3 * x - y), np.sin(5 * x * y)])
    return _tensor(0.6 * smooth + 0.4 * uniform((3, *SIZE), 10_000))[None]


def pixels() -> NDArray[np.uint8]:
    """An image as bytes, (1, 20, 24, 3)."""
    return np.floor((uniform((1, 20, 24, 3), 10_001) + 1) * 128).astype(np.uint8)


def prepared(pixels: NDArray[np.uint8], size: int = 299) -> Tensor:
    """Bytes (1, H, W, 3) as the network's input, (1, 3, 299, 299): resized as TensorFlow 1 does, pixel i from i · H/299
    on, between the two pixels that it lies between, and then (x − 128)/128."""
    (image,) = pixels.astype(np.float64)
    for axis in (0, 1):
        old = image.shape[axis]
        place = np.arange(size) * (old / size)
        low = np.floor(place).astype(int)
        share = np.expand_dims(place - low, (1, 2) if axis == 0 else (0, 2))
        first, second = image.take(low, axis), image.take(np.minimum(low + 1, old - 1), axis)
        image = first * (1 - share) + second * share
    return torch.from_numpy((image - 128) / 128).permute(2, 0, 1)[None]


def _tensor(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))


def stages(tensors: Tensors, x: Tensor) -> dict[str, Tensor]:
    """The outputs of all layers and blocks, in float64, by name."""

    def conv(name: str, x: Tensor, *, stride: int = 1, padding: tuple[int, int] = (0, 0)) -> Tensor:
        x = F.conv2d(x, tensors[f"{name}.conv.weight"].double(), stride=stride, padding=padding)
        names = ("running_mean", "running_var", "weight", "bias")
        mean, var, scale, shift = (tensors[f"{name}.bn.{each}"].double() for each in names)
        return F.relu(F.batch_norm(x, mean, var, scale, shift, eps=EPSILON))

    def mean(x: Tensor) -> Tensor:
        """The mean over 3 × 3 pixels, of those that are inside the image."""
        total = F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 1)
        return total / F.avg_pool2d(F.pad(torch.ones_like(x), (1, 1, 1, 1)), 3, 1)

    def highest(x: Tensor) -> Tensor:
        return F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=float("-inf")), 3, 1)

    def block_5(name: str, x: Tensor) -> list[Tensor]:
        five = conv(f"{name}.branch5x5_2", conv(f"{name}.branch5x5_1", x), padding=(2, 2))
        double = conv(f"{name}.branch3x3dbl_2", conv(f"{name}.branch3x3dbl_1", x), padding=(1, 1))
        double = conv(f"{name}.branch3x3dbl_3", double, padding=(1, 1))
        return [conv(f"{name}.branch1x1", x), five, double, conv(f"{name}.branch_pool", mean(x))]

    def block_6(name: str, x: Tensor) -> list[Tensor]:
        seven = conv(f"{name}.branch7x7_2", conv(f"{name}.branch7x7_1", x), padding=(0, 3))
        seven = conv(f"{name}.branch7x7_3", seven, padding=(3, 0))
        double = conv(f"{name}.branch7x7dbl_2", conv(f"{name}.branch7x7dbl_1", x), padding=(3, 0))
        double = conv(f"{name}.branch7x7dbl_3", double, padding=(0, 3))
        double = conv(f"{name}.branch7x7dbl_4", double, padding=(3, 0))
        double = conv(f"{name}.branch7x7dbl_5", double, padding=(0, 3))
        return [conv(f"{name}.branch1x1", x), seven, double, conv(f"{name}.branch_pool", mean(x))]

    def block_7(name: str, x: Tensor, pooled: Tensor) -> list[Tensor]:
        three = conv(f"{name}.branch3x3_1", x)
        wide, high = (conv(f"{name}.branch3x3_2{k}", three, padding=p) for k, p in (("a", (0, 1)), ("b", (1, 0))))
        double = conv(f"{name}.branch3x3dbl_2", conv(f"{name}.branch3x3dbl_1", x), padding=(1, 1))
        wider, higher = (
            conv(f"{name}.branch3x3dbl_3{k}", double, padding=p) for k, p in (("a", (0, 1)), ("b", (1, 0)))
        )
        return [conv(f"{name}.branch1x1", x), wide, high, wider, higher, conv(f"{name}.branch_pool", pooled)]

    found: dict[str, Tensor] = {}

    def keep(name: str, *parts: Tensor) -> Tensor:
        found[name] = torch.cat(parts, 1)
        return found[name]

    x = keep("1a", conv("Conv2d_1a_3x3", x.double(), stride=2))
    x = keep("2a", conv("Conv2d_2a_3x3", x))
    x = keep("2b", conv("Conv2d_2b_3x3", x, padding=(1, 1)))
    x = keep("3a", F.max_pool2d(x, 3, 2))
    x = keep("3b", conv("Conv2d_3b_1x1", x))
    x = keep("4a", conv("Conv2d_4a_3x3", x))
    x = keep("5a", F.max_pool2d(x, 3, 2))
    for name in ("5b", "5c", "5d"):
        x = keep(name, *block_5(f"Mixed_{name}", x))
    double = conv("Mixed_6a.branch3x3dbl_2", conv("Mixed_6a.branch3x3dbl_1", x), padding=(1, 1))
    double = conv("Mixed_6a.branch3x3dbl_3", double, stride=2)
    x = keep("6a", conv("Mixed_6a.branch3x3", x, stride=2), double, F.max_pool2d(x, 3, 2))
    for name in ("6b", "6c", "6d", "6e"):
        x = keep(name, *block_6(f"Mixed_{name}", x))
    three = conv("Mixed_7a.branch3x3_2", conv("Mixed_7a.branch3x3_1", x), stride=2)
    seven = conv("Mixed_7a.branch7x7x3_2", conv("Mixed_7a.branch7x7x3_1", x), padding=(0, 3))
    seven = conv("Mixed_7a.branch7x7x3_3", seven, padding=(3, 0))
    seven = conv("Mixed_7a.branch7x7x3_4", seven, stride=2)
    x = keep("7a", three, seven, F.max_pool2d(x, 3, 2))
    x = keep("7b", *block_7("Mixed_7b", x, mean(x)))
    keep("7c", *block_7("Mixed_7c", x, highest(x)))
    return found


def summary(output: Tensor) -> NDArray[np.float64]:
    """A few numbers that tell a stage's output from others: its size, mean, and the sum of each quarter of its channels
    weighted by their places."""
    (values,) = output.double()
    weight = torch.linspace(1, 2, values[0].numel(), dtype=torch.float64).view(values.shape[1:])
    parts = [(part * weight).mean() for part in values.tensor_split(4)]
    return torch.stack([torch.tensor(values.numel()), values.mean(), *parts]).numpy()


if __name__ == "__main__":
    with torch.no_grad():
        made = stages(weights(), image())
        whole = stages(weights(), prepared(pixels()))
    features, of_pixels = (each["7c"].mean((2, 3))[0, ::SHOWN].numpy().astype(np.float32) for each in (made, whole))
    summaries = np.stack([summary(output) for output in made.values()])
    np.savez_compressed(GOLDEN, stages=summaries, features=features, features_of_pixels=of_pixels)
