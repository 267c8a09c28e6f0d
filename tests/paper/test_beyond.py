"""Networks for all noise levels on the results page: every number in its cell, and nothing that must not be shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scorefield.evaluation.likelihoods import Likelihoods, Measured, write_likelihoods
from scorefield.files import write_json
from scorefield.models.export import published
from scorefield.models.recipes import RECIPES
from scorefield.paper.beyond import load_beyond
from scorefield.paper.results import load, page


def about(name: str = "unet-cifar10", **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "data": RECIPES[name].data,
        "parameters": 29_700_000,
        "sigma_range": [0.001, 40.0],
        "classes": 10,
        "weights": "ema",
        "step": 30_000,
        "images": 7_680_000,
        "sampler": "heun",
        "calls": 35,
        "recipe": published(RECIPES[name]) | {"steps": 30_000},
        "seconds": 1200.0,
        "machine": "a machine",
        "held_out": None,
    } | changes


def evaluated(fid: float, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    found: dict[str, Any] = {"fid": fid, "kid": 0.00123, "precision": 0.61, "recall": 0.52, "n": 50_000, "calls": 35}
    found |= {"model": {"weights": "ema"}, "sampler": {"name": "heun"}, "label": None, "guidance": 0.0}
    return found | {"cost_per_call": 1} | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a model."""
    made = tmp_path / "results" / "unet-cifar10"
    made.mkdir(parents=True)
    write_json(made / "model.json", about())
    return made


def text_of(folder: Path) -> str:
    return page(load(folder.parent, folder.parents[1] / "results.md"))


def cells(text: str, first: str) -> list[str]:
    """The table row that begins with this cell."""
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in row.strip("| ").split(" | ")]


def test_every_evaluation_is_a_row(folder: Path) -> None:
    write_json(folder / "conditional.json", evaluated(3.21))
    write_json(folder / "unconditional.json", evaluated(4.32, label="none"))
    write_json(folder / "guidance_0.5.json", evaluated(5.43, guidance=0.5, cost_per_call=2))
    write_json(folder / "raw.json", evaluated(9.87, n=10_000, model={"weights": "raw"}))
    text = text_of(folder)
    metrics = ["0.00123", "0.610", "0.520"]
    assert cells(text, "a random class each") == [
        "a random class each", "3.21", *metrics, "50,000", "`heun`", "35"
    ]  # fmt: skip
    assert cells(text, "no class")[1] == "4.32"
    assert cells(text, "a random class each, guidance 0.5")[-1] == "70"
    assert cells(text, "a random class each, `raw` weights")[5] == "10,000"
    assert "29.70 M parameters, for all noise levels from 40 to 0.001, with 10 classes" in text
    assert "scorefield train unet-cifar10 --steps 30000 --out runs/unet-cifar10\n# 20 min 0 s on a machine" in text
    assert "NCSN, not measured yet" not in text.partition("## Beyond the paper")[2]


def test_only_rows_of_the_most_samples_stand_beside_published_numbers(folder: Path) -> None:
    write_json(folder / "conditional.json", evaluated(3.21, calls=14, sampler={"name": "adams_bashforth"}))
    write_json(folder / "raw.json", evaluated(2.0, n=10_000, model={"weights": "raw"}))
    text = text_of(folder)
    assert cells(text, "NCSN (the paper)")[1:4] == ["25.32", "1,000", "25.6 M"]
    ours = cells(text, "**`unet-cifar10`, a random class each**")
    assert ours[1:4] == ["3.21", "14", "7.7 M"]
    assert "**`unet-cifar10`, a random class each, `raw` weights**" not in text
    headline = load_beyond(folder).headline
    assert headline is not None
    assert headline.numbers["fid"] == 3.21


def test_fewer_samples_than_50000_are_said_beside_published_numbers(folder: Path) -> None:
    write_json(folder / "conditional.json", evaluated(3.21, n=10_000))
    assert cells(text_of(folder), "**`unet-cifar10`, a random class each**")[1] == "3.21 (n = 10,000)"


def test_digits_copies_likelihood_and_restorations(folder: Path) -> None:
    verdict: dict[str, Any] = {
        "accepted": 0.9712,
        "accepted_standard_error": 0.0017,
        "as_asked": 0.9876,
        "n": 10_000,
        "calls": 10,
    }
    verdict |= {"histogram": [90, 110] + [100] * 8, "real": {"accepted": 0.985, "n": 10_000}, "label": None}
    write_json(folder / "digits.json", verdict | {"model": {"weights": "ema"}, "sampler": {"name": "heun"}})
    copies = {"copies": [], "n": 1000, "held_out_copies": 2, "held_out_n": 900, "ratio": {"0.5": 1.23}, "alarm": False}
    write_json(folder / "neighbors_pixel.json", copies)
    row = {"task": "superres:4", "method": "mmps", "images": 500, "noise": 0.01, "psnr": 21.234, "residual": 1.04}
    write_json(folder / "restorations.json", {"rows": [row | {"fid": None, "calls": 35, "seconds": 99.6}]})
    measured = Measured("cifar10:test", 1000, 3.4567, 0.0123, 200.0, 200.0, 60.0, [3.4, 3.5])
    write_likelihoods(
        folder / "likelihood.json", Likelihoods({"sigma_range": [0.001, 40], "machine": "m"}, (measured,))
    )
    text = text_of(folder)
    assert cells(text, "a random class each") == [
        "a random class each", "97.12% ± 0.17%", "98.76%", "9.0%, 11.0%", "10,000", "10"
    ]  # fmt: skip
    assert cells(text, "in pixels") == ["in pixels", "0 of 1,000", "2 of 900", "1.230", "no"]
    assert cells(text, "superres:4")[1:] == ["mmps", "500", "0.01", "21.23", "1.04", "–", "35", "100"]
    assert cells(text, "cifar10:test")[:3] == ["cifar10:test", "1,000", "3.457 ± 0.012"]


def test_pictures_of_training_images_are_shown_only_where_they_may_be(folder: Path) -> None:
    for name in ("classes.png", "neighbors_pixel.png"):
        (folder / name).write_bytes(b"")
    assert set(load_beyond(folder).pictures) == {"classes.png", "neighbors_pixel.png"}
    write_json(folder / "model.json", about("unet-celeba"))
    assert set(load_beyond(folder).pictures) == {"classes.png"}
    assert "neighbors_pixel.png" not in text_of(folder)


def test_damaged_files_are_named(folder: Path) -> None:
    write_json(folder / "conditional.json", {"fid": 3.0, "model": {}})
    with pytest.raises(ValueError, match=r"unet-cifar10/conditional.json cannot be read"):
        load_beyond(folder)
    (folder / "conditional.json").write_text("{")
    with pytest.raises(ValueError, match=r"conditional.json cannot be read"):
        load_beyond(folder)
