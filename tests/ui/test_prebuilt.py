"""The explorer that is built in advance: taken once, built again after a page is complete, never twice."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpexplorer.ui import page
from gpexplorer.ui.page import Prebuilt


class Ready:
    """Takes the place of an explorer."""


def test_each_is_taken_once_and_the_next_is_built_after_a_delay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page, "REBUILD_DELAY", 0.0)
    prebuilt, built = Prebuilt(), []

    async def visits() -> None:
        prebuilt.schedule()  # does nothing: it is not known yet how to build one
        prebuilt.fill(lambda: built.append(Ready()) or built[-1])
        first = prebuilt.take()
        assert first is built[0]
        assert prebuilt.take() is None
        prebuilt.schedule()
        prebuilt.schedule()
        await asyncio.sleep(0.05)
        assert prebuilt.take() is built[1]

    with ThreadPoolExecutor(1) as thread:  # a thread without an event loop; a browser test may have left one here
        thread.submit(asyncio.run, visits()).result()

    assert len(built) == 2
