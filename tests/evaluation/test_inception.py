"""The FID network: its preprocessing, the two forms of its file, and the errors if it is missing or damaged."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scorefield.evaluation.inception import (
    ARCHIVE,
    EPSILON,
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


def weights() -> list[tuple[str, list[Tensor]]]:
    """Random weight, shift, mean and variance for every convolution."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for k, conv in enumerate(m for m in Inception().modules() if isinstance(m, nn.Conv2d)):
        shape, n = conv.weight.shape, len(conv.weight)
        weight = torch.randn(shape, generator=generator) * (2 / shape[1:].numel()) ** 0.5
        shift, mean = (0.1 * torch.randn(2, n, generator=generator)).unbind()
        made.append((f"layer_{k}", [weight, shift, mean, 0.5 + torch.rand(n, generator=generator)]))
    return made


def as_archive() -> dict[str, Tensor]:
    kinds = ("weight", "beta", "mean", "var")
    return {f"net.layers.{name}.{k}": t for name, ts in weights() for k, t in zip(kinds, ts, strict=True)}


def as_port(scale: float = 1.0) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, (weight, shift, mean, var) in weights():
        tensors[f"{name}.conv.weight"] = weight
        tensors[f"{name}.bn.weight"] = torch.full_like(shift, scale)
        tensors[f"{name}.bn.bias"], tensors[f"{name}.bn.running_mean"] = shift, mean
        tensors[f"{name}.bn.running_var"] = var
        tensors[f"{name}.bn.num_batches_tracked"] = torch.tensor(0)
    tensors["fc.weight"], tensors["fc.bias"] = torch.randn(1008, 2048), torch.randn(1008)
    return tensors


def test_both_forms_of_the_weights_make_one_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path))
    (tmp_path / "inception").mkdir()
    torch.save(as_port(), tmp_path / "inception" / PORT)
    port = load_inception()
    archive = Inception()
    load_weights(archive, as_archive(), "archive")
    pixels = torch.randint(0, 256, (1, 20, 24, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    features = port(pixels)
    assert features.shape == (1, 2048)
    torch.testing.assert_close(features, archive(pixels), rtol=1e-4, atol=1e-5)
    assert (port.classes is None, archive.classes) == (False, None)
    assert port.logits(features).shape == (1, 1008)
    assert len(port.digest) == 12


def test_normalisation_is_folded_into_the_convolution() -> None:
    network, tensors = Inception(), as_port(scale=1.7)
    load_weights(network, tensors, "port")
    weight, shift, mean, var = weights()[0][1]
    x = torch.rand(2, 3, 9, 9)
    expected = F.batch_norm(F.conv2d(x, weight, stride=2), mean, var, torch.full_like(shift, 1.7), shift, eps=EPSILON)
    first = network.layers[0]
    torch.testing.assert_close(first(x), expected.relu(), rtol=1e-4, atol=1e-5)


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
    load_weights(network, as_archive(), "archive")
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


def test_means_leave_out_the_padding_and_the_last_pooling_is_a_maximum() -> None:
    pools = [m for m in Inception().modules() if isinstance(m, (nn.AvgPool2d, nn.MaxPool2d))]
    assert isinstance(pools[-1], nn.MaxPool2d)
    means = [pool for pool in pools if isinstance(pool, nn.AvgPool2d)]
    assert len(means) == 8
    for mean in means:
        torch.testing.assert_close(mean(torch.ones(1, 1, 4, 4)), torch.ones(1, 1, 4, 4))


def test_logits_are_those_of_the_class_layer_without_biases() -> None:
    network, features = Inception(), torch.rand(3, 2048)
    network.classes = torch.randn(1008, 2048)
    torch.testing.assert_close(network.logits(features), F.linear(features, network.classes))
