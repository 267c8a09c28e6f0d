"""The paper's network (appendix A): a RefineNet with dilated convolutions and conditional instance normalisation.

Four stages of residual blocks look at the image, the first at full and the others at half resolution, the last two with
dilation instead of further subsampling. Four refine blocks go back up, each joining a stage's features with those of
the block below. The noise level enters through the normalisation before every convolution and pool: each level has
scales and shifts of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scorefield.noise import as_schedule
from scorefield.score import as_sigma


class CondInstanceNorm(nn.Module):
    """CondInstanceNorm++:  zₖ = γ[i,k] (xₖ − μₖ)/sₖ + β[i,k] + α[i,k] (μₖ − m)/v,  i the level, k the channel.

    μₖ and sₖ are the mean and standard deviation of channel k over space; m and v those of the μₖ over the channels.
    The last term gives back what instance normalisation takes away, how the channels' means compare, without which
    colours shift. (The released code has γ in front of the last term as well; its α is our α/γ.)
    """

    def __init__(self, levels: int, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(1 + 0.02 * torch.randn(levels, channels))
        self.alpha = nn.Parameter(1 + 0.02 * torch.randn(levels, channels))
        self.beta = nn.Parameter(torch.zeros(levels, channels))

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        gamma, alpha, beta = (table[level][..., None, None] for table in (self.gamma, self.alpha, self.beta))
        x = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x  # statistics want precision
        mean = x.mean((2, 3), keepdim=True)  # in two passes: five times as fast on a CPU as torch.var_mean
        apart = x - mean
        variance = apart.square().mean((2, 3), keepdim=True)
        v, m = torch.var_mean(mean, dim=1, keepdim=True)
        shift = beta + alpha * (mean - m) * (v + 1e-5).rsqrt()
        return torch.addcmul(shift, apart, gamma * (variance + 1e-5).rsqrt())


def conv3x3(channels_in: int, channels_out: int, *, dilation: int = 1, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, 3, padding=dilation, dilation=dilation, bias=bias)


def mean5x5(x: Tensor) -> Tensor:
    """The mean of each pixel's 5 × 5 neighbours, zeros beyond the border.

    Not channels-last on a GPU: there PyTorch's gradient of it is wrong (seen in 2.11).
    """
    return F.avg_pool2d(x.contiguous() if x.is_cuda else x, 5, stride=1, padding=2)


class ResidualBlock(nn.Module):
    """x + conv(ELU(norm(conv(ELU(norm(x)))))), with a convolution in the shortcut where a stage begins.

    `begins`: with dilation 1 the block subsamples by two, otherwise it only changes the dilation.
    """

    def __init__(
        self, levels: int, channels_in: int, channels_out: int, *, dilation: int = 1, begins: bool = False
    ) -> None:
        super().__init__()
        self.subsample = begins and dilation == 1
        self.norm1 = CondInstanceNorm(levels, channels_in)
        self.conv1 = conv3x3(channels_in, channels_in, dilation=dilation)
        self.norm2 = CondInstanceNorm(levels, channels_in)
        self.conv2 = conv3x3(channels_in, channels_out, dilation=dilation)
        self.shortcut: nn.Module = nn.Identity()
        if self.subsample:
            self.shortcut = nn.Conv2d(channels_in, channels_out, 1)
        elif begins:
            self.shortcut = conv3x3(channels_in, channels_out, dilation=dilation)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        h = self.conv1(F.elu(self.norm1(x, level)))
        h = self.conv2(F.elu(self.norm2(h, level)))
        h = h + self.shortcut(x)
        return F.avg_pool2d(h, 2) if self.subsample else h


class ResidualConvUnits(nn.Module):
    """RCU: `units` times  x + two of (norm, ELU, convolution)."""

    def __init__(self, levels: int, channels: int, *, units: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(CondInstanceNorm(levels, channels) for _ in range(2 * units))
        self.convs = nn.ModuleList(conv3x3(channels, channels, bias=False) for _ in range(2 * units))

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        for k in range(0, len(self.convs), 2):
            h = self.convs[k](F.elu(self.norms[k](x, level)))
            x = x + self.convs[k + 1](F.elu(self.norms[k + 1](h, level)))
        return x


class ChainedResidualPooling(nn.Module):
    """CRP: a chain of (norm, 5×5 average pool, convolution), every link of which is added to ELU(x)."""

    def __init__(self, levels: int, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(CondInstanceNorm(levels, channels) for _ in range(2))
        self.convs = nn.ModuleList(conv3x3(channels, channels, bias=False) for _ in range(2))

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        x = link = F.elu(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            link = conv(mean5x5(norm(link, level)))
            x = x + link
        return x


class MultiScaleFusion(nn.Module):
    """MSF: the sum of both inputs after (norm, convolution, resize to the finer one's size)."""

    def __init__(self, levels: int, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(CondInstanceNorm(levels, channels_in) for _ in range(2))
        self.convs = nn.ModuleList(conv3x3(channels_in, channels_out) for _ in range(2))

    def forward(self, fine: Tensor, coarse: Tensor, level: Tensor) -> Tensor:
        fine = self.convs[0](self.norms[0](fine, level))
        coarse = self.convs[1](self.norms[1](coarse, level))
        if coarse.shape != fine.shape:
            coarse = F.interpolate(coarse, fine.shape[2:], mode="bilinear", align_corners=True)
        return fine + coarse


class RefineBlock(nn.Module):
    """RCUs on each input, their fusion where there are two, chained pooling, and RCUs on the result."""

    def __init__(self, levels: int, inputs: int, channels_in: int, channels_out: int, *, units: int = 1) -> None:
        super().__init__()
        self.adapt = nn.ModuleList(ResidualConvUnits(levels, channels_in, units=2) for _ in range(inputs))
        self.fuse = MultiScaleFusion(levels, channels_in, channels_out) if inputs == 2 else None
        self.pool = ChainedResidualPooling(levels, channels_out)
        self.output = ResidualConvUnits(levels, channels_out, units=units)

    def forward(self, xs: Sequence[Tensor], level: Tensor) -> Tensor:
        hs = [adapt(x, level) for adapt, x in zip(self.adapt, xs, strict=True)]
        h = hs[0] if self.fuse is None else self.fuse(*hs, level)
        return self.output(self.pool(h, level), level)


class RefineNet(nn.Module):
    """s(x, σ) for images x in [0, 1] of any size and number of channels, at the noise levels `sigmas`.

    `width` is the number of filters at full resolution (the paper: 128 for colour, 64 for MNIST); deeper stages have
    twice as many. One sigma makes the unconditional network of the baselines. Odd sizes are padded inside.
    """

    def __init__(self, *, channels: int, width: int, sigmas: Tensor | Sequence[float]) -> None:
        super().__init__()
        if channels < 1 or width < 2:
            raise ValueError(f"channels must be at least 1 and width at least 2; got {channels} and {width}")
        self.sigmas: Tensor
        self.register_buffer("sigmas", as_schedule(sigmas).detach().clone().float())
        n, w = len(self.sigmas), width
        self.channels = channels
        self.begin = conv3x3(channels, w)
        stages = [(w, w, 1), (w, 2 * w, 1), (2 * w, 2 * w, 2), (2 * w, 2 * w, 4)]
        self.blocks = nn.ModuleList()  # two for each stage
        for k, (channels_in, channels_out, dilation) in enumerate(stages):
            self.blocks.append(ResidualBlock(n, channels_in, channels_out, dilation=dilation, begins=k > 0))
            self.blocks.append(ResidualBlock(n, channels_out, channels_out, dilation=dilation))
        self.refine = nn.ModuleList(
            [
                RefineBlock(n, 1, 2 * w, 2 * w),
                RefineBlock(n, 2, 2 * w, 2 * w),
                RefineBlock(n, 2, 2 * w, w),
                RefineBlock(n, 2, w, w, units=3),
            ]
        )
        self.norm = CondInstanceNorm(n, w)
        self.end = conv3x3(w, channels)

    def forward(self, x: Tensor, sigma: Tensor, *, nearest: bool = False) -> Tensor:
        """s(x, σ). A σ that is none of `sigmas` is an error, or with `nearest` served by the level next to it."""
        self.check(x)
        level = self.level(sigma, x, nearest=nearest)
        height, width = x.shape[2:]
        h = F.pad(2 * x - 1, (0, width % 2, 0, height % 2), mode="replicate") if height % 2 or width % 2 else 2 * x - 1
        h = self.begin(h)
        features = []
        for k, block in enumerate(self.blocks):
            h = block(h, level)
            if k % 2:
                features.append(h)
        h = self.refine[0]([features[3]], level)
        for refine, feature in zip(list(self.refine)[1:], features[2::-1], strict=True):
            h = refine([feature, h], level)
        return self.end(F.elu(self.norm(h, level)))[..., :height, :width]

    def check(self, x: Tensor) -> None:
        """Raise an error if x is not a batch of images with this number of channels."""
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise ValueError(f"x must have shape (B, {self.channels}, H, W); got {tuple(x.shape)}")

    @property
    def accepted_sigmas(self) -> Tensor:
        """The noise levels that the network knows, (L,), largest first. It refuses others."""
        return self.sigmas

    @property
    def options(self) -> str:
        """What must be the same for weights to mean the same, as options of the command line."""
        first, last = self.sigmas[0].item(), self.sigmas[-1].item()
        levels = f"--levels {len(self.sigmas)} --sigma-max {first:g} --sigma-min {last:g}"
        return f"--width {self.begin.out_channels} {levels}"

    def check_sigma(self, sigma: Tensor, x: Tensor) -> None:
        """Raise an error if σ is none of the network's noise levels."""
        self.level(sigma, x)

    def level(self, sigma: Tensor, x: Tensor, *, nearest: bool = False) -> Tensor:
        """The index of σ in the network's noise levels, for each sample of x, (B,).

        The check that σ is one of them makes a GPU wait, and is left out where a graph is recorded.
        """
        sigma = as_sigma(sigma, x)
        error, level = (sigma.float().log()[..., None] - self.sigmas.log()).abs().min(-1)
        if not (nearest or _recording()) and not bool((error < 1e-3).all()):
            known = ", ".join(f"{s:g}" for s in self.sigmas.tolist())
            odd = sigma.flatten()[(~(error < 1e-3)).flatten()][0].item()
            raise ValueError(f"the network knows the noise levels {known}; got sigma {odd:g} (or pass nearest=True)")
        return level.expand(len(x))


def _recording() -> bool:
    """Whether PyTorch compiles this or records a CUDA graph of it, so that nothing can be looked at."""
    return torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
