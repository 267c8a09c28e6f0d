"""The README and the guides: their Python runs as written and in its order, their commands have valid options, links and
pictures exist, the notebooks run, and the site builds without a warning.

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
from scorefield.models.model import save_model
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


def run_python(page: Path, models: dict[str, Path]) -> dict[str, Any]:
    """Run all Python blocks of a page one after the other, and return their variables."""
    variables: dict[str, Any] = {"__name__": page.stem}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        text = COMMANDS["with_models"](block, models)
        exec(compile(text, str(page), "exec", dont_inherit=True), variables)
    return variables


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


def test_guide_trains_on_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: dict[str, Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "scripts" / "make_shapes.py"))["make"](Path("my_images"), each=30)
    made = run_python(DOCS / "train.md", models)
    assert made["model"].labels == ("discs", "squares")
    assert made["model"].step == made["recipe"].steps
    assert made["images"].shape == (8, 3, 16, 16)


def test_guide_to_extending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: dict[str, Path]) -> None:
    """A network, a sampler, an operator and a data set of the user's own."""
    monkeypatch.chdir(tmp_path)
    made = run_python(DOCS / "extending.md", models)
    model, mask = made["model"], made["mask"].bool()
    assert model.step == 20
    assert model.weights == "ema"
    assert isinstance(model.network, made["MyNetwork"])
    images, completions = made["images"], made["completions"]
    assert images.shape == (4, 3, 16, 16)
    assert ((images >= 0) & (images <= 1)).all()
    known = (completions - images[0])[..., mask].square().mean().sqrt()
    assert known < 3 * model.sigmas[-1]  # the known half is kept, up to the noise of the last level
    assert not torch.equal(completions[0][..., ~mask], completions[1][..., ~mask])
    residual = (made["A"](made["bright"]) - made["seen"]).square().mean().sqrt() / 0.05
    assert 0.8 < residual < 1.2
    x, y = torch.rand(1, 1, 8, 8), torch.rand(1, 1, 8, 4)
    assert torch.allclose((made["A"](x) * y).sum(), (x * made["A"].adjoint(y)).sum())
    assert made["sliced"].item() < 0


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


def test_guide_to_the_unet(models: dict[str, Path]) -> None:
    made = run_python(DOCS / "unet.md", models)
    assert made["score"].shape == made["x"].shape


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_of_a_page_is_run_by_a_test(page: Path) -> None:
    """A page with Python that no test above runs would go stale."""
    run = re.findall(r'run_python\((?:DOCS / )?"?([\w.]+)"?', Path(__file__).read_text(encoding="utf-8"))
    if re.search("^```py", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert page.name in [name.replace("README", "README.md") for name in run]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_valid_options(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
            try:
                tyro.cli(parse, prog=name, args=options)
            except SystemExit as end:
                assert "--help" in options and not end.code, command.text  # noqa: PT018


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
