"""A U-Net for all noise levels in a range, with class labels: a network of Karras et al. (2022, 2024) as a score.

It goes down through stages of residual blocks, each at half the resolution of the one before, and up again; each block
on the way up also sees what its counterpart on the way down made. The noise level and the label scale the channels
inside of each block. All layers preserve magnitudes: if the entries of their inputs have mean square 1, so have those
of their outputs, roughly. So nothing needs to be normalised by statistics of the image, and 16 bits are enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scorefield.score import as_sigma, expand

SILU = 0.596
"""The root mean square of SiLU(z) for standard normal z."""
BRANCH = 0.3
"""The weight of a block's convolutions in its output; the weight of its input is the rest."""
TINY = 1e-8
HEAD = 64
"""The number of channels of an attention head."""
MOST_PLACES = 1024
"""The most places that attention takes in two products on a CPU."""
RandLike = Callable[[Tensor], Tensor]
"""x -> uniform random numbers in [0, 1) of x's shape."""


def unit(x: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """x divided by its root mean square over these dimensions."""
    square = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    return x * (square.square().mean(dim, keepdim=True) + TINY).rsqrt().to(x.dtype)


class Conv(nn.Module):
    """A convolution, or for kernel 0 a linear map, without bias, whose weights have length `gain` for each output.

    Only the direction of the weights is learned. They are kept with mean square 1 by `normalise_`, which the trainer
    calls after each update: otherwise they would grow, and learn ever more slowly.
    """

    def __init__(self, channels_in: int, channels_out: int, kernel: int, *, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels_out, channels_in, *[kernel] * (2 * bool(kernel))))
        self.kernel, self.gain = kernel, gain
        self._kept: tuple[object, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        weight = self.effective()
        return F.conv2d(x, weight, padding=self.kernel // 2) if self.kernel else F.linear(x, weight)

    def effective(self) -> Tensor:
        """The weights that are used. On a CPU, where no gradients are wanted, they are kept until the learned ones
        change. (On a GPU that cannot be told: a recorded update leaves no trace in their version. Nor can it be told of
        tensors that were made in inference mode, which have none.)"""
        if torch.compiler.is_compiling() or (torch.is_grad_enabled() and self.weight.requires_grad):
            return self._effective()
        if self.weight.device.type != "cpu" or self.weight.is_inference():
            return self._effective()
        key = self.weight.data_ptr(), self.weight._version, self.weight.dtype
        kept = self._kept
        if kept is None or kept[0] != key:
            # They may be used where gradients of x are wanted. (Without no_grad, which inference_mode(False) ends, they
            # would be recorded, and two threads that both make them can wait for each other for ever.)
            with torch.inference_mode(False), torch.no_grad():
                kept = self._kept = key, self._effective()
        return kept[1]

    def _effective(self) -> Tensor:
        inputs = math.prod(self.weight.shape[1:])
        return unit(self.weight, tuple(range(1, self.weight.ndim))) * (self.gain / math.sqrt(inputs))

    @torch.no_grad()
    def normalise_(self) -> None:
        self.weight.copy_(unit(self.weight, tuple(range(1, self.weight.ndim))))

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_kept": None}  # a copy makes its own


class Fourier(nn.Module):
    """√2 cos(2π(f t + φ)) with random frequencies f ~ N(0, 1) and phases φ, which are not learned: t as a vector."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.frequency: Tensor
        self.phase: Tensor
        self.register_buffer("frequency", torch.randn(channels))
        self.register_buffer("phase", torch.rand(channels))

    def forward(self, t: Tensor) -> Tensor:
        return math.sqrt(2) * (2 * math.pi * (t[:, None] * self.frequency + self.phase)).cos()


class Attention(nn.Module):
    """Each place looks at all places: (1 − t) x + t · projection of softmax(q kᵀ/√d) v, with q, k, v of unit size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads = max(1, channels // HEAD)
        self.qkv = Conv(channels, 3 * channels, 1)
        self.out = Conv(channels, channels, 1, gain=BRANCH / _norm(BRANCH))

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        qkv = self.qkv(x).permute(0, 2, 3, 1).flatten(1, 2)  # no copy where x is channels-last
        q, k, v = unit(qkv.unflatten(-1, (3, self.heads, -1)), -1).permute(2, 0, 3, 1, 4)
        y = _attend(q, k, v)
        y = y.transpose(1, 2).flatten(2).unflatten(1, (height, width)).permute(0, 3, 1, 2)
        return torch.add(self.out(y), x, alpha=(1 - BRANCH) / _norm(BRANCH))


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q kᵀ/√d) v. On a CPU in 16 bits PyTorch's own is three times slower than two products, which need the
    memory for all pairs of places."""
    if q.device.type != "cpu" or q.dtype not in (torch.bfloat16, torch.float16) or k.shape[-2] > MOST_PLACES:
        return F.scaled_dot_product_attention(q, k, v)
    return ((q / math.sqrt(q.shape[-1])) @ k.mT).softmax(-1) @ v


def _norm(t: float) -> float:
    """The root mean square of (1 − t) a + t b, for independent a and b of mean square 1."""
    return math.hypot(1 - t, t)


class Block(nn.Module):
    """A residual block,  x ← (1 − t) x + t · conv(SiLU(c · conv(SiLU(x)))),  and attention if wanted.

    c = 1 + g · W e scales the channels by the embedding e of noise level and label; g starts at 0. On the way down
    (`skip` = 0) x is first brought to unit size at each pixel. On the way up it is first joined with `skip` channels.
    """

    def __init__(
        self, channels_in: int, channels: int, embedding: int, *, skip: int = 0, attention: bool, dropout: float
    ) -> None:
        super().__init__()
        self.down, self.dropout = not skip, dropout
        total = channels_in + skip
        self.shares = [math.sqrt(total / (2 * n)) for n in (channels_in, skip)] if skip else []
        self.shortcut = Conv(total, channels, 1) if total != channels else None
        self.conv1 = Conv(channels if self.down else total, channels, 3, gain=1 / SILU)
        self.conv2 = Conv(channels, channels, 3, gain=BRANCH / _norm(BRANCH) / SILU)
        self.scale = Conv(embedding, channels, 0)
        self.gain = nn.Parameter(torch.zeros(()))
        self.attention = Attention(channels) if attention else None

    def forward(self, x: Tensor, e: Tensor, skip: Tensor | None, rand_like: RandLike | None) -> Tensor:
        if skip is not None:
            x = torch.cat([x * self.shares[0], skip * self.shares[1]], 1)
        if self.down:
            x = unit(x if self.shortcut is None else self.shortcut(x), 1)
        h = self.conv1(F.silu(x))
        h = F.silu(h * (1 + self.gain * self.scale(e)).to(h.dtype)[..., None, None])
        if rand_like is not None and self.dropout:
            h = torch.where(rand_like(h) < self.dropout, 0, h / (1 - self.dropout))
        if not self.down and self.shortcut is not None:
            x = self.shortcut(x)
        x = torch.add(self.conv2(h), x, alpha=(1 - BRANCH) / _norm(BRANCH))
        return x if self.attention is None else self.attention(x)


class UNet(nn.Module):
    """s(x, σ) for images (B, C, H, W) of any size with pixels in [0, 1], and any σ in `sigma_range`.

    A network F sees the image at unit size and predicts what is missing, at unit size as well (Karras et al. 2022):

        s(x, σ) = −(x − ½)/(σ² + σ_d²) + σ_d/(σ √(σ² + σ_d²)) · F((x − ½)/√(σ² + σ_d²), ln σ).

    This is (D − x)/σ² for their denoiser D. It is written without the difference, which would cancel at small σ.

    width, stages: the stages have width · stages[0], width · stages[1], ... channels; each has half the resolution of
    the one before. Images are padded inside to a size that can be halved so often.
    blocks: the number of residual blocks of each stage, on the way down and again on the way up.
    attention: the stages with attention in their blocks, counted from 0. If there are any, the middle block has it too.
    labels: the number of classes. `network(x, sigma, label=y)` takes a class for each image, (B,); −1 is no class, and
    so is a label that is not given.
    dropout: the probability that an entry inside of a block is left out in training.
    sigma_data: the root mean square of x − ½ over the data, about 0.25 for photographs.
    """

    null_label = True
    """A label of −1 is none."""

    def __init__(
        self,
        *,
        channels: int,
        width: int,
        stages: Sequence[int] = (1, 2, 2),
        blocks: Sequence[int] = (2, 2, 2),
        attention: Sequence[int] = (1,),
        labels: int = 0,
        dropout: float = 0.0,
        sigma_range: tuple[float, float] = (0.001, 50.0),
        sigma_data: float = 0.25,
    ) -> None:
        super().__init__()
        _check_sizes(channels, width, stages, blocks, attention, labels, dropout, sigma_range, sigma_data)
        widths = [width * factor for factor in stages]
        self.channels, self.labels, self.dropout, self.sigma_data = channels, labels, dropout, sigma_data
        self.stages, self.blocks, self.attention = tuple(stages), tuple(blocks), tuple(attention)
        self.width, self._sigma_range = width, (float(sigma_range[0]), float(sigma_range[1]))
        embedding = max(widths)
        self.fourier, self.embed = Fourier(width), Conv(width, embedding, 0)
        self.classes = Conv(labels + 1, embedding, 0) if labels else None
        self.uncertainty, self.u = Fourier(128), nn.Parameter(torch.zeros(128))
        self.begin = Conv(channels + 1, width, 3)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        here, made = width, list[int]()
        for stage, (n, number) in enumerate(zip(widths, blocks, strict=True)):
            for _ in range(number):
                self.down.append(Block(here, n, embedding, attention=stage in attention, dropout=dropout))
                made.append(n)
                here = n
        self.middle = Block(here, here, embedding, attention=bool(attention), dropout=dropout)
        for stage, (n, number) in reversed(list(enumerate(zip(widths, blocks, strict=True)))):
            for _ in range(number):
                attends = stage in attention
                self.up.append(Block(here, n, embedding, skip=made.pop(), attention=attends, dropout=dropout))
                here = n
        self.end, self.gain = Conv(here, channels, 3), nn.Parameter(torch.zeros(()))

    def forward(
        self,
        x: Tensor,
        sigma: Tensor,
        label: Tensor | None = None,
        *,
        rand_like: RandLike = torch.rand_like,
    ) -> Tensor:
        """`rand_like` makes the uniform random numbers of dropout, in training."""
        self.check(x)
        sigma = as_sigma(sigma, x)
        if not self.training:
            self.check_sigma(sigma, x)
        std = expand(sigma, x)
        total = std.square() + self.sigma_data**2
        centred = x - 0.5
        output = self.raw(centred * total.rsqrt(), sigma, label, rand_like)
        return output.to(x.dtype) * (self.sigma_data * total.rsqrt() / std) - centred / total

    def raw(self, x: Tensor, sigma: Tensor, label: Tensor | None, rand_like: RandLike = torch.rand_like) -> Tensor:
        """F of images at unit size."""
        e = F.silu(self.embedding(sigma, label, len(x))) / SILU
        random = rand_like if self.training else None
        height, width = x.shape[2:]
        h = torch.cat([x, torch.ones_like(x[:, :1])], 1)  # the channel of ones is the bias
        with torch.autocast(x.device.type, enabled=False):  # 16 bits would lose the noise of the lowest levels
            h = self.begin(self._padded(h))
        kept: list[Tensor] = []
        k = iter(self.down)
        for stage, number in enumerate(self.blocks):
            h = F.avg_pool2d(h, 2) if stage else h
            for _ in range(number):
                h = next(k)(h, e, None, random)
                kept.append(h)
        h = self.middle(h, e, None, random)
        k = iter(self.up)
        for stage, number in reversed(list(enumerate(self.blocks))):
            for _ in range(number):
                h = next(k)(h, e, kept.pop(), random)
            h = F.interpolate(h, scale_factor=2, mode="nearest") if stage else h
        return self.gain * self.end(h)[..., :height, :width]

    def embedding(self, sigma: Tensor, label: Tensor | None, n: int) -> Tensor:
        """The vector that tells the blocks noise level and label, (B, E), or (1, E) if it is the same for all."""
        noise = self.embed(self.fourier(sigma.log().reshape(-1) / 4))
        if self.classes is None:
            if label is not None:
                raise ValueError(f"this network has no classes; got label={label} (leave it out)")
            return noise
        if label is None:
            label = torch.full((1,), -1, device=noise.device)
        self.check_label(label, n)
        table = self.classes.effective().T * math.sqrt(self.labels + 1)
        of_label = F.embedding(torch.where(label < 0, self.labels, label), table)
        return (noise + of_label) / math.sqrt(2)

    def log_variance(self, sigma: Tensor) -> Tensor:
        """u(σ), (B,): what the network expects of the logarithm of its loss, for the learned weights of training."""
        features = self.uncertainty(sigma.log().reshape(-1) / 4)
        return features @ self.u / math.sqrt(len(self.u))

    def normalise_(self) -> None:
        """Bring all weights back to unit size; called after each update."""
        for module in self.modules():
            if isinstance(module, Conv):
                module.normalise_()

    def _padded(self, x: Tensor) -> Tensor:
        """x with its last row and column repeated, to a size that can be halved for each stage but the first."""
        multiple = 2 ** (len(self.stages) - 1)
        height, width = (-n % multiple for n in x.shape[2:])
        return F.pad(x, (0, width, 0, height), mode="replicate") if height or width else x

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The smallest and the largest noise level that the network accepts."""
        return self._sigma_range

    @property
    def options(self) -> str:
        """What must be the same for weights to mean the same, as options of the command line."""
        lists = {"stages": self.stages, "blocks": self.blocks, "attention": self.attention}
        words = [f"--{name} {' '.join(map(str, values))}" for name, values in lists.items()]
        low, high = self.sigma_range
        noise = f"--sigma-max {high:g} --sigma-min {low:g} --sigma-data {self.sigma_data:g}"
        return f"--width {self.width} {' '.join(words)} {noise}"

    def check(self, x: Tensor) -> None:
        """Raise an error if x is not a batch of images with this number of channels."""
        if x.ndim != 4 or x.shape[1] != self.channels or min(x.shape[2:]) < 2:
            raise ValueError(
                f"x must have shape (B, {self.channels}, H, W), at least 2 × 2 pixels; got {tuple(x.shape)}"
            )

    def check_sigma(self, sigma: Tensor, x: Tensor) -> None:
        """Raise an error if σ is outside of the network's range. Inside of a recording nothing can be looked at."""
        if _recording():
            return
        low, high = self.sigma_range
        outside = ~((sigma >= low * (1 - 1e-3)) & (sigma <= high * (1 + 1e-3)))
        if bool(outside.any()):
            odd = sigma.reshape(-1)[outside.reshape(-1)][0].item()
            raise ValueError(
                f"the network accepts noise levels from {low:g} to {high:g}; got sigma {odd:g} "
                f"(sigma.clamp({low:g}, {high:g}) takes the nearest)"
            )

    def check_label(self, label: Tensor, n: int) -> None:
        """Raise an error if these are not labels of n images."""
        if not isinstance(label, Tensor) or label.is_floating_point() or label.ndim != 1 or len(label) not in (1, n):
            raise ValueError(f"label must be a whole number for each image, shape ({n},); got {label}")
        if label.device.type != "cpu" or _recording():
            return
        if not -1 <= int(label.min()) <= int(label.max()) < self.labels:
            raise ValueError(
                f"label must be from 0 to {self.labels - 1}, or −1 for none; got {sorted(set(label.tolist()))[:8]}"
            )


def _recording() -> bool:
    """Whether PyTorch compiles this or records a CUDA graph of it, so that nothing can be looked at."""
    return torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def _check_sizes(
    channels: int,
    width: int,
    stages: Sequence[int],
    blocks: Sequence[int],
    attention: Sequence[int],
    labels: int,
    dropout: float,
    sigma_range: tuple[float, float],
    sigma_data: float,
) -> None:
    if any(isinstance(each, int) for each in (stages, blocks, attention)):
        raise ValueError("stages, blocks and attention are lists of numbers, such as (1, 2, 2)")
    if min(channels, width, len(stages), *stages) < 1 or labels < 0:
        raise ValueError(
            f"channels, width and stages must be at least 1, labels at least 0; got {channels}, {width}, "
            f"{list(stages)}, {labels}"
        )
    if len(blocks) != len(stages) or min(blocks) < 1:
        raise ValueError(
            f"blocks must be a number of blocks, at least 1, for each of the {len(stages)} stages; got {list(blocks)}"
        )
    if any(not 0 <= stage < len(stages) for stage in attention):
        raise ValueError(f"attention names stages from 0 to {len(stages) - 1}; got {list(attention)}")
    for stage in {*attention, *([len(stages) - 1] if attention else [])}:
        n = width * stages[stage]
        if n > HEAD and n % HEAD:
            raise ValueError(
                f"a stage with attention must have a multiple of {HEAD} channels, or fewer; stage {stage} has {n}"
            )
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be from 0 to just below 1; got {dropout}")
    low, high = sigma_range
    if not 0 < low < high < math.inf or not 0 < sigma_data < math.inf:
        raise ValueError(
            f"sigma_range must be two positive numbers, the smaller first, and sigma_data positive; got {sigma_range} "
            f"and {sigma_data}"
        )
