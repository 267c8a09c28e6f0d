"""A run's folder: its recipe, its checkpoints, its samples and its logs."""

from __future__ import annotations

import copy
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from scorefield.models import checkpoint
from scorefield.distributed import Group
from scorefield.acceleration.fast import for_sampling
from scorefield.files import new_file, writing
from scorefield.models.generate import generate
from scorefield.images import grid, save_png, to_bytes, zoom_for
from scorefield.training.logs import Log, csv_log
from scorefield.networks import RefineNet
from scorefield.noise import sample_seeds
from scorefield.models.recipes import Recipe
from scorefield.training.steps import TrainingState, measure

FIXED = (
    "image_size",
    "crop",
    "width",
    "sigma_max",
    "sigma_min",
    "levels",
    "ema",
    "seed",
    "batch_size",
    "held_out",
    "start",
)
"""What cannot change when a run is resumed. Nor can the data, but for the place where they lie: a digest is kept."""

PATIENCE = 10
"""So often a folder is tried again that another process has locked: one that only looks whether it is, is soon gone."""
CURE = "lower --learning-rate, or add --warmup 1000, --clip 1 or on a GPU --precision bfloat16, and --resume"
"""For runs whose numbers are no longer finite."""

Say = Callable[[str], None]


def unsaid(line: str) -> None:
    """For those who do not want to hear it."""


def check_folder(recipe: Recipe, out: Path, *, resume: bool) -> None:
    """Whether the run may use this folder: a new one, or to resume, one of the same recipe. None is overwritten."""
    if resume:
        before = saved_recipe(out)
        changed = [name for name in FIXED if getattr(before, name) != getattr(recipe, name)]
        if changed:
            was = ", ".join(f"{name} {getattr(before, name)}" for name in changed)
            raise ValueError(f"{out} was started with {was}, which a resumed run cannot change (use another --out)")
    elif out.exists() and not (out / "recipe.json").exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists already, and is no run (name another folder: --out)")
    elif (out / "recipe.json").exists():
        raise FileExistsError(f"{out} exists already (go on with it: --resume; or name another folder: --out)")


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Inside, this process alone trains in that folder; the system forgets the lock when the process ends, however."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    folder = os.open(out, os.O_RDONLY)
    for more in range(PATIENCE, -1, -1):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if not more:
                os.close(folder)
                raise FileExistsError(f"another process is training in {out} (wait for it, or stop it)") from None
            time.sleep(0.05)
        except OSError as error:  # a file system without locks
            warnings.warn(f"cannot lock {out}: {error.strerror}", stacklevel=2)
            break
    try:
        yield
    finally:
        os.close(folder)
        with suppress(OSError):  # a folder made for nothing goes again; one that holds anything stays
            out.rmdir()


def write_recipe(recipe: Recipe, out: Path) -> None:
    """Makes the folder where there is none."""
    with new_file(out / "recipe.json") as file:
        file.write(json.dumps(asdict(recipe), indent=2).encode() + b"\n")


def saved_recipe(out: Path) -> Recipe:
    """The recipe that a run folder was started with."""
    try:
        return checkpoint.recipe_from_json((out / "recipe.json").read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"{out} holds no run to resume (leave --resume out to start one)") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{out / 'recipe.json'} cannot be read: {error}") from error


@dataclass
class Run:
    """A run under way, in its folder."""

    recipe: Recipe
    out: Path
    group: Group
    state: TrainingState
    network: RefineNet
    shape: tuple[int, int, int]
    facts: dict[str, str]
    held_out: Tensor | None
    say: Say
    logs: list[Log] = field(default_factory=list)
    held_out_logs: list[Log] = field(default_factory=list)
    saved: Path | None = None
    seconds: float = 0.0
    """Spent in training so far, by all that went on with this run."""

    def open_logs(self, extra: list[Log]) -> None:
        """log.csv and held_out.csv, without what they hold of later steps than this one."""
        levels = range(1, self.recipe.levels + 1)
        columns = ["loss", *(f"loss_{k}" for k in levels), "learning_rate", "images_per_second", "seconds"]
        self.logs = [csv_log(self.out / "log.csv", columns, until=self.state.step), *extra]
        kinds = ["", "ema_"] if self.recipe.ema else [""]
        columns = [name for kind in kinds for name in (f"{kind}held_out", *(f"{kind}held_out_{k}" for k in levels))]
        self.held_out_logs = [csv_log(self.out / "held_out.csv", columns, until=self.state.step), *extra]

    def save(self) -> None:
        """A checkpoint of the current step. The optimizer comes first: a model file means a whole checkpoint."""
        folder, name = self.out / "checkpoints", f"{self.state.step:08d}.safetensors"
        moments = optimizer_tensors(self.state.optimizer)
        for value in (*self.network.state_dict().values(), *(self.state.average or {}).values(), *moments.values()):
            if not value.isfinite().all():
                raise FloatingPointError(
                    f"the weights are not finite after step {self.state.step}, which is not saved; the last good "
                    f"checkpoint is {self.saved} ({CURE})"
                )
        facts = {"step": str(self.state.step), "seconds": f"{self.seconds:.3f}"}
        checkpoint.write(folder / f"optimizer-{name}", moments, facts)
        checkpoint.save_model(
            folder / f"model-{name}",
            self.network.state_dict(),
            self.state.average,
            recipe=self.recipe,
            shape=self.shape,
            step=self.state.step,
            facts=self.facts,
        )
        self.saved = folder / f"model-{name}"
        before = [p for p in sorted(folder.glob("optimizer-*.safetensors")) if p.name <= f"optimizer-{name}"]
        for old in before[:-2]:
            old.unlink()

    def restore(self) -> None:
        """The newest checkpoint that is whole; damaged ones are passed over with a message."""
        for model in reversed(checkpoint.model_files(self.out)):
            optimizer = model.with_name(model.name.replace("model-", "optimizer-"))
            if not optimizer.exists():
                continue
            try:
                weights, metadata = checkpoint.read(model)
                moments, facts = checkpoint.read(optimizer)
            except checkpoint.BrokenCheckpointError as error:
                self.say(f"{error}; going back to the checkpoint before it")
                continue
            if metadata.get("data_digest") != self.facts["data_digest"]:
                raise ValueError(f"the data of {self.out} changed since it was started: {self.facts['data']}")
            restore_state(self.state, weights, moments, step=int(metadata["step"]))
            self.seconds = float(facts.get("seconds", 0))
            if "start_digest" in metadata:
                self.facts["start_digest"] = metadata["start_digest"]
            self.saved = model
            self.say(f"resuming {self.out} at step {self.state.step}")
            return
        if checkpoint.model_files(self.out):
            raise ValueError(f"no checkpoint of {self.out} can be resumed: each lacks its optimizer or is damaged")
        self.say(f"{self.out} holds no checkpoint yet: starting at step 0")

    def catch_up(self, stopped: Callable[[], bool]) -> None:
        """What a run that was killed after its last checkpoint still owes to that step."""
        step = self.state.step
        if step == 0:
            return
        due = step % self.recipe.evaluate_every == 0 or step == self.recipe.steps
        written = (self.out / "held_out.csv").read_text().splitlines()[-1].split(",")[0]
        if due and self.held_out is not None and written != str(step):
            self.evaluate()
        regular = step % self.recipe.checkpoint_every == 0 or step == self.recipe.steps
        if regular and self.recipe.previews and not self._preview_file().exists():
            self.say(f"drawing the samples of step {step}")
            self.preview(stopped)

    def _preview_file(self) -> Path:
        return self.out / "samples" / f"{self.state.step:08d}.png"

    def evaluate(self) -> None:
        """The held-out loss of the raw and of the averaged weights, into held_out.csv."""
        if self.held_out is None:
            return
        numbers: dict[str, float] = {}
        kinds = {"": self.network} | ({"ema_": self.averaged()} if self.state.average else {})
        for kind, network in kinds.items():
            each = measure(network, self.held_out, network.sigmas, batch_size=64)
            numbers[f"{kind}held_out"] = each.mean().item()
            numbers |= {f"{kind}held_out_{k}": v for k, v in enumerate(each.tolist(), 1)}
        for log in self.held_out_logs:
            log(self.state.step, numbers)

    def preview(self, stopped: Callable[[], bool], tell: Say = unsaid) -> None:
        """A few samples, as samples/STEP.png. A network in its beginnings may diverge: that is no reason to stop.

        On a CPU they take a tenth of the sampler's steps, and longer ones: rough, but soon there. Told to stop, it
        leaves them to the run that is resumed.
        """
        if not self.recipe.previews:
            return
        network = self.averaged()
        hurry = 10 if self.group.device.type == "cpu" and not self.recipe.preview_steps else 1
        steps = self.recipe.preview_steps or max(1, self.recipe.sample_steps // hurry)
        step_size = min(self.recipe.step_size * hurry, max(self.recipe.step_size, self.recipe.sigma_min**2))
        seeds = sample_seeds(0, range(self.recipe.previews))
        try:
            precision = "float32" if self.recipe.precision == "float32" else "auto"
            score = for_sampling(network, self.shape, size=len(seeds), precision=precision)
            for state in generate(score, network.sigmas, self.shape, seeds, step_size=step_size, steps=steps):
                if stopped():
                    self.say(f"no samples at step {self.state.step}: told to stop")
                    return
                tell(f"drawing {len(seeds)} samples: step {state.step} of {steps * len(network.sigmas)}")
            pixels = grid(to_bytes(state.x))
            save_png(self._preview_file(), pixels, zoom=zoom_for(pixels))
        except FloatingPointError as error:
            self.say(f"no samples at step {self.state.step}: {error}")

    def averaged(self) -> RefineNet:
        """The network with the moving average's weights, or as it is where none is kept."""
        if self.state.average is None:
            return self.network
        network = copy.deepcopy(self.network)
        network.load_state_dict(self.state.average)
        return network


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state under flat names: PARAMETER/KIND."""
    moments = optimizer.state_dict()["state"]
    return {f"{k}/{kind}": value for k, kinds in moments.items() for kind, value in kinds.items()}


@torch.no_grad()
def restore_state(
    state: TrainingState, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor], *, step: int
) -> None:
    """Put a checkpoint's tensors back where they came from."""
    for kind, tensors in {"raw": state.network.state_dict(), "ema": state.average or {}}.items():
        for name, value in tensors.items():
            value.copy_(weights[f"{kind}/{name}"])
    whole = state.optimizer.state_dict()
    whole["state"] = {}
    for name, value in moments.items():
        k, kind = name.split("/")
        whole["state"].setdefault(int(k), {})[kind] = value
    state.optimizer.load_state_dict(whole)
    for parameter, kinds in state.optimizer.state.items():
        for kind, value in kinds.items():  # in the parameter's own memory layout, which the file does not keep
            kinds[kind] = torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value
    state.step = step
