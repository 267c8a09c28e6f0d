"""From a recipe to a trained model."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from scorefield import data
from scorefield.acceleration import kernels
from scorefield.distributed import Group, device_name
from scorefield.acceleration.fast import RecordedUpdate, fast
from scorefield.training.logs import Log
from scorefield.networks import RefineNet
from scorefield.progress import Bar, Track, silent
from scorefield.models.recipes import OBJECTIVES, Recipe, network_of
from scorefield.training.folder import CURE, Run, Say, check_folder, locked, unsaid, write_recipe
from scorefield.training.losses import Losses
from scorefield.training.start import begin_with
from scorefield.training.stop import Stop
from scorefield.score import Score
from scorefield.models.pretrained import find
from scorefield.training.steps import Batch, Descent, TrainingState, Update, adam, descent, example_losses, fit, step_loss


def train(
    recipe: Recipe,
    out: Path,
    group: Group,
    *,
    resume: bool = False,
    minutes: float = float("inf"),
    extra_logs: Sequence[Callable[..., Log]] = (),
    interrupted: Callable[[int], None] = lambda number: None,
    say: Say = lambda line: None,
    track: Track[object] = silent,
) -> Path:
    """Train the recipe in the folder `out` until it is done, told to stop, or out of time. Returns the last model file.

    All processes of the group call this together; the main one writes and talks. `extra_logs` make a log each when
    called with until=STEP, the last step that is done already. `interrupted` is called in the end where a signal has
    stopped the run, with the signal's number, the same in all processes.
    """
    stop = Stop(minutes)
    if not group.main:
        say = unsaid
    with ExitStack() as held:
        group.agreed(lambda: held.enter_context(locked(out)))
        group.agreed(partial(check_folder, recipe, out, resume=resume))
        if recipe.start is not None and not resume:
            group.agreed(partial(find, recipe.start))  # before the data are read, which may take long
        saved = _train(recipe, out, group, stop, resume=resume, extra_logs=extra_logs, say=say, track=track)
    if stop.number:
        interrupted(stop.number)
    return saved


def _train(
    recipe: Recipe,
    out: Path,
    group: Group,
    stop: Stop,
    *,
    resume: bool,
    extra_logs: Sequence[Callable[..., Log]],
    say: Say,
    track: Track[object],
) -> Path:
    run, images = _prepare(recipe, out, group, say, track)
    batch = batches(images, group, batch_size=recipe.batch_size, seed=recipe.seed)
    if resume:
        run.restore()
        if len(set(group.all(run.state.step))) > 1:
            raise OSError(f"the processes see different checkpoints in {out} (all machines must share that folder)")
        if run.state.step > recipe.steps:
            raise ValueError(f"{out} is at step {run.state.step} already (give it more --steps than that)")
    if recipe.start is not None and run.state.step == 0:
        model = group.main_first(partial(begin_with, recipe.start, run.state, run.network))
        if len(set(group.all(model.digest))) > 1:
            raise OSError(f"the processes see different models as {recipe.start} (all machines must share that file)")
        run.facts["start_digest"] = model.digest
        say(f"beginning with the {model.weights} weights of {recipe.start}, of step {model.step}")
    with stop.listening(), chosen_kernels(group.device, deterministic=recipe.deterministic):
        if group.main:
            write_recipe(recipe, out)
            run.open_logs([log(until=run.state.step) for log in extra_logs])
            run.catch_up(stop.due)
        group.wait()
        _loop(run, batch, stop)
    unfinished = run.state.step < recipe.steps
    stop.number = next(filter(None, group.all(stop.number)), 0) if unfinished else 0
    if unfinished:
        why = stop.reason or "another process was told to stop"
        say(f"stopped at step {run.state.step} of {recipe.steps}: {why} (go on with --resume)")
    return run.saved or out


def _prepare(recipe: Recipe, out: Path, group: Group, say: Say, track: Track[object]) -> tuple[Run, data.Images]:
    images, held_out = group.main_first(partial(data_of, recipe, track=track))
    channels, height, width = images.shape
    apart = "" if held_out is None else f", and {len(held_out)} held out"
    say(f"{len(images)} images of {channels} × {height} × {width} from {images.name}{apart}")
    network = network_of(recipe, channels=channels).to(group.device)
    average = {name: value.clone() for name, value in network.state_dict().items()} if recipe.ema else None
    facts = {"data": images.name, "data_digest": images.digest, "data_images": str(len(images))}
    facts["machine"] = device_name(group.device)
    kept = torch.tensor(held_out.pixels).to(group.device) if held_out is not None else None
    state = TrainingState(network, adam(network, recipe.learning_rate), average)
    return Run(recipe, out, group, state, network, (channels, height, width), facts, kept, say), images


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


def data_of(recipe: Recipe, *, track: Track[object] = silent) -> tuple[data.Images, data.Images | None]:
    """The images to train on, and those held out: of a named data set from its test split, else kept apart."""
    load = partial(data.load, image_size=recipe.image_size, crop=recipe.crop, track=track)
    images = load(recipe.data)
    if recipe.held_out == 0:
        return images, None
    if recipe.data in ("mnist", "cifar10", "celeba"):
        try:
            test = load(f"{recipe.data}:test")
            return images, replace(test, pixels=test.pixels[: recipe.held_out])
        except FileNotFoundError:
            warnings.warn(f"no test split of {recipe.data}: holding out training images instead", stacklevel=2)
    held_out = min(recipe.held_out, len(images) // 5)
    return data.split(images, held_out) if held_out else (images, None)


def batches(images: data.Images, group: Group, *, batch_size: int, seed: int) -> Batch:
    """This process's part of each step's batch; from the GPU's own memory where the data fits there."""
    if batch_size % group.world:
        raise ValueError(f"a batch of {batch_size} cannot be shared by {group.world} processes (--batch-size)")
    size = batch_size // group.world
    mine = partial(data.indices, len(images), seed=seed, rank=group.rank, world=group.world, size=size)
    draw = partial(data.batch, images, seed=seed, rank=group.rank, world=group.world, size=size)
    if group.device.type == "cuda" and images.pixels.nbytes < torch.cuda.mem_get_info(group.device)[0] / 4:
        resident = torch.tensor(images.pixels).to(group.device)
        return lambda step: resident[torch.as_tensor(mine(step=step)).pin_memory().to(group.device, non_blocking=True)]
    return ahead(lambda step: torch.as_tensor(draw(step=step)), group.device)


def ahead(draw: Callable[[int], Tensor], device: torch.device) -> Batch:
    """The batches that `draw` makes in main memory, on the device: each is made while the one before is in use."""
    worker, coming = ThreadPoolExecutor(1, "batches"), dict[int, Future[Tensor]]()

    def drawn(step: int) -> Tensor:
        batch = draw(step)
        return batch.pin_memory() if device.type == "cuda" else batch

    def batch(step: int) -> Tensor:
        now = coming.pop(step, None) or worker.submit(drawn, step)
        coming.clear()
        coming[step + 1] = worker.submit(drawn, step + 1)
        return now.result().to(device, non_blocking=True)

    return batch


def _updates(run: Run, batch: Batch) -> Iterator[Update]:
    """The updates of the recipe, as this device and this number of processes want them."""
    recipe, group = run.recipe, run.group
    fused = _fused(recipe, run.network)
    dtype = torch.bfloat16 if recipe.precision == "bfloat16" else torch.float16
    score: Score = fast(run.network, dtype=dtype) if fused else run.network
    if recipe.compile and group.device.type == "cuda":
        score = torch.compile(run.network)
    losses = example_losses(
        score,
        run.network.sigmas,
        objective=OBJECTIVES[recipe.objective],
        flip=recipe.flip,
        dequantise=recipe.dequantise,
        autocast=nullcontext if fused else _autocast(recipe, group.device),
    )
    if fused and group.world == 1 and not recipe.micro_batch:
        bad: Tensor = score.bad  # type: ignore[attr-defined]
        step: Descent = RecordedUpdate(losses, run.state, seed=recipe.seed, clip=recipe.clip, bad=bad)
    else:
        micro_batch = recipe.micro_batch or (32 if group.device.type == "cpu" else 0)
        loss = step_loss(losses, seed=recipe.seed)
        step = descent(run.state, loss, clip=recipe.clip, micro_batch=micro_batch, rank=group.rank, share=group.mean_)
    rate, warmup = recipe.learning_rate, recipe.warmup
    return fit(run.state, batch, step, steps=recipe.steps, learning_rate=rate, warmup=warmup, ema=recipe.ema)


def _autocast(recipe: Recipe, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    wanted = _bfloat16(recipe, device)
    return partial(torch.autocast, device.type, dtype=torch.bfloat16) if wanted else nullcontext


def _fused(recipe: Recipe, network: RefineNet) -> bool:
    """Whether to train by the fused kernels: in 16 bit, and by an objective that needs no second derivatives."""
    wanted = recipe.objective == "denoising" and not recipe.compile and recipe.precision != "float32"
    return wanted and kernels.usable(network.sigmas)


def _bfloat16(recipe: Recipe, device: torch.device) -> bool:
    """Where it is asked for, or pays: GPUs that have it. A CPU without it is 40 times slower for it."""
    pays = (
        device.type == "cuda"
        and torch.cuda.is_bf16_supported(including_emulation=False)
        and recipe.objective == "denoising"
    )
    return recipe.precision == "bfloat16" or (recipe.precision == "auto" and pays)


def _loop(run: Run, batch: Batch, stop: Stop) -> None:
    """All updates, and between them whatever is due. Every decision is taken by all processes alike."""
    recipe, group = run.recipe, run.group
    losses, began = Losses(recipe.levels, group.device), time.monotonic() - run.seconds
    clock = (time.monotonic(), run.state.step)
    with Bar("training", recipe.steps, done=run.state.step) if group.main else nullcontext() as bar:
        for update in _updates(run, batch):
            losses.add(update)
            step, ends = update.step, update.step == recipe.steps
            every = (recipe.log_every, recipe.evaluate_every, recipe.checkpoint_every)
            log, evaluate, save = (ends or step % n == 0 for n in every)
            on_cpu = group.device.type == "cpu"
            stops = not ends and (on_cpu or group.world == 1 or step % 10 == 0) and group.any(stop.due())
            looks = log or save or stops or on_cpu  # a look makes a GPU wait
            if looks and (bad := max(group.all(losses.bad_step()))):
                raise _not_finite(bad, run.saved)
            numbers = losses.look(group) if log else {}
            if bar is not None:
                if log:
                    clock = _log(run, numbers, began, clock)
                    bar.advance(step, f"loss {numbers['loss']:.4g}, {numbers['images_per_second']:.4g} images/s")
                bar.advance(step)
                if save or stops:
                    run.seconds = time.monotonic() - began
                    run.save()
                if evaluate:
                    run.evaluate()
                if save:
                    said = bar.note
                    run.preview(stop.due, partial(bar.advance, step))
                    bar.advance(step, said)
            if save:
                losses.clear()  # a resumed run begins to count at a checkpoint
                stops = stops or (not ends and group.any(stop.due()))  # told so while samples were drawn
            if evaluate or save or stops:
                group.wait()
            if stops:
                return


def _log(run: Run, numbers: dict[str, float], began: float, clock: tuple[float, int]) -> tuple[float, int]:
    """One line in every log. `clock`: time and step of the line before; returns those of this one."""
    now, step = time.monotonic(), run.state.step
    numbers["learning_rate"] = float(run.state.optimizer.param_groups[0]["lr"])
    numbers["images_per_second"] = (step - clock[1]) * run.recipe.batch_size / (now - clock[0])
    numbers["seconds"] = now - began
    for log in run.logs:
        log(step, numbers)
    return now, step


def _not_finite(step: int, saved: Path | None) -> FloatingPointError:
    good = f"the last good checkpoint is {saved}" if saved else "there is no checkpoint yet"
    return FloatingPointError(f"the loss or its gradient is not finite at step {step}; {good} ({CURE})")
