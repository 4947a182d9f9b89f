"""Closed pages are freed in quiet moments, or when there are many of them, and not while somebody waits."""

from __future__ import annotations

import asyncio
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from gpexplorer.ui import server
from gpexplorer.ui.server import MOST, QUIET, ClosedPages


class Circle:
    """An object that refers to itself, as a page does."""

    def __init__(self) -> None:
        self.itself = self


def closed(idle: float = 0.0, pending: int = 0) -> ClosedPages:
    return ClosedPages(SimpleNamespace(idle_seconds=idle), SimpleNamespace(pending=pending))


@pytest.mark.parametrize(
    ("idle", "pending", "count", "due"),
    [
        (QUIET + 1, 0, 1, True),
        (QUIET + 1, 0, 0, False),  # nothing to free
        (0.0, 0, 1, False),  # a run takes steps
        (QUIET + 1, 1, 1, False),  # a page is on its way
        (0.0, 1, MOST, True),
    ],
)
def test_pages_are_freed_when_it_is_quiet_or_when_there_are_many(idle: float, pending: int, count: int, due: bool):
    pages = closed(idle, pending)
    for _ in range(count):
        pages.add()

    assert pages.due == due


def test_what_a_closed_page_held_is_gone_shortly_after(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "GAP", 0.001)
    pages = closed(idle=QUIET + 1)

    async def closing() -> bool:
        task = asyncio.create_task(pages.keep_freeing())
        reference = weakref.ref(Circle())
        pages.add()
        for _ in range(1000):
            await asyncio.sleep(0.001)
            if reference() is None:
                break
        task.cancel()
        return reference() is None

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as thread:  # a browser test may have left a running loop in the main thread
            assert thread.submit(asyncio.run, closing()).result()
    finally:
        if was_enabled:
            gc.enable()
    assert pages.count == 0
