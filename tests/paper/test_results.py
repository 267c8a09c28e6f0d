"""The results page: made of reports alone, and always the same."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from made_up_reports import docs as docs
from made_up_reports import fake, made, row_of
from PIL import Image
from small_network import Small

from scorefield.evaluation import inception
from scorefield.cli import main
from scorefield.paper import curves
from scorefield.paper.output import new_figure
from scorefield.paper.results import make_page, page, read_reports

DOCS = Path(__file__).parents[1] / "docs"


# ---------------------------------------------------------------- what is on it


def test_the_page_holds_every_number_of_the_reports(docs: Path) -> None:
    text = made(docs)
    reports = [json.loads((docs / "results" / name / "report.json").read_text()) for name in
               ("mnist", "mnist-small", "mnist-baseline")]  # fmt: skip
    for kind, words in (("plain", ""), ("denoised", ", denoised")):
        found = [report["numbers"][kind] for report in reports]
        kept = "(n = 4,000 and 3,000)"
        expected = {
            "FID": [f"{each['fid']:.2f} (n = 5,000)" for each in found],
            "KID": [f"{each['kid']:.5f} ± {each['kid_standard_error']:.5f} {kept}" for each in found],
            "precision": [f"{each['precision']:.3f} {kept}" for each in found],
            "recall": [f"{each['recall']:.3f} {kept}" for each in found],
        }
        real_images = reports[0]["real"]
        theirs = {"FID": f"{real_images['fid']:.2f} (n = 5,000)", "recall": f"{real_images['recall']:.3f} {kept}"}
        theirs["precision"] = f"{real_images['precision']:.3f} {kept}"
        theirs["KID"] = f"{real_images['kid']:.5f} ± {real_images['kid_standard_error']:.5f} {kept}"
        for name, cells in expected.items():
            assert row_of(text, name + words) == [name + words, "–", *cells, "–" if words else theirs[name]]
        judged = [report["digits"][kind] for report in reports]
        shares = [f"{e['accepted']:.2%} ± {e['accepted_standard_error']:.2%} (n = 4,321)" for e in judged]
        real = ["98.50% ± 0.12% (n = 10,000)", "0.022"] if kind == "plain" else ["–", "–"]
        assert row_of(text, f"accepted as digits{words}")[2:] == [*shares, real[0]]
        distances = [f"{e['distance_to_uniform']:.3f} (by chance {e['distance_by_chance']:.3f})" for e in judged]
        assert row_of(text, f"distance of the digits' histogram to uniform{words}")[2:] == [*distances, real[1]]
    assert "Inception score" not in text  # nobody measured it
    losses = [report["numbers"]["loss_per_level"] for report in reports]
    for k, sigma in enumerate(("1", "0.599", "0.359", "0.215", "0.129", "0.0774", "0.0464", "0.0278", "0.0167")):
        assert row_of(text, sigma) == [sigma, f"{losses[0][k]:.2f}", f"{losses[1][k]:.2f}", "–"]
    assert row_of(text, "0.01") == ["0.01", *(f"{each[-1]:.2f}" for each in losses)]
    assert [cell.split(" ")[0] for cell in row_of(text, "objective, Eq. 6, held-out images")[2:5]] == [
        f"{report['numbers']['loss']:.2f}" for report in reports
    ]
    assert ["one level" in cell for cell in row_of(text, "objective, Eq. 6, held-out images")[2:5]] == [
        len(each) == 1 for each in losses
    ]


def test_each_model_with_its_commands_machine_and_time(docs: Path) -> None:
    text = made(docs)
    assert "scorefield train mnist --out runs/mnist\n# 200,000 iterations of 128 images in 28 min 20 s: 15,058" in text
    assert "scorefield train mnist-baseline --out runs/mnist-baseline\n" in text
    took = "# on a machine: 4 min 27 s in all, 3 min 0 s of it for 5,000 samples of 1,000 network calls each"
    assert f"scorefield report runs/mnist --out docs/results/mnist -n 5000\n{took}\n" in text
    assert "7.64 M parameters, 10 noise levels, σ = 1 … 0.01; raw weights of step 200,000" in text
    assert "one noise level, σ = 0.01" in text


def test_the_papers_figures_stand_beside_ours(docs: Path) -> None:
    text = made(docs)
    for where, picture in {
        "Figure 5 (a), Figure 11": "mnist/samples.png",
        "Not in the paper": "mnist/samples_denoised.png",
        "Figure 4": "mnist/stages.png",
        "Figure 9": "mnist/neighbors.png",
        "Figure 10": "mnist/neighbors_inception.png",
        "Figure 7 (a)": "mnist-baseline/samples.png",
        "Figure 8 (a)": "mnist-baseline/stages.png",
    }.items():
        (line, *_) = [line for line in text.splitlines() if line.startswith(f"| **{where}**")]
        assert f'<img src="results/{picture}"' in line
        assert "on a machine" in line
        assert f"scorefield report runs/{picture.partition('/')[0]} --out" in line


def test_every_picture_is_there(docs: Path) -> None:
    links = re.findall(r'src="(.*?)"', made(docs))
    assert len(links) == len(set(links)) == 11
    assert sum(link.endswith("losses.png") for link in links) == 3
    for link in links:
        with Image.open(docs / link) as picture:
            picture.verify()


@pytest.mark.parametrize("whole", [False, True])
def test_a_folder_is_shown_as_seen_from_here(whole: bool, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(docs)
    main(["results", str(docs / "results") if whole else "results"])
    assert "-n 50000 --out results/cifar10\n" in (docs / "results.md").read_text(encoding="utf-8")


def test_the_machines_of_all_parts_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "mnist", seed=0)
    report["made_on"] = report["made_on"] | {"stages": {"machine": "a second one"}}
    (folder / "mnist" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    assert "# on a machine and a second one: 4 min" in text
    assert "--parts stages`: 7 s on a second one<" in text
    assert "--parts neighbors`: 31 s on a machine for all pictures of this kind, after" in text
    del report["made_on"]
    (folder / "mnist" / "report.json").write_text(json.dumps(report | {"machine": "the only one"}))
    assert "# on the only one: " in made(tmp_path / "docs")


def test_the_caption_says_what_the_samples_are_compared_with(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "mnist", seed=0)
    assert "and 2 of 900 held-out images; the median" in made(tmp_path / "docs")
    report["neighbors"]["others"] = "training images among the others"
    (folder / "mnist" / "report.json").write_text(json.dumps(report))
    assert "and 2 of 900 training images among the others; the median" in made(tmp_path / "docs")


def test_the_weights_are_named_for_held_out_losses_alone(tmp_path: Path) -> None:
    """Training losses are those of the raw weights, whichever the report is on."""
    report = fake(tmp_path, "mnist-baseline", seed=0)
    rows, report["model"]["weights"] = [[1, 2.0, 3.0], [2, 1.0, 2.0]], "ema"
    for log, prefix in (("held_out", "ema_held_out"), ("log", "loss")):
        report["training"] = {log: {"columns": ["step", prefix, f"{prefix}_1"], "rows": rows}}
        axes = new_figure(4, 4).add_subplot()
        curves._over_iterations(axes, report)
        title = {"held_out": "held-out loss, σ² ℓ(σ), ema weights", "log": "training loss, σ² ℓ(σ)"}[log]
        assert axes.get_title() == title


def opened(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.copy()


def test_one_level_at_the_end_is_no_curve(docs: Path) -> None:
    """The baseline's picture has one panel, the others' two; without a training log there is no other to draw."""
    text, folder = made(docs), docs / "results"
    (wide, _), (narrow, _) = (opened(folder / name / "losses.png").size for name in ("mnist", "mnist-baseline"))
    assert wide == 2 * narrow
    assert 'mnist/losses.png" width="880">\n\n*NCSN: losses by level over training, and at the end.*' in text
    assert 'mnist-baseline/losses.png" width="440">\n\n*baseline: the loss over training.*' in text
    report = json.loads((docs / "results" / "mnist-baseline" / "report.json").read_text())
    del report["training"]
    assert opened(curves.draw_curves(report, folder / "mnist-baseline")).width == narrow


def test_the_page_is_always_the_same(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(docs)
    curves = (docs / "results" / "mnist" / "losses.png").read_bytes()
    monkeypatch.chdir(docs.parent)
    main(["results"])
    assert (docs / "results.md").read_text(encoding="utf-8") == first
    assert (docs / "results" / "mnist" / "losses.png").read_bytes() == curves
    reports = read_reports(docs / "results")
    assert page(reports, docs / "results", docs / "results.md") == first
    elsewhere = page(reports, docs / "results", docs / "more" / "results.md")
    assert 'src="../results/mnist/samples.png"' in elsewhere


# ---------------------------------------------------------------- the whole way, and wrong calls


def test_from_a_run_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inception, "load_inception", lambda **_: Small())
    monkeypatch.setenv("SCOREFIELD_DATA", str(tmp_path / "store"))
    np.save(tmp_path / "dots.npy", np.random.default_rng(0).integers(0, 256, (40, 12, 12), dtype=np.uint8))
    options = "--image-size None --width 2 --levels 2 --held-out 6 --steps 3 --batch-size 4 --previews 0"
    options += " --log-every 1 --evaluate-every 1 --sample-steps 3"
    main(["train", "tiny", "--data", str(tmp_path / "dots.npy"), "--out", str(tmp_path / "run"), *options.split()])
    main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "docs" / "results" / "dots"), "-n", "30"])
    text = made(tmp_path / "docs")
    report = json.loads((tmp_path / "docs" / "results" / "dots" / "report.json").read_text())
    assert f"{report['numbers']['denoised']['fid']:.2f} (n = 30)" in text
    assert f"{report['numbers']['plain']['inception_score']:.2f} ± " in text
    for link in re.findall(r'src="(.*?)"', text):
        assert (tmp_path / "docs" / link).is_file()


def test_wrong_calls(docs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    results = str(docs / "results")
    (docs / "file").touch()
    cases = [
        ([str(docs / "nowhere")], 2, "there is no folder"),
        ([results, "--out", str(docs / "page.html")], 2, "--out FILE.md"),
        ([results, "--out", str(docs / "file" / "page.md")], 1, "cannot make the folder"),
    ]
    for arguments, code, words in cases:
        with pytest.raises(SystemExit) as stopped:
            main(["results", *arguments])
        assert stopped.value.code == code
        assert words in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(SystemExit) as stopped:
            main(["results", results])
    assert stopped.value.code == 1
    assert "pip install matplotlib" in capsys.readouterr().err
    (docs / "results" / "mnist" / "report.json").write_text("{}")
    with pytest.raises(SystemExit) as stopped:
        main(["results", results])
    assert stopped.value.code == 2
    assert "mnist/report.json is no report" in capsys.readouterr().err
    assert not (docs / "results.md").exists()


def test_the_page_in_the_docs_is_made_of_the_reports_in_the_docs() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert text == page(read_reports(DOCS / "results"), DOCS / "results", DOCS / "results.md")
    for link in re.findall(r'src="(.*?)"', text):
        assert (DOCS / link).is_file()


def test_the_files_made_are_told(docs: Path) -> None:
    files = make_page(docs / "results", docs / "results.md")
    assert len(files) == 4
    assert all(file.is_file() for file in files)
