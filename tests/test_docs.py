"""The README and the guides: their Python runs as written and in its order, their commands have valid options, links
and pictures exist, the notebooks run, and the site builds without a warning.

scripts/run_docs_commands.py runs the commands themselves.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import tyro

from scorefield.cli import MODULES, app
from scorefield.models.build import build_network
from scorefield.models.model import load, save_model
from scorefield.models.pretrained import pretrained_models
from scorefield.models.recipes import RECIPES

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
COMMANDS = runpy.run_path(str(ROOT / "scripts" / "run_docs_commands.py"))
DIGITS = "unet-mnist"
"""The model of the first example. Where this installation lacks it, an untrained one takes its place."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files in the place of the pretrained models that this installation lacks."""
    if DIGITS in pretrained_models():
        return {}
    file, recipe, labels = tmp_path_factory.mktemp("models") / "digits.safetensors", RECIPES[DIGITS], "0123456789"
    weights = build_network(recipe, channels=1, labels=len(labels)).state_dict()
    save_model(file, weights, None, recipe=recipe, shape=(1, 28, 28), step=0, labels=tuple(labels))
    return {DIGITS: file}


def make_shapes(n: int) -> None:
    """The folder of images that the guides train on."""
    script = ROOT / "scripts" / "make_shapes.py"
    subprocess.run([sys.executable, script, "my_images", "-n", str(n)], check=True, capture_output=True)


def run_python(page: Path, models: dict[str, Path], *, apart: bool = False) -> dict[str, Any]:
    """Run all Python blocks of a page one after the other, and return their variables. `apart`: each is a program."""
    made: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        variables = {} if apart else made
        text = COMMANDS["with_models"](block, models)
        exec(compile(text, str(page), "exec", dont_inherit=True), variables)
        made = made | variables if apart else variables
    return made


def test_readme_is_short_and_starts_with_code() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert "```python" in lines[:15]


def test_readme_samples_completes_and_restores(models: dict[str, Path]) -> None:
    made = run_python(README, models)
    assert made["images"].shape == made["sevens"].shape == (16, 1, 28, 28)
    for name in ("images", "sevens", "filled", "large"):
        assert ((made[name] >= 0) & (made[name] <= 1)).all()
    known = made["mask"].bool()
    assert (made["filled"] - made["sevens"][0])[..., known].abs().max() < 0.02  # σ is 0.001 at the end
    assert made["filled"][:, 0, ~known].std(0).max() > 0.01  # the completions differ
    explained = (made["lines"](made["x"]) - made["y"]).square().mean().sqrt() / 0.05
    assert 0.7 < explained < 1.4
    assert made["error_bars"][0, ::4].mean() < made["error_bars"][0, 2::4].mean()  # unknown rows are less certain


def test_five_pictures_in_code(capsys: pytest.CaptureFixture[str], models: dict[str, Path]) -> None:
    variables = run_python(DOCS / "idea.md", models)
    shares = [int(share) / 100 for share in re.findall(r"(\d+)% in the upper mode", capsys.readouterr().out)]
    assert len(shares) == 6
    assert abs(shares[0] - 0.5) <= 0.05  # the start is uniform
    assert abs(shares[-1] - 0.78) <= 0.04
    assert abs(variables["x"][:, 1].mean() - 5) < 0.2


def test_guide_trains_on_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: dict[str, Path]) -> None:
    monkeypatch.chdir(tmp_path)
    make_shapes(60)
    made = run_python(DOCS / "train.md", models)
    assert made["model"].labels == ("circle", "cross", "square", "star", "triangle")
    assert made["model"].step == made["recipe"].steps
    assert made["images"].shape == (8, 3, 16, 16)


def test_guide_to_extending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: dict[str, Path]) -> None:
    """A network, a sampler, an operator and a data set of the user's own: each a program of its own."""
    monkeypatch.chdir(tmp_path)
    make_shapes(20)
    made = run_python(DOCS / "extending.md", models, apart=True)
    own = load("runs/own", network=made["MyNetwork"]())
    assert (own.step, own.weights) == (20, "ema")
    assert made["images"].shape == (4, 1, 28, 28)
    known = made["mask"].bool()
    assert (made["completions"] - made["images"][0])[..., known].square().mean().sqrt() < 3 * made["sampler"].sigmas[-1]
    assert not torch.equal(*made["completions"][..., ~known])
    operator, x, y = made["A"], torch.rand(1, 1, 28, 28), torch.rand(1, 1, 28, 14)
    assert torch.allclose((operator(x) * y).sum(), (x * operator.adjoint(y)).sum())
    residual = (operator(made["unfolded"]) - made["seen"]).square().mean().sqrt() / 0.05
    assert residual < 4  # samples are cut off at 0 and 1; of images that do not know y it is above 10
    assert made["loaded"].classes == ("upright", "lying")
    assert abs((made["x"] > 0).float().mean() - 0.75) < 0.12


def test_guide_to_sampling(models: dict[str, Path]) -> None:
    made = run_python(DOCS / "samplers.md", models)
    assert made["images"].shape == (4, 1, 28, 28)
    assert made["calls"] == 30


def test_guide_to_restoring(models: dict[str, Path]) -> None:
    """The restorations explain the measurement: ‖A x − y‖/(noise √M) is about 1."""
    torch.manual_seed(0)
    made = run_python(DOCS / "restore.md", models)
    residual = (made["operator"](made["x"]) - made["y"]).square().mean().sqrt() / 0.05
    assert 0.8 < residual < 1.2


def test_guide_to_likelihoods(models: dict[str, Path]) -> None:
    variables = run_python(DOCS / "likelihood.md", models)
    exact = variables["digits"].log_prob(variables["x"], 0.01)
    assert (variables["nats"] - exact).abs().max() < 0.01
    assert (variables["again"] - variables["x"]).abs().max() < 1e-3


def test_guide_to_measuring(models: dict[str, Path]) -> None:
    made = run_python(DOCS / "measure.md", models)
    assert made["small"] > 5 * made["large"]  # the same distribution: the distance falls as 1/n
    assert made["large"] > 0


def test_start_page(models: dict[str, Path]) -> None:
    made = run_python(DOCS / "index.md", models)
    assert made["score"].shape == made["images"].shape


def test_guide_to_the_unet(models: dict[str, Path]) -> None:
    made = run_python(DOCS / "unet.md", models)
    assert made["score"].shape == made["x"].shape


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_of_a_page_is_run_by_a_test(page: Path) -> None:
    """A page with Python that no test above runs would go stale."""
    run = re.findall(r'run_python\((?:DOCS / )?"?(\w+)', Path(__file__).read_text(encoding="utf-8"))
    if re.search("^```py", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert page.stem in run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_valid_options(page: Path) -> None:
    """Every scorefield command of a page is parsed as the command line does it, without being run."""
    for command in COMMANDS["commands"](page.read_text(encoding="utf-8")):
        words = COMMANDS["scorefield_words"](command)
        if words is None or words[1:] == ["--help"]:
            assert command.text.split()[0] != "scorefield" or words is not None
            continue
        name, *options = words
        if not name.startswith("-"):
            assert name in MODULES, command.text
            importlib.import_module(f"scorefield.cli.{MODULES[name]}")
            called = app.FUNCTIONS[name]
            parse = functools.wraps(called)(lambda *_, **__: None)
            if "--help" in options:
                with pytest.raises(SystemExit, match="0"):
                    tyro.cli(parse, prog=name, args=options)
            else:
                tyro.cli(parse, prog=name, args=options)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_and_links_exist(page: Path) -> None:
    """Files, and headings of pages."""
    text = page.read_text(encoding="utf-8")
    places = re.findall(r"!?\[[^\]]*\]\(([^)]+?)\)", text) + re.findall(r'src="([^"]+)"', text)
    for place in places:
        if not place.startswith(("http://", "https://")):
            name, _, anchor = place.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), place
            if anchor:
                assert anchor in anchors(target), place


def anchors(page: Path) -> list[str]:
    """Of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebooks_run(notebook: Path, tmp_path: Path, models: dict[str, Path]) -> None:
    """All cells, in a process of their own."""
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    code = COMMANDS["with_models"]("\n\n".join("".join(cell["source"]) for cell in cells), models)
    program = tmp_path / f"{notebook.stem}.py"
    program.write_text(code, encoding="utf-8")
    environment = os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebooks_are_small(notebook: Path) -> None:
    assert notebook.stat().st_size < 400_000


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Sphinx, with warnings as errors: every link between pages, and every name of the API reference, exists."""
    pytest.importorskip("myst_parser", reason="pip install -e '.[docs]' brings what builds the site")
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for page in ("index", "idea", "api", "faq", "results", "appendix"):
        assert (tmp_path / f"{page}.html").stat().st_size > 3_000
    assert "annealed_langevin" in (tmp_path / "api.html").read_text(encoding="utf-8")
