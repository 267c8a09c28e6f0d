"""Measuring models and images: features, metrics, nearest neighbours, samples kept on disk, and reports."""

from typing import Literal, get_args

Part = Literal["samples", "stages", "neighbors", "numbers", "inpainting", "robustness", "real"]
"""A part of a report that a user can ask for."""
PARTS: tuple[Part, ...] = get_args(Part)
USUAL_PARTS: tuple[Part, ...] = ("samples", "stages", "neighbors", "numbers")
