"""The web page in a real browser: what is loaded, asked for or chosen again."""
# ruff: noqa: ANN401 (where playwright is missing, so are its types)

from __future__ import annotations

from typing import Any

from web_browser import address as address
from web_browser import browser as browser
from web_browser import draw, pixels, until
from web_browser import page as page


def jobs_asked_for(page: Any) -> list[str]:
    """Grows with each job that the page asks for."""
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url) if sent.method == "POST" else None)
    return asked


def test_a_page_that_is_loaded_again_shows_its_job_again(page: Any, address: str) -> None:
    asked = jobs_asked_for(page)
    page.goto(address)
    page.fill("#sample [name=n]", "2")
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
    page.wait_for_selector("#sample .after:not([hidden])")
    assert pixels(page, "#sample canvas") == one
    assert len(asked) == 2


def test_a_page_that_is_loaded_again_while_its_job_runs_goes_on_with_it(page: Any, address: str) -> None:
    asked = jobs_asked_for(page)
    page.goto(address)
    page.fill("#sample [name=n]", "4")
    page.fill("#sample [name=steps]", "100")
    page.click("#sample .primary")
    until(page, "Number(document.querySelector('#sample .seek').value) >= 2")
    page.reload()
    page.wait_for_selector("#sample .after:not([hidden])")
    assert "Done" in page.text_content("#sample .status")
    assert len(asked) == 1


def test_it_works_where_the_browser_remembers_nothing(page: Any, address: str) -> None:
    denied = "Object.defineProperty(window, 'sessionStorage', {get() { throw new DOMException('denied') }})"
    page.add_init_script(denied)
    page.goto(address)
    page.fill("#sample [name=steps]", "1")
    draw(page)
    page.click("#tab-inpaint")
    until(page, "document.querySelector('#fitted').textContent !== ''")
    draw(page, "inpaint")


def test_two_quick_changes_of_the_address_draw_the_last(page: Any, address: str) -> None:
    asked: list[dict[str, Any]] = []
    page.on("request", lambda sent: asked.append(sent.post_data_json) if "/api/sample" in sent.url else None)
    page.goto(f"{address}/#/sample?n=2&steps=100&seed=1")
    until(page, "document.querySelector('#sample .seek')?.value >= 2")
    page.evaluate("for (const k of [2, 3]) location.hash = `#/sample?n=2&steps=2&seed=${k}`")
    until(page, "document.querySelector('#sample .command code').textContent.includes('--seed 3')")
    page.wait_for_selector("#sample .after:not([hidden])")
    assert [each["seed"] for each in asked] == [1, 3]
    assert page.get_attribute("#sample .seek", "max") == "6"


def test_a_comma_in_a_whole_number_is_none(page: Any, address: str) -> None:
    page.goto(address)
    for name, words in (("n", "Images"), ("seed", "Seed")):
        page.fill(f"#sample [name={name}]", "1,000")
        page.click("#sample .primary")
        assert f"{words}: a whole number from" in page.text_content("#sample .error")
        page.fill(f"#sample [name={name}]", "1")


def test_models_that_come_later_can_be_chosen(page: Any, address: str) -> None:
    known: dict[str, Any] = {}

    def more(route: Any) -> None:
        answer = route.fetch().json()
        known.update(answer)
        newer = [{**model, "name": "newer"} for model in answer["models"][:1]] if known.get("later") else []
        route.fulfill(json={**answer, "models": [*answer["models"], *newer]})

    page.route("**/api/models", more)
    page.goto(address)
    page.wait_for_selector("#sample [name=model] option", state="attached")
    chosen = page.input_value("#sample [name=model]")
    known["later"] = True
    page.click("#tab-monitor")
    page.wait_for_selector("#sample [name=model] option[value=newer]", state="attached")
    assert page.input_value("#sample [name=model]") == chosen


def test_a_file_is_not_called_a_run(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#sample [name=model] option", state="attached")
    assert page.locator("#sample [name=model] option").all_text_contents() == ["first (run)", "large", "mnist-small"]


def test_the_focus_goes_from_draw_to_stop_and_back(page: Any, address: str) -> None:
    page.goto(address)
    page.fill("#sample [name=steps]", "100")
    page.focus("#sample .primary")
    page.keyboard.press("Enter")
    until(page, "document.activeElement.className === 'stop'")
    page.keyboard.press("Enter")
    until(page, "document.activeElement.className === 'primary'")
