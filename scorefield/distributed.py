"""Many processes, by torch.distributed: started by torchrun, one for each GPU, or a single one without it.

torchrun --nproc-per-node=2 -m scorefield train mnist
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed as dist

from scorefield.progress import plural

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """The processes that work together, from the point of view of one of them."""

    rank: int
    world: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and prints messages."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process; all of them get the same answer, at the same point of their work."""
        return any(self.all(flag))

    def all(self, value: Any) -> list[Any]:  # noqa: ANN401
        """Every process's value, by rank, for every process."""
        values = [value] * self.world
        if self.world > 1:
            dist.all_gather_object(values, value)
        return values

    def mean_(self, tensors: list[torch.Tensor]) -> None:
        """Replace the tensors by their means over all processes: gradients become those of the joined batch."""
        if self.world == 1:
            return
        flats = [(bucket, torch.cat([tensor.flatten() for tensor in bucket])) for bucket in _buckets(tensors)]
        sums = [dist.all_reduce(flat, async_op=True) for _, flat in flats]
        for done, (bucket, flat) in zip(sums, flats, strict=True):
            done.wait()
            for tensor, mean in zip(bucket, (flat / self.world).split([t.numel() for t in bucket]), strict=True):
                tensor.copy_(mean.view_as(tensor))

    def sum_(self, tensor: torch.Tensor) -> None:
        """Replace the tensor by its sum over all processes."""
        if self.world > 1:
            dist.all_reduce(tensor)

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """Every process's value, by rank, for the main process; an empty list for the others."""
        if self.world == 1:
            return [value]
        values = [None] * self.world if self.main else None
        dist.gather_object(value, values)
        return values or []

    def share(self, numbers: int) -> range:
        """This process's part of the numbers 0 ... numbers − 1: one piece, and all pieces of nearly the same size."""
        return range(numbers * self.rank // self.world, numbers * (self.rank + 1) // self.world)

    def main_first(self, work: Callable[[], T]) -> T:
        """Every process does the work, the main one first: the others find on the disk what it prepared."""
        done: list[T] = []
        self.agreed(lambda: done.append(work()))
        return done[0] if done else work()

    def agreed(self, work: Callable[[], object]) -> None:
        """The main process does the work; if it fails, the same error is raised in all processes."""
        problem: Exception | None = None
        if self.main:
            try:
                work()
            except (ValueError, OSError) as error:
                problem = error
        if (problem := self.all(problem)[0]) is not None:
            raise problem

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()


BUCKET = 2**23
"""Numbers that are sent together: few enough that the first are on their way while the next are put together."""


def _buckets(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The tensors in order, in groups of at most BUCKET numbers or of a single tensor."""
    buckets, room = list[list[torch.Tensor]](), 0
    for tensor in tensors:
        if tensor.numel() > room:
            buckets.append([])
            room = BUCKET
        buckets[-1].append(tensor)
        room -= tensor.numel()
    return buckets


@contextmanager
def joined(device: str = "auto") -> Iterator[Group]:
    """The group that torchrun started this process in, or a group of one. `device`: auto, cpu, cuda, cuda:1, mps."""
    rank, world, local_rank = _places()
    place = pick_device(device, local_rank=local_rank)
    if world == 1:
        yield Group(0, 1, place)
        return
    if place.type == "mps":
        raise ValueError(
            "several processes cannot share an Apple GPU (start one without torchrun, or use --device cpu)"
        )
    cuda = place.type == "cuda"
    patience = timedelta(hours=12)  # the others wait while the main process prepares data or draws samples
    dist.init_process_group("nccl" if cuda else "gloo", timeout=patience, device_id=place if cuda else None)
    yield Group(rank, world, place)
    dist.destroy_process_group()  # not after an error: the others may never get here


def _places() -> tuple[int, int, int]:
    """This process's number, the number of processes, and its number on this machine, from torchrun's variables."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    given = {name: os.environ[name] for name in names if name in os.environ}
    if wrong := [f"{name}={value}" for name, value in given.items() if not value.isdecimal()]:
        raise ValueError(f"the environment has {', '.join(wrong)}, which is no number ({_LAUNCH})")
    rank, world, local_rank = (int(given.get(name, default)) for name, default in zip(names, (0, 1, 0), strict=True))
    if world > 1 and (missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]):
        raise ValueError(f"the environment has WORLD_SIZE={world}, but no {' and no '.join(missing)} ({_LAUNCH})")
    if world < 1 or rank >= world:
        raise ValueError(f"the environment has WORLD_SIZE={world} and RANK={rank} ({_LAUNCH})")
    return rank, world, local_rank


_LAUNCH = "start several processes with torchrun; for one process, unset these variables"


def pick_device(name: str, *, local_rank: int = 0) -> torch.device:
    """The device of that name; auto is this process's CUDA GPU where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps") or (device.type != "cuda" and device.index):
        raise ValueError(f"no device is called {name} (use auto, cpu, cuda, cuda:1 or mps)")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("this PyTorch sees no CUDA GPU (use --device cpu)")
        device = torch.device("cuda", device.index if device.index is not None else local_rank)
        if device.index is not None and device.index >= torch.cuda.device_count():
            raise ValueError(f"there is no {device}: this machine has {plural(torch.cuda.device_count(), 'GPU')}")
        torch.cuda.set_device(device)
    if device.type == "mps":
        if not torch.backends.mps.is_available():
            raise ValueError("this PyTorch sees no Apple GPU (use --device cpu)")
        return torch.device("mps", 0)
    return device


def float64_device(device: torch.device | str) -> torch.device:
    """Where float64 numbers about tensors on that device are computed: on the CPU for Apple GPUs, which have none."""
    device = torch.device(device)
    return torch.device("cpu") if device.type == "mps" else device


def device_name(device: torch.device) -> str:
    """A description of the device for people."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"Apple GPU, {platform.processor() or platform.machine()}"
    return f"CPU, {plural(torch.get_num_threads(), 'thread')}"
