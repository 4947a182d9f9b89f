"""When the next step and the next picture of a playing run are due, by the clock of the caller."""

from __future__ import annotations


class Pace:
    """Keeps steps and pictures of a playing run evenly spaced.

    Both are counted from the times at which they were due, not from those at which they were done: otherwise steps of
    a tenth of a second come slightly later each time, and every second one falls just before its picture is due.

    Parameters
    ----------
    picture_seconds
        The least time between the beginnings of two pictures.
    """

    def __init__(self, picture_seconds: float) -> None:
        self._picture_seconds = picture_seconds
        self._picture_due = self._step_begun = 0.0

    def seconds_to_step(self, now: float, seconds_per_step: float) -> float:
        """Seconds until the next step is due; 0 if it is."""
        return max(0.0, self._step_begun + seconds_per_step - now)

    def step(self, now: float, seconds_per_step: float) -> None:
        """A step begins at this time."""
        due = self._step_begun + seconds_per_step
        self._step_begun = due if now - due < seconds_per_step else now

    def picture_due(self, now: float) -> bool:
        """Whether a picture is due at this time."""
        return now >= self._picture_due

    def picture(self, begin: float, end: float) -> None:
        """A picture was computed between these times; pictures take half of the thread's time at most."""
        self._picture_due = max(begin + self._picture_seconds, end + (end - begin))
