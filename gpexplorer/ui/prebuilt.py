"""An explorer at its start, built before anyone asks for it: its pictures are half of what opening a page costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from .explorer import Explorer

REST = 1.5  # seconds from a page that is complete to the next explorer: its first answers go before


class Shelf:
    """Holds one explorer at most. It is made on the server's own thread, as HoloViews wants, while nobody waits."""

    def __init__(self) -> None:
        self.held: Explorer | None = None
        self._make: Callable[[], Explorer] | None = None
        self._due = False

    def fill(self, make: Callable[[], Explorer]) -> None:
        """Put an explorer here now, and whenever one was taken and a page is complete."""
        self._make = make
        self._refill()

    def take(self) -> Explorer | None:
        """The explorer, whose owner is the caller from now on; None where there is none."""
        held, self.held = self.held, None
        return held

    def later(self) -> None:
        """Make the next one soon, outside of the session that is under way."""
        if self._make is None or self.held is not None or self._due:
            return
        self._due = True
        asyncio.get_running_loop().call_later(REST, self._refill, context=Context())

    def _refill(self) -> None:
        self._due = False
        if self._make is not None and self.held is None:
            self.held = self._make()
