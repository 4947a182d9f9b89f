"""Sizes of models that suit a number of rows and a time: how many inducing points, and how many rows of an exact GP.

With a time, sizes come from the speed of this machine, so that a faster one is given larger models. Without one, they
come from the number of rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from . import machine_speed

STEPS = 30  # number of steps or factorisations that should fit into the time
MOST_POINTS, LEAST_POINTS = 1024, 64
MOST_ROWS, LEAST_ROWS = 3000, 200  # of an exact model
MOST_WITHOUT_TIME, LEAST_WITHOUT_TIME, PER_ROOT = 512, 128, 2.25  # points: about 2.25 sqrt(n)
STEPS_OF_A_FIT = 450  # an epoch of swaps and 50 evaluations that move the points cost about this many times n m^2


def points_for(n: int, seconds: float, steps: int = STEPS) -> int:
    """The number of inducing points m for which `steps` steps of n m^2 multiplications and additions take `seconds`."""
    affordable = math.sqrt(machine_speed.machine().flops * seconds / (2.0 * steps * n))
    rule = max(LEAST_POINTS, math.isqrt(n))  # the default of the methods
    return min(n, MOST_POINTS, max(rule, rounded(affordable)))


def points_without_time(n: int) -> int:
    """The number of inducing points where no time is given: about 2.25 sqrt(n), at least 128 and at most 512."""
    return min(n, MOST_WITHOUT_TIME, max(LEAST_WITHOUT_TIME, rounded(PER_ROOT * math.sqrt(n))))


def points_for_budget(n: int, budget: Mapping[str, Any]) -> int:
    """The number of inducing points for n rows and a budget, which may name "seconds"."""
    seconds = budget.get("seconds")
    if isinstance(seconds, int | float) and 0 < seconds < math.inf:
        return points_for(n, float(seconds), STEPS_OF_A_FIT)
    return points_without_time(n)


def rows_for(n: int, seconds: float) -> int:
    """The number of rows with which STEPS evaluations of an exact GP's likelihood, O(n^3) each, take `seconds`."""
    affordable = (machine_speed.machine().flops * seconds / STEPS) ** (1 / 3)
    return min(n, MOST_ROWS, max(LEAST_ROWS, rounded(affordable)))


def rounded(size: float) -> int:
    """The next smaller power of two or 1.5 times one: sizes that people can read and compare."""
    power = 2 ** int(math.log2(max(size, 1.0)))
    return int(1.5 * power) if size >= 1.5 * power else power
