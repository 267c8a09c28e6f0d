"""A run's folder: its recipe, its checkpoints, its samples and its logs."""

from __future__ import annotations

import copy
import errno
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scorefield.distributed import Group
from scorefield.files import new_file, write_json, writing
from scorefield.images import grid, save_png, to_bytes, zoom_for
from scorefield.models import checkpoint
from scorefield.models.build import build_sampler
from scorefield.models.model import BATCH, KIND, Model, recipe_from_json, save_model
from scorefield.models.recipes import (
    MAY_CHANGE,
    SAMPLING,
    Change,
    Recipe,
    changes_between,
    check_unchanged,
    read_changes,
)
from scorefield.samplers import AnnealedLangevin, Sampler, from_dict
from scorefield.score import ConditionalScore
from scorefield.training.history import HELD_OUT, LOG, last_step, read_log
from scorefield.training.levels import loss_weight
from scorefield.training.logs import Log, columns, csv_log, error_of
from scorefield.training.trainer import Batch, MeanLosses, Trainer, held_out_losses, mean_losses

LOCK, SAMPLES = ".lock", "samples"
QUICK_CALLS = 10
"""Network calls for each of the samples that are drawn between checkpoints."""
SECONDS_TO_WAIT = 0.5
"""How long to wait for a folder that another process has locked: a process that only checks the lock is soon gone."""
NOT_FINITE_FIX = (
    "--resume with a lower --learning-rate, --clip 1 or, on a GPU, --precision bfloat16; or start again with --warmup "
    "1000"
)
"""For runs whose numbers are no longer finite."""

Say = Callable[[str], None]


def say_nothing(line: str) -> None:
    """Drop the message."""


def check_folder(recipe: Recipe, out: Path, *, resume: bool) -> None:
    """Raise an error unless the folder is new or, to resume, holds a run of the same recipe."""
    if resume:
        check_unchanged(saved_recipe(out), recipe, str(out))
    elif (out / "recipe.json").exists():
        raise FileExistsError(f"{out} exists already (resume it by --resume or resume=True, or name another folder)")
    elif out.exists() and (not out.is_dir() or any(not _is_unfinished(each) for each in out.iterdir())):
        raise FileExistsError(f"{out} exists already and is not a run (name another folder: --out)")


def _is_unfinished(path: Path) -> bool:
    """Whether a run that was killed before it began may have left this file."""
    return path.name == LOCK or (path.name.startswith("recipe.json.") and path.suffix == ".part")


def remove_unfinished(out: Path) -> None:
    """Remove what killed processes left of files that they were writing."""
    for place in (out, out / checkpoint.CHECKPOINTS, out / SAMPLES):
        for part in place.glob("*.part"):
            if re.fullmatch(r".+\.[0-9a-f]{32}\.part", part.name):  # not of other programs
                part.unlink(missing_ok=True)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Inside, only this process trains in that folder. The lock ends with the process, even if it is killed."""
    from filelock import FileLock, Timeout

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {out}: {error.strerror} (name another folder: --out)") from error
    lock = FileLock(out / LOCK)
    try:
        with writing(out):
            lock.acquire(timeout=SECONDS_TO_WAIT)
    except Timeout:
        raise FileExistsError(f"another process is training in {out} (wait for it, or stop it)") from None
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        warnings.warn(f"cannot lock {out}: its file system has no locks", stacklevel=2)
    try:
        yield
    finally:
        if not (out / "recipe.json").exists():  # not a run: leave no trace
            (out / LOCK).unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):  # a folder that holds anything stays
            out.rmdir()


def is_locked(out: Path) -> bool:
    """Whether a process is training in that folder."""
    from filelock import FileLock, Timeout

    if not (out / LOCK).exists():
        return False
    try:
        with FileLock(out / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # a folder that may not be written to, or a file system without locks
        return False


def write_recipe(recipe: Recipe, out: Path) -> None:
    """Write recipe.json; makes the folder if it is missing."""
    with new_file(out / "recipe.json") as file:
        file.write(json.dumps(asdict(recipe), indent=2).encode() + b"\n")


def saved_recipe(out: Path) -> Recipe:
    """The settings of a run that are in force: those it was started with and the changes since."""
    try:
        return recipe_from_json((out / "recipe.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{out} holds no run to resume (leave --resume out to start one)") from None
    except ValueError as error:
        raise ValueError(
            f"{out / 'recipe.json'} cannot be read: {error} (correct it, or start another run in a folder of its own)"
        ) from error


@dataclass
class Run:
    """A run under way, in its folder."""

    recipe: Recipe
    out: Path
    group: Group
    trainer: Trainer
    sigmas: Tensor
    """The noise levels at which losses are recorded, (L,)."""
    shares: Tensor | None
    """The share of each in the mean; None if they are all the same."""
    shape: tuple[int, int, int]
    labels: tuple[str, ...]
    metadata: dict[str, str]
    held_out: Batch | None
    say: Say
    score_of: Callable[[nn.Module], ConditionalScore]
    """The score that held-out losses are measured with: by the fused kernels if training uses them, otherwise plain."""
    changes: list[Change] = field(default_factory=list)
    """The settings that were changed when the run was resumed."""
    logs: list[Log] = field(default_factory=list)
    held_out_logs: list[Log] = field(default_factory=list)
    saved: Path | None = None
    """The last model file."""
    seconds: float = 0.0
    """Time spent in training so far, over all resumed parts of the run."""

    @property
    def step(self) -> int:
        """The number of updates so far."""
        return self.trainer.steps_done

    def open_logs(self, extra: list[Log]) -> None:
        """Open log.csv and held_out.csv, without what they hold of steps after the current one."""
        sigmas, held_out = self.sigmas.tolist(), self.out / HELD_OUT
        names = [*columns("loss", sigmas), "learning_rate", "images_per_second", "seconds"]
        self.logs = [csv_log(self.out / LOG, names, until=self.step), *extra]
        kinds = ["held_out", *(f"{name}_held_out" for name in self.trainer.averages)]
        names = ["n", *(name for kind in kinds for each in (kind, error_of(kind)) for name in columns(each, sigmas))]
        if last_step(held_out) and "n" not in read_log(held_out).columns:
            self.say(f"note: the losses in {held_out} so far are of an older version: each image at one noise level")
        self.held_out_logs = [csv_log(held_out, names, until=self.step), *extra]

    def save(self) -> None:
        """Write a checkpoint. The optimizer's file comes first, so that a model file means a whole checkpoint."""
        folder, name = self.out / checkpoint.CHECKPOINTS, f"{self.step:08d}.safetensors"
        moments, weights = optimizer_tensors(self.trainer.optimizer), self.trainer.network.state_dict()
        averages = {name: average for name, (average, _) in self.trainer.averages.items()}
        averaged = [value for average in averages.values() for value in average.values()]
        for value in (*weights.values(), *averaged, *moments.values()):
            if not value.isfinite().all():
                raise FloatingPointError(
                    f"the weights are not finite after step {self.step}, which is not saved; the last good checkpoint "
                    f"is {self.saved} ({NOT_FINITE_FIX})"
                )
        for log in (self.out / LOG, self.out / HELD_OUT):
            _sync(log)  # a power cut must not take lines that the resumed run will not write again
        header = {"step": str(self.step), "seconds": f"{self.seconds:.3f}"}
        checkpoint.write(folder / f"optimizer-{name}", moments, header)
        save_model(
            folder / f"model-{name}",
            weights,
            averages,
            recipe=self.recipe,
            shape=self.shape,
            step=self.step,
            labels=self.labels,
            metadata=self.metadata,
        )
        self.saved = folder / f"model-{name}"
        self._remove_old_optimizers()

    def _remove_old_optimizers(self) -> None:
        """Keep the optimizer's state of the last two checkpoints."""
        assert self.saved is not None
        last = _optimizer_file(self.saved)
        before = [file for file in sorted(last.parent.glob("optimizer-*.safetensors")) if file.name <= last.name]
        for old in before[:-2]:
            old.unlink()

    def restore(self) -> None:
        """Go back to the newest checkpoint that is whole; damaged ones are skipped with a message."""
        files = [path for path in checkpoint.model_files(self.out) if _optimizer_file(path).exists()]
        found = checkpoint.newest_whole(files, _read_checkpoint, skip=self.say)
        if found is None:
            if checkpoint.model_files(self.out):
                raise ValueError(
                    f"no checkpoint of {self.out} can be resumed: each is damaged or lacks its optimizer (start "
                    "another run from its weights: --start MODEL --out FOLDER)"
                )
            self.say(f"{self.out} holds no checkpoint yet: starting at step 0")
            return
        self.saved, (weights, metadata, moments, header) = found
        if metadata.get("data_digest") != self.metadata["data_digest"]:
            theirs, mine = (_describe_data(each) for each in (metadata, self.metadata))
            raise ValueError(
                f"the images changed since {self.out} was started with {theirs}; got {mine} (give the images it was "
                "started with by --data, or start another run in a folder of its own: --out)"
            )
        labels = metadata.get("labels_digest")  # files of older versions have none
        if labels is not None and labels != self.metadata.get("labels_digest"):
            raise ValueError(
                f"the labels of the images changed since {self.out} was started (give the images and labels it was "
                "started with by --data, or start another run in a folder of its own: --out)"
            )
        self._check_fits(weights)
        restore_trainer(self.trainer, weights, moments, step=int(metadata["step"]))
        self.seconds = float(header.get("seconds", 0))
        self.changes = read_changes(metadata.get("changes", "[]"))
        before = saved_recipe(self.out)
        if self.step == before.steps == self.recipe.steps:
            given = [name for name in (*MAY_CHANGE, *SAMPLING) if getattr(before, name) != getattr(self.recipe, name)]
            useless = f"; another {' or '.join(given)} has no effect" if given else ""
            self.say(f"{self.out} is done, with all its {self.step} iterations{useless} (--steps N goes on)")
            self.recipe = before
        for name in SAMPLING:
            if (old := getattr(before, name)) != (new := getattr(self.recipe, name)):
                self.say(f"changed: {name} from {old} to {new}, for samples of the models from now on")
        self._record(changes_between(recipe_from_json(metadata["recipe"]), self.recipe, step=self.step))
        if "start_digest" in metadata:
            self.metadata["start_digest"] = metadata["start_digest"]
        self.say(f"resuming {self.out} at step {self.step}")
        for change in self.changes:
            if change.step == self.step:
                self.say(f"changed: {change}")

    def _check_fits(self, weights: Mapping[str, Tensor]) -> None:
        """Raise an error if a checkpoint's weights are not those of this network."""
        mine = {f"raw/{name}": value.shape for name, value in self.trainer.network.state_dict().items()}
        theirs = {name: value.shape for name, value in weights.items() if name.startswith("raw/")}
        if mine != theirs:
            other = min(name.removeprefix("raw/") for name, _ in mine.items() ^ theirs.items())
            raise ValueError(
                f"the weights in {self.saved} do not fit this {self.recipe.network}: {other} differs (pass the network "
                "with the settings that the run was started with, or start another run in a folder of its own)"
            )

    def plan(self, steps: int) -> None:
        """Give the run another number of iterations, on the record."""
        change = Change(self.step, "steps", self.recipe.steps, steps)
        self.recipe = replace(self.recipe, steps=steps)
        self._record([change])
        if self.group.main:
            self.write_settings()
        self.say(f"planned: {steps} iterations in the time there is")

    def _record(self, changes: list[Change]) -> None:
        self.changes += changes
        if self.changes:
            self.metadata["changes"] = json.dumps([asdict(change) for change in self.changes])

    def write_settings(self) -> None:
        """Write recipe.json, which holds the settings that are in force, and changes.json if some were changed."""
        write_recipe(self.recipe, self.out)
        if self.changes:
            write_json(self.out / "changes.json", {"changes": [asdict(change) for change in self.changes]})
        else:  # of a change that no checkpoint saw
            (self.out / "changes.json").unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what a killed process left."""
        remove_unfinished(self.out)
        if self.saved is not None:
            self._remove_old_optimizers()

    def catch_up(self, stopped: Callable[[], bool]) -> None:
        """Make the measurements and samples of the last checkpoint if the run was killed before they were made."""
        if self.step == 0:
            return
        due = self.step % self.recipe.evaluate_every == 0 or self.step == self.recipe.steps
        if due and self.held_out is not None and last_step(self.out / HELD_OUT) != self.step:
            self.evaluate(stopped)
        regular = self.step % self.recipe.checkpoint_every == 0 or self.step == self.recipe.steps
        if regular and self.recipe.previews and not self._preview_file().exists():
            self.say(f"drawing the samples of step {self.step}")
            self.preview(stopped)

    def _preview_file(self) -> Path:
        return self.out / SAMPLES / f"{self.step:08d}.png"

    def evaluate(self, stopped: Callable[[], bool]) -> None:
        """Measure the loss of the raw and of the averaged weights on every held-out image at every noise level, and
        write the means and their standard errors into held_out.csv. If the run is told to stop meanwhile, the resumed
        run does it."""
        if self.held_out is None:
            return
        numbers: dict[str, float] = {"n": len(self.held_out.pixels)}
        kinds = {"held_out": self.trainer.network}
        kinds |= {f"{name}_held_out": self.averaged(name) for name in self.trainer.averages}
        for kind, network in kinds.items():
            found = self._held_out_losses(network, self.held_out, stopped)
            if found is None:
                return
            for name, values in (
                (kind, [found.mean, *found.by_level]),
                (error_of(kind), [found.error, *found.errors_by_level]),
            ):
                each = zip(columns(name, self.sigmas.tolist()), values, strict=True)
                numbers |= {column: value for column, value in each if value is not None}
        for log in self.held_out_logs:
            log(self.step, numbers)

    def _held_out_losses(self, network: nn.Module, held_out: Batch, stopped: Callable[[], bool]) -> MeanLosses | None:
        device, size = self.group.device, self.batch
        settings: dict[str, Any] = {
            "dequantise": self.recipe.dequantise,
            "batch_size": size,
            "weight": loss_weight(self.recipe),
        }
        score, levels = self.score_of(network), list[Tensor]()
        with evaluating(network):
            for number, sigma in enumerate(self.sigmas.to(device).split(1)):
                if stopped():
                    return None
                levels.append(held_out_losses(score, held_out, sigma, first=number, **settings))
        return mean_losses(torch.cat(levels), self.shares)

    def preview(self, stopped: Callable[[], bool], tell: Say = say_nothing, *, quick: bool = False) -> None:
        """Draw a few samples, as samples/STEP.png. A network early in training may diverge: the run goes on.

        On a CPU they take a tenth of the sampler's steps, and longer ones: rough, but quick. `quick` ones take few
        calls of a network that knows all noise levels. If the run is told to stop, they are left to the resumed run.
        Each class has a row of its own, if there are no more classes than samples.
        """
        if not self.recipe.previews:
            return
        model = self.model()
        if quick:
            model = replace(model, sampler=self._quick_sampler())  # which gives it the noise schedule
        sampler = self._preview_sampler(model.sampler)
        n, columns, label = self.recipe.previews, None, None
        if 1 < (kinds := len(self.labels)) <= n:
            columns = max(2, n // kinds)
            n, label = kinds * columns, [k // columns for k in range(kinds * columns)]
        precision = "float32" if self.recipe.precision == "float32" else "auto"
        try:
            with evaluating(model.network):
                made = list[Tensor]()
                for start in range(0, n, self.batch):
                    numbers = range(start, min(start + self.batch, n))
                    classes = None if label is None else label[start : numbers.stop]
                    for state in model.states(numbers, sampler=sampler, label=classes, precision=precision):
                        if stopped():
                            self.say(f"no samples at step {self.step}: the run was told to stop")
                            return
                        tell(f"drawing {n} samples: step {state.step} of {sampler.updates}")
                    made.append(state.x)
            pixels = grid(to_bytes(torch.cat(made)), columns=columns)
            save_png(self._preview_file(), pixels, zoom=zoom_for(pixels))
        except FloatingPointError as error:
            self.say(f"no samples at step {self.step}: {error}")

    def _quick_sampler(self) -> Sampler:
        calls = min(QUICK_CALLS, self.recipe.sample_calls)
        sampler: Sampler = from_dict({"name": "adams_bashforth", "calls": calls})
        return sampler

    def _preview_sampler(self, sampler: Sampler) -> Sampler:
        """The model's sampler; on a CPU annealed Langevin dynamics with a tenth of its steps."""
        if not isinstance(sampler, AnnealedLangevin):
            return sampler
        if self.recipe.preview_steps:
            return replace(sampler, steps=self.recipe.preview_steps)
        if self.group.device.type != "cpu":
            return sampler
        longer = min(sampler.step_size * 10, max(sampler.step_size, self.recipe.sigma_min**2))
        return replace(sampler, steps=max(1, sampler.steps // 10), step_size=longer)

    def model(self) -> Model:
        """The model as it is now, with averaged weights if an average is kept."""
        return Model(
            self.averaged(), self.shape, build_sampler(self.recipe), self.labels, recipe=self.recipe, step=self.step
        )

    @property
    def batch(self) -> int:
        """How many images go through the network at once where no gradients are kept."""
        usual, micro = BATCH.get(self.group.device.type, 64), self.trainer.micro_batch
        return self.recipe.micro_batch or (min(usual, 2 * micro) if micro else usual)

    def averaged(self, name: str = "ema") -> nn.Module:
        """The network with the weights of that moving average, or as it is if no average is kept."""
        if not self.trainer.averages:
            return self.trainer.network
        network = copy.deepcopy(self.trainer.network)
        network.load_state_dict(self.trainer.averages[name][0])
        return network


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Inside, the network is in evaluation mode: without dropout, for example."""
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _sync(path: Path) -> None:
    """Wait until all of a file is on the disk."""
    with writing(path), path.open("ab") as file:
        os.fsync(file.fileno())


def _describe_data(metadata: Mapping[str, str]) -> str:
    return f"{metadata.get('data')} ({metadata.get('data_images')} images, {metadata.get('data_digest', '')[:12]})"


def _optimizer_file(model: Path) -> Path:
    return model.with_name(model.name.replace("model-", "optimizer-"))


def _read_checkpoint(model: Path) -> tuple[dict[str, Tensor], dict[str, str], dict[str, Tensor], dict[str, str]]:
    """Weights and metadata of a model file, moments and metadata of the optimizer's file beside it."""
    weights, metadata = checkpoint.read(model)
    moments, header = checkpoint.read(_optimizer_file(model))
    alike = metadata.get("kind") == KIND and header.get("step") == metadata.get("step")
    if not alike or not all(re.fullmatch(r"\d{1,9}/\w+", name) for name in moments):
        raise checkpoint.BrokenCheckpointError(f"{_optimizer_file(model)} does not hold the optimizer of {model.name}")
    return weights, metadata, moments, header


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state under flat names: PARAMETER/KIND."""
    moments = optimizer.state_dict()["state"]
    return {f"{k}/{kind}": value for k, kinds in moments.items() for kind, value in kinds.items()}


@torch.no_grad()
def restore_trainer(
    trainer: Trainer, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor], *, step: int
) -> None:
    """Put a checkpoint's tensors back where they came from."""
    averages = {name: average for name, (average, _) in trainer.averages.items()}
    for kind, tensors in {"raw": trainer.network.state_dict(), **averages}.items():
        for name, value in tensors.items():
            value.copy_(weights[f"{kind}/{name}"])
    whole = trainer.optimizer.state_dict()
    whole["state"] = {}
    for name, value in moments.items():
        k, kind = name.split("/")
        whole["state"].setdefault(int(k), {})[kind] = value
    trainer.optimizer.load_state_dict(whole)
    for parameter, kinds in trainer.optimizer.state.items():
        for kind, value in kinds.items():  # in the parameter's own memory layout, which the file does not keep
            kinds[kind] = torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value
    trainer.steps_done = step
