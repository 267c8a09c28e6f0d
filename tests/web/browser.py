"""A real browser for the tests of the web page, which are skipped without one, and a server with tiny models."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import guidable
import numpy as np
import pytest
from PIL import Image

from scorefield.images import grid, save_png
from scorefield.models import pretrained
from scorefield.models.build import build_network, build_schedule
from scorefield.models.model import save_model
from scorefield.models.recipes import Recipe
from scorefield.training.logs import columns

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
pytest.importorskip("starlette", reason="needs the web extra (pip install 'scorefield[web]')")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("needs Chromium (apt-get install chromium)", allow_module_level=True)

from scorefield.web.limits import Limits  # noqa: E402
from scorefield.web.server import Server, listen  # noqa: E402

ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
ARGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
RECIPE = Recipe(width=2, levels=3, sigma_max=0.5, step_size=2e-5, sample_steps=8, steps=200, previews=5)
SIZE = 12
LARGE = (40, 30)
"""Width and height of another model's images, whose pixels are small on the screen."""
RUN = "first"
MORE = "try { localStorage.setItem('more', 'open') } catch { /* not allowed */ }"
"""A script for a new page: the user has left “More settings” open."""
GREY = 100
"""The grey value of all samples of that run's last step."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a tiny model, a larger one, one with classes and a run folder, in a thread."""
    folder = tmp_path_factory.mktemp("served")
    weights = build_network(RECIPE, channels=1).state_dict()
    for path in ("pretrained/mnist-small.safetensors", f"{RUN}/checkpoints/model-00000100.safetensors"):
        save_model(folder / path, weights, None, recipe=RECIPE, shape=(1, SIZE, SIZE), step=100, metadata={"data": "x"})
    large = folder / "large.safetensors"
    save_model(large, weights, None, recipe=RECIPE, shape=(1, *LARGE[::-1]), step=100, metadata={"data": "x"})
    pets = folder / "pets.safetensors"
    classes = guidable.guidable_network().state_dict()
    save_model(pets, classes, None, recipe=guidable.RECIPE, shape=(1, SIZE, SIZE), step=5, labels=guidable.NAMES)
    write_run(folder / RUN)
    with pytest.MonkeyPatch.context() as patch, listen("127.0.0.1", 0) as listening:
        patch.setattr(pretrained, "FOLDERS", [folder / "pretrained"])
        port = listening.getsockname()[1]
        limits = Limits(work_seconds=1e9, client_seconds=1e9)  # a job is long on a busy machine
        server = Server([str(folder / RUN), str(large), str(pets)], port=port, device="cpu", limits=limits)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def write_run(folder: Path) -> None:
    """A run that stopped half way."""
    (folder / "recipe.json").write_text(json.dumps(asdict(RECIPE)))
    names = ["step", *columns("loss", build_schedule(RECIPE).tolist()), "learning_rate", "images_per_second", "seconds"]
    with (folder / "log.csv").open("w", newline="") as file:
        rows = [[k, 3 / k, 4 / k, 3 / k, 2 / k, 1e-3, 500, k] for k in range(10, 110, 10)]
        csv.writer(file).writerows([names, *rows])
    (folder / "samples").mkdir()
    Image.new("L", (30, 30), 50).save(folder / "samples" / "00000050.png")
    images = np.full((RECIPE.previews, SIZE, SIZE, 1), GREY, np.uint8)
    save_png(folder / "samples" / "00000100.png", grid(images), zoom=5)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser with one context, whose pages share their cache but not what they remember."""
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGS)
        browser.new_context(viewport={"width": 1100, "height": 760}, accept_downloads=True)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that must not contact another host, nor log an error or a warning. It is told that a job takes a second,
    for what the server measures depends on the machine."""
    page = browser.contexts[0].new_page()
    page.set_default_timeout(60_000)
    problems: list[str] = []
    page.on("console", lambda line: problems.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: None if own(request.url, address) else problems.append(request.url))
    page.expected = []  # patterns of problems that a test expects
    page.add_init_script(MORE)
    page.route("**/api/estimate", lambda route: route.fulfill(json={"seconds": 1}))
    yield page
    page.close()
    unexpected = [each for each in problems if not any(re.search(known, each) for known in page.expected)]
    assert not unexpected, unexpected


def own(url: str, address: str) -> bool:
    return url.startswith((f"{address}/", "blob:", "data:"))


def draw(page: Any, tab: str = "sample") -> None:
    with page.expect_response(f"**/api/{tab}"):
        page.click(f"#{tab} .primary")
    page.wait_for_selector(f"#{tab} .after:not([hidden])")


def until(page: Any, expression: str) -> None:
    """Wait until the expression is true. (Playwright's own wait needs eval, which the page's policy forbids.)"""
    for _ in range(1200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def pixels(page: Any, selector: str) -> str:
    """The content of a canvas as text."""
    return page.eval_on_selector(selector, "canvas => canvas.toDataURL()")


def downloaded(page: Any, click: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.click(click)
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def picture(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("L"))
