"""The recorded films of the pretrained models, and the page in a real browser that plays them."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

import io
import json
from base64 import b64decode
from typing import Any

import numpy as np
from PIL import Image

import scorefield as sf
from scorefield.web.server import PAGE
from web.browser import SIZE, draw, pixels, until
from web.browser import address as address
from web.browser import browser as browser
from web.browser import page as page

FILMS = PAGE / "films"
CANVAS = "#sample .recorded canvas"
MADE_UP = {"frames": 3, "sigmas": [0.5, 0.1, 0.0], "n": 2, "columns": 2, "shape": [1, SIZE, SIZE], "trained": 100}
GREYS = (30, 120, 210)
"""Of the three frames of the made-up film."""


def test_every_film_fits_its_description_and_the_shipped_weights() -> None:
    films = json.loads((FILMS / "films.json").read_text())
    assert {f"{name}.webp" for name in films} == {file.name for file in FILMS.glob("*.webp")}
    for name, film in films.items():
        _, height, width = film["shape"]
        with Image.open(FILMS / f"{name}.webp") as sheet:
            rows = -(-film["n"] // film["columns"])
            assert sheet.size == (film["columns"] * width, film["frames"] * rows * height), name
        assert (FILMS / f"{name}.webp").stat().st_size < 300_000
        assert len(film["sigmas"]) == film["frames"]
        assert film["sigmas"] == sorted(film["sigmas"], reverse=True)
        assert film["sigmas"][-1] == 0
    model = sf.load("mnist-small")
    assert films["mnist-small"]["digest"] == model.digest[:12]
    assert films["mnist-small"]["trained"] == model.step


def play_made_up(page: Any) -> None:
    """Give the page a film of its tiny model, of three grey frames."""
    sheet, content = np.repeat(GREYS, SIZE)[:, None].repeat(2 * SIZE, 1).astype(np.uint8), io.BytesIO()
    Image.fromarray(sheet).save(content, "PNG")
    film = {**MADE_UP, "sampler": "consistent_annealed", "calls": 30}
    page.route("**/films/films.json", lambda route: route.fulfill(json={"mnist-small": film}))
    page.route("**/films/*.webp", lambda route: route.fulfill(body=content.getvalue(), content_type="image/png"))


def grey(page: Any) -> int:
    """The grey value of the film's first pixel."""
    sheet = np.asarray(Image.open(io.BytesIO(b64decode(pixels(page, CANVAS).split(",")[1]))).convert("L"))
    return int(sheet[0, 0])


def test_a_film_plays_until_the_user_draws(page: Any, address: str) -> None:
    play_made_up(page)
    page.goto(f"{address}/#/sample")
    page.select_option("#sample [name=model]", "mnist-small")
    page.wait_for_selector(CANVAS)
    assert page.is_hidden("#sample .film .stage")
    first = grey(page)
    assert first < GREYS[-1]
    until(page, "document.querySelector('#sample .recorded .row span').textContent === 'the samples'")
    assert grey(page) == GREYS[-1]
    name = page.get_attribute(CANVAS, "aria-label")
    assert name == "A recorded film: 2 samples of mnist-small appear, first as blurs, then as images."
    page.focus("#sample .recorded button")
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="Play the recording").count() == 1
    paused = pixels(page, CANVAS)
    page.wait_for_timeout(300)
    assert pixels(page, CANVAS) == paused
    page.click("#sample .recorded button")
    page.wait_for_selector("#sample .recorded button[aria-label='Pause the recording']")
    page.select_option("#sample [name=model]", "first")  # it has no film
    page.wait_for_selector(CANVAS, state="detached")
    assert page.is_visible("#sample .film .stage")
    page.select_option("#sample [name=model]", "mnist-small")
    page.wait_for_selector(CANVAS)
    draw(page)
    assert page.is_hidden("#sample .recorded")
    assert page.is_visible("#sample .film .stage")


def test_with_reduced_motion_a_film_shows_its_end_until_it_is_asked_to_play(page: Any, address: str) -> None:
    play_made_up(page)
    page.emulate_media(reduced_motion="reduce", color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/#/sample")
    page.select_option("#sample [name=model]", "mnist-small")
    page.locator(CANVAS).scroll_into_view_if_needed()
    until(page, "document.querySelector('#sample .recorded .row span').textContent === 'the samples'")
    assert grey(page) == GREYS[-1]
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("button", name="Play the recording").click()
    until(page, "document.querySelector('#sample .recorded .row span').textContent !== 'the samples'")


def test_a_film_of_other_weights_is_not_shown(page: Any, address: str) -> None:
    page.goto(f"{address}/#/sample")  # this server's mnist-small is a tiny one
    with page.expect_response("**/films/films.json"):
        page.reload()
    page.wait_for_timeout(200)
    assert page.locator(CANVAS).count() == 0
    assert page.is_visible("#sample .film .stage")
