"""Model cards: what a model file says about itself, as the README of a repository on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from scorefield import samplers
from scorefield.models.build import NETWORKS
from scorefield.models.hub import PREFIX
from scorefield.models.model import held_weights, load, parse_header, read_model


def model_card(file: Path, name: str) -> str:
    """The card of an exported model file, which others will load by this name. All of it is from the file's record."""
    path, tensors, stored = read_model(file)
    header, held = parse_header(stored, path), held_weights(tensors, path)
    recipe, told, (channels, height, width) = header.recipe, header.metadata, header.shape
    own = recipe.network not in NETWORKS
    if own:  # its class is not here
        network = f"{recipe.network}, a class of its author's own, which `load` wants as `network=`"
        levels, low, high = "", recipe.sigma_min, recipe.sigma_max
    else:
        model = load(file)
        network = f"{recipe.network} of width {recipe.width}, {model.parameters / 1e6:.2f} M parameters"
        levels = f"{len(model.sigmas)} levels, " if model.accepted.listed else "all levels, "
        low, high = model.sigma_range
    if "imported_from" in told:
        training = f"imported from {told['imported_from']}"
    else:
        training = f"{header.step:,} steps of {recipe.batch_size} images by {recipe.objective} score matching"
    rows = {
        "Network": network,
        "Images": f"{channels} × {height} × {width}, pixels in [0, 1]",
        "Noise levels": f"{levels}σ = {high:g} ... {low:g}",
        "Classes": ", ".join(header.labels) or "none",
        "Training": training,
        "Training data": f"{told.get('data', 'unknown')}, {told.get('data_images', 'an unknown number of')} images",
        "Weights": f"{' and '.join(held)}, stored in {told.get('stored', 'float32')}",
        "Default sampler": samplers.to_dict(header.sampler)["name"],
        "Written by": f"scorefield {told.get('version', '')}".strip(),
        "Checksum": f"`{stored['sha256']}` (SHA-256 of the weights and this record)",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    network_argument = f", network={recipe.network}(...)" if own else ""
    sample = "" if own else f"scorefield sample {name} -n 16 --out samples.png\n"
    return f"""---
library_name: scorefield
pipeline_tag: unconditional-image-generation
tags:
- score-matching
- langevin-dynamics
---

# {name.removeprefix(PREFIX).partition("/")[2]}

A score-based generative model, made with scorefield.

```sh
pip install 'scorefield[hub]'
{sample}```

```python
import scorefield as sf

model = sf.load("{name}"{network_argument})
images = model.sample(16, seed=0)  # (16, {channels}, {height}, {width}), floats in [0, 1]
```

| | |
|---|---|
{table}

The file's record holds neither the quality of samples, which `scorefield evaluate {name}` measures, nor the terms of
the training data, which whoever shares a model should state here.
"""
