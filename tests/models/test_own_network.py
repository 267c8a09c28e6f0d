"""A network of your own: as the guide shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import scorefield
from scorefield.models.checkpoint import read

# ---------------------------------------------------------------- what a user writes


class Mine(nn.Module):
    """Any module with forward(x, sigma): images in [0, 1], and a noise level for all or for each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 3, 3, padding=1))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self.layers(x) / sigma.reshape(-1, 1, 1, 1)


def train_and_use(photos: str, run: str) -> tuple[scorefield.Model, Tensor, Tensor]:
    recipe = scorefield.Recipe(data=photos, image_size=8, levels=3, steps=30, batch_size=4, ema=0.9, sample_steps=2)
    scorefield.train(recipe, run, network=Mine())
    model = scorefield.load(run, network=Mine())
    samples = model.sample(4, seed=0)
    mask = torch.ones(8, 8)
    mask[:, 4:] = 0
    return model, samples, model.inpaint(samples[0], mask, n=3)


# ---------------------------------------------------------------- what it gives


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of 20 images, 16 of which are trained on."""
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for k in range(20):
        Image.fromarray(rng.integers(0, 256, (10, 9, 3), dtype=np.uint8)).save(tmp_path / "photos" / f"{k}.png")
    return tmp_path / "photos"


@pytest.fixture
def run(photos: Path, tmp_path: Path) -> Path:
    recipe = scorefield.Recipe(
        data=str(photos), image_size=8, levels=3, steps=4, batch_size=4, ema=0.9, previews=2, preview_steps=1
    )
    scorefield.train(recipe, tmp_path / "run", network=Mine())
    return tmp_path / "run"


def test_a_network_of_your_own_is_trained_saved_loaded_sampled_and_inpainted(photos: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model, samples, filled = train_and_use(str(photos), str(tmp_path / "run"))
    assert isinstance(model.network, Mine)
    assert (model.shape, model.step, model.recipe.network, model.held) == ((3, 8, 8), 30, "Mine", ("raw", "ema"))
    assert samples.shape == (4, 3, 8, 8)
    assert 0 <= samples.min() < samples.max() <= 1
    assert filled.shape == (3, 3, 8, 8)
    torch.testing.assert_close(filled[..., :4], samples[0, :, :, :4].expand(3, -1, -1, -1), atol=0.06, rtol=0)
    torch.manual_seed(1)
    before = Mine().state_dict()
    assert any(not torch.equal(value, before[name]) for name, value in model.network.state_dict().items())
    assert (tmp_path / "run" / "samples" / "00000030.png").is_file()
    assert model.sigmas == tuple(scorefield.geometric(1.0, 0.01, 3).tolist())


def test_the_averaged_weights_are_those_of_the_file(run: Path) -> None:
    tensors, _ = read(run / "checkpoints" / "model-00000004.safetensors")
    for kind in ("raw", "ema"):
        network = scorefield.load(run, network=Mine(), weights=kind).network
        for name, value in network.state_dict().items():
            assert torch.equal(value, tensors[f"{kind}/{name}"])


def test_without_the_network_the_file_cannot_be_used(run: Path) -> None:
    with pytest.raises(ValueError, match=r"no network called Mine \(.*pass your own as network=") as error:
        scorefield.load(run)
    assert "model-00000004.safetensors" in str(error.value)


def test_another_network_than_the_trained_one_is_noticed(run: Path) -> None:
    with pytest.raises(ValueError, match="weights of Mine, which do not fit this Linear"):
        scorefield.load(run, network=nn.Linear(2, 3))


def test_a_run_with_a_network_of_your_own_is_resumed_with_it(run: Path, photos: Path) -> None:
    recipe = scorefield.load(run, network=Mine()).recipe
    more = replace(recipe, steps=6)
    scorefield.train(more, run, network=Mine(), resume=True)
    assert scorefield.load(run, network=Mine()).step == 6
    with pytest.raises(ValueError, match="no network called Mine"):
        scorefield.train(more, run, resume=True)

    class Other(Mine):
        pass

    with pytest.raises(ValueError, match="was started with network Mine"):
        scorefield.train(more, run, network=Other(), resume=True)


def test_a_run_starts_from_the_weights_of_your_own_network(run: Path, tmp_path: Path) -> None:
    trained = scorefield.load(run, network=Mine())
    recipe = replace(trained.recipe, start=str(run), steps=1, learning_rate=1e-30)
    scorefield.train(recipe, tmp_path / "second", network=Mine())
    second = scorefield.load(tmp_path / "second", network=Mine(), weights="raw")
    for name, value in second.network.state_dict().items():
        assert torch.equal(value, trained.network.state_dict()[name])


class Modes(Mine):
    """Notes whether it was in training mode, as dropout and batch normalisation ask."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Dropout().eval()
        self.modes = list[tuple[bool, bool]]()

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        self.modes.append((torch.is_grad_enabled(), self.training))
        assert not self.frozen.training
        return super().forward(x, sigma)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_losses_on_held_out_images_and_previews_are_taken_in_evaluation_mode(
    ema: float, photos: Path, tmp_path: Path
) -> None:
    network = Modes()
    recipe = scorefield.Recipe(data=str(photos), image_size=8, levels=3, steps=4, batch_size=4, ema=ema)
    recipe = replace(recipe, previews=2, preview_steps=1, evaluate_every=2, checkpoint_every=2)
    scorefield.train(recipe, tmp_path / "run", network=network)
    assert set(network.modes) == {(True, True), (False, False)}
    assert network.modes[-1] == (False, False)
    assert network.training
    assert not network.frozen.training


class Counting(Mine):
    """With batch normalisation, whose counter is a whole number, and a length of 0."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def __len__(self) -> int:
        return 0

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return super().forward(self.norm(x), sigma)


def test_buffers_of_any_kind_are_saved_and_resumed(photos: Path, tmp_path: Path) -> None:
    recipe = scorefield.Recipe(data=str(photos), image_size=8, levels=3, steps=4, batch_size=4, ema=0.9, previews=0)
    torch.manual_seed(0)
    whole = scorefield.train(recipe, tmp_path / "whole", network=Counting())
    torch.manual_seed(0)
    scorefield.train(replace(recipe, steps=2), tmp_path / "parts", network=Counting())
    parts = scorefield.train(recipe, tmp_path / "parts", network=Counting(), resume=True)
    one, other = read(whole)[0], read(parts)[0]
    assert one["raw/norm.num_batches_tracked"] == one["ema/norm.num_batches_tracked"] == 4
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
    assert scorefield.load(whole, network=Counting()).sample(1).isfinite().all()


class WithLabels(Mine):
    """A network with classes says how many, and is called with label= as well."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.labels = labels
        self.greys = nn.Embedding(labels, 3)

    def forward(self, x: Tensor, sigma: Tensor, *, label: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, sigma) + self.greys(label)[:, :, None, None]


def test_a_network_with_classes_is_trained_with_the_labels_of_its_images(photos: Path, tmp_path: Path) -> None:
    for k, path in enumerate(sorted(photos.glob("*.png"))):
        place = photos / ("cats" if k % 2 else "dogs")
        place.mkdir(exist_ok=True)
        path.rename(place / path.name)
    recipe = scorefield.Recipe(data=str(photos), image_size=8, levels=3, steps=3, batch_size=4, sample_steps=2)
    recipe = replace(recipe, previews=2, preview_steps=1, micro_batch=3)
    network = WithLabels(2)
    before = network.greys.weight.detach().clone()
    scorefield.train(recipe, tmp_path / "run", network=network)
    assert (network.greys.weight != before).all()
    model = scorefield.load(tmp_path / "run", network=WithLabels(2))
    assert model.labels == ("cats", "dogs")
    assert not torch.equal(model.sample(2, label="cats"), model.sample(2, label="dogs"))
    with pytest.raises(ValueError, match=r"the network has 3 classes, and .* has 2"):
        scorefield.train(recipe, tmp_path / "other", network=WithLabels(3))
