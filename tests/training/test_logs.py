"""Logs and batches: CSV files, TensorBoard and Weights & Biases seen from our side, and batches made in advance."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from scorefield.training.logs import csv_log, tensorboard_log, wandb_log
from scorefield.training.run import prefetch
from scorefield.training.trainer import Batch


def test_tensorboard_hides_what_a_resumed_run_writes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int | None) -> None:
            told.append((Path(folder), purge_step))

        def add_scalar(self, name: str, number: float, step: int) -> None:
            told.append((name, number, step))

        def flush(self) -> None:
            told.append("flush")

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    tensorboard_log(tmp_path, until=0)(1, {"loss": 2.0})
    tensorboard_log(tmp_path, until=40)
    assert told == [(tmp_path, None), ("loss", 2.0, 1), "flush", (tmp_path, 41)]


def test_weights_and_biases_goes_on_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[Any, Any]] = []

    def init(**settings: object) -> SimpleNamespace:
        told.append(settings)
        return SimpleNamespace(id=settings["id"] or f"new{len(told)}", log=lambda n, step: told.append({step: n}))

    module = ModuleType("wandb")
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    wandb_log(tmp_path, {"width": 8}, until=0)(3, {"loss": 2.0})
    wandb_log(tmp_path, {"width": 8}, until=40)
    wandb_log(tmp_path, {"width": 8}, until=0)
    assert [call["id"] for call in told if "id" in call] == [None, "new1", None]
    assert told[0]["config"] == {"width": 8}
    assert told[1] == {3: {"loss": 2.0}}
    assert (tmp_path / "wandb-id").read_text() == "new4\n"


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=rf"--{name} needs a package.*pip install {name}"):
        tensorboard_log(tmp_path, until=0) if name == "tensorboard" else wandb_log(tmp_path, {}, until=0)


def test_a_resumed_log_keeps_the_rows_up_to_its_step(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log = csv_log(path, ["loss", "loss@1"], until=0)
    for step in (1, 2, 3):
        log(step, {"loss": step / 3, "other": 9.0})
    path.write_text(path.read_text() + "4,1")  # a line that was cut short
    csv_log(path, ["loss", "loss@1"], until=2)(3, {"loss@1": 5.0})
    assert path.read_text().splitlines() == ["step,loss,loss@1", "1,0.333333,", "2,0.666667,", "3,,5"]
    path.write_text(path.read_text() + "4,1,2")  # and one that may be: its last number was 2.5
    csv_log(path, ["loss", "loss@1"], until=4)
    assert path.read_text().splitlines()[3:] == ["3,,5"]


@pytest.mark.parametrize("with_labels", [False, True])
def test_batches_are_made_in_advance_in_any_order_and_an_error_arrives(with_labels: bool) -> None:
    made, coming = [], threading.Event()

    def draw(step: int) -> Batch:
        made.append(step)
        if step == 8:
            coming.set()
        if step == 10:
            raise OSError("the disk is gone")
        return Batch(torch.full((2,), step), torch.full((2,), -step) if with_labels else None)

    batch = prefetch(draw, torch.device("cpu"))
    assert batch(7).pixels.tolist() == [7, 7]
    assert coming.wait(10)  # without being asked for
    for step in (8, 3, 9):
        pixels, labels = batch(step)
        assert pixels.tolist() == [step, step]
        assert labels is None if not with_labels else labels is not None and labels.tolist() == [-step, -step]
    with pytest.raises(OSError, match="the disk is gone"):
        batch(10)
    assert made.count(8) == 1
