"""scorefield info, export, import."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import tyro

from scorefield import samplers
from scorefield.cli.app import Flag, ModelName, app, prepare_file, say


@app.command
def info(model: ModelName, /, *, as_json: Annotated[Flag, tyro.conf.arg(name="json")] = False) -> None:
    """Show what a model is, what it was trained on, and how to sample it.

    Example: scorefield info runs/mine

    Args:
        as_json: Print it as JSON, with the whole recipe.
    """
    from scorefield.models.model import load

    loaded = load(model)
    channels, height, width = loaded.shape
    recipe, metadata, sampler = loaded.recipe, loaded.metadata, samplers.to_dict(loaded.sampler)
    if as_json:
        values = {"shape": loaded.shape, "parameters": loaded.parameters, "step": loaded.step, "weights": loaded.held}
        values |= {"labels": loaded.labels, "sigmas": loaded.sigmas, "sampler": sampler, **metadata}
        print(json.dumps(values | {"recipe": asdict(recipe)}, indent=2))
        return
    low, high = loaded.sigma_range
    print(f"{model}: {recipe.network} of width {recipe.width}, {loaded.parameters / 1e6:.2f} M parameters")
    print(f"  images     {channels} × {height} × {width}, pixels in {metadata.get('data_range', '[0, 1]')}")
    print(f"  noise      {len(loaded.sigmas)} levels, sigma {high:g} ... {low:g}")
    if loaded.labels:
        print(f"  classes    {', '.join(loaded.labels)}")
    if "imported_from" in metadata:
        print(f"  imported   from {metadata['imported_from']}")
    else:
        start = f", starting from {recipe.start}" if recipe.start is not None else ""
        print(f"  trained    {loaded.step} steps of {recipe.batch_size} by {recipe.objective} score matching{start}")
    print(f"  data       {metadata.get('data', 'unknown')}, {metadata.get('data_images', 'unknown')} images")
    stored = f", stored in {metadata['stored']}" if "stored" in metadata else ""
    print(f"  weights    {' and '.join(loaded.held)}{stored}")
    settings = ", ".join(f"{key} {value}" for key, value in sampler.items() if key not in ("name", "sigmas"))
    print(
        f"  to sample  scorefield sample {model} ({sampler['name']}: {settings}; {loaded.sampler.calls} network calls)"
    )


@app.command(name="export")
def export_(
    model: ModelName,
    /,
    *,
    out: Path,
    weights: Literal["raw", "ema", "both"] | None = None,
    precision: Literal["float16", "float32"] = "float16",
) -> None:
    """Write a small model file to share: one set of weights, in 16 bit, and no path of this machine.

    Example: scorefield export runs/mine --out mine.safetensors

    Args:
        out: FILE.safetensors, which must be new.
        weights: The raw weights, their moving average, or both. None: the average if the model has one.
        precision: The precision in which weights are stored. Models compute in float32 all the same.
    """
    from scorefield.models.export import export

    if out.suffix != ".safetensors":
        raise ValueError(f"models are .safetensors files; got --out {out} (name it FILE.safetensors)")
    if out.exists():
        raise FileExistsError(f"{out} exists already (name another file with --out)")
    prepare_file(out)
    made = export(model, out, weights=weights, precision=precision)
    say(f"{' and '.join(made.held)} weights in {precision}, {made.size / 1e6:.2f} MB")
    say(f"rounding changed no tensor by more than {made.change:.2g} of its norm")
    print(out)


@app.command(name="import")
def import_(
    checkpoint: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path | None = None,
    image_size: int | None = None,
    sigma_max: float = 1.0,
    sigma_min: float = 0.01,
) -> None:
    """Turn a checkpoint of the code released with the paper into a scorefield model.

    Example: scorefield import logs/cifar10/checkpoint_200000.pth --out cifar10.safetensors

    Args:
        checkpoint: The released code's checkpoint, a .pth file. A file that holds code to run is refused.
        out: The model file to write; the checkpoint's name with .safetensors unless given.
        image_size: Height and width of its images, which the file does not hold. Default: 28 for grey, 32 for colour.
        sigma_max: The largest noise level, which the file does not hold either.
        sigma_min: The smallest noise level.
    """
    from scorefield.models.model import save_model
    from scorefield.models.recipes import Recipe
    from scorefield.models.released import from_released

    if not checkpoint.is_file():
        what = "is a folder, not a checkpoint" if checkpoint.is_dir() else "does not exist"
        raise FileNotFoundError(f"{checkpoint} {what} (name the released code's .pth file)")
    if image_size is not None and image_size < 1:
        raise ValueError(f"--image-size must be at least 1; got {image_size}")
    out = out or checkpoint.with_suffix(".safetensors")
    if out.exists():
        raise FileExistsError(f"{out} exists already (name another file with --out)")
    network = from_released(checkpoint, sigma_max=sigma_max, sigma_min=sigma_min)
    levels, width = network.norm.gamma.shape
    size = (28 if network.channels == 1 else 32) if image_size is None else image_size
    recipe = Recipe(data=str(checkpoint), width=width, sigma_max=sigma_max, sigma_min=sigma_min, levels=levels)
    metadata = {"data": "unknown", "imported_from": checkpoint.name}
    shape = (network.channels, size, size)
    save_model(out, network.state_dict(), None, recipe=recipe, shape=shape, step=0, metadata=metadata)
    say(f"a model of {network.channels} × {size} × {size} images, {levels} levels")
    print(out)
