"""The web page's API: the models there are, and their examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from web_live import RECIPE, Live, opened, tiny_server

from scorefield.models.checkpoint import load
from scorefield.paper.demo import DIGIT
from scorefield.web.models import DIGITS, EXAMPLES, FACES, PHOTOS, Card, Place

CARD = Card("m", Place("m", Path("m"), False), Path("m"), RECIPE, (3, 32, 32), [1.0], 1, 1, "dots")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with tiny_server(tmp_path_factory.mktemp("models")) as server:
        yield server


def test_models_are_described_without_being_loaded(live: Live) -> None:
    answer = live.client.get("/api/models").json()
    found = {model["name"]: model for model in answer["models"]}
    assert list(found) == ["coloured", "tiny"]  # what was given first
    model, tiny = load("tiny"), found["tiny"]
    assert tiny["shape"] == [1, 12, 10]
    assert tiny["sigmas"] == model.sigmas.tolist()
    assert tiny["parameters"] == sum(p.numel() for p in model.network.parameters())
    assert (tiny["steps"], tiny["step_size"], tiny["trained"]) == (3, 1e-5, 1234)
    assert (tiny["kind"], found["coloured"]["kind"]) == ("shipped", "file")
    assert tiny["data"] == "dots"  # and not where they lie on this machine
    assert "9" in tiny["examples"]
    assert found["coloured"]["examples"] == []
    assert {"n": 64, "completions": 16, "steps": 200, "queue": 8, "points": 2000}.items() <= answer["limits"].items()


def test_examples(live: Live) -> None:
    assert live.client.get("/api/examples/9.png").content == DIGIT.read_bytes()
    models = live.client.get("/api/models").json()["models"]
    (digits,) = [model["examples"] for model in models if model["name"] == "tiny"]
    assert len(digits) == 7
    for name in digits:
        assert opened(live.client.get(f"/api/examples/{name}.png").content).shape == (28, 28)
    assert live.client.get("/api/examples/nine.png").status_code == 404


def test_models_of_cifar10_have_a_picture_of_each_class_for_an_example(live: Live) -> None:
    card = replace(CARD, data="cifar10")
    assert len(card.examples) == 10
    for name in card.examples:
        assert opened(live.client.get(f"/api/examples/{name}.png").content).shape == (32, 32, 3)
    assert replace(card, data="faces").examples == []


def test_models_tell_what_they_began_with() -> None:
    assert CARD.described()["start"] is None
    begun = replace(CARD, recipe=replace(RECIPE, start="/home/somebody/first.safetensors"))
    assert begun.described()["start"] == "first.safetensors"


def test_models_of_celeba_have_faces_for_an_example(live: Live) -> None:
    card = replace(CARD, data="celeba32-train.npy")
    assert len(card.examples) == 10
    for name in card.examples:
        assert opened(live.client.get(f"/api/examples/{name}.png").content).shape == (32, 32, 3)
    assert len(EXAMPLES) == len(DIGITS) + len(PHOTOS) + len(FACES)  # which have one place for their names
