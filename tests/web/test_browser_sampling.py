"""The web page in a real browser: loading it, and drawing samples."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from web.browser import MORE, SIZE, downloaded, draw, picture, pixels, until
from web.browser import address as address
from web.browser import browser as browser
from web.browser import page as page

# ---------------------------------------------------------------- the page


def test_the_page_loads_fast_is_small_and_loads_nothing_from_elsewhere(page: Any, address: str) -> None:
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(len(answer.body())) if "/api" not in answer.url else None)
    took = 9.0
    for _ in range(5):  # a busy machine may be slow once
        if took > 3:
            sizes.clear()
            started = time.perf_counter()
            page.goto(address)
            page.wait_for_selector("#sample [name=model] option", state="attached")
            took = time.perf_counter() - started
    assert took < 3  # 0.2 s on an idle machine
    page.wait_for_load_state("networkidle")
    assert 30_000 < sum(sizes) < 100_000
    assert page.title() == "Sample · scorefield"
    for tab in ("Restore", "Interpolate", "Understand", "Monitor"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_selector(f"#{tab.lower()}:not([hidden]) h1")
    page.goto(f"{address}/api")
    assert "/api/sample" in page.text_content("main")


def test_a_tab_that_is_chosen_while_another_changes_its_address_is_shown(page: Any, address: str) -> None:
    page.goto(f"{address}/#/understand")
    page.wait_for_selector("#understand .steps button")
    page.evaluate("location.hash = '#/monitor'; document.querySelector('#understand .steps button').click()")
    page.wait_for_selector("#monitor:not([hidden]) h1", timeout=10_000)
    assert page.url.endswith("#/monitor")


PLACES = {
    "#/sample": "#sample form:has(.cost:not(:empty)) .primary",
    "#/restore": "#restore:has(.examples [aria-pressed=true]) .primary",
    "#/interpolate": "#interpolate:has(.examples [aria-pressed=true]) .primary",
    "#/understand": "#understand:has(tbody button) .primary",
    "#/monitor": "#monitor .charts .legend button",
    "api": "main",
}
"""Parts of the page, and what is there when they are ready."""
UNNAMED = """() => [...document.querySelectorAll('input, select, button, canvas')].filter(
    each => !each.closest('template') && !(each.labels?.length || each.textContent.trim() || each.title
        || each.getAttribute('aria-label') || each.querySelector('img[alt]'))).map(each => each.outerHTML)"""
BORDERS = """() => {
    const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const style = (element) => getComputedStyle(element);
    const behind = (element) => (element ? [...behind(element.parentElement), style(element).backgroundColor] : []);
    const seen = (colours) => {
        for (const colour of ['#fff', ...colours]) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
        return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    };
    const fields = [...document.querySelectorAll('input:not([type]), select, button, .button, .segments span, .drop')];
    const framed = fields.filter((each) => each.checkVisibility() && style(each).borderTopWidth !== '0px');
    return framed.filter((each) => !each.disabled).map((each) => {
        const outside = behind(each.parentElement);
        return [each.outerHTML.slice(0, 60), seen([...outside, style(each).borderTopColor]), seen(outside)];
    });
}"""


UNEXPLAINED = """() => [...document.querySelectorAll('section:not([hidden]) .help')]
    .filter((help) => help.checkVisibility())
    .filter((help) => !document.querySelector(`form [aria-describedby="${help.id}"]`)).map((help) => help.outerHTML)"""
"""Lines of help of the tab that is shown that belong to no field."""


def contrast(one: list[int], other: list[int]) -> float:
    """The contrast of two colours in sRGB, as WCAG 2.2 defines it."""

    def luminance(colour: list[int]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (each / 255 for each in colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_tab_can_be_used_with_few_pixels_and_in_any_colours(page: Any, address: str) -> None:
    """All controls have names, nothing is wider than the narrowest screen, and borders of fields are visible."""
    assert contrast([0, 0, 0], [255, 255, 255]) == 21
    for place, ready in PLACES.items():
        page.set_viewport_size({"width": 1100, "height": 760})
        page.goto(f"{address}/{place}")
        page.wait_for_selector(ready)
        assert page.evaluate(UNNAMED) == []
        if ".primary" in ready:
            assert page.evaluate(UNEXPLAINED) == []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            borders = page.evaluate(BORDERS)
            assert len(borders) >= (10 if ".primary" in ready else 0)
            assert [name for name, border, around in borders if contrast(border, around) < 3] == [], (place, scheme)
        for width in (360, 320):
            page.set_viewport_size({"width": width, "height": 740})
            until(page, f"document.documentElement.scrollWidth <= {width}")  # canvases follow a moment later


def test_what_is_chosen_is_visible_in_forced_colours(page: Any, address: str) -> None:
    page.emulate_media(forced_colors="active")
    page.goto(f"{address}/#/restore")
    page.wait_for_selector("#restore .examples [aria-pressed=true]")

    def shots(*selectors: str) -> list[bytes]:
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
        return [page.locator(each).screenshot() for each in selectors]

    places = ("#tab-monitor", "#restore .tasks label:nth-of-type(2)", "#restore .examples button >> nth=1")
    other = shots(*places)
    page.check("#restore [name=task][value=blur]", force=True)
    page.click("#restore .examples button >> nth=1")
    page.wait_for_selector("#restore .examples button:nth-child(2)[aria-pressed=true]")
    chosen = shots(*places[1:])
    page.click("#tab-monitor")
    chosen = [*shots(places[0]), *chosen]
    assert [one == two for one, two in zip(other, chosen, strict=True)] == [False, False, False]


def test_arrow_keys_move_between_tabs(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#sample [name=model] option", state="attached")
    page.focus("#tab-sample")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#restore:not([hidden])")
    assert page.evaluate("document.activeElement.id") == "tab-restore"
    assert page.get_attribute("#tab-restore", "aria-selected") == "true"
    assert page.get_attribute("#tab-sample", "tabindex") == "-1"


# ---------------------------------------------------------------- sample


def requested_jobs(page: Any) -> list[Any]:
    """A list of the bodies with which the page starts jobs; it grows."""
    asked: list[Any] = []
    page.on("request", lambda sent: asked.append(sent.post_data_json) if sent.url.endswith("/api/sample") else None)
    return asked


def test_samples_are_drawn_played_again_and_saved(page: Any, address: str) -> None:
    page.expected = ["500"]
    held: list[Any] = []
    page.route("**/frames/24.png*", lambda route: held.append(route))  # the last images, which arrive late
    page.goto(address)
    page.select_option("#sample [name=model]", "mnist-small")
    page.fill("#sample [name=n]", "4")
    page.select_option("#sample [name=sampler]", "annealed_langevin")
    page.check("#sample [name=pace][value='1']", force=True)
    assert page.input_value("#sample [name=steps]") == "8"
    assert page.input_value("#sample [name=step_size]") == "2e-5"
    with page.expect_response("**/api/sample") as answer:
        page.click("#sample .primary")
    until(
        page,
        f"fetch('/api/jobs/{answer.value.json()['job']}').then((a) => a.json()).then((job) => job.state === 'done')",
    )
    until(page, "document.querySelector('#sample .time').textContent === 'step 23 / 24'")
    assert not any(
        "done" in words.lower() for words in page.locator("#sample .readout, #sample .live").all_text_contents()
    )
    assert len(held) == 1
    page.unroute("**/frames/24.png*")
    held[0].fulfill(status=500)  # the page asks for them again
    page.wait_for_selector("#sample .after:not([hidden])")
    total = 3 * 8
    assert page.get_attribute("#sample .seek", "max") == str(total)  # the start, and each step
    assert page.text_content("#sample .time") == f"step {total} / {total}"
    assert page.text_content("#sample .sigma") == "σ = 0.01, level 3 of 3"
    assert "Done" in page.text_content("#sample .status")
    command = page.text_content("#sample .command code").split()
    assert command[:3] == ["scorefield", "sample", "mnist-small"]
    options = dict(zip(command[3::2], command[4::2], strict=True))
    wanted = {"-n": "4", "--seed": "0", "--steps": "8", "--step-size": "2e-05", "--out": "samples.png"}
    assert options == wanted

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


def test_a_link_draws_the_same_images(page: Any, address: str) -> None:
    page.goto(address)
    page.select_option("#sample [name=model]", "mnist-small")
    page.select_option("#sample [name=sampler]", "annealed_langevin")
    for name, value in {"n": "3", "seed": "7", "steps": "2", "step_size": "3e-5"}.items():
        page.fill(f"#sample [name={name}]", value)
    page.check("#sample [name=denoise]")
    draw(page)
    query = "model=mnist-small&n=3&seed=7&steps=2&step_size=3e-5&denoise=1"
    link = page.url
    assert sorted(link.partition("?")[2].split("&")) == sorted(query.split("&"))
    one = pixels(page, "#sample canvas")

    page.click("#tab-monitor")
    page.click("#tab-sample")  # nothing is drawn again, and the address is the link again
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


def test_a_running_job_is_followed_after_a_reload_and_stopped_by_the_keyboard(page: Any, address: str) -> None:
    asked = requested_jobs(page)
    page.goto(address)
    page.fill("#sample [name=n]", "64")
    page.select_option("#sample [name=sampler]", "annealed_langevin")
    page.fill("#sample [name=steps]", "200")
    page.focus("#sample .primary")
    page.keyboard.press("Enter")
    until(page, "document.activeElement.className === 'stop'")
    until(page, "Number(document.querySelector('#sample .seek').value) >= 1")
    assert page.is_disabled("#sample .primary")
    page.reload()
    until(page, "Number(document.querySelector('#sample .seek')?.value) >= 2")
    page.focus("#sample .stop")
    page.keyboard.press("Enter")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert "Stopped after" in page.text_content("#sample .status")
    assert 2 <= int(page.get_attribute("#sample .seek", "max")) < 59  # the images so far are kept
    assert page.is_hidden("#sample .stop")
    assert page.evaluate("document.activeElement.className") == "primary"
    assert len(asked) == 1


def test_a_wrong_number_is_reported_beside_its_field(page: Any, address: str) -> None:
    page.expected = ["400"]
    page.goto(address)
    for name, value, words in (("n", "65", "Images: "), ("n", "1,000", "from 1 to 64"), ("seed", "1,000", "Seed: ")):
        page.fill(f"#sample [name={name}]", value)
        page.click("#sample .primary")
        error = page.text_content("#sample .two:has([name=n]) .wrong")
        assert words in error
        assert f"not “{value}”" in error
        assert page.evaluate("document.activeElement.name") == name
        described = page.get_attribute(f"#sample [name={name}]", "aria-describedby").split()
        assert described[0] == "wrong-sample"
        page.fill(f"#sample [name={name}]", "2")
        assert page.is_hidden("#sample .wrong")
        left = page.get_attribute(f"#sample [name={name}]", "aria-describedby")  # its line of help
        assert (left or "").split() == described[1:]
    page.select_option("#sample [name=sampler]", "annealed_langevin")
    page.fill("#sample [name=step_size]", "1e-3")
    assert "4σ² = 0.0004" in page.text_content("#sample .pace-note")
    page.fill("#sample [name=step_size]", "1e-5")
    page.route("**/api/sample", lambda route: route.continue_(post_data=json.dumps({"model": "mnist-small", "n": 0})))
    page.click("#sample .primary")  # an error that only the server finds is shown in its words
    until(page, "document.querySelector('#sample .error').textContent === 'n must be from 1 to 64; got 0'")


def test_a_full_queue_is_tried_again_and_a_lost_server_is_reported(page: Any, address: str) -> None:
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
    assert "scorefield serve" in page.text_content("#gone")
    page.unroute("**/api/*")
    page.unroute("**/api/sample")
    page.wait_for_selector("#gone", state="hidden")


def test_closing_the_page_cancels_its_job(page: Any, address: str, browser: Any) -> None:
    context = browser.new_context()
    other = context.new_page()
    other.route("**/api/estimate", lambda route: route.fulfill(json={"seconds": 1}))
    asked = requested_jobs(other)
    with other.expect_response("**/api/sample") as waiting:
        other.goto(f"{address}/#/sample?model=mnist-small&n=64&steps=200")
    job = waiting.value.json()["job"]
    until(other, "Number(document.querySelector('#sample .seek').max) >= 1")
    assert page.request.get(f"{address}/api/jobs/{job}").json()["state"] == "running"
    assert len(asked) == 1
    context.close()
    for _ in range(600):
        state = page.request.get(f"{address}/api/jobs/{job}").json()["state"]
        if state == "cancelled":
            break
        time.sleep(0.1)
    assert state == "cancelled"


# ---------------------------------------------------------------- long jobs

PRESSED_AGAIN = 700
"""Milliseconds between two presses that are no double click."""


def test_a_long_job_needs_a_second_press_and_a_link_to_it_starts_nothing(page: Any, address: str) -> None:
    asked = requested_jobs(page)

    def estimate(route: Any) -> None:
        settings = route.request.post_data_json
        route.fulfill(json={"seconds": 15 * settings["n"] * settings["steps"]})

    page.route("**/api/estimate", estimate)
    page.goto(f"{address}/#/sample?model=mnist-small&n=4&steps=8&step_size=2e-5&seed=3")
    page.wait_for_selector("#sample .confirm:not([hidden])")
    words = page.text_content("#sample .confirm")
    assert "take about 8 min" in words
    assert "quick pace takes about 2 min" in words
    assert page.is_hidden("#sample .after")
    page.fill("#sample [name=n]", "3")  # other settings, another time
    assert page.is_hidden("#sample .confirm")
    until(page, "document.querySelector('#sample .cost').textContent === 'Takes about 6 min.'")
    page.focus("#sample .primary")
    for _ in range(4):  # a key that is held down
        page.keyboard.press("Enter")
    page.wait_for_selector("#sample .confirm:not([hidden])")
    assert page.text_content("#sample .primary") == "Draw: about 6 min"
    assert asked == []
    page.wait_for_timeout(PRESSED_AGAIN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert [(each["n"], each["steps"], each["seed"]) for each in asked] == [(3, 8, 3)]
    assert page.text_content("#sample .primary") == "Draw"
    one = pixels(page, "#sample canvas")
    page.reload()  # its images are there without a job, and without a question
    page.wait_for_selector("#sample .after:not([hidden])")
    assert pixels(page, "#sample canvas") == one
    assert page.is_hidden("#sample .confirm")
    page.click("#sample .primary")
    with page.expect_response("**/api/sample"):
        page.click("#sample .faster")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert page.evaluate("document.activeElement.className") == "primary"
    assert [(each["n"], each["steps"], each["step_size"]) for each in asked[1:]] == [(3, 2, 8e-5)]
    assert page.is_checked("#sample [name=pace][value='4']")


def test_the_server_s_own_estimate_is_shown(page: Any, address: str) -> None:
    page.unroute("**/api/estimate")
    page.goto(f"{address}/#/restore")
    until(
        page,
        "/^Takes (about \\d+|less than 1)\\s(s|min)\\.$/.test(document.querySelector('#restore .cost')?.textContent)",
    )


# ---------------------------------------------------------------- reloading, links and lists


def test_a_reloaded_page_shows_its_job_again(page: Any, address: str) -> None:
    asked = requested_jobs(page)
    page.goto(address)
    page.fill("#sample [name=n]", "2")
    page.select_option("#sample [name=sampler]", "annealed_langevin")
    page.fill("#sample [name=steps]", "2")
    draw(page)
    one = pixels(page, "#sample canvas")
    page.reload()
    page.wait_for_selector("#sample .after:not([hidden])")
    assert pixels(page, "#sample canvas") == one
    page.fill("#sample [name=seed]", "5")
    draw(page)
    assert pixels(page, "#sample canvas") != one
    page.go_back()
    until(page, "document.querySelector('#sample .command code').textContent.includes('--seed 0')")
    until(page, f"document.querySelector('#sample canvas').toDataURL() === {json.dumps(one)}")
    assert len(asked) == 2


LATE_STATUS = """
    const decode = HTMLImageElement.prototype.decode;
    const shown = new Promise((resolve) => {
        HTMLImageElement.prototype.decode = function () {
            const image = decode.call(this);
            image.then(() => setTimeout(resolve));
            return image;
        };
    });
    const listen = EventSource.prototype.addEventListener;
    EventSource.prototype.addEventListener = function (kind, call) {
        listen.call(this, kind, kind === 'status' ? (event) => shown.then(() => call(event)) : call);
    };"""
"""Every status comes after the first image is there, as when a browser reads a finished job in two pieces."""


def test_images_may_arrive_before_the_first_status(page: Any, address: str) -> None:
    page.add_init_script(LATE_STATUS)
    page.goto(f"{address}/#/sample?model=mnist-small&n=2&steps=2")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert page.text_content("#sample .time") == "step 6 / 6"
    assert page.text_content("#sample .sigma") == "σ = 0.01, level 3 of 3"


def test_the_page_works_without_session_storage(page: Any, address: str) -> None:
    denied = "Object.defineProperty(window, 'sessionStorage', {get() { throw new DOMException('denied') }})"
    page.add_init_script(denied)
    page.goto(address)
    page.fill("#sample [name=n]", "1")
    draw(page)
    page.click("#tab-restore")
    until(page, "document.querySelector('#fitted').textContent !== ''")
    draw(page, "restore")


def test_two_quick_changes_of_the_address_draw_the_last(page: Any, address: str) -> None:
    asked = requested_jobs(page)
    page.goto(f"{address}/#/sample?n=2&steps=100&seed=1")
    until(page, "document.querySelector('#sample .seek')?.value >= 2")
    page.evaluate("for (const k of [2, 3]) location.hash = `#/sample?n=2&steps=2&seed=${k}`")
    until(page, "document.querySelector('#sample .command code').textContent.includes('--seed 3')")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert [each["seed"] for each in asked] == [1, 3]
    assert page.get_attribute("#sample .seek", "max") == "6"


def test_fewer_images_are_offered_where_no_sampler_is_faster(page: Any, address: str) -> None:
    page.unroute("**/api/estimate")
    page.route("**/api/estimate", lambda each: each.fulfill(json={"seconds": 7.5 * each.request.post_data_json["n"]}))
    page.goto(f"{address}/#/sample")
    page.select_option("#sample [name=model]", "pets")
    page.click("#sample .primary")
    page.wait_for_selector("#sample .confirm:not([hidden])")
    words = page.text_content("#sample .confirm p").replace("\u00a0", " ")
    assert "These settings take about 2 min." in words
    assert "A job with 4 images takes about 30 s." in words
    assert page.text_content("#sample .faster") == "Draw 4"
    page.click("#sample .faster")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert "-n 4 " in page.text_content("#sample .command code")


def test_what_a_link_does_not_name_is_as_usual(page: Any, address: str) -> None:
    """Not as in the link before, whose message goes, too."""
    page.goto(f"{address}/#/sample?model=nope")
    page.wait_for_selector("#sample .error:not([hidden])")
    page.evaluate("location.hash = '#/sample?model=pets&n=99999'")
    until(page, "document.querySelector('#sample .wrong')?.textContent.startsWith('Images: a whole number from 1 to ')")
    assert page.is_hidden("#sample .error")
    page.evaluate("location.hash = '#sample?model=pets&seed=abc'")
    wrong = "Seed: a whole number from 0 to 4,294,967,295 is needed, not “abc”."
    until(page, f"document.querySelector('#sample .wrong').textContent === '{wrong}'")
    assert page.input_value("#sample [name=n]") == "16"
    page.evaluate("location.hash = '#/sample?model=pets&guidance=much'")
    wrong = "Guidance: a number is needed, not “much”."
    until(page, f"document.querySelector('#sample .wrong').textContent === '{wrong}'")


def test_new_models_can_be_chosen_without_a_reload(page: Any, address: str) -> None:
    known: dict[str, Any] = {}

    def more(route: Any) -> None:
        answer = route.fetch().json()
        known.update(answer)
        newer = [{**model, "name": "newer"} for model in answer["models"][:1]] if known.get("later") else []
        route.fulfill(json={**answer, "models": [*answer["models"], *newer]})

    page.route("**/api/models", more)
    page.goto(address)
    page.wait_for_selector("#sample [name=model] option", state="attached")
    assert page.locator("#sample [name=model] option").all_text_contents() == [
        "first (run)",
        "large",
        "pets",
        "mnist-small",
    ]
    chosen = page.input_value("#sample [name=model]")
    known["later"] = True
    page.click("#tab-monitor")
    page.wait_for_selector("#sample [name=model] option[value=newer]", state="attached")
    assert page.input_value("#sample [name=model]") == chosen


def test_samplers_have_their_own_settings_and_those_of_the_model_stay_its_own(page: Any, address: str) -> None:
    """A request names the sampler and its calls only where they are not the model's own."""
    asked = requested_jobs(page)
    page.goto(f"{address}/#/sample")
    page.select_option("#sample [name=model]", "pets")
    langevin = page.locator("#sample").locator(".pace, [name=steps], [name=step_size], [name=denoise]")
    assert (langevin.locator("visible=true").count(), page.input_value("#sample [name=calls]")) == (0, "3")
    assert page.text_content("#sample .sampler-note").startswith("The model’s own. The probability flow by Heun’s")
    page.fill("#sample [name=n]", "2")
    draw(page)
    page.fill("#sample [name=calls]", "5")
    draw(page)
    page.select_option("#sample [name=sampler]", "euler")
    page.fill("#sample [name=calls]", "4")
    page.select_option("#sample [name=label]", "dog")
    page.fill("#sample [name=guidance]", "1.5")
    draw(page)
    first = {"model": "pets", "n": 2, "seed": 0}
    last = {"label": "dog", "guidance": 1.5, "sampler": "euler", "calls": 4}
    assert asked == [first, first | {"calls": 5}, first | last]
    assert page.text_content("#sample .command code").startswith("scorefield sample")
    assert "--label dog --guidance 1.5 --sampler euler --calls 4" in page.text_content("#sample .command code")
    one, link = pixels(page, "#sample canvas"), page.url
    page.goto("about:blank")
    page.goto(link)  # with the class, the guidance and the sampler
    page.wait_for_selector("#sample .after:not([hidden])")
    assert pixels(page, "#sample canvas") == one
    assert page.input_value("#sample [name=guidance]") == "1.5"
    page.select_option("#sample [name=model]", "mnist-small")  # which knows three noise levels, and no classes
    assert page.is_hidden("#sample [name=label]")
    assert page.input_value("#sample [name=sampler]") == "annealed_langevin"
    page.select_option("#sample [name=sampler]", "consistent_annealed")
    assert page.locator("#sample [name=sampler] option[value=euler]").count() == 0
    assert langevin.locator("visible=true").count() == 0


def test_a_step_is_shown_as_an_estimate_or_with_its_noise(page: Any, address: str) -> None:
    """At the end both are the image."""
    page.goto(f"{address}/#/sample?model=pets&n=2&calls=7")
    page.wait_for_selector("#sample .after:not([hidden])")
    end, last = pixels(page, "#sample canvas"), page.get_attribute("#sample .seek", "max")
    page.fill("#sample .seek", "1")
    estimate = pixels(page, "#sample canvas")
    page.focus("#sample .view [value=denoised]")
    page.keyboard.press("ArrowRight")
    until(page, f"document.querySelector('#sample canvas').toDataURL() !== {json.dumps(estimate)}")
    noisy = pixels(page, "#sample canvas")
    page.fill("#sample .seek", last)
    assert pixels(page, "#sample canvas") == end
    page.fill("#sample .seek", "1")
    page.check("#sample .view [value=denoised]", force=True)
    until(page, f"document.querySelector('#sample canvas').toDataURL() === {json.dumps(estimate)}")
    assert noisy != estimate


def test_a_faster_sampler_is_offered_for_a_long_job_and_touch_takes_it(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, color_scheme="dark")
    page = context.new_page()
    page.add_init_script(MORE)
    asked = requested_jobs(page)

    def estimate(route: Any) -> None:
        settings = route.request.post_data_json
        route.fulfill(json={"seconds": 4.0 * settings.get("calls", 3 * settings.get("steps", 0))})

    page.route("**/api/estimate", estimate)
    page.goto(f"{address}/#/sample")
    page.wait_for_selector("#sample [name=model] option", state="attached")
    page.select_option("#sample [name=model]", "mnist-small")
    page.select_option("#sample [name=sampler]", "annealed_langevin")
    page.fill("#sample [name=n]", "1")
    page.fill("#sample [name=steps]", "100")
    page.tap("#sample .primary")
    page.wait_for_selector("#sample .confirm:not([hidden])")
    words = page.text_content("#sample .confirm p").replace("\u00a0", " ")
    assert "take about 20 min" in words
    assert "Consistent annealed with 30 calls takes about 2 min." in words
    with page.expect_response("**/api/sample"):
        page.tap("#sample .faster")
    page.wait_for_selector("#sample .after:not([hidden])")
    wanted = {"model": "mnist-small", "n": 1, "seed": 0, "sampler": "consistent_annealed", "calls": 30}
    assert asked == [wanted]
    context.close()


def test_results_are_kept_in_this_browser_and_lead_back(page: Any, address: str) -> None:
    page.goto(f"{address}/api")
    page.evaluate("localStorage.clear()")  # what the tests before have left
    page.goto(f"{address}/#/sample?model=pets&n=2&seed=4")
    page.wait_for_selector("#gallery li")
    one = pixels(page, "#sample canvas")
    page.goto(f"{address}/#/monitor")
    until(page, "document.querySelector('#gallery').hidden")
    page.goto("about:blank")
    page.goto(f"{address}/#/restore")
    page.wait_for_selector("#gallery li")
    assert page.get_attribute("#gallery li img", "alt") == "2 × pets, seed 4"
    page.click("#gallery li a")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert pixels(page, "#sample canvas") == one
    page.click("#gallery .empty")
    assert page.locator("#gallery li").count() == 0
    assert page.is_hidden("#gallery")
    page.reload()
    page.wait_for_selector("#sample .after:not([hidden])")  # shown again, not made again
    assert page.is_hidden("#gallery")


# ---------------------------------------------------------------- what is seen first, and what is under More settings


def test_the_main_buttons_are_seen_at_once_and_on_a_phone_the_film(browser: Any, address: str) -> None:
    film = {"n": 4, "columns": 2, "frames": 2, "sampler": "heun", "calls": 3, "sigmas": [1, 0.5], "trained": 5}
    films = {"pets": film | {"shape": [1, SIZE, SIZE]}}
    sheet = io.BytesIO()
    Image.new("L", (2 * SIZE, 4 * SIZE), 200).save(sheet, "WEBP")
    for width, height in ((1280, 720), (390, 844)):
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.route("**/films/films.json", lambda route: route.fulfill(json=films))
        page.route("**/films/pets.webp", lambda route: route.fulfill(body=sheet.getvalue(), content_type="image/webp"))
        for tab in ("sample", "restore"):
            page.goto(f"{address}/#/{tab}")
            page.wait_for_selector(f"#{tab} [name=model] option", state="attached")
            page.select_option(f"#{tab} [name=model]", "pets")
            page.wait_for_selector(f"#{tab} {'.recorded' if tab == 'sample' else '.examples [aria-pressed=true]'}")
            button = page.locator(f"#{tab} .primary").bounding_box()
            if width > height:
                until(page, f"document.querySelector('#{tab} .primary').getBoundingClientRect().bottom < {height}")
            elif tab == "sample":
                shown = page.locator("#sample .recorded canvas").bounding_box()
                assert shown["y"] + 100 < height
                assert shown["y"] < button["y"]
                page.focus("#sample .recorded button")  # the keyboard takes the same way
                page.keyboard.press("Tab")
                assert page.evaluate("document.activeElement.name") == "model"
        context.close()


def test_more_settings_stay_as_they_were_left_and_open_for_a_link_or_an_error(browser: Any, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route("**/api/estimate", lambda route: route.fulfill(json={"seconds": 100}))
    more = "#sample .more"
    page.goto(f"{address}/#/sample?model=pets&n=2&seed=1")
    page.wait_for_selector(more)
    assert not page.evaluate(f"document.querySelector('{more}').open")
    page.evaluate("location.hash = '#/sample?model=pets&n=2&calls=5'")
    until(page, f"document.querySelector('{more}').open")
    page.reload()
    until(page, f"document.querySelector('{more}')?.open")  # the link says so again
    page.click(f"{more} summary")
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(more)
    assert not page.evaluate(f"document.querySelector('{more}').open")
    page.select_option("#sample [name=model]", "pets")
    page.eval_on_selector("#sample [name=calls]", "field => { field.value = 'many' }")
    page.click("#sample .primary")
    page.wait_for_selector("#sample .wrong:not([hidden])")
    assert page.evaluate("document.activeElement.name") == "calls"
    page.click(f"{more} summary")
    page.click(f"{more} summary")  # opened by the user
    page.goto("about:blank")
    page.goto(f"{address}/#/restore")
    until(page, "document.querySelector('#restore .more')?.open")
    context.close()


def test_a_weight_of_guidance_that_seldom_makes_sense_has_a_warning(page: Any, address: str) -> None:
    page.goto(f"{address}/#/sample")
    page.wait_for_selector("#sample [name=model] option", state="attached")
    page.select_option("#sample [name=model]", "pets")
    note = "#sample .guidance-note"
    for weight, words in (
        ("10", None),
        ("1e9", "blocks of black and white"),
        ("-5", "away from the class"),
        ("0", None),
    ):
        page.fill("#sample [name=guidance]", weight)
        assert page.is_visible(note) == (words is not None)
        assert (words or "") in page.text_content(note)
    page.fill("#sample [name=guidance]", "11")
    page.select_option("#sample [name=model]", "mnist-small")  # which has none
    assert page.is_hidden(note)
