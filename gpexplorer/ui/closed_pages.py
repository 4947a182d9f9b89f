"""Garbage collection of closed pages, at moments when nobody waits for a picture.

The objects of a page refer to each other in cycles, so Python frees them only by garbage collection. By itself, Python
would collect after some hundred pages, at any moment and for seconds, because a collection visits the objects of all
open pages.
"""

from __future__ import annotations

import asyncio
import gc

from .connections import Arrivals
from .shared_limits import Turns

QUIET = 2.0  # seconds without a step of any run, after which a collection disturbs nobody
MOST = 10  # closed pages, of about 8 MB each, that are kept at most while it is not quiet
GAP = 0.5  # seconds between two looks


class ClosedPages:
    """The closed pages of a server whose memory is not free yet.

    Parameters
    ----------
    turns : Turns
        The steps of all runs.
    arrivals : Arrivals
        The pages that are on their way to a browser.

    Attributes
    ----------
    count : int
        Number of pages.
    """

    def __init__(self, turns: Turns, arrivals: Arrivals) -> None:
        self._turns, self._arrivals = turns, arrivals
        self.count = 0

    def add(self) -> None:
        """A page was closed."""
        self.count += 1

    @property
    def due(self) -> bool:
        """Whether to free them now."""
        quiet = self._turns.idle_seconds > QUIET and not self._arrivals.pending
        return self.count >= MOST or (self.count > 0 and quiet)

    async def keep_freeing(self) -> None:
        """Free closed pages for as long as the server runs."""
        while True:
            await asyncio.sleep(GAP)
            if self.due:
                self.count = 0
                gc.collect()
