"""The figures and tables of Song & Ermon (2019), arXiv 1907.05600: where they are, what they show, and which picture of
which of our reports belongs beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TableRow(NamedTuple):
    """A row of Table 1, as printed there; None where it has a dash. It has no column for the training."""

    model: str
    inception_score: str
    fid: str | None
    training: str = "–"


TABLE_1 = {  # NCSN's numbers are of 50,000 samples (appendix B.2); the paper does not say how many the others have
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

NOT_IN_THE_PAPER = "Not in the paper"
BASELINE = "-baseline"


class Exhibit(NamedTuple):
    """A picture of our reports, and the figure of the paper that it belongs beside."""

    picture: str
    shows: str
    where: dict[str, str]
    """The paper's figure, by data set."""
    model: str = ""
    """What comes after the data set's name in the name of the report."""
    reveals: bool = False
    """Whether the picture shows images of the data set as a whole, or nearly so."""

    @property
    def part(self) -> str:
        """The part of a report that the picture belongs to."""
        return self.picture.removesuffix(".png").partition("_")[0]


_SIDES = "samples to the left of the red line, their nearest training images to the right"
_NEIGHBORS = ("mnist", "cifar10", "celeba")  # one of them in each figure; the paper does not say which
EXHIBITS = (
    Exhibit(
        "samples.png",
        "samples by annealed Langevin dynamics, not selected",
        {
            "mnist": "Figure 5 (a), Figure 11",
            "cifar10": "Figure 5 (c), Figure 13",
            "celeba": "Figure 5 (b), Figure 12",
        },
    ),
    Exhibit(
        "samples_denoised.png", "the same samples after one more step, x + σ² s(x, σ), at the last noise level", {}
    ),
    Exhibit(
        "stages.png",
        "samples at intermediate steps; each row goes from uniform noise to an image",
        {"mnist": "Figure 4", "cifar10": "Figure 4", "celeba": "Figures 4, 14 and 15"},
    ),
    Exhibit(
        "neighbors.png",
        f"nearest neighbours in pixels: {_SIDES}",
        dict.fromkeys(_NEIGHBORS, "Figure 9"),
        reveals=True,
    ),
    Exhibit(
        "neighbors_inception.png",
        f"nearest neighbours in Inception features: {_SIDES}",
        dict.fromkeys(_NEIGHBORS, "Figure 10"),
        reveals=True,
    ),
    Exhibit(
        "samples.png",
        "samples of the baseline, not selected: the same network for the single noise level 0.01, with plain Langevin "
        "dynamics, T = 1000; “this baseline fails to generate reasonable images” (section 5)",
        {"mnist": "Figure 7 (a)", "cifar10": "Figure 7 (c)", "celeba": "Figure 7 (b)"},
        BASELINE,
    ),
    Exhibit(
        "stages.png",
        "the baseline at intermediate steps",
        {"mnist": "Figure 8 (a)", "cifar10": "Figure 8 (c)", "celeba": "Figure 8 (b)"},
        BASELINE,
    ),
)
HIDDEN = {
    "left": "the left half",
    "center": "the middle",
    "blobs": "blobs",
    "text": "letters",
    "sparse": "nine of ten pixels",
}
"""What each of our masks hides. The paper shows halves."""
COMPLETIONS = tuple(
    Exhibit(
        f"inpainting_{mask}.png",
        f"completions of held-out images; hidden: {what}",
        {"cifar10": "Figures 6 and 17", "celeba": "Figures 6 and 16"} if mask == "left" else {},
        reveals=mask == "text",
    )
    for mask, what in HIDDEN.items()
)


@dataclass(frozen=True)
class DataSet:
    """What the paper has on a data set; the defaults are for one that it does not have."""

    name: str
    title: str
    models: tuple[str, ...] = ("",)
    """The models to report on: what comes after the data set's name in the names of their reports."""
    n: int = 10_000
    """Samples that our numbers should have."""
    inception_score: str | None = None
    fid: str | None = None
    remark: str = ""
    kept_out: bool = False
    """Whether its terms of use forbid to publish its images."""
    selected: bool = False
    """Whether the paper takes the checkpoint with the smallest FID of 1,000 samples, not the last (appendix B.2)."""


_NO_NUMBERS = (
    "The paper has no numbers here: “We omit scores on MNIST and CelebA as the scores on these two datasets are not "
    "widely reported” (section 5)."
)
_TABLE_1_NUMBERS = (
    "The paper's numbers are those of Table 1: 50,000 samples of the raw weights, without a denoising step, from the "
    "checkpoint with the smallest FID of 1,000 samples (appendix B.2). Ours are of the last iteration. FID is larger "
    "for fewer samples."
)
DATA_SETS = (
    DataSet("mnist", "MNIST", ("", "-small", BASELINE), remark=_NO_NUMBERS),
    DataSet(
        "cifar10",
        "CIFAR-10",
        ("", "-raw", BASELINE),
        n=50_000,
        inception_score="8.87 ± .12",
        fid="25.32",
        remark=_TABLE_1_NUMBERS,
        selected=True,
    ),
    DataSet("celeba", "CelebA", ("", "-raw", BASELINE), remark=_NO_NUMBERS, kept_out=True, selected=True),
)
TITLES = {"": "NCSN", "-raw": "NCSN, raw weights", "-small": "NCSN, a quarter of the width", BASELINE: "baseline"}
"""Our models, by what comes after the data set's name."""

FIGURES = {
    "fig1": "**Figure 1**: the loss of sliced score matching on CIFAR-10: without noise it “first decreases and then "
    "fluctuates irregularly”, with noise N(0, 0.0001) “the loss curve will converge” (section 3.1)",
    "fig2": "**Figure 2**: the score of a mixture, and the score that sliced score matching learns: “only reliable in "
    "the immediate vicinity of the modes” (section 3.2.1)",
    "fig3": "**Figure 3**: samples of the mixture: annealed Langevin dynamics “correctly recover the relative weights "
    "between the two modes whereas standard Langevin dynamics fail” (section 4.3)",
}
"""The figures that are not about image models."""
