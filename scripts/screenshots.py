"""Take the screenshots of docs/web: python scripts/screenshots.py [MODEL ...]

A real browser uses a server with these models, beside the pretrained ones, as a user would. The Monitor is
shown if a run is named. It takes a minute on two cores.
"""
# ruff: noqa: ANN401 (without playwright its types are missing; a program prints)

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from scorefield.web.server import Server, listen

PLACE = Path(__file__).parents[1] / "docs" / "web"
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
MINUTES = 10 * 60_000
"""Milliseconds for a job."""


@contextmanager
def served(models: list[str]) -> Iterator[str]:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        server = Server(models, port=port, device="cpu")
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(20)


def done(page: Any, tab: str) -> None:
    """Press the button, twice if the page asks whether it may take that long, and wait for the end."""
    page.click(f"#{tab} .primary")
    page.wait_for_timeout(1500)
    if page.is_visible(f"#{tab} .confirm"):
        page.click(f"#{tab} .primary")
    page.wait_for_selector(f"#{tab} .after:not([hidden])", timeout=MINUTES)
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)


def sample(page: Any, address: str) -> None:
    page.goto(f"{address}/#/sample")
    page.wait_for_selector("#sample [name=model] option", state="attached")
    done(page, "sample")


def restore(page: Any, address: str) -> None:
    page.goto(f"{address}/#/restore")
    page.wait_for_selector("#restore .examples [aria-pressed=true]")
    page.check("#restore [name=task][value=superres]", force=True)
    done(page, "restore")


def hole(page: Any, address: str) -> None:
    page.goto(f"{address}/#/restore")
    page.wait_for_selector("#restore .examples [aria-pressed=true]")
    page.click("#restore [data-preset=bottom]")
    done(page, "restore")
    page.evaluate("document.querySelector('#restore .work > h2').scrollIntoView()")


def interpolate(page: Any, address: str) -> None:
    page.goto(f"{address}/#/interpolate")
    page.wait_for_selector("#interpolate [name=model] option", state="attached")
    done(page, "interpolate")
    page.fill("#interpolate .way", "5")


def understand(page: Any, address: str) -> None:
    page.goto(f"{address}/#/understand?step=4")
    page.wait_for_selector("#understand .legend")
    page.wait_for_timeout(30_000)  # until the points are there and the curves are computed


def monitor(page: Any, address: str) -> None:
    page.goto(f"{address}/#/monitor")
    page.wait_for_selector("#monitor [data-chart=levels] path")
    page.wait_for_timeout(3000)


SHOTS: dict[str, tuple[Callable[[Any, str], None], Any, Any]] = {
    "sample": (sample, WIDE, "light"),
    "restore": (restore, WIDE, "light"),
    "interpolate": (interpolate, WIDE, "light"),
    "understand": (understand, WIDE, "light"),
    "monitor": (monitor, WIDE, "light"),
    "phone": (hole, PHONE, "light"),
    "sample-dark": (sample, WIDE, "dark"),
}
"""What is done for each picture, on which screen and in which colours."""


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with served(sys.argv[1:]) as address, sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, (use, screen, scheme) in SHOTS.items():
            if name == "monitor" and not any(Path(each).is_dir() for each in sys.argv[1:]):
                continue
            page = browser.new_page(viewport=screen, color_scheme=scheme, device_scale_factor=1.5)
            use(page, address)
            page.screenshot(path=PLACE / f"{name}.png", full_page=screen is WIDE)
            print(PLACE / f"{name}.png")
            page.close()


if __name__ == "__main__":
    main()
