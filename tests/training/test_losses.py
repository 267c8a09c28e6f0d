"""Losses by noise level: their columns, their account, and how logs are read again."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scorefield.distributed import Group
from scorefield.models.model import load
from scorefield.models.recipes import Recipe
from scorefield.noise import geometric
from scorefield.training import train
from scorefield.training.history import LogTable, held_out_loss, history, last_step, read_log, run_of
from scorefield.training.levels import log_bins
from scorefield.training.logs import LossMeter, column, columns
from scorefield.training.trainer import Losses
from training.small_runs import ALONE, quick, rows
from training.small_runs import recipe as recipe

CPU = torch.device("cpu")


def losses(values: list[float], sigmas: list[float]) -> Losses:
    return Losses(torch.tensor(values), torch.tensor(sigmas))


def test_columns_are_named_by_their_noise_level() -> None:
    assert columns("loss", geometric(1.0, 0.01, 10).tolist()[:3]) == ["loss", "loss@1", "loss@0.5995", "loss@0.3594"]


def test_losses_by_the_levels_of_a_schedule() -> None:
    meter = LossMeter([1.0, 0.1, 0.01], CPU)
    meter.add(losses([2.0, 4.0, 9.0], [1.0, 1.0, 0.01]), 1)
    meter.add(losses([6.0, 1.0], [1.0, 0.01]), 2)
    assert meter.look(ALONE) == {"loss": 22 / 5, "loss@1": 4.0, "loss@0.01": 5.0}  # no example at 0.1
    meter.add(losses([3.0], [0.1]), 3)
    assert meter.look(ALONE) == {"loss": 3.0, "loss@0.1": 3.0}  # each look starts again


def test_losses_in_bins_of_log_sigma() -> None:
    """σ from 0.01 to 100 in four bins: edges at 0.01, 0.1, 1, 10, 100, centres at 10^(±½), 10^(±3/2)."""
    centres = log_bins(0.01, 100.0, bins=4)
    torch.testing.assert_close(centres, 10 ** torch.tensor([1.5, 0.5, -0.5, -1.5]))
    meter = LossMeter(centres, CPU)
    meter.add(losses([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [99.0, 10.1, 9.9, 1.1, 0.9, 0.0101]), 1)
    names = [column("loss", sigma) for sigma in centres.tolist()]
    expected = dict(zip(names, [1.5, 3.5, 5.0, 6.0], strict=True))
    assert meter.look(ALONE) == {"loss": 3.5, **expected}


def test_bins_are_ten_unless_told_otherwise() -> None:
    centres = log_bins(0.002, 80.0)
    assert len(centres) == 10
    ratio = (80 / 0.002) ** 0.1
    torch.testing.assert_close(centres[0].item(), 80 / math.sqrt(ratio), rtol=1e-5, atol=0)
    torch.testing.assert_close(centres[:-1] / centres[1:], torch.full((9,), ratio), rtol=1e-5, atol=0)


def test_the_first_loss_that_is_not_finite_is_remembered() -> None:
    meter = LossMeter([1.0], CPU)
    meter.add(losses([1.0], [1.0]), 1)
    assert meter.bad_step() == 0
    meter.add(losses([1.0, math.nan], [1.0, 1.0]), 2)
    meter.add(losses([math.inf], [1.0]), 3)
    assert meter.bad_step() == 2
    meter.look(ALONE)
    assert meter.bad_step() == 2


def test_losses_are_those_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process has twice the loss on three times the examples."""
    meter, calls = LossMeter([1.0, 0.1], CPU), list[int]()

    def with_another(self: Group, tensor: torch.Tensor) -> None:
        calls.append(1)
        tensor.add_(tensor * (6 if len(calls) == 1 else 3))

    monkeypatch.setattr(Group, "sum_", with_another)
    meter.add(losses([1.0, 3.0], [1.0, 1.0]), 1)
    assert meter.look(Group(0, 2, CPU)) == {"loss": 28 / 8, "loss@1": 28 / 8}


# ---------------------------------------------------------------- reading logs


def test_a_log_is_read_while_it_is_written(tmp_path: Path) -> None:
    """A line without its end is left out; what was not measured is None; what is not a number is too."""
    path = tmp_path / "log.csv"
    path.write_text("step,loss,loss@1\n1,2.5,\n2,nan,3\nx,1,1\n3,4\n4,1,2")
    assert read_log(path) == LogTable(columns=("step", "loss", "loss@1"), rows=((1, 2.5, None), (2, None, 3.0)))
    assert last_step(path) == 2
    for text in ("", "\n", "\n\n", "step,loss"):
        path.write_text(text)
        assert read_log(path).rows == ()
    assert read_log(tmp_path / "missing.csv") == LogTable()
    assert last_step(tmp_path / "missing.csv") == 0


def test_the_columns_of_older_runs_get_their_noise_levels(tmp_path: Path) -> None:
    """Levels were numbered: loss_1 is the largest."""
    recipe = Recipe(levels=3)
    (tmp_path / "log.csv").write_text("step,loss,loss_1,loss_2,loss_3,learning_rate\n7,1,2,3,4,0.001\n")
    (tmp_path / "held_out.csv").write_text("step,held_out,held_out_1,ema_held_out,ema_held_out_3\n7,1,2,3,4\n")
    log, held_out = (read_log(tmp_path / name, recipe) for name in ("log.csv", "held_out.csv"))
    assert log.columns == ("step", *columns("loss", [1, 0.1, 0.01]), "learning_rate")
    assert [*log.rows] == [(7, 1, 2, 3, 4, 0.001)]
    assert held_out.columns == ("step", "held_out", "held_out@1", "ema_held_out", "ema_held_out@0.01")
    assert read_log(tmp_path / "log.csv").columns[2] == "loss_1"  # without a recipe, as the file has it


@pytest.mark.parametrize("numbered", [True, False])
def test_an_older_run_goes_on_with_new_columns(numbered: bool, recipe: Recipe, tmp_path: Path) -> None:
    """Its earlier rows stay. Held-out losses were measured with every image at one level only, which is said, and had
    no standard errors; the first edition numbered its levels."""
    run, said = tmp_path / "run", list[str]()
    recipe = replace(recipe, previews=0)
    quick(replace(recipe, steps=4), run)
    header = ["step", *columns("held_out", [1, 0.1, 0.01]), *columns("ema_held_out", [1, 0.1, 0.01])]
    lines = [",".join(header), *(f"{step},9,2,3,4,8,5,6,7" for step in (3, 4))]
    (run / "held_out.csv").write_text("\n".join(lines) + "\n")
    for name in ("log.csv", "held_out.csv") if numbered else ():
        text = (run / name).read_text()
        for number, sigma in enumerate(("1", "0.1", "0.01"), 1):
            text = text.replace(f"@{sigma},", f"_{number},").replace(f"@{sigma}\n", f"_{number}\n")
        (run / name).write_text(text)
    assert ("loss_2" in (run / "log.csv").read_text()) == numbered
    before = read_log(run / "log.csv", recipe)
    old = held_out_loss(run, recipe, step=4, weights="ema")
    assert old is not None
    assert (old.step, old.n, old.loss, old.standard_error) == (4, None, 8, None)
    assert old.by_sigma == {"1": (5, None), "0.1": (6, None), "0.01": (7, None)}
    assert str(old) == "8 at step 4 (ema weights)"
    quick(recipe, run, resume=True, say=said.append)
    after = read_log(run / "log.csv")
    assert after.columns == before.columns
    assert after.rows[:4] == before.rows
    assert len(after.rows) == 6
    held_out = rows(run / "held_out.csv")
    assert [row["step"] for row in held_out] == ["3", "4", "6"]
    assert [held_out[1][name] for name in ("n", *header[1:])] == ["", *"92348567"]
    assert [row["n"] for row in held_out] == ["", "", "4"]
    assert any("held_out.csv so far are of an older version" in line for line in said)


def test_a_table_is_thinned_with_its_ends() -> None:
    table = LogTable(columns=("step", "loss"), rows=tuple((k, None if k > 7 else float(k)) for k in range(11)))
    assert [row[0] for row in table.thinned(6).rows] == [0, 2, 4, 6, 8, 10]
    assert table.thinned(100) == table
    assert table.last("loss") == 7.0
    assert table.last("seconds") is None
    assert [row[0] for row in table.until(3).rows] == [0, 1, 2, 3]


def test_the_noise_levels_of_a_log_are_found_by_their_columns() -> None:
    names = ("step", "loss", "loss@0.5995", "loss@1e-05", "ema_loss@1", "loss_rate")
    table = LogTable(columns=names, rows=((1, 9.0, 2.0, None, 8.0, 8.0), (5, 9.0, 3.0, 4.0, 8.0, 8.0)))
    assert table.by_sigma("loss") == {"0.5995": [(1, 2.0), (5, 3.0)], "1e-05": [(5, 4.0)]}
    assert table.by_sigma("held_out") == {}


def test_the_history_of_a_model(recipe: Recipe, tmp_path: Path) -> None:
    """The seconds and the rate are those up to the model's step; the losses are the whole run's."""
    run = tmp_path / "run"
    train(recipe, run, ALONE)
    file = run / "checkpoints" / "model-00000004.safetensors"
    assert run_of(run) == run_of(file) == run_of(run / "checkpoints") == run
    assert run_of(tmp_path / "dots.npy") is None
    assert run_of(Path("mnist-small")) is None
    found = history(run, load(file))
    seconds = read_log(run / "log.csv").rows[3][-1]
    assert found.seconds == seconds
    assert found.images_per_second == pytest.approx(4 * 4 / float(seconds or 0))
    assert [row[0] for row in found.log.rows] == [1, 2, 3, 4, 5, 6]
    assert [row[0] for row in found.held_out.rows] == [3, 6]
    train(replace(recipe, width=3, steps=1), tmp_path / "other", ALONE)
    with pytest.raises(ValueError, match="is the run of another model: it differs in width"):
        history(tmp_path / "other", load(file))
    with pytest.raises(FileNotFoundError, match=r"recipe\.json is missing"):
        history(tmp_path, load(file))
