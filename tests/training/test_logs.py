"""TensorBoard and Weights & Biases, seen from our side: what they are told, and what a resumed run tells them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from scorefield.training.logs import tensorboard_log, wandb_log


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
