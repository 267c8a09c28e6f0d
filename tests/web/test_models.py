"""The API about models: which there are, and their example images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from guidable import guidable_file
from safetensors import safe_open
from safetensors.numpy import save_file

from scorefield import samplers
from scorefield.models import pretrained
from scorefield.models.build import build_sampler
from scorefield.models.model import Header, load
from scorefield.web.models import DIGITS, EXAMPLES, FACES, PHOTOS, Card, Models, Place
from web.live_server import RECIPE, Live, opened, sample_states, serving, tiny_model, work_folder
from web.live_server import tiny_live as tiny_live


def card(data: str = "dots", start: str | None = None) -> Card:
    """The card of a colour model."""
    recipe = replace(RECIPE, start=start)
    header = Header(recipe, build_sampler(recipe), (3, 32, 32), (), 1, {"data": data})
    return Card("m", Place("m", Path("m"), False), Path("m"), header, 1)


def test_models_are_described_without_being_loaded(live: Live) -> None:
    answer = live.client.get("/api/models").json()
    found = {model["name"]: model for model in answer["models"]}
    assert list(found) == ["coloured", "tiny"]  # the given ones first
    model, tiny = load("tiny"), found["tiny"]
    assert tiny["shape"] == [1, 12, 10]
    assert tiny["sigmas"] == list(model.sigmas)
    assert tiny["sampler"] == samplers.to_dict(model.sampler)
    assert tiny["parameters"] == model.parameters
    assert (tiny["steps"], tiny["step_size"], tiny["trained"]) == (3, 1e-5, 1234)
    assert (tiny["kind"], found["coloured"]["kind"]) == ("pretrained", "file")
    assert tiny["data"] == "dots"  # without its place on this machine
    assert "9" in tiny["examples"]
    assert found["coloured"]["examples"] == []
    assert {"n": 64, "completions": 16, "steps": 200, "queue": 8, "points": 2000}.items() <= answer["limits"].items()


def test_examples(live: Live) -> None:
    assert live.client.get("/api/examples/9.png").content == EXAMPLES["9"].read_bytes()
    models = live.client.get("/api/models").json()["models"]
    (digits,) = [model["examples"] for model in models if model["name"] == "tiny"]
    assert len(digits) == 7
    for name in digits:
        assert opened(live.client.get(f"/api/examples/{name}.png").content).shape == (28, 28)
    assert live.client.get("/api/examples/nine.png").status_code == 404


def test_examples_for_cifar10_are_one_image_of_each_class(live: Live) -> None:
    examples = card(data="cifar10").examples
    assert len(examples) == 10
    for name in examples:
        assert opened(live.client.get(f"/api/examples/{name}.png").content).shape == (32, 32, 3)
    assert card(data="faces").examples == []


def test_descriptions_name_the_starting_weights() -> None:
    assert card().described()["start"] is None
    assert card(start="/home/somebody/first.safetensors").described()["start"] == "first.safetensors"


def test_examples_for_celeba_are_faces(live: Live) -> None:
    examples = card(data="celeba32-train.npy").examples
    assert len(examples) == 10
    for name in examples:
        assert opened(live.client.get(f"/api/examples/{name}.png").content).shape == (32, 32, 3)
    assert len(EXAMPLES) == len(DIGITS) + len(PHOTOS) + len(FACES)  # no two have the same name


def test_the_smallest_pretrained_model_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the fastest, so the right one to start with on a machine without a GPU."""
    tiny_model(tmp_path / "a.safetensors", shape=(3, 8, 8))
    tiny_model(tmp_path / "b.safetensors")
    monkeypatch.setattr(pretrained, "FOLDERS", [tmp_path])
    assert list(Models().cards()) == ["b", "a"]
    assert list(Models([str(tmp_path / "a.safetensors")]).cards()) == ["a", "b"]


def test_a_runs_model_is_served_and_names_are_made_unique(tmp_path: Path) -> None:
    with work_folder(tmp_path) as folder, serving(folder) as live:
        models = {model["name"]: model for model in live.client.get("/api/models").json()["models"]}
        assert list(models) == ["my run", "my run-2", "tiny"]
        assert models["my run"]["trained"] == 6
        assert models["my run-2"]["trained"] == 1234
        job = live.post("sample", model="my run", n=1).json()["job"]
        status = live.end(job)
        assert status["state"] == "done"
        assert f"scorefield sample '{folder}/runs/my run' -n 1" in status["command"]
        made = sample_states(folder / "runs" / "my run", 1, step_size=2e-5, steps=2)
        assert np.array_equal(live.array(job), made[-1])


def test_what_is_not_learned_is_no_parameter() -> None:
    for name in ("unet-mnist", "mnist-small"):
        file = Path(pretrained.__file__).parents[1] / "weights" / f"{name}.safetensors"
        assert Models([str(file)]).cards()[name].parameters == load(file).parameters


def test_a_run_whose_only_checkpoint_holds_no_weights_has_no_model(tmp_path: Path) -> None:
    checkpoint = tiny_model(tmp_path / "run" / "checkpoints" / "model-00000001.safetensors")
    models = Models([str(tmp_path / "run")], device="cpu")
    assert "run" in models.cards()
    with safe_open(checkpoint, framework="np") as file:
        metadata = file.metadata()
    save_file({}, checkpoint, metadata)
    assert "run" not in models.cards()


def test_a_model_is_loaded_again_when_its_file_changes(tmp_path: Path) -> None:
    file = tiny_model(tmp_path / "mine.safetensors")
    models = Models([str(file)], device="cpu")
    first = models.load(models.cards()["mine"])
    assert models.load(models.cards()["mine"]) is first
    tiny_model(file, shape=(3, 8, 8))
    assert models.load(models.cards()["mine"]).shape == (3, 8, 8)


def test_samplers_suit_the_noise_levels_of_a_model(live: Live, tmp_path: Path) -> None:
    """A list of levels suits those that make several updates at each; a range suits all. The model's own is first."""
    pets = guidable_file(tmp_path / "pets.safetensors")
    found = {each.name: each.described() for each in Models([str(pets)]).cards().values()}
    tiny, pets_card = found["tiny"], found["pets"]
    several = ["annealed_langevin", "predictor_corrector", "consistent_annealed", "annealed_hmc"]
    assert [each["name"] for each in tiny["samplers"]] == several
    assert tiny["samplers"][0]["calls"] == 3 * 2  # steps at each of two levels
    assert (tiny["quick"], tiny["range"], tiny["flow"]) == ({"sampler": "consistent_annealed", "calls": 30}, None, None)
    names = [each["name"] for each in pets_card["samplers"]]
    assert (names[0], sorted(names)) == ("heun", sorted(samplers.SAMPLERS))
    assert (pets_card["quick"], pets_card["range"]) == ({"sampler": "dpmpp_2m", "calls": 20}, [0.1, 2.0])
    assert pets_card["flow"] == {"sampler": "heun", "calls": 3, "solver_calls": 170}
    assert tiny["restoring"] is None  # its own
    restoring = pets_card["restoring"]
    assert (restoring["name"], restoring["calls"]) == ("heun", 35)
    assert (restoring["settings"]["churn"], restoring["settings"]["churn_max"]) == (8.0, 1.0)
    assert (tiny["labels"], tiny["null_label"], pets_card["null_label"]) == ((), False, True)
    for each in (*tiny["samplers"], *pets_card["samplers"]):
        assert each["about"].endswith(".")


def test_the_page_opens_with_a_model_for_all_noise_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it is not the smallest. A model that is named comes before it."""
    small, large = guidable_file(tmp_path / "mnist-small.safetensors"), tiny_model(tmp_path / "unet-mnist.safetensors")
    assert large.stat().st_size > small.stat().st_size
    tiny_model(tmp_path / "given" / "mine.safetensors")
    monkeypatch.setattr(pretrained, "FOLDERS", [tmp_path])
    assert list(Models().cards()) == ["unet-mnist", "mnist-small"]
    assert next(iter(Models([str(tmp_path / "given" / "mine.safetensors")]).cards())) == "mine"
