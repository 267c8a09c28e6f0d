"""The web page in a real browser: the playground."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

from typing import Any

import numpy as np

from web.browser import address as address
from web.browser import browser as browser
from web.browser import page as page


def test_modes_are_dragged_and_both_methods_run(page: Any, address: str) -> None:
    asked: list[dict[str, Any]] = []
    page.emulate_media(reduced_motion="reduce")  # only the end is shown
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


def test_all_digits_of_a_seed_are_visible(page: Any, address: str) -> None:
    for width in (1400, 1100, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{address}/#/understand")
        page.fill("#understand [name=seed]", "999999")
        assert page.eval_on_selector("#understand [name=seed]", "seed => seed.scrollWidth <= seed.clientWidth")


def test_modes_are_added_and_removed(page: Any, address: str) -> None:
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
