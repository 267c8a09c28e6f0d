"""Train two U-Nets of the same shape for the same time on one GPU: magnitude-preserving layers against group norm.

    python scripts/compare_normalisation.py --minutes 4 -n 10000 --out runs/normalisation

Both see the same batches, noise levels and noise, in bfloat16, compiled by torch.compile, so that neither has kernels
of its own. Compilation is done before the time starts. Afterwards both are measured alike, with averaged weights: the
loss on held-out images by noise level, on common noise, and the FID of samples. Everything is written into --out. What
is there already is not computed again, so that a run that was interrupted can go on.

`--smoke` does it all, except for FID, on a CPU within a minute, with tiny networks and random images.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scorefield import data
from scorefield.distributed import Group, device_name, pick_device
from scorefield.evaluation import inception
from scorefield.evaluation.numbers import measure_metrics
from scorefield.evaluation.sample_cache import SampleCache, cached_batch_size
from scorefield.evaluation.sources import load_reference
from scorefield.files import read_json, write_json
from scorefield.models.build import build_network
from scorefield.models.model import BATCH, Model, load
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.networks import UNet
from scorefield.networks.unet import HEAD, Block, RandLike
from scorefield.objectives import unit_weight
from scorefield.progress import track
from scorefield.training import train
from scorefield.training.bench import forward_flop
from scorefield.training.history import read_log
from scorefield.training.levels import log_bins
from scorefield.training.trainer import Batch, MeanLosses, held_out_losses, mean_losses

NEVER = 10**9
"""A number of iterations that no run has."""


# ---------------------------------------------------------------- the network with group norm


class GroupNormUNet(UNet):
    """`UNet` with the usual layers: biases, group norm before each convolution, scales and shifts by the embedding, and
    blocks that begin as the identity. Stages, blocks, channels, attention, labels and preconditioning are the same."""

    def __init__(self, **sizes: Any) -> None:  # noqa: ANN401
        super().__init__(**sizes)
        widths = [self.width * factor for factor in self.stages]
        embedding = max(widths)
        self.embed = nn.Sequential(nn.Linear(self.width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))  # type: ignore[assignment]
        self.classes = nn.Embedding(self.labels + 1, embedding) if self.labels else None  # type: ignore[assignment]
        self.begin = nn.Conv2d(self.channels + 1, self.width, 3, padding=1)  # type: ignore[assignment]
        for blocks in (self.down, self.up):
            for k, block in enumerate(blocks):
                blocks[k] = GroupNormBlock(block, embedding)  # type: ignore[arg-type]
        self.middle = GroupNormBlock(self.middle, embedding)  # type: ignore[assignment]
        last = zeroed(nn.Conv2d(self.width, self.channels, 3, padding=1))
        self.end = nn.Sequential(group_norm(self.width), nn.SiLU(), last)  # type: ignore[assignment]
        self.gain = nn.Parameter(torch.ones(()), requires_grad=False)

    def embedding(self, sigma: Tensor, label: Tensor | None, n: int) -> Tensor:
        noise: Tensor = self.embed(self.fourier(sigma.log().reshape(-1) / 4))
        if self.classes is None:
            return noise
        label = torch.full((1,), -1, device=noise.device) if label is None else label
        self.check_label(label, n)
        return noise + self.classes(torch.where(label < 0, self.labels, label))


class GroupNormBlock(nn.Module):
    """x ← shortcut(x) + conv(SiLU((1 + scale) · norm(conv(SiLU(norm(x)))) + shift)), and attention if wanted."""

    def __init__(self, like: Block, embedding: int) -> None:
        """`like`: the block of `UNet` in whose place this one comes."""
        super().__init__()
        channels, before = (like.shortcut or like.conv1).weight.shape[:2]
        self.dropout = like.dropout
        self.norm1, self.conv1 = group_norm(before), nn.Conv2d(before, channels, 3, padding=1)
        self.norm2, self.conv2 = group_norm(channels), zeroed(nn.Conv2d(channels, channels, 3, padding=1))
        self.shortcut = nn.Conv2d(before, channels, 1) if before != channels else nn.Identity()
        self.modulation = nn.Linear(embedding, 2 * channels)
        self.attention = nn.Identity() if like.attention is None else GroupNormAttention(channels)

    def forward(self, x: Tensor, e: Tensor, skip: Tensor | None, rand_like: RandLike | None) -> Tensor:
        x = x if skip is None else torch.cat([x, skip], 1)
        scale, shift = self.modulation(e)[..., None, None].chunk(2, 1)
        h = self.norm2(self.conv1(F.silu(self.norm1(x))))
        h = F.silu(h * (1 + scale) + shift)
        if rand_like is not None and self.dropout:
            h = torch.where(rand_like(h) < self.dropout, 0, h / (1 - self.dropout))
        return self.attention(self.shortcut(x) + self.conv2(h))


class GroupNormAttention(nn.Module):
    """Each place looks at all places: x + projection of softmax(q kᵀ/√d) v."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads, self.norm = max(1, channels // HEAD), group_norm(channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), zeroed(nn.Conv2d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norm(x)).permute(0, 2, 3, 1).flatten(1, 2)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(y.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2))


def group_norm(channels: int) -> nn.GroupNorm:
    """At most 32 groups, of at least 4 channels."""
    groups = max(n for n in range(1, min(32, max(1, channels // 4)) + 1) if channels % n == 0)
    return nn.GroupNorm(groups, channels)


def zeroed(conv: nn.Conv2d) -> nn.Conv2d:
    """The convolution with weights 0."""
    for parameter in conv.parameters():
        nn.init.zeros_(parameter)
    return conv


def group_norm_network(recipe: Recipe, *, channels: int, labels: int) -> GroupNormUNet:
    """What `build_network` makes of the recipe, with group norm."""
    like = build_network(recipe, channels=channels, labels=labels)
    assert isinstance(like, UNet)
    sizes = {name: getattr(like, name) for name in ("width", "stages", "blocks", "attention", "dropout", "sigma_data")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = GroupNormUNet(channels=channels, labels=labels, sigma_range=like.sigma_range, **sizes)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "magnitude-preserving": build_network,
    "group-norm": group_norm_network,
}


# ---------------------------------------------------------------- training and measuring


@dataclass(frozen=True)
class Result:
    """What is found out about one of the networks."""

    network: str
    minutes: float
    learning_rate: float
    parameters: int
    gflop_per_image: float
    compile_seconds: float
    """Until the first two iterations are done; not counted in the next."""
    training_seconds: float
    iterations: int
    images_per_second: float
    graphs_compiled_while_training: int
    """More than 0 means that compilation took some of the time."""
    loss: float | None = None
    """The mean over the noise levels on held-out images, and its standard error; then at each level."""
    loss_standard_error: float | None = None
    loss_by_sigma: tuple[tuple[float, float, float | None], ...] = ()
    """(σ, loss, standard error)."""
    fid: float | None = None
    fid_n: int = 0
    calls: int = 0
    sampling_seconds: float | None = None


def train_one(name: str, recipe: Recipe, minutes: float, out: Path, group: Group) -> Result:
    """Train in the folder `out`, for that many minutes after compilation."""
    images = data.load(recipe.data, track=track)
    network = NETWORKS[name](recipe, channels=images.shape[0], labels=len(images.classes)).to(group.device)
    network.dropout = 0.0  # type: ignore[assignment]  # its blocks have theirs, by torch.rand_like, which compiles well
    start = copy.deepcopy(network.state_dict())
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        train(replace(recipe, steps=2), Path(folder) / "run", group, network=network)
    compiling, before = time.perf_counter() - began, graphs()
    network.load_state_dict(start)
    train(recipe, out, group, network=network, minutes=minutes, plan=True, say=say)
    log = read_log(out / "log.csv", recipe)
    iterations, seconds = int(log.rows[-1][0] or 0), log.last("seconds") or 0.0
    return Result(
        network=name,
        minutes=minutes,
        learning_rate=recipe.learning_rate,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        gflop_per_image=forward_flop(network.eval(), images.shape, recipe.sigma_max) / 1e9,
        compile_seconds=compiling,
        training_seconds=seconds,
        iterations=iterations,
        images_per_second=iterations * recipe.batch_size / seconds,
        graphs_compiled_while_training=graphs() - before,
    )


def graphs() -> int:
    """The number of graphs that torch.compile has compiled."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def trained_model(name: str, recipe: Recipe, out: Path, group: Group) -> Model:
    """The averaged weights of a run."""
    images = data.load(recipe.data)
    network = NETWORKS[name](recipe, channels=images.shape[0], labels=len(images.classes))
    return load(out, weights="ema", device=group.device, network=network)


@torch.no_grad()
def losses_of(model: Model, held_out: data.Images) -> tuple[Tensor, Tensor]:
    """The loss of each held-out image at each noise level, (L, N), and the levels. The noise is always the same."""
    labels = None if held_out.labels is None else torch.tensor(held_out.labels).to(model.device)
    batch = Batch(torch.tensor(held_out.pixels).to(model.device), labels)
    sigmas, weight = log_bins(*model.sigma_range).to(model.device), unit_weight(model.recipe.sigma_data)
    size = BATCH.get(model.device.type, 64)
    settings = {"dequantise": model.recipe.dequantise, "batch_size": size, "weight": weight}
    return held_out_losses(model.score, batch, sigmas, **settings).cpu(), sigmas.cpu()  # type: ignore[arg-type]


def with_losses(result: Result, losses: Tensor, sigmas: Tensor) -> Result:
    found = mean_losses(losses)
    return replace(
        result, loss=found.mean, loss_standard_error=found.error, loss_by_sigma=by_sigma(found, sigmas.tolist())
    )


def by_sigma(found: MeanLosses, sigmas: Sequence[float]) -> tuple[tuple[float, float, float | None], ...]:
    return tuple(zip(sigmas, found.by_level, found.errors_by_level, strict=True))


def with_fid(result: Result, model: Model, n: int, reference: str, group: Group) -> Result:
    """The FID of n samples by the model's own sampler, as `scorefield evaluate` measures it.

    They are drawn in float32, since only one of the networks has kernels for less.
    """
    network = inception.load_inception(device=group.device, track=track)
    images, _ = load_reference(None, reference, network, group, track=track)
    began = time.perf_counter()
    cache = SampleCache(model, model.sampler, precision="float32")
    rows = cache.draw(n, group, batch_size=cached_batch_size(500, group), track=track)
    seconds = time.perf_counter() - began
    metrics = measure_metrics(rows, images, network, group, track=track)
    assert metrics is not None
    return replace(result, fid=metrics.fid, fid_n=n, calls=model.recipe.sample_calls, sampling_seconds=seconds)


# ---------------------------------------------------------------- the comparison


def compare(
    recipes: dict[str, Recipe], held_out: data.Images, *, minutes: float, n: int, reference: str, out: Path
) -> dict[str, Any]:
    """Train and measure what is not in the folder `out` yet, and compare the networks if there are two."""
    group = Group(0, 1, pick_device("auto"))
    results, losses = dict[str, Result](), dict[str, Tensor]()
    sigmas = torch.empty(0)
    for name, recipe in recipes.items():
        file = out / f"{name}.json"
        keep = partial(_keep, file)
        result = _kept(file) or keep(train_one(name, recipe, minutes, out / name, group))
        if (result.minutes, result.learning_rate) != (minutes, recipe.learning_rate):
            raise ValueError(
                f"{out / name} was trained for {result.minutes:g} minutes at learning rate {result.learning_rate:g} "
                "(ask for the same, or name another folder: --out)"
            )
        model = trained_model(name, recipe, out / name, group)
        losses[name], sigmas = losses_of(model, held_out)
        result = keep(with_losses(result, losses[name], sigmas))
        if n and result.fid_n != n:
            result = keep(with_fid(result, model, n, reference, group))
        results[name] = result
    found: dict[str, Any] = {
        "device": device_name(group.device),
        "torch": torch.__version__,
        "minutes": minutes,
        "data": next(iter(recipes.values())).data,
        "batch_size": next(iter(recipes.values())).batch_size,
        "held_out": f"{held_out.name} ({len(held_out)})",
        "weight": "unit",
        "results": [asdict(result) for result in results.values()],
    }
    if len(losses) == 2:
        first, second = recipes
        both = mean_losses(losses[second] - losses[first])
        difference = {"loss": both.mean, "loss_standard_error": both.error}
        found["difference"] = {
            "of": f"{second} minus {first}",
            **difference,
            "loss_by_sigma": by_sigma(both, sigmas.tolist()),
        }
    return found


def _kept(file: Path) -> Result | None:
    if not file.exists():
        return None
    found = read_json(file)
    return Result(**found | {"loss_by_sigma": tuple(map(tuple, found["loss_by_sigma"]))})


def _keep(file: Path, result: Result) -> Result:
    write_json(file, asdict(result))
    return result


def lines(found: dict[str, Any]) -> list[str]:
    """The comparison for people."""
    said = [f"{found['device']}, {found['minutes']:g} minutes each, batch {found['batch_size']}, {found['data']}"]
    for each in found["results"]:
        said.append(
            f"{each['network']}: {each['parameters'] / 1e6:.3g} M parameters, {each['gflop_per_image']:.3g} GFLOP, "
            f"learning rate {each['learning_rate']:g}, compiled in {each['compile_seconds']:.0f} s; "
            f"{each['iterations']} iterations in {each['training_seconds']:.0f} s, "
            f"{each['images_per_second']:.4g} images/s"
        )
        said.append(f"  held-out loss {_with_error(each['loss'], each['loss_standard_error'])}")
        if each["fid"] is not None:
            said.append(f"  FID {each['fid']:.2f}   n = {each['fid_n']}, {each['calls']} calls")
    columns = {each["network"]: each["loss_by_sigma"] for each in found["results"]}
    if "difference" in found:
        columns["difference"] = found["difference"]["loss_by_sigma"]
    said.append(f"{'σ':>9}" + "".join(f" {name:>21}" for name in columns))
    for rows in zip(*columns.values(), strict=True):
        said.append(f"{rows[0][0]:9.4g}" + "".join(f" {_with_error(row[1], row[2]):>21}" for row in rows))
    return said


def _with_error(value: float, error: float | None) -> str:
    return f"{value:.4g}" + ("" if error is None else f" ± {error:.2g}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/normalisation"), help="Folder for all results.")
    parser.add_argument("--minutes", type=float, default=4.0, help="Time to train each network, after compilation.")
    parser.add_argument("-n", type=int, default=10_000, help="Number of samples for FID. 0: no FID.")
    parser.add_argument("--calls", type=int, default=35, help="Network calls per sample, by Heun's method.")
    parser.add_argument(
        "--learning-rates",
        nargs=2,
        type=float,
        default=(7e-3, 1e-3),
        metavar=("MAGNITUDE", "GROUP"),
        help="The learning rate of each network. Default: 0.007 0.001.",
    )
    parser.add_argument("--held-out", type=int, default=2000, help="Number of test images for the loss.")
    parser.add_argument("--reference", default="cifar10", help="Images for FID, or an .npz of their statistics.")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="Only these.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="Try the script with tiny networks and random images.")
    options = parser.parse_args(arguments)
    shared = replace(
        RECIPES["unet-cifar10"],
        compile=True,
        held_out=0,
        previews=0,
        checkpoint_every=NEVER,
        evaluate_every=NEVER,
        sampler="heun",
        sample_calls=options.calls,
        seed=options.seed,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    if options.smoke:
        shared, held_out = smoke(shared, options.out)
        options.n = 0
    else:
        held_out = data.load("cifar10:test", track=track).first(options.held_out)
    rates = dict(zip(NETWORKS, options.learning_rates, strict=True))
    recipes = {name: replace(shared, learning_rate=rates[name]) for name in NETWORKS if name in options.networks}
    found = compare(
        recipes, held_out, minutes=options.minutes, n=options.n, reference=options.reference, out=options.out
    )
    write_json(options.out / "comparison.json", found)
    print("\n".join(lines(found)))


def smoke(recipe: Recipe, out: Path) -> tuple[Recipe, data.Images]:
    """Tiny networks, not compiled, and 20 random images of two classes to train on and 20 to hold out."""
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        pixels, labels = rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8), np.arange(20) % 2
        np.savez(out / f"{name}.npz", images=pixels, labels=labels)
    sizes = {"width": 8, "stages": (1, 2), "blocks": (1, 1), "attention": (1,), "warmup": 0, "log_every": 1}
    small = replace(recipe, data=str(out / "train.npz"), batch_size=4, steps=6, compile=False, **sizes)  # type: ignore[arg-type]
    return small, data.load(str(out / "test.npz"))


if __name__ == "__main__":
    main()
