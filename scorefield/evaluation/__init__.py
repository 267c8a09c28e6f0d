"""Measuring a model or a set of images against another set."""

from scorefield.evaluation.features import Extractor, Measured, Rows, measured
from scorefield.evaluation.numbers import compared, held_out_loss, numbers_of
from scorefield.evaluation.pool import How, Pool, at_once
from scorefield.evaluation.reference import Reference, reference_of
from scorefield.evaluation.search import Embed, in_pixels, search

__all__ = [
    "Embed",
    "Extractor",
    "How",
    "Measured",
    "Pool",
    "Reference",
    "Rows",
    "at_once",
    "compared",
    "held_out_loss",
    "in_pixels",
    "measured",
    "numbers_of",
    "reference_of",
    "search",
]
