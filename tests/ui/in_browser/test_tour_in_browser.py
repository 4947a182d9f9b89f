"""The tour: offered once to each browser, walked through and left by the keyboard, there again when asked for."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Locator, expect

from pages import Seen, Served, until

pytestmark = pytest.mark.ui


def test_a_newcomer_is_shown_round_once(served: Served, browser: Browser):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    seen = Seen(page, served.url, newcomer=True)
    card = page.get_by_role("dialog", name="Tour")
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
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)

    page.get_by_role("button", name="A tour of the page").click()
    expect(card).to_contain_text("1 of 5")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(card).to_have_count(0)
    assert page.evaluate("localStorage.getItem('gpexplorer-tour')") == "seen"
    assert seen.complaints == []
    page.close()


def test_at_a_zoom_of_200_percent_the_tour_takes_room_and_covers_nothing(served: Served, browser: Browser):
    page = browser.new_page(viewport={"width": 720, "height": 450}, device_scale_factor=2)  # half of 1440 by 900
    seen = Seen(page, served.url, newcomer=True)
    card = page.get_by_role("dialog", name="Tour")
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
    assert seen.complaints == []
    page.close()


def apart(one: Locator, other: Locator) -> bool:
    a, b = one.bounding_box(), other.bounding_box()
    if a is None or b is None:
        return False
    return any(a[at] >= b[at] + b[size] or b[at] >= a[at] + a[size] for at, size in (("x", "width"), ("y", "height")))


def bottom(part: Locator) -> float:
    box = part.bounding_box()
    return box["y"] + box["height"]
