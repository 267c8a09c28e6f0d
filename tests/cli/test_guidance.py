"""--label and --guidance from the command line, and in what it records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from guidable import SHAPE, guidable, guidable_file
from PIL import Image
from small_evaluation import dots, read_json
from small_evaluation import sampled as sampled
from small_evaluation import small as small

from cli.calls import failure
from scorefield.cli import main
from scorefield.images import grid, to_bytes

NOTE = "note: with guidance each network call is for twice as many images"
USED = ["--label", "dog", "--guidance", "1.5"]


def call(*words: object) -> None:
    main([str(word) for word in words])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return guidable_file(tmp_path_factory.mktemp("model") / "pets.safetensors")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    np.save(tmp_path / "dots.npy", dots(60, 0, SHAPE[1:]))
    return tmp_path / "dots.npy"


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (USED, {"label": 1, "guidance": 1.5}),
        (["--label", "1", "--guidance", "1.5"], {"label": 1, "guidance": 1.5}),
        (["--label", "7"], {"label": 2}),  # a name, of class 2
        (["--label", "none"], {"label": -1}),
        (["--label", "-1"], {"label": -1}),
        (["--guidance", "-0.5"], {"guidance": -0.5}),
        ([], {}),
    ],
)
def test_sample(
    words: list[str], settings: dict[str, Any], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("sample", model, "-n", 3, *words, "--out", tmp_path / "s.npy")
    assert np.array_equal(np.load(tmp_path / "s.npy"), to_bytes(guidable().sample(3, **settings)))
    assert (NOTE in capsys.readouterr().err) == ("guidance" in settings)


def test_inpaint(model: Path, tmp_path: Path) -> None:
    Image.fromarray(dots(1, 3, SHAPE[1:])[0]).save(tmp_path / "image.png")
    call("inpaint", model, "--image", tmp_path / "image.png", "-n", 3, *USED, "--out", tmp_path / "f.npy")
    mask = torch.tensor([0, 0, 1, 1]).expand(4, 4)
    image = torch.tensor(dots(1, 3, SHAPE[1:])) / 255
    wanted = [to_bytes(guidable().inpaint(image, mask, n=3, label=label, guidance=1.5)) for label in ("dog", "cat")]
    assert np.array_equal(np.load(tmp_path / "f.npy"), wanted[0])
    assert not np.array_equal(wanted[0], wanted[1])


@pytest.mark.parametrize("command", ["evaluate", "neighbors"])
def test_what_is_measured_is_recorded(
    command: str, model: Path, images: Path, tmp_path: Path, sampled: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the class and the guidance; calls are the sampler's, and the cost of each beside it."""
    found, out = [], ["--out", tmp_path / "n.png"] if command == "neighbors" else []
    for words in ([], USED, ["--label", "1", "--guidance", "1.5"], ["--label", "none"]):
        call(command, model, "--data", images, "-n", 5, *words, *out, "--json", tmp_path / "e.json")
        found.append(read_json(tmp_path / "e.json"))
        said = capsys.readouterr()
        assert (NOTE in said.err) == ("--guidance" in words)
        assert command != "evaluate" or ("n = 5, label dog, guidance 1.5" in said.out) == ("--guidance" in words)
    assert sampled == [5, 5, 5]  # the second and the third are the same samples
    keys = ("label", "guidance", "calls", "cost_per_call")
    assert [tuple(each[key] for key in keys) for each in found] == [
        (None, 0.0, 3, 1),
        ("dog", 1.5, 3, 2),
        ("dog", 1.5, 3, 2),
        ("none", 0.0, 3, 1),
    ]
    assert found[1] == found[2]
    value = "fid" if command == "evaluate" else "ratio"
    assert found[0][value] != found[1][value] != found[3][value] != found[0][value]


def test_frontier(model: Path, images: Path, tmp_path: Path, sampled: list[int]) -> None:
    """Trials of other guidance are not taken for these, and files of older versions are continued."""
    words = ("frontier", model, "--samplers", "heun", "--calls", 3, "-n", 5, "--data", images, "--out", tmp_path / "f")
    values = []
    for more, drawn in (([], [5]), ([], []), (USED, [5]), (USED, [])):
        sampled.clear()
        call(*words, *more)
        assert sampled == drawn
        found = read_json(tmp_path / "f" / "frontier.json")
        about = {"label": "dog", "guidance": 1.5, "cost_per_call": 2} if more else {}
        assert {key: found["about"].get(key) for key in about} == about
        assert more or "guidance" not in found["about"]
        assert [trial["calls"] for trial in found["trials"]] == [3]
        values.append(found["trials"][0]["value"])
    assert values[0] == values[1] != values[2] == values[3]


def test_report(model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", model, "--data", images, "-n", 4, "--parts", "samples", "--out", tmp_path / "r"]
    call(*words, *USED)
    found = read_json(tmp_path / "r" / "report.json")
    assert (found["label"], found["guidance"], found["calls"]) == ("dog", 1.5, 3)
    assert "--label dog --guidance 1.5" in found["command"]
    assert NOTE in capsys.readouterr().err
    wanted = grid(to_bytes(guidable().sample(4, label="dog", guidance=1.5)), columns=4)[..., 0]
    with Image.open(tmp_path / "r" / "samples.png") as picture:
        zoom = picture.width // wanted.shape[1]
        assert np.array_equal(np.asarray(picture)[::zoom, ::zoom], wanted)
    for other in (["--label", "dog"], ["--label", "cat", "--guidance", "1.5"], []):
        code, said = failure(capsys, *map(str, words), *other)
        changed = ["label"] * ("dog" not in other) + ["guidance"] * ("1.5" not in other)
        assert (code, f"report.json has another {', '.join(changed)} (" in said) == (2, True), said
    call(*words, "--label", 1, "--guidance", 1.5)  # the same class


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "MODEL", "--guidance", "nan"], "--guidance must be finite; got nan"),
        (["sample", "MODEL", "--label", "bird"], "no class is called 'bird' (choose from cat, dog, 7"),
        (["sample", "MODEL", "--label", "3"], "no class is called 3"),
        (["sample", "MODEL", "--label", "none", "--guidance", "1"], "guidance is towards a class"),
        (["evaluate", "MODEL", "--label", "bird", "--data", "IMAGES"], "no class is called 'bird'"),
        (["sample", "mnist-small", "--guidance", "1"], "guidance is towards a class, and this model has none"),
        (["sample", "mnist-small", "--label", "none"], "this model has no class labels"),
        (["evaluate", "IMAGES", "--data", "IMAGES", "--label", "cat"], "--label applies only to models"),
        (["evaluate", "IMAGES", "--data", "IMAGES", "--guidance", "1"], "--guidance applies only to models"),
        (["frontier", "toy", "--guidance", "1"], "--label and --guidance apply only to models"),
        (["frontier", "MODEL", "--guidance", "inf"], "--guidance must be finite"),
    ],
)
def test_wrong_calls(
    words: list[str], message: str, model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"MODEL": str(model), "IMAGES": str(images)}
    out = [] if words[0] == "evaluate" else ["--out", str(tmp_path / "x.npy")]
    code, said = failure(capsys, *(names.get(word, word) for word in words), *out)
    assert (code, message in " ".join(said.split())) == (2, True), said
    assert not (tmp_path / "x.npy").is_file()
