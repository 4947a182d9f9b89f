"""The rows, the clock and the progress of one recommendation, which all of its parts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..data import Split
from .stages import Progress


@dataclass
class TimedSearch:
    """What a recommendation works on, and how much time it has.

    Parameters
    ----------
    split : Split
        The training rows; test rows are not used.
    begin, seconds : float
        When it began by the clock, and how long it may take.
    parts : list of Split
        Rows to fit and rows that are held out of them.
    on_progress : callable or None
        Called with a `Progress` before each piece of work.
    should_stop : callable
        Whether the best answer so far is wanted.
    clock : callable
        Gives seconds.
    """

    split: Split
    begin: float
    seconds: float
    parts: list[Split]
    on_progress: Callable[[Progress], object] | None
    should_stop: Callable[[], bool]
    clock: Callable[[], float]

    @property
    def end(self) -> float:
        """When the time is used, by the clock."""
        return self.begin + self.seconds

    def report(self, sentence: str) -> None:
        """Report how much of the time is used, with a sentence about the work that begins."""
        if self.on_progress is not None:
            elapsed = self.clock() - self.begin
            self.on_progress(Progress(min(elapsed / self.seconds, 1.0), max(self.seconds - elapsed, 0.0), sentence))
