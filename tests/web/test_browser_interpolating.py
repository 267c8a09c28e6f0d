"""The web page in a real browser: images between two others."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from web.browser import SIZE, downloaded, draw, picture, pixels, until
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
    thumbnail = page.get_attribute("#gallery li img", "src").partition(",")[2]
    quarters = picture(base64.b64decode(thumbnail)).reshape(2, 48, 2, 48).mean((1, 3))
    assert abs(quarters.ravel() - array.mean((1, 2, 3))).max() < 2  # the four images, and no bars
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#interpolate .after:not([hidden])")
    assert pixels(page, LARGE) == seen[0]
    assert page.input_value("#interpolate [name=to_seed]") == "8"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_settings_stay_when_the_list_of_models_is_read_again(page: Any, address: str) -> None:
    """As happens when a run has a new checkpoint."""
    page.goto(f"{address}/#/interpolate")
    page.wait_for_selector("#interpolate [name=model] option", state="attached")
    page.fill("#interpolate [name=calls]", "7")
    page.check("#interpolate [name=ends][value=images]", force=True)
    page.click("#interpolate .end[data-end=image] .examples button >> nth=2")
    until(page, "document.querySelector('.end[data-end=image] .chosen').textContent === 'Example 4'")
    page.evaluate("document.dispatchEvent(new Event('models'))")
    page.wait_for_timeout(100)
    assert page.input_value("#interpolate [name=calls]") == "7"
    assert page.text_content("#interpolate .end[data-end=image] .chosen") == "Example 4"


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
    assert "A link cannot hold your own images" in page.text_content("#interpolate .downloads")
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


def test_a_long_interpolation_needs_a_second_press_and_a_link_to_it_starts_nothing(page: Any, address: str) -> None:
    asked: list[str] = []
    works: list[dict[str, Any]] = []

    def estimate(route: Any) -> None:
        works.append(route.request.post_data_json)
        route.fulfill(json={"seconds": 5.0 * works[-1]["n"] * works[-1]["calls"]})

    page.on("request", lambda sent: asked.append(sent.url) if sent.url.endswith("/api/interpolate") else None)
    page.unroute("**/api/estimate")
    page.route("**/api/estimate", estimate)
    page.goto(f"{address}/#/interpolate?model=pets&frames=2&seed=0&to_seed=1&calls=60")
    page.wait_for_selector("#interpolate .confirm:not([hidden])")
    words = page.text_content("#interpolate .confirm p").replace("\u00a0", " ")
    assert "These settings take about 10 min. Press “Interpolate” to start." in words
    assert "A path of 3 calls takes about 30 s." in words
    page.check("#interpolate [name=ends][value=images]", force=True)
    assert page.is_hidden("#interpolate .confirm")
    page.click("#interpolate .primary")
    page.wait_for_selector("#interpolate .confirm:not([hidden])")
    assert works[-1]["calls"] == 170  # about what the solver takes
    assert page.text_content("#interpolate .primary").replace("\u00a0", " ") == "Interpolate: about 28 min"
    page.wait_for_timeout(300)
    assert asked == []
    page.wait_for_timeout(700)  # no double click
    page.click("#interpolate .primary")
    page.wait_for_selector("#interpolate .after:not([hidden])")
    assert len(asked) == 1
    page.reload()  # shown again, not made again
    page.wait_for_selector("#interpolate .after:not([hidden])")
    assert len(asked) == 1


def test_each_class_is_listed_once_and_a_link_with_another_is_refused(page: Any, address: str) -> None:
    page.goto(f"{address}/#/interpolate?model=pets&frames=2&label=bird")
    until(page, "document.querySelector('#interpolate .error')?.textContent.includes('no class “bird”')")
    classes = page.locator("#interpolate [name=label] option")
    assert classes.all_text_contents() == ["Of each end", "cat", "dog", "7", "No class"]
    page.check("#interpolate [name=ends][value=images]", force=True)
    assert classes.all_text_contents() == ["No class", "cat", "dog", "7"]
    page.evaluate("location.hash = '#/interpolate?model=pets&frames=2&example=2&to_example=none'")
    until(page, "document.querySelector('#interpolate .error').textContent.includes('must name two of these examples')")
    assert page.is_hidden("#interpolate .after")


def test_a_file_that_is_no_image_is_named_in_an_alert(page: Any, address: str, tmp_path: Path) -> None:
    page.expected = ["415"]
    page.goto(f"{address}/#/interpolate")
    page.wait_for_selector("#interpolate [name=model] option", state="attached")
    page.check("#interpolate [name=ends][value=images]", force=True)
    (tmp_path / "words.png").write_text("words")
    page.set_input_files("#interpolate .end[data-end=image] [type=file]", tmp_path / "words.png")
    page.wait_for_selector("#interpolate .end[data-end=image] [role=alert]:not([hidden])")
    assert "words.png: " in page.text_content("#interpolate .end[data-end=image] [role=alert]")
    assert page.text_content("#interpolate .end[data-end=image] .chosen") == "Example 2"  # still in use
