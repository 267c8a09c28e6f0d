"""The fast path, chosen here and nowhere else: on GPUs fused kernels in 16 bit and CUDA graphs that launch them; on
CPUs, for sampling, threads that share a batch.

A CUDA graph is a recording of all the kernels of a network call, or of a whole training step, which the GPU replays
without waiting for Python. It works on tensors that stay where they are, so inputs are copied into them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from scorefield.acceleration import kernels
from scorefield.derivatives import QuadraticForm, either_mode
from scorefield.networks import RefineNet, ResNet
from scorefield.noise import SampleNoise
from scorefield.score import Score
from scorefield.acceleration.threads import in_threads
from scorefield.training.steps import ExampleLosses, LeftOut, TrainingState

WARM_UP = 3
"""Passes before a recording, in which libraries choose their kernels."""


def fast(network: RefineNet, *, dtype: torch.dtype = torch.float16) -> Score:
    """The network's score by fused kernels where there is a GPU and Triton, or the network itself."""
    if not kernels.usable(network.sigmas):
        return network
    from scorefield.acceleration.refinenet import Fused

    return Fused(network, dtype=dtype)


def fast_form(network: ResNet) -> QuadraticForm:
    """The quadratic form of Fig. 1's network by fused kernels where there is a GPU and Triton, or as of any network."""
    if not kernels.usable(network.end.weight):
        return either_mode
    from scorefield.acceleration.dual import Dual

    return Dual(network)


def for_sampling(network: RefineNet, shape: tuple[int, ...], *, size: int, precision: str = "auto") -> Score:
    """The score to sample with, `size` images of that shape at once: recorded on a GPU, shared by threads on a CPU.

    `precision`: auto, which is float16 where the kernels can be used; or float32, the plain network.
    """
    if network.sigmas.device.type == "cpu":
        return in_threads(network)
    if precision == "float32" or not kernels.usable(network.sigmas):
        return network
    return Recorded(network, shape, size=size, dtype=torch.float16)


class Recorded:
    """A network's fast score as a CUDA graph, without gradients.

    It is made for batches of `size`: smaller ones are padded, larger ones cut into parts.
    """

    def __init__(self, network: RefineNet, shape: tuple[int, ...], *, size: int, dtype: torch.dtype) -> None:
        self.size, self._network, self._score = size, network, fast(network, dtype=dtype)
        self._x = torch.zeros(size, *shape, device=network.sigmas.device)
        self._sigma = torch.ones(size, device=network.sigmas.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._out: Tensor | None = None

    @torch.no_grad()
    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        self._network.level(sigma, x)  # an error where it knows no such level, which a recording cannot raise
        sigma, out = sigma.expand(len(x)), torch.empty_like(x, dtype=self._x.dtype)
        for k in range(0, len(x), self.size):  # each overwrites what the one before it gave
            part = slice(k, k + self.size)
            out[part] = self._part(x[part], sigma[part])
        return out

    def _part(self, x: Tensor, sigma: Tensor) -> Tensor:
        self._x[: len(x)].copy_(x)
        self._sigma[: len(x)].copy_(sigma)
        self._sigma[len(x) :].copy_(sigma[-1])
        if self._graph is None:
            self._record()
        assert self._graph is not None
        assert self._out is not None
        self._graph.replay()
        return self._out[: len(x)]

    def _record(self) -> None:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
        try:
            _warm_up(lambda: self._score(self._x, self._sigma))
            if not all(self._score(self._x, sigma).isfinite().all() for sigma in self._network.sigmas):
                # beyond float16's largest number
                self._score = fast(self._network, dtype=torch.bfloat16)
                _warm_up(lambda: self._score(self._x, self._sigma))
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._out = self._score(self._x, self._sigma)
        finally:
            torch.backends.cudnn.benchmark = before


def _warm_up(work: Callable[[], object]) -> None:
    """Beside the current stream, as a recording wants it."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(aside)


class RecordedUpdate:
    """A whole update as a CUDA graph: noise, loss, gradients, clipping and Adam's step.

    Where `bad` is 1 after the backward pass, not 0, as gradients were too much for 16 bit, the update is left out. The
    losses are NaN when these are too many.
    """

    def __init__(
        self, losses: ExampleLosses, state: TrainingState, *, seed: int, clip: float, bad: Tensor | None = None
    ) -> None:
        self._losses, self._optimizer, self._seed, self._clip, self._bad = losses, state.optimizer, seed, clip, bad
        self._parameters = list(state.network.parameters())
        self._left_out = LeftOut(self._parameters[0].device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, step: int, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """One update on this batch; its examples' losses and levels."""
        noise = SampleNoise.at_step(self._seed, step, range(len(pixels)), device=pixels.device)
        if self._graph is None:
            self._pixels, self._noise = pixels.clone(), noise.copy()
            self._record()
        if pixels.shape != self._pixels.shape:
            raise ValueError(f"recorded for {tuple(self._pixels.shape)}; got {tuple(pixels.shape)}")
        assert self._graph is not None
        self._pixels.copy_(pixels)
        self._noise.renew(noise)
        self._graph.replay()
        return self._result[0].clone(), self._result[1].clone()

    def _record(self) -> None:
        _warm_up(self._gradients)
        self._start_optimizer()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            losses, levels = self._gradients()
            self._step()
            self._result = losses if self._bad is None else self._left_out.told(losses, self._bad), levels

    def _gradients(self) -> tuple[Tensor, Tensor]:
        for parameter in self._parameters:
            parameter.grad = None
        if self._bad is not None:
            self._bad.zero_()
        losses, levels = self._losses(self._pixels, self._noise.copy())
        losses.mean().backward()
        return losses.detach(), levels

    def _step(self) -> None:
        if self._clip:
            nn.utils.clip_grad_norm_(self._parameters, self._clip)
        _adam(self._optimizer, self._bad)

    @torch.no_grad()
    def _start_optimizer(self) -> None:
        """Adam makes its moments in its first step, which must not be recorded: take it, and take it back."""
        weights = [parameter.clone() for parameter in self._parameters]
        before = {p: {k: v.clone() for k, v in kinds.items()} for p, kinds in self._optimizer.state.items()}
        self._optimizer.step()
        for parameter, weight in zip(self._parameters, weights, strict=True):
            parameter.copy_(weight)
            for kind, value in self._optimizer.state[parameter].items():
                value.copy_(before[parameter][kind]) if parameter in before else value.zero_()


def _adam(optimizer: torch.optim.Optimizer, bad: Tensor | None, *, many: int = 4) -> None:
    """optimizer.step() of a fused Adam with one group, on `many` streams: each launch leaves most of the GPU idle.

    Where `bad` is 1, nothing changes.
    """
    (group,) = optimizer.param_groups
    parameters = group["params"]
    states = [optimizer.state[p] for p in parameters]
    names = ("exp_avg", "exp_avg_sq", "step")
    settings = {name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
    settings |= dict(zip(("beta1", "beta2"), group["betas"], strict=True))
    torch._foreach_add_([state["step"] for state in states], 1)
    here, streams = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in range(many)]
    for k, stream in enumerate(streams):
        mine = slice(k, None, many)
        first, second, steps = ([state[name] for state in states[mine]] for name in names)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            gradients = [p.grad for p in parameters[mine]]
            torch._fused_adam_(parameters[mine], gradients, first, second, [], steps, found_inf=bad, **settings)
    for stream in streams:
        here.wait_stream(stream)
    if bad is not None:
        torch._foreach_sub_([state["step"] for state in states], [bad] * len(states))
