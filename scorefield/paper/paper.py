"""What the paper shows and reports of its image models, with the place in it: Song & Ermon (2019), arXiv 1907.05600."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TableRow(NamedTuple):
    """A row of Table 1, as printed there; None where it has a dash."""

    model: str
    inception: str
    fid: str | None
    trained: str = "–"
    """For how long, which the table does not tell; of NCSN, appendix B.2 does."""


TABLE_1 = {
    "CIFAR-10, unconditional": (
        TableRow("PixelCNN", "4.60", "65.93"),
        TableRow("PixelIQN", "5.29", "49.46"),
        TableRow("EBM", "6.02", "40.58"),
        TableRow("WGAN-GP", "7.86 ± .07", "36.4"),
        TableRow("MoLM", "7.90 ± .10", "18.9"),
        TableRow("SNGAN", "8.22 ± .05", "21.7"),
        TableRow("ProgressiveGAN", "8.80 ± .05", None),
        TableRow("NCSN", "8.87 ± .12", "25.32", "the best of 40 checkpoints of 200,000 iterations"),
    ),
    "CIFAR-10, conditional": (
        TableRow("EBM", "8.30", "37.9"),
        TableRow("SNGAN", "8.60 ± .08", "25.5"),
        TableRow("BigGAN", "9.22", "14.73"),
    ),
}
"""Inception score and FID: NCSN's of 50,000 samples (appendix B.2); of how many the others' are, it does not say."""


class Exhibit(NamedTuple):
    """A figure of the paper, in words, and which picture of which of our reports belongs beside it."""

    where: str
    shows: str
    picture: str
    part: str
    model: str = ""
    """What comes after the data set's name in the report's folder."""
    reveals: bool = False
    """Whether it shows images of the data set as a whole, or nearly so."""


NOT_THERE = "Not in the paper"
"""Where there is no such figure."""


@dataclass(frozen=True)
class DataSet:
    """What the paper has on one data set."""

    name: str
    title: str
    exhibits: tuple[Exhibit, ...] = ()
    reports: tuple[str, ...] = ("",)
    """The models to report on: what comes after the data set's name in the folders of their reports."""
    n: int = 10_000
    """Samples of which our numbers are made."""
    inception: str | None = None
    fid: str | None = None
    remark: str = ""
    kept_out: bool = False
    """Whether its own images are not to be published (CelebA's terms), nor pictures that reveal them."""
    selected: bool = False
    """Whether the paper takes the checkpoint with the smallest FID of 1,000 samples, not the last (appendix B.2)."""


HOLES = {
    "left": "the left half",
    "center": "the middle",
    "blobs": "blobs",
    "text": "letters",
    "sparse": "nine of ten pixels",
}
"""What is hidden in our pictures of completions; the paper shows occluded halves."""


def _exhibits(letter: str, extended: str, intermediate: str, inpainting: str) -> tuple[Exhibit, ...]:
    """All data sets have the same figures. `letter`: of the data set's part of them.

    Figures 9 and 10 are one picture each, and the paper's text does not say of which data set.
    """
    return (
        Exhibit(
            f"Figure 5 ({letter}), {extended}",
            "uncurated samples by annealed Langevin dynamics",
            "samples.png",
            "samples",
        ),
        Exhibit(
            NOT_THERE,
            "the same samples after one more step, x + σ² s(x, σ), at the last noise level",
            "samples_denoised.png",
            "samples",
        ),
        Exhibit(
            intermediate,
            "intermediate samples: each row goes from uniform noise to an image",
            "stages.png",
            "stages",
        ),
        _neighbors("Figure 9", "images", "neighbors.png"),
        _neighbors("Figure 10", "Inception's features", "neighbors_inception.png"),
        Exhibit(
            f"Figure 7 ({letter})",
            "uncurated samples of the baseline, the same network for the one noise level 0.01, by plain Langevin "
            "dynamics, T = 1000: “this baseline fails to generate reasonable images” (section 5)",
            "samples.png",
            "samples",
            "-baseline",
        ),
        Exhibit(f"Figure 8 ({letter})", "intermediate samples of the baseline", "stages.png", "stages", "-baseline"),
        *(_completions(hole, inpainting if hole == "left" else NOT_THERE) for hole in HOLES),
    )


def _neighbors(where: str, of: str, picture: str) -> Exhibit:
    sides = "samples left of the red line, the nearest training images right of it"
    shows = f"nearest neighbours by the distance between {of}: {sides}"
    return Exhibit(where, shows, picture, "neighbors", reveals=True)


def _completions(hole: str, where: str) -> Exhibit:
    words = f"{HOLES[hole]} {'are' if HOLES[hole].endswith('s') else 'is'}"
    shows = f"held-out images of which {words} hidden, and completions"
    return Exhibit(where, shows, f"inpainting_{hole}.png", "inpainting", reveals=hole == "text")


OMITTED = (
    "“We omit scores on MNIST and CelebA as the scores on these two datasets are not widely reported” (section 5)."
)

DATA_SETS = (
    DataSet(
        "mnist",
        "MNIST",
        _exhibits("a", "Figure 11", "Figure 4", NOT_THERE),
        reports=("", "-small", "-baseline"),
        remark=f"The paper has no numbers here: {OMITTED}",
    ),
    DataSet(
        "cifar10",
        "CIFAR-10",
        _exhibits("c", "Figure 13", "Figure 4", "Figures 6 and 17"),
        reports=("", "-raw", "-baseline"),
        n=50_000,
        inception="8.87 ± .12",
        fid="25.32",
        remark="The paper's numbers are those of Table 1: of 50,000 samples, of raw weights, of the checkpoint with "
        "the smallest FID of 1,000 samples (appendix B.2), without a denoising step. Ours are of the last iteration; "
        "FID of fewer samples is larger.",
        selected=True,
    ),
    DataSet(
        "celeba",
        "CelebA",
        _exhibits("b", "Figure 12", "Figures 4, 14 and 15", "Figures 6 and 16"),
        kept_out=True,
        reports=("", "-raw", "-baseline"),
        remark=f"The paper has no numbers here: {OMITTED}",
        selected=True,
    ),
)
TITLES = {"": "NCSN", "-raw": "NCSN, raw weights", "-small": "NCSN, a quarter of the width", "-baseline": "baseline"}
"""Our models, by what comes after the data set's name."""


class Figure(NamedTuple):
    """A figure of the paper that is not about an image model, in words."""

    name: str
    where: str
    shows: str


FIGURES = (
    Figure(
        "fig1",
        "Figure 1",
        "the loss of sliced score matching on CIFAR-10: without noise it “first decreases and then fluctuates "
        "irregularly”, with noise N(0, 0.0001) “the loss curve will converge” (section 3.1)",
    ),
    Figure(
        "fig2",
        "Figure 2",
        "the score of a mixture, and what sliced score matching learns of it: “only reliable in the immediate vicinity "
        "of the modes” (section 3.2.1)",
    ),
    Figure(
        "fig3",
        "Figure 3",
        "samples of the mixture: annealed Langevin dynamics “correctly recover the relative weights between the two "
        "modes whereas standard Langevin dynamics fail” (section 4.3)",
    ),
)
ROBUST = (
    "“We found the results are robust w.r.t. the choice of T, and ε between 5 × 10⁻⁶ and 5 × 10⁻⁵ generally works "
    "fine” (section 5)."
)
