"""Words and controls have the contrast that WCAG 2.2 asks for (AA), measured from computed colours in both themes."""

from __future__ import annotations

import time

import pytest

from looks import contrasts, faint
from pages import Seen, until

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
    end = time.monotonic() + 10  # colours change over time
    while True:
        measured = contrasts(seen.page)
        if (len(measured) > 60 and not faint(measured)) or time.monotonic() > end:
            break
        seen.page.wait_for_timeout(300)

    assert len(measured) > 60
    assert faint(measured) == []
    assert {"gpexplorer", "Play", "Method", "Data and prediction", "Calibration"} <= {name for name, *_ in measured}
    assert "sign of Increase Sample paths (1-D)" in {name for name, *_ in measured}
    if theme == "dark":
        seen.press("Toggle theme")
        until(lambda: not is_dark())
