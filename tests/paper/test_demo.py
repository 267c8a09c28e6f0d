"""The demo, with tiny models in place of the pretrained ones."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

import scorefield
from scorefield.cli import main
from scorefield.models import pretrained
from scorefield.models.build import build_network
from scorefield.models.model import load, save_model
from scorefield.models.recipes import Recipe
from scorefield.paper import demo
from scorefield.progress import track
from scorefield.samplers import ConsistentAnnealed, to_dict

RECIPE = Recipe(width=2, levels=2, step_size=1e-5, sample_steps=12)
FAST = Recipe(network="unet", width=4, stages=(1, 1), blocks=(1, 1), attention=(), labels=True, sigma_max=40.0)
FAST = replace(FAST, sigma_min=0.001, sigma_draw="log_normal", sampler="adams_bashforth", sample_calls=10)
CALLS = 8
OWN_CALLS = demo.CALLS
MEASUREMENTS = Path(__file__).parents[2] / "docs" / "measurements"
VOID = {"meta", "link", "img", "source"}


class Made(NamedTuple):
    """A demo in a folder, its page, and what was printed to stderr."""

    demo: demo.Demo
    folder: Path
    page: str
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
    """Tiny untrained networks are the pretrained models."""
    folder = tmp_path_factory.mktemp("weights")
    network, path = build_network(RECIPE, channels=1), folder / f"{demo.MODEL}.safetensors"
    save_model(
        path, network.state_dict(), None, recipe=RECIPE, shape=(1, 28, 28), step=1234, metadata={"data": "mnist"}
    )
    weights, labels = build_network(FAST, channels=1, labels=10).state_dict(), tuple(map(str, range(10)))
    fast = folder / f"{demo.FAST}.safetensors"
    save_model(fast, weights, None, recipe=FAST, shape=(1, 28, 28), step=5, labels=labels, metadata={"data": "mnist"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "FOLDERS", [folder])
        patch.setattr(demo, "CALLS", CALLS)
        yield


@pytest.fixture(scope="module")
def made(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("with space")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        err = io.StringIO()
        patch.setattr(sys, "stderr", err)
        made = demo.make(Path("my demo"), seed=3, track=track)
    place = folder / "my demo"
    return Made(made, place, (place / "index.html").read_text(encoding="utf-8"), err.getvalue())


def test_the_demo_shows_the_papers_main_argument(made: Made) -> None:
    share = json.loads((made.folder / "fig3.json").read_text())["heavy_fraction"]
    assert abs(share["exact"] - 0.8) <= 0.03
    assert abs(share["langevin"] - 0.5) <= 0.06
    assert abs(share["annealed"] - 0.78) <= 0.03
    text = Page(made.page).text
    for method in share:
        assert f"{share[method]:.1%}" in text


def test_it_shows_progress(made: Made) -> None:
    assert made.err.count("1000 of 1000") == 2
    assert made.err.count(f"{CALLS} of {CALLS}") == 2


def test_it_says_which_files_it_made(made: Made) -> None:
    names = ["fig3.png", "digits.png", "digits.gif", "completions.png", "chosen.png", "restored.png", "index.html"]
    assert made.demo.files == [Path("my demo") / name for name in names]
    assert all((made.folder / name).is_file() for name in [*names, "digit.png", "demo.json"])


def test_the_command_makes_the_demo_and_prints_its_files(
    tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["demo", "--out", str(tmp_path / "demo")])
    printed = capsys.readouterr().out
    names = {"fig3.png", "digits.png", "digits.gif", "completions.png", "chosen.png", "restored.png", "index.html"}
    assert names <= {Path(word).name for word in printed.split()}
    share = json.loads((tmp_path / "demo" / "fig3.json").read_text())["heavy_fraction"]
    assert all(f"{value:.1%}" in printed for value in share.values())


def test_the_page_needs_no_other_files(made: Made) -> None:
    page = Page(made.page)
    assert not page.tags & {"script", "iframe", "object", "video", "audio"}
    assert all(resource.startswith("data:") for resource in page.resources)
    assert page.links == ["https://arxiv.org/abs/1907.05600"]
    assert not re.search(r"url\(|@import", made.page)
    assert not re.search(r"\$|\{\{|\{%", made.page)  # every placeholder is filled
    assert "prefers-color-scheme: dark" in made.page
    assert "1,234" in page.text  # the number of training steps


def test_the_page_holds_every_picture(made: Made) -> None:
    inside = [base64.b64decode(each.partition(",")[2]) for each in Page(made.page).resources if "base64" in each]
    assert all((made.folder / f"{name}.png").read_bytes() in inside for name in ("fig3", "chosen", "restored"))
    end = unzoomed(made.folder / "digits.png", 122)[0]
    animated = [each for each in inside if each.startswith(b"GIF")]
    assert len(animated) == 1
    with Image.open(io.BytesIO(animated[0])) as picture:
        picture.seek(CALLS - 1)
        assert np.array_equal(np.asarray(picture.convert("L")), end)
    stills = [np.asarray(Image.open(io.BytesIO(each))) for each in inside if each not in animated]
    assert sum(np.array_equal(each, end) for each in stills) == 2  # one of them for people who prefer reduced motion
    small = [each for each in stills if each.shape == (28, 28)]
    row, zoom = unzoomed(made.folder / "completions.png", 32)
    assert zoom > 1
    shown = [row[2:30, 2 + 30 * k : 30 + 30 * k] for k in range(demo.COMPLETIONS + 2)]
    assert len(small) == len(shown)
    assert all(np.array_equal(a, b) for a, b in zip(small, shown, strict=True))


def test_the_animation_ends_with_the_digits(made: Made) -> None:
    with Image.open(made.folder / "digits.gif") as picture:
        assert picture.n_frames == CALLS
        picture.seek(picture.n_frames - 1)
        last = np.asarray(picture.convert("L"))
    with Image.open(made.folder / "digits.png") as picture:
        assert np.array_equal(np.asarray(picture), last)


def unzoomed(path: Path, height: int) -> tuple[np.ndarray, int]:
    with Image.open(path) as picture:
        pixels = np.asarray(picture)
    zoom = pixels.shape[0] // height
    return pixels[::zoom, ::zoom], zoom


def test_completions_keep_the_known_half(made: Made) -> None:
    """To within 5 σ of the last level, 0.01. The hidden half differs."""
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
    names = ("digits.png", "completions.png", "chosen.png", "restored.png")
    for name, command in zip(names, commands[1:5], strict=True):
        before = (made.folder / name).read_bytes()
        (made.folder / name).unlink()
        main([*shlex.split(command)[1:], "--device", "cpu"])
        assert (made.folder / name).read_bytes() == before


def test_the_page_tells_its_sampler_and_the_papers(made: Made) -> None:
    """The numbers of the model's own sampler are its recipe's: 2 levels of 12 steps."""
    text = " ".join(Page(made.page).text.split())
    assert text.count("--sampler consistent_annealed --calls 8 --seed 3") == 2
    assert "16 samples, after 8 network calls" in text
    assert "T = 12 steps of size ε = 1e-05 at each noise level: 24 network calls" in text
    numbers = json.loads((made.folder / "demo.json").read_text())["digits"]
    assert numbers.items() >= {"sampler": "consistent_annealed", "calls": 8, "levels": 2}.items()


def test_the_demos_sampler_is_the_one_that_was_measured() -> None:
    """At least 88 % of the samples of its model are accepted as digits; the digit of the page is small."""
    measured = json.loads((MEASUREMENTS / "mnist_small_few_calls.json").read_text())
    model = load(Path(scorefield.__file__).parent / "weights" / f"{demo.MODEL}.safetensors")  # not the tiny one
    assert measured["model_digest"] == model.digest[:12]
    wanted = to_dict(ConsistentAnnealed(calls=OWN_CALLS).scheduled(model.accepted))
    (found,) = [each for each in measured["trials"] if each["sampler"] == wanted["name"] and each["calls"] == OWN_CALLS]
    assert found["steps_at_each_level"] == wanted["steps"]
    assert found["accepted"] - 2 * found["standard_error"] >= 0.88
    assert demo.DIGIT.stat().st_size < 500


def test_the_numbers_of_the_chosen_digits_are_measured() -> None:
    """Those that the page gives are of the results' files."""
    folder, page = MEASUREMENTS.parent / "results" / demo.FAST, demo.TEMPLATE.read_text(encoding="utf-8")
    guided, plain = (json.loads((folder / f"digits{name}.json").read_text()) for name in ("_guided", ""))
    assert (guided["guidance"], guided["n"], plain["n"]) == (demo.GUIDANCE, 2000, 10_000)
    numbers = guided["accepted"], guided["as_asked"], plain["accepted"]
    assert re.findall(r"(\d\d\.\d)&nbsp;%", page)[-3:] == [f"{100 * each:.1f}" for each in numbers]


def test_errors_come_before_the_work(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(ImportError, match="matplotlib"):
            demo.make(tmp_path / "demo", track=track)
    monkeypatch.setattr(pretrained, "FOLDERS", [tmp_path / "nowhere"])
    with pytest.raises(OSError, match=r"lacks a model of the demo, mnist-small \(install scorefield again\)"):
        demo.make(tmp_path / "demo", track=track)
    assert not capsys.readouterr().err  # no progress was shown


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--out", str(tmp_path / "taken")])
    assert stopped.value.code == 1
    assert str(tmp_path / "taken") in capsys.readouterr().err
