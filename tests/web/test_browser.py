"""The web page in a real browser: how it loads, and samples."""
# ruff: noqa: ANN401 (where playwright is missing, so are its types)

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from web_browser import SIZE, downloaded, draw, picture, pixels, until
from web_browser import address as address
from web_browser import browser as browser
from web_browser import page as page

# ---------------------------------------------------------------- the page


def test_it_loads_soon_is_small_and_all_its_files_are_its_own(page: Any, address: str) -> None:
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(len(answer.body())) if "/api" not in answer.url else None)
    started = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("#sample [name=model] option", state="attached")
    assert time.perf_counter() - started < 3  # 0.2 s on an idle machine
    page.wait_for_load_state("networkidle")
    assert sum(sizes) < 80_000
    assert page.title() == "Sample · scorefield"
    for tab in ("Inpaint", "Understand", "Monitor"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_selector(f"#{tab.lower()}:not([hidden]) h1")
    page.goto(f"{address}/api")
    assert "/api/sample" in page.text_content("main")


def test_every_control_has_a_name(page: Any, address: str) -> None:
    unnamed = """() => [...document.querySelectorAll('input, select, button, canvas')].filter(
        each => !each.closest('template') && !(each.labels?.length || each.textContent.trim() || each.title
            || each.getAttribute('aria-label') || each.querySelector('img[alt]'))).map(each => each.outerHTML)"""
    for tab in ("sample", "inpaint", "understand", "monitor"):
        page.goto(f"{address}/#/{tab}")
        page.wait_for_load_state("networkidle")
        assert page.evaluate(unnamed) == []


def test_tabs_go_by_keyboard(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#sample [name=model] option", state="attached")
    page.focus("#tab-sample")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#inpaint:not([hidden])")
    assert page.evaluate("document.activeElement.id") == "tab-inpaint"
    assert page.get_attribute("#tab-inpaint", "aria-selected") == "true"
    assert page.get_attribute("#tab-sample", "tabindex") == "-1"


def test_on_a_phone_nothing_is_wider_than_the_screen(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for place in ("#/sample", "#/inpaint", "#/understand", "#/monitor", "api"):
        page.goto(f"{address}/{place}")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, place


# ---------------------------------------------------------------- sample


def test_noise_becomes_images_and_can_be_scrubbed_and_saved(page: Any, address: str) -> None:
    page.goto(address)
    page.select_option("#sample [name=model]", "mnist-small")
    page.fill("#sample [name=n]", "4")
    page.check("#sample [name=pace][value='1']", force=True)
    assert page.input_value("#sample [name=steps]") == "8"
    assert page.input_value("#sample [name=step_size]") == "2e-5"
    draw(page)
    total = 3 * 8
    assert page.get_attribute("#sample .seek", "max") == str(total)  # the start, and each step
    assert page.text_content("#sample .time") == f"step {total} / {total}"
    assert page.text_content("#sample .sigma") == "σ = 0.01, level 3 of 3"
    assert "Done" in page.text_content("#sample .status")
    command = page.text_content("#sample .command code")
    assert command == "scorefield sample mnist-small -n 4 --seed 0 --steps 8 --step-size 2e-05 --out samples.png"

    end = pixels(page, "#sample canvas")
    page.fill("#sample .seek", "0")
    assert page.text_content("#sample .time") == f"step 0 / {total}"
    assert page.text_content("#sample .sigma") == "σ = 0.5, level 1 of 3"
    assert pixels(page, "#sample canvas") != end
    page.focus("#sample .seek")
    page.keyboard.press("End")
    assert pixels(page, "#sample canvas") == end
    page.click("#sample .play")  # from the start to the end again
    until(page, "document.querySelector('#sample .seek').value === '3'")
    page.click("#sample .play")

    page.keyboard.press("Tab")
    page.fill("#sample .seek", str(total))
    name, content = downloaded(page, "#sample .downloads button:has-text('PNG')")
    assert (name, picture(content).ndim) == ("samples.png", 2)
    assert downloaded(page, "#sample .downloads button:has-text('GIF')")[1].startswith(b"GIF89a")
    array = np.load(io.BytesIO(downloaded(page, "#sample .downloads button:has-text('NPY')")[1]))
    assert array.shape == (4, SIZE, SIZE, 1)
    with page.expect_download() as waiting:  # the image at the lower left
        box = page.locator("#sample canvas").bounding_box()
        page.mouse.click(box["x"] + 9, box["y"] + box["height"] - 9)
    assert waiting.value.suggested_filename == "sample-3.png"
    assert (picture(Path(waiting.value.path()).read_bytes()) == array[2, ..., 0]).all()


def test_a_link_draws_the_same_images_and_the_page_makes_such_links(page: Any, address: str) -> None:
    page.goto(address)
    page.select_option("#sample [name=model]", "mnist-small")
    for name, value in {"n": "3", "seed": "7", "steps": "2", "step_size": "3e-5"}.items():
        page.fill(f"#sample [name={name}]", value)
    page.check("#sample [name=denoise]")
    draw(page)
    query = "model=mnist-small&n=3&seed=7&steps=2&step_size=3e-5&denoise=1"
    link = page.url
    assert sorted(link.partition("?")[2].split("&")) == sorted(query.split("&"))
    one = pixels(page, "#sample canvas")

    page.click("#tab-monitor")
    page.click("#tab-sample")  # nothing is drawn anew, and the address is the link again
    until(page, f"location.href === '{link}'")
    assert pixels(page, "#sample canvas") == one

    page.goto("about:blank")
    page.goto(f"{address}/#/sample?{query}")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert pixels(page, "#sample canvas") == one
    assert page.input_value("#sample [name=seed]") == "7"
    page.evaluate("location.hash = location.hash.replace('seed=7', 'seed=8')")
    until(page, "document.querySelector('#sample .command code').textContent.includes('--seed 8')")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert pixels(page, "#sample canvas") != one


def test_stopping_leaves_what_was_drawn(page: Any, address: str) -> None:
    page.goto(address)
    page.fill("#sample [name=n]", "64")
    page.fill("#sample [name=steps]", "200")
    page.click("#sample .primary")
    until(page, "Number(document.querySelector('#sample .seek').value) >= 2")
    assert page.is_disabled("#sample .primary")
    page.click("#sample .stop")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert "Stopped after" in page.text_content("#sample .status")
    assert 2 <= int(page.get_attribute("#sample .seek", "max")) < 59
    assert page.is_hidden("#sample .stop")
    assert page.is_enabled("#sample .primary")


def test_a_wrong_number_is_told_where_it_stands(page: Any, address: str) -> None:
    page.expected = ["400"]
    page.goto(address)
    page.fill("#sample [name=n]", "65")
    page.click("#sample .primary")
    assert page.text_content("#sample .error") == "Images: a whole number from 1 to 64 is needed, not “65”."
    assert page.evaluate("document.activeElement.name") == "n"
    page.fill("#sample [name=n]", "2")
    page.fill("#sample [name=step_size]", "1e-3")
    assert page.text_content("#sample .pace-note") == "This ε is too long: from 4σ² = 0.0004 on, images diverge."
    page.fill("#sample [name=step_size]", "1e-5")
    page.route("**/api/sample", lambda route: route.continue_(post_data=json.dumps({"model": "mnist-small", "n": 0})))
    page.click("#sample .primary")  # what only the server finds out is told in its words
    until(page, "document.querySelector('#sample .error').textContent === 'n must be from 1 to 64; got 0'")


def test_a_full_queue_is_asked_again_and_a_lost_server_is_told(page: Any, address: str) -> None:
    page.expected = ["503", "Failed to load", "ERR_FAILED"]
    page.goto(address)
    page.fill("#sample [name=n]", "1")
    refusals = [1]

    def full(route: Any) -> None:
        if not refusals:
            route.continue_()
            return
        refusals.pop()
        body = json.dumps({"error": "8 jobs are waiting already (try again later)"})
        route.fulfill(status=503, headers={"Retry-After": "1"}, body=body, content_type="application/json")

    page.route("**/api/sample", full)
    page.click("#sample .primary")
    until(page, "document.querySelector('#sample .status').textContent.includes('trying again in 1 s')")
    page.wait_for_selector("#sample .after:not([hidden])")

    page.route("**/api/*", lambda route: route.abort())
    page.click("#sample .primary")
    page.wait_for_selector("#gone:not([hidden])")
    assert "does not answer" in page.text_content("#gone")
    page.unroute("**/api/*")
    page.unroute("**/api/sample")
    page.wait_for_selector("#gone", state="hidden")


def test_a_closed_tab_ends_its_job(page: Any, address: str, browser: Any) -> None:
    context = browser.new_context()
    other = context.new_page()
    asked: list[str] = []
    other.on("request", lambda sent: asked.append(sent.url) if sent.method == "POST" else None)
    with other.expect_response("**/api/sample") as waiting:
        other.goto(f"{address}/#/sample?model=mnist-small&n=64&steps=200")
    job = waiting.value.json()["job"]
    until(other, "Number(document.querySelector('#sample .seek').max) >= 1")
    assert page.request.get(f"{address}/api/jobs/{job}").json()["state"] == "running"
    assert len(asked) == 1
    context.close()
    for _ in range(100):
        state = page.request.get(f"{address}/api/jobs/{job}").json()["state"]
        if state == "cancelled":
            break
        time.sleep(0.1)
    assert state == "cancelled"
