"""The fast paths, and the one place that chooses between them.

On GPUs: fused Triton kernels in 16 bit, and CUDA graphs that launch them. On CPUs, for sampling: threads that share a
batch. Every fast path computes what the plain network computes, and has a test against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from scorefield.acceleration import kernels
from scorefield.acceleration.graphs import Recorded
from scorefield.acceleration.threads import in_threads, multiplications, on_one_thread, pytorch_threads
from scorefield.derivatives import QuadraticForm, either_mode
from scorefield.networks import RefineNet, ResNet, UNet
from scorefield.noise import geometric
from scorefield.samplers import State
from scorefield.score import ConditionalScore


def device_of(network: nn.Module) -> torch.device:
    """Where the network's parameters are; the CPU for a network that has none."""
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


def has_fused_kernels(network: nn.Module) -> bool:
    """Whether there are fused kernels for this network, in float32, and a GPU that can run them."""
    if not isinstance(network, RefineNet | UNet):
        return False
    parameter = next(network.parameters())
    return parameter.dtype == torch.float32 and kernels.usable(parameter)


def fused(network: nn.Module, *, dtype: torch.dtype = torch.float16) -> ConditionalScore:
    """The network's score by fused kernels, or the network itself where there are none."""
    if not has_fused_kernels(network):
        return network
    if isinstance(network, UNet):
        from scorefield.acceleration.unet import FusedUNet

        return FusedUNet(network, dtype=dtype)
    from scorefield.acceleration.refinenet import FusedRefineNet

    assert isinstance(network, RefineNet)
    return FusedRefineNet(network, dtype=dtype)


def quadratic_form_of(network: ResNet) -> QuadraticForm:
    """vᵀ∇s v for Fig. 1's network: by fused kernels where they can run, otherwise as for any network."""
    if not kernels.usable(next(network.parameters())):
        return either_mode
    from scorefield.acceleration.dual import Dual

    return Dual(network)


def for_sampling(network: nn.Module, shape: tuple[int, ...], *, size: int, precision: str = "auto") -> ConditionalScore:
    """The score to sample with, for batches of `size` images of that shape.

    On a CPU threads share the batch where that is worth it. On a GPU a network with fused kernels is recorded as a CUDA
    graph in float16 (`precision` "auto"), or in bfloat16 if it overflows; others, and "float32", are called as they
    are. Conditions are keyword tensors with one row per example, `score(x, sigma, label=y)`, and are split along with
    x.
    """
    if precision == "float32" or not has_fused_kernels(network):
        on_cpu = device_of(network).type == "cpu"
        return in_threads(network, work=multiplications(network, shape)) if on_cpu else network
    return Recorded(
        fused(network),
        shape,
        size=size,
        device=device_of(network),
        check=network.check_sigma,  # type: ignore[arg-type]
        probe=_sigmas_to_probe(network),
        fallback=lambda: fused(network, dtype=torch.bfloat16),
    )


def _sigmas_to_probe(network: nn.Module) -> Tensor:
    """The noise levels at which to see whether 16 bits are enough."""
    if isinstance(network, UNet):
        low, high = network.sigma_range
        return geometric(high, low, 5).to(network.end.weight.device)
    return network.accepted_sigmas  # type: ignore[return-value]


def with_gradients(network: nn.Module, precision: str = "auto") -> ConditionalScore:
    """The score of a network that is differentiated by x: by fused kernels where there are any, and not recorded."""
    return network if precision == "float32" else fused(network)


def run_sampler(run: Callable[[], Iterator[State]], score: ConditionalScore) -> Iterator[State]:
    """The states of a sampler, which run() starts, with a score from `for_sampling`.

    Each step is made on one CPU thread, except for the score's own. If a recorded score overflows at some step, the
    sampler starts again with the score's fallback; only states that were not reached before are yielded then.
    """
    with pytorch_threads(1):
        states = run()
    return on_one_thread(_with_fallback(run, states, score) if isinstance(score, Recorded) else states)


def _with_fallback(run: Callable[[], Iterator[State]], states: Iterator[State], score: Recorded) -> Iterator[State]:
    done = -1
    try:
        for state in states:
            done = state.step
            yield state
        return
    except FloatingPointError:
        if not score.fall_back():
            raise
    yield from (state for state in run() if state.step > done)


def sampling_precision(network: nn.Module, precision: str) -> str:
    """What `for_sampling` computes in: float16 (bfloat16 if that overflows) or float32."""
    return "float16" if precision != "float32" and has_fused_kernels(network) else "float32"
