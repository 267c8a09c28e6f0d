"""The results page: made of reports alone, always the same, and silent about nothing that is missing."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_network import Small

from scorefield import inception
from scorefield.cli import main, training
from scorefield.experiments import curves
from scorefield.experiments.output import new_figure
from scorefield.experiments.paper import DATA_SETS, TABLE_1
from scorefield.experiments.results import make_page, page, read_reports, train_command
from scorefield.recipes import RECIPES

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = {
    "samples": ["samples.png", "samples_denoised.png"],
    "stages": ["stages.png"],
    "neighbors": ["neighbors.png", "neighbors_inception.png"],
}

REAL = {"accuracy": 0.9966, "n": 10_000, "accepted": 0.985, "distance_to_uniform": 0.0216}
"""What the classifier of digits says of real ones: in its file there is no more."""


def fake(folder: Path, name: str, *, seed: int, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A report with numbers that no other has, and its pictures."""
    rng = np.random.default_rng(seed)
    recipe = RECIPES[name] if name in RECIPES else RECIPES["mnist"]
    sigmas = np.geomspace(recipe.sigma_max, recipe.sigma_min, recipe.levels).tolist()

    def numbers() -> dict[str, Any]:
        fid, kid, error, precision, recall = rng.uniform(0.1, 1, 5).tolist()
        found = {"fid": 50 * fid, "kid": kid, "kid_standard_error": error, "precision": precision, "recall": recall}
        return {**found, "inception_score": None, "n": 5000, "kept_n": [4000, 3000], "notes": []}

    def verdict() -> dict[str, Any]:
        share, distance, chance = rng.uniform(0.1, 1, 3).tolist()
        words = {"n": 4321, "accepted": share, "accepted_standard_error": (share * (1 - share) / 4321) ** 0.5}
        return {**words, "distance_to_uniform": distance, "distance_by_chance": chance}

    def copies() -> dict[str, Any]:
        return {"n": 1000, "copies": [], "held_out_copies": 2, "held_out_n": 900, "ratio": {"0.5": rng.uniform()}}

    losses = rng.uniform(1, 99, len(sigmas)).tolist()
    columns = ["step", "held_out", *(f"held_out_{k}" for k in range(1, len(sigmas) + 1))]
    rows = [[step, *rng.uniform(1, 99, len(sigmas) + 1).tolist()] for step in (1000, 2000, 3000)]
    report: dict[str, Any] = {
        "command": f"scorefield report runs/{name} --out docs/results/{name} -n 5000",
        "made_on": {part: {"machine": "a machine"} for part in (*PICTURES, "sampling", "numbers", "digits")},
        "sampler": {"steps": recipe.sample_steps, "step_size": recipe.step_size, "denoise": False, "seed": 0},
        "model": {
            "step": recipe.steps,
            "weights": "raw",
            "parameters": 7_643_210,
            "shape": [1, 28, 28],
            "sigmas": sigmas,
            "recipe": asdict(recipe),
        },
        "training": {
            "held_out": {"columns": columns, "rows": rows},
            "log": {"columns": [], "rows": []},
            "seconds": 1700.0 + seed,
            "images_per_second": 15_058.4,
        },
        "seconds": {
            "preparing": 40,
            "sampling": 180 + seed,
            "samples": 0.2,
            "stages": 7,
            "neighbors": 31,
            "numbers": 9,
        },
        "sampling": {"images": 5000},
        "samples": {"files": PICTURES["samples"], "shown": 100},
        "stages": {"files": PICTURES["stages"], "steps": [0, 500, 1000]},
        "neighbors": {
            "files": PICTURES["neighbors"],
            "others": "held-out images",
            "neighbors": copies(),
            "neighbors_inception": copies(),
        },
        "numbers": {
            "plain": numbers(),
            "denoised": numbers(),
            "reference": {"name": "mnist", "digest": "0123456789ab", "n": 60_000},
            "loss": float(np.mean(losses)),
            "loss_per_level": losses,
            "loss_n": 1000,
        },
        "digits": {"plain": verdict(), "denoised": verdict(), "test": REAL},
    }
    report = {key: value for key, value in {**report, **changes}.items() if value is not None}
    (folder / name).mkdir(parents=True)
    (folder / name / "report.json").write_text(json.dumps(report))
    for part, files in PICTURES.items():
        for file in files if part in report else []:
            Image.new("L", (4, 4)).save(folder / name / file)
    return report


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Reports on all of MNIST's models."""
    for seed, name in enumerate(("mnist", "mnist-small", "mnist-baseline")):
        fake(tmp_path / "docs" / "results", name, seed=seed)
    return tmp_path / "docs"


def made(docs: Path) -> str:
    main(["results", str(docs / "results")])
    return (docs / "results.md").read_text(encoding="utf-8")


def row_of(text: str, name: str) -> list[str]:
    """The cells of the table row that begins with that name."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("| ").split("|")]


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
        for name, cells in expected.items():
            assert row_of(text, name + words) == [name + words, "–", *cells, "–"]
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


def test_a_relative_folder_is_shown_as_it_was_given(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(docs)
    main(["results", "results"])
    assert "-n 50000 --out results/cifar10\n" in (docs / "results.md").read_text(encoding="utf-8")


def test_the_machines_of_all_parts_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "mnist", seed=0)
    report["made_on"] = report["made_on"] | {"stages": {"machine": "a second one"}}
    (folder / "mnist" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    assert "# on a machine and a second one: 4 min" in text
    assert "--parts stages`: 7 s on a second one<" in text
    assert "--parts neighbors`: 31 s on a machine, after the sampling<" in text
    del report["made_on"]
    (folder / "mnist" / "report.json").write_text(json.dumps(report | {"machine": "the only one"}))
    assert "# on the only one: " in made(tmp_path / "docs")


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


# ---------------------------------------------------------------- what is missing


def test_missing_reports_are_named_with_the_commands_that_make_them(tmp_path: Path) -> None:
    fake(tmp_path / "docs" / "results", "mnist", seed=0)
    text = made(tmp_path / "docs")
    assert "Not measured yet: mnist-small, mnist-baseline." in text
    for name, n in (("mnist-small", 10_000), ("mnist-baseline", 10_000), ("cifar10-baseline", 50_000)):
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
    (tmp_path / "docs" / "results").mkdir(parents=True)
    assert made(tmp_path / "docs").count("Not measured yet") == len(DATA_SETS)


# ---------------------------------------------------------------- other data sets


def test_cifar10_stands_in_the_papers_table(tmp_path: Path) -> None:
    report = fake(tmp_path / "docs" / "results", "cifar10", seed=4, digits=None)
    for kind in ("plain", "denoised"):
        report["numbers"][kind] |= {"inception_score": 8.125, "inception_score_deviation": 0.0625}
    (tmp_path / "docs" / "results" / "cifar10" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    plain, denoised = report["numbers"]["plain"], report["numbers"]["denoised"]
    assert row_of(text, "FID") == ["FID", "25.32", f"{plain['fid']:.2f} (n = 5,000)"]
    assert row_of(text, "FID, denoised") == ["FID, denoised", "–", f"{denoised['fid']:.2f} (n = 5,000)"]
    assert row_of(text, "Inception score")[1:] == ["8.87 ± .12", "8.12 ± 0.06 (n = 5,000)"]
    assert row_of(text, "NCSN (CIFAR-10, unconditional, the paper)")[1:] == ["8.87 ± .12", "25.32"]
    assert row_of(text, "ProgressiveGAN (CIFAR-10, unconditional, the paper)")[1:] == ["8.80 ± .05", "–"]
    assert row_of(text, "**NCSN, denoised (ours)**")[2] == f"{denoised['fid']:.2f} (n = 5,000)"
    assert "Figure 5 (c), Figure 13" in text
    assert "accepted as digits" not in text


def test_the_papers_table() -> None:
    """Its best rows, as the text of the paper names them."""
    assert [len(rows) for rows in TABLE_1.values()] == [8, 3]
    every = [row for rows in TABLE_1.values() for row in rows]
    best = {row.model: (row.inception, row.fid) for row in every}
    assert best["NCSN"] == ("8.87 ± .12", "25.32")
    assert min(TABLE_1["CIFAR-10, unconditional"], key=lambda row: float(row.fid or "inf")).model == "MoLM"
    assert max(every, key=lambda row: float(row.inception.split()[0])) == ("BigGAN", "9.22", "14.73")


def test_a_data_set_that_the_paper_does_not_have(tmp_path: Path) -> None:
    report = fake(tmp_path / "docs" / "results", "faces-large", seed=4, digits=None)
    text = made(tmp_path / "docs")
    assert "## faces\n" in text
    assert 'src="results/faces-large/samples.png"' in text
    assert f"{report['numbers']['plain']['fid']:.2f} (n = 5,000)" in text
    section = text.partition("## faces\n")[2]
    assert "Not measured yet" not in section  # there is no recipe of that name
    assert "train faces" not in section
    fake(tmp_path / "docs" / "results", "dogs", seed=5, digits=None)
    section = made(tmp_path / "docs").partition("## dogs\n")[2].partition("\n## ")[0]
    assert "Figure" not in section
    assert section.count("| **Not in the paper**: ") == 5


@pytest.mark.parametrize(
    "recipe",
    [
        *RECIPES.values(),
        replace(RECIPES["mnist"], ema=0.999, steps=1000),
        replace(RECIPES["cifar10"], flip=False, dequantise=False, data="my_images"),
        replace(RECIPES["tiny"], image_size=None),
    ],
)
def test_the_train_command_makes_the_recipe(recipe: Any) -> None:  # noqa: ANN401
    words = train_command(asdict(recipe)).split()
    assert words[:2] == ["scorefield", "train"]
    assert training._parsed(words[2], RECIPES[words[2]], words[3:]).recipe == recipe


def test_the_train_command_trains_as_long_as_the_model_was_and_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "mnist-small", seed=0)
    report["model"]["step"] = 16_501
    report["model"]["recipe"] |= {"checkpoint_every": 25_000, "evaluate_every": 2_500, "log_every": 7, "previews": 64}
    report["model"]["recipe"] |= {"preview_steps": 3}
    (folder / "mnist-small" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    assert "scorefield train mnist-small --steps 16501 --out runs/mnist-small\n# 16,501 iterations" in text


def test_a_model_that_was_selected_is_of_a_run_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "cifar10", seed=0, digits=None)
    report["model"]["step"] = 145_000
    report["command"] = "scorefield report runs/cifar10/best --out docs/results/cifar10 -n 5000"
    (folder / "cifar10" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    assert "scorefield train cifar10 --out runs/cifar10\n# 145,000 iterations of" in text
    assert "\nscorefield select runs/cifar10\nscorefield report runs/cifar10/best --out" in text


def test_an_imported_model_has_no_train_command(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    report = fake(folder, "cifar10", seed=0, digits=None, training=None)
    report["model"] |= {"step": 0, "imported_from": "checkpoint_200000.pth"}
    (folder / "cifar10" / "report.json").write_text(json.dumps(report))
    text = made(tmp_path / "docs")
    assert "```sh\n# imported from checkpoint_200000.pth\nscorefield report runs/cifar10 --out" in text
    assert "scorefield train cifar10 " not in text


# ---------------------------------------------------------------- numbers that are not there


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
    assert row_of(text, "FID")[1:] == ["25.32", "–"]
    assert row_of(text, "KID, denoised")[2] == (f"{report['numbers']['denoised']['kid']:.5f} ± – (n = 4,000 and 3,000)")
    assert row_of(text, "**NCSN, denoised (ours)**")[1] == "8.12 ± – (n = 5,000)"
    assert "is – times theirs" in text


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
    assert "pip install 'scorefield[figures]'" in capsys.readouterr().err
    (docs / "results" / "mnist" / "report.json").write_text("{}")
    with pytest.raises(SystemExit) as stopped:
        main(["results", results])
    assert stopped.value.code == 2
    assert "mnist/report.json is no report" in capsys.readouterr().err
    assert not (docs / "results.md").exists()


@pytest.mark.skipif(not list((DOCS / "results").glob("*/report.json")), reason="there are no reports yet")
def test_the_page_in_the_docs_is_made_of_the_reports_in_the_docs() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert text == page(read_reports(DOCS / "results"), DOCS / "results", DOCS / "results.md")
    for link in re.findall(r'src="(.*?)"', text):
        assert (DOCS / link).is_file()


def test_the_files_made_are_told(docs: Path) -> None:
    files = make_page(docs / "results", docs / "results.md")
    assert len(files) == 4
    assert all(file.is_file() for file in files)
