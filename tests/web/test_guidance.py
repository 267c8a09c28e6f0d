"""The API's class and guidance."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from guidable import NAMES, guidable, guidable_file

from scorefield.cli import main
from scorefield.images import to_bytes
from scorefield.models import pretrained
from scorefield.web import sampling
from scorefield.web.estimates import Work
from web.live_server import Live, inpaint, low_limits, opened, picture, tiny_model


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a model with classes, pets, and one without, tiny."""
    folder = tmp_path_factory.mktemp("models")
    guidable_file(folder / "pets.safetensors")
    tiny_model(folder / "tiny.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "FOLDERS", [folder])
        with Live(limits=low_limits()) as server:
            yield server


def test_the_classes_of_models_are_told(live: Live) -> None:
    found = {model["name"]: model["labels"] for model in live.client.get("/api/models").json()["models"]}
    assert found == {"pets": list(NAMES), "tiny": []}


@pytest.mark.parametrize(
    ("given", "label", "guidance", "words"),
    [
        ({}, None, 0.0, ""),
        ({"label": "dog", "guidance": 1.5}, "dog", 1.5, " --label dog --guidance 1.5"),
        ({"label": 1, "guidance": 2}, "dog", 2.0, " --label dog --guidance 2.0"),
        ({"label": "1"}, "dog", 0.0, " --label dog"),
        ({"label": "7"}, "7", 0.0, " --label 7"),
        ({"label": "none"}, "none", 0.0, " --label none"),
        ({"label": -1, "guidance": 0}, "none", 0.0, " --label none"),
        ({"guidance": -0.5}, None, -0.5, " --guidance -0.5"),
    ],
)
def test_samples_are_those_of_the_model_and_of_the_command(
    given: dict[str, Any], label: str | None, guidance: float, words: str, live: Live, tmp_path: Path
) -> None:
    job = live.post("sample", model="pets", n=2, seed=3, **given).json()["job"]
    status = live.end(job)
    assert (status["state"], status["error"]) == ("done", None)
    assert (status["settings"]["label"], status["settings"]["guidance"]) == (label, guidance)
    wanted = to_bytes(guidable().sample(2, seed=3, label=label, guidance=guidance))
    assert np.array_equal(live.array(job), wanted)
    command = shlex.split(status["command"])
    assert f"-n 2 --seed 3{words} --" in status["command"]
    main([*command[1:-1], str(tmp_path / "samples.npy"), "--device", "cpu"])
    assert np.array_equal(np.load(tmp_path / "samples.npy"), wanted)


def test_completions_have_them_too(live: Live) -> None:
    """In a form, where the number of a class is text."""
    image = picture((4, 4))
    fields = {"model": "pets", "mask": "left", "steps": None, "label": "0", "guidance": "1.5"}
    job = inpaint(live, {"image": image}, **fields).json()["job"]
    status = live.end(job)
    assert (status["state"], status["settings"]["label"]) == ("done", "cat")
    y, mask = torch.tensor(opened(image))[None] / 255, torch.tensor([0, 0, 1, 1]).expand(4, 4)
    wanted = guidable().inpaint(y, mask, n=2, label="cat", guidance=1.5)
    assert np.array_equal(live.array(job), to_bytes(wanted))


@pytest.mark.parametrize(
    ("model", "given", "status", "words"),
    [
        ("pets", {"label": "bird"}, 400, "no class is called 'bird' (choose from cat, dog, 7, or a number below 3)"),
        ("pets", {"label": 3}, 400, "no class is called 3"),
        ("pets", {"label": -2}, 400, "no class is called -2"),
        ("pets", {"label": 1.0}, 422, "label must be text or a whole number; got 1.0"),
        ("pets", {"label": True}, 422, "label must be text or a whole number; got true"),
        ("pets", {"label": ["cat"]}, 422, "label must be text or a whole number"),
        ("pets", {"label": 10**400}, 400, "label is too long"),
        ("pets", {"label": "9" * 5000}, 400, "label is too long"),
        ("pets", {"guidance": "much"}, 422, "guidance must be a number"),
        ("pets", {"guidance": True}, 422, "guidance must be a number"),
        ("pets", {"guidance": 10**400}, 400, "guidance must be finite"),
        ("pets", {"guidance": 1, "label": "none"}, 400, "guidance is towards a class; got 1.0 for no class"),
        ("tiny", {"guidance": 1}, 400, "guidance is towards a class, and this model has none"),
        ("tiny", {"label": "none"}, 400, "this model has no class labels"),
        ("tiny", {"label": 0}, 400, "this model has no class labels"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_settings(model: str, given: dict[str, Any], status: int, words: str, live: Live) -> None:
    for path in ("sample", "estimate"):
        answer = live.post(path, model=model, n=1, **given)
        assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


def test_a_class_that_is_half_of_a_character_is_refused_in_words(live: Live) -> None:
    answer = live.client.post("/api/sample", content=b'{"model": "pets", "label": "\\ud800"}')
    assert (answer.status_code, "no class is called" in answer.json()["error"]) == (400, True)


def test_a_network_that_needs_a_class_makes_the_job_fail_with_the_reason(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the network knows, and it is loaded when the job runs."""
    monkeypatch.setattr("scorefield.networks.UNet.null_label", False)
    for given in ({"label": "none"}, {"guidance": 1.0}):
        status = live.end(live.post("sample", model="pets", n=1, **given).json()["job"])
        assert status["state"] == "failed"
        assert "null_label = True" in status["error"]


def test_guidance_doubles_the_estimate(live: Live) -> None:
    """Three calls of two images at 0.5 s each. What a guided job measures is the speed without guidance."""
    card = live.server.models.cards()["pets"]
    speed = Work((card.name, card.shape, card.parameters), 2, 1)
    live.worker.speeds.record(speed, 0.5)
    answers = [live.post("estimate", model="pets", n=2, **given).json() for given in ({}, {"guidance": 1.0})]
    assert answers == [{"seconds": 1.5}, {"seconds": 3.0}]
    request = sampling.SampleRequest(card, 2, 0, card.sampler, "cat", 1.0)
    assert sampling.work_of(request).calls == 6
    assert sampling.image_job(live.server.models, request, low_limits()).work == speed._replace(calls=6)
