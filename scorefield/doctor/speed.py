"""How fast this machine trains a recipe's network, and the memory that it takes: a quick measurement."""

from __future__ import annotations

import time
from itertools import count

import torch

from scorefield.acceleration.threads import multiplications, pytorch_threads, training_threads
from scorefield.distributed import Group, device_name
from scorefield.doctor.advice import Speed
from scorefield.models.build import build_network, sized
from scorefield.models.recipes import Recipe
from scorefield.training.run import _trainer, saved_bytes
from scorefield.training.trainer import Batch

SECONDS = 3.0
"""How long is measured, after the first update."""
STATE = 4 * 4
"""Bytes for a parameter in float32: itself, its gradient and Adam's two moments."""


def measure_speed(recipe: Recipe, shape: tuple[int, int, int], labels: int, group: Group) -> Speed:
    """Train for a moment on random pixels."""
    channels, height, width = shape
    recipe, cpu = sized(recipe, height, width), group.device.type == "cpu"
    network = build_network(recipe, channels=channels, labels=labels).to(group.device)
    trainer, numbers = _trainer(recipe, group, network, shape), count()
    n = min(recipe.batch_size, trainer.micro_batch or recipe.batch_size)  # what goes through the network at once
    pixels = torch.randint(0, 256, (n, height, width, channels), dtype=torch.uint8, device=group.device)
    classes = torch.arange(n, device=group.device) % labels if labels else None
    batch, threads = Batch(pixels, classes), torch.get_num_threads()
    if cpu:
        threads = training_threads(threads, n, multiplications(network, shape))
    with pytorch_threads(threads):
        trainer.step(batch, next(numbers))
        began, done = time.perf_counter(), 0
        while not done or time.perf_counter() - began < SECONDS:
            trainer.step(batch, next(numbers))
            _finish(group.device)
            done += 1
        seconds = time.perf_counter() - began
    if group.device.type == "cuda":
        memory = float(torch.cuda.max_memory_allocated())
    else:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        memory = (STATE + 4 * len(trainer.averages)) * parameters + n * saved_bytes(network, shape)
    return Speed(round(done * n / seconds, 2), round(memory / 2**30, 2), group.device.type, device_name(group.device))


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
