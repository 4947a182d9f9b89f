"""The explorer kept ready: taken once, made anew when a page is complete, never twice."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpexplorer.ui import prebuilt as shelves
from gpexplorer.ui.prebuilt import Shelf


class Ready:
    """Stands for an explorer."""


def test_each_is_taken_once_and_the_next_is_made_after_a_rest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shelves, "REST", 0.0)
    shelf, made = Shelf(), []

    async def visits() -> None:
        shelf.later()  # nothing is known yet of how to make one
        shelf.fill(lambda: made.append(Ready()) or made[-1])
        first = shelf.take()
        assert first is made[0]
        assert shelf.take() is None
        shelf.later()
        shelf.later()
        await asyncio.sleep(0.05)
        assert shelf.take() is made[1]

    with ThreadPoolExecutor(1) as thread:  # where no other loop runs, as that of a browser may here
        thread.submit(asyncio.run, visits()).result()

    assert len(made) == 2
