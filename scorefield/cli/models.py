"""scorefield models, info, export, import."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import tyro

from scorefield import samplers
from scorefield.cli.app import Flag, JsonFile, ModelName, command, prepare_file, say
from scorefield.cli.options import SamplerName
from scorefield.files import write_json
from scorefield.models.recipes import read_changes
from scorefield.progress import plural


@command
def models(*, as_json: JsonFile = None) -> None:
    """List the pretrained models: their size, data, quality and checksum, and where they are.

    A model that is not here is downloaded when a command first names it, if SCOREFIELD_MODELS_URL names a folder on a
    server that has its file. Checksums are SHA-256; --json writes them in full.

    Example: scorefield models
    """
    from scorefield.models.catalogue import TERMS
    from scorefield.models.pretrained import Listed, list_models, server

    prepare_file(as_json, "--json")
    found, url = list_models(), server()
    if as_json is not None:
        rows = {each.name: {**each.to_dict(), "terms": TERMS.get(each.data)} for each in found}
        write_json(as_json, {"models": rows, "server": url or None})

    def row(each: Listed) -> tuple[str, ...]:
        place = each.place + (", another file" if each.differs else "")
        return each.name, f"{each.size / 1e6:.1f} MB", each.data, each.quality, each.sha256[:8], place

    rows_text = [("name", "size", "data", "quality", "sha256", "where"), *map(row, found)]
    widths = [max(map(len, column)) for column in zip(*rows_text, strict=True)]
    for cells in rows_text:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    print("\nterms of the data:")
    for data in dict.fromkeys(each.data for each in found if each.data in TERMS):
        print(f"  {data}: {TERMS[data]}")
    if missing := [each.name for each in found if each.path is None]:
        how = f"they are downloaded from {url} when first used"
        none = "there is no server to download them from yet (SCOREFIELD_MODELS_URL=ADDRESS names one of your own)"
        say(f"not here: {', '.join(missing)}; {how if url else none}")


@command
def info(model: ModelName, /, *, as_json: Annotated[Flag, tyro.conf.arg(name="json")] = False) -> None:
    """Show what a model is, what it was trained on, and how to sample it.

    Example: scorefield info runs/mine

    Args:
        as_json: Print it as JSON, with the whole recipe.
    """
    from scorefield.models.build import NETWORKS
    from scorefield.models.model import held_weights, load, parse_header, read_model, usual_weights
    from scorefield.training.history import held_out_loss, run_of, with_error

    path, tensors, stored = read_model(model)
    header, held = parse_header(stored, path), held_weights(tensors, path)
    recipe, metadata, sampler = header.recipe, dict(header.metadata), samplers.to_dict(header.sampler)
    changes = read_changes(metadata.pop("changes", "[]"))
    run = run_of(path)
    loss = None if run is None else held_out_loss(run, recipe, step=header.step, weights=usual_weights(held))
    if known := recipe.network in NETWORKS:
        loaded = load(path)
        parameters, sigmas, sigma_range = loaded.parameters, loaded.sigmas, loaded.sigma_range
    else:  # a network of the user's own, whose class only they have
        parameters = sum(value.numel() for name, value in tensors.items() if name.startswith(f"{held[-1]}/"))
        sigmas = tuple(sampler.get("sigmas", ()))
        sigma_range = (recipe.sigma_min, recipe.sigma_max)
    if as_json:
        values = {"shape": header.shape, "parameters": parameters, "step": header.step, "weights": held}
        values |= {"labels": header.labels, "sigmas": sigmas, "sampler": sampler, **metadata}
        values |= {"changes": [asdict(change) for change in changes]} if changes else {}
        values |= {"held_out": asdict(loss)} if loss is not None else {}
        print(json.dumps(values | {"recipe": asdict(recipe)}, indent=2))
        return
    kind = f"{recipe.network} of width {recipe.width}" if known else f"{recipe.network}, a network of your own"
    print(f"{model}: {kind}, {parameters / 1e6:.2f} M {'parameters' if known else 'numbers in its weights'}")
    print(f"  images     {' × '.join(map(str, header.shape))}, pixels in {metadata.get('data_range', '[0, 1]')}")
    listed = known and loaded.accepted.listed
    levels_text = f"{len(sigmas)} levels, sigma" if listed or not known else "all levels, sigma"
    print(f"  noise      {levels_text} {sigma_range[1]:g} ... {sigma_range[0]:g}")
    if header.labels:
        print(f"  classes    {', '.join(header.labels)}")
    if "imported_from" in metadata:
        print(f"  imported   from {metadata['imported_from']}")
    else:
        start = f", starting from {recipe.start}" if recipe.start is not None else ""
        print(f"  trained    {header.step} steps of {recipe.batch_size} by {recipe.objective} score matching{start}")
    for change in changes:
        print(f"  changed    {change}")
    print(f"  data       {metadata.get('data', 'unknown')}, {metadata.get('data_images', 'unknown')} images")
    if loss is not None:
        print(f"  held out   loss {loss}")
        levels = [f"{with_error(*found)} at sigma {sigma}" for sigma, found in loss.by_sigma.items()]
        for k in range(0, len(levels), 3):
            print(f"             {', '.join(levels[k : k + 3])}")
    precision = f", stored in {metadata['stored']}" if "stored" in metadata else ""
    first = f" (ema is ema-{recipe.averages[0]:g})" if len(recipe.averages) > 1 and "ema" in held else ""
    print(f"  weights    {', '.join(held)}{first}{precision}")
    if not known:
        print(f"  to load    in Python, with its class: sf.load({model!r}, network={recipe.network}(...))")
        return
    settings = ", ".join(f"{key} {value}" for key, value in sampler.items() if key not in ("name", "sigmas"))
    settings = f"{sampler['name']}: {settings}; {header.sampler.calls} network calls"
    print(f"  to sample  scorefield sample {quote(model)} ({settings})")


@command
def export_(
    model: ModelName,
    /,
    *,
    out: Path | None = None,
    hub: str | None = None,
    private: Flag = False,
    weights: str | None = None,
    precision: Literal["float16", "float32"] = "float16",
    sampler: SamplerName | None = None,
    calls: int | None = None,
) -> None:
    """Write a small model file to share: one set of weights, in 16 bit, and no path of this machine.

    Example: scorefield export runs/mine --out mine.safetensors

    Args:
        out: FILE.safetensors, which must be new.
        hub: OWNER/NAME: upload the model file to this repository of the Hugging Face hub, which is made if it is
            missing, with a model card that says what the file is. Log in first: hf auth login.
        private: If the repository is made, only you can see it.
        weights: The raw weights (raw), their moving average (ema), another average, or both for all. Default: ema.
        precision: The precision in which weights are stored. Models compute in float32 all the same.
        sampler: The default sampler of the model file. Default: that of the model.
        calls: The number of network calls of that sampler.
    """
    from scorefield.models.card import model_card
    from scorefield.models.export import export
    from scorefield.models.hub import CARD, FILE, PREFIX, check_hub, upload
    from scorefield.models.model import load

    if out is None and hub is None:
        raise ValueError("say where the model shall go (--out FILE.safetensors, or --hub OWNER/NAME)")
    if private and hub is None:
        raise ValueError("--private is for a repository of the hub (name it with --hub OWNER/NAME)")
    if out is not None:
        if out.suffix != ".safetensors":
            raise ValueError(f"models are .safetensors files; got --out {out} (name it FILE.safetensors)")
        if out.exists():
            raise FileExistsError(f"{out} exists already (name another file with --out)")
        prepare_file(out)
    if hub is not None:
        check_hub(hub)
    chosen = None
    if sampler is not None or calls is not None:
        loaded = load(model)
        chosen = samplers.changed(loaded.sampler, {"calls": calls}, name=sampler, accepted=loaded.accepted)
    with TemporaryDirectory() as folder:
        file = out or Path(folder) / FILE
        made = export(model, file, weights=weights, precision=precision, sampler=chosen)
        say(f"{' and '.join(made.held)} weights in {precision}, {made.size / 1e6:.2f} MB")
        say(f"rounding changed no tensor by more than {made.change:.2g} of its norm")
        if out is not None:
            print(out)
        if hub is not None:
            url, new_card = upload(file, model_card(file, f"{PREFIX}{hub}"), hub, private=private)
            say(f"{CARD} is there already and stays as it is" if not new_card else f"with a model card, {CARD}")
            say(f"to use it: scorefield sample {PREFIX}{hub}")
            print(url)


@command
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
    prepare_file(out)
    network = from_released(checkpoint, sigma_max=sigma_max, sigma_min=sigma_min)
    levels, width = network.norm.gamma.shape
    size = (28 if network.channels == 1 else 32) if image_size is None else image_size
    recipe = Recipe(data=str(checkpoint), width=width, sigma_max=sigma_max, sigma_min=sigma_min, levels=levels)
    metadata = {"data": "unknown", "imported_from": checkpoint.name}
    shape = (network.channels, size, size)
    save_model(out, network.state_dict(), None, recipe=recipe, shape=shape, step=0, metadata=metadata)
    say(f"a model of {network.channels} × {size} × {size} images, {plural(levels, 'noise level')}")
    print(out)
