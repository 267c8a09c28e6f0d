"""The pretrained models: what each is, how good it is, and the size and checksum of its file.

A new model is one entry of `_ENTRIES`. Its file is called NAME.safetensors; it lies in scorefield/weights/ if the
package is to hold it, in weights/ of the checkout otherwise, and on the server that `pretrained.py` names.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quality:
    """How good samples of a model are: FID against its training images. From docs/results/NAME/report.json."""

    fid: float
    n: int
    """The number of samples."""
    calls: int
    """Network calls per sample."""
    denoised: bool = False
    """Whether the samples had a last denoising step."""

    def __str__(self) -> str:
        return f"FID {self.fid:.2f} (n = {self.n:,}, {self.calls:,} calls{', denoised' if self.denoised else ''})"


@dataclass(frozen=True)
class Digits:
    """How good samples of digits are: the share that the classifier accepts. From docs/results/NAME/digits.json."""

    accepted: float
    n: int
    calls: int

    def __str__(self) -> str:
        return f"{self.accepted:.1%} accepted as digits (n = {self.n:,}, {self.calls:,} calls)"


@dataclass(frozen=True)
class Entry:
    """A pretrained model."""

    name: str
    about: str
    data: str
    """The data set that it was trained on, a key of `TERMS`."""
    size: int
    """Of the file, in bytes."""
    sha256: str
    """Of the file."""
    quality: Quality | Digits

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.safetensors"


TERMS = {
    "MNIST": "Creative Commons Attribution-Share Alike 3.0",
    "CIFAR-10": "its authors state no licence; they ask to cite Krizhevsky (2009)",
    "CelebA": "non-commercial research only, by its authors' agreement",
}
"""The terms of the data sets, by title."""

_ENTRIES = (
    Entry(
        name="unet-mnist",
        about="a U-Net for all noise levels, 0.863 M parameters, ten classes, 28 × 28 grey",
        data="MNIST",
        size=1_733_900,
        sha256="35663cde410625657308865c86e96281e5801c5c600c4bc03e1cf9ce0f6f0b81",
        quality=Digits(0.917, n=10_000, calls=10),
    ),
    Entry(
        name="mnist",
        about="the paper's network, 7.64 M parameters, 28 × 28 grey",
        data="MNIST",
        size=15_310_138,
        sha256="e6d04b1ccd904a5b69969b3438c1553c3df87e209a840eabf49592659895e57f",
        quality=Quality(9.80, n=10_000, calls=1001, denoised=True),
    ),
    Entry(
        name="mnist-small",
        about="the same with a quarter of the width, 0.519 M parameters, 28 × 28 grey",
        data="MNIST",
        size=1_069_346,
        sha256="fe3323da3eabe0594b5e8c7166b873c16c28e3f34923b1db95598bd65c111b9e",
        quality=Quality(4.25, n=10_000, calls=1001, denoised=True),
    ),
    Entry(
        name="cifar10",
        about="the paper's network, 30.1 M parameters, 32 × 32 colour",
        data="CIFAR-10",
        size=60_268_542,
        sha256="fefb2073680adf09c5624a8faf7d61a579364fc34e0dd824af13940cfccad85f",
        quality=Quality(24.37, n=10_000, calls=1001, denoised=True),
    ),
    Entry(
        name="celeba",
        about="the paper's network, 30.1 M parameters, faces, 32 × 32 colour",
        data="CelebA",
        size=60_268_694,
        sha256="64e8d0f715b1e60c435e41a7d759dbae4e250741c306a1413062c23440657d8a",
        quality=Quality(6.21, n=10_000, calls=1001, denoised=True),
    ),
)

MODELS = {entry.name: entry for entry in _ENTRIES}
"""The pretrained models by name."""
