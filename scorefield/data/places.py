"""Where data lie on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def folder_of(name: str) -> Path:
    """Where a named data set, the FID network or the cache lives: $SCOREFIELD_DATA/name, or in the user's cache."""
    if named := os.environ.get("SCOREFIELD_DATA"):
        return _checked(Path(named).expanduser()) / name
    return _user_cache() / "scorefield" / name


def _checked(root: Path) -> Path:
    """A folder that is there, or can be made in one that is: more than its last part missing is a slip of the pen."""
    if root.is_file():
        raise ValueError(f"SCOREFIELD_DATA is {root}, a file (name a folder)")
    if not os.path.isdir(root.parent):  # noqa: PTH112 (False where one may not look, too)
        raise ValueError(
            f"SCOREFIELD_DATA is {root}, but there is no folder {root.parent.absolute()} "
            "(correct the variable, or make that folder first)"
        )
    return root


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
