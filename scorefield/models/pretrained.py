"""Pretrained models: weights that come with scorefield, known by name."""

from __future__ import annotations

from pathlib import Path

PREFIX = "model:"
"""model:NAME is the pretrained model, even if a file or folder has that name."""

_PACKAGE = Path(__file__).parents[1]
_CHECKOUT = [_PACKAGE.parent / "weights"] if (_PACKAGE.parent / "pyproject.toml").is_file() else []
LARGE = ("celeba", "cifar10")
"""Models that come with a checkout only, not with the installed package."""
FOLDERS = [*_CHECKOUT, _PACKAGE / "weights"]
"""Their folders: inside the package and, in a checkout, beside it, for models too large to be installed."""


def pretrained_models() -> dict[str, Path]:
    """Names and files of the models that this installation has."""
    return {file.stem: file for folder in FOLDERS for file in sorted(folder.glob("*.safetensors"))}


def find(name: str | Path) -> Path:
    """The file or folder that is meant by a model's name: a path that exists, or else a pretrained model of that name.

    model:NAME is always the pretrained one.
    """
    short, models = str(name).removeprefix(PREFIX), pretrained_models()
    if short == str(name) and Path(name).exists():
        return Path(name)
    if short in models:
        return models[short]
    what = (
        f"no file {name}, and no pretrained model of that name"
        if short == str(name)
        else f"no pretrained model {short}"
    )
    cure = f"it is weights/{short}.safetensors in a checkout: give the path of that file; " if short in LARGE else ""
    raise FileNotFoundError(f"{what} ({cure}{listed()})")


def listed() -> str:
    """The names of the pretrained models, for messages."""
    return f"pretrained models: {', '.join(sorted(pretrained_models())) or 'none in this installation'}"
