"""The web page in a real browser: an image that is painted on is looked at closely."""
# ruff: noqa: ANN401 (where playwright is missing, so are its types)

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from web_browser import LARGE, downloaded, draw, picture, pixels, until
from web_browser import address as address
from web_browser import browser as browser
from web_browser import page as page

WIDTH, HEIGHT = LARGE
ZOOM_IN, ZOOM_OUT = "#inpaint [data-zoom='2']", "#inpaint [data-zoom='0.5']"
TOUCH = """([kind, id, x, y]) => document.querySelector('.editor').dispatchEvent(new PointerEvent(kind,
    {pointerId: id, pointerType: 'touch', clientX: x, clientY: y, button: 0, bubbles: true, cancelable: true}))"""


def open_easel(page: Any, address: str) -> None:
    page.goto(f"{address}/#/inpaint")
    page.wait_for_selector("#inpaint [name=model] option", state="attached")
    page.select_option("#inpaint [name=model]", "large")
    until(page, f"document.querySelector('#fitted').textContent.includes('{WIDTH}\u00a0×\u00a0{HEIGHT}')")
    page.click("#inpaint [data-do=clear]")
    page.check("#inpaint [name=size][value='1']", force=True)


def seen(page: Any) -> dict[str, float]:
    """Of the window on the image: its sides, how far it is scrolled, and how large a pixel is, in CSS pixels."""
    page.wait_for_timeout(50)
    pane = page.eval_on_selector(
        "#inpaint .pane", "e => ({w: e.clientWidth, h: e.clientHeight, left: e.scrollLeft, top: e.scrollTop})"
    )
    return {**pane, "pixel": page.locator("#inpaint .ground").bounding_box()["width"] / WIDTH}


def place(page: Any, x: float, y: float) -> tuple[float, float]:
    """On the screen, of a place in the image's pixels."""
    page.locator("#inpaint .editor").scroll_into_view_if_needed()
    box = page.locator("#inpaint .ground").bounding_box()
    return box["x"] + x / WIDTH * box["width"], box["y"] + y / HEIGHT * box["height"]


def hidden_pixels(page: Any) -> list[tuple[int, int]]:
    """Fill the hole, and give x and y of what the mask hides."""
    draw(page, "inpaint")
    mask = picture(downloaded(page, "#inpaint .downloads button:has-text('Mask')")[1])
    assert mask.shape == (HEIGHT, WIDTH)
    return [(int(x), int(y)) for y, x in np.argwhere(mask == 0)]


@pytest.mark.parametrize("screen", [(1400, 900), (390, 844)])
def test_zooming_makes_pixels_large_enough_and_goes_back(page: Any, address: str, screen: tuple[int, int]) -> None:
    page.set_viewport_size({"width": screen[0], "height": screen[1]})
    open_easel(page, address)
    before, whole = seen(page), pixels(page, "#inpaint .editor")
    assert before["pixel"] < 24
    assert page.is_disabled(ZOOM_OUT)
    times = 0
    while page.is_enabled(ZOOM_IN):
        page.click(ZOOM_IN)
        times += 1
        now = seen(page)
        assert now["pixel"] == pytest.approx(before["pixel"] * 2**times)
        assert page.text_content("#inpaint .zoom output") == f"×\u2009{2**times}"
        middle = [(now["left"] + now["w"] / 2) / now["pixel"], (now["top"] + now["h"] / 2) / now["pixel"]]
        assert middle == pytest.approx([WIDTH / 2, HEIGHT / 2], abs=1)
    assert 24 <= now["pixel"] < 48
    assert page.evaluate("document.documentElement.scrollWidth") <= screen[0]
    for _ in range(times):
        page.click(ZOOM_OUT)
    assert seen(page) == before
    assert pixels(page, "#inpaint .editor") == whole


def test_a_pixel_is_hit_where_the_image_is_zoomed_and_scrolled(page: Any, address: str) -> None:
    open_easel(page, address)
    page.click(ZOOM_IN)
    page.mouse.move(*place(page, WIDTH / 2, HEIGHT / 2))
    page.mouse.wheel(2000, 2000)  # to the lower right corner
    until(page, "document.querySelector('.pane').scrollTop > 0")
    page.mouse.click(*place(page, 38.5, 28.5))
    page.eval_on_selector("#inpaint .pane", "pane => pane.scrollTo(0, 0)")
    seen(page)
    page.mouse.move(*place(page, 2.5, 3.5))
    page.mouse.down()
    page.mouse.move(*place(page, 5.5, 3.5))
    page.mouse.up()
    page.mouse.click(*place(page, 7.5, 3.5))
    assert hidden_pixels(page) == [(2, 3), (3, 3), (4, 3), (5, 3), (7, 3), (38, 28)]


def test_what_is_shown_is_the_part_that_is_scrolled_to(page: Any, address: str, tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH), np.uint8)
    Image.fromarray(image).save(tmp_path / "mine.png")
    open_easel(page, address)
    page.set_input_files("#inpaint [type=file]", tmp_path / "mine.png")
    until(page, "document.querySelector('#fitted').textContent.startsWith('mine.png')")
    page.click(ZOOM_IN)
    page.eval_on_selector("#inpaint .pane", "pane => pane.scrollTo(123, 77)")
    now = seen(page)
    page.mouse.move(0, 0)
    shot = np.asarray(Image.open(io.BytesIO(page.locator("#inpaint .editor").screenshot())).convert("L"))
    for x, y in ((8, 5), (12, 9)):
        column, row = (x + 0.5) * now["pixel"] - now["left"], (y + 0.5) * now["pixel"] - now["top"]
        assert abs(int(shot[int(row), int(column)]) - int(image[y, x])) <= 2, (x, y)


def test_a_stroke_that_leaves_the_window_paints_nothing_out_of_sight(page: Any, address: str) -> None:
    open_easel(page, address)
    page.click(ZOOM_IN)
    now = seen(page)
    last = int((now["left"] + now["w"]) / now["pixel"])  # the pixel at the right edge
    assert last < WIDTH - 1
    page.mouse.move(*place(page, last - 1.5, 15.5))
    page.mouse.down()
    page.mouse.move(*place(page, WIDTH + 3, 15.5))
    page.mouse.up()
    assert hidden_pixels(page) == [(x, 15) for x in range(last - 2, last + 1)]


def test_the_keyboard_zooms_and_what_it_points_at_is_seen(page: Any, address: str) -> None:
    open_easel(page, address)
    page.focus("#inpaint [data-preset=random]")
    page.keyboard.press("Tab")
    fitted = seen(page)["pixel"]
    page.keyboard.press("+")
    start = seen(page)
    assert start["pixel"] == 2 * fitted
    for _ in range(18):
        page.keyboard.press("ArrowLeft")
    for _ in range(13):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    now = seen(page)
    assert (now["left"], now["top"]) != (start["left"], start["top"])
    assert now["left"] <= 2 * now["pixel"]
    assert 3 * now["pixel"] <= now["left"] + now["w"]
    assert now["top"] <= 2 * now["pixel"]
    page.keyboard.press("-")
    assert seen(page)["pixel"] == fitted
    page.keyboard.press("Tab")  # past the button that can do nothing, to the other one
    assert page.evaluate("document.activeElement.dataset.zoom") == "2"
    page.keyboard.press("Enter")
    assert seen(page)["pixel"] == start["pixel"]
    assert hidden_pixels(page) == [(2, 2)]


def test_two_fingers_move_the_image_and_paint_nothing(page: Any, address: str) -> None:
    open_easel(page, address)
    page.click(ZOOM_IN)
    page.evaluate("document.querySelector('.editor').setPointerCapture = () => {}")
    before, (x, y) = seen(page), place(page, WIDTH / 2, HEIGHT / 2)
    down = [("pointerdown", 1, x, y), ("pointerdown", 2, x + 60, y)]
    moved = [("pointermove", k, x + 60 * (k - 1) + 25 * step, y - 10 * step) for step in (1, 2) for k in (1, 2)]
    for event in (*down, *moved, ("pointerup", 1, x, y), ("pointerup", 2, x, y)):
        page.evaluate(TOUCH, list(event))
    now = seen(page)
    assert (now["left"] - before["left"], now["top"] - before["top"]) == pytest.approx((-50, 20), abs=1)
    assert page.text_content("#inpaint .hole-count") == "Nothing is hidden yet."
    for event in (("pointerdown", 3, x, y), ("pointerup", 3, x, y)):
        page.evaluate(TOUCH, list(event))
    assert page.text_content("#inpaint .hole-count") == "1 of 1,200 pixels are hidden."


def test_pixels_that_are_large_need_no_zoom(page: Any, address: str) -> None:
    open_easel(page, address)
    assert page.is_visible(ZOOM_IN)
    page.click(ZOOM_IN)
    page.select_option("#inpaint [name=model]", "mnist-small")
    until(page, "document.querySelector('#inpaint .zoom').hidden")
    assert page.is_hidden("#inpaint .zoom-help")
    assert page.locator("#inpaint .editor").bounding_box() == page.locator("#inpaint .pane").bounding_box()


def test_an_image_wider_than_its_window_scrolls_without_zoom(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 90, "height": 844})
    open_easel(page, address)
    told = page.eval_on_selector(
        "#inpaint .pane",
        "e => [e.scrollWidth, e.clientWidth, e.querySelector('canvas').clientWidth, getComputedStyle(e).overflowX]",
    )
    assert told[0] == WIDTH > told[1] == told[2]
    assert told[3] == "auto"
    assert page.is_disabled(ZOOM_OUT)
    assert page.is_visible("#inpaint .scroll-help")
    page.eval_on_selector("#inpaint .pane", "e => e.scrollTo(1000, 0)")
    assert seen(page)["left"] == WIDTH - told[1]
    page.mouse.click(*place(page, WIDTH - 0.5, 2.5))
    assert hidden_pixels(page) == [(WIDTH - 1, 2)]
