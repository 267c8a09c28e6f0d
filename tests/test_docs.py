"""The Python code of the README and of the guides runs, as written and in its order; links and pictures exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def run_python(page: Path) -> dict[str, Any]:
    """Run all Python blocks of a page one after the other, and return their variables."""
    variables: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(page), "exec", dont_inherit=True), variables)
    return variables


def test_readme_samples_a_mixture_and_a_conditional(capsys: pytest.CaptureFixture[str]) -> None:
    variables = run_python(README)
    shares = [int(share) / 100 for share in re.findall(r"(\d+)% in the upper mode", capsys.readouterr().out)]
    assert len(shares) == 6
    assert abs(shares[0] - 0.5) <= 0.05  # the start is uniform
    assert abs(shares[-1] - 0.78) <= 0.04
    assert abs(variables["x"][:, 1].mean() - 5) < 0.2


def test_guide_trains_a_network_of_the_users_own_and_samples_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained on a folder, saved, loaded, sampled and inpainted, also with a sampler of the user's own."""
    monkeypatch.chdir(tmp_path)
    Path("my_images").mkdir()
    rng = np.random.default_rng(0)
    for k in range(20):
        Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(f"my_images/{k}.png")
    variables = run_python(ROOT / "docs" / "extending.md")
    model, mask = variables["model"], variables["mask"].bool()
    assert model.step == 20
    assert model.weights == "ema"
    assert isinstance(model.network, variables["MyNetwork"])
    images, completions = variables["images"], variables["completions"]
    assert images.shape == (4, 3, 16, 16)
    assert ((images >= 0) & (images <= 1)).all()
    known = (completions - images[0])[..., mask].square().mean().sqrt()
    assert known < 3 * model.sigmas[-1]  # the known half is kept, up to the noise of the last level
    assert not torch.equal(completions[0][..., ~mask], completions[1][..., ~mask])


def test_guide_to_restoring() -> None:
    """The restorations explain the measurement: ‖A x − y‖/(noise √M) is about 1."""
    torch.manual_seed(0)
    made = run_python(ROOT / "docs" / "restore.md")
    residual = (made["operator"](made["x"]) - made["y"]).square().mean().sqrt() / 0.05
    assert 0.8 < residual < 1.2


def test_guide_to_likelihoods() -> None:
    variables = run_python(ROOT / "docs" / "likelihood.md")
    exact = variables["digits"].log_prob(variables["x"], 0.01)
    assert (variables["nats"] - exact).abs().max() < 0.01
    assert (variables["again"] - variables["x"]).abs().max() < 1e-3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_and_links_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    places = re.findall(r"!?\[[^\]]*\]\(([^)#]+?)(?:#[^)]*)?\)", text) + re.findall(r'src="([^"]+)"', text)
    for place in places:
        if not place.startswith(("http://", "https://")):
            assert (page.parent / place).exists(), place
