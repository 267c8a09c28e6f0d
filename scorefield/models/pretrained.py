"""Pretrained models, known by name: where they are on this machine, and how those that are not are fetched."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from scorefield.data.places import folder_of
from scorefield.models import hub
from scorefield.models.catalogue import MODELS, Entry
from scorefield.progress import track

PREFIX = "model:"
"""model:NAME is the pretrained model, even if a file or folder has that name."""

SERVER = ""
"""The address of a folder that holds the files of `MODELS`. There is none yet."""
VARIABLE = "SCOREFIELD_MODELS_URL"
"""The environment variable that names another."""

CACHE = "models"
"""The folder of downloaded models: $SCOREFIELD_DATA/models, or in the user's cache."""

_PACKAGE = Path(__file__).parents[1]
_CHECKOUT = [_PACKAGE.parent / "weights"] if (_PACKAGE.parent / "pyproject.toml").is_file() else []
FOLDERS = [_PACKAGE / "weights", *_CHECKOUT]
"""Their folders: inside the package and, in a checkout, beside it, for models too large to be installed."""


def pretrained_models() -> dict[str, Path]:
    """Names and files of the models that are on this machine. The package's own come before those of a checkout, and
    these before downloaded ones."""
    downloaded = [(name, cached(entry)) for name, entry in MODELS.items()]
    found = {name: path for name, path in downloaded if path is not None and path.is_file()}
    for folder in reversed(FOLDERS):
        found |= {file.stem: file for file in sorted(folder.glob("*.safetensors"))}
    return found


def is_pretrained(name: str) -> bool:
    """Whether this is the name of a pretrained model, on this machine or not."""
    return name in MODELS or name in pretrained_models()


def find(name: str | Path) -> Path:
    """The file or folder that is meant by a model's name: a path that exists, or else a pretrained model of that name,
    or a model of the Hugging Face hub, hf:OWNER/NAME.

    model:NAME is always the pretrained one. What is not on this machine is downloaded.
    """
    short, models = str(name).removeprefix(PREFIX), pretrained_models()
    path = short == str(name)
    if path and Path(name).exists():
        return Path(name)
    if path and hub.is_hub(str(name)):
        return hub.fetch(str(name))
    if short in models:
        return models[short]
    if short in MODELS:
        return _download(MODELS[short])
    what = f"no file {name}, and no pretrained model of that name" if path else f"no pretrained model {short}"
    raise FileNotFoundError(f"{what} ({nearest(short, known())}{listed()})")


def known() -> list[str]:
    """The names of all pretrained models, on this machine or not."""
    return sorted({*MODELS, *pretrained_models()})


def listed() -> str:
    """The names of the pretrained models, for messages."""
    return f"pretrained models: {', '.join(known())}"


def nearest(word: str, names: Iterable[str]) -> str:
    """A question about the name that is most like this word, for messages; nothing if none is."""
    near = get_close_matches(word, list(names), n=1, cutoff=0.6)
    return f"did you mean {near[0]}? " if near else ""


def cached(entry: Entry) -> Path | None:
    """Where this model is or would be downloaded to. The name has a part of the checksum: another version of the model
    is another file. None if there is no such folder."""
    with suppress(ValueError, ImportError):  # SCOREFIELD_DATA is mistyped; platformdirs is not installed
        return folder_of(CACHE) / _cached_name(entry)
    return None


def _cached_name(entry: Entry) -> str:
    return f"{entry.name}-{entry.sha256[:8]}.safetensors"


def place_of(path: Path) -> str:
    """Where a pretrained model's file is, in a word."""
    return "package" if path.parent == FOLDERS[0] else "checkout" if path.parent in FOLDERS else "cache"


@dataclass(frozen=True)
class Listed:
    """What `scorefield models` tells of a pretrained model."""

    name: str
    size: int
    sha256: str
    place: str
    """package, checkout, cache, or not here."""
    path: Path | None
    entry: Entry | None = None
    """None for a file of somebody's own in one of the folders."""

    @property
    def data(self) -> str:
        return self.entry.data if self.entry else "unknown"

    @property
    def quality(self) -> str:
        return str(self.entry.quality) if self.entry else "unknown"

    @property
    def differs(self) -> bool:
        """Whether the file is another than the catalogue's model of its name."""
        return self.entry is not None and self.sha256 != self.entry.sha256

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        about = {"about": self.entry.about, "data": self.entry.data, **asdict(self.entry.quality)} if self.entry else {}
        place = {"where": self.place, "path": None if self.path is None else str(self.path)}
        wanted = {"expected_sha256": self.entry.sha256} if self.entry is not None and self.differs else {}
        return {**about, "size": self.size, "sha256": self.sha256, **wanted, **place}


def list_models() -> list[Listed]:
    """All pretrained models: those of the catalogue, in its order, and other files in the folders."""
    here, listed = pretrained_models(), []
    for name in dict.fromkeys([*MODELS, *here]):
        entry, path = MODELS.get(name), here.get(name)
        if path is not None:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            listed.append(Listed(name, path.stat().st_size, digest, place_of(path), path, entry))
        elif entry is not None:
            listed.append(Listed(name, entry.size, entry.sha256, "not here", None, entry))
    return listed


def server() -> str:
    """The address of the folder that models are downloaded from; nothing if there is none."""
    url = os.environ.get(VARIABLE, SERVER).strip().rstrip("/")
    if url and not url.startswith(("https://", "http://", "file://")):
        raise ValueError(f"{VARIABLE} must begin with https://, http:// or file://; got {url}")
    return url


def _download(entry: Entry) -> Path:
    from scorefield.models.fetch import DownloadError, fetch

    what = f"the pretrained model {entry.name} ({entry.size / 1e6:.0f} MB) is not on this machine"
    fix = (
        f"take weights/{entry.file} from a checkout of scorefield and give the path of that file, or set {VARIABLE} to "
        "the address of a folder that has it: https://..., or file:///path/of/a/checkout/weights"
    )
    if not (url := server()):
        raise FileNotFoundError(f"{what}, and there is no server to download it from yet ({fix})")
    target = folder_of(CACHE) / _cached_name(entry)
    try:
        return fetch(f"{url}/{entry.file}", target, size=entry.size, sha256=entry.sha256, track=track)
    except DownloadError as error:
        raise FileNotFoundError(f"{what}, and {error} ({fix})") from error
