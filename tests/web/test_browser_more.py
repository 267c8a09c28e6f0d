"""The web page in a real browser: the playground and the monitor."""
# ruff: noqa: ANN401 (where playwright is missing, so are its types)

from __future__ import annotations

import io
from base64 import b64decode
from dataclasses import asdict
from typing import Any

import numpy as np
from PIL import Image
from web_browser import GREY, RECIPE, RUN, SIZE, until
from web_browser import address as address
from web_browser import browser as browser
from web_browser import page as page

# ---------------------------------------------------------------- understand


def test_modes_are_dragged_and_both_walks_are_run(page: Any, address: str) -> None:
    asked: list[dict[str, Any]] = []
    page.emulate_media(reduced_motion="reduce")  # the end is shown as soon as it is there
    page.on("request", lambda sent: asked.append(sent.post_data_json) if "/playground" in sent.url else None)
    page.goto(f"{address}/#/understand")
    page.wait_for_selector("#understand .handle")
    plane = page.locator("[data-method=annealed]").bounding_box()
    page.locator("[data-method=annealed] .handle >> nth=0").hover()
    page.mouse.down()
    page.mouse.move(plane["x"] + plane["width"] * 0.25, plane["y"] + plane["height"] * 0.25, steps=4)
    page.mouse.up()
    page.fill("#understand [name=n]", "300")
    page.click("#understand summary")
    page.fill("#understand [name=steps]", "50")
    page.focus("[data-method=langevin] .handle >> nth=1")
    page.keyboard.press("ArrowDown")
    page.click("#understand .primary")
    page.wait_for_selector("#understand .stop:not([hidden])")
    page.wait_for_selector("#understand .stop", state="hidden")
    page.wait_for_selector("#understand .play[aria-label=Play]")
    assert page.text_content("#understand .time") == "step 500 / 500"
    assert [each["method"] for each in asked] == ["both"]
    for each in asked:
        assert np.allclose(each["means"], np.array([[-4, 4], [5, 4.75]]), atol=0.05)
        assert np.allclose(each["weights"], [0.2, 0.8])
        assert each["n"] == 300

    def share(kind: str) -> int:
        return int(page.text_content(f"#understand tbody tr:nth-child(2) .{kind}").rstrip(" %"))

    assert share("true") == 80
    # Points start uniform, and these modes lie opposite: Langevin keeps about half on each side, annealing 80 %.
    # The standard error of a share of 300 points is 2.3 to 2.9 %.
    assert 38 < share("langevin") < 64
    assert 71 < share("annealed") < 89
    page.fill("#understand .seek", "0")
    assert page.text_content("#understand .panels figure:last-of-type .sigma") == "σ = 20"


def test_a_seed_is_seen_to_its_last_digit(page: Any, address: str) -> None:
    for width in (1400, 1100, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{address}/#/understand")
        page.fill("#understand [name=seed]", "999999")
        assert page.eval_on_selector("#understand [name=seed]", "seed => seed.scrollWidth <= seed.clientWidth")


def test_modes_come_and_go(page: Any, address: str) -> None:
    page.goto(f"{address}/#/understand")
    page.wait_for_selector("#understand .handle")
    with page.expect_request("**/api/field") as waiting:
        page.click("#understand .add")
    assert len(waiting.value.post_data_json["means"]) == 3
    assert page.locator("#understand tbody tr").count() == 3
    assert page.locator("[data-method=langevin] .handle").count() == 3
    for _ in range(2):
        page.click("#understand tbody tr:nth-child(1) button")
    assert page.locator("#understand tbody tr").count() == 1
    assert page.is_disabled("#understand tbody button")
    page.wait_for_load_state("networkidle")


# ---------------------------------------------------------------- monitor


def test_a_run_is_watched(page: Any, address: str) -> None:
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor [data-chart=levels] path")
    assert page.locator("[data-chart=levels] path").count() == 3
    tiles = page.text_content("#monitor .tiles")
    assert "100 of 200" in tiles
    assert "stopped" in tiles
    legend = page.locator("[data-chart=levels] .legend button").all_text_contents()
    assert legend == ["σ 0.50.04", "σ 0.07070.03", "σ 0.010.02"]
    page.locator("[data-chart=levels] svg").hover(position={"x": 47, "y": 100})
    assert "at step 10" in page.text_content("[data-chart=levels] .legend")
    assert "σ 0.50.4" in page.text_content("[data-chart=levels] .legend")
    page.click("[data-chart=levels] .legend button >> nth=0")
    assert page.locator("[data-chart=levels] path").count() == 2
    assert page.text_content("#monitor .when") == "At step 100, 2 of 2"
    page.fill("#monitor .samples input", "0")
    page.wait_for_selector("#monitor .samples canvas[aria-label='Samples after step 50']")
    with page.expect_response(f"**/api/runs/{RUN}", timeout=6_000):  # asked again by itself
        pass


def test_the_samples_of_a_run_lie_on_the_page_and_not_on_white_paper(page: Any, address: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor .samples canvas[aria-label='Samples after step 100']")
    name, content = "#monitor .samples canvas", "canvas => canvas.toDataURL().split(',')[1]"
    sheet = np.asarray(Image.open(io.BytesIO(b64decode(page.eval_on_selector(name, content)))).convert("RGBA"))
    zoom, step = 5, SIZE + 2
    wanted = np.zeros((2 * step - 2, 3 * step - 2, 4), np.uint8)  # five images in two rows, the rest transparent
    for k in range(5):
        top, left = k // 3 * step, k % 3 * step
        wanted[top : top + SIZE, left : left + SIZE] = [GREY, GREY, GREY, 255]
    assert (sheet == wanted.repeat(zoom, 0).repeat(zoom, 1)).all()
    page.fill("#monitor .samples input", "0")  # a picture that is laid out otherwise is shown as it is
    page.wait_for_selector("#monitor .samples canvas[aria-label='Samples after step 50']")
    assert page.eval_on_selector(name, "canvas => [canvas.width, canvas.height]") == [30, 30]


def test_samples_that_cannot_be_read_are_told_and_stay_told(page: Any, address: str) -> None:
    page.goto(f"{address}/#/monitor")
    page.route(f"**/api/runs/{RUN}/samples/50.png", lambda route: route.fulfill(body=b"no", content_type="image/png"))
    page.wait_for_selector("#monitor .samples canvas")
    page.fill("#monitor .samples input", "0")
    until(page, "document.querySelector('#monitor .when').textContent === 'This picture is damaged.'")
    with page.expect_response(f"**/api/runs/{RUN}", timeout=6_000):
        pass
    page.wait_for_timeout(100)
    assert page.text_content("#monitor .when") == "This picture is damaged."
    assert page.is_hidden("#monitor .samples canvas")
    page.fill("#monitor .samples input", "1")
    page.wait_for_selector("#monitor .samples canvas")
    assert page.text_content("#monitor .when") == "At step 100, 2 of 2"


def test_a_run_that_draws_no_samples_says_so(page: Any, address: str) -> None:
    log = {"columns": ["step", "loss", "loss_1", "images_per_second"], "rows": [[20, 3, 4, 15000], [40, 2, 3, 16031]]}
    run = {"name": RUN, "step": 40, "steps": 200, "state": "stopped", "log": log, "samples": [], "seconds": 1}
    answer = {**run, "recipe": {**asdict(RECIPE), "previews": 0}, "held_out": {}, "images_per_second": 16031}
    page.route(f"**/api/runs/{RUN}", lambda route: route.fulfill(json=answer))
    page.goto(f"{address}/#/monitor")
    until(page, "document.querySelector('#monitor .when').textContent.startsWith('This run draws none')")
    assert page.is_hidden("#monitor .samples input")
    speed = page.text_content("#monitor [data-chart=speed]")  # thousands are set off, as in the tiles
    assert "15,000" in speed
    assert "16,000" in speed


def test_without_a_run_it_is_said_how_to_give_one(page: Any, address: str) -> None:
    page.route("**/api/runs", lambda route: route.fulfill(json={"runs": []}))
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor .none:not([hidden])")
    assert "scorefield serve runs/mine" in page.text_content("#monitor .none")


def test_a_run_that_cannot_be_read_shows_no_other_ones_numbers(page: Any, address: str) -> None:
    broken = {"name": "broken", "step": 0, "steps": 0, "state": "damaged", "error": "recipe.json is no JSON"}
    later = {"name": "later", "step": 0, "steps": 0, "state": "waiting"}
    own = {"name": RUN, "step": 100, "steps": 200, "state": "stopped"}
    page.route("**/api/runs", lambda route: route.fulfill(json={"runs": [own, broken, later]}))
    page.route("**/api/runs/broken", lambda route: route.fulfill(json=broken))
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor .charts .legend button")
    page.check("#monitor [name=run][value=broken]", force=True)
    until(
        page, "document.querySelector('#monitor .trouble').textContent.includes('broken cannot be read: recipe.json')"
    )
    assert page.is_hidden("#monitor .charts")
    page.check("#monitor [name=run][value=later]", force=True)
    until(page, "document.querySelector('#monitor .trouble').textContent.startsWith('No training there yet')")
    page.check(f"#monitor [name=run][value={RUN}]", force=True)
    until(page, "!document.querySelector('#monitor .charts').hidden")
    assert page.is_hidden("#monitor .trouble")


def test_a_single_measurement_is_seen(page: Any, address: str) -> None:
    log = {"columns": ["step", "loss", "loss_1", "images_per_second"], "rows": [[20, 3.0, 4.0, 500.0]]}
    run = {"name": RUN, "step": 20, "steps": 200, "state": "training", "recipe": asdict(RECIPE), "log": log}
    page.route(
        f"**/api/runs/{RUN}", lambda route: route.fulfill(json={**run, "held_out": {}, "samples": [], "seconds": 1})
    )
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor [data-chart=levels] circle")
    assert page.locator("#monitor [data-chart=speed] circle").count() == 1
    assert "At step 20: σ 0.5: 4" in page.get_attribute("#monitor [data-chart=levels] svg", "aria-label")
