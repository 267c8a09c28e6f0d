"""The web page in a real browser: painting a hole, zooming in, and restoring the image."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from web.browser import LARGE, SIZE, downloaded, draw, picture, pixels, until
from web.browser import address as address
from web.browser import browser as browser
from web.browser import page as page

WIDTH, HEIGHT = LARGE
ZOOM_IN, ZOOM_OUT = "#restore [data-zoom='2']", "#restore [data-zoom='0.5']"
TOUCH = """([kind, id, x, y]) => document.querySelector('.editor').dispatchEvent(new PointerEvent(kind,
    {pointerId: id, pointerType: 'touch', clientX: x, clientY: y, button: 0, bubbles: true, cancelable: true}))"""


def open_editor(page: Any, address: str) -> None:
    page.goto(f"{address}/#/restore")
    until(page, "document.querySelector('#fitted').textContent.includes('as the model sees it')")
    page.click("#restore [data-do=clear]")


def sent_mask(page: Any) -> np.ndarray:
    """Fill the hole; returns the mask that the page sent, True where hidden."""
    masks: list[bytes] = []

    def look(route: Any) -> None:
        body = route.request.post_data_buffer
        found = re.search(rb'name="mask"; filename="[^"]*"\r\nContent-Type: image/png\r\n\r\n(.*?)\r\n--', body, re.S)
        assert found is not None
        masks.append(found[1])
        route.continue_()

    page.route("**/api/restore", look)
    draw(page, "restore")
    (mask,) = masks
    assert Image.open(io.BytesIO(mask)).size == (SIZE, SIZE)
    return picture(mask) == 0


def place(page: Any, x: float, y: float, size: tuple[int, int] = (SIZE, SIZE)) -> tuple[float, float]:
    """The place on the screen of a place in an image of this width and height, in its pixels."""
    page.locator("#restore .editor").scroll_into_view_if_needed()
    box = page.locator("#restore .ground").bounding_box()
    return box["x"] + x / size[0] * box["width"], box["y"] + y / size[1] * box["height"]


def test_a_stroke_of_the_mouse_hides_just_the_pixels_under_the_brush(page: Any, address: str) -> None:
    open_editor(page, address)
    page.check("#restore [name=size][value='1']", force=True)
    page.mouse.move(*place(page, 2.5, 3.5))
    page.mouse.down()
    page.mouse.move(*place(page, 9.5, 3.5))  # in one go: no gaps
    page.mouse.up()
    page.check("#restore [name=size][value='3']", force=True)
    page.mouse.click(*place(page, 6.5, 8.5))
    page.check("#restore [name=tool][value=erase]", force=True)
    page.check("#restore [name=size][value='1']", force=True)
    page.mouse.click(*place(page, 4.5, 3.5))
    page.mouse.click(*place(page, 5.5, 3.5))
    page.click("#restore [data-do=undo]")
    wanted = np.zeros((SIZE, SIZE), bool)
    wanted[3, 2:10] = True
    wanted[7:10, 5:8] = True
    wanted[3, 4] = False
    assert page.text_content("#restore .hole-count").startswith(f"{wanted.sum()} of 144 ")
    assert (sent_mask(page) == wanted).all()


def test_a_hole_is_painted_with_the_keyboard_alone(page: Any, address: str) -> None:
    open_editor(page, address)
    page.focus("#restore [data-preset=random]")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "editor"
    page.keyboard.press("1")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowUp")
    page.keyboard.down("Space")
    page.keyboard.press("ArrowUp")
    page.keyboard.up("Space")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    page.keyboard.press("Control+z")
    wanted = np.zeros((SIZE, SIZE), bool)
    wanted[4:7, 2] = True
    page.focus("#restore .primary")
    assert (sent_mask(page) == wanted).all()


def test_ready_made_holes_are_those_of_the_command_line(page: Any, address: str) -> None:
    open_editor(page, address)
    page.fill("#restore [name=n]", "2")
    for words, name in (("Centre", "center"), ("Bottom", "bottom")):
        page.click(f"#restore .tools button:has-text('{words}')")
        draw(page, "restore")
        assert f"--task inpaint:{name} " in page.text_content("#restore .command code")
        assert page.locator("#restore .downloads button:has-text('Mask')").count() == 0  # the command needs none
        page.eval_on_selector("#restore .after", "after => { after.hidden = true }")
    page.click("#restore [data-do=invert]")
    draw(page, "restore")
    assert "--task inpaint:top " in page.text_content("#restore .command code")


def test_a_file_is_completed_and_its_known_part_stays(page: Any, address: str, tmp_path: Path) -> None:
    open_editor(page, address)
    page.click("#restore .primary")
    assert page.text_content("#restore .error").startswith("Nothing is hidden")
    original = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE), np.uint8)
    Image.fromarray(original).save(tmp_path / "mine.png")
    page.set_input_files("#restore [type=file]", tmp_path / "mine.png")
    until(page, "document.querySelector('#fitted').textContent.startsWith('mine.png')")
    page.fill("#restore [name=n]", "3")
    page.select_option("#restore [name=method]", "replace")
    page.fill("#restore [name=noise]", "1e-6")
    page.click("#restore [data-preset=random]")
    hidden = sent_mask(page)
    assert 0.2 < hidden.mean() < 0.8
    assert page.is_hidden("#restore .error")
    assert "--image mine.png --task inpaint:mask.png" in page.text_content("#restore .command code")
    assert downloaded(page, "#restore .downloads button:has-text('Sheet')")[0] == "restored.png"
    saved = picture(downloaded(page, "#restore .downloads button:has-text('Mask')")[1])
    assert ((saved == 0) == hidden).all()
    box = page.locator("#restore canvas.sheet").bounding_box()
    with page.expect_download() as waiting:
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert waiting.value.suggested_filename == "restoration-2.png"  # three in a row
    completion = picture(Path(waiting.value.path()).read_bytes())
    noise = 5 * 0.01 * 255  # the last level's: five standard deviations
    assert abs(completion[~hidden].astype(float) - original[~hidden]).max() < noise + 1
    assert abs(completion[hidden].astype(float) - original[hidden]).max() > 50


def test_what_is_wrong_with_a_file_or_is_lost_of_it_is_said_beside_it(page: Any, address: str, tmp_path: Path) -> None:
    page.expected = ["415"]
    open_editor(page, address)
    Image.new("RGB", (30, 20), "red").save(tmp_path / "red.png")
    page.set_input_files("#restore [type=file]", tmp_path / "red.png")
    until(page, "document.querySelector('#fitted').textContent.startsWith('red.png')")
    note = page.text_content("#restore .image-note:not([hidden])")
    assert "grey" in note  # as the model's images are
    assert "cropped to the middle 20 × 20" in note
    page.click("#restore .examples button >> nth=0")
    until(page, "document.querySelector('#fitted').textContent.startsWith('Example')")
    assert "red.png" not in page.text_content("#restore .image-note")
    (tmp_path / "big.png").write_bytes(bytes(10_000_001))
    page.set_input_files("#restore [type=file]", tmp_path / "big.png")
    until(
        page,
        "document.querySelector('#restore .image-error').textContent.startsWith('big.png: the file has 10,000,001 ')",
    )
    (tmp_path / "words.png").write_text("words")
    page.set_input_files("#restore [type=file]", tmp_path / "words.png")
    until(page, "document.querySelector('#restore .image-error').textContent.startsWith('words.png: ')")
    assert "cannot be read as an image" in page.text_content("#restore .image-error")
    assert page.get_attribute("#restore .examples button >> nth=0", "aria-pressed") == "true"  # still in use


def test_a_second_finger_paints_nothing(page: Any, address: str) -> None:
    """Two fingers are no stroke, and what the first had painted is taken back."""
    open_editor(page, address)
    page.click("#restore [data-do=clear]")
    before = page.text_content("#restore .hole-count")
    page.evaluate("document.querySelector('.editor').setPointerCapture = () => {}")
    (x, y), (u, v) = place(page, 2, 2), place(page, 9, 9)
    down = [("pointerdown", 1, x, y), ("pointerdown", 2, u, v)]
    moved = [("pointermove", 1, x + 9, y), ("pointermove", 2, u, v - 9)]
    for event in (*down, *moved, ("pointerup", 2, u, v), ("pointerup", 1, x, y)):
        page.evaluate(TOUCH, list(event))
    assert page.text_content("#restore .hole-count") == before
    for event in (("pointerdown", 3, x, y), ("pointerup", 3, x, y)):
        page.evaluate(TOUCH, list(event))
    assert page.text_content("#restore .hole-count") != before


def test_image_hole_settings_and_restorations_survive_a_reload(page: Any, address: str, tmp_path: Path) -> None:
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url) if sent.url.endswith("/api/restore") else None)
    page.goto(f"{address}/#/restore")
    until(page, "document.querySelector('#restore .hole-count')?.textContent.startsWith('72 of')")
    assert page.is_disabled("#restore [data-do=undo]")  # the first hole was not painted by the user
    page.select_option("#restore [name=model]", "mnist-small")
    page.click("#restore .examples button >> nth=3")
    until(page, "document.querySelector('#fitted').textContent.startsWith('Example 5')")
    page.click("#restore [data-preset=center]")
    page.mouse.click(*place(page, 0.5, 0.5))  # four pixels in a corner
    page.select_option("#restore [name=sampler]", "annealed_langevin")
    page.check("#restore [name=pace][value='10']", force=True)
    page.fill("#restore [name=n]", "2")
    draw(page, "restore")
    page.fill("#restore [name=seed]", "7")  # for the next ones

    def shown() -> dict[str, Any]:
        fields = {name: page.input_value(f"#restore [name={name}]") for name in ("model", "n", "seed", "steps")}
        canvases = {
            name: pixels(page, f"#restore {name} canvas")
            for name in (".pane", ".measurement", ".mean", ".deviation", ".film")
        }
        texts = {name: page.text_content(f"#restore {name}") for name in (".hole-count", "#fitted", ".command code")}
        return {**fields, **canvases, **texts, "pace": page.is_checked("#restore [name=pace][value='10']")}

    before = shown()
    page.reload()
    page.wait_for_selector("#restore .after:not([hidden])")
    until(page, "document.querySelector('#fitted').textContent.startsWith('Example 5')")
    assert shown() == before
    assert page.get_attribute("#restore .examples button >> nth=3", "aria-pressed") == "true"
    assert len(asked) == 1
    mask = picture(downloaded(page, "#restore .downloads button:has-text('Mask')")[1])
    assert (mask == 0).sum() == 40
    assert downloaded(page, "#restore .downloads button:has-text('Example')")[0] == "5.png"

    image = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE), np.uint8)
    Image.fromarray(image).save(tmp_path / "mine.png")  # a file is kept too
    page.set_input_files("#restore [type=file]", tmp_path / "mine.png")
    until(page, "document.querySelector('#fitted').textContent.startsWith('mine.png')")
    seen = pixels(page, "#restore .pane canvas")
    page.reload()
    until(page, "document.querySelector('#fitted').textContent.startsWith('mine.png')")
    assert pixels(page, "#restore .pane canvas") == seen


def test_a_file_dropped_elsewhere_does_not_replace_the_page(page: Any, address: str) -> None:
    page.goto(f"{address}/#/sample")
    for kind in ("dragover", "drop"):
        event = f"new DragEvent('{kind}', {{bubbles: true, cancelable: true}})"
        assert not page.evaluate(f"document.querySelector('.top').dispatchEvent({event})")  # it was prevented


def test_on_a_phone_the_image_with_its_hole_is_shown_above_its_restorations(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_editor(page, address)
    page.click("#restore [data-preset=left]")
    assert page.is_hidden("#restore .beside")
    draw(page, "restore")
    tops = [page.locator(f"#restore {each}").bounding_box()["y"] for each in (".primary", ".beside", "canvas.sheet")]
    assert tops == sorted(tops)
    lines = """code => [...code.children].map((word) => [word.textContent, word.getClientRects().length])"""
    words = page.eval_on_selector("#restore .command code", lines)
    assert " ".join(word for word, _ in words) == page.text_content("#restore .command code")
    assert {rows for _, rows in words} == {1}  # no option is broken at its hyphen
    shown = pixels(page, "#restore .measurement canvas")
    page.click("#restore [data-preset=top]")  # for the next completions
    assert pixels(page, "#restore .measurement canvas") == shown


# ---------------------------------------------------------------- zoom


def open_large(page: Any, address: str) -> None:
    page.goto(f"{address}/#/restore")
    page.wait_for_selector("#restore [name=model] option", state="attached")
    page.select_option("#restore [name=model]", "large")
    until(page, f"document.querySelector('#fitted').textContent.includes('{WIDTH}\u00a0×\u00a0{HEIGHT}')")
    page.click("#restore [data-do=clear]")
    page.check("#restore [name=size][value='1']", force=True)


def seen(page: Any) -> dict[str, float]:
    """The view of the image: its width and height, how far it is scrolled, and the size of a pixel, in CSS pixels."""
    page.wait_for_timeout(50)
    pane = page.eval_on_selector(
        "#restore .pane", "e => ({w: e.clientWidth, h: e.clientHeight, left: e.scrollLeft, top: e.scrollTop})"
    )
    return {**pane, "pixel": page.locator("#restore .ground").bounding_box()["width"] / WIDTH}


def place_in_large(page: Any, x: float, y: float) -> tuple[float, float]:
    return place(page, x, y, LARGE)


def hidden_pixels(page: Any) -> list[tuple[int, int]]:
    """Fill the hole; returns x and y of all hidden pixels."""
    draw(page, "restore")
    mask = picture(downloaded(page, "#restore .downloads button:has-text('Mask')")[1])
    assert mask.shape == (HEIGHT, WIDTH)
    return [(int(x), int(y)) for y, x in np.argwhere(mask == 0)]


@pytest.mark.parametrize("screen", [(1400, 900), (390, 844)])
def test_zooming_makes_pixels_large_enough_and_goes_back(page: Any, address: str, screen: tuple[int, int]) -> None:
    page.set_viewport_size({"width": screen[0], "height": screen[1]})
    open_large(page, address)
    before, whole = seen(page), pixels(page, "#restore .editor")
    assert before["pixel"] < 24
    assert page.is_disabled(ZOOM_OUT)
    times = 0
    while page.is_enabled(ZOOM_IN):
        page.click(ZOOM_IN)
        times += 1
        now = seen(page)
        assert now["pixel"] == pytest.approx(before["pixel"] * 2**times)
        assert page.text_content("#restore .zoom output") == f"×\u2009{2**times}"
        middle = [(now["left"] + now["w"] / 2) / now["pixel"], (now["top"] + now["h"] / 2) / now["pixel"]]
        assert middle == pytest.approx([WIDTH / 2, HEIGHT / 2], abs=1)
    assert 24 <= now["pixel"] < 48
    assert page.evaluate("document.documentElement.scrollWidth") <= screen[0]
    for _ in range(times):
        page.click(ZOOM_OUT)
    assert seen(page) == before
    assert pixels(page, "#restore .editor") == whole


def test_the_brush_hits_the_right_pixel_in_a_zoomed_and_scrolled_image(page: Any, address: str) -> None:
    open_large(page, address)
    page.click(ZOOM_IN)
    page.mouse.move(*place_in_large(page, WIDTH / 2, HEIGHT / 2))
    page.mouse.wheel(2000, 2000)  # to the lower right corner
    until(page, "document.querySelector('.pane').scrollTop > 0")
    page.mouse.click(*place_in_large(page, 38.5, 28.5))
    page.eval_on_selector("#restore .pane", "pane => pane.scrollTo(0, 0)")
    seen(page)
    page.mouse.move(*place_in_large(page, 2.5, 3.5))
    page.mouse.down()
    page.mouse.move(*place_in_large(page, 5.5, 3.5))
    page.mouse.up()
    page.mouse.click(*place_in_large(page, 7.5, 3.5))
    assert hidden_pixels(page) == [(2, 3), (3, 3), (4, 3), (5, 3), (7, 3), (38, 28)]


def test_a_scrolled_image_shows_the_right_part(page: Any, address: str, tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH), np.uint8)
    Image.fromarray(image).save(tmp_path / "mine.png")
    open_large(page, address)
    page.set_input_files("#restore [type=file]", tmp_path / "mine.png")
    until(page, "document.querySelector('#fitted').textContent.startsWith('mine.png')")
    page.click(ZOOM_IN)
    page.eval_on_selector("#restore .pane", "pane => pane.scrollTo(123, 77)")
    now = seen(page)
    page.mouse.move(0, 0)
    shot = np.asarray(Image.open(io.BytesIO(page.locator("#restore .editor").screenshot())).convert("L"))
    for x, y in ((8, 5), (12, 9)):
        column, row = (x + 0.5) * now["pixel"] - now["left"], (y + 0.5) * now["pixel"] - now["top"]
        assert abs(int(shot[int(row), int(column)]) - int(image[y, x])) <= 2, (x, y)


def test_a_stroke_that_leaves_the_view_paints_only_visible_pixels(page: Any, address: str) -> None:
    open_large(page, address)
    page.click(ZOOM_IN)
    now = seen(page)
    last = int((now["left"] + now["w"]) / now["pixel"])  # the pixel at the right edge
    assert last < WIDTH - 1
    page.mouse.move(*place_in_large(page, last - 1.5, 15.5))
    page.mouse.down()
    page.mouse.move(*place_in_large(page, WIDTH + 3, 15.5))
    page.mouse.up()
    assert hidden_pixels(page) == [(x, 15) for x in range(last - 2, last + 1)]


def test_the_keyboard_zooms_and_keeps_its_cursor_visible(page: Any, address: str) -> None:
    open_large(page, address)
    page.focus("#restore [data-preset=random]")
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
    page.keyboard.press("Tab")  # past the disabled button
    assert page.evaluate("document.activeElement.dataset.zoom") == "2"
    page.keyboard.press("Enter")
    assert seen(page)["pixel"] == start["pixel"]
    assert hidden_pixels(page) == [(2, 2)]


def test_two_fingers_move_the_image_and_paint_nothing(page: Any, address: str) -> None:
    open_large(page, address)
    page.click(ZOOM_IN)
    page.evaluate("document.querySelector('.editor').setPointerCapture = () => {}")
    nothing = page.text_content("#restore .hole-count")
    before, (x, y) = seen(page), place_in_large(page, WIDTH / 2, HEIGHT / 2)
    down = [("pointerdown", 1, x, y), ("pointerdown", 2, x + 60, y)]
    moved = [("pointermove", k, x + 60 * (k - 1) + 25 * step, y - 10 * step) for step in (1, 2) for k in (1, 2)]
    for event in (*down, *moved, ("pointerup", 1, x, y), ("pointerup", 2, x, y)):
        page.evaluate(TOUCH, list(event))
    now = seen(page)
    assert (now["left"] - before["left"], now["top"] - before["top"]) == pytest.approx((-50, 20), abs=1)
    assert page.text_content("#restore .hole-count") == nothing
    for event in (("pointerdown", 3, x, y), ("pointerup", 3, x, y)):
        page.evaluate(TOUCH, list(event))
    assert page.text_content("#restore .hole-count").startswith("1 of 1,200 ")


def test_large_pixels_need_no_zoom(page: Any, address: str) -> None:
    open_large(page, address)
    assert page.is_visible(ZOOM_IN)
    page.click(ZOOM_IN)
    page.select_option("#restore [name=model]", "mnist-small")
    until(page, "document.querySelector('#restore .zoom').hidden")
    assert page.is_hidden("#restore .zoom-help")
    boxes = (
        """['.editor', '.pane'].map((each) => JSON.stringify(document.querySelector(each).getBoundingClientRect()))"""
    )
    one, other = page.evaluate(boxes)  # at once: the page may still become shorter, and move
    assert one == other


def test_an_image_wider_than_the_view_scrolls_without_zoom(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 90, "height": 844})
    open_large(page, address)
    box = page.eval_on_selector(
        "#restore .pane",
        "e => [e.scrollWidth, e.clientWidth, e.querySelector('canvas').clientWidth, getComputedStyle(e).overflowX]",
    )
    assert box[0] == WIDTH > box[1] == box[2]
    assert box[3] == "auto"
    assert page.is_disabled(ZOOM_OUT)
    assert page.is_visible("#restore .scroll-help")
    page.eval_on_selector("#restore .pane", "e => e.scrollTo(1000, 0)")
    assert seen(page)["left"] == WIDTH - box[1]
    page.mouse.click(*place_in_large(page, WIDTH - 0.5, 2.5))
    assert hidden_pixels(page) == [(WIDTH - 1, 2)]


# ---------------------------------------------------------------- other tasks, links, drawings


def shown(page: Any, selector: str) -> np.ndarray:
    """The grey values of a canvas."""
    content = pixels(page, selector).partition(",")[2]
    return picture(base64.b64decode(content)).astype(int)


def few_calls(page: Any) -> None:
    page.select_option("#restore [name=sampler]", "consistent_annealed")
    page.fill("#restore [name=calls]", "6")


@pytest.mark.parametrize("task", ["superres", "blur"])
def test_what_is_left_is_shown_before_and_measured_after(page: Any, address: str, task: str) -> None:
    """The preview, which the browser computes, is the measurement of the server; then the mean and the deviation."""
    open_editor(page, address)
    page.focus("#restore [name=task]:checked")
    page.keyboard.press("ArrowRight")
    if task == "superres":
        page.keyboard.press("ArrowRight")
        page.check("#restore [name=superres][value='2']", force=True)
    assert page.is_hidden("#restore .editor")
    assert page.is_disabled("#restore [name=method] option[value=replace]")
    before = shown(page, "#restore .preview canvas")
    zoom = len(before) // SIZE
    page.fill("#restore [name=noise]", "1e-6")
    page.fill("#restore [name=n]", "3")
    few_calls(page)
    draw(page, "restore")
    until(page, "!document.querySelector('#restore .numbers').hidden")
    measured = shown(page, "#restore .measurement canvas")
    assert abs(before[::zoom, ::zoom] - measured).max() <= 1
    array = np.load(io.BytesIO(downloaded(page, "#restore .downloads button:has-text('NPY')")[1]))[..., 0]
    assert abs(shown(page, "#restore .mean canvas") - array.mean(0)).max() <= 1
    std = array.std(0)
    assert abs(shown(page, "#restore .deviation canvas") - 255 * std / std.max()).max() <= 1
    assert f"0 to {std.max() / 255:.3g}" in page.text_content("#restore .deviation figcaption")
    assert "Residual" in page.text_content("#restore .numbers")


def test_a_link_restores_the_example_with_a_painted_hole(page: Any, address: str) -> None:
    open_editor(page, address)
    page.select_option("#restore [name=model]", "pets")
    until(page, "document.querySelector('#fitted').textContent.includes('as the model sees it')")
    page.click("#restore [data-do=clear]")
    page.mouse.click(*place(page, 5.5, 6.5))
    page.select_option("#restore [name=method]", "diffpir")
    page.fill("#restore [name=n]", "2")
    page.fill("#restore [name=calls]", "3")
    draw(page, "restore")
    assert "9 of 144" in page.text_content("#restore .hole-count")
    one, link = pixels(page, "#restore canvas.sheet"), page.url
    assert "example=2" in link
    page.evaluate("sessionStorage.clear()")  # as for somebody else
    page.goto("about:blank")
    page.goto(link.replace("seed=0", "seed=1"))
    page.wait_for_selector("#restore .after:not([hidden])")
    assert "9 of 144" in page.text_content("#restore .hole-count")
    assert pixels(page, "#restore canvas.sheet") != one
    page.evaluate(f"location.hash = {link.partition('#')[2]!r}")
    until(page, f"document.querySelector('#restore canvas.sheet').toDataURL() === {json.dumps(one)}")
    page.evaluate("location.hash = '#/inpaint'")  # as in old links
    until(page, "document.title.startsWith('Restore')")
    page.evaluate("location.hash = '#/restore?task=gray&model=pets&example=2'")
    until(page, "document.querySelector('#restore .error').textContent.includes('does not suit pets')")


def test_a_drawing_is_an_image_to_restore(page: Any, address: str) -> None:
    """By mouse and by the keyboard; it is moved to the middle. It cannot be in a link, and the page says so."""
    open_editor(page, address)
    page.click("#restore .own")
    pad = page.locator("#restore .pad canvas")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 20, box["y"] + 100)
    page.mouse.up()
    page.click("#restore .take")
    until(page, "document.querySelector('#fitted').textContent.startsWith('drawing.png')")
    page.check("#restore [name=task][value=blur]", force=True)
    page.fill("#restore [name=blur]", "0.5")
    left = shown(page, "#restore .preview canvas")
    column = left.sum(0)
    assert abs((column * np.arange(len(column))).sum() / column.sum() - len(column) / 2) < len(column) / 20
    assert left.max() > 100
    vertical = pixels(page, "#restore .preview canvas")
    page.click("#restore .wipe")
    page.focus("#restore .pad canvas")
    page.keyboard.down("Space")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.keyboard.up("Space")
    page.click("#restore .take")
    until(page, f"document.querySelector('#restore .preview canvas').toDataURL() !== {json.dumps(vertical)}")
    page.fill("#restore [name=n]", "1")
    few_calls(page)
    draw(page, "restore")
    assert "A link cannot hold your own image" in page.text_content("#restore .downloads")
    assert page.url.endswith("#/restore")


def test_a_link_restores_its_example_and_no_other_however_late_that_comes(page: Any, address: str) -> None:
    held: list[Any] = []
    page.route("**/api/examples/2.png", lambda route: held.append(route))  # the example with which the tab begins
    page.goto(f"{address}/#/restore?model=pets&n=1&calls=3&task=superres:2&method=diffpir&noise=0.01&example=3")
    page.wait_for_selector("#restore .after:not([hidden])")
    for route in held:
        route.continue_()
    page.wait_for_load_state("networkidle")
    assert page.text_content("#fitted").startswith("Example 3,")
    assert "--image 3.png" in page.text_content("#restore .command code")
    assert page.url.endswith("&example=3")
    assert page.get_attribute("#restore .examples button[aria-pressed=true]", "value") == "3"


BAD_LINKS = {
    "task=superres:99": "task “superres:99” does not suit pets",
    "task=superres": "task “superres” does not suit pets",
    "task=blur": "task “blur” does not suit pets",
    "task=blur:99": "task “blur:99” does not suit pets",
    "task=blur:1&method=replace": "method “replace” does not suit its task",
    "method=magic": "method “magic” does not suit its task",
    "label=bird": "no class “bird”",
    "example=none": "pets has no example “none”",
}


@pytest.mark.parametrize("bad", BAD_LINKS)
def test_a_link_with_a_bad_value_is_refused(page: Any, address: str, bad: str) -> None:
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url) if sent.url.endswith("/api/restore") else None)
    page.goto(f"{address}/#/restore?model=pets&n=1&calls=3&{bad if 'example' in bad else f'{bad}&example=3'}")
    page.wait_for_selector("#restore .error:not([hidden])")
    assert BAD_LINKS[bad] in page.text_content("#restore .error")
    page.wait_for_timeout(300)
    assert asked == []


def save_noise(path: Path, seed: int) -> Path:
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE), np.uint8)).save(path)
    return path


def restore_own(page: Any, file: Path) -> str:
    """Restore the image of a file; what is drawn."""
    page.set_input_files("#restore [type=file]", file)
    until(page, f"document.querySelector('#fitted').textContent.startsWith('{file.name}')")
    draw(page, "restore")
    return pixels(page, "#restore canvas.sheet")


def test_an_own_image_and_its_restorations_survive_a_reload(page: Any, address: str, tmp_path: Path) -> None:
    open_editor(page, address)
    page.select_option("#restore [name=model]", "pets")
    page.fill("#restore [name=calls]", "3")
    page.click("#restore [data-preset=left]")
    page.fill("#restore [name=n]", "1")
    draw(page, "restore")
    assert "example=2" in page.url
    file = save_noise(tmp_path / "mine.png", 1)
    one = restore_own(page, file)
    assert page.url.endswith("#/restore")
    assert downloaded(page, "#restore .downloads button:has-text('Image (PNG)')") == ("mine.png", file.read_bytes())
    page.reload()
    page.wait_for_selector("#restore .after:not([hidden])")
    until(page, "document.querySelector('#fitted').textContent.startsWith('mine.png')")
    assert pixels(page, "#restore canvas.sheet") == one
    name, content = downloaded(page, "#restore .downloads button:has-text('Image (PNG)')")  # as the model sees it
    assert (name, (picture(content) == picture(file.read_bytes())).all()) == ("mine.png", True)


def test_results_of_own_images_are_kept_apart_and_lead_back_to_them(page: Any, address: str, tmp_path: Path) -> None:
    page.goto(f"{address}/api")
    page.evaluate("localStorage.clear()")  # what the tests before have left
    open_editor(page, address)
    page.select_option("#restore [name=model]", "pets")
    page.fill("#restore [name=calls]", "3")
    page.fill("#restore [name=n]", "1")
    page.click("#restore [data-preset=top]")
    first = restore_own(page, save_noise(tmp_path / "one.png", 1))
    restore_own(page, save_noise(tmp_path / "two.png", 2))
    titles = [each.get_attribute("alt") for each in page.locator("#gallery li img").all()]
    assert titles == ["inpaint, two.png, pets", "inpaint, one.png, pets"]
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    page.goto(f"{address}/#/restore")
    page.wait_for_selector("#restore .examples [aria-pressed=true]")
    page.click("#gallery li:nth-child(2) a")
    page.wait_for_selector("#restore .after:not([hidden])")
    assert page.text_content("#fitted").startswith("one.png")
    assert "--task inpaint:top" in page.text_content("#restore .command code")
    assert pixels(page, "#restore canvas.sheet") == first
    until(page, "document.querySelector('#gallery img').alt.startsWith('inpaint, one.png')")  # the newest comes first
    assert page.locator("#gallery li").count() == 2  # the same settings and image: it has taken the place of the older
    page.evaluate("""() => localStorage.setItem('results', JSON.stringify(
        JSON.parse(localStorage.results).map(({image, ...rest}) => rest)))""")
    page.click("#gallery li:nth-child(2) a")
    until(page, "document.querySelector('#restore .error').textContent.includes('image of this result was not kept')")


def test_a_faster_method_is_offered_for_a_long_restoration(page: Any, address: str) -> None:
    seconds = {"mmps": 660, "diffpir": 31}
    page.unroute("**/api/estimate")
    answer = lambda each: each.fulfill(json={"seconds": seconds[each.request.post_data_json["method"]]})  # noqa: E731
    page.route("**/api/estimate", answer)
    open_editor(page, address)
    page.select_option("#restore [name=model]", "pets")
    page.fill("#restore [name=n]", "1")
    page.click("#restore [data-preset=left]")
    page.click("#restore .primary")
    page.wait_for_selector("#restore .confirm:not([hidden])")
    words = page.text_content("#restore .confirm p").replace("\u00a0", " ")
    assert "These settings take about 11 min." in words
    assert "DiffPIR takes about 30 s." in words
    assert page.text_content("#restore .faster") == "Take DiffPIR"
    page.click("#restore .faster")
    page.wait_for_selector("#restore .after:not([hidden])")
    assert "--method diffpir" in page.text_content("#restore .command code")
    assert page.input_value("#restore [name=method]") == "diffpir"


def test_a_faster_restoration_has_fresh_noise_too(page: Any, address: str) -> None:
    """The sampler for few calls of Sample follows the probability flow, which restores badly."""
    page.unroute("**/api/estimate")
    page.route("**/api/estimate", lambda each: each.fulfill(json={"seconds": 91}))
    open_editor(page, address)
    page.select_option("#restore [name=model]", "pets")
    page.click("#restore [data-preset=left]")
    page.click("#restore .primary")
    page.wait_for_selector("#restore .confirm:not([hidden])")
    assert "Heun with 19 calls takes about 50 s." in page.text_content("#restore .confirm p").replace("\u00a0", " ")


def test_a_noise_of_0_is_refused_in_plain_words(page: Any, address: str) -> None:
    open_editor(page, address)
    page.fill("#restore [name=noise]", "0")
    page.click("#restore [data-preset=left]")
    page.click("#restore .primary")
    wrong = "Noise of the measurement: a number above 0, up to 10 is needed, not “0”."
    until(page, f"document.querySelector('#restore .wrong')?.textContent === '{wrong}'")


@pytest.mark.parametrize("mend", ["[data-preset=left]", "[data-do=invert]"])
def test_a_message_about_an_empty_hole_goes_when_it_is_painted(page: Any, address: str, mend: str) -> None:
    open_editor(page, address)
    page.click("#restore .primary")
    assert page.text_content("#restore .error").startswith("Nothing is hidden")
    page.click(f"#restore {mend}")
    assert page.is_hidden("#restore .error")


def test_a_dot_is_a_drawing_and_the_keyboard_has_a_cursor(page: Any, address: str) -> None:
    open_editor(page, address)
    page.click("#restore .own")
    assert page.is_disabled("#restore .take")  # nothing is drawn
    pad = "#restore .pad canvas"
    page.click(pad, position={"x": 30, "y": 30})
    assert shown(page, pad)[30, 30] == 255
    assert page.is_enabled("#restore .take")
    page.click("#restore .wipe")
    assert page.is_disabled("#restore .take")
    page.focus("#restore .own")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"
    before = shown(page, pad)
    assert before.max() > 200  # the cursor
    page.keyboard.press("ArrowLeft")
    assert (shown(page, pad) != before).any()
    page.keyboard.press("Space")
    page.click("#restore .take")
    until(page, "document.querySelector('#fitted').textContent.startsWith('drawing.png')")
    page.check("#restore [name=task][value=blur]", force=True)
    left = shown(page, "#restore .preview canvas")
    assert left[len(left) // 2, len(left) // 2] > 200  # the dot alone, enlarged, without the cursor
    assert page.is_hidden("#restore .image-note")  # it is black and white, as the model's images are
