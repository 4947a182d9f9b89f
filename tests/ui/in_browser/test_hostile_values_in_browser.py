"""One visitor whose widgets send what they should not: a sentence for them, and nothing changes for all others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hammer.page_client import PageClient
from pages import ON_PAGE, Seen, Served, until

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
GLYPHS = 12  # of prediction, landscape and convergence on a healthy page, at least


@pytest.fixture(scope="module")
def awaited() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """What a coroutine returns, on a loop in a thread of its own, where visitors stay while this file goes on."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda story: asyncio.run_coroutine_threadsafe(story, loop).result(120)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def glyphs(visitor: PageClient) -> int:
    """The number of glyphs that the server has sent to a page."""
    return sum(model["name"] == "GlyphRenderer" for model in visitor.models.values())


async def opened(served: Served, wanted: int = GLYPHS) -> PageClient:
    """Another visitor's page, once it has as many glyphs; nothing is drawn, since all visitors share is the server."""
    visitor = PageClient(f"localhost:{served.port}")
    await visitor.open()
    await visitor.until_ready()
    await visitor.until(lambda: glyphs(visitor) >= wanted)
    await asyncio.sleep(1.5)
    return visitor


async def step_and_leave(visitor: PageClient) -> None:
    """A page goes on, and is closed."""
    visitor.press("One step")
    await visitor.until_step(1)
    visitor.close()


def test_a_file_that_is_too_large_and_values_that_no_widget_has_harm_nobody_else(
    served: Served, open_page: Callable[..., Seen], awaited: Callable[[Coroutine[Any, Any, Any]], Any], tmp_path: Path
):
    other = awaited(opened(served))
    marks = glyphs(other)
    hostile = open_page()
    large = tmp_path / "large.csv"
    large.write_bytes(b"x,y\n" + b"1.25,2.5\n" * 1_200_000)  # 10.8 MB

    hostile.page.locator("input[type=file]").first.set_input_files(large)
    until(lambda: "at most 10 MB" in hostile.alert())
    check_a_small_file_is_read(hostile)
    hostile.page.get_by_text("Scaling: what would more rows cost?").click()
    for value in (float("nan"), -1, 1e308, "<b>", None, [1], {"a": 1}):
        assert hostile.page.evaluate(SEND, [value, ["value", "value_throttled", "active", "options"]]) > 5
        hostile.page.wait_for_timeout(400)
    hostile.page.close()

    new = awaited(opened(served, marks))
    assert glyphs(new) == marks
    for visitor in (other, new):
        awaited(step_and_leave(visitor))
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
