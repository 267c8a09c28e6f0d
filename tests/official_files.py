"""MNIST's and CIFAR-10's official files, with any pixels in them."""

from __future__ import annotations

import struct

from image_files import Array


def idx(pixels: Array, magic: int = 0x803) -> bytes:
    return struct.pack(">4I", magic, *pixels.shape) + pixels.tobytes()


def records(pixels: Array) -> bytes:
    """(N, 32, 32, 3) in the binary version: a label, then all of red, all of green, all of blue."""
    return b"".join(bytes([k % 10]) + image.transpose(2, 0, 1).tobytes() for k, image in enumerate(pixels))
