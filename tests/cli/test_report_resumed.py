"""report: no work done twice, nothing lost that was there, and nothing in it of the machine on which it was made."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_network import Small
from small_reports import N, dots, read, report
from small_reports import run as run
from small_reports import sampled as sampled
from small_reports import store as store

from scorefield import distributed, load, version
from scorefield.evaluation import inception
from scorefield.cli import main
from scorefield.distributed import Group
from scorefield.evaluation import How, Pool
from scorefield.evaluation import report as parts

ALONE = Group(0, 1, torch.device("cpu"))


# ---------------------------------------------------------------- samples with and without the last step


def test_one_run_of_the_sampler_gives_what_two_would(
    run: Path, tmp_path: Path, sampled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, how = load(run), How(5, 1e-4, False, 3)
    plain, denoised = Pool(model, how).pair(70, ALONE, batch_size=60)
    assert sampled == [50, 20]
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "other"))
    apart = [Pool(model, How(5, 1e-4, kind, 3)).draw(70, ALONE, batch_size=100) for kind in (False, True)]
    assert sampled == [50, 20, 70, 70]
    assert np.array_equal(plain[:70], apart[0][:70])
    assert np.array_equal(denoised[:70], apart[1][:70])
    assert not np.array_equal(plain[:70], denoised[:70])


def test_samples_that_are_there_are_not_drawn_again_for_a_pair(run: Path, sampled: list[int]) -> None:
    model, how = load(run), How(5, 1e-4, True, 3)
    Pool(model, how).draw(60, ALONE, batch_size=100)
    assert Pool(model, how).missing(70) == [range(50, 70)]
    Pool(model, how).pair(60, ALONE, batch_size=100)
    assert sampled == [60]


def test_samples_that_either_kind_lacks_are_counted(run: Path, tmp_path: Path, sampled: list[int]) -> None:
    model = load(run)
    how = How(7, model.recipe.step_size, True, 0)
    Pool(model, how).draw(N, ALONE, batch_size=100)
    shutil.rmtree(Pool(model, How(7, model.recipe.step_size, False, 0)).folder)
    assert sampled == [N]
    assert report(run, tmp_path / "r", "--parts", "samples")["sampling"] == {"images": N}
    assert sampled == [N, N]


# ---------------------------------------------------------------- going on


def test_an_interrupted_report_goes_on_where_it_stopped(
    run: Path, tmp_path: Path, sampled: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = report(run, tmp_path / "whole")
    shutil.rmtree(tmp_path / "store")
    sampled.clear()

    def stopped(*_: object, **__: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(parts.Work, "neighbors", stopped)
        with pytest.raises(SystemExit) as exit_:
            report(run, tmp_path / "r")
    assert exit_.value.code == 130
    before = read(tmp_path / "r" / "report.json")
    assert set(before) & {"samples", "stages", "neighbors", "numbers"} == {"samples", "stages"}
    assert before["command"].endswith("--parts samples stages")
    assert sampled == [N]
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(parts.Work, "stages", stopped)
        found = report(run, tmp_path / "r")
    assert sampled == [N]
    assert "stages: there already" in capsys.readouterr().err
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
    both = read(tmp_path / "r" / "report.json")
    assert both["numbers"] == first["numbers"]
    assert both["command"].endswith("--parts stages numbers")
    capsys.readouterr()
    np.save(tmp_path / "dots.npy", dots(60, 1))
    data = ["--data", str(tmp_path / "dots.npy")]
    changes = {"model": ["--weights", "raw"], "n": ["-n", "20"], "data": data, "sampler": ["--seed", "1"]}
    for what, others in changes.items():
        with pytest.raises(SystemExit) as stopped:
            report(run, tmp_path / "r", "--parts", "stages", *others)
        assert stopped.value.code == 2
        assert f"has another {what} (name another --out, or delete it)" in capsys.readouterr().err
    assert read(tmp_path / "r" / "report.json") == both
    (tmp_path / "r" / "report.json").unlink()
    raw = report(run, tmp_path / "r", "--parts", "numbers", "--weights", "raw")
    assert raw["numbers"]["plain"]["fid"] != first["numbers"]["plain"]["fid"]


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
        patched.setattr(parts.Work, "draw", stopped)
        with pytest.raises(SystemExit):
            report(run, tmp_path / "r")
    assert read(tmp_path / "r" / "report.json")["n"] == N
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


# ---------------------------------------------------------------- nothing of the machine on which it was made


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
    assert "$SCOREFIELD_DATA/inception brings it" in found["numbers"]["preprocessing"][-1]
    assert ("of the reference dots.npy" in "".join(found["numbers"]["plain"]["notes"])) == given
    capsys.readouterr()
    main(["evaluate", str(run), "-n", "20", "--json", str(tmp_path / "e.json")])
    assert f"in {store / 'inception'} brings it" in capsys.readouterr().err
    assert str(store) not in (tmp_path / "e.json").read_text()


def test_a_place_below_the_working_folder_is_told_from_there(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    command = report(run, tmp_path / "r", "--parts", "stages")["command"]
    assert command == "scorefield report run --out r -n 30 --parts stages"
    shutil.copytree(run, tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    command = report(tmp_path / "runs" / "mine", Path("s"), "--parts", "stages")["command"]
    assert command == "scorefield report runs/mine --out s -n 30 --parts stages"
