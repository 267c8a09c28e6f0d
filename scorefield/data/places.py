"""Where data is stored on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def folder_of(name: str) -> Path:
    """The folder of a named data set, the FID network or a cache: $SCOREFIELD_DATA/name, or in the user's cache."""
    if value := os.environ.get("SCOREFIELD_DATA"):
        return _checked(Path(value).expanduser()) / name
    from platformdirs import user_cache_path  # not needed where SCOREFIELD_DATA is set

    return user_cache_path("scorefield", appauthor=False, opinion=False) / name


def _checked(root: Path) -> Path:
    """A folder that exists, or that can be created in one that exists: otherwise the variable is probably mistyped."""
    if root.is_file():
        raise ValueError(f"SCOREFIELD_DATA is {root}, a file (set it to a folder)")
    if not os.path.isdir(root.parent):  # noqa: PTH112 (also False if the folder above cannot be searched)
        raise ValueError(
            f"SCOREFIELD_DATA is {root}, but there is no folder {root.parent.absolute()} "
            "(correct the variable, or create that folder first)"
        )
    return root
