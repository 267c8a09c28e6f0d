"""A folder of small pictures to try training with: discs and squares in two subfolders, which are their classes.

    python scripts/make_shapes.py my_images

The same pictures every time.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw

CLASSES = ("discs", "squares")
SIDE = 48


def picture(kind: str, draws: random.Random) -> Image.Image:
    """One dark disc or square on a light ground."""
    image = Image.new("RGB", (SIDE, SIDE), tuple(draws.randrange(180, 256) for _ in range(3)))
    x, y, r = draws.randrange(14, 34), draws.randrange(14, 34), draws.randrange(8, 14)
    canvas = ImageDraw.Draw(image)
    shape = canvas.ellipse if kind == "discs" else canvas.rectangle
    shape((x - r, y - r, x + r, y + r), fill=tuple(draws.randrange(120) for _ in range(3)))
    return image


def make(folder: Path, *, each: int = 200) -> None:
    """Write that many pictures of each class."""
    draws = random.Random(0)
    for kind in CLASSES:
        (folder / kind).mkdir(parents=True)
        for k in range(each):
            picture(kind, draws).save(folder / kind / f"{k:03d}.png")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/make_shapes.py FOLDER")
    try:
        make(Path(sys.argv[1]))
    except OSError as error:
        sys.exit(f"the pictures cannot be written: {error} (name a folder that does not exist)")
    print(f"{2 * 200} pictures in {sys.argv[1]}, in the classes {' and '.join(CLASSES)}")


if __name__ == "__main__":
    main()
