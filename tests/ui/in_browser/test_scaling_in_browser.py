"""A method is measured at growing sizes on the page, and asked what a larger one would cost."""

from __future__ import annotations

import re

import pytest

from pages import Seen, until

pytestmark = [pytest.mark.ui, pytest.mark.panels]


def measured(seen: Seen, sizes: int) -> list[str]:
    """The row of the largest size."""
    seen.page.get_by_text("Scaling: what would more rows cost?").click()
    for label, value in (("From", "100"), ("To", "400"), ("Sizes", str(sizes))):
        field = seen.page.get_by_label(label, exact=True)
        field.press("Control+a")
        field.press_sequentially(value)
        field.press("Enter")
    seen.page.get_by_role("button", name="Measure").click()
    first = seen.page.locator("td:first-child", has_text=re.compile("^400$"))  # another table may have 400 elsewhere
    row = seen.page.locator("tr", has=first)
    until(lambda: row.count() == 1, seconds=120)
    until(lambda: seen.page.get_by_text("Seconds:").count() == 1)
    return row.locator("td").all_inner_texts()


def test_scaling_comes_to_a_forecast(anywhere: Seen):
    seen = anywhere
    seen.visit("?v=1&data=hypercube&data.n=200&data.d=2&method=cholesky&set.learn=false")

    cells = measured(seen, sizes=4)

    assert cells[0] == "400"
    assert all(cell not in ("", "—") for cell in cells[1:5])
    said = seen.page.get_by_text("Seconds:")
    until(lambda: "1,000,000" in said.inner_text() and "of memory" in said.inner_text())
    assert "No slope from" not in said.inner_text()  # four sizes are the fewest that bear one
