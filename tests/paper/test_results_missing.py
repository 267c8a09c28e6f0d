"""The results page is silent about nothing that is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up_reports import docs as docs
from made_up_reports import fake, made, row_of

from scorefield.cli import main
from scorefield.paper.paper import DATA_SETS, HOLES


def test_missing_reports_are_named_with_the_commands_that_make_them(tmp_path: Path) -> None:
    fake(tmp_path / "docs" / "results", "mnist", seed=0)
    text = made(tmp_path / "docs")
    assert "Not measured yet: mnist-small, mnist-baseline." in text
    assert "scorefield report mnist-small -n 10000 --out docs/results/mnist-small\n" in text  # which is in the box
    for name, n in (("mnist-baseline", 10_000), ("cifar10-baseline", 50_000)):
        line = f"scorefield train {name} --out runs/{name} && scorefield report runs/{name} -n {n} "
        assert f"{line}--out docs/results/{name}\n" in text
    for name, n in (("cifar10", 50_000), ("celeba", 10_000)):  # selected by FID, appendix B.2
        line = f"scorefield train {name} --out runs/{name} && scorefield select runs/{name} && scorefield report "
        assert f"{line}runs/{name}/best -n {n} --out docs/results/{name}\n" in text
    assert "Figure 7" not in text
    assert "Table 1" not in text


def test_missing_parts_are_named(tmp_path: Path) -> None:
    changes = {"stages": None, "numbers": None, "digits": None, "training": None}
    fake(tmp_path / "docs" / "results", "mnist", seed=0, **changes)
    text = made(tmp_path / "docs")
    command = "scorefield report runs/mnist --out docs/results/mnist -n 5000 --parts"
    assert f"not measured yet: `{command} stages`" in text
    assert f"not measured yet: `{command} numbers`" in text
    assert "losses.png" not in text
    assert "FID" not in text


def test_no_report_at_all(tmp_path: Path) -> None:
    """But a figure."""
    (tmp_path / "docs" / "results" / "figures").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "figures" / "fig3.json").write_text('{"quick": true}')
    assert made(tmp_path / "docs").count("Not measured yet") == len(DATA_SETS)


def test_null_is_a_dash(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "cifar10", seed=0, digits=None)
    report["numbers"]["plain"] |= {"fid": None, "kid": None, "precision": None}
    report["numbers"]["denoised"] |= {"kid_standard_error": None, "inception_score": 8.125}
    report["numbers"]["denoised"] |= {"inception_score_deviation": None}
    report["numbers"]["loss"] = report["numbers"]["loss_per_level"][0] = None
    report["neighbors"]["neighbors"]["ratio"]["0.5"] = None
    (folder / "cifar10" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    assert row_of(text, "FID")[1:3] == ["25.32", "–"]
    assert row_of(text, "KID, denoised")[2] == (f"{report['numbers']['denoised']['kid']:.5f} ± – (n = 4,000 and 3,000)")
    assert row_of(text, "**NCSN, denoised (unconditional, ours)**")[1] == "8.12 ± – (n = 5,000)"
    assert "is – times theirs" in text


def test_a_folder_without_reports_makes_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "keep").mkdir()
    with pytest.raises(SystemExit) as stopped:
        main(["results", str(tmp_path / "keep")])
    assert stopped.value.code == 2
    assert "no reports in" in capsys.readouterr().err
    assert not (tmp_path / "keep.md").exists()


def test_a_page_of_another_hand_is_not_replaced(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (docs / "results.md").write_text("# my own notes")
    with pytest.raises(SystemExit) as stopped:
        made(docs)
    assert stopped.value.code == 2
    assert "was not made by scorefield results (name another page with --out)" in capsys.readouterr().err
    assert (docs / "results.md").read_text() == "# my own notes"


def test_the_folder_may_be_this_one(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = made(docs)
    (docs / "results.md").unlink()
    monkeypatch.chdir(docs / "results")
    main(["results", "."])
    assert (docs / "results.md").read_text().count("<img") == text.count("<img")


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    """Takes what is called so away from a report."""

    def take(report: dict[str, Any]) -> None:
        for name in names[:-1]:
            report = report[name]
        del report[names[-1]]

    return take


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("seconds"), "lacks 'seconds' (make it anew"),
        (without("sampler"), "lacks 'sampler' (make it anew"),
        (without("made_on"), "lacks 'machine' (make it anew"),
        (without("numbers", "plain", "fid"), "lacks 'fid' (make it anew"),
        (without("inpainting", "masks", "left", "seam"), "lacks 'seam' (make it anew"),
        (lambda report: report["inpainting"].update(masks={}), "lacks 'left' (make it anew"),
        (lambda report: report["numbers"]["plain"].update(fid="x"), "is not what it should be: "),
    ],
)
def test_a_report_that_is_not_whole_is_named(
    change: Callable[[dict[str, Any]], None], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    told = {
        "images": 3,
        "completions": 8,
        "known_error": 1.0,
        "distance": 1.0,
        "distance_between_images": 1.0,
        "seam": 1.0,
    }
    masks = {hole: dict(told) for hole in HOLES}
    report = fake(folder, "cifar10", seed=0, digits=None, inpainting={"files": [], "masks": masks})
    report["seconds"]["inpainting"], report["made_on"]["inpainting"] = 1, {"machine": "m"}
    fake(folder, "mnist", seed=1)
    change(report)
    (folder / "cifar10" / "report.json").write_text(json.dumps(report))
    with pytest.raises(SystemExit) as stopped:
        made(tmp_path)
    assert stopped.value.code == 2
    assert f"{Path('cifar10') / 'report.json'} {words}" in capsys.readouterr().err
    assert not (tmp_path / "results.md").exists()


def test_remarks_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake(tmp_path / "results", "mnist", seed=1)
    (tmp_path / "results" / "mnist" / "remarks.md").write_bytes(b"\xff\xfe")
    with pytest.raises(SystemExit):
        made(tmp_path)
    assert "remarks.md is no text" in capsys.readouterr().err


def test_pictures_that_are_missing_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake(tmp_path / "results", "mnist", seed=1)
    made(tmp_path)
    assert "missing" not in capsys.readouterr().err
    (tmp_path / "results" / "mnist" / "stages.png").unlink()
    made(tmp_path)
    assert "pictures that the page shows are missing: results/mnist/stages.png (make" in capsys.readouterr().err
