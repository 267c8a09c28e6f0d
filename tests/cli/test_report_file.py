"""report: no work is done twice, no other report is lost, and nothing in it names the machine that made it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from small_evaluation import ALONE, Small, read_json
from small_reports import N, dots, report
from small_reports import run as run
from small_reports import sampled as sampled
from small_reports import small as small
from small_reports import store as store

from cli.calls import failure
from scorefield import distributed, load, version
from scorefield.cli import main
from scorefield.evaluation import inception
from scorefield.evaluation.report import ReportMaker
from scorefield.evaluation.sample_cache import SampleCache

# ---------------------------------------------------------------- continuing


def test_samples_of_which_either_kind_is_missing_are_counted(run: Path, tmp_path: Path, sampled: list[int]) -> None:
    model = load(run)
    SampleCache(model, model.sampler).with_denoising(True).draw(N, ALONE, batch_size=100)
    shutil.rmtree(SampleCache(model, model.sampler).folder)
    assert sampled == [N]
    assert report(run, tmp_path / "r", "--parts", "samples")["sampling"] == {"images": N}
    assert sampled == [N, N]


def test_an_interrupted_report_goes_on_where_it_stopped(
    run: Path, tmp_path: Path, sampled: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = report(run, tmp_path / "whole")
    shutil.rmtree(tmp_path / "store")
    sampled.clear()

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ReportMaker, "neighbors", stopped)
        with pytest.raises(SystemExit) as exit_:
            report(run, tmp_path / "r")
    assert exit_.value.code == 130
    before = read_json(tmp_path / "r" / "report.json")
    assert set(before) & {"samples", "stages", "neighbors", "numbers"} == {"samples", "stages"}
    assert before["command"].endswith("--parts samples stages")
    assert sampled == [N]
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(ReportMaker, "stages", stopped)
        found = report(run, tmp_path / "r")
    assert sampled == [N]
    assert "stages: already in" in capsys.readouterr().err
    assert found["seconds"]["stages"] == before["seconds"]["stages"]
    assert found["sampling"] == {"images": N}
    for part in ("samples", "stages", "neighbors", "numbers", "model", "training"):
        assert found[part] == whole[part]
    (tmp_path / "r" / "stages.png").unlink()
    report(run, tmp_path / "r")
    assert (tmp_path / "r" / "stages.png").is_file()


def test_a_report_of_another_model_or_setting_is_not_lost(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = report(run, tmp_path / "r", "--parts", "numbers")
    report(run, tmp_path / "r", "--parts", "stages")
    both = read_json(tmp_path / "r" / "report.json")
    assert both["numbers"] == first["numbers"]
    assert both["command"].endswith("--parts stages numbers")
    capsys.readouterr()
    np.save(tmp_path / "dots.npy", dots(60, 1))
    data = ["--data", str(tmp_path / "dots.npy")]
    changes = {"model": ["--weights", "raw"], "n": ["-n", "20"], "data": data, "sampler": ["--steps", "3"]}
    for what, others in (changes | {"seed": ["--seed", "1"]}).items():
        code, said = failure(capsys, "report", run, "--out", tmp_path / "r", "-n", str(N), "--parts", "stages", *others)
        assert code == 2
        assert f"another {what} " in said
        assert "--out" in said
    assert read_json(tmp_path / "r" / "report.json") == both
    (tmp_path / "r" / "report.json").unlink()
    raw = report(run, tmp_path / "r", "--parts", "numbers", "--weights", "raw")
    assert raw["numbers"]["plain"]["fid"] != first["numbers"]["plain"]["fid"]


@pytest.mark.parametrize("content", ["{}", "half a file", '{"made_on": {}, "n": 30}'])
def test_a_file_that_is_not_a_report_is_not_lost(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "report.json").write_text(content)
    code, said = failure(capsys, "report", run, "--out", tmp_path, "-n", str(N), "--parts", "stages")
    assert code == 2
    assert "--out" in said
    assert (tmp_path / "report.json").read_text() == content


def test_data_of_the_same_name_in_two_places_are_told_apart(run: Path, tmp_path: Path) -> None:
    for place in "ab":
        (tmp_path / place).mkdir()
        np.save(tmp_path / place / "dots.npy", dots(60, 1))
    call = ["--parts", "numbers", "--data"]
    found = report(run, tmp_path / "r", *call, str(tmp_path / "a" / "dots.npy"))
    assert found["data"].startswith("dots.npy (")
    assert report(run, tmp_path / "r", *call, str(tmp_path / "a" / "dots.npy"))["numbers"] == found["numbers"]
    with pytest.raises(SystemExit):
        report(run, tmp_path / "r", *call, str(tmp_path / "b" / "dots.npy"))


def test_a_report_without_a_part_is_no_reason_to_refuse_another_setting(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ReportMaker, "draw", stopped)
        with pytest.raises(SystemExit):
            report(run, tmp_path / "r")
    assert read_json(tmp_path / "r" / "report.json")["n"] == N
    assert report(run, tmp_path / "r", "-n", "20", "--parts", "samples")["n"] == 20


def test_each_part_keeps_the_machine_and_the_versions_that_made_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = report(run, tmp_path / "r", "--parts", "samples")
    monkeypatch.setattr(distributed, "device_name", lambda _: "another machine")
    monkeypatch.setattr(version, "__version__", "99")
    both = report(run, tmp_path / "r", "--parts", "samples", "neighbors")
    assert both["samples"] == first["samples"]
    for part in ("sampling", "samples"):  # all samples were there
        assert both["made_on"][part] == first["made_on"][part]
    assert both["made_on"]["neighbors"] == {**first["made_on"]["samples"], "machine": "another machine"} | {
        "scorefield": "99"
    }


# ---------------------------------------------------------------- nothing of the machine


@pytest.mark.parametrize("given", [False, True])
def test_a_report_holds_no_path_of_this_machine(
    run: Path,
    tmp_path: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: bool,
) -> None:
    monkeypatch.setattr(inception, "load_inception", lambda **_: Small(with_classes=False))
    np.save(tmp_path / "dots.npy", dots(20, 1))
    options = ["--data", str(tmp_path / "dots.npy")] if given else []
    found = report(run, tmp_path / "r", "-n", "20", *options)
    text = (tmp_path / "r" / "report.json").read_text()
    for place in (run.parent, tmp_path):
        assert str(place) not in text
    names = [found["model"]["data"], found["model"]["recipe"]["data"], found["neighbors"]["data"]]
    names += [found["numbers"]["reference"]["name"], found["numbers"]["loss_data"].split(" (")[0]]
    assert names == ["dots.npy"] * 5
    assert "$SCOREFIELD_DATA/inception" in found["numbers"]["preprocessing"][-1]
    assert ("of the reference dots.npy" in "".join(found["numbers"]["plain"]["notes"])) == given
    capsys.readouterr()
    main(["evaluate", str(run), "-n", "20", "--json", str(tmp_path / "e.json")])
    assert str(store / "inception") in capsys.readouterr().err
    assert str(store) not in (tmp_path / "e.json").read_text()


def test_a_path_below_the_working_folder_is_relative_to_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    command = report(run, tmp_path / "r", "--parts", "stages")["command"]
    assert command == "scorefield report run --out r -n 30 --parts stages"
    shutil.copytree(run, tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    command = report(tmp_path / "runs" / "mine", Path("s"), "--parts", "stages")["command"]
    assert command == "scorefield report runs/mine --out s -n 30 --parts stages"
