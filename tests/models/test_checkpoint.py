from __future__ import annotations

import errno
import json
import os
import pickle
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

import scorefield
from scorefield.models import checkpoint
from scorefield.models import model as models
from scorefield.models.build import build_network, build_sampler
from scorefield.models.checkpoint import BrokenCheckpointError, newest_whole, read, write
from scorefield.models.export import export
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
    save_model(
        path,
        weights(1),
        {"ema": average} if average else None,
        recipe=RECIPE,
        shape=(1, 5, 6),
        step=step,
        metadata={"data": "dots"},
    )
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
        state = load(both, weights=kind).network.state_dict()
        assert all(torch.equal(state[name], value) for name, value in weights(seed).items())
    assert load(raw).weights == "raw"
    with pytest.raises(ValueError, match=r"holds raw weights; got weights=ema \(choose raw, or leave it out\)"):
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of a model file."""
    return model(tmp_path_factory.mktemp("whole") / "m.safetensors").read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True))
def test_any_changed_byte_is_noticed(place: float, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    content = bytearray(whole)
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged|format"):
        read(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"F32"', b'"I32"'),
        (b'"shape":[2,3]', b'"shape":[3,2]'),
        (b'"w":', b'"v":'),
        (b'"note":"one"', b'"note":"two"'),
    ],
)
def test_the_checksum_is_of_names_types_shapes_and_metadata_too(before: bytes, after: bytes, tmp_path: Path) -> None:
    """Such files are good safetensors files."""
    path = tmp_path / "a.safetensors"
    write(path, {"w": torch.arange(6.0).reshape(2, 3)}, {"note": "one"})
    content = path.read_bytes()
    assert content.count(before) == 1
    path.write_bytes(content.replace(before, after))
    with pytest.raises(BrokenCheckpointError, match="its checksum does not match its content"):
        read(path)


@pytest.mark.parametrize("size", [0, 7, 100, 3000])
def test_a_file_cut_short_is_noticed(size: int, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(whole[:size])
    with pytest.raises(BrokenCheckpointError, match=r"m.safetensors is damaged .*\(use another copy of the file"):
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
    for use in (load, lambda path: export(path, tmp_path / "out.safetensors")):
        with pytest.raises(ValueError, match=r"optimizer.safetensors is not a scorefield model"):
            use(tmp_path / "optimizer.safetensors")
    assert not (tmp_path / "out.safetensors").exists()
    with pytest.raises(FileNotFoundError, match=r"no file .*missing"):
        load(tmp_path / "missing.safetensors")


def test_a_run_folder_gives_its_newest_whole_model(tmp_path: Path) -> None:
    for step in (5, 10):
        model(tmp_path / "checkpoints" / f"model-{step:08d}.safetensors", step=step)
    assert load(tmp_path).step == 10
    newest = tmp_path / "checkpoints" / "model-00000010.safetensors"
    content = newest.read_bytes()
    newest.write_bytes(content.replace(b'"sha256"', b'"sha257"'))
    with pytest.warns(UserWarning, match=r"scorefield did not write it.*using the checkpoint before it"):
        assert load(tmp_path).step == 5
    newest.write_bytes(content[:-10])
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


RELEASED = Path(__file__).parents[1] / "released" / "tiny_gray28.pth"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A released checkpoint in PyTorch's format of 2019, which has no checksums."""
    path = tmp_path_factory.mktemp("older") / "older.pth"
    torch.save(torch.load(RELEASED, weights_only=True), path, _use_new_zipfile_serialization=False)
    assert from_released(path).channels == 1
    return path.read_bytes()


@pytest.mark.parametrize("size", [0, 1, 3, 13, 17, 40, 1000, 20_000, -1000])
def test_a_released_checkpoint_cut_short(size: int, older: bytes, tmp_path: Path) -> None:
    """PyTorch has an error of its own for nearly every place, struct.error among them."""
    (tmp_path / "cut.pth").write_bytes(older[:size])
    with pytest.raises(ValueError, match=r"cut.pth is damaged, .*\(give a .pth file that the paper's code wrote"):
        from_released(tmp_path / "cut.pth")


def test_a_released_checkpoint_that_claims_to_be_large(tmp_path: Path) -> None:
    """A view of one number may have any shape, and so may the network that is made for it."""
    state = torch.load(RELEASED, weights_only=True)[0]
    one, wide = torch.zeros(1), 300
    shapes = {"begin_conv.weight": (wide, 1, 3, 3), "normalizer.embed.weight": (10, 3 * wide),
              "res1.0.conv1.weight": (wide, wide, 3, 3)}  # fmt: skip
    torch.save([state | {f"module.{name}": one.expand(shape) for name, shape in shapes.items()}], tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a.pth is damaged: its tensors are larger than the file"):
        from_released(tmp_path / "a.pth")
    for name, shape in [("begin_conv.weight", (500, 1, 3, 3)), ("begin_conv.weight", (8,)), ("begin_conv.weight", ()),
                        ("normalizer.embed.weight", (0, 24)), ("normalizer.embed.weight", (10,)),
                        ("res1.0.conv1.weight", (8, 8))]:  # fmt: skip
        torch.save([state | {f"module.{name}": torch.zeros(shape)}], tmp_path / "b.pth")
        with pytest.raises(ValueError, match=r"b.pth does not hold the paper's network: .*embed.weight has the shape"):
            from_released(tmp_path / "b.pth")
    for name, value in [("res1.0.conv2.weight", torch.zeros(3)), ("res1.0.normalize1.embed.weight", torch.zeros(5))]:
        torch.save([state | {f"module.{name}": value}], tmp_path / "c.pth")
        with pytest.raises(ValueError, match=r"c.pth does not hold the paper's network: .*\(give a .pth file"):
            from_released(tmp_path / "c.pth")


def with_metadata(path: Path, **changes: str | None) -> Path:
    """A model file with other metadata and the right checksum; None leaves an entry out."""
    tensors, metadata = read(model(path, ema=False))
    changed = {name: value for name, value in (metadata | changes).items() if value is not None and name != "sha256"}
    write(path, tensors, changed)
    return path


def test_no_network_is_built_that_cannot_be_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No size of its network may be beyond those of all its tensors: a damaged file may claim terabytes."""
    largest = max(n for value in weights(1).values() for n in value.shape)
    built = list[Recipe]()

    def build(recipe: Recipe, *, channels: int, labels: int) -> nn.Module:
        built.append(recipe)
        return build_network(RECIPE, channels=1)

    monkeypatch.setattr(models, "build_network", build)
    for name, changes in {
        "width": {"width": largest + 1},
        "levels": {"levels": largest + 1},
        "channels": {},
    }.items():
        shape = json.dumps([largest + 1 if name == "channels" else 1, 5, 6])
        recipe = json.dumps(asdict(RECIPE) | changes)
        path = with_metadata(tmp_path / "m.safetensors", recipe=recipe, shape=shape)
        claim = rf"m.safetensors is damaged: it claims {name} {largest + 1}, .* longer than {largest} "
        with pytest.raises(BrokenCheckpointError, match=claim):
            load(path)
    unet = {"network": "unet", "width": 1, "stages": [1] * 10, "blocks": [100] * 10}
    path = with_metadata(tmp_path / "m.safetensors", recipe=json.dumps(asdict(RECIPE) | unet))
    with pytest.raises(BrokenCheckpointError, match=rf"claims 1000 blocks, but holds {len(weights(1))} tensors"):
        load(path)
    assert built == []
    load(with_metadata(tmp_path / "m.safetensors", recipe=json.dumps(asdict(RECIPE) | {"width": largest})))
    assert [recipe.width for recipe in built] == [largest]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"step": None}, BrokenCheckpointError, "'step'"),
        ({"step": "x"}, ValueError, "'x'"),
        ({"shape": "3"}, BrokenCheckpointError, "not iterable"),
        ({"shape": "[1, 5]"}, BrokenCheckpointError, r"shape \[1, 5\]"),
        ({"shape": "[1, -5, 6]"}, BrokenCheckpointError, "-5"),
        ({"shape": "[1, 5.0, 6]"}, BrokenCheckpointError, "5.0"),
        ({"labels": "[1]"}, BrokenCheckpointError, "labels are not all text"),
        ({"shape": "[" * 5000}, ValueError, "nested too deeply"),
        ({"sampler": "[]"}, ValueError, "no sampler called None"),
        ({"recipe": "[]"}, ValueError, "a recipe is a JSON object"),
        ({"recipe": '{"width": "2"}'}, ValueError, "width must be of type int; got '2'"),
    ],
)
def test_metadata_that_make_no_sense(
    changes: dict[str, str | None], error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=rf"m.safetensors.*{words}"):
        load(with_metadata(tmp_path / "m.safetensors", **changes))


def test_a_model_file_without_weights(tmp_path: Path) -> None:
    tensors, metadata = read(model(tmp_path / "m.safetensors"))
    del metadata["sha256"]
    write(tmp_path / "m.safetensors", {"other": tensors["raw/sigmas"]}, metadata)
    for use in (load, lambda path: export(path, tmp_path / "out.safetensors")):
        with pytest.raises(BrokenCheckpointError, match=r"m.safetensors holds no weights"):
            use(tmp_path / "m.safetensors")


@pytest.mark.parametrize("number", ["", "one", "-1", "²"])
def test_a_format_that_is_no_number(number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FORMAT", number)
    write(tmp_path / "a.safetensors", {"w": torch.ones(3)}, {})
    monkeypatch.undo()
    with pytest.raises(BrokenCheckpointError, match=r"a.safetensors is damaged: its format is"):
        read(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": "3"}, "steps must be of type int; got '3'"),
        ({"steps": 3.0}, "steps must be of type int"),
        ({"steps": True}, "steps must be of type int"),
        ({"ema": None}, "ema must be of type float"),
        ({"ema": False}, "ema must be of type float"),
        ({"sigma_max": 10**400}, "sigma_max must be of type float"),
        ({"flip": 1}, "flip must be of type bool"),
        ({"data": None}, "data must be of type str"),
        ({"image_size": 2.5}, "image_size must be of type int | tuple[int, int] | None"),
        ({"objective": "sliced "}, "objective must be one of denoising, sliced; got 'sliced '"),
        ({"width": 0}, "width must be from 1 to 10,000; got 0"),
        ({"width": 10_001}, "width must be from 1 to 10,000"),
        ({"levels": 0}, "levels must be from 1 to 10,000"),
        ({"levels": 10_001}, "levels must be from 1 to 10,000"),
        ({"learning_rate": float("inf")}, "learning_rate must be positive; got inf"),
        ({"step_size": 0}, "step_size must be positive; got 0"),
    ],
)
def test_settings_of_other_types_or_sizes(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        recipe_from_json(json.dumps(settings))


def test_settings_that_are_just_possible() -> None:
    assert recipe_from_json('{"width": 10000, "levels": 10000, "clip": 1, "image_size": null}').width == 10_000
    assert Recipe(steps=np.int64(3), ema=np.float64(0.5), width=1, levels=1, sigma_max=0.01).steps == 3


def test_recipes_of_the_future_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown fields colour"):
        recipe_from_json('{"colour": 1}')
