"""On a narrow page the sidebar is a drawer: it opens, stays open, changes the run, closes, and hides no answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from pages import PATIENCE, Seen, until

pytestmark = pytest.mark.ui


def test_the_settings_of_a_narrow_page_can_be_reached(open_page: Callable[..., Seen]):
    seen = open_page(390, 844)
    page = seen.page
    closing = page.get_by_role("button", name="Close data and settings")
    expect(page.get_by_role("tab", name="Calibration")).to_be_visible(timeout=PATIENCE)
    page.wait_for_timeout(800)  # the drawer closes itself three times while the page opens
    expect(closing).to_be_hidden()

    change_the_points(seen, 7)
    check_what_the_sidebar_opens(seen)
    page.set_viewport_size({"width": 768, "height": 1024})
    expect(closing).to_be_hidden(timeout=PATIENCE)
    change_the_points(seen, 9)
    seen.press("One step")
    until(lambda: seen.step >= 1)


def change_the_points(seen: Seen, points: int) -> None:
    """Open the drawer, which stays open, set the number of inducing points in it, and close it."""
    page = seen.page
    closing = page.get_by_role("button", name="Close data and settings")
    seen.press("Open drawer")
    page.wait_for_timeout(1000)
    expect(closing).to_be_visible(timeout=PATIENCE)
    field = page.get_by_label("Inducing points m", exact=True).locator("visible=true").last
    field.fill(str(points))
    field.press("Enter")
    expect(page.get_by_role("heading", name=f"Which {points} of 180 rows")).to_be_attached(timeout=PATIENCE)
    closing.click()
    expect(closing).to_be_hidden(timeout=PATIENCE)


def check_what_the_sidebar_opens(seen: Seen) -> None:
    """The drawer closes before the answer to its question, and a sidebar beside the page stays."""
    page = seen.page
    closing = page.get_by_role("button", name="Close data and settings")
    seen.press("Open drawer")
    expect(closing).to_be_visible(timeout=PATIENCE)

    seen.press("What should I use?")

    expect(closing).to_be_hidden(timeout=PATIENCE)
    expect(page.get_by_role("button", name="Find out")).to_be_in_viewport(timeout=PATIENCE)
    page.set_viewport_size({"width": 1400, "height": 900})
    expect(page.get_by_label("Method", exact=True)).to_be_visible(timeout=PATIENCE)
    seen.press("What should I use?")
    page.wait_for_timeout(1000)
    expect(page.get_by_label("Method", exact=True)).to_be_visible()  # a sidebar beside the page stays
