"""The API about training runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from scorefield.cli import main
from scorefield.models.model import load
from scorefield.training.folder import locked, write_recipe
from scorefield.training.history import LogTable, read_log
from scorefield.web import monitor
from scorefield.web.models import Models
from web.live_server import RECIPE, Live, tiny_model, tiny_run
from web.live_server import folder as folder
from web.live_server import live as live


def as_json(log: LogTable) -> object:
    return json.loads(json.dumps(asdict(log)))


def test_the_monitor_shows_a_run(live: Live, folder: Path) -> None:
    run = folder / "runs" / "my run"
    assert live.client.get("/api/runs").json() == {"runs": [{"name": "my run", "step": 6, "steps": 6, "state": "done"}]}
    found = live.client.get("/api/runs/my run").json()
    assert {key: found[key] for key in ("name", "step", "steps", "state")} == {
        "name": "my run",
        "step": 6,
        "steps": 6,
        "state": "done",
    }
    log = read_log(run / "log.csv")
    assert found["log"] == as_json(log)
    assert log.columns[:4] == ("step", "loss", "loss@1", "loss@0.01")
    assert found["held_out"] == as_json(read_log(run / "held_out.csv"))
    assert [row[0] for row in found["held_out"]["rows"]] == [3, 6]
    assert found["seconds"] == log.rows[-1][log.columns.index("seconds")]
    assert found["images_per_second"] == log.rows[-1][log.columns.index("images_per_second")]
    assert found["shape"] == [1, 5, 6]
    assert found["recipe"]["width"] == 2
    assert found["recipe"]["data"] == "dots.npy"  # without its place on this machine
    assert [each["step"] for each in found["samples"]] == [2, 4, 6]
    for each in found["samples"]:
        assert live.client.get(each["image"]).content == (run / "samples" / f"{each['step']:08d}.png").read_bytes()


def test_a_run_is_followed_while_it_trains(tmp_path: Path, folder: Path) -> None:
    run = tmp_path / "young"
    run.mkdir()
    (run / "recipe.json").write_bytes((folder / "runs" / "my run" / "recipe.json").read_bytes())
    with Live(str(run)) as live:
        assert live.client.get("/api/runs").json()["runs"] == [
            {"name": "young", "step": 0, "steps": 6, "state": "stopped"}
        ]
        assert [model["name"] for model in live.client.get("/api/models").json()["models"]] == ["tiny"]
        lines = (folder / "runs" / "my run" / "log.csv").read_text().splitlines(keepends=True)
        with locked(run):
            (run / "log.csv").write_text("".join(lines[:3]) + lines[3][:-4])  # while a line is being written
            found = live.client.get("/api/runs/young").json()
            assert (found["step"], found["state"]) == (2, "training")
            assert len(found["log"]["rows"]) == 2
            (run / "log.csv").write_text("".join(lines))
            found = live.client.get("/api/runs/young").json()
            assert (found["step"], found["steps"], found["state"]) == (6, 6, "training")  # it draws its last samples
            (run / "log.csv").write_text("".join(lines[:4]))
            assert live.client.get("/api/runs/young").json()["step"] == 3
        assert live.client.get("/api/runs/young").json()["state"] == "stopped"
        tiny_model(run / "checkpoints" / "model-00000004.safetensors")
        assert live.client.get("/api/runs/young").json()["step"] == 4
        assert live.end(live.post("sample", model="young", n=1, steps=1).json()["job"])["state"] == "done"
        (run / "checkpoints" / "model-00000005.safetensors").write_bytes(b"damaged")
        assert live.client.get("/api/models").json()["models"][0]["trained"] == 1234
        (run / "recipe.json").unlink()
        assert live.client.get("/api/runs/young").status_code == 404


def test_a_log_may_hold_anything(tmp_path: Path) -> None:
    write_recipe(RECIPE, tmp_path)
    log = tmp_path / "log.csv"
    assert monitor.details("x", tmp_path)["log"] == {"columns": (), "rows": ()}
    log.write_bytes(b"step,loss,rate\n1,2.5,\nx,1,1\n2,nan,1e-3\n3,-,inf\n4,1\n\xff,1,2\n5,1,2\n6,1,")
    rows = ((1, 2.5, None), (2, None, 1e-3), (3, None, None), (5, 1.0, 2.0))
    assert monitor.details("x", tmp_path)["log"] == {"columns": ("step", "loss", "rate"), "rows": rows}
    log.write_bytes(b"\n\n")
    assert monitor.details("x", tmp_path)["log"] == {"columns": (), "rows": ()}


def test_numbered_levels_of_older_logs_become_sigmas(tmp_path: Path) -> None:
    write_recipe(RECIPE, tmp_path)
    (tmp_path / "log.csv").write_text("step,loss,loss_1,loss_2,seconds\n1,2,3,4,5\n")
    (tmp_path / "held_out.csv").write_text("step,held_out,held_out_1,ema_held_out_2\n1,2,3,4\n")
    found = monitor.details("x", tmp_path)
    assert found["log"]["columns"] == ("step", "loss", "loss@1", "loss@0.01", "seconds")
    assert found["held_out"]["columns"] == ("step", "held_out", "held_out@1", "ema_held_out@0.01")


def test_a_damaged_run_or_model_does_not_hide_the_others(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "recipe.json").write_text("{")
    broken = tmp_path / "broken.safetensors"
    save_file({"x": np.zeros(1, np.float32)}, broken, {"kind": "scorefield model"})
    with Live(str(tmp_path / "torn"), str(folder / "runs" / "my run")) as live:
        states = {run["name"]: run["state"] for run in live.client.get("/api/runs").json()["runs"]}
        assert states == {"torn": "damaged", "my run": "done"}
        torn = live.client.get("/api/runs/torn")
        assert (torn.status_code, torn.json()["state"]) == (200, "damaged")
        assert "recipe.json cannot be read" in torn.json()["error"]
    with pytest.raises((ValueError, KeyError)):
        load(broken)
    with pytest.raises(ValueError, match="broken"):
        Models([str(broken)])
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    broken.rename(tmp_path / "run" / "checkpoints" / "model-00000001.safetensors")
    assert "run" not in Models([str(tmp_path / "run")]).cards()


def test_a_run_that_has_not_begun_is_waiting(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    with Live(str(tmp_path / "runs" / "later"), str(tmp_path / "empty")) as live:
        waiting = {"step": 0, "steps": 0, "state": "waiting"}
        both = [{"name": "later", **waiting}, {"name": "empty", **waiting}]
        assert live.client.get("/api/runs").json()["runs"] == both
        assert [model["name"] for model in live.client.get("/api/models").json()["models"]] == ["tiny"]
        (tmp_path / "empty" / "recipe.json.x.part").touch()  # as at the moment when a run begins
        assert live.client.get("/api/runs").json()["runs"] == both
        tiny_run(tmp_path / "runs" / "later")
        runs = live.client.get("/api/runs").json()["runs"]
        assert {run["name"]: run["state"] for run in runs} == {"later": "done", "empty": "waiting"}
        assert [model["name"] for model in live.client.get("/api/models").json()["models"]] == ["later", "tiny"]
    for wrong in ("mnist-smal", str(tmp_path / "runs" / "model.safetensors"), str(tmp_path / "runs")):
        with pytest.raises(SystemExit):
            main(["serve", wrong, "--port", "0", "--no-open"])
    said = capsys.readouterr().err
    assert said.count("no pretrained model") == 2
    assert f"{tmp_path / 'runs'} holds no training run" in said
