"""The web page in a real browser: images between two others."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from web.browser import SIZE, downloaded, draw, pixels, until
from web.browser import address as address
from web.browser import browser as browser
from web.browser import page as page

LARGE = "#interpolate .large"


def test_a_slider_leads_from_seed_to_seed_and_a_link_makes_the_same(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/#/interpolate")
    page.wait_for_selector("#interpolate [name=model] option", state="attached")
    assert page.locator("#interpolate [name=model] option").all_text_contents() == ["pets"]
    page.fill("#interpolate [name=frames]", "4")
    page.fill("#interpolate [name=to_seed]", "8")
    page.select_option("#interpolate [name=label]", "dog")
    assert page.is_disabled("#interpolate .way")
    draw(page, "interpolate")
    array = np.load(io.BytesIO(downloaded(page, "#interpolate .downloads button:has-text('NPY')")[1]))
    assert array.shape == (4, SIZE, SIZE, 1)
    seen = []
    page.focus("#interpolate .way")
    for k in range(4):
        seen.append(pixels(page, LARGE))
        assert page.get_attribute("#interpolate .way", "aria-valuetext") == f"image {k + 1} of 4"
        page.keyboard.press("ArrowRight")
    assert len(set(seen)) == 4
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#interpolate .after:not([hidden])")
    assert pixels(page, LARGE) == seen[0]
    assert page.input_value("#interpolate [name=to_seed]") == "8"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_between_an_example_and_an_own_image(page: Any, address: str, tmp_path: Path) -> None:
    page.goto(f"{address}/#/interpolate")
    page.wait_for_selector("#interpolate [name=model] option", state="attached")
    page.check("#interpolate [name=ends][value=images]", force=True)
    page.fill("#interpolate [name=frames]", "2")
    page.click("#interpolate .end[data-end=image] .examples button >> nth=2")
    until(page, "document.querySelector('.end[data-end=image] .chosen').textContent === 'Example 4'")
    Image.new("L", (SIZE, SIZE), 90).save(tmp_path / "mine.png")
    page.set_input_files("#interpolate .end[data-end=to_image] [type=file]", tmp_path / "mine.png")
    until(page, "document.querySelector('.end[data-end=to_image] .chosen').textContent === 'mine.png'")
    draw(page, "interpolate")
    assert "--images 4.png mine.png" in page.text_content("#interpolate .command code")
    assert "could not hold your own images" in page.text_content("#interpolate .downloads")
    assert page.text_content("#interpolate .place") == "Image 1 of 2"


def test_without_a_model_for_all_noise_levels_the_page_says_what_to_do(page: Any, address: str) -> None:
    def older(route: Any) -> None:
        answer = route.fetch().json()
        models = [each for each in answer["models"] if each["range"] is None]
        route.fulfill(content_type="application/json", body=json.dumps(answer | {"models": models}))

    page.route("**/api/models", older)
    page.goto(f"{address}/#/interpolate")
    page.wait_for_selector("#interpolate .cannot:not([hidden])")
    assert page.is_hidden("#interpolate form")
    assert "scorefield train unet-mnist" in page.text_content("#interpolate .cannot")
