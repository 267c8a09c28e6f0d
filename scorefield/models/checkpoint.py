"""Checkpoints: safetensors files that carry all that is needed to use them, and a checksum. Never a pickle.

A model file holds the network's weights, raw (`raw/NAME`) and, where a moving average was kept, averaged (`ema/NAME`).
A training checkpoint is a model file and, beside it, the optimizer's state. Both are written to a temporary name,
synced and renamed: a file that has its final name is whole, and the checksum proves it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from scorefield.files import new_file
from scorefield.networks import RefineNet
from scorefield.models.recipes import Recipe, ladder_of, network_of
from scorefield.models.pretrained import PREFIX, find, shipped_models
from scorefield.version import __version__

FORMAT = 1
"""Raised when older software could no longer read the files."""

Weights = Literal["raw", "ema"]


class BrokenCheckpointError(ValueError):
    """A file that is cut short, altered, or no checkpoint at all."""


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """One safetensors file, whole or not at all. A full disk leaves what was there before and raises OSError."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    header = {**metadata, "format": str(FORMAT)}
    header["sha256"] = _digest(plain, header)
    with new_file(path) as file:
        file.write(_in_order(to_safetensors(plain, header)))


def _in_order(content: bytes) -> bytes:
    """The same safetensors file with its metadata sorted, so that equal content makes equal files."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file that `write` wrote, after checking that nothing changed since."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
    except FileNotFoundError:
        raise FileNotFoundError(f"no file {path}") from None
    except (SafetensorError, OSError) as error:
        hint = "; a released checkpoint becomes one with: scorefield import" if path.suffix in (".pth", ".pt") else ""
        raise BrokenCheckpointError(f"{path} is damaged or no safetensors file ({error}{hint})") from error
    if "sha256" not in metadata:
        raise ValueError(f"{path} is a safetensors file, but not one of scorefield's")
    plain = {name: value for name, value in metadata.items() if name != "sha256"}
    if metadata.get("sha256") != _digest(tensors, plain):
        raise BrokenCheckpointError(f"{path} is damaged: its checksum does not match its content")
    if int(metadata["format"]) > FORMAT:
        raise ValueError(
            f"{path} has format {metadata['format']}, and this scorefield reads formats up to {FORMAT} "
            "(install a newer scorefield)"
        )
    return tensors, metadata


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 over the metadata and the tensors' names, types, shapes and bytes."""
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        if value.numel():
            digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Model:
    """A network and all that is known of it. A score: `model.score(x, sigma)`, for images (B, *shape) in [0, 1]."""

    network: RefineNet = field(repr=False)
    recipe: Recipe
    shape: tuple[int, int, int]
    step: int
    weights: Weights
    held: tuple[Weights, ...]
    """What the file holds; `weights` says which of them the network has."""
    facts: dict[str, str]
    """What else the file says: the data's name and digest, the version that wrote it."""
    digest: str
    """SHA-256 of the file's content."""

    @property
    def sigmas(self) -> Tensor:
        return self.network.sigmas

    def score(self, x: Tensor, sigma: Tensor, *, nearest: bool = False) -> Tensor:
        """s(x, σ). `nearest`: a σ that the network was not trained for is served by the level next to it."""
        return self.network(x, sigma, nearest=nearest)


def save_model(
    path: Path,
    raw: Mapping[str, Tensor],
    ema: Mapping[str, Tensor] | None,
    *,
    recipe: Recipe,
    shape: tuple[int, int, int],
    step: int,
    facts: Mapping[str, str],
) -> None:
    """A model file with the raw weights and, if given, the averaged ones."""
    tensors = {f"raw/{name}": value for name, value in raw.items()}
    tensors |= {f"ema/{name}": value for name, value in (ema or {}).items()}
    metadata = {
        **facts,
        "kind": "scorefield model",
        "version": __version__,
        "recipe": json.dumps(asdict(recipe)),
        "sigmas": json.dumps(ladder_of(recipe).tolist()),
        "shape": json.dumps(shape),
        "data_range": "[0, 1]",
        "step": str(step),
        "weights": "raw, ema" if ema else "raw",
    }
    write(path, tensors, metadata)


def load(path: Path | str, *, weights: Weights | None = None, device: torch.device | str = "cpu") -> Model:
    """A model from a file, or the newest whole one of a run folder, or the shipped one of that name (`mnist-small`).

    `weights`: raw or ema, where the file holds both; by default the moving average, if there is one.
    """
    path, tensors, metadata = read_model(path)
    recipe = recipe_from_json(metadata["recipe"])
    held = held_by(tensors)
    chosen = weights or held[-1]
    if chosen not in held:
        raise ValueError(f"{path} holds {' and '.join(held)} weights; got weights={chosen}")
    shape = tuple(json.loads(metadata["shape"]))
    network = network_of(recipe, channels=shape[0])
    state = {name.removeprefix(f"{chosen}/"): v.float() for name, v in tensors.items() if name.startswith(f"{chosen}/")}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise BrokenCheckpointError(f"{path} does not hold the weights of its recipe's network: {error}") from error
    known = {"format", "kind", "recipe", "sigmas", "shape", "step", "weights", "sha256"}
    facts = {name: value for name, value in metadata.items() if name not in known}
    network = network.to(device).eval().requires_grad_(False)
    step, digest = int(metadata["step"]), metadata["sha256"]
    return Model(network, recipe, shape, step, chosen, held, facts, digest)


def read_model(name: Path | str) -> tuple[Path, dict[str, Tensor], dict[str, str]]:
    """The model file that is meant by a path or a shipped model's name, its tensors and its metadata."""
    path = find(name)
    path, (tensors, metadata) = newest_whole(model_files(path), path) if path.is_dir() else (path, read(path))
    if metadata.get("kind") != "scorefield model":
        raise ValueError(f"{path} is no scorefield model (released checkpoints become one with: scorefield import)")
    return path, tensors, metadata


def held_by(tensors: Mapping[str, Tensor]) -> tuple[Weights, ...]:
    """Which weights these are: raw ones, averaged ones, or both."""
    kinds: tuple[Weights, ...] = ("raw", "ema")
    return tuple(kind for kind in kinds if any(name.startswith(f"{kind}/") for name in tensors))


def recipe_from_json(text: str) -> Recipe:
    """The recipe of a file; fields that this version does not know are an error, missing ones have their defaults."""
    values = json.loads(text)
    unknown = values.keys() - {field.name for field in fields(Recipe)}
    if unknown:
        raise ValueError(f"the recipe has unknown fields {', '.join(sorted(unknown))} (install a newer scorefield)")
    return Recipe(**values)


def model_files(run: Path) -> list[Path]:
    """The model files of a run, oldest first."""
    return sorted((run / "checkpoints").glob("model-*.safetensors"))


def newest_whole(files: list[Path], run: Path) -> tuple[Path, tuple[dict[str, Tensor], dict[str, str]]]:
    """The newest of these files that is whole, and its content; a damaged one is passed over with a warning."""
    for path in reversed(files):
        try:
            return path, read(path)
        except BrokenCheckpointError as error:
            warnings.warn(f"{error}; taking the checkpoint before it", stacklevel=2)
    other = f"; the shipped model of that name is {PREFIX}{run}" if str(run) in shipped_models() else ""
    raise FileNotFoundError(f"{run} holds no whole checkpoint (checkpoints/model-STEP.safetensors{other})")
