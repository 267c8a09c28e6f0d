"""The web page in a real browser: samplers on a mixture, computed there."""
# ruff: noqa: ANN401 (without playwright its types are missing too)

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
from torch import Tensor

from scorefield import samplers
from scorefield.distributions import GaussianMixture
from scorefield.evaluation.frontier import Toy, distance_to
from scorefield.paper.output import EXTENT, HEAVY, LIGHT, WEIGHTS
from scorefield.spacing import spaced
from web.browser import address as address
from web.browser import browser as browser
from web.browser import page as page
from web.browser import pixels, until

TOY = Toy(LIGHT, HEAVY, WEIGHTS, EXTENT)
PROBLEM = {"sigma_max": 20, "levels": 10, "step_size": 0.1}
FRONTIER = Path(__file__).parents[2] / "docs/measurements/frontier_toy.json"
LOADED = """async ({ n, seed, ...asked }) => {
    const { Mixture, distanceTo } = await import("/static/mixture.js");
    const { Noise } = await import("/static/random.js");
    const samplers = await import("/static/samplers.js");
    const mixture = new Mixture(asked.mixture ?? { means: [[-5, -5], [5, 5]], weights: [0.2, 0.8], std: 1 });
    const noise = new Noise(seed ?? 0, n ?? 1);
    return (%s)(asked);
}"""


@pytest.fixture
def run(page: Any, address: str) -> Callable[..., Any]:
    """Runs a function of JavaScript, in which the page's modules are known, with these values."""
    page.goto(f"{address}/#/sample")
    return lambda function, **values: page.evaluate(LOADED % function, values)


def points(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_score_and_the_density_are_the_packages(run: Callable[..., Any]) -> None:
    means, weights = [[-5.0, 0.5], [5.0, 2.5], [0.0, 7.0]], [1.0, 3.0, 0.2]
    x = 8 * points(60)
    for std, sigma in ((1.0, 0.0), (0.3, 2.0), (0.0, 20.0)):
        known = GaussianMixture(torch.tensor(means, dtype=torch.float64), std, weights)
        given = {"mixture": {"means": means, "weights": weights, "std": std}, "x": x.flatten().tolist(), "sigma": sigma}
        score = run("({ x, sigma }) => [...mixture.score(Float64Array.from(x), sigma)]", **given)
        log_prob = run("({ x, sigma }) => [...mixture.logProb(Float64Array.from(x), sigma)]", **given)
        # the weights of a float64 mixture are float64, so only rounding differs
        torch.testing.assert_close(torch.tensor(score, dtype=torch.float64).reshape(-1, 2), known.score(x, sigma))
        torch.testing.assert_close(torch.tensor(log_prob, dtype=torch.float64), known.log_prob(x, sigma))


SETTINGS: dict[str, dict[str, float]] = {
    "langevin": {"step_size": 0.1, "steps": 5},
    "annealed_langevin": {"step_size": 0.1, "steps": 3},
    **{name: {} for name in ("euler", "heun", "dpmpp_2m", "dpmpp_3m", "adams_bashforth", "ancestral")},
    "predictor_corrector": {},
    "consistent_annealed": {"eta": 1.5 * (1 - 0.7)},
}
"""Of each sampler, for Python; those of the page are the same."""


def next_of(values: Iterator[Tensor], like: Tensor) -> Tensor:
    return next(values)


def test_every_sampler_makes_the_packages_states(run: Callable[..., Any]) -> None:
    """With the same start and the same random numbers, up to the rounding of float64."""
    mixture = GaussianMixture(torch.tensor([LIGHT, HEAVY], dtype=torch.float64), 1.0, WEIGHTS)
    x, noise = 6 * points(8), [points(8, seed) for seed in range(1, 40)]
    for name, settings in SETTINGS.items():
        path = [5 * 0.7**k for k in range(7)] + ([] if name == "annealed_langevin" else [0.0])
        sigmas: Any = 2.0 if name == "langevin" else path
        states = list(
            getattr(samplers, name)(
                mixture.score,
                x,
                torch.tensor(sigmas, dtype=torch.float64),
                randn_like=partial(next_of, iter(noise)),
                **settings,
            )
        )
        found = run(
            """({ name, x, sigmas, settings, randn }) => {
                let draws = 0;
                const more = { ...settings, randn: () => Float64Array.from(randn[draws++]) };
                const score = (x, sigma) => mixture.score(x, sigma);
                const states = samplers[name](score, Float64Array.from(x), sigmas, more);
                return [...states].map(({ x, sigma, step }) => ({ x: [...x], sigma, step }));
            }""",
            name=name,
            x=x.flatten().tolist(),
            sigmas=sigmas,
            settings=settings,
            randn=[z.flatten().tolist() for z in noise],
        )
        if name == "predictor_corrector":  # here a step is a correction and a prediction together
            states = states[::2]
        assert [each["sigma"] for each in found] == pytest.approx([state.sigma.item() for state in states], rel=1e-12)
        ours = torch.tensor([each["x"] for each in found], dtype=torch.float64).reshape(len(states), -1, 2)
        theirs = torch.stack([state.x for state in states])
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-10), name


def test_schedules_and_calls_are_the_packages(run: Callable[..., Any]) -> None:
    found = run(
        """(problem) => Object.entries(samplers.SAMPLERS).flatMap(([name, { calls }]) => calls.map((number) => {
            const states = [...samplers.start(name, number, { ...problem, mixture }, noise)];
            return { name, number, made: states.at(-1).calls, sigmas: states.map(({ sigma }) => sigma) };
        }))""",
        **PROBLEM,
    )
    assert {each["name"] for each in found} == samplers.SAMPLERS.keys() - {"annealed_hmc"} | {"langevin"}
    for each in found:
        if each["name"] == "langevin":
            assert each["made"] == each["number"]
            assert set(each["sigmas"]) == {1}
            continue
        name = each["name"] if each["name"] != TOY.usual.name else None
        wanted = samplers.changed(TOY.usual, {"calls": each["number"]}, name=name, accepted=TOY.accepted)
        assert each["made"] == wanted.calls
        if name is None:
            assert each["sigmas"][1 :: wanted.steps] == pytest.approx(wanted.sigmas)
        else:  # there σ is the noise, here the width of a mode with it
            assert each["sigmas"] == pytest.approx([math.hypot(1, sigma) for sigma in (*wanted.sigmas, 0)])
    for rho in (7, math.inf):
        text = "({ rho }) => samplers.spaced(20, 0.05, 9, rho ?? Infinity)"
        assert run(text, rho=None if rho == math.inf else rho) == pytest.approx(spaced(20, 0.05, 9, rho=rho))


def test_the_distance_is_the_packages(run: Callable[..., Any]) -> None:
    mixture = GaussianMixture(torch.tensor([LIGHT, HEAVY], dtype=torch.float64), 1.0, WEIGHTS)
    for x in (TOY.mixture.sample(500).double(), 9 * points(300), 1000 * points(5)):
        found = run("({ x }) => distanceTo(mixture, Float64Array.from(x))", x=x.flatten().tolist())
        assert found == pytest.approx(distance_to(mixture, x), rel=1e-6)  # it counts in float32


def test_random_numbers_are_normal_independent_and_seeded(run: Callable[..., Any]) -> None:
    n, draws = 5000, 8
    drawn = f"Array.from({{ length: {draws} }}, () => [...noise.normal()])"
    z = np.array(run(f"() => {drawn}", n=n, seed=3)).reshape(draws, n, 2)
    few = np.array(run(f"() => {drawn}", n=7, seed=3)).reshape(draws, 7, 2)
    assert (few == z[:, :7]).all()  # point k has the same numbers however many points there are
    total = z.size
    error = 1 / math.sqrt(total)
    assert abs(z.mean()) < 5 * error
    assert abs((z**2).mean() - 1) < 5 * math.sqrt(2) * error
    assert abs((z**4).mean() - 3) < 5 * math.sqrt(96) * error
    assert (abs(z) < 1).mean() == pytest.approx(0.6827, abs=5 * 0.466 * error)
    other = np.array(run(f"() => {drawn}", n=n, seed=4)).reshape(draws, n, 2)
    for a, b in ((z[:-1], z[1:]), (z[:, :-1], z[:, 1:]), (z[..., 0], z[..., 1]), (z, other), (z[0, ::2], z[1, 1::2])):
        assert abs((a * b).mean()) < 5 / math.sqrt(a.size)


def test_shares_and_distances_are_those_of_the_packages_samplers(run: Callable[..., Any]) -> None:
    n = 10_000
    measured = {(each["sampler"], each["calls"]): each for each in json.loads(FRONTIER.read_text())["trials"]}
    known = {
        key: (measured[key]["value"], measured[key]["share"])
        for key in (
            *(("annealed_langevin", 200), ("euler", 5), ("dpmpp_2m", 10), ("ancestral", 20)),
            *(("predictor_corrector", 20), ("consistent_annealed", 10)),
        )
    }
    plain = samplers.AnnealedLangevin((1.0,), step_size=0.5, steps=200)
    known["langevin", 200] = TOY.measure(TOY.sample(plain, n))
    found = run(
        """({ asked, ...problem }) => asked.map(([name, calls]) => {
            let end;
            for (const state of samplers.start(name, calls, { ...problem, mixture }, new Noise(1, 10000))) end = state;
            return [distanceTo(mixture, end.x), mixture.counts(end.x)[1] / 10000];
        })""",
        asked=list(known),
        **PROBLEM,
    )
    # Standard errors: of the difference of two shares 0.006. A share off by 0.004 moves points by 10 in the mean over
    # the directions, so that a distance is off by up to 0.04, and the difference of two by 0.05.
    for (key, (distance, share)), ours in zip(known.items(), found, strict=True):
        assert ours[0] == pytest.approx(distance, abs=4 * 0.05), key
        assert ours[1] == pytest.approx(share, abs=4 * math.sqrt(2 * share * (1 - share) / n)), key


def opened(page: Any, address: str, query: str = "") -> None:
    page.goto(f"{address}/#/understand{query}")
    page.wait_for_selector("#understand .handle")


def share(page: Any, side: str, mode: int = 2) -> int:
    return int(page.text_content(f"#understand tbody tr:nth-child({mode}) .{side}").rstrip(" %"))


def test_the_four_steps_by_mouse_and_keyboard(page: Any, address: str) -> None:
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    opened(page, address)
    right = "#understand [data-side=right] canvas"
    assert page.get_attribute(right, "aria-label") == "The score over the density at σ = 1."
    assert page.is_hidden("#understand .player")  # nothing moves
    assert page.locator("#understand [data-side=right] .handle").all_text_contents() == ["1", "2"]  # no shares
    assert page.text_content("#understand tbody tr:first-child .right") == "–"
    first = pixels(page, right)
    page.click("#understand .next")
    before = pixels(page, right)
    assert before != first
    until(page, "Number(document.querySelector('#understand .seek').value) > 50")  # it plays by itself
    assert pixels(page, right) != before
    page.click("#understand .play")
    assert page.get_attribute("#understand .play", "aria-label") == "Play"
    page.fill("#understand .seek", "1000")
    # The exact shares are 20 % and 80 %; the standard error for 600 points is 1.6 %. Langevin leaves half on each side.
    assert 74 < share(page, "left") < 86
    assert 42 < share(page, "right") < 58
    page.focus("#understand .next")
    page.keyboard.press("Enter")  # the third step
    assert page.text_content("#understand .steps [aria-current=step]") == "3Noise levels"
    page.focus("#understand .seek")
    page.keyboard.press("End")
    assert page.get_attribute("#understand .seek", "aria-valuetext") == "σ = 1"
    assert 42 < share(page, "left") < 58
    assert 71 < share(page, "right") < 87
    page.keyboard.press("Home")
    assert page.get_attribute("#understand .seek", "aria-valuetext") == "σ = 20"
    assert "σ = 20" in page.get_attribute(right, "aria-label")
    page.click("#understand .steps li:nth-child(4) button")
    page.click("#understand .play")
    page.fill("#understand .seek", "1000")
    assert "Call 10 of 10." in page.text_content("#understand [data-side=right] .about")
    page.focus("#understand [data-side=left] .method")
    page.select_option("#understand [data-side=left] .method", "heun")
    assert page.input_value("#understand [data-side=left] .calls") == "20"
    page.select_option("#understand [data-side=left] .calls", "10")
    until(page, "document.querySelector('#understand [data-side=left] .about').textContent.includes(' of 9.')")
    assert page.evaluate("location.hash") == "#/understand?step=4&left=heun:10"
    until(page, "document.querySelectorAll('#understand .curve circle').length >= 12")  # both curves are measured
    known = {
        trial["sampler"]: trial["value"] for trial in json.loads(FRONTIER.read_text())["trials"] if trial["calls"] == 10
    }
    value = "#understand .curve .legend button[data-name='DPM++ 2M'] b"
    until(page, f'document.querySelector("{value}").textContent[0] !== "–"')  # until it is measured with so many calls
    distance, calls = page.text_content(value).split(" ", 1)
    assert float(distance) == pytest.approx(known["dpmpp_2m"], abs=4 * 0.05)
    assert calls == "(10 calls)"
    value = "#understand .curve .legend button[data-name='Heun'] b"  # each at its own number of calls
    until(page, f'/^[0-9.]+ [(]9 calls[)]$/.test(document.querySelector("{value}")?.textContent)')
    page.select_option("#understand [data-side=right] .method", "heun")  # one method with two numbers of calls
    page.select_option("#understand [data-side=right] .calls", "20")
    shown = "/^[0-9.]+ [(]9 calls[)], [0-9.]+ [(]19 calls[)]$/"
    until(page, f'{shown}.test(document.querySelector("{value}")?.textContent)')
    faint = "#understand .curve .legend button[data-name='DPM++ 2M'] b"  # where it was last
    assert page.text_content(faint) == f"{distance} (10 calls)"
    assert not [url for url in asked if "/api/playground" in url or "/api/field" in url]


def test_arrow_keys_move_by_noise_levels(page: Any, address: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    opened(page, address, "?step=3")
    page.focus("#understand .seek")

    def sigmas(*keys: str) -> list[str]:
        found = []
        for key in keys:
            page.keyboard.press(key)
            found.append(page.get_attribute("#understand .seek", "aria-valuetext").removeprefix("σ = "))
        return found

    levels = [f"{20 ** (1 - k / 9):.3g}" for k in range(10)]
    assert sigmas("Home", *["ArrowRight"] * 11) == [*levels, "1", "1"]  # the start of each, the end, and not beyond it
    assert sigmas(*["ArrowLeft"] * 2, "ArrowDown", "ArrowUp") == [*levels[:-3:-1], levels[-3], levels[-2]]
    assert sigmas("Home", "PageUp", "PageUp", "PageDown") == [levels[0], levels[4], levels[8], levels[4]]
    page.fill("#understand .seek", "130")  # between the second and the third
    assert sigmas("ArrowLeft", "ArrowRight", "ArrowRight") == [levels[1], levels[2], levels[3]]
    page.select_option("#understand [data-side=right] .method", "euler")
    page.select_option("#understand [data-side=right] .calls", "5")
    page.focus("#understand .seek")
    assert sigmas("Home", *["ArrowRight"] * 3)[1:] == ["6.82", "2.11", "1.07"]  # one call each
    assert "Call 3 of 5." in page.text_content("#understand [data-side=right] .about")
    page.click("#understand .steps li:nth-child(2) button")  # where no noise falls: parts of the run
    page.focus("#understand .seek")
    moved = [float(part.rstrip(" %")) for part in sigmas("Home", "ArrowRight", "ArrowRight")]
    assert moved == pytest.approx([0, 2.5, 5], abs=1.5)


def test_shares_stay_inside_the_plane_and_cover_nothing(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(reduced_motion="reduce")
    spread = "-5,-5,0.2;5,5,0.8;0.9,-4.9,0.5;3,4,0.5;-4.9,-1,0.5;4.2,-2.7,0.5;-1.2,4.8,0.5;-2.5,-7.5,0.5"
    corners = ";".join(f"{x},{y},0.5" for x in (-7.5, 7.5) for y in (-7.5, 7.5))
    for modes, least in ((spread, 5), (corners, 4), ("0,0,1;" * 7 + "0,0,1", 1)):
        opened(page, address, f"?step=3&modes={modes}")
        until(page, f"document.querySelectorAll('#understand tbody tr').length === {len(modes.split(';'))}")
        for side in ("left", "right"):
            plane = page.locator(f"#understand [data-side={side}] .plane").bounding_box()
            shares = page.locator(f"#understand [data-side={side}] .handle span").all()
            boxes = [share.bounding_box() for share in shares if share.is_visible()]
            handles = [each.bounding_box() for each in page.locator(f"[data-side={side}] .handle").all()]
            assert len(boxes) >= least
            for k, box in enumerate(boxes):
                assert overlap(box, plane) == pytest.approx(box["width"] * box["height"])
                assert not any(overlap(box, other) > 1 for other in (*boxes[:k], *handles))


def overlap(one: dict[str, float], other: dict[str, float]) -> float:
    """The area in both boxes."""
    sizes = [
        min(one[start] + one[size], other[start] + other[size]) - max(one[start], other[start])
        for start, size in (("x", "width"), ("y", "height"))
    ]
    return max(sizes[0], 0) * max(sizes[1], 0)


def test_every_setting_is_explained_and_large_enough_to_touch(page: Any, address: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    opened(page, address, "?step=3")
    help_of = """element => element.getAttribute('aria-describedby') &&
        document.getElementById(element.getAttribute('aria-describedby')).textContent"""
    for name in (".method", ".calls", "tbody input", "form input"):
        lines = [each.evaluate(help_of) for each in page.locator(f"#understand {name}").all()]
        assert lines
        assert all(lines), name
    assert page.locator("#understand summary").bounding_box()["height"] >= 24


def test_points_follow_the_modes_while_they_are_dragged(page: Any, address: str) -> None:
    page.emulate_media(reduced_motion="reduce")  # the end is shown at once
    opened(page, address, "?step=4")
    assert page.get_attribute("#understand .play", "aria-label") == "Play"
    assert page.input_value("#understand .seek") == "1000"
    plane = page.locator("#understand [data-side=right] .plane").bounding_box()
    page.locator("#understand [data-side=right] .handle >> nth=1").hover()
    page.mouse.down()
    right = "#understand [data-side=right] canvas"
    for k in range(1, 4):
        before = pixels(page, right)
        page.mouse.move(plane["x"] + plane["width"] * (0.8 - 0.2 * k), plane["y"] + plane["height"] * 0.25, steps=2)
        until(page, f"document.querySelector('{right}').toDataURL() !== '{before}'")
    page.mouse.up()
    page.focus("#understand [data-side=left] .handle >> nth=0")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("ArrowLeft")
    until(page, "location.hash.includes('modes=-5.25,-6,0.2;')")
    (_, second) = page.evaluate("location.hash").split("modes=")[1].split(";")
    assert [float(each) for each in second.split(",")] == pytest.approx([-4.8, 4, 0.8], abs=0.1)
    assert 74 < share(page, "right") < 86  # the exact share is 80 %, wherever the modes are
    page.fill("#understand tbody tr:nth-child(1) input", "0.8")
    until(page, "location.hash.includes('-5.25,-6,0.8;')")
    assert 42 < share(page, "right") < 58


def test_by_touch_on_a_phone_in_the_dark(browser: Any, address: str) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    context = browser.new_context(**phone, reduced_motion="reduce")
    try:
        page = context.new_page()
        opened(page, address, "?step=3")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.locator("#understand [data-side=right] .plane").scroll_into_view_if_needed()
        box = page.locator("#understand [data-side=right] .handle >> nth=0").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        session = context.new_cdp_session(page)
        for kind, by in (("touchStart", 0), ("touchMove", 10), ("touchMove", 40), ("touchEnd", None)):
            touches = [] if by is None else [{"x": x + by, "y": y}]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})
        until(page, "location.hash.includes('modes=')")
        (first, _) = page.evaluate("location.hash").split("modes=")[1].split(";")
        assert -4 < float(first.split(",")[0]) < 0
        for role, name in (
            *(("slider", name) for name in ("Noise level σ", "Weight of mode 1", "Weight of mode 2")),
            *(
                ("combobox", f"{what} on the {side}")
                for what in ("Method", "Network calls")
                for side in ("left", "right")
            ),
            *(("button", name) for name in ("Play", "4 Fewer calls", "Remove mode 1", "Add a mode", "Copy link")),
        ):
            assert page.get_by_role(role, name=name).count() == 1, name
        assert page.get_by_role("img", name="Annealed Langevin over the score").count() == 1
        page.get_by_role("button", name="4 Fewer calls").tap()
        assert "step=4" in page.evaluate("location.hash")
    finally:
        context.close()


def test_a_link_shows_the_same_points_and_wrong_values_are_named(page: Any, address: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    link = "?step=3&right=ancestral:20&modes=0,4,0.5;-3,-3,1&n=200&seed=7&sigma_max=12"
    right = "#understand [data-side=right] canvas"
    opened(page, address, link)
    first = pixels(page, right)
    assert page.input_value("#understand [name=seed]") == "7"
    page.reload()
    page.wait_for_selector("#understand .handle")
    assert page.evaluate("location.hash") == f"#/understand{link}"
    assert pixels(page, right) == first
    page.click("#tab-sample")
    page.click("#tab-understand")  # a link without settings leaves the tab as it was
    until(page, f"location.hash === '#/understand{link}'")
    opened(page, address, f"?seed=1e99&right=euler:7&modes={quote('1,2')}&n=50")
    until(page, "!document.querySelector('#understand .notice').hidden")
    assert "not allowed: right, modes, seed." in page.text_content("#understand .notice")
    assert page.input_value("#understand [name=n]") == "50"
    assert page.locator("#understand tbody tr").count() == 2
    page.click("#understand summary")
    page.fill("#understand [name=sigma_min]", "30")  # above the largest
    page.keyboard.press("Tab")
    assert "Largest σ must be above Smallest σ" in page.text_content("#understand .wrong")
    assert page.get_attribute("#understand [name=sigma_min]", "aria-invalid") == "true"
    page.fill("#understand [name=sigma_min]", "2")
    assert page.is_hidden("#understand .wrong")
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('sigma_min=2')")
    for width in (1400, 1100, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.fill("#understand [name=seed]", "999999")
        assert page.eval_on_selector("#understand [name=seed]", "seed => seed.scrollWidth <= seed.clientWidth")


def test_modes_are_added_and_removed(page: Any, address: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    opened(page, address)
    assert page.is_hidden("#understand .own-modes")
    for _ in range(5):
        page.click("#understand .add")
    page.wait_for_selector("#understand .own-modes:not([hidden])")  # the text is about others
    assert page.locator("#understand [data-side=left] .handle").count() == 7
    for k in range(7):
        page.fill(f"#understand tbody tr:nth-child({k + 1}) input", "0.5")
    until(page, "document.querySelector('#understand tbody tr:last-child .true').textContent === '14 %'")
    shares = page.locator("#understand tbody .true").all_text_contents()
    assert shares == ["15 %", "15 %", *["14 %"] * 5]  # rounded, each would be 14 %: 98 % in all
    page.click("#understand .add")
    assert page.is_disabled("#understand .add")
    page.focus("#understand tbody tr:nth-child(8) button")
    for focused in (*(f"Remove mode {k}" for k in range(7, 1, -1)), "Add a mode"):
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent") == focused
    assert page.locator("#understand tbody tr").count() == 1
    assert page.is_disabled("#understand tbody button")
    until(page, "location.hash.endsWith('modes=-5,-5,0.5')")
