"""Words and controls have the contrast that WCAG 2.2 asks for (AA), in both themes, and pictures have names."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import expect

from looks import contrasts, faint
from pages import PATIENCE, Seen, until

pytestmark = pytest.mark.ui


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_in_both_themes(seen: Seen, theme: str):
    def is_dark() -> bool:
        return seen.page.locator(".mui-dark").count() > 0

    seen.page.get_by_role("tab", name="Calibration").wait_for()
    seen.page.get_by_label("Device", exact=True).wait_for()
    if is_dark() != (theme == "dark"):
        seen.press("Toggle theme")
        until(lambda: is_dark() == (theme == "dark"))
    wanted = {
        "gpexplorer",
        "Play",
        "Method",
        "Data and prediction",
        "Calibration",
        "sign of Increase Sample paths (1-D)",
    }
    end = time.monotonic() + 10  # the page is drawn bit by bit, and colours change over time
    while True:
        measured = contrasts(seen.page)
        names = {name for name, *_ in measured}
        if (wanted <= names and not faint(measured)) or time.monotonic() > end:
            break
        seen.page.wait_for_timeout(300)

    assert len(measured) > 60
    assert faint(measured) == []
    assert wanted <= names
    for title in ("Data and prediction", "Swap landscape", "Convergence"):  # what a screen reader says of a canvas
        expect(seen.page.get_by_role("figure", name=f"{title}. ")).to_have_count(1, timeout=PATIENCE)
    if theme == "dark":
        seen.press("Toggle theme")
        until(lambda: not is_dark())
