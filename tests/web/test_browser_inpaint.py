"""The web page in a real browser: a hole is painted and filled."""
# ruff: noqa: ANN401 (where playwright is missing, so are its types)

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from web_browser import SIZE, downloaded, draw, picture, pixels, until
from web_browser import address as address
from web_browser import browser as browser
from web_browser import page as page


def open_easel(page: Any, address: str) -> None:
    page.goto(f"{address}/#/inpaint")
    until(page, "document.querySelector('#fitted').textContent.includes('as the model sees it')")
    page.click("#inpaint [data-do=clear]")


def sent_mask(page: Any) -> np.ndarray:
    """Fill the hole, and give what was sent as the mask: True where hidden."""
    masks: list[bytes] = []

    def look(route: Any) -> None:
        body = route.request.post_data_buffer
        found = re.search(rb'name="mask"; filename="[^"]*"\r\nContent-Type: image/png\r\n\r\n(.*?)\r\n--', body, re.S)
        assert found is not None
        masks.append(found[1])
        route.continue_()

    page.route("**/api/inpaint", look)
    draw(page, "inpaint")
    (mask,) = masks
    assert Image.open(io.BytesIO(mask)).size == (SIZE, SIZE)
    return picture(mask) == 0


def place(page: Any, x: float, y: float) -> tuple[float, float]:
    """On the screen, of a place in the image's pixels."""
    page.locator("#inpaint .editor").scroll_into_view_if_needed()
    box = page.locator("#inpaint .editor").bounding_box()
    return box["x"] + x / SIZE * box["width"], box["y"] + y / SIZE * box["height"]


def test_a_stroke_of_the_mouse_hides_just_the_pixels_under_the_brush(page: Any, address: str) -> None:
    open_easel(page, address)
    page.check("#inpaint [name=size][value='1']", force=True)
    page.mouse.move(*place(page, 2.5, 3.5))
    page.mouse.down()
    page.mouse.move(*place(page, 9.5, 3.5))  # in one go: no gaps
    page.mouse.up()
    page.check("#inpaint [name=size][value='3']", force=True)
    page.mouse.click(*place(page, 6.5, 8.5))
    page.check("#inpaint [name=tool][value=erase]", force=True)
    page.check("#inpaint [name=size][value='1']", force=True)
    page.mouse.click(*place(page, 4.5, 3.5))
    page.mouse.click(*place(page, 5.5, 3.5))
    page.click("#inpaint [data-do=undo]")
    wanted = np.zeros((SIZE, SIZE), bool)
    wanted[3, 2:10] = True
    wanted[7:10, 5:8] = True
    wanted[3, 4] = False
    assert page.text_content("#inpaint .hole-count") == f"{wanted.sum()} of 144 pixels are hidden."
    assert (sent_mask(page) == wanted).all()


def test_the_hole_is_painted_with_the_keyboard_alone(page: Any, address: str) -> None:
    open_easel(page, address)
    page.focus("#inpaint [data-preset=random]")
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
    page.focus("#inpaint .primary")
    assert (sent_mask(page) == wanted).all()


def test_ready_made_holes_are_those_of_the_command_line(page: Any, address: str) -> None:
    open_easel(page, address)
    page.fill("#inpaint [name=n]", "2")
    for words, name in (("Centre", "center"), ("Bottom", "bottom")):
        page.click(f"#inpaint .tools button:has-text('{words}')")
        draw(page, "inpaint")
        assert f"--mask {name} -n 2" in page.text_content("#inpaint .command code")
        page.eval_on_selector("#inpaint .after", "after => { after.hidden = true }")
    page.click("#inpaint [data-do=invert]")
    draw(page, "inpaint")
    assert "--mask top" in page.text_content("#inpaint .command code")


def test_a_file_is_completed_and_its_known_part_stays(page: Any, address: str, tmp_path: Path) -> None:
    open_easel(page, address)
    page.click("#inpaint .primary")
    assert page.text_content("#inpaint .error").startswith("Nothing is hidden")
    original = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE), np.uint8)
    Image.fromarray(original).save(tmp_path / "mine.png")
    page.set_input_files("#inpaint [type=file]", tmp_path / "mine.png")
    until(page, "document.querySelector('#fitted').textContent.startsWith('mine.png')")
    page.fill("#inpaint [name=n]", "3")
    page.click("#inpaint [data-preset=random]")
    hidden = sent_mask(page)
    assert 0.2 < hidden.mean() < 0.8
    assert page.is_hidden("#inpaint .error")
    assert "--image mine.png --mask mask.png" in page.text_content("#inpaint .command code")
    assert downloaded(page, "#inpaint .downloads button:has-text('Sheet')")[0] == "completions.png"
    saved = picture(downloaded(page, "#inpaint .downloads button:has-text('Mask')")[1])
    assert ((saved == 0) == hidden).all()
    box = page.locator("#inpaint canvas.sheet").bounding_box()
    with page.expect_download() as waiting:
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert waiting.value.suggested_filename == "completion-2.png"  # three in a row
    completion = picture(Path(waiting.value.path()).read_bytes())
    noise = 5 * 0.01 * 255  # the last level's: five standard deviations
    assert abs(completion[~hidden].astype(float) - original[~hidden]).max() < noise + 1
    assert abs(completion[hidden].astype(float) - original[hidden]).max() > 50


def test_what_is_no_image_is_told(page: Any, address: str, tmp_path: Path) -> None:
    page.expected = ["415"]
    open_easel(page, address)
    (tmp_path / "words.png").write_text("no image")
    page.set_input_files("#inpaint [type=file]", tmp_path / "words.png")
    page.wait_for_selector("#inpaint .image-error:not([hidden])")
    assert page.text_content("#inpaint .image-error").startswith("words.png: ")
    assert "no image" in page.text_content("#inpaint .image-error")
    assert page.get_attribute("#inpaint .examples button >> nth=0", "aria-pressed") == "true"  # which is still in use


def test_a_second_finger_paints_nothing(page: Any, address: str) -> None:
    """Two fingers that pinch are no stroke, and what the first had painted goes again."""
    open_easel(page, address)
    page.click("#inpaint [data-do=clear]")
    before = page.text_content("#inpaint .hole-count")
    touch = """([kind, id, x, y]) => document.querySelector('.editor').dispatchEvent(new PointerEvent(kind,
        {pointerId: id, pointerType: 'touch', clientX: x, clientY: y, button: 0, bubbles: true, cancelable: true}))"""
    page.evaluate("document.querySelector('.editor').setPointerCapture = () => {}")
    (x, y), (u, v) = place(page, 2, 2), place(page, 9, 9)
    down = [("pointerdown", 1, x, y), ("pointerdown", 2, u, v)]
    moved = [("pointermove", 1, x + 9, y), ("pointermove", 2, u, v - 9)]
    for event in (*down, *moved, ("pointerup", 2, u, v), ("pointerup", 1, x, y)):
        page.evaluate(touch, list(event))
    assert page.text_content("#inpaint .hole-count") == before
    for event in (("pointerdown", 3, x, y), ("pointerup", 3, x, y)):
        page.evaluate(touch, list(event))
    assert page.text_content("#inpaint .hole-count") != before


def test_a_hole_is_there_again_when_the_page_is_loaded_again(page: Any, address: str) -> None:
    page.goto(f"{address}/#/inpaint")
    until(page, "document.querySelector('#inpaint .hole-count')?.textContent.startsWith('72 of')")
    assert page.is_disabled("#inpaint [data-do=undo]")  # the first hole is nobody's stroke
    page.click("#inpaint [data-preset=center]")
    words = page.text_content("#inpaint .hole-count")
    page.reload()
    until(page, f"document.querySelector('#inpaint .hole-count').textContent === {json.dumps(words)}")


def test_a_file_that_misses_its_place_does_not_take_the_page_away(page: Any, address: str) -> None:
    page.goto(f"{address}/#/sample")
    for kind in ("dragover", "drop"):
        event = f"new DragEvent('{kind}', {{bubbles: true, cancelable: true}})"
        assert not page.evaluate(f"document.querySelector('.top').dispatchEvent({event})")  # that is: prevented


def test_on_a_phone_what_was_given_stands_with_its_completions(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_easel(page, address)
    page.click("#inpaint [data-preset=left]")
    draw(page, "inpaint")
    tops = [page.locator(f"#inpaint {each}").bounding_box()["y"] for each in (".primary", ".given", ".film")]
    assert tops == sorted(tops)
    lines = """code => [...code.children].map((word) => [word.textContent, word.getClientRects().length])"""
    words = page.eval_on_selector("#inpaint .command code", lines)
    assert " ".join(word for word, _ in words) == page.text_content("#inpaint .command code")
    assert {rows for _, rows in words} == {1}  # no option is cut in two at its hyphen


def test_what_was_given_stands_beside_its_completions(page: Any, address: str) -> None:
    open_easel(page, address)
    page.click("#inpaint [data-preset=left]")
    assert page.is_hidden("#inpaint .given")
    draw(page, "inpaint")
    shown = pixels(page, "#inpaint .given canvas")
    page.click("#inpaint [data-preset=top]")
    assert pixels(page, "#inpaint .given canvas") == shown
