"""Data: named sets, folders of images and arrays, all as one array of uint8 (N, H, W, C), and batches of it."""

from scorefield.data.images import Images as Images
from scorefield.data.images import batch as batch
from scorefield.data.images import indices as indices
from scorefield.data.images import split as split
from scorefield.data.places import folder_of as folder_of
from scorefield.data.sources import exists as exists
from scorefield.data.sources import load as load
