"""The web page in a real browser, with a tiny model in the shipped one's place."""
# ruff: noqa: ANN401 (where playwright is missing, so are its types)

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scorefield import shipped
from scorefield.checkpoint import save_model
from scorefield.recipes import Recipe, network_of

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
pytest.importorskip("starlette", reason="needs the web extra (pip install 'scorefield[web]')")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("needs Chromium (apt-get install chromium)", allow_module_level=True)

from scorefield.web.server import Server, application, bound  # noqa: E402

ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
ARGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
RECIPE = Recipe(width=2, levels=3, sigma_max=0.5, step_size=2e-5, sample_steps=8, steps=200)
SIZE = 12
RUN = "first"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a tiny model and a run folder, in a thread."""
    folder = tmp_path_factory.mktemp("served")
    weights = network_of(RECIPE, channels=1).state_dict()
    for path in ("box/mnist-small.safetensors", f"{RUN}/checkpoints/model-00000100.safetensors"):
        save_model(folder / path, weights, None, recipe=RECIPE, shape=(1, SIZE, SIZE), step=100, facts={"data": "x"})
    write_run(folder / RUN)
    with pytest.MonkeyPatch.context() as patch, bound("127.0.0.1", 0) as listening:
        patch.setattr(shipped, "FOLDERS", [folder / "box"])
        port = listening.getsockname()[1]
        server = Server(application([str(folder / RUN)], port=port, device="cpu"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def write_run(folder: Path) -> None:
    """A run that has come half the way."""
    (folder / "recipe.json").write_text(json.dumps(asdict(RECIPE)))
    names = ["step", "loss", *(f"loss_{k}" for k in (1, 2, 3)), "learning_rate", "images_per_second", "seconds"]
    with (folder / "log.csv").open("w", newline="") as file:
        rows = [[k, 3 / k, 4 / k, 3 / k, 2 / k, 1e-3, 500, k] for k in range(10, 110, 10)]
        csv.writer(file).writerows([names, *rows])
    (folder / "samples").mkdir()
    for step in (50, 100):
        Image.new("L", (30, 30), step).save(folder / "samples" / f"{step:08d}.png")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that asks no other host for anything, and has no complaints."""
    context = browser.new_context(viewport={"width": 1100, "height": 760}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(15_000)
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: None if own(asked.url, address) else complaints.append(asked.url))
    page.expected = []  # what may be complained of
    yield page
    context.close()
    assert [each for each in complaints if not any(re.search(known, each) for known in page.expected)] == []


def own(url: str, address: str) -> bool:
    return url.startswith((f"{address}/", "blob:", "data:"))


def draw(page: Any, tab: str = "sample") -> None:
    page.click(f"#{tab} .primary")
    page.wait_for_selector(f"#{tab} .after:not([hidden])")


def until(page: Any, expression: str) -> None:
    """Wait until it is true. (Playwright's own wait needs eval, which the page's policy forbids.)"""
    for _ in range(300):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def pixels(page: Any, selector: str) -> str:
    """All that a canvas shows, as text."""
    return page.eval_on_selector(selector, "canvas => canvas.toDataURL()")


def downloaded(page: Any, click: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.click(click)
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def picture(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("L"))


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
    until(page, "Number(document.querySelector('#sample .seek').max) >= 2")
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


# ---------------------------------------------------------------- inpaint


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
    page.wait_for_selector("#inpaint .error:not([hidden])")
    assert "no image" in page.text_content("#inpaint .error")


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
    assert {each["method"] for each in asked} == {"langevin", "annealed"}
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
    assert page.get_attribute("#monitor .samples img", "src").endswith(f"/api/runs/{RUN}/samples/50.png")
    with page.expect_response(f"**/api/runs/{RUN}", timeout=6_000):  # asked again by itself
        pass


def test_without_a_run_it_is_said_how_to_give_one(page: Any, address: str) -> None:
    page.route("**/api/runs", lambda route: route.fulfill(json={"runs": []}))
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor .none:not([hidden])")
    assert "scorefield serve runs/mine" in page.text_content("#monitor .none")
