"""Figure 1: without noise, data on a manifold have no score to converge to.

A residual network learns the score of CIFAR-10 by sliced score matching, once from the images as they are and once from
images with noise N(0, 0.0001), which no eye would see. The first loss falls and then fluctuates irregularly; the second
converges.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scorefield import data
from scorefield.models.checkpoint import read, write
from scorefield.distributed import Group, device_name, pick_device
from scorefield.paper.output import Result, new_figure, save
from scorefield.acceleration.fast import RecordedUpdate, fast_form
from scorefield.networks import ResNet
from scorefield.noise import SampleNoise
from scorefield.objectives import sliced
from scorefield.progress import Track, silent
from scorefield.training.folder import optimizer_tensors, restore_state
from scorefield.training.run import batches, chosen_kernels
from scorefield.training.steps import Descent, TrainingState, adam, descent, fit, prepared, step_loss

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = NDArray[np.float64]
"""The loss of each iteration, (N,)."""

VERSION = 3
"""Raised when the same settings would give another curve."""
SECONDS = 30.0
"""Between two times that a training which may be interrupted is written to the disk."""
TITLES = {0.0: "images as they are", 0.01: "images + N(0, 0.0001)"}


class Trained(NamedTuple):
    """A curve, and the seconds that it took, in all."""

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
    """Iterations at the end whose spread is told."""


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

    It goes on from what lies in the file `kept`, and writes there now and then how far it has come, and all of it in
    the end. On a CPU it goes on as if it had not been interrupted; on a GPU, whose sums have no fixed order, nearly so.
    """
    device = device or torch.device("cpu")
    network = _network(images.shape[0], settings, seed=seed, device=device)
    state, form = TrainingState(network, adam(network, settings.learning_rate)), fast_form(network)
    key = key_of(images, sigma, settings, seed=seed, device=device)
    done, before = ([], 0.0) if kept is None else _resumed(state, kept, key)
    std, cuda, start = torch.tensor(sigma, device=device), device.type == "cuda", state.step

    def losses(pixels: Tensor, noise: SampleNoise) -> tuple[Tensor, Tensor]:
        x = prepared(pixels, noise, flip=False, dequantise=False)
        each = sliced(network, x, std, randn_like=noise.randn_like, quadratic_form=form)
        return each, torch.zeros_like(each, dtype=torch.long)

    step: Descent = (
        RecordedUpdate(losses, state, seed=seed, clip=0.0) if cuda else descent(state, step_loss(losses, seed=seed))
    )
    batch = batches(images, Group(0, 1, device), batch_size=settings.batch_size, seed=seed)
    updates = fit(state, batch, step, steps=settings.iterations, learning_rate=settings.learning_rate)
    words = f"fig1: sliced score matching, σ = {sigma:g}" + (f", from iteration {start:,} on" if start else "")
    with chosen_kernels(device, deterministic=False):
        began = saved = now = time.monotonic()
        for update in track(updates, words, settings.iterations - start) if start < settings.iterations else ():
            done.append(update.losses.mean())
            now, ends = time.monotonic(), update.step == settings.iterations
            if kept is not None and (ends or now - saved > SECONDS):
                _keep(state, done, kept, {"key": key, "seconds": f"{before + now - began:.3f}"})
                saved = time.monotonic()
    curve = torch.stack(done).double().cpu().numpy()
    return Trained(curve, before + now - began)


def _network(channels: int, settings: Settings, *, seed: int, device: torch.device) -> ResNet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ResNet(channels=channels, filters=settings.filters)
    return network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]


def key_of(images: data.Images, sigma: float, settings: Settings, *, seed: int, device: torch.device) -> str:
    """Of curves that are the same, but for rounding."""
    alike = replace(settings, sigmas=(sigma,), last=0)
    key = repr((VERSION, images.digest, astuple(alike), seed, device_name(device), _precision(device)))
    return hashlib.sha256(key.encode()).hexdigest()


def _keep(state: TrainingState, done: list[Tensor], path: Path, facts: dict[str, str]) -> None:
    weights = {f"raw/{name}": value for name, value in state.network.state_dict().items()}
    moments = {f"moments/{name}": value for name, value in optimizer_tensors(state.optimizer).items()}
    try:
        write(path, {**weights, **moments, "losses": torch.stack(done)}, facts)
    except OSError as error:
        warnings.warn(f"how far fig1 has come is not kept: {error}", stacklevel=2)


def _resumed(state: TrainingState, path: Path, key: str) -> tuple[list[Tensor], float]:
    """The losses so far, the seconds that they took, and the state as it was then. Of what is not there, damaged or
    another's, there are none."""
    try:
        tensors, metadata = read(path)
    except FileNotFoundError:
        return [], 0.0
    except ValueError as error:
        warnings.warn(f"fig1 begins anew: {error}", stacklevel=2)
        return [], 0.0
    if metadata.get("key") != key:
        return [], 0.0
    done = list(tensors["losses"].to(next(state.network.parameters()).device))
    moments = {name.removeprefix("moments/"): t for name, t in tensors.items() if name.startswith("moments/")}
    restore_state(state, tensors, moments, step=len(done))
    return done, float(metadata["seconds"])


def _once(
    images: data.Images, sigma: float, settings: Settings, *, seed: int, device: torch.device, track: Track[Any]
) -> Trained:
    """`train`, kept on the disk: what is interrupted goes on, and what is done is not done again."""
    key = key_of(images, sigma, settings, seed=seed, device=device)
    kept = data.folder_of("cache") / f"fig1-{key[:24]}.safetensors"
    return train(images, sigma, settings, seed=seed, device=device, kept=kept, track=track)


def _precision(device: torch.device) -> str:
    return "TF32" if device.type == "cuda" and torch.backends.cudnn.allow_tf32 else "float32"


def spread(curve: Curve, last: int) -> dict[str, Any]:
    """How the loss lies at its last iterations.

    `wander` is the standard deviation of the means of 100 iterations: it leaves out what differs from batch to batch.
    Of fewer than 200 iterations there is none.
    """
    end = curve[-last:]
    finite = end[np.isfinite(end)]
    if len(finite) < len(end):
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
    """That spread, for people."""
    if "not_finite_from" in told:
        return f"not finite from iteration {told['not_finite_from']:,} on"
    return f"last {told['iterations']:,} iterations: {amount(told['mean'])} ± {amount(told['std'])}"


def amount(x: float) -> str:
    """Rounded to one; from a million on to four figures, in millions."""
    return f"{x:,.0f}" if abs(x) < 1e6 else f"{float(f'{x / 1e6:.4g}'):,g} million"


def smooth(curve: Curve, size: int) -> Curve:
    """Means of `size` iterations each, one after the other; what is left over at the end is dropped."""
    return curve[: len(curve) // size * size].reshape(-1, size).mean(1)


def make(out: Path, *, quick: bool = False, seed: int = 0, track: Track[Any] = silent) -> Result:
    """fig1.png and fig1.json in `out`. 12 minutes on one H200, days on a CPU unless `quick`."""
    settings = QUICK if quick else Settings()
    new_figure(1, 1)  # fails at once where matplotlib is missing
    device = pick_device("auto")
    if device.type == "cpu" and not quick:
        warnings.warn("fig1 takes days without a GPU (--quick: its first steps; interrupted, it goes on)", stacklevel=2)
    images = data.load("cifar10", track=track)
    made = [_once(images, sigma, settings, seed=seed, device=device, track=track) for sigma in settings.sigmas]
    curves = [each.curve for each in made]
    spreads = [spread(curve, settings.last) for curve in curves]
    size = max(1, settings.iterations // 500)
    numbers = {
        "spread": {f"{sigma:g}": told for sigma, told in zip(settings.sigmas, spreads, strict=True)},
        "curves": {
            f"{sigma:g}": [round(x, 3) if np.isfinite(x) else None for x in smooth(curve, size).tolist()]
            for sigma, curve in zip(settings.sigmas, curves, strict=True)
        },
        "curves_are": f"means of {size} iterations",
        "seed": seed,
        "quick": quick,
        "seconds": round(sum(each.seconds for each in made), 1),
        "machine": device_name(device),
        "precision": _precision(device),
        "settings": asdict(settings),
    }
    figure = new_figure(11, 4)
    for axes, sigma, curve, told in zip(figure.subplots(1, 2), settings.sigmas, curves, spreads, strict=True):
        _draw(axes, TITLES.get(sigma, f"σ = {sigma:g}"), curve, told, size)
    if quick:
        figure.suptitle(f"a quick try: {settings.iterations} iterations of {settings.batch_size} images, few filters")
    return save(figure, numbers, out, "fig1")


def _draw(axes: Axes, title: str, curve: Curve, told: dict[str, Any], size: int) -> None:
    """Every iteration in grey and the means on top of it."""
    smoothed, (low, high) = smooth(curve, size), _window(curve)
    outside = 1 - np.mean((curve >= low) & (curve <= high))
    axes.plot(np.arange(1, len(curve) + 1), curve, color="0.8", lw=0.4, rasterized=True, label="each iteration")
    axes.plot(
        np.arange(len(smoothed)) * size + (size + 1) / 2, smoothed, color="tab:blue", lw=1.2, label=f"means of {size}"
    )
    axes.set(xlim=(0, len(curve)), ylim=(low, high), ylabel="sliced score matching loss")
    axes.set_xlabel(f"iteration ({outside:.1%} of the losses lie beyond the picture)" if outside else "iteration")
    axes.set_title(f"{title}\n{words_of(told)}", fontsize=10)
    for line in axes.legend(frameon=False, fontsize=8).get_lines():
        line.set_linewidth(1.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3, lw=0.5)


def _window(curve: Curve) -> tuple[float, float]:
    """Heights that hold all losses but the first of them, but for one in a hundred, and some air."""
    later = curve[len(curve) // 50 :]
    finite = later[np.isfinite(later)]
    if not len(finite):
        return -1.0, 1.0
    low, high = np.quantile(finite, [0.005, 0.995])
    air = 0.08 * max(high - low, 1e-6)
    return float(low - air), float(high + air)
