"""Distances between sets of images, each described by features (N, D)."""

from scorefield.metrics.classes import ClassScore
from scorefield.metrics.distances import kernel_distance, precision_recall
from scorefield.metrics.neighbors import Neighbors, nearest
from scorefield.metrics.statistics import Moments, Statistics, frechet_distance

__all__ = [
    "ClassScore",
    "Moments",
    "Neighbors",
    "Statistics",
    "frechet_distance",
    "kernel_distance",
    "nearest",
    "precision_recall",
]
