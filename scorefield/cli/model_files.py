"""scorefield info, export, import."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import tyro

from scorefield.cli.app import ModelName, app, prepare_file, say


@app.command
def info(model: ModelName, /, *, as_json: Annotated[bool, tyro.conf.arg(name="json")] = False) -> None:
    """Tell what a model is, what it was trained on, and how to sample it.

    Example: scorefield info runs/mine

    Args:
        model: A run folder, a model file, or the name of a shipped model: mnist-small, say.
        as_json: Print it as JSON, with all of the recipe.
    """
    from scorefield.models.checkpoint import load

    loaded = load(model)
    parameters = sum(p.numel() for p in loaded.network.parameters())
    channels, height, width = loaded.shape
    if as_json:
        facts = {"shape": loaded.shape, "parameters": parameters, "step": loaded.step, "weights": loaded.held}
        facts |= {"sigmas": loaded.sigmas.tolist(), **loaded.facts, "recipe": asdict(loaded.recipe)}
        print(json.dumps(facts, indent=2))
        return
    recipe, sigmas = loaded.recipe, loaded.sigmas.tolist()
    print(f"{model}: a RefineNet of width {recipe.width}, {parameters / 1e6:.2f} M parameters")
    print(f"  images     {channels} × {height} × {width}, pixels in {loaded.facts.get('data_range', '[0, 1]')}")
    print(f"  levels     {len(sigmas)}, sigma {sigmas[0]:g} ... {sigmas[-1]:g}")
    if loaded.step:
        begun = f", beginning with {recipe.start}" if recipe.start is not None else ""
        print(f"  trained    {loaded.step} steps of {recipe.batch_size} by {recipe.objective} score matching{begun}")
    print(f"  data       {loaded.facts.get('data', 'unknown')}, {loaded.facts.get('data_images', 'unknown')} images")
    stored = f", stored in {loaded.facts['stored']}" if "stored" in loaded.facts else ""
    print(f"  weights    {' and '.join(loaded.held)}{stored}")
    print(f"  to sample  scorefield sample {model} (T = {recipe.sample_steps}, step size {recipe.step_size:g})")


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
        model: A run folder, a model file, or the name of a shipped model.
        out: FILE.safetensors, which must be new.
        weights: The raw weights, their moving average, or both. None: the average where the model has it.
        precision: In which to store the weights. Models compute in float32 whatever this is.
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
    """Turn a checkpoint of the code released with the paper into a model of ours.

    Example: scorefield import logs/cifar10/checkpoint_200000.pth --out cifar10.safetensors

    Args:
        checkpoint: The released code's checkpoint, a .pth file. One that holds code to run is refused.
        out: The model file to write; the checkpoint's name with .safetensors unless given.
        image_size: Height and width of its images, which the file does not tell. Default: 28 for grey, 32 for colour.
        sigma_max: The largest noise level, which the file does not tell either.
        sigma_min: The smallest.
    """
    from scorefield.models.checkpoint import save_model
    from scorefield.models.recipes import Recipe
    from scorefield.models.released import from_released

    if not checkpoint.is_file():
        what = "is a folder, not a checkpoint" if checkpoint.is_dir() else "does not exist"
        raise FileNotFoundError(f"{checkpoint} {what} (name the released code's .pth file)")
    out = out or checkpoint.with_suffix(".safetensors")
    if out.exists():
        raise FileExistsError(f"{out} exists already (name another file with --out)")
    network = from_released(checkpoint, sigma_max=sigma_max, sigma_min=sigma_min)
    levels, width = network.norm.gamma.shape
    size = image_size or (28 if network.channels == 1 else 32)
    recipe = Recipe(data=str(checkpoint), width=width, sigma_max=sigma_max, sigma_min=sigma_min, levels=levels)
    facts = {"data": "unknown", "imported_from": checkpoint.name}
    shape = (network.channels, size, size)
    save_model(out, network.state_dict(), None, recipe=recipe, shape=shape, step=0, facts=facts)
    say(f"a model of {network.channels} × {size} × {size} images, {levels} levels")
    print(out)
