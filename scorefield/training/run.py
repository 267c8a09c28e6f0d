"""From a recipe to a trained model."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import shutil
import signal
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from scorefield import acceleration, data
from scorefield.acceleration.threads import multiplications, pytorch_threads, training_threads
from scorefield.distributed import Group, device_name, pick_device
from scorefield.models.build import (
    NETWORKS,
    ON_A_CPU,
    build_network,
    build_sampler,
    build_schedule,
    left_open,
    sized,
    sized_for_cpu,
    with_sigma_data,
)
from scorefield.models.model import Weights, check_is_network, load
from scorefield.models.pretrained import find
from scorefield.models.recipes import RECIPES, Recipe
from scorefield.networks import UNet
from scorefield.objectives import Objective, denoising, sliced
from scorefield.progress import Bar, Track, plural, silent
from scorefield.score import ConditionalScore, same_shape
from scorefield.training.folder import (
    NOT_FINITE_FIX,
    QUICK_CALLS,
    Run,
    Say,
    check_folder,
    evaluating,
    locked,
    saved_recipe,
    say_nothing,
)
from scorefield.training.history import held_out_loss
from scorefield.training.levels import log_mean, loss_levels, loss_weight
from scorefield.training.logs import Log, LossMeter
from scorefield.training.trainer import (
    Average,
    Batch,
    RecordedTrainer,
    Trainer,
    Weight,
    adam,
    exponential,
    from_levels,
    from_log_normal,
    learning_rates,
    new_average,
    power_function,
    score_matching,
)

OBJECTIVES: dict[str, Objective] = {"denoising": denoising, "sliced": sliced}

CPU_BATCH = 32
"""Images that go through the network at once on a CPU."""

SMALL, CPU_ROOM = 32 * 32, 3e9
"""Pixels of images for which 32 at once always fit, and the bytes that the examples may take on a CPU."""
LARGEST = {"cpu": 32, "gpu": 64}
"""The side of the images that are made of larger ones, unless the recipe says otherwise."""
HIGH_RATE = 0.1
"""Adam does not learn with a higher learning rate."""
FEW = 2000
"""A U-Net that is trained on fewer different images than about this draws copies of them."""

SECONDS_BETWEEN_NOTES = 2.0
"""How often the loss is shown on a GPU, where looking at it makes the GPU wait."""

DrawBatch = Callable[[int], Batch]
"""step -> this process's part of its batch, on the device."""


@dataclass
class Stop:
    """Stop when the time is up, on SIGTERM, or on Ctrl-C (a second Ctrl-C interrupts at once)."""

    minutes: float
    reason: str = ""
    number: int = 0
    """The number of the signal that asked for it, or 0; in the end, the same in all processes."""

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise ValueError(f"minutes must be positive; got {self.minutes}")
        self._deadline = time.monotonic() + 60 * self.minutes

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def signalled(self) -> bool:
        """Whether a signal asks to stop."""
        return self.number > 0

    def due(self) -> bool:
        """Whether to stop now."""
        if not self.reason and time.monotonic() > self._deadline:
            self.reason = f"time is up after {self.minutes:g} min"
        return bool(self.reason)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, signals are noted instead of ending the process. Only the main thread can do that."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            if self.reason and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.reason, self.number = f"got {signal.Signals(number).name}", number

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def train(
    recipe: Recipe | str,
    out: Path | str,
    group: Group | None = None,
    *,
    network: nn.Module | None = None,
    resume: bool = False,
    minutes: float = float("inf"),
    plan: bool = False,
    extra_logs: Sequence[Callable[..., Log]] = (),
    interrupted: Callable[[int], None] = lambda number: None,
    say: Say = say_nothing,
    track: Track[object] = silent,
) -> Path:
    """Train by the recipe, or by the one of that name, in the folder `out` until it is done, told to stop, or out of
    time. Returns the last model file.

    `network`: a network of your own, any module with `forward(x, sigma)`, instead of the recipe's; with a number of
    classes as its attribute `labels` it is called with `label=` as well. All processes of the group call this together;
    the main one writes and prints. `plan`: if the learning rate has a cool-down, choose the number of iterations, at
    most the recipe's, so that the run ends within `minutes`; the choice is recorded as a change, and a resumed run
    keeps it. `extra_logs` make a log each when called with until=STEP, the last step that is done already.
    `interrupted` is called at the end of a run that a signal has stopped, with the signal's number, the same in all
    processes.
    """
    if isinstance(recipe, str) and recipe in RECIPES:
        recipe = RECIPES[recipe]
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe must be an sf.Recipe(...) or one of {', '.join(RECIPES)}; got {recipe!r}")
    check_is_network(network)
    build_sampler(recipe)  # an error now rather than at the first checkpoint
    out, group, stop = Path(out), group or Group(0, 1, pick_device("auto")), Stop(minutes)
    say = say if group.main else say_nothing
    if recipe.compile:
        _check_compiler(group.device)
    if network is not None:
        recipe = replace(recipe, network=type(network).__name__)
    with ExitStack() as held:
        group.agreed(lambda: held.enter_context(locked(out)))
        if resume and (out / "recipe.json").exists():
            recipe = _as_in(saved_recipe(out), recipe, plan=plan)
        group.agreed(partial(check_folder, recipe, out, resume=resume))
        if recipe.start is not None and not resume:
            group.agreed(partial(find, recipe.start))  # before the data are read, which may take long
        run, draw_batch = _prepare(recipe, out, group, network, say, track, resume=resume)
        recipe = run.recipe
        if resume:
            run.restore()
            recipe = run.recipe
            if len(set(group.all(run.step))) > 1:
                raise OSError(f"the processes see different checkpoints in {out} (all machines must share that folder)")
            if run.step > recipe.steps:
                raise ValueError(f"{out} is at step {run.step} already (give it more --steps than that)")
        if recipe.start is not None and run.step == 0:
            _start_from(recipe.start, run)
        with stop.listening(), chosen_kernels(group.device, deterministic=recipe.deterministic):
            if group.main:
                run.tidy()
                run.write_settings()
                run.open_logs([log(until=run.step) for log in extra_logs])
                run.catch_up(stop.due)
            group.wait()
            planned = plan and not resume and recipe.cooldown > 0 and minutes < float("inf")
            plan_in_time = Plan(stop, most=recipe.steps, cooldown=recipe.cooldown) if planned else None
            with pytorch_threads(_threads(run)):
                _loop(run, draw_batch, stop, plan_in_time)
        recipe = run.recipe
        unfinished = run.step < recipe.steps
        stop.number = next(filter(None, group.all(stop.number)), 0) if unfinished else 0
        weights: Weights = "ema" if run.trainer.averages else "raw"
        if unfinished:
            why = stop.reason or "another process was told to stop"
            say(f"stopped at step {run.step} of {recipe.steps}: {why} (go on with --resume)")
        elif (loss := held_out_loss(out, recipe, step=run.step, weights=weights)) is not None:
            say(f"held-out loss {loss}")
    if stop.number:
        interrupted(stop.number)
    return run.saved or out


def _prepare(
    recipe: Recipe,
    out: Path,
    group: Group,
    network: nn.Module | None,
    say: Say,
    track: Track[object],
    *,
    resume: bool,
) -> tuple[Run, DrawBatch]:
    """The data, the network and the trainer of a run."""
    if not resume:
        recipe = group.main_first(partial(with_image_size, recipe, group.device, say, track=track))
    if network is None and recipe.network == "unet" and (recipe.stages or recipe.image_size):
        _check_unet(recipe)
    if recipe.learning_rate > HIGH_RATE:
        say(
            f"note: a learning rate of {recipe.learning_rate:g} is far above the usual 0.0001 to 0.03: the loss will "
            "probably not fall, or not stay finite (--learning-rate 0.001)"
        )
    images, held_out = group.main_first(partial(training_images, recipe, track=track))
    channels, height, width = images.shape
    if group.device.type == "cpu" and network is None and not resume:
        given, recipe = recipe, sized_for_cpu(recipe, height, width)
        if recipe is not given:
            say(
                f"note: a small network is trained on a CPU: width {recipe.width}, stages {_listed(recipe.stages)}, "
                f"blocks {_listed(recipe.blocks)}, batches of {recipe.batch_size}, learning rate "
                f"{recipe.learning_rate:g} (--width chooses another)"
            )
    recipe = with_sigma_data(sized(recipe, height, width), images.pixels)
    apart = "" if held_out is None else f", and {len(held_out)} held out"
    labels = len(images.classes) if recipe.labels else 0
    kinds = f" in {labels} class{'es' * (labels > 1)}" if labels else ""
    say(f"{plural(len(images), 'image')} of {channels} × {height} × {width}{kinds} from {images.name}{apart}")
    if recipe.labels and not labels:
        say(f"note: no classes were found in {images.name} (a folder has them if it has one subfolder for each)")
    for note in dict.fromkeys((*images.notes, *(held_out.notes if held_out is not None else ()))):
        say(f"note: {note}")
    if held_out is not None and len(held_out) < recipe.held_out:
        why = "there are no more" if recipe.data in data.SETS else "a fifth of the images"
        say(f"note: {plural(len(held_out), 'image')} held out instead of {recipe.held_out}: {why}")
    unet = isinstance(network, UNet) or (network is None and recipe.network == "unet")
    if unet and (few := _few_images(images)):
        say(f"note: {few}")
    own = network is not None
    network = (build_network(recipe, channels=channels, labels=labels) if network is None else network).to(group.device)
    classes = images.classes if _takes_labels(network, images) else ()
    if images.classes and not classes and recipe.data not in data.SETS:
        say(f"note: the network has no classes, so the {len(images.classes)} classes of {images.name} are not used")
    if own:
        _try_call(network, images.shape, recipe.sigma_max, labels=bool(classes), device=group.device)
    metadata = {"data": images.name, "data_digest": images.digest, "data_images": str(len(images))}
    metadata |= {"labels_digest": _labels_digest(images)} if classes else {}
    metadata["machine"] = device_name(group.device)
    metadata["arithmetic"] = str(arithmetic(recipe, network, group.device)).removeprefix("torch.")
    parameters = sum(parameter.numel() for parameter in network.parameters())
    say(f"{parameters:,} parameters, trained in {metadata['arithmetic']} on {metadata['machine']}")
    trainer = _trainer(recipe, group, network, images.shape)
    kept = None if held_out is None else _resident(held_out, bool(classes), group.device)
    if classes and held_out is not None and held_out.labels is None:
        say("note: the held-out images have no labels, so that their losses are those without a class")
    score_of = partial(_score_of, recipe)
    sigmas, shares = loss_levels(recipe, network)
    run = Run(recipe, out, group, trainer, sigmas, shares, images.shape, classes, metadata, kept, say, score_of)
    return run, batches(images, group, batch_size=recipe.batch_size, seed=recipe.seed, labels=bool(classes))


def _as_in(run: Recipe, recipe: Recipe, *, plan: bool) -> Recipe:
    """The recipe with what it leaves open as it is in a run that is resumed: sizes that follow from those of the
    images, and a number of iterations that was planned."""
    if plan and recipe.cooldown:
        recipe = replace(recipe, steps=run.steps)
    if recipe.image_size is None:
        recipe = replace(recipe, image_size=run.image_size)
    if recipe.network != "unet" or run.network != "unet":
        return recipe
    if not recipe.width:
        recipe = replace(recipe, **_of_a_cpu(run, recipe))
    names = ("width", "blocks", "sigma_data", *(() if recipe.stages else ("stages", "attention")))
    return replace(recipe, **{name: getattr(recipe, name) or getattr(run, name) for name in names})


def _of_a_cpu(run: Recipe, recipe: Recipe) -> dict[str, Any]:
    """What `sized_for_cpu` chose for the run and the recipe leaves open."""
    return {name: ON_A_CPU[name] for name in left_open(recipe) if getattr(run, name) == ON_A_CPU[name]}


def _listed(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def _check_compiler(device: torch.device) -> None:
    """Raise an error if torch.compile cannot work on this device."""
    if device.type == "cpu" and not any(map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++")))):
        raise OSError("on a CPU compile needs a C++ compiler (install g++, or leave compile out)")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"compile works on a CPU and on CUDA GPUs, not on {device.type} (leave it out)")


def _check_unet(recipe: Recipe) -> None:
    """Raise an error for sizes of a U-Net that do not fit together, before the images are read, which may take long."""
    side = recipe.image_size or 32
    height, width = (side, side) if isinstance(side, int) else side
    with torch.device("meta"):  # without memory
        build_network(sized(recipe, height, width), channels=3)


def with_image_size(recipe: Recipe, device: torch.device, say: Say, *, track: Track[object] = silent) -> Recipe:
    """The recipe with a size for its images, if it has none and they need one: because they have several, or, for a
    U-Net, because they are large."""
    if recipe.image_size is not None:
        return recipe
    sizes = data.sizes(recipe.data, track=track)
    if recipe.crop is not None and sizes:
        sizes = Counter({(recipe.crop, recipe.crop): sizes.total()})
    most = LARGEST["cpu" if device.type == "cpu" else "gpu"]
    large = recipe.network == "unet" and any(math.sqrt(math.prod(size)) > most for size in sizes)
    if len(sizes) < 2 and not large:
        return recipe
    size = data.choose_size(sizes, most)
    smallest, largest = min(sizes, key=math.prod), max(sizes, key=math.prod)
    several = f"{len(sizes):,} sizes from {_times(smallest)} to {_times(largest)}"
    machine = "a CPU" if device.type == "cpu" else "a GPU"
    say(
        f"note: the images have {several if len(sizes) > 1 else _times(largest)} pixels (height × width); on {machine} "
        f"they are made {_times(size)} (--image-size N, or --image-size HEIGHT WIDTH, chooses another size)"
    )
    return replace(recipe, image_size=size)


def _times(size: data.Size) -> str:
    return f"{size[0]} × {size[1]}"


def _few_images(images: data.Images) -> str:
    """A warning where a large network would learn its training images by heart."""
    if images.name.partition(":")[0] in data.SETS:
        return ""
    different = set[bytes]()
    for pixels in images.pixels:
        different.add(hashlib.sha256(pixels.tobytes()).digest())
        if len(different) >= FEW:
            return ""
    n = len(different)
    which = f", of which {n:,} {'are' if n > 1 else 'is'} different," if n < len(images) else ""
    return (
        f"{plural(len(images), 'image')}{which} are few for this network: what it draws may be copies of them "
        "(scorefield neighbors RUN shows it)"
    )


def _labels_digest(images: data.Images) -> str:
    """SHA-256 of the classes' names and of the images' labels, which the digest of the images does not depend on."""
    labels = b"" if images.labels is None else images.labels.tobytes()
    return hashlib.sha256(repr(images.classes).encode() + labels).hexdigest()


def _try_call(network: nn.Module, shape: tuple[int, ...], sigma: float, *, labels: bool, device: torch.device) -> None:
    """Call a user's network once before anything is written, so that a wrong one leaves no run behind."""
    x, sigmas = torch.zeros(2, *shape, device=device), torch.full((2,), sigma, device=device)
    conditions = {"label": torch.zeros(2, dtype=torch.long, device=device)} if labels else {}
    call = "network(x, sigma, label=y)" if labels else "network(x, sigma)"
    try:
        with torch.no_grad(), evaluating(network):
            same_shape(network(x, sigmas, **conditions), x, "the network")
    except (TypeError, RuntimeError, ValueError, AttributeError) as error:
        raise ValueError(f"{call} fails for x of shape {tuple(x.shape)}: {error}") from error


def _takes_labels(network: nn.Module, images: data.Images) -> bool:
    """Whether the network is trained with the images' labels: it says for how many classes."""
    labels = getattr(network, "labels", 0)
    if labels and labels != len(images.classes):
        raise ValueError(
            f"the network has {labels} classes, and {images.name} has {len(images.classes)} (make them the same number)"
        )
    return bool(labels)


def micro_batch(
    network: nn.Module, shape: tuple[int, ...], examples: int, device: torch.device, *, wide: bool = True
) -> int:
    """How many examples go through the network at once, so that the memory is enough: 8 GB on a CPU, or that of the GPU
    at hand. For small images 32 on a CPU, and 0, which means all, on a GPU; for large images fewer. `wide`: numbers
    have 32 bits in training, otherwise 16.

    It depends on the network and on what the GPU has in total, not on what is free now: a resumed run has the same.
    """
    on_cpu = device.type == "cpu"
    most = CPU_BATCH if on_cpu else 0
    if math.prod(shape[1:]) <= SMALL or device.type not in ("cpu", "cuda"):
        return most
    room = CPU_ROOM if on_cpu else torch.cuda.get_device_properties(device).total_memory / 2
    each = saved_bytes(network, shape) * (1.0 if wide else 0.5)
    fitting = max(1, int(room / each)) if each else most or examples
    if fitting >= (most or examples):
        return most
    return fitting if on_cpu else 2 ** int(math.log2(fitting))


def saved_bytes(network: nn.Module, shape: tuple[int, ...]) -> float:
    """About how many bytes one example takes until the backward pass, which are in proportion to its pixels: measured
    on images of 32 × 32 and 64 × 64, so that what does not grow with them, such as weights, is left out."""
    parameter = next(network.parameters())
    low, high = getattr(network, "sigma_range", None) or (1.0, 1.0)
    accepted = getattr(network, "accepted_sigmas", None)
    sigma = torch.full((1,), math.sqrt(low * high)) if accepted is None else accepted[:1].clone()
    label = {"label": torch.zeros(1, dtype=torch.long)} if getattr(network, "labels", 0) else {}
    totals = []
    for side in (32, 64):
        kept: dict[int, int] = {}

        def keep(tensor: torch.Tensor, kept: dict[int, int] = kept) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        x = torch.zeros(1, shape[0], side, side, device=parameter.device)
        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with pytorch_threads(1), evaluating(network), torch.enable_grad(), hooks:
            output = network(x, sigma.to(x), **{name: value.to(x.device) for name, value in label.items()})
        del output
        totals.append(sum(kept.values()))
    return (totals[1] - totals[0]) / (64 * 64 - 32 * 32) * math.prod(shape[1:])


def _trainer(recipe: Recipe, group: Group, network: nn.Module, shape: tuple[int, ...] = ()) -> Trainer:
    """The trainer of the recipe, in the form that suits this device and this number of processes. Images are taken to
    be small where their shape (C, H, W) is not given."""
    fused, score = uses_fused_kernels(recipe, network), _score_of(recipe, network)
    dtype = arithmetic(recipe, network, group.device)
    micro = micro_batch(network, shape, recipe.batch_size // group.world, group.device, wide=not fused)
    if not fused and recipe.compile and group.device.type in ("cuda", "cpu"):
        score = torch.compile(network)
    make: Callable[..., Trainer]
    if fused and not recipe.micro_batch and (group.device.type == "cpu" or not micro):
        make = partial(RecordedTrainer, bad=score.bad)  # type: ignore[attr-defined]
    else:
        make = partial(Trainer, micro_batch=recipe.micro_batch or micro)
    by_log_normal = recipe.sigma_draw == "log_normal"
    loss = score_matching(
        score,
        from_log_normal(log_mean(recipe), recipe.log_sigma_std, (recipe.sigma_min, recipe.sigma_max))
        if by_log_normal
        else from_levels(build_schedule(recipe).to(group.device)),
        objective=OBJECTIVES[recipe.objective],
        weight=loss_weight(recipe),
        log_variance=_log_variance(network) if recipe.weight == "learned" else None,
        label_dropout=recipe.label_dropout if getattr(network, "null_label", False) else 0.0,
        dropout=isinstance(network, UNet) and network.dropout > 0,
        flip=recipe.flip,
        dequantise=recipe.dequantise,
        autocast=nullcontext if fused else autocast(dtype, group.device),
    )
    return make(
        network,
        loss,
        adam(network, recipe.learning_rate, beta2=recipe.beta2),
        learning_rates_of(recipe),
        new_averages(recipe, network),
        clip=recipe.clip,
        seed=recipe.seed,
        rank=group.rank,
        share=group.mean_,
        normalise=getattr(score, "normalise_", getattr(network, "normalise_", lambda: None)),
    )


def learning_rates_of(recipe: Recipe) -> Callable[[int], float]:
    """The learning rate of each update."""
    names = ("warmup", "decay", "cooldown", "steps")
    return learning_rates(recipe.learning_rate, **{name: getattr(recipe, name) for name in names})


def new_averages(recipe: Recipe, network: nn.Module) -> dict[str, Average]:
    """The moving averages that the recipe asks for, by name: ema, which samples are drawn with, and ema-WIDTH."""
    if recipe.ema:
        return {"ema": new_average(network, exponential(recipe.ema))}
    names = [f"ema-{width:g}" if k else "ema" for k, width in enumerate(recipe.averages)]
    return {name: new_average(network, power_function(w)) for name, w in zip(names, recipe.averages, strict=True)}


def _log_variance(network: nn.Module) -> Weight:
    if not hasattr(network, "log_variance"):
        raise ValueError(
            f"{type(network).__name__} has no method log_variance(sigma), with which weights are learned (choose "
            "weight paper or unit)"
        )
    return network.log_variance  # type: ignore[return-value]


def _score_of(recipe: Recipe, network: nn.Module) -> ConditionalScore:
    """The network's score by the fused kernels if the recipe trains by them, otherwise the network."""
    if not uses_fused_kernels(recipe, network):
        return network
    device = next(network.parameters()).device
    return acceleration.fused(network, dtype=arithmetic(recipe, network, device))


def uses_fused_kernels(recipe: Recipe, network: nn.Module) -> bool:
    """Whether to train by the fused kernels: in 16 bit, and with an objective that needs no second derivatives."""
    wanted = recipe.objective == "denoising" and not recipe.compile and recipe.precision != "float32"
    return wanted and acceleration.has_fused_kernels(network)


def arithmetic(recipe: Recipe, network: nn.Module, device: torch.device) -> torch.dtype:
    """The type of number that the network calculates with in training."""
    if uses_fused_kernels(recipe, network):
        return torch.bfloat16 if recipe.precision == "bfloat16" else torch.float16
    wanted = recipe.precision == "bfloat16"
    if recipe.precision == "auto" and recipe.objective == "denoising":
        if device.type == "cuda":
            wanted = torch.cuda.is_bf16_supported(including_emulation=False)
        else:
            wanted = device.type == "cpu" and isinstance(network, UNet) and cpu_has_bfloat16()
    return torch.bfloat16 if wanted else torch.float32


def autocast(dtype: torch.dtype, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """Makes PyTorch calculate in this type of number."""
    return nullcontext if dtype is torch.float32 else partial(torch.autocast, device.type, dtype=dtype)


def cpu_has_bfloat16() -> bool:
    """Whether this is an x86 CPU with instructions that multiply numbers of type bfloat16. With them a U-Net trains
    faster than in float32; a CPU without them emulates them, which is many times slower."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)


def _start_from(name: str, run: Run) -> None:
    """Give the network, and its moving average if there is one, the weights of a model.

    The model's images may have another size; its network must be the same.
    """
    trainer, group = run.trainer, run.group
    like = None if run.recipe.network in NETWORKS else copy.deepcopy(trainer.network)  # a network of the user's own
    model = group.main_first(partial(load, name, network=like))
    _check_fits(name, model.network, trainer.network)
    if len(set(group.all(model.digest))) > 1:
        raise OSError(f"the processes see different models as {name} (all machines must share that file)")
    weights = model.network.state_dict()
    with torch.no_grad():
        for tensors in (trainer.network.state_dict(), *(average for average, _ in trainer.averages.values())):
            for key, value in tensors.items():
                value.copy_(weights[key])
    run.metadata["start_digest"] = model.digest
    run.say(f"starting from the {model.weights} weights of {name}, step {model.step}")


def _check_fits(name: str, theirs: nn.Module, ours: nn.Module) -> None:
    """Raise an error if the weights of one network mean something else in the other."""
    if type(theirs) is not type(ours):
        kind, wanted = type(theirs).__name__, type(ours).__name__
        raise ValueError(f"{name} is a {kind}, and this network a {wanted} (start from another, or leave --start out)")
    channels, mine = getattr(theirs, "channels", None), getattr(ours, "channels", None)
    if channels != mine:
        kinds: dict[object, str] = {1: "grey images", 3: "colour images"}
        raise ValueError(
            f"{name} is a model of {kinds.get(channels, channels)}, and these are {kinds.get(mine, mine)}: its weights "
            "do not fit (convert the images, or leave --start out)"
        )
    if (wanted := getattr(theirs, "options", "")) != (options := getattr(ours, "options", "")):
        raise ValueError(f"the weights of {name} do not fit {options} (give {wanted}, or leave --start out)")
    classes, mine = getattr(theirs, "labels", 0), getattr(ours, "labels", 0)
    if classes != mine:
        raise ValueError(
            f"{name} has {classes or 'no'} classes, and this network {mine or 'none'}: its weights do not fit (start "
            "from another, or leave --start out)"
        )


@contextmanager
def chosen_kernels(device: torch.device, *, deterministic: bool) -> Iterator[None]:
    """Inside, the fastest of a GPU's kernels by trial, or those that give the same bits every time."""
    if device.type != "cuda":
        yield
        return
    before = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    torch.backends.cudnn.benchmark = not deterministic
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before[0]
        torch.use_deterministic_algorithms(before[1])


def training_images(recipe: Recipe, *, track: Track[object] = silent) -> tuple[data.Images, data.Images | None]:
    """The images to train on, and those held out: of a named data set from its test split, otherwise kept apart."""
    read = partial(data.load, image_size=recipe.image_size, crop=recipe.crop, track=track)
    images = read(recipe.data)
    if recipe.held_out == 0:
        return images, None
    if recipe.data in data.SETS:
        try:
            return images, read(f"{recipe.data}:test").first(recipe.held_out)
        except FileNotFoundError:
            warnings.warn(f"no test split of {recipe.data}: holding out training images instead", stacklevel=2)
    held_out = min(recipe.held_out, len(images) // 5)
    return data.split(images, held_out) if held_out else (images, None)


def _resident(images: data.Images, labels: bool, device: torch.device) -> Batch:
    """All images on the device."""
    with_labels = labels and images.labels is not None
    return Batch(
        torch.tensor(images.pixels).to(device), torch.tensor(images.labels).to(device) if with_labels else None
    )


def batches(images: data.Images, group: Group, *, batch_size: int, seed: int, labels: bool = False) -> DrawBatch:
    """This process's part of each step's batch; from the GPU's own memory if the data fit there."""
    if batch_size % group.world:
        raise ValueError(f"a batch of {batch_size} cannot be shared by {group.world} processes (--batch-size)")
    if not len(images):
        raise ValueError(f"there are no images in this part of {images.name} (hold out fewer)")
    size = batch_size // group.world
    share = {"seed": seed, "rank": group.rank, "world": group.world, "size": size}
    if group.device.type == "cuda" and images.pixels.nbytes < torch.cuda.mem_get_info(group.device)[0] / 4:
        resident = _resident(images, labels, group.device)

        def on_device(step: int) -> Batch:
            chosen = (
                torch.as_tensor(data.indices(len(images), step=step, **share))
                .pin_memory()
                .to(group.device, non_blocking=True)
            )
            return Batch(resident.pixels[chosen], None if resident.labels is None else resident.labels[chosen])

        return on_device

    def from_memory(step: int) -> Batch:
        pixels, classes = data.batch(images, step=step, **share)
        return Batch(torch.as_tensor(pixels), torch.as_tensor(classes) if labels and classes is not None else None)

    return prefetch(from_memory, group.device)


def prefetch(draw: DrawBatch, device: torch.device) -> DrawBatch:
    """Batches that `draw` makes in main memory, on the device: each is made while the one before is in use."""
    worker, coming = ThreadPoolExecutor(1, "batches"), dict[int, Future[Batch]]()

    def drawn(step: int) -> Batch:
        batch = draw(step)
        return Batch(*(t if t is None or device.type != "cuda" else t.pin_memory() for t in batch))  # type: ignore[arg-type]

    def batch(step: int) -> Batch:
        now = coming.pop(step, None) or worker.submit(drawn, step)
        coming.clear()
        coming[step + 1] = worker.submit(drawn, step + 1)
        return Batch(*(t if t is None else t.to(device, non_blocking=True) for t in now.result()))  # type: ignore[arg-type]

    return batch


def _threads(run: Run) -> int:
    """The number of PyTorch's threads to train with on a CPU: one for small work, by the rule of `threads`."""
    threads = torch.get_num_threads()
    if run.group.device.type != "cpu":
        return threads
    examples = min(run.recipe.batch_size // run.group.world, run.trainer.micro_batch or CPU_BATCH)
    return training_threads(threads, examples, multiplications(run.trainer.network, run.shape))


class Plan:
    """Chooses the number of iterations of a run that is to end in time: first after it has been measured for a while,
    and again when the cool-down should begin, by its pace until then, which other programs may have changed.

    The cool-down begins after its number is chosen, so that a run resumed from a checkpoint before repeats its updates.
    """

    first, share, margin = 20, 0.05, 0.95
    """Iterations before the measurement, the share of the time that it takes, and of the rest that is planned for."""
    every, enough = 10, 1.02
    """How often to look at the pace, and by what factor there must be time for more iterations to plan for them."""

    def __init__(self, stop: Stop, *, most: int, cooldown: float) -> None:
        self.most, self._stop, self._whole, self._cooldown = most, stop, stop.seconds_left, cooldown
        self._seen = deque[tuple[int, float]]()  # steps with the seconds left, as far back as the cool-down is long
        self.made = self.final = False
        """Whether a number is chosen, and whether it is the last."""

    def steps(self, step: int, planned: int) -> int:
        """The number of iterations to plan for after `step` of them, where so far `planned` are."""
        left, before = self._stop.seconds_left, 1 - self._cooldown
        if step < self.first:
            return planned
        self._seen.append((step, left))
        while len(self._seen) > 2 and self._seen[1][1] - left >= self._cooldown * self._whole:
            self._seen.popleft()
        start, then = self._seen[0]
        if step == start or (not self.made and left > then - self.share * self._whole):
            return planned
        fitting = step + max(1, int(self.margin * left * (step - start) / (then - left)))
        if not self.made:
            self.made = True
            return fitting
        if step + self.every <= before * min(planned, fitting):
            return planned  # the cool-down is still to come
        begun, enough = step > before * planned, planned <= fitting <= self.enough * planned
        self.final = begun or enough or step + self.every > before * fitting
        return planned if begun or enough else fitting


@dataclass
class Previews:
    """When to draw samples between checkpoints: after a minute, then at doubling intervals up to `interval` seconds,
    and never for more than a small share of the time."""

    interval: float
    calls: float
    """Network calls for all samples of a preview, each on one image, divided by the images of an update."""
    share: float = 0.03
    began: float = field(default_factory=lambda: time.monotonic())
    spent: float = 0.0
    last: float = 0.0

    def __post_init__(self) -> None:
        self.pause = min(60.0, self.interval)
        self.next = self.began + self.pause

    @classmethod
    def of(cls, run: Run) -> Previews | None:
        """For a run whose network knows all noise levels, so that few calls are enough."""
        recipe, network = run.recipe, run.trainer.network
        listed = getattr(network, "accepted_sigmas", None) is not None or not hasattr(network, "sigma_range")
        if listed or not recipe.previews or not recipe.preview_minutes:
            return None
        return cls(60 * recipe.preview_minutes, recipe.previews * QUICK_CALLS / recipe.batch_size)

    def due(self, seconds: float, steps: int) -> bool:
        """Whether to draw now; the last `steps` updates took so many seconds, each of them about three calls."""
        now = time.monotonic()
        if now < self.next or (not self.last and not steps):
            return False
        cost = self.last or self.calls * seconds / steps / 3
        return self.spent + cost <= self.share * (now - self.began)

    def drawn(self, seconds: float) -> None:
        """They were drawn, which took so long."""
        self.spent, self.last, self.pause = self.spent + seconds, seconds, min(2 * self.pause, self.interval)
        self.next = time.monotonic() + self.pause


def _loop(run: Run, draw_batch: DrawBatch, stop: Stop, plan: Plan | None) -> None:
    """All updates, and whatever is due between them. Every decision is the same in all processes."""
    recipe, group = run.recipe, run.group
    meter, began = LossMeter(run.sigmas, group.device), time.monotonic() - run.seconds
    clock = (time.monotonic(), run.step)
    on_cpu, noted, previews = group.device.type == "cpu", -math.inf, Previews.of(run) if group.main else None
    with Bar("training", recipe.steps, done=run.step) if group.main else nullcontext() as bar:
        if bar is not None:
            bar.ends = time.monotonic() + stop.seconds_left
        while run.step < recipe.steps:
            losses = run.trainer.step(draw_batch(run.step), run.step)
            step = run.step
            meter.add(losses, step)
            if plan is not None and not plan.final and (not plan.made or step % plan.every == 0):
                steps, plan.made, plan.final = group.all((plan.steps(step, recipe.steps), plan.made, plan.final))[0]
                least = math.ceil(step / (1 - recipe.cooldown))  # the cool-down is still to come
                if steps != recipe.steps and (steps := min(plan.most, max(steps, least))) != recipe.steps:
                    run.plan(steps)
                    recipe = run.recipe
                    run.trainer.rate = learning_rates_of(recipe)
                    if bar is not None:
                        bar.total = recipe.steps
            ends = step == recipe.steps
            every = (recipe.log_every, recipe.evaluate_every, recipe.checkpoint_every)
            log, evaluate, save = (ends or step % n == 0 for n in every)
            stops = not ends and (on_cpu or group.world == 1 or step % 10 == 0) and group.any(stop.due())
            looks = log or save or stops or on_cpu  # a look makes a GPU wait
            if looks and (bad := max(group.all(meter.bad_step()))):
                good = f"the last good checkpoint is {run.saved}" if run.saved else "there is no checkpoint yet"
                raise FloatingPointError(
                    f"the loss or its gradient is not finite at step {bad}; {good} ({NOT_FINITE_FIX})"
                )
            numbers = meter.look(group) if log else {}
            if bar is not None:
                now = time.monotonic()
                if log:
                    clock, noted = _log(run, numbers, began, clock), now
                    bar.note = _pace(numbers["loss"], numbers["images_per_second"])
                elif on_cpu or now - noted > SECONDS_BETWEEN_NOTES:
                    noted = now
                    bar.note = _pace(meter.mean(), (step - clock[1]) * recipe.batch_size / (now - clock[0]))
                bar.advance(step)
                if (
                    previews is not None
                    and not save
                    and not stops
                    and previews.due(time.monotonic() - clock[0], step - clock[1])
                ):
                    note, before = bar.note, time.monotonic()
                    run.preview(stop.due, partial(bar.advance, step), quick=True)
                    bar.advance(step, note)
                    previews.drawn(time.monotonic() - before)
                    clock = clock[0] + time.monotonic() - before, clock[1]
                if save or stops:
                    run.seconds = time.monotonic() - began
                    run.save()
                told = stop.signalled if ends else stop.due  # a run that is done has its last measurements made
                if evaluate:
                    run.evaluate(told)
                if save:
                    note = bar.note
                    run.preview(told, partial(bar.advance, step))
                    bar.advance(step, note)
            if save or evaluate:  # a signal may come while losses are measured and samples are drawn
                late = not ends and not stops and group.any(stop.due())
                stops = stops or late
                if late and not save and group.main:
                    run.seconds = time.monotonic() - began
                    run.save()
            if save:
                meter.clear()  # a resumed run starts to count at a checkpoint
            if evaluate or save or stops:
                group.wait()
            if stops:
                if plan is not None and not plan.made:
                    run.say("the time was too short to plan for: the run has the recipe's number of iterations")
                return


def _pace(loss: float, images_per_second: float) -> str:
    return f"loss {loss:.4g}, {images_per_second:.4g} images/s"


def _log(run: Run, numbers: dict[str, float], began: float, clock: tuple[float, int]) -> tuple[float, int]:
    """Write one line into every log. `clock` is the time and step of the line before; returns those of this one."""
    now, step = time.monotonic(), run.step
    numbers["learning_rate"] = float(run.trainer.optimizer.param_groups[0]["lr"])
    numbers["images_per_second"] = (step - clock[1]) * run.recipe.batch_size / (now - clock[0])
    numbers["seconds"] = now - began
    for log in run.logs:
        log(step, numbers)
    return now, step
