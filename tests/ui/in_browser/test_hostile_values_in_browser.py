"""One visitor whose widgets send what they should not: a sentence for them, and nothing changes for all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pages import ON_PAGE, Seen, until

pytestmark = pytest.mark.ui

SEND = f"""([value, names]) => {{
  let sent = 0
  for (const model of {ON_PAGE}) {{
    const data = model.data
    if (data == null || typeof data.setv !== "function") continue
    for (const name of names) if (name in data.attributes) {{
      try {{ data.setv({{ [name]: value }}); sent += 1 }} catch {{}}
    }}
  }}
  return sent
}}"""
MARKS = f"""() => {ON_PAGE}.filter((m) => m.type === "GlyphRenderer").length"""


def drawn(seen: Seen) -> int:
    """The glyphs of a healthy page, once prediction, landscape and convergence have all of theirs."""
    counts = [0]

    def is_settled() -> bool:
        seen.page.wait_for_timeout(500)
        counts.append(seen.page.evaluate(MARKS))
        return counts[-1] >= 12 and len(set(counts[-4:])) == 1

    until(is_settled)
    return counts[-1]


def until_drawn(seen: Seen, marks: int) -> None:
    """Wait until the page has as many glyphs as a healthy page had."""
    until(lambda: seen.page.evaluate(MARKS) == marks)


def test_a_file_that_is_too_large_and_values_that_no_widget_has_harm_nobody_else(
    seen: Seen, open_page: Callable[..., Seen], tmp_path: Path
):
    hostile = open_page()
    marks = drawn(hostile)
    large = tmp_path / "large.csv"
    large.write_bytes(b"x,y\n" + b"1.25,2.5\n" * 2_100_000)  # 18.9 MB

    hostile.page.locator("input[type=file]").first.set_input_files(large)
    until(lambda: "at most 10 MB" in hostile.alert())
    check_a_small_file_is_read(hostile)
    hostile.page.get_by_text("Scaling: what would more rows cost?").click()
    for value in (float("nan"), -1, 1e308, "<b>", None, [1], {"a": 1}):
        assert hostile.page.evaluate(SEND, [value, ["value", "value_throttled", "active", "options"]]) > 5
        hostile.page.wait_for_timeout(400)
    hostile.page.close()

    until_drawn(open_page(), marks)
    seen.press("One step")
    until(lambda: seen.step == 1)
    hostile.complaints.clear()  # its refusals of the file and of the values, the last of which may arrive late


def check_a_small_file_is_read(seen: Seen) -> None:
    """A file that can be read is opened on the page that has refused another one."""
    content = b"length,height\n" + b"".join(b"%.2f,%d\n" % (0.37 * k % 5, (k * 7) % 11) for k in range(60))
    seen.page.locator("input[type=file]").first.set_input_files(
        {"name": "small.csv", "mimeType": "text/csv", "buffer": content}
    )
    until(lambda: seen.page.get_by_text("60 rows, 2 columns").count() == 1)
    seen.press("Use these columns")
    until(lambda: seen.page.get_by_text("54 training rows").count() == 1)
