"""The FID network: its preprocessing, the two forms of its file, and the errors if it is missing or damaged."""

from __future__ import annotations

import hashlib
import urllib.request
from pathlib import Path

import inception_reference
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from scorefield.evaluation.inception import (
    ARCHIVE,
    PORT,
    Inception,
    in_full_batches,
    load_inception,
    load_weights,
    resize,
)


@pytest.mark.parametrize(
    ("row", "size", "expected"),
    [
        ([0, 8], 4, [0, 4, 8, 8]),  # places 0, ½, 1, 1½: the last has no right neighbour
        ([0, 4, 8, 12], 2, [0, 8]),  # every second pixel, no smoothing
        ([0, 3, 9], 4, [0, 2.25, 6, 9]),  # places 0, ¾, 1½, 2¼
        ([5], 3, [5, 5, 5]),
    ],
)
def test_the_resize_by_hand(row: list[float], size: int, expected: list[float]) -> None:
    x = torch.tensor(row, dtype=torch.float32)
    wide = resize(x.view(1, 1, 1, -1).expand(1, 3, 2, -1), 2, size)
    torch.testing.assert_close(wide, torch.tensor(expected).view(1, 1, 1, -1).expand(1, 3, 2, -1).float())
    high = resize(x.view(1, 1, -1, 1), size, 1)
    torch.testing.assert_close(high.flatten(), torch.tensor(expected).float())


def test_the_resize_in_both_directions_by_hand() -> None:
    square = torch.tensor([[0.0, 4.0], [8.0, 12.0]])[None, None]
    third = 1 / 3  # places 0, ⅔, 1⅓
    row, below = [0, 8 * third, 4], [8, 8 + 8 * third, 12]
    middle = [a + 2 * third * (b - a) for a, b in zip(row, below, strict=True)]
    torch.testing.assert_close(resize(square, 3, 3)[0, 0], torch.tensor([row, middle, below]))


@pytest.fixture(scope="module")
def tensors() -> inception_reference.Tensors:
    """Weights with the names and the order of the published file."""
    return inception_reference.weights()


@pytest.fixture(scope="module")
def network(tensors: inception_reference.Tensors) -> Inception:
    made = Inception()
    load_weights(made, tensors, "port")
    return made.eval().requires_grad_(False)


# ---------------------------------------------------------------- against an independent program


def test_every_layer_and_block_is_that_of_an_independent_program(network: Inception) -> None:
    """tests/inception_reference.py computed the numbers in float64 from the published architecture."""
    golden = np.load(inception_reference.GOLDEN)
    x, found = inception_reference.image(), []
    for layer in network.layers:
        x = layer(x)
        found.append(inception_reference.summary(x))
    np.testing.assert_allclose(np.stack(found), golden["stages"], rtol=1e-5)
    features = x.mean((2, 3))[0, :: inception_reference.SHOWN]
    np.testing.assert_allclose(features.numpy(), golden["features"], rtol=1e-4, atol=1e-4)


def test_features_of_bytes_are_those_of_an_independent_program(network: Inception) -> None:
    """With the resize and the centring."""
    features = network(torch.tensor(inception_reference.pixels()))
    assert features.shape == (1, 2048)
    golden = np.load(inception_reference.GOLDEN)["features_of_pixels"]
    np.testing.assert_allclose(features[0, :: inception_reference.SHOWN].numpy(), golden, rtol=1e-4, atol=1e-4)


def test_the_golden_numbers_are_of_the_weights_that_are_made_here(tensors: inception_reference.Tensors) -> None:
    """The independent program run again, as far as its first layers."""
    x = inception_reference.image().double()
    weight, var = tensors["Conv2d_1a_3x3.conv.weight"].double(), tensors["Conv2d_1a_3x3.bn.running_var"].double()
    names = ("running_mean", "weight", "bias")
    mean, scale, shift = (tensors[f"Conv2d_1a_3x3.bn.{name}"].double()[:, None, None] for name in names)
    y = (F.conv2d(x, weight, stride=2) - mean) / (var[:, None, None] + 0.001).sqrt() * scale + shift
    golden = np.load(inception_reference.GOLDEN)["stages"]
    np.testing.assert_allclose(inception_reference.summary(y.relu()), golden[0], rtol=1e-6)


# ---------------------------------------------------------------- its file


def test_both_forms_of_the_weights_make_one_network(
    tensors: inception_reference.Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive has no scales: they are 1."""
    port = {name: torch.ones_like(each) if name.endswith("bn.weight") else each for name, each in tensors.items()}
    port |= {"fc.weight": torch.randn(1008, 2048), "fc.bias": torch.randn(1008)}
    kinds = {"conv.weight": "weight", "bn.bias": "beta", "bn.running_mean": "mean", "bn.running_var": "var"}
    archive = {
        f"net.layers.{base}.{kind}": tensors[f"{base}.{name}"]
        for base in inception_reference.layers()
        for name, kind in kinds.items()
    }
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path))
    (tmp_path / "inception").mkdir()
    torch.save(port, tmp_path / "inception" / PORT)
    one, other = load_inception(), Inception()
    load_weights(other, archive, "archive")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert (one.classes is None, other.classes) == (False, None)
    assert torch.equal(one.logits(torch.eye(2048)), port["fc.weight"].T)
    assert one.digest == hashlib.sha256((tmp_path / "inception" / PORT).read_bytes()).hexdigest()[:12]


class _Layers(nn.Module):
    """Tensors by name, in submodules by the dots of the names, so that TorchScript can save them."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        inner = dict[str, dict[str, torch.Tensor]]()
        for name, tensor in tensors.items():
            first, _, rest = name.partition(".")
            if rest:
                inner.setdefault(first, {})[rest] = tensor
            else:
                self.register_buffer(first, tensor)
        for first, some in inner.items():
            self.add_module(first, _Layers(some))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_the_archive_with_its_class_layer(
    tensors: inception_reference.Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file as the archive is, TorchScript, whose class layer is output.weight; copies without it lack the layer."""
    kinds = {"conv.weight": "weight", "bn.bias": "beta", "bn.running_mean": "mean", "bn.running_var": "var"}
    layers = {
        f"layers.{base.replace('.', '_')}.{kind}": tensors[f"{base}.{name}"]
        for base in inception_reference.layers()
        for name, kind in kinds.items()
    }
    classes = {"output.weight": torch.randn(1008, 2048), "output.bias": torch.randn(1008)}
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path))
    (tmp_path / "inception").mkdir()
    for more in ({}, classes):
        torch.jit.script(_Layers(layers | more)).save(str(tmp_path / "inception" / ARCHIVE))
        network = load_inception()
        assert (network.classes is None) == (not more)
    assert torch.equal(network.logits(torch.eye(2048)), classes["output.weight"].T)


def test_the_number_of_weights() -> None:
    """21,785,568 as published, minus the 17,216 scales that are folded away."""
    assert sum(p.numel() for p in Inception().parameters()) == 21_785_568 - 17_216


@pytest.mark.parametrize("n", [1, 3, 4, 9])
def test_batches_of_one_size(n: int) -> None:
    """The work always sees four rows; the rows of zeros that fill them up are dropped."""
    seen: list[int] = []

    def work(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return x.flatten(1).sum(1, keepdim=True) + 1

    x = torch.arange(n * 6, dtype=torch.uint8).reshape(n, 2, 3)
    assert torch.equal(in_full_batches(work, x, 4), x.flatten(1).sum(1, keepdim=True) + 1)
    assert seen == [4] * -(-n // 4)


def test_grey_images_are_three_equal_channels() -> None:
    network = Inception()
    network.layers = nn.Sequential(nn.Flatten(2), nn.Unflatten(2, (1, -1)))
    network.layers.append(nn.Conv2d(3, 8, 1).requires_grad_(False))
    grey = torch.randint(0, 256, (1, 28, 28, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(network(grey), network(grey.expand(1, 28, 28, 3)))


def test_without_weights_and_network_the_error_names_the_file_and_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(url: str, timeout: float) -> None:
        raise OSError("no route to host")

    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", offline)
    with pytest.raises(FileNotFoundError, match=r"no route to host.*https://.*6726825d\.pth") as error:
        load_inception()
    assert str(tmp_path / "inception") in str(error.value)


def test_damaged_and_wrong_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path))
    (tmp_path / "inception").mkdir()
    (tmp_path / "inception" / ARCHIVE).write_bytes(b"half a file")
    with pytest.raises(ValueError, match="damaged or not the FID network"):
        load_inception()
    torch.save({"a.conv.weight": torch.zeros(1, 1, 1, 1)}, tmp_path / "inception" / PORT)
    with pytest.raises(ValueError, match="does not hold the FID network"):
        load_inception()


def test_pixels_are_centred_at_128() -> None:
    network = Inception()
    network.layers = nn.Sequential(nn.Identity())
    pixels = torch.tensor([[0, 128], [255, 64]], dtype=torch.uint8)[:, :, None, None].expand(2, 2, 7, 3)[:1]
    corner = resize((pixels.permute(0, 3, 1, 2).float() - 128) / 128, 299, 299)
    torch.testing.assert_close(network(pixels), corner.mean((2, 3)))


def test_logits_are_those_of_the_class_layer_without_biases() -> None:
    network, features = Inception(), torch.rand(3, 2048)
    network.classes = torch.randn(1008, 2048)
    torch.testing.assert_close(network.logits(features), F.linear(features, network.classes))
