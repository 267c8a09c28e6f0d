"""Figure 1: without noise, data on a manifold have no score to converge to.

A residual network learns the score of CIFAR-10 by sliced score matching, once from the images as they are and once from
images with noise N(0, 0.0001), which cannot be seen. The first loss falls and then fluctuates irregularly; the second
converges.

The network has fused kernels of its own (`acceleration/dual.py`) because without them the figure's 100,000 iterations
take 41 minutes on an H200 instead of 11.6 (24.7 ms instead of 6.9 ms each).
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorefield import data
from scorefield.acceleration import quadratic_form_of
from scorefield.distributed import Group, device_name, pick_device
from scorefield.models.checkpoint import read, write
from scorefield.networks import ResNet
from scorefield.noise import SampleNoise
from scorefield.objectives import sliced
from scorefield.paper.output import Result, new_figure, save
from scorefield.progress import Track, silent
from scorefield.training.folder import optimizer_tensors, restore_trainer
from scorefield.training.run import batches, chosen_kernels
from scorefield.training.trainer import Batch, Losses, RecordedTrainer, Trainer, adam, learning_rates, prepare

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = NDArray[np.float64]
"""The loss of each iteration, (N,)."""

VERSION = 3
"""Raised when the same settings would give another curve."""
SECONDS = 30.0
"""Time between two checkpoints."""
TITLES = {0.0: "images as they are", 0.01: "images + N(0, 0.0001)"}


class Trained(NamedTuple):
    """A curve, and how many seconds its training took in all."""

    curve: Curve
    seconds: float


@dataclass(frozen=True)
class Settings:
    """Appendix B.1."""

    iterations: int = 50_000
    batch_size: int = 128
    learning_rate: float = 1e-3
    filters: tuple[int, ...] = (32, 64, 64, 128, 128)
    sigmas: tuple[float, ...] = (0.0, 0.01)
    last: int = 10_000
    """Number of iterations at the end whose spread is reported."""


QUICK = Settings(iterations=40, batch_size=8, filters=(8, 16, 16, 32, 32), last=20)


def train(
    images: data.Images,
    sigma: float,
    settings: Settings,
    *,
    seed: int = 0,
    device: torch.device | None = None,
    kept: Path | None = None,
    track: Track[Any] = silent,
) -> Trained:
    """The sliced score matching loss (Eq. 3) at each iteration, on images with noise of that σ.

    `kept` is a file for checkpoints: training goes on from what it holds, and at the end it holds the whole curve. On a
    CPU an interrupted training gives the same bits as an uninterrupted one; on a GPU nearly so, because the order of
    its sums is not fixed.
    """
    device = device or torch.device("cpu")
    trainer = make_trainer(images.shape[0], sigma, settings, seed=seed, device=device)
    key = key_of(images, sigma, settings, seed=seed, device=device)
    curve, seconds = ([], 0.0) if kept is None else _resume(trainer, kept, key)
    draw_batch = batches(images, Group(0, 1, device), batch_size=settings.batch_size, seed=seed)
    first = trainer.steps_done

    def losses() -> Iterator[Tensor]:
        for n in range(first, settings.iterations):
            yield trainer.step(draw_batch(n), n).values.mean()

    what = f"fig1: sliced score matching, σ = {sigma:g}" + (f", from iteration {first:,} on" if first else "")
    with chosen_kernels(device, deterministic=False):
        began = saved = now = time.monotonic()
        for loss in track(losses(), what, settings.iterations - first) if first < settings.iterations else ():
            curve.append(loss)
            now = time.monotonic()
            if kept is not None and (len(curve) == settings.iterations or now - saved > SECONDS):
                _save(trainer, curve, kept, {"key": key, "seconds": f"{seconds + now - began:.3f}"})
                saved = time.monotonic()
    return Trained(torch.stack(curve).double().cpu().numpy(), seconds + now - began)


def make_trainer(channels: int, sigma: float, settings: Settings, *, seed: int, device: torch.device) -> Trainer:
    """The trainer of a new network by sliced score matching at that σ; on a GPU its updates are CUDA graphs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ResNet(channels=channels, filters=settings.filters)
    network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    std, quadratic_form = torch.tensor(sigma, device=device), quadratic_form_of(network)

    def loss(batch: Batch, noise: SampleNoise) -> tuple[Tensor, Losses]:
        x = prepare(batch.pixels, noise, flip=False, dequantise=False)
        each = sliced(network, x, std, randn_like=noise.randn_like, quadratic_form=quadratic_form)
        return each, Losses(each.detach(), std.expand_as(each))

    kind, rate = (RecordedTrainer if device.type == "cuda" else Trainer), settings.learning_rate
    return kind(network, loss, adam(network, rate), learning_rates(rate), seed=seed)


def key_of(images: data.Images, sigma: float, settings: Settings, *, seed: int, device: torch.device) -> str:
    """A digest of everything that decides a curve, except for rounding."""
    alike = replace(settings, sigmas=(sigma,), last=0)
    key = repr((VERSION, images.digest, astuple(alike), seed, device_name(device), _precision(device)))
    return hashlib.sha256(key.encode()).hexdigest()


def _save(trainer: Trainer, curve: list[Tensor], path: Path, header: dict[str, str]) -> None:
    weights = {f"raw/{name}": value for name, value in trainer.network.state_dict().items()}
    moments = {f"moments/{name}": value for name, value in optimizer_tensors(trainer.optimizer).items()}
    try:
        write(path, {**weights, **moments, "losses": torch.stack(curve)}, header)
    except OSError as error:
        warnings.warn(f"the progress of fig1 cannot be saved: {error}", stacklevel=2)


def _resume(trainer: Trainer, path: Path, key: str) -> tuple[list[Tensor], float]:
    """Restore a checkpoint. Returns its losses and seconds; none if it is missing, damaged or of another curve."""
    try:
        tensors, header = read(path)
    except FileNotFoundError:
        return [], 0.0
    except ValueError as error:
        warnings.warn(f"fig1 starts again: {error}", stacklevel=2)
        return [], 0.0
    if header.get("key") != key:
        return [], 0.0
    curve = list(tensors["losses"].to(next(trainer.network.parameters()).device))
    moments = {name.removeprefix("moments/"): t for name, t in tensors.items() if name.startswith("moments/")}
    restore_trainer(trainer, tensors, moments, step=len(curve))
    return curve, float(header["seconds"])


def _precision(device: torch.device) -> str:
    return "TF32" if device.type == "cuda" and torch.backends.cudnn.allow_tf32 else "float32"


def spread(curve: Curve, last: int) -> dict[str, Any]:
    """Statistics of the last iterations of a curve.

    `wander` is the standard deviation of the means of 100 iterations each: it leaves out the differences from batch to
    batch. It is None for fewer than 200 iterations.
    """
    end = curve[-last:]
    if not np.isfinite(end).all():
        bad = int(np.flatnonzero(~np.isfinite(curve))[0])
        return {"iterations": len(end), "not_finite_from": bad + 1}
    quantiles = np.quantile(end, [0.05, 0.25, 0.5, 0.75, 0.95])
    return {
        "iterations": len(end),
        "mean": float(end.mean()),
        "std": float(end.std()),
        "std_over_mean": float(end.std() / abs(end.mean())),
        "wander": float(smooth(end, 100).std()) if len(end) >= 200 else None,
        "min": float(end.min()),
        "max": float(end.max()),
        "quantiles": {f"{share:g}": float(q) for share, q in zip((5, 25, 50, 75, 95), quantiles, strict=True)},
    }


def words_of(told: dict[str, Any]) -> str:
    """The spread in words."""
    if "not_finite_from" in told:
        return f"not finite from iteration {told['not_finite_from']:,} on"
    return f"last {told['iterations']:,} iterations: {amount(told['mean'])} ± {amount(told['std'])}"


def amount(x: float) -> str:
    """A whole number; from a million on, four digits in millions."""
    return f"{x:,.0f}" if abs(x) < 1e6 else f"{float(f'{x / 1e6:.4g}'):,g} million"


def smooth(curve: Curve, size: int) -> Curve:
    """The means of `size` consecutive iterations each. A remainder at the end is dropped."""
    return curve[: len(curve) // size * size].reshape(-1, size).mean(1)


def make(out: Path, *, quick: bool = False, seed: int = 0, track: Track[Any] = silent) -> Result:
    """Write fig1.png and fig1.json to `out`: 12 minutes on one H200, days on a CPU unless `quick`.

    Each curve is kept in the cache folder, so that an interrupted figure goes on and a finished curve is not trained
    again.
    """
    settings = QUICK if quick else Settings()
    new_figure(1, 1)  # fails at once if matplotlib is missing
    device = pick_device("auto")
    if device.type == "cpu" and not quick:
        warnings.warn(
            "fig1 takes days without a GPU (--quick makes its first steps only; an interrupted run goes on)",
            stacklevel=2,
        )
    images, trained = data.load("cifar10", track=track), list[Trained]()
    for sigma in settings.sigmas:
        key = key_of(images, sigma, settings, seed=seed, device=device)
        kept = data.folder_of("cache") / f"fig1-{key[:24]}.safetensors"
        trained.append(train(images, sigma, settings, seed=seed, device=device, kept=kept, track=track))
    curves = {sigma: each.curve for sigma, each in zip(settings.sigmas, trained, strict=True)}
    spreads = {sigma: spread(curve, settings.last) for sigma, curve in curves.items()}
    size = max(1, settings.iterations // 500)
    numbers = {
        "spread": {f"{sigma:g}": each for sigma, each in spreads.items()},
        "curves": {
            f"{sigma:g}": [round(x, 3) if np.isfinite(x) else None for x in smooth(curve, size).tolist()]
            for sigma, curve in curves.items()
        },
        "curves_are": f"means of {size} iterations",
        "seed": seed,
        "quick": quick,
        "seconds": round(sum(each.seconds for each in trained), 1),
        "machine": device_name(device),
        "precision": _precision(device),
        "settings": asdict(settings),
    }
    figure = new_figure(11, 4)
    for axes, sigma in zip(figure.subplots(1, len(curves)), curves, strict=True):
        _draw(axes, TITLES.get(sigma, f"σ = {sigma:g}"), curves[sigma], spreads[sigma], size)
    if quick:
        figure.suptitle(
            f"a quick version: {settings.iterations} iterations of {settings.batch_size} images, few filters"
        )
    return save(figure, numbers, out, "fig1")


def _draw(axes: Axes, title: str, curve: Curve, told: dict[str, Any], size: int) -> None:
    """Every iteration in grey, with the means on top."""
    smoothed, (low, high) = smooth(curve, size), _window(curve)
    outside = 1 - np.mean((curve >= low) & (curve <= high))
    axes.plot(np.arange(1, len(curve) + 1), curve, color="0.8", lw=0.4, rasterized=True, label="each iteration")
    axes.plot(
        np.arange(len(smoothed)) * size + (size + 1) / 2, smoothed, color="tab:blue", lw=1.2, label=f"means of {size}"
    )
    axes.set(xlim=(0, len(curve)), ylim=(low, high), ylabel="sliced score matching loss")
    axes.set_xlabel(f"iteration ({outside:.1%} of the losses are outside the picture)" if outside else "iteration")
    axes.set_title(f"{title}\n{words_of(told)}", fontsize=10)
    for line in axes.legend(frameon=False, fontsize=8).get_lines():
        line.set_linewidth(1.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3, lw=0.5)


def _window(curve: Curve) -> tuple[float, float]:
    """The lowest and highest loss to show: all but the first fiftieth of the curve and one in a hundred of the rest."""
    later = curve[len(curve) // 50 :]
    finite = later[np.isfinite(later)]
    if not len(finite):
        return -1.0, 1.0
    low, high = np.quantile(finite, [0.005, 0.995])
    margin = 0.08 * max(high - low, 1e-6)
    return float(low - margin), float(high + margin)
