"""Where data lie on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def folder_of(name: str) -> Path:
    """Where a named data set, the FID network or the cache lives: $SCOREFIELD_DATA/name, or in the user's cache."""
    if root := os.environ.get("SCOREFIELD_DATA"):
        return Path(root).expanduser() / name
    return _user_cache() / "scorefield" / name


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
