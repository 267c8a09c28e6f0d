"""Models in the box: weights that come with scorefield, known by name."""

from __future__ import annotations

from pathlib import Path

PREFIX = "model:"
"""Before a name, it says that the shipped model is meant, whatever else has that name."""

_PACKAGE = Path(__file__).parent
_CHECKOUT = [_PACKAGE.parent / "weights"] if (_PACKAGE.parent / "pyproject.toml").is_file() else []
LARGE = ("celeba", "cifar10")
"""Those that a checkout alone has."""
FOLDERS = [*_CHECKOUT, _PACKAGE / "weights"]
"""Where they lie: inside the package and, in a checkout, beside it, for those too large to be installed."""


def shipped_models() -> dict[str, Path]:
    """Names and files of the models that this installation has."""
    return {file.stem: file for folder in FOLDERS for file in sorted(folder.glob("*.safetensors"))}


def find(name: str | Path) -> Path:
    """The file or folder that is meant by a model's name: a path that exists, or else a shipped model of that name.

    model:NAME is always the shipped one.
    """
    short, models = str(name).removeprefix(PREFIX), shipped_models()
    if short == str(name) and Path(name).exists():
        return Path(name)
    if short in models:
        return models[short]
    what = f"no file {name}, and no shipped model of that name" if short == str(name) else f"no shipped model {short}"
    cure = f"weights/{short}.safetensors of a checkout is it: name that file; " if short in LARGE else ""
    raise FileNotFoundError(f"{what} ({cure}{listed()})")


def listed() -> str:
    """The shipped models' names, for messages."""
    return f"shipped models: {', '.join(sorted(shipped_models())) or 'none in this installation'}"
