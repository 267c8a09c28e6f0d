"""The figures and tables of Song & Ermon (2019), arXiv 1907.05600: where they are, what they show, and which picture of
which of our reports belongs beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from scorefield.data.named import SETS


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

BASELINE = "-baseline"


@dataclass(frozen=True)
class Exhibit:
    """A picture of our reports, and the figure of the paper that it belongs beside."""

    picture: str
    shows: str
    where: dict[str, str] = field(default_factory=dict)
    """The paper's figure, by data set."""
    model: str = ""
    """What comes after the data set's name in the name of the report."""
    reveals: bool = False
    """Whether the picture shows images of the data set as a whole, or nearly so."""

    @property
    def part(self) -> str:
        """The part of a report that the picture belongs to."""
        return self.picture.removesuffix(".png").partition("_")[0]


def _figures(mnist: str, celeba: str, cifar10: str) -> dict[str, str]:
    return {"mnist": mnist, "celeba": celeba, "cifar10": cifar10}


_SIDES = "samples to the left of the red line, their nearest training images to the right"
EXHIBITS = (
    Exhibit(
        "samples.png",
        "samples by annealed Langevin dynamics, not selected",
        _figures("Figure 5 (a), Figure 11", "Figure 5 (b), Figure 12", "Figure 5 (c), Figure 13"),
    ),
    Exhibit("samples_denoised.png", "the same samples after one more step, x + σ² s(x, σ), at the last noise level"),
    Exhibit(
        "stages.png",
        "samples at intermediate steps; each row goes from uniform noise to an image",
        _figures("Figure 4", "Figures 4, 14 and 15", "Figure 4"),
    ),
    # the paper does not say which data set its figures 9 and 10 show
    Exhibit("neighbors.png", f"nearest neighbours in pixels: {_SIDES}", _figures(*["Figure 9"] * 3), reveals=True),
    Exhibit(
        "neighbors_inception.png",
        f"nearest neighbours in Inception features: {_SIDES}",
        _figures(*["Figure 10"] * 3),
        reveals=True,
    ),
    Exhibit(
        "samples.png",
        "samples of the baseline, not selected: the same network for the single noise level 0.01, with plain Langevin "
        "dynamics, T = 1000; “this baseline fails to generate reasonable images” (section 5)",
        _figures("Figure 7 (a)", "Figure 7 (b)", "Figure 7 (c)"),
        BASELINE,
    ),
    Exhibit(
        "stages.png",
        "the baseline at intermediate steps",
        _figures("Figure 8 (a)", "Figure 8 (b)", "Figure 8 (c)"),
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
    models: tuple[str, ...] = ("",)
    """The models to report on: what comes after the data set's name in the names of their reports."""
    n: int = 10_000
    """Samples that our numbers should have."""
    numbers: dict[str, str] = field(default_factory=dict)
    """The paper's numbers, by the rows of our table."""
    remark: str = ""
    selected: bool = False
    """Whether the paper takes the checkpoint with the smallest FID of 1,000 samples, not the last (appendix B.2)."""

    @property
    def title(self) -> str:
        return SETS[self.name].title if self.name in SETS else self.name

    @property
    def publishable(self) -> bool:
        """Whether its terms of use allow its images to be shown."""
        return self.name not in SETS or SETS[self.name].publishable


_NO_NUMBERS = (
    "The paper has no numbers here: “We omit scores on MNIST and CelebA as the scores on these two datasets are not "
    "widely reported” (section 5)."
)
_TABLE_1_NUMBERS = (
    "The paper's numbers are those of Table 1: 50,000 samples of the raw weights, without a denoising step, from the "
    "checkpoint with the smallest FID of 1,000 samples (appendix B.2). Ours are of the last iteration. FID is larger "
    "for fewer samples."
)
_SCORES = {"Inception score": "8.87 ± .12", "FID": "25.32"}
DATA_SETS = (
    DataSet("mnist", ("", "-small", BASELINE), remark=_NO_NUMBERS),
    DataSet("cifar10", ("", "-raw", BASELINE), 50_000, _SCORES, _TABLE_1_NUMBERS, selected=True),
    DataSet("celeba", ("", "-raw", BASELINE), remark=_NO_NUMBERS, selected=True),
)
TITLES = {"": "NCSN", "-raw": "NCSN, raw weights", "-small": "NCSN, a quarter of the width", BASELINE: "baseline"}
"""Our models, by what comes after the data set's name."""
