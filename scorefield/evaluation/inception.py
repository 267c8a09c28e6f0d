"""The network by which FID is defined: Inception v3 as released on 2015-12-05, with its preprocessing.

Its weights are read from a file in $SCOREFIELD_DATA/inception/, in either of the two common forms: the TorchScript
archive inception-2015-12-05.pt, or the state dict pt_inception-2015-12-05-6726825d.pth. Both list the convolutions in
the network's own order. Batch normalisation, which is fixed, is folded into the convolutions.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from scorefield.data.download import NO_NETWORK, download
from scorefield.data.places import folder_of
from scorefield.files import new_file
from scorefield.progress import Track, silent

FEATURES = 2048
EPSILON = 1e-3
"""ε of the batch normalisation that is folded into the convolutions."""

PORT = "pt_inception-2015-12-05-6726825d.pth"
"""The name ends with the first digits of the SHA-256. The file has the class layer that the Inception score needs."""
ARCHIVE = "inception-2015-12-05.pt"
URL = f"https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/{PORT}"
GPU_BATCH = 256
"""Images per batch on a GPU. All batches have this size: for each new size, cuDNN searches for its fastest kernels,
which takes 6 to 13 seconds."""


class Branches(nn.Module):
    """Several modules with the same input; their outputs are concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Inception(nn.Module):
    """Images as bytes (B, H, W, C), C = 1 or 3 -> features (B, 2048), and by `classes`, (1008, 2048), logits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _conv(3, 32, 3, stride=2),
            _conv(32, 32, 3, valid=True),
            _conv(32, 64, 3),
            nn.MaxPool2d(3, 2),
            _conv(64, 80, 1),
            _conv(80, 192, 3, valid=True),
            nn.MaxPool2d(3, 2),
            _block_a(192, 32),
            _block_a(256, 64),
            _block_a(288, 64),
            _block_b(288),
            _block_c(768, 128),
            _block_c(768, 160),
            _block_c(768, 160),
            _block_c(768, 192),
            _block_d(768),
            _block_e(1280, _mean()),
            _block_e(2048, nn.MaxPool2d(3, 1, 1)),  # a maximum, not a mean, as in the released network
        )
        self.classes: Tensor | None
        self.register_buffer("classes", None)
        self.digest = "none"
        """The first 12 digits of the SHA-256 of the weights file."""

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        return in_full_batches(self._features, pixels, GPU_BATCH) if pixels.is_cuda else self._features(pixels)

    def _features(self, pixels: Tensor) -> Tensor:
        x = resize(pixels.permute(0, 3, 1, 2).float(), 299, 299)
        x = (x - 128) / 128
        x = x.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            return self.layers(x).mean(dim=(2, 3))

    def logits(self, features: Tensor) -> Tensor:
        """Logits (B, 1008) without the biases of the class layer, as is usual for the Inception score."""
        assert self.classes is not None
        return features @ self.classes.T


def in_full_batches(work: Callable[[Tensor], Tensor], x: Tensor, size: int) -> Tensor:
    """work(x), in batches of exactly `size` rows: the last one is filled up with zeros."""
    parts = []
    for part in x.split(size):
        missing = part.new_zeros(size - len(part), *part.shape[1:])
        parts.append(work(torch.cat([part, missing]) if len(missing) else part)[: len(part)])
    return torch.cat(parts)


def resize(x: Tensor, height: int, width: int) -> Tensor:
    """The bilinear interpolation of TensorFlow 1: pixel i of the result is at i · (old size / new size) of the input.

    It has no half-pixel centres and no smoothing, so the image moves by up to half a pixel. FID is defined with it:
    another resize gives other numbers.
    """
    for dim, size in ((3, width), (2, height)):
        old = x.shape[dim]
        place = torch.arange(size, device=x.device, dtype=torch.float32) * (old / size)
        low = place.long().clamp(max=old - 1)
        high = (low + 1).clamp(max=old - 1)
        share = (place - low).view([-1 if d == dim else 1 for d in range(4)])
        x = torch.lerp(x.index_select(dim, low), x.index_select(dim, high), share)
    return x


def _conv(
    channels_in: int, channels_out: int, kernel: int | tuple[int, int], *, stride: int = 1, valid: bool = False
) -> nn.Sequential:
    """A convolution and a ReLU, padded to keep the size unless it is strided or `valid`."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (0, 0) if valid or stride > 1 else (height // 2, width // 2)
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, (height, width), stride, padding), nn.ReLU(inplace=True))


def _mean() -> nn.Module:
    return nn.AvgPool2d(3, 1, 1, count_include_pad=False)


def _block_a(n: int, pooled: int) -> Branches:
    return Branches(
        _conv(n, 64, 1),
        nn.Sequential(_conv(n, 48, 1), _conv(48, 64, 5)),
        nn.Sequential(_conv(n, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3)),
        nn.Sequential(_mean(), _conv(n, pooled, 1)),
    )


def _block_b(n: int) -> Branches:
    return Branches(
        _conv(n, 384, 3, stride=2),
        nn.Sequential(_conv(n, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3, stride=2)),
        nn.MaxPool2d(3, 2),
    )


def _block_c(n: int, inner: int) -> Branches:
    wide, high = (1, 7), (7, 1)
    return Branches(
        _conv(n, 192, 1),
        nn.Sequential(_conv(n, inner, 1), _conv(inner, inner, wide), _conv(inner, 192, high)),
        nn.Sequential(
            _conv(n, inner, 1),
            _conv(inner, inner, high),
            _conv(inner, inner, wide),
            _conv(inner, inner, high),
            _conv(inner, 192, wide),
        ),
        nn.Sequential(_mean(), _conv(n, 192, 1)),
    )


def _block_d(n: int) -> Branches:
    return Branches(
        nn.Sequential(_conv(n, 192, 1), _conv(192, 320, 3, stride=2)),
        nn.Sequential(_conv(n, 192, 1), _conv(192, 192, (1, 7)), _conv(192, 192, (7, 1)), _conv(192, 192, 3, stride=2)),
        nn.MaxPool2d(3, 2),
    )


def _block_e(n: int, pool: nn.Module) -> Branches:
    def split() -> Branches:
        return Branches(_conv(384, 384, (1, 3)), _conv(384, 384, (3, 1)))

    return Branches(
        _conv(n, 320, 1),
        nn.Sequential(_conv(n, 384, 1), split()),
        nn.Sequential(_conv(n, 448, 1), _conv(448, 384, 3), split()),
        nn.Sequential(pool, _conv(n, 192, 1)),
    )


def load_inception(*, device: torch.device | str = "cpu", track: Track[object] = silent) -> Inception:
    """The network with its weights, which are downloaded first if they are not on this machine."""
    path = _find_weights(track)
    network = Inception()
    load_weights(network, _read_tensors(path), str(path))
    network.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    network.to(device).eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _find_weights(track: Track[object]) -> Path:
    folder = folder_of("inception")
    for name in (PORT, ARCHIVE):
        if (folder / name).is_file():
            return folder / name
    try:
        content = download(URL, track=track)
    except NO_NETWORK as error:
        raise FileNotFoundError(
            f"the FID network is not on this machine and cannot be downloaded: {error} (get {URL} on a machine with a "
            f"network connection, and put it into {folder}; {ARCHIVE} will do as well; SCOREFIELD_DATA "
            "names another folder)"
        ) from error
    wanted = PORT.removesuffix(".pth").rsplit("-", 1)[1]
    if not hashlib.sha256(content).hexdigest().startswith(wanted):
        raise ValueError(f"{URL} did not give the expected file (try again later)")
    with new_file(folder / PORT) as file:
        file.write(content)
    return folder / PORT


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of the file by name, in the order of the file. No code in it is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if path.suffix == ".pth":
                tensors = dict(torch.load(path, map_location="cpu", weights_only=True))
            else:
                tensors = dict(torch.jit.load(str(path), map_location="cpu").state_dict())
        if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in tensors.items()):
            raise ValueError("it holds more than tensors")
        return tensors
    except Exception as error:  # for a damaged file, PyTorch raises errors of any kind
        raise ValueError(f"{path} is damaged or not the FID network (delete it, and it is downloaded again)") from error


@torch.no_grad()
def load_weights(network: Inception, tensors: Mapping[str, Tensor], name: str) -> None:
    """Copy the weights of a file into the network, convolution by convolution, with the normalisation folded in."""
    convs = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    try:
        found = list(_convolutions(tensors))
    except KeyError:
        found = []
    shapes = [tuple(weight.shape) for weight, _ in found]
    if shapes != [tuple(conv.weight.shape) for conv in convs]:
        raise ValueError(f"{name} does not hold the FID network: its convolutions have other shapes")
    for conv, (weight, bias) in zip(convs, found, strict=True):
        assert conv.bias is not None
        conv.weight.copy_(weight)
        conv.bias.copy_(bias)
    for key in ("fc.weight", "output.weight", "net.output.weight"):
        if key in tensors:
            network.classes = tensors[key].float().reshape(-1, FEATURES)


def _convolutions(tensors: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Weight and bias of each convolution, with its normalisation, scale · (y − mean)/√(var + ε) + shift, folded in."""
    for key, weight in tensors.items():
        if not key.endswith(".weight") or weight.ndim != 4:
            continue
        base = key.removesuffix("conv.weight")
        if f"{base}bn.running_var" in tensors:
            names = ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
            scale, shift, mean, var = (tensors[base + name].double() for name in names)
        else:
            base = key.removesuffix("weight")
            shift, mean, var = (tensors[base + name].double() for name in ("beta", "mean", "var"))
            scale = torch.ones_like(var)
        factor = scale * (var + EPSILON).rsqrt()
        yield (weight.double() * factor[:, None, None, None]).float(), (shift - mean * factor).float()
