"""Data: named data sets, folders of images and arrays, loaded as uint8 pixels (N, H, W, C) with labels, and batches."""

from scorefield.data.images import Batch as Batch
from scorefield.data.images import Images as Images
from scorefield.data.images import batch as batch
from scorefield.data.images import indices as indices
from scorefield.data.images import split as split
from scorefield.data.named import SETS as SETS
from scorefield.data.places import folder_of as folder_of
from scorefield.data.sources import exists as exists
from scorefield.data.sources import load as load
