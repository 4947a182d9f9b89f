"""The families side by side in a browser: as a file at six sizes and in two themes, and as a page that is served."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from computed_families import family
from gpexplorer.views.screens import side_by_side_page
from gpexplorer.views.screens.side_by_side_page import STEPS, save_side_by_side
from looks import violations
from pages import PATIENCE, Seen, Served, until

SIZES = [(390, 844), (720, 450), (768, 1024), (1280, 720), (1440, 900), (1920, 1080), (2560, 1440)]

CUT = """() => [...document.querySelectorAll(".tile")].flatMap((tile) => {
  const right = (part) => {
    const range = document.createRange()
    range.selectNodeContents(part)
    return range.getBoundingClientRect().right
  }
  const [note, title, score] = [".note", "h2", "b"].map((part) => tile.querySelector(`.head ${part}`))
  const end = tile.getBoundingClientRect().right + 1
  const cut = [...tile.querySelectorAll(".head > *")].filter((part) => right(part) > end)
  if (note.scrollWidth > note.clientWidth) cut.push(note)
  if (right(title) > score.getBoundingClientRect().left) cut.push(score)
  return cut.map((part) => `${tile.className}: ${part.textContent}`)
})"""  # words of the tiles that are cut off, or run into each other

WORDS = """(parts) => parts.map((words) => {
  const range = document.createRange()
  range.selectNodeContents(words)
  const { x, y, width, height } = range.getBoundingClientRect()
  return { words: words.textContent, x, y, width, height }
})"""  # where the words of these parts are

MEASURED = """(times) => {
  const root = document.createElement("div")
  document.body.replaceChildren(root)
  const surface = { n: 250, side: 2, small: 2, steps: 3, sizes: [250], rows: [[0], [0]], ends: [-1, 1] }
  gpexplorerSideBySide(root, { surface, send: () => {} }).time(times, "")
}"""  # another page in place of the first one

CROWDED = """([seconds, errors]) => {
  const root = document.createElement("div")
  document.body.replaceChildren(root)
  const steps = seconds[0].length - 1
  const surface = { n: 250, side: 1, small: 1, steps, sizes: [250], rows: [[0], [0]], ends: [-1, 1] }
  const page = gpexplorerSideBySide(root, { surface, send: () => {} })
  const [map, gain, estimate] = ["AA==", 0, 0]
  const marks = { map, function: map, points: [], block: [], batch: [], lengths: [1], weights: [1], gain, estimate }
  const names = ["swaps", "blocks", "eigenfunctions", "folds", "minibatches", "exact"]
  names.forEach((name, i) => page.add(name, {
    title: name[0].toUpperCase() + name.slice(1), note: "", link: "",
    frames: seconds[i].map((spent, k) => ({ ...marks, seconds: spent, smse: errors[i][k] })),
  }))
}"""  # the page with other seconds and errors of the families

WIDTHS = "[innerWidth, document.documentElement.scrollWidth]"  # of the window, and of what is in it

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_by_side_page, "family_of", family)
        path = save_side_by_side(tmp_path_factory.mktemp("side-by-side") / "page.html", 250, largest=250)
    return Path(path).as_uri()


def number(page: Page, family: str) -> float:
    return float(page.locator(f".tile.{family} .head b").inner_text())


def meet(one: Any, other: Any) -> bool:
    """Whether two boxes have more than a pixel in common."""
    sides = (("x", "width"), ("y", "height"))
    return all(one[p] + one[s] > other[p] + 1 and other[p] + other[s] > one[p] + 1 for p, s in sides)


def test_all_tiles_follow_one_bar_by_step_and_by_seconds(file: str, browser: Browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    seen = Seen(page, file, "?page=side-by-side")
    page.locator("[data-families='6']").wait_for(timeout=PATIENCE)
    names = ("swaps", "blocks", "eigenfunctions", "folds", "minibatches")
    assert page.locator("output").inner_text() == f"step {STEPS // 5}"  # it opens with what a run looks like
    opened = {family: number(page, family) for family in names}
    labels, dots = (
        [mark.bounding_box() for mark in page.locator(f".errors {part}").all()]
        for part in ("text.strong", "circle.now")
    )
    assert len(labels) == len(dots) == len(names)
    pairs = [*combinations(labels, 2), *product(labels, dots)]
    assert [pair for pair in pairs if meet(*pair)] == []  # no label lies on a dot or on another one

    page.get_by_role("button", name="Play", exact=True).click()
    until(lambda: int(page.locator("output").inner_text().removeprefix("step ")) in (1, 2))  # from the beginning
    page.get_by_role("button", name="Pause", exact=True).click()
    page.locator("input[type=range]").fill("0")
    begun = {family: number(page, family) for family in names}
    assert sum(opened[family] < 0.6 * begun[family] for family in names) >= 3
    page.locator("input[type=range]").fill(str(STEPS // 5))
    page.get_by_role("button", name="same seconds").click()
    assert sum(number(page, family) != first for family, first in begun.items()) >= 3  # at the family in the middle
    page.get_by_role("button", name="same seconds").click()
    assert page.locator("output").inner_text().startswith("step ")
    page.locator("input[type=range]").fill(str(STEPS))

    assert all(number(page, family) < 0.6 * first for family, first in begun.items())
    page.get_by_role("button", name="same seconds").click()
    page.locator("input[type=range]").fill(str(STEPS // 2))
    assert page.locator("output").inner_text().endswith(("ms", "s"))
    assert number(page, "folds") == begun["folds"]  # the others have worked long before
    assert number(page, "blocks") < 0.6 * begun["blocks"]
    page.get_by_role("button", name="Blocks: enlarge").click()
    assert page.locator(".tile:visible").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".tile:visible").count() == 6
    assert [line for line in seen.complaints if "favicon" not in line] == []
    page.close()


@pytest.mark.parametrize(("theme", "sizes"), [("light", SIZES), ("dark", SIZES[-1:])])
def test_no_size_scrolls_sideways_or_cuts_playback_and_axe_finds_nothing(
    file: str, browser: Browser, theme: str, sizes: list[tuple[int, int]]
):
    """At one size in the dark theme, which changes colours only."""
    page = browser.new_page(color_scheme=theme, reduced_motion="reduce")
    Seen(page, file, "?page=side-by-side")
    page.locator("[data-families='6']").wait_for(timeout=PATIENCE)
    page.get_by_role("button", name="One step", exact=True).click()
    assert page.locator("output").inner_text() == "step 1"
    for width, height in sizes:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        parts = page.locator(".transport > *")
        page.locator("input[type=range]").fill(str(STEPS - 1))  # the longest number
        places = [part.bounding_box() for part in parts.all()]
        page.get_by_role("button", name="Play", exact=True).click()
        assert [part.bounding_box() for part in parts.all()] == places
        page.locator("input[type=range]").fill("1")  # pauses
        assert [part.bounding_box() for part in parts.all()] == places
        assert page.evaluate(CUT) == []
        assert page.locator(".tile .map").first.bounding_box()["y"] <= 210
        for step in (0, STEPS // 5, STEPS // 2, STEPS):
            page.locator("input[type=range]").fill(str(step))
            words = page.locator(".errors svg text").evaluate_all(WORDS)
            assert [pair for pair in combinations(words, 2) if meet(*pair)] == []
        for control in page.locator(".transport button, .transport input").all():
            box = control.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert box["y"] + box["height"] <= height
    assert violations(page) == []
    page.close()


@pytest.mark.parametrize(
    "seconds",
    [
        {"swaps": 1e-3, "blocks": 1e-3, "minibatches": 1e-3, "eigenfunctions": 1.1e-3, "exact": 1.1e-3},  # at the axis
        {"swaps": 0.1, "blocks": 0.11, "minibatches": 0.12, "folds": 0.1, "exact": 1.0},
    ],
)
def test_no_name_in_the_chart_of_times_touches_another_one(file: str, browser: Browser, seconds: dict[str, float]):
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    Seen(page, file, "?page=side-by-side")
    page.locator("[data-families='6']").wait_for(timeout=PATIENCE)
    page.evaluate(MEASURED, {family: [[250, s], [500, s]] for family, s in seconds.items()})

    words = page.locator(".times svg text").evaluate_all(WORDS)
    assert {"Swaps", "Blocks", "Minibatches", "Exact"} <= {each["words"].capitalize() for each in words}
    assert [pair for pair in combinations(words, 2) if meet(*pair)] == []
    page.close()


@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_no_name_in_the_chart_of_errors_touches_another_one_or_a_dot(file: str, browser: Browser, spread: float):
    """Machines differ in their seconds, so that dots of families come together anywhere."""
    page = browser.new_page()
    Seen(page, file, "?page=side-by-side")
    page.locator("[data-families='6']").wait_for(timeout=PATIENCE)
    rng, touching = np.random.default_rng(0), []
    names = {"Swaps", "Blocks", "Eigenfunctions", "Folds", "Minibatches"}
    for width, height in [(320, 568), (390, 844), (1280, 720)]:
        page.set_viewport_size({"width": width, "height": height})
        for _ in range(2):
            pace = 0.01 * np.exp(spread * rng.normal(size=(6, 1)))
            seconds = 0.002 + pace * np.cumsum(rng.exponential(size=(6, 65)), axis=1)
            errors = np.exp(rng.uniform(-3, 0) * np.linspace(0.1, 1, 65) + 0.3 * spread * rng.normal(size=(6, 1)))
            page.evaluate(CROWDED, [seconds.tolist(), errors.tolist()])
            for step in (0, 5, 20, 64):
                page.locator("input[type=range]").fill(str(step))
                words = page.locator(".errors svg text").evaluate_all(WORDS)
                assert names <= {each["words"] for each in words}
                dots = [dot.bounding_box() for dot in page.locator(".errors circle.now").all()]
                own = [each for each in words if each["words"] in names]
                touching += [pair for pair in (*combinations(words, 2), *product(own, dots)) if meet(*pair)]
    assert touching == []
    page.close()


def test_the_first_screen_leads_to_families_that_arrive_from_the_server_also_on_a_phone(
    served: Served, browser: Browser
):
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    page = browser.new_page(**phone, reduced_motion="reduce")
    seen = Seen(page, served.url, "?page=first")
    assert page.evaluate(WIDTHS) == [390, 390]
    page.get_by_role("link", name="Stories").tap()
    page.wait_for_url("**page=stories")
    card = page.get_by_role("link", name="Ten rows that stand for 180")
    card.wait_for(timeout=PATIENCE)
    assert page.evaluate(WIDTHS) == [390, 390]
    assert card.locator("svg path").count() > 3
    assert violations(page) == []
    page.get_by_role("link", name="Side by side").tap()

    page.wait_for_url("**page=side-by-side")
    until(lambda: int(page.locator(".lesson").get_attribute("data-families") or 0) >= 2)
    assert page.evaluate(WIDTHS) == [390, 390]
    page.locator("input[type=range]").fill("6")

    assert number(page, "swaps") < 0.2
    for width in (1280, 1000, 390):
        page.set_viewport_size({"width": width, "height": 720})
        page.wait_for_timeout(300)
        measure = page.get_by_role("button", name="Measure on doubling rows")
        others = page.locator(".times svg text, .times figcaption").evaluate_all(WORDS)
        assert len(others) > 5
        if not (is_measured := page.locator(".times circle").count() > 0):  # by this test, when it runs again
            assert [words for words in others if meet(words, measure.bounding_box())] == []
    if not is_measured:
        measure.click()
    page.locator(".times circle").first.wait_for(timeout=PATIENCE)
    assert seen.complaints == []
    assert seen.elsewhere == []
    page.close()
