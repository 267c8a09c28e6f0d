"""How fast this machine trains a recipe's network, and the memory that it takes: a quick measurement."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from itertools import count

import torch
from torch import Tensor

from scorefield.acceleration.threads import multiplications, pytorch_threads, training_threads
from scorefield.distributed import Group, device_name
from scorefield.doctor.advice import Speed
from scorefield.models.build import build_network, sized
from scorefield.models.recipes import Recipe
from scorefield.training.run import CPU_BATCH, _trainer
from scorefield.training.trainer import Batch

SECONDS = 3.0
"""How long is measured, after the first update."""
STATE = 4 * 4
"""Bytes for a parameter in float32: itself, its gradient and Adam's two moments."""


def measure_speed(recipe: Recipe, shape: tuple[int, int, int], labels: int, group: Group) -> Speed:
    """Train for a moment on random pixels."""
    channels, height, width = shape
    recipe = sized(recipe, height, width)
    network = build_network(recipe, channels=channels, labels=labels).to(group.device)
    trainer, numbers = _trainer(recipe, group, network), count()
    n, cpu = recipe.batch_size, group.device.type == "cpu"
    n = min(n, CPU_BATCH) if cpu else n  # what goes through the network at once
    pixels = torch.randint(0, 256, (n, height, width, channels), dtype=torch.uint8, device=group.device)
    classes = torch.arange(n, device=group.device) % labels if labels else None
    batch, threads = Batch(pixels, classes), torch.get_num_threads()
    if cpu:
        threads = training_threads(threads, n, multiplications(network, shape))
    with pytorch_threads(threads):
        held = _Held()
        watching: AbstractContextManager[object] = held if cpu else nullcontext()  # a recording has no hooks
        with watching:
            trainer.step(batch, next(numbers))
        began, done = time.perf_counter(), 0
        while not done or time.perf_counter() - began < SECONDS:
            trainer.step(batch, next(numbers))
            _finish(group.device)
            done += 1
        seconds = time.perf_counter() - began
    parameters = sum(parameter.numel() for parameter in network.parameters())
    memory = (STATE + 4 * len(trainer.averages)) * parameters + held.bytes
    if group.device.type == "cuda":
        memory = torch.cuda.max_memory_allocated()
    return Speed(round(done * n / seconds, 2), round(memory / 2**30, 2), group.device.type, device_name(group.device))


class _Held(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that a backward pass keeps."""

    def __init__(self) -> None:
        self.bytes, seen = 0, set[int]()

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                self.bytes += storage.nbytes()
            return tensor

        super().__init__(pack, lambda tensor: tensor)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
