"""The demo, with a tiny model in the shipped one's place."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from scorefield.models import pretrained as shipped
from scorefield.models.checkpoint import save_model
from scorefield.cli import main
from scorefield.paper import demo
from scorefield.models.recipes import Recipe, network_of

RECIPE = Recipe(width=2, levels=2, step_size=1e-5, sample_steps=12)
STEPS = 4
OWN_STEPS = demo.STEPS
VOID = {"meta", "link", "img", "source"}


class Made(NamedTuple):
    """A demo made from the command line."""

    folder: Path
    page: str
    out: str
    err: str


class Page(HTMLParser):
    """Checks that tags are balanced, and collects what the page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.resources: list[str] = []
        self.links: list[str] = []
        self.text, self.code = "", list[str]()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "pre":
            self.code.append("")
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "href", "poster", "data"):
                (self.links if tag == "a" else self.resources).append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "pre" in self.open:
            self.code[-1] += data


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A tiny untrained model is the shipped one, and is sampled in a moment."""
    box = tmp_path_factory.mktemp("box")
    network, facts = network_of(RECIPE, channels=1), {"data": "mnist"}
    path = box / f"{demo.MODEL}.safetensors"
    save_model(path, network.state_dict(), None, recipe=RECIPE, shape=(1, 28, 28), step=1234, facts=facts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "FOLDERS", [box])
        patch.setattr(demo, "STEPS", STEPS)
        yield


@pytest.fixture(scope="module")
def made(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("with space")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        out, err = io.StringIO(), io.StringIO()
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        main(["demo", "--seed", "3", "--out", "my demo"])
    place = folder / "my demo"
    return Made(place, (place / "index.html").read_text(encoding="utf-8"), out.getvalue(), err.getvalue())


def test_the_demo_shows_the_papers_main_argument(made: Made) -> None:
    share = json.loads((made.folder / "fig3.json").read_text())["heavy_fraction"]
    assert abs(share["exact"] - 0.8) <= 0.03
    assert abs(share["langevin"] - 0.5) <= 0.06
    assert abs(share["annealed"] - 0.78) <= 0.03
    text = Page(made.page).text
    for method in share:
        assert f"{share[method]:.1%}" in made.out
        assert f"{share[method]:.1%}" in text


def test_it_tells_how_far_it_is_and_where_things_are(made: Made) -> None:
    calls = STEPS * RECIPE.levels
    for words in ("1000 of 1000", f"digits from noise: {calls} of {calls}", f"complete a digit: {calls} of {calls}"):
        assert words in made.err
        assert words not in made.out
    paths = made.out.splitlines()[-5:]
    names = ["fig3.png", "digits.png", "digits.gif", "completions.png"]
    assert paths == [*(str(Path("my demo") / name) for name in names), f"look at {Path('my demo') / 'index.html'}"]
    assert all((made.folder / name).is_file() for name in [*names, "index.html", "digit.png", "demo.json"])


def test_the_page_is_whole_and_asks_for_nothing(made: Made) -> None:
    page = Page(made.page)
    assert not page.tags & {"script", "iframe", "object", "video", "audio"}
    assert all(resource.startswith("data:") for resource in page.resources)
    assert page.links == ["https://arxiv.org/abs/1907.05600"]
    assert not re.search(r"url\(|@import", made.page)
    assert "$" not in made.page.replace(r"\$", "")
    assert "prefers-color-scheme: dark" in made.page
    assert "1,234 steps" in page.text


def test_the_page_holds_every_picture(made: Made) -> None:
    inside = [base64.b64decode(each.partition(",")[2]) for each in Page(made.page).resources if "base64" in each]
    assert (made.folder / "fig3.png").read_bytes() in inside
    end = unzoomed(made.folder / "digits.png", 122)[0]
    animated = [each for each in inside if each.startswith(b"GIF")]
    assert len(animated) == 1
    with Image.open(io.BytesIO(animated[0])) as picture:
        picture.seek(STEPS * RECIPE.levels - 1)
        assert np.array_equal(np.asarray(picture.convert("L")), end)
    stills = [np.asarray(Image.open(io.BytesIO(each))) for each in inside if each not in animated]
    assert sum(np.array_equal(each, end) for each in stills) == 2  # one of them for those who want no motion
    small = [each for each in stills if each.shape == (28, 28)]
    row, zoom = unzoomed(made.folder / "completions.png", 32)
    assert zoom > 1
    shown = [row[2:30, 2 + 30 * k : 30 + 30 * k] for k in range(demo.COMPLETIONS + 2)]
    assert len(small) == len(shown)
    assert all(np.array_equal(a, b) for a, b in zip(small, shown, strict=True))


def test_the_digits_come_from_noise_step_by_step(made: Made) -> None:
    with Image.open(made.folder / "digits.gif") as picture:
        assert picture.n_frames == STEPS * RECIPE.levels
        picture.seek(picture.n_frames - 1)
        last = np.asarray(picture.convert("L"))
    with Image.open(made.folder / "digits.png") as picture:
        assert np.array_equal(np.asarray(picture), last)


def unzoomed(path: Path, height: int) -> tuple[np.ndarray, int]:
    with Image.open(path) as picture:
        pixels = np.asarray(picture)
    zoom = pixels.shape[0] // height
    return pixels[::zoom, ::zoom], zoom


def test_completions_keep_what_is_known(made: Made) -> None:
    """To within 5 σ of the last level, 0.01; what is hidden differs."""
    row = unzoomed(made.folder / "completions.png", 32)[0].astype(int)
    given, *completions, original = (row[2:30, 2 + 30 * k : 30 + 30 * k] for k in range(demo.COMPLETIONS + 2))
    with Image.open(demo.DIGIT) as picture:
        assert np.array_equal(original, np.asarray(picture))
    assert (given[:, :14] == 128).all()
    assert np.array_equal(given[:, 14:], original[:, 14:])
    off = np.stack(completions) - original
    assert np.abs(off[:, :, 14:]).max() <= 5 * 0.01 * 255
    assert np.abs(off[:, :, :14]).mean() > 20
    numbers = json.loads((made.folder / "demo.json").read_text())["completions"]
    assert numbers["known_error"] == pytest.approx(np.sqrt(np.square(off[:, :, 14:]).mean()))
    assert numbers["hidden_spread"] == pytest.approx(np.stack(completions)[:, :, :14].std(0).mean())


def test_the_pages_commands_make_its_pictures(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Page(made.page).code
    monkeypatch.chdir(made.folder.parent)
    assert shlex.split(commands[0]) == ["scorefield", "figure", "fig3", "--out", "my demo", "--seed", "3"]
    for name, command in zip(("digits.png", "completions.png"), commands[1:], strict=False):
        before = (made.folder / name).read_bytes()
        (made.folder / name).unlink()
        main([*shlex.split(command)[1:], "--device", "cpu"])
        assert (made.folder / name).read_bytes() == before


def test_fewer_steps_than_the_models_own_are_larger_in_proportion_and_said(made: Made) -> None:
    assert "--steps 4 --step-size 3e-05" in Page(made.page).text
    assert "take T = 12 and ε = 1e-05" in Page(made.page).text


def test_the_demos_own_settings() -> None:
    """The step size stays well below 4σ² = 4e-4, where Langevin dynamics becomes unstable."""
    assert 2e-5 * 100 / OWN_STEPS <= 1e-4
    assert demo.DIGIT.stat().st_size < 500


def test_what_would_stop_it_is_said_before_the_work(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failure(out: Path) -> str:
        with pytest.raises(SystemExit) as stopped:
            main(["demo", "--out", str(out)])
        assert stopped.value.code == 1
        said = capsys.readouterr().err
        assert " of " not in said.replace("instance of", "")  # no work was begun
        return said

    (tmp_path / "taken").touch()
    assert "cannot make the folder" in failure(tmp_path / "taken")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        assert "pip install matplotlib" in failure(tmp_path / "demo")
    monkeypatch.setattr(shipped, "FOLDERS", [tmp_path / "nowhere"])
    assert "lacks the demo's model, mnist-small (install scorefield again" in failure(tmp_path / "demo")
