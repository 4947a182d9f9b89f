"""When a run must end: its budget, how much of it is used, a stop that was asked for, and which records are scored."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import SettingError, closest, number, quoted
from .setting_checks import of_kind

LIMITS = ("steps", "seconds")
NAN = float("nan")
MOST_OVERRUN, LEAST_OVERRUN = 1.5, 0.1  # a step that lasts longer than this (share, seconds) is given up
FIRST_OVERRUN, FIRST_PATIENCE = 3.0, 30.0  # the same of the first one, without which nothing is learned
LONG_STEP = 600.0  # seconds from which on a step is announced also where there is no limit
PATIENCE = 1.0  # seconds that a step, or the last scores, may still take once a stop was asked for


class Progress(NamedTuple):
    """The share of a budget that is used, and the time to go. Both are nan if the budget has no limit.

    Attributes
    ----------
    fraction : float
        From 0 to 1.
    eta : float
        Seconds to go.
    """

    fraction: float
    eta: float


@dataclass(frozen=True)
class Budget:
    """Limits on a whole run, counted from its start.

    Parameters
    ----------
    steps : int, optional
        Steps after record 0.
    seconds : float, optional
        Seconds of the method's own work. Infinitely many seconds are no limit.

    Raises
    ------
    SettingError
        If a limit is not a number of at least 0.
    """

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            object.__setattr__(self, "steps", number("The budget's steps", self.steps, whole=True, low=0))
        if self.seconds is not None and not (isinstance(self.seconds, float) and self.seconds == math.inf):
            number("The budget's seconds", self.seconds, whole=False, low=0)

    @classmethod
    def of(cls, limits: Mapping[str, Any]) -> Budget:
        """The budget with these limits, as a spec holds them; SettingError if there is a limit of another name."""
        return cls(**named_limits(limits))

    def spent(self, steps: int, seconds: float) -> str:
        """Say why a run that took this much must end, or return an empty text if it may continue."""
        if self.steps is not None and steps >= self.steps:
            more = f" (the run has {steps})" if steps > self.steps else ""
            return f"The budget of {self.steps:,} steps is used up{more}; raise it to go on."
        if self.seconds is not None and seconds >= self.seconds:
            return f"The budget of {self.seconds:g} s is used up after {max(steps, 0):,} steps; raise it to go on."
        return ""

    def is_overrun(self, seconds: float, in_first_step: bool = False) -> bool:
        """Whether a run that took this long is well beyond its limit in seconds."""
        share, least = (FIRST_OVERRUN, FIRST_PATIENCE) if in_first_step else (MOST_OVERRUN, LEAST_OVERRUN)
        return self.seconds is not None and seconds > share * self.seconds + least

    def overrun(self, seconds: float, before: float) -> str:
        """A sentence if a run took well more than the limit in seconds, `before` of them before it had this limit.

        It begins with a blank.
        """
        if not self.is_overrun(seconds):
            return ""
        if self.seconds is not None and before >= self.seconds:
            return f" The run had used {before:.3g} s before it was given this limit."
        return f" It used {seconds:.3g} s, because its last step took that long: use smaller settings."

    def progress(self, steps: int, seconds: float) -> Progress:
        """The progress of a run that took this much. Of two limits, the one that will end the run first counts."""
        by_limit = []
        if self.steps is not None:
            eta = max(self.steps - steps, 0) * seconds / steps if steps > 0 else NAN
            by_limit.append(Progress(min(max(steps, 0) / max(self.steps, 1), 1.0), eta))
        if self.seconds is not None:
            by_limit.append(Progress(min(seconds / self.seconds, 1.0), max(self.seconds - seconds, 0.0)))
        return max(by_limit, key=lambda progress: progress.fraction, default=Progress(NAN, NAN))


class StopRequest:
    """The wish that a run ends, which any thread may have. What takes longer than `PATIENCE` after it is given up."""

    def __init__(self) -> None:
        self._lock, self.is_asked, self._moment = threading.Lock(), False, math.inf

    def ask(self) -> None:
        """Ask for the end before the next step."""
        with self._lock:
            self.is_asked = True
            self._moment = min(self._moment, time.monotonic())

    def hurry(self) -> None:
        """Ask that the step in progress ends soon, and for nothing after it."""
        with self._lock:
            self._moment = min(self._moment, time.monotonic())

    def answer(self) -> None:
        """The run has ended. Its last scores are still to end soon."""
        self.is_asked = False

    def forget(self, answered: bool = True) -> None:
        """Forget an earlier request; unless it is `answered`, only one that the run has ended for."""
        with self._lock:
            if answered or not self.is_asked:
                self.is_asked, self._moment = False, math.inf

    @property
    def is_overdue(self) -> bool:
        """Whether what was in progress when the end was asked for has gone on for longer than `PATIENCE`."""
        return time.monotonic() > self._moment + PATIENCE


def named_limits(limits: Any) -> dict[str, Any]:
    """The limits by name, with their values unchecked; SettingError if there is a limit of another name."""
    values = of_kind("budget", limits, Mapping, "names with their values")
    for name in values:
        if name not in LIMITS:
            raise SettingError(f"A budget has no {quoted(name)}{closest(name, LIMITS)}")
    return dict(values)


SHARE_OF_SCORES = 0.25  # no further score begins once scoring has taken this share of the time of the steps


class ScoringTime:
    """Bounds the time that scores take in a run with a limit in seconds, which counts the steps alone.

    The last record is always scored, and scheduled ones as long as scoring has taken no more than `SHARE_OF_SCORES` of
    the time of the steps: a method whose variances cost more than its steps would take many times the seconds that
    were given. The first record waits for the end, when it is known whether there is time for it.

    Parameters
    ----------
    budget : Budget
        The budget of the run.
    seconds : float
        The seconds of steps before now.
    """

    def __init__(self, budget: Budget, seconds: float) -> None:
        self._limited, self._before = budget.seconds not in (None, math.inf), seconds
        self._begin = time.perf_counter()

    def allowed(self, seconds: float) -> bool:
        """Whether the next record may be scored, after this many seconds of steps."""
        stepping = seconds - self._before
        elapsed = time.perf_counter() - self._begin
        return not self._limited or elapsed < (1.0 + SHARE_OF_SCORES) * stepping


class ScoringClock:
    """How long the scores of a run take: those in progress, and the ones before them. A context while they are taken.

    Attributes
    ----------
    latest : float
        Seconds of the latest scores; nan before.
    """

    def __init__(self) -> None:
        self.latest, self._begin = NAN, NAN

    def __enter__(self) -> None:
        self._begin = time.monotonic()

    def __exit__(self, kind: object, *_: object) -> None:
        self.latest = time.monotonic() - self._begin if kind is None else self.latest
        self._begin = NAN

    @property
    def progress(self) -> Progress | None:
        """The share of the scores in progress that is done, and the seconds to go; None while none are taken."""
        elapsed = time.monotonic() - self._begin
        if math.isnan(elapsed):
            return None
        share = min(elapsed / self.latest, 1.0) if self.latest > 0.0 else NAN
        return Progress(share, max(self.latest - elapsed, 0.0) if share < 1.0 else NAN)


def long_step_note(expected: float, seconds: float | None) -> str:
    """A sentence if a step is expected to take longer than the limit in seconds, or without one than `LONG_STEP`."""
    if seconds is None and expected > LONG_STEP:
        return (
            f"By its formula, one step takes about {expected / 60:,.0f} minutes: choose smaller settings, fewer rows, "
            "or a method for many rows, such as svgp or vecchia."
        )
    if seconds is None or not expected > seconds:
        return ""
    return (
        f"By its formula, one step takes about {expected:.2g} s, longer than the {seconds:g} s that you gave: "
        "choose smaller settings for less."
    )


def scheduled(index: int) -> bool:
    """Whether a run scores the record with this index: 0, 1, 2, 5, 10, 20, 50, ..., independently of the clock."""
    while index > 9 and index % 10 == 0:
        index //= 10
    return index in (0, 1, 2, 5)
