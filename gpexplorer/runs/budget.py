"""How long a run may go on, how far it is, and at which steps it is scored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import SettingError, closest
from .setting_checks import number, of_kind, quoted

LIMITS = ("steps", "seconds")
NAN = float("nan")


class Progress(NamedTuple):
    """Share of the budget used, from 0 to 1, and seconds still to go; nan where no budget says."""

    fraction: float
    eta: float


@dataclass(frozen=True)
class Budget:
    """Limits on a whole run, counted from its start: steps after the first record, seconds of the method's own work."""

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        """SettingError where a limit is no number of at least 0; infinitely many seconds are no limit."""
        if self.steps is not None:
            object.__setattr__(self, "steps", number("The budget's steps", self.steps, whole=True, low=0))
        if self.seconds is not None and self.seconds != math.inf:
            number("The budget's seconds", self.seconds, whole=False, low=0)

    @classmethod
    def of(cls, limits: Mapping[str, Any]) -> Budget:
        """The budget a spec holds; SettingError where it names another limit."""
        return cls(**named_limits(limits))

    def spent(self, steps: int, seconds: float) -> str:
        """Why a run that took this much must end, as a sentence; empty while it may go on."""
        if self.steps is not None and steps >= self.steps:
            return f"The budget of {self.steps} steps is used up; raise it to go on."
        if self.seconds is not None and seconds >= self.seconds:
            return f"The budget of {self.seconds:g} s is used up after {max(steps, 0)} steps; raise it to go on."
        return ""

    def progress(self, steps: int, seconds: float) -> Progress:
        """How far along a run that took this much is; of two limits the one that will end it first."""
        found = []
        if self.steps is not None:
            eta = max(self.steps - steps, 0) * seconds / steps if steps > 0 else NAN
            found.append(Progress(min(max(steps, 0) / max(self.steps, 1), 1.0), eta))
        if self.seconds is not None:
            found.append(Progress(min(seconds / self.seconds, 1.0), max(self.seconds - seconds, 0.0)))
        return max(found, key=lambda progress: progress.fraction, default=Progress(NAN, NAN))


def named_limits(limits: Any) -> dict[str, Any]:
    """The limits by name, their values not looked at; SettingError where one is not known."""
    held = of_kind("budget", limits, Mapping, "names with their values")
    for name in held:
        if name not in LIMITS:
            raise SettingError(f"A budget has no {quoted(name)}{closest(name, LIMITS)}")
    return dict(held)


def scheduled(index: int) -> bool:
    """Whether a run scores the record of this index: 0, 1, 2, 5, 10, 20, 50, ..., whatever the clock says."""
    while index > 9 and index % 10 == 0:
        index //= 10
    return index in (0, 1, 2, 5)
