"""The web page in a real browser: training runs."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

import io
import json
import runpy
from base64 import b64decode
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from web.browser import GREY, RECIPE, RUN, SIZE, until
from web.browser import address as address
from web.browser import browser as browser
from web.browser import page as page

DOCS = Path(__file__).parents[2] / "docs"


def test_a_run_is_shown_and_updated(page: Any, address: str) -> None:
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
    with page.expect_response(f"**/api/runs/{RUN}", timeout=30_000):  # updated by itself
        pass


def test_samples_are_shown_without_the_white_between_them(page: Any, address: str) -> None:
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
    page.fill("#monitor .samples input", "0")  # a picture with another layout is shown as it is
    page.wait_for_selector("#monitor .samples canvas[aria-label='Samples after step 50']")
    assert page.eval_on_selector(name, "canvas => [canvas.width, canvas.height]") == [30, 30]


def test_damaged_samples_are_reported_until_others_are_chosen(page: Any, address: str) -> None:
    page.goto(f"{address}/#/monitor")
    page.route(f"**/api/runs/{RUN}/samples/50.png", lambda route: route.fulfill(body=b"no", content_type="image/png"))
    page.wait_for_selector("#monitor .samples canvas")
    page.fill("#monitor .samples input", "0")
    until(page, "document.querySelector('#monitor .when')?.textContent === 'This picture is damaged.'")
    with page.expect_response(f"**/api/runs/{RUN}"):  # an update, as every three seconds
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(100)
    assert page.text_content("#monitor .when") == "This picture is damaged."
    assert page.is_hidden("#monitor .samples canvas")
    page.fill("#monitor .samples input", "1")
    page.wait_for_selector("#monitor .samples canvas")
    assert page.text_content("#monitor .when") == "At step 100, 2 of 2"


def test_a_run_without_samples_says_why(page: Any, address: str) -> None:
    log = {"columns": ["step", "loss", "loss@0.5", "images_per_second"], "rows": [[20, 3, 4, 15000], [40, 2, 3, 16031]]}
    run = {"name": RUN, "step": 40, "steps": 200, "state": "stopped", "log": log, "samples": [], "seconds": 1}
    answer = {**run, "recipe": {**asdict(RECIPE), "previews": 0}, "held_out": {}, "images_per_second": 16031}
    page.route(f"**/api/runs/{RUN}", lambda route: route.fulfill(json=answer))
    page.goto(f"{address}/#/monitor")
    until(page, "document.querySelector('#monitor .when')?.textContent.includes('previews is 0')")
    assert page.is_hidden("#monitor .samples input")
    speed = page.text_content("#monitor [data-chart=speed]")  # with a comma, as in the tiles
    assert "15,000" in speed
    assert "16,000" in speed


def test_without_a_run_the_page_shows_how_to_start_with_one(page: Any, address: str) -> None:
    page.route("**/api/runs", lambda route: route.fulfill(json={"runs": []}))
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor .none:not([hidden])")
    assert "scorefield serve runs/mine" in page.text_content("#monitor .none")
    until(page, "document.querySelectorAll('#monitor [data-chart=levels] path').length === 10")
    names = page.locator("#monitor .runs label").all_text_contents()
    assert names == [f"{name} (pretrained)" for name in ("mnist-small", "mnist", "unet-mnist")]
    report = json.loads((DOCS / "results" / "mnist-small" / "report.json").read_text())
    log = report["training"]["log"]
    last = dict(zip(log["columns"], log["rows"][-1], strict=True))
    legend = page.locator("#monitor [data-chart=levels] .legend button b").all_text_contents()
    assert [float(text) for text in legend] == [float(f"{last[name]:.3g}") for name in log["columns"] if "@" in name]
    assert "mnist-small (pretrained)" in page.text_content("#monitor .tiles")
    assert f"{report['model']['step']:,}" in page.text_content("#monitor .tiles")
    assert "docs/results/mnist-small/report.json" in page.text_content("#monitor .source")
    assert page.is_hidden("#monitor .samples")  # the next chart has its place
    wide, beside = (
        page.locator(f"#monitor .card:has([data-chart={name}])").bounding_box() for name in ("levels", "held_out")
    )
    charts = page.locator("#monitor .charts").bounding_box()
    assert beside["y"] == wide["y"]
    assert beside["x"] + beside["width"] == charts["x"] + charts["width"]
    page.check("#monitor [value='unet-mnist (pretrained)']")  # of which fewer losses were kept
    page.uncheck("#monitor [value='mnist-small (pretrained)']")
    until(page, "document.querySelector('#monitor .tiles').textContent.includes('Held-out loss33.8')")
    losses = json.loads((DOCS / "measurements" / "unet_mnist_training.json").read_text())["held_out"][-1]
    legend = page.locator("#monitor [data-chart=held_out] .legend button b").all_text_contents()
    assert [float(text) for text in legend] == [float(f"{losses[name]:.3g}") for name in ("raw", "average")]
    assert "unet_mnist_training.json of the source code. Only its held-out" in page.text_content("#monitor .source")
    charts = page.locator("#monitor .charts").bounding_box()
    assert page.locator("#monitor .charts .card:visible").count() == 1  # nothing else was kept
    assert page.locator("#monitor .charts .card:visible").bounding_box()["width"] == charts["width"]


def test_the_logs_of_pretrained_models_are_those_of_their_reports() -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "write_training_logs.py"))
    for name in script["NAMES"]:
        written = json.loads((script["LOGS"] / f"{name}.json").read_text())
        assert written == json.loads(json.dumps(script["log_of"](name)))


def test_several_runs_share_the_charts_over_steps_and_by_sigma(page: Any, address: str) -> None:
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor [data-chart=levels] path")
    page.get_by_role("checkbox", name="mnist-small (pretrained)").check()
    until(page, "document.querySelectorAll('#monitor .tally tbody tr').length === 2")
    rows = page.locator("#monitor .tally tbody tr").all_text_contents()
    assert rows[0].startswith(f"{RUN}stopped100 of 200")
    assert rows[1].startswith("mnist-small (pretrained)done16,50130.929")  # step, loss and held-out loss
    names = page.locator("[data-chart=rate] .legend button").all_text_contents()
    assert [name[:5] for name in names] == ["first", "mnist"]
    lines = page.locator("[data-chart=rate] path")
    colours = [line.evaluate("path => getComputedStyle(path).stroke") for line in lines.all()]
    assert len(set(colours)) == 2
    assert len({line.get_attribute("stroke-dasharray") for line in lines.all()}) == 2  # not by the colour alone
    rate = page.locator("[data-chart=rate]")  # the lines end at steps 100 and 16,500
    assert rate.locator(".legend span").text_content() == "latest values"
    assert "–" not in rate.locator(".legend button b").all_text_contents()
    rate.locator("svg").focus()
    page.keyboard.press("ArrowLeft")  # the last step
    assert rate.locator(".legend span").text_content() == "at step 16,500"
    assert rate.locator(".legend button b >> nth=0").text_content() == "–"
    page.get_by_role("radio", name="by σ").focus()
    page.keyboard.press("Space")
    levels = page.locator("#monitor [data-chart=levels]")  # the loss at the largest σ is not a latest one
    assert levels.locator(".legend button b").all_text_contents() == ["", ""]
    assert levels.locator(".legend span").text_content() == "Point at the chart to see values."
    assert "8.19" not in levels.locator("svg").get_attribute("aria-label")
    page.focus("#monitor [data-chart=levels] svg")
    page.keyboard.press("ArrowRight")  # the last σ
    assert "at σ = 1" in page.text_content("#monitor [data-chart=levels] .legend")
    legend = page.text_content("#monitor [data-chart=levels] .legend button[data-name='mnist-small (pretrained)'] b")
    assert legend == "8.19"
    page.get_by_role("checkbox", name="mnist-small (pretrained)").uncheck()
    until(page, "document.querySelectorAll('#monitor [data-chart=levels] path.faint').length > 2")  # earlier steps
    line = page.locator("#monitor [data-chart=levels] path:not(.faint)")
    assert line.count() == 1
    assert line.get_attribute("data-name") == "step 100"
    page.get_by_role("checkbox", name=RUN).uncheck()
    until(page, "document.querySelector('#monitor .trouble').textContent === 'Choose a run.'")
    assert page.is_hidden("#monitor .charts")


def test_on_a_phone_the_page_is_as_wide_as_the_screen(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor [data-chart=levels] path")
    page.get_by_role("checkbox", name="mnist (pretrained)", exact=True).check()
    page.wait_for_selector("#monitor .tally")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for label in page.locator("#monitor label.check:visible, #monitor summary").all():
        assert label.bounding_box()["height"] >= 24
    page.route("**/api/runs", lambda route: route.fulfill(json={"runs": []}))
    page.wait_for_selector("#monitor .none:not([hidden])")
    until(page, "!document.querySelector('#monitor .charts').hidden")
    tops = [page.locator(f"#monitor {part}").bounding_box()["y"] for part in (".charts", ".none")]
    assert tops[0] < tops[1]  # the charts first
    page.set_viewport_size({"width": 1280, "height": 844})
    tops = [page.locator(f"#monitor {part}").bounding_box()["y"] for part in (".charts", ".none")]
    assert tops[1] < tops[0]
    assert page.evaluate("document.documentElement.scrollWidth") == 1280


def test_a_damaged_or_waiting_run_does_not_show_the_numbers_of_another(page: Any, address: str) -> None:
    broken = {"name": "broken", "step": 0, "steps": 0, "state": "damaged", "error": "recipe.json is no JSON"}
    later = {"name": "later", "step": 0, "steps": 0, "state": "waiting"}
    own = {"name": RUN, "step": 100, "steps": 200, "state": "stopped"}
    page.route("**/api/runs", lambda route: route.fulfill(json={"runs": [own, broken, later]}))
    page.route("**/api/runs/broken", lambda route: route.fulfill(json=broken))
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor .charts .legend button")
    page.uncheck(f"#monitor [name=run][value={RUN}]")
    page.check("#monitor [name=run][value=broken]")
    until(page, "document.querySelector('#monitor .trouble').textContent.includes('recipe.json is no JSON')")
    assert page.is_hidden("#monitor .charts")
    page.uncheck("#monitor [name=run][value=broken]")
    page.check("#monitor [name=run][value=later]")
    until(page, "document.querySelector('#monitor .trouble').textContent.includes('has not begun')")
    page.uncheck("#monitor [name=run][value=later]")
    page.check(f"#monitor [name=run][value={RUN}]")
    until(page, "!document.querySelector('#monitor .charts').hidden")
    assert page.is_hidden("#monitor .trouble")


def test_a_single_measurement_is_drawn_as_a_point_and_the_last_samples_are_awaited(page: Any, address: str) -> None:
    log = {"columns": ["step", "loss", "loss@0.5", "images_per_second"], "rows": [[20, 3.0, 4.0, 500.0]]}
    run = {"name": RUN, "step": 20, "steps": 20, "state": "training", "recipe": asdict(RECIPE), "log": log}
    page.route(
        f"**/api/runs/{RUN}", lambda route: route.fulfill(json={**run, "held_out": {}, "samples": [], "seconds": 1})
    )
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor .tiles >> text=drawing samples")  # all steps are done, but the run is not
    page.wait_for_selector("#monitor [data-chart=levels] circle")
    assert page.locator("#monitor [data-chart=speed] circle").count() == 1
    assert "At step 20: σ 0.5: 4" in page.get_attribute("#monitor [data-chart=levels] svg", "aria-label")
