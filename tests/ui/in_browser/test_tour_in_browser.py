"""A visitor who comes for the first time, on one page: the tour, the theme of the system, and what is remembered.

The tour is there when asked for, and walked through and left by the keyboard.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from gpexplorer.views.drawing.palette import ON_DARK, ROLES
from pages import ON_PAGE, SIZE, Seen, Served, until

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def newcomer(served: Served, browser: Browser) -> Iterator[Seen]:
    """The first page of a visitor whose system is dark."""
    visitor = browser.new_context(viewport=SIZE, color_scheme="dark", reduced_motion="reduce")
    seen = Seen(visitor.new_page(), served.url)
    yield seen
    assert seen.complaints == []
    visitor.close()


def test_a_newcomer_is_shown_round(newcomer: Seen):
    page = newcomer.page
    card = page.get_by_role("dialog", name="Tour")
    page.get_by_role("button", name="A tour of the page").click()
    expect(card).to_contain_text("1 of 5")
    expect(page.get_by_role("button", name="Next", exact=True)).to_be_focused()
    until(lambda: page.locator(".ring").bounding_box() is not None)
    ring = page.locator(".ring").bounding_box()
    play = page.get_by_role("button", name="Play or pause").first.bounding_box()
    assert ring["width"] == pytest.approx(play["width"] + 16, abs=6)  # it marks the button, not the word in a sentence
    assert ring["height"] == pytest.approx(play["height"] + 12, abs=6)

    until(lambda: apart(card, page.locator(".ring")))

    page.keyboard.press("Enter")
    expect(card).to_contain_text("Orange triangles are the inducing points")
    until(lambda: apart(card, page.locator(".ring")))
    assert page.locator(".ring").bounding_box()["height"] > 300  # the picture, and not its title alone
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    until(lambda: apart(card, page.locator(".ring")))
    page.keyboard.press("ArrowLeft")
    expect(card).to_contain_text("3 of 5")
    until(lambda: apart(card, page.locator(".ring")))
    for _ in range(3):
        page.keyboard.press("Tab")  # out of the card
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    expect(page.get_by_role("button", name="A tour of the page")).to_be_focused()

    page.get_by_role("button", name="A tour of the page").click()
    expect(card).to_contain_text("1 of 5")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(card).to_have_count(0)


def test_on_a_small_screen_the_tour_takes_room_and_covers_nothing(newcomer: Seen):
    page, card = newcomer.page, newcomer.page.get_by_role("dialog", name="Tour")
    page.set_viewport_size({"width": 720, "height": 450})  # 1440 by 900 at a zoom of 200 percent
    if card.count() == 0:
        page.get_by_role("button", name="A tour of the page").click()
    expect(card).to_contain_text("1 of 5")
    content = page.locator(".main-content")

    for width, height in ((720, 450), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        until(lambda: bottom(content) <= card.bounding_box()["y"] + 1)
        assert bottom(card) <= page.viewport_size["height"] + 1
        assert bottom(page.get_by_role("button", name="Play or pause").first) < card.bounding_box()["y"]
        assert content.bounding_box()["height"] > 180
    for button in page.locator("header button").all():  # nothing of the bar is cut on a phone
        assert button.bounding_box() is None or button.bounding_box()["x"] + button.bounding_box()["width"] <= 390
    page.keyboard.press("Escape")
    until(lambda: bottom(content) >= 843)
    page.set_viewport_size(SIZE)


def test_a_page_has_the_theme_of_the_system_until_a_person_chooses_another(newcomer: Seen, served: Served):
    papers = f"() => {ON_PAGE}.map((m) => m.background_fill_color).filter(Boolean)"

    def is_dark(seen: Seen) -> bool:
        return seen.page.locator(".mui-dark").count() > 0 and "#1c2229" in str(seen.page.evaluate(papers))

    def is_mean_drawn_as(colour: str) -> bool:
        marks = newcomer.page.locator("[aria-label='Layers of the picture']:has(i)").first.locator("i")
        red, green, blue = bytes.fromhex(colour.removeprefix("#"))
        return f"rgb({red}, {green}, {blue})" in marks.evaluate_all("all => all.map((mark) => mark.style.color)")

    def inks() -> set[str]:
        """The colours of the lines of the means."""
        lines = f"{ON_PAGE}.filter((m) => m.type === 'GlyphRenderer' && m.data_source.name === 'mean')"
        return set(newcomer.page.evaluate(f"() => {lines}.map((m) => m.glyph.line_color.value)"))

    def colour_of_number() -> str:
        """The colour of the large number of a caption, where it has one."""
        colour = "(words) => getComputedStyle(words).getPropertyValue('--mui-palette-number-main')"
        return newcomer.page.locator("[aria-label='Layers of the picture'] + p").first.evaluate(colour)

    until(lambda: is_dark(newcomer))
    assert colour_of_number() == ON_DARK[ROLES["inducing"]]
    until(lambda: is_mean_drawn_as(ON_DARK[ROLES["mean"]]))
    until(lambda: {ON_DARK[ROLES["mean"]]} == inks())
    os.kill(served.pid, signal.SIGSTOP)  # the browser changes lines, marks and legends without the server
    try:
        newcomer.page.emulate_media(color_scheme="light")
        until(lambda: {ROLES["mean"]} == inks())
        assert is_mean_drawn_as(ROLES["mean"])
        assert colour_of_number() == ROLES["inducing"]
    finally:
        os.kill(served.pid, signal.SIGCONT)
    until(lambda: not is_dark(newcomer))
    newcomer.page.emulate_media(color_scheme="dark")
    until(lambda: is_dark(newcomer))
    newcomer.press("Toggle theme")
    until(lambda: not is_dark(newcomer))
    until(lambda: newcomer.page.evaluate("localStorage.getItem('gpexplorer-theme')") == "light")

    at = newcomer.step
    newcomer.press("One step")
    until(lambda: newcomer.step == at + 1)
    until(lambda: f"at={at + 1}" in newcomer.page.url)

    newcomer.page.reload()
    newcomer.page.get_by_role("tab", name="Calibration").wait_for()
    until(lambda: newcomer.step == at + 1)
    newcomer.page.wait_for_timeout(1000)  # it would have become dark by then
    assert not is_dark(newcomer)
    assert newcomer.page.get_by_role("dialog", name="Tour").count() == 0


def apart(one: Locator, other: Locator) -> bool:
    a, b = one.bounding_box(), other.bounding_box()
    if a is None or b is None:
        return False
    return any(a[at] >= b[at] + b[size] or b[at] >= a[at] + a[size] for at, size in (("x", "width"), ("y", "height")))


def bottom(part: Locator) -> float:
    box = part.bounding_box()
    return box["y"] + box["height"]
