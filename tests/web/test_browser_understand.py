"""The web page in a real browser: the playground."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

from typing import Any

import numpy as np

from web.browser import address as address
from web.browser import browser as browser
from web.browser import page as page
from web.browser import until


def test_modes_are_dragged_and_both_methods_run(page: Any, address: str) -> None:
    page.expected = ["400"]
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
    page.fill("#understand [name=sigma_min]", "30")  # above the largest
    page.click("#understand summary")
    page.click("#understand .primary")
    page.wait_for_timeout(100)
    assert "Largest σ must be above Smallest σ" in page.text_content("#understand .two:has([name=sigma_min]) .wrong")
    assert page.is_visible("#understand .wrong")  # in "More settings", which was closed
    assert page.evaluate("document.activeElement.name") == "sigma_max"
    assert page.get_attribute("#understand [name=sigma_min]", "aria-invalid") == "true"
    page.fill("#understand [name=sigma_min]", "1")
    assert page.is_hidden("#understand .wrong")
    page.focus("[data-method=langevin] .handle >> nth=1")
    page.keyboard.press("ArrowDown")
    page.focus("#understand .primary")
    page.keyboard.press("Enter")
    until(page, "document.activeElement.className === 'stop'")
    until(page, "document.activeElement.className === 'primary'")
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
    page.route("**/api/playground", lambda route: route.fulfill(status=400, json={"error": "no points today"}))
    page.click("#understand .primary")
    page.wait_for_selector("#understand .notice:not([hidden])")
    with page.expect_response("**/api/field"):  # another field is drawn
        page.fill("#understand [name=look]", "0.3")
    page.wait_for_timeout(100)
    assert page.text_content("#understand .notice") == "no points today"
    page.unroute("**/api/playground")
    page.fill("#understand [name=steps]", "500")  # ten times as long, to stop it
    page.focus("#understand .primary")
    page.keyboard.press("Enter")
    until(page, "document.activeElement.className === 'stop'")
    page.keyboard.press("Enter")
    until(page, "document.activeElement.className === 'primary'")


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
    for _ in range(4):
        page.click("#understand .add")
    page.wait_for_load_state("networkidle")
    for k in range(7):
        page.fill(f"#understand tbody tr:nth-child({k + 1}) input", "0.5")
    shares = page.locator("#understand tbody .true").all_text_contents()
    assert shares == ["15 %", "15 %", *["14 %"] * 5]  # rounded, each would be 14 %: 98 % in all
    page.focus("#understand tbody tr:nth-child(7) button")
    for focused in ("Remove mode 6", "Remove mode 5", "Remove mode 4", "Remove mode 3", "Remove mode 2", "Add a mode"):
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent") == focused
    assert page.locator("#understand tbody tr").count() == 1
    assert page.is_disabled("#understand tbody button")
    page.reload()  # the modes are still there
    page.wait_for_selector("#understand .handle")
    assert page.locator("#understand tbody tr").count() == 1
    page.wait_for_load_state("networkidle")
