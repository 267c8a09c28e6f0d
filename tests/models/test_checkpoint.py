from __future__ import annotations

import errno
import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

import scorefield
from scorefield.models import checkpoint
from scorefield.models.build import build_network, build_sampler
from scorefield.models.checkpoint import BrokenCheckpointError, newest_whole, read, write
from scorefield.models.model import load, recipe_from_json, save_model
from scorefield.models.recipes import Recipe
from scorefield.models.released import from_released
from scorefield.samplers import to_dict

RECIPE = Recipe(width=2, levels=3, sigma_max=0.5, ema=0.9)


def weights(seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    state = build_network(RECIPE, channels=1).state_dict()
    return {name: torch.randn_like(value) if name != "sigmas" else value for name, value in state.items()}


def model(path: Path, *, ema: bool = True, step: int = 12) -> Path:
    average = weights(2) if ema else None
    save_model(path, weights(1), average, recipe=RECIPE, shape=(1, 5, 6), step=step, metadata={"data": "dots"})
    return path


def test_a_model_file_carries_all_that_is_needed(tmp_path: Path) -> None:
    loaded = load(model(tmp_path / "m.safetensors"))
    assert loaded.recipe == RECIPE
    assert (loaded.shape, loaded.step, loaded.weights, loaded.held) == ((1, 5, 6), 12, "ema", ("raw", "ema"))
    assert loaded.metadata["data"] == "dots"
    assert loaded.sigmas == tuple(scorefield.geometric(0.5, 0.01, 3).tolist())
    assert loaded.sigma_range == (loaded.sigmas[2], 0.5)
    assert loaded.parameters == sum(value.numel() for name, value in weights(2).items() if name != "sigmas")
    assert loaded.sampler == build_sampler(RECIPE)
    assert loaded.labels == ()
    x = torch.rand(2, 1, 5, 6)
    network = build_network(RECIPE, channels=1)
    network.load_state_dict(weights(2))
    assert torch.equal(loaded.score(x, torch.tensor(0.5)), network(x, torch.tensor(0.5)).detach())


def test_either_kind_of_weights_can_be_loaded(tmp_path: Path) -> None:
    both, raw = model(tmp_path / "both.safetensors"), model(tmp_path / "raw.safetensors", ema=False)
    for kind, seed in (("raw", 1), ("ema", 2)):
        state = load(both, weights=kind).network.state_dict()  # type: ignore[arg-type]
        assert all(torch.equal(state[name], value) for name, value in weights(seed).items())
    assert load(raw).weights == "raw"
    with pytest.raises(ValueError, match="holds raw weights; got weights=ema"):
        load(raw, weights="ema")


def test_the_sampler_and_the_labels_are_in_the_metadata(tmp_path: Path) -> None:
    sampler = scorefield.AnnealedLangevin((0.5, 0.1), step_size=1e-3, steps=7, denoise=True)
    path = tmp_path / "m.safetensors"
    labels = ("zero", "one", "π")
    save_model(path, weights(1), None, recipe=RECIPE, shape=(1, 5, 6), step=3, labels=labels, sampler=sampler)
    metadata = read(path)[1]
    assert json.loads(metadata["sampler"]) == to_dict(sampler)
    assert json.loads(metadata["labels"]) == ["zero", "one", "π"]
    loaded = load(path)
    assert (loaded.sampler, loaded.labels) == (sampler, labels)
    assert not {"sampler", "labels", "recipe"} & loaded.metadata.keys()
    assert "labels" not in read(model(tmp_path / "none.safetensors"))[1]


def test_a_file_of_the_first_edition_gets_its_sampler_from_its_recipe(tmp_path: Path) -> None:
    path = model(tmp_path / "m.safetensors")
    tensors, metadata = read(path)
    older = {name: value for name, value in metadata.items() if name not in ("sampler", "labels", "format", "sha256")}
    recipe = json.loads(older["recipe"])
    del recipe["network"]
    write(path, tensors, {**older, "recipe": json.dumps(recipe), "sigmas": "[0.5, 0.07, 0.01]"})
    loaded = load(path)
    assert loaded.recipe == RECIPE
    assert loaded.sampler == build_sampler(RECIPE)
    assert loaded.labels == ()
    assert "sigmas" not in loaded.metadata


def test_a_default_sampler_that_is_not_registered_is_named(tmp_path: Path) -> None:
    path = model(tmp_path / "m.safetensors")
    tensors, metadata = read(path)
    del metadata["sha256"]
    write(path, tensors, {**metadata, "sampler": '{"name": "mine", "sigmas": [1.0]}'})
    with pytest.raises(ValueError, match="no sampler called mine"):
        load(path)


def test_it_is_a_safetensors_file_that_others_can_read(tmp_path: Path) -> None:
    from safetensors import safe_open

    with safe_open(model(tmp_path / "m.safetensors"), framework="pt") as file:
        assert file.metadata()["kind"] == "scorefield model"
        assert torch.equal(file.get_tensor("raw/end.weight"), weights(1)["end.weight"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True))
def test_any_changed_byte_is_noticed(place: float, tmp_path: Path) -> None:
    path = model(tmp_path / "m.safetensors")
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged|format"):
        read(path)


@pytest.mark.parametrize("size", [0, 7, 100, 3000])
def test_a_file_cut_short_is_noticed(size: int, tmp_path: Path) -> None:
    path = model(tmp_path / "m.safetensors")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BrokenCheckpointError, match="damaged"):
        load(path)


def test_a_file_of_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    path = model(tmp_path / "m.safetensors")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format 2, and this scorefield reads formats up to 1"):
        load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    save_file({"w": torch.ones(3)}, tmp_path / "foreign.safetensors")
    with pytest.raises(ValueError, match="scorefield did not write it"):
        load(tmp_path / "foreign.safetensors")
    torch.save([{}], tmp_path / "released.pth")
    with pytest.raises(ValueError, match="scorefield import"):
        load(tmp_path / "released.pth")
    write(tmp_path / "optimizer.safetensors", {"w": torch.ones(3)}, {})
    with pytest.raises(ValueError, match="is not a scorefield model"):
        load(tmp_path / "optimizer.safetensors")
    with pytest.raises(FileNotFoundError, match=r"no file .*missing"):
        load(tmp_path / "missing.safetensors")


def test_a_run_folder_gives_its_newest_whole_model(tmp_path: Path) -> None:
    for step in (5, 10):
        model(tmp_path / "checkpoints" / f"model-{step:08d}.safetensors", step=step)
    assert load(tmp_path).step == 10
    newest = tmp_path / "checkpoints" / "model-00000010.safetensors"
    newest.write_bytes(newest.read_bytes()[:-10])
    with pytest.warns(UserWarning, match=r"damaged.*using the checkpoint before it"):
        assert load(tmp_path).step == 5
    with pytest.raises(FileNotFoundError, match="no whole checkpoint"):
        load(tmp_path / "checkpoints")


def test_damaged_files_are_skipped_from_the_newest_on(tmp_path: Path) -> None:
    """Other errors are not: they would come again with the next file."""
    files = [model(tmp_path / f"model-{step}.safetensors", step=step) for step in (1, 2, 3)]
    for path in files[1:]:
        path.write_bytes(path.read_bytes()[:-10])
    skipped = list[str]()
    found = newest_whole(files, read, skip=skipped.append)
    assert found is not None
    assert (found[0], found[1][1]["step"]) == (files[0], "1")
    assert [str(path) in line for path, line in zip(reversed(files[1:]), skipped, strict=True)] == [True, True]
    files[0].write_bytes(b"")
    assert newest_whole(files, read, skip=skipped.append) is None
    assert newest_whole([], read) is None
    with pytest.raises(FileNotFoundError):
        newest_whole([tmp_path / "missing.safetensors"], read)


def test_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(tmp_path / "m.safetensors")
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device .*free some space"):
        model(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch owned",)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save([{"module.begin_conv.weight": _Evil()}], tmp_path / "evil.pth")
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(_Evil(), protocol=2))
    for name in ("evil.pth", "plain.pth"):
        with pytest.raises(ValueError, match="refused for safety"):
            from_released(tmp_path / name)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("content", [[], {}, [{"a": 1}], [{"weight": torch.ones(2)}], torch.ones(3)])
def test_other_checkpoints_are_no_released_ones(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=r"is not a|does not hold"):
        from_released(tmp_path / "other.pth")


def test_recipes_of_the_future_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown fields colour"):
        recipe_from_json('{"colour": 1}')
