"""The speed of this machine, which turns a count of operations into seconds, and the sizes of models that suit it.

With a time, sizes come from the speed of this machine, so that a faster one is given larger models. Without one, they
come from the number of rows alone.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...problem import Cost
from ..budget import FIRST_OVERRUN, FIRST_PATIENCE, Budget, long_step_note
from ..run import Run

ORDER, LENGTH, TIMES = 384, 2_000_000, 6  # of the matrix product, of the vector sum, and repetitions of each
TINY, BLOCK, CALLS = 64, 4, 10  # a step on a block of 4 of 64 unknowns asks for ten tensor operations
REPEATS = 60  # measurements whose median is taken, because other processes on the same cores delay some
STEPS = 30  # number of steps or factorisations that should fit into the time
MOST_POINTS, LEAST_POINTS = 1024, 64
MOST_ROWS, LEAST_ROWS = 3000, 200  # of an exact model
MOST_WITHOUT_TIME, LEAST_WITHOUT_TIME, PER_ROOT = 512, 128, 2.25  # points: about 2.25 sqrt(n)
STEPS_OF_A_FIT = 450  # an epoch of swaps and 50 evaluations that move the points cost about this many times n m^2


class Speed(NamedTuple):
    """What a machine does in a second.

    Attributes
    ----------
    flops : float
        Double-precision operations per second.
    bytes : float
        Bytes read or written per second.
    call : float
        Seconds of one small tensor operation.
    """

    flops: float
    bytes: float
    call: float = 0.0

    def seconds(self, cost: Cost) -> float:
        """Seconds of a step with this cost.

        Arithmetic and memory traffic happen at the same time, so the slower of the two counts. The time that Python
        needs to ask for the operations is added.
        """
        return max(cost.flops / self.flops, cost.bytes / self.bytes) + cost.calls * self.call


@cache
def machine() -> Speed:
    """Measure this machine once, in about 50 ms: a matrix product, a sum of long vectors, and steps on a tiny block."""
    call = _seconds_per_call()  # measured first, because the threads of a large product go on waiting busily
    a, x = torch.ones(ORDER, ORDER, dtype=torch.float64), torch.ones(LENGTH, dtype=torch.float64)
    product, total = min(_elapsed(lambda: a @ a, TIMES)), min(_elapsed(lambda: x + x, TIMES))  # the least disturbed
    return Speed(2 * ORDER**3 / product, 3 * 8 * LENGTH / total, call)


def _seconds_per_call() -> float:
    """Seconds of one small operation, from the median of some steps of block descent on a tiny system.

    A loop of sums would give a third of it. What methods do is more varied: rows are chosen and gathered, a small
    system is solved, a number is read from a tensor, and Python goes from one operation to the next.
    """
    A = torch.full((TINY, TINY), 0.1, dtype=torch.float64).fill_diagonal_(3.0)
    y = torch.linspace(1.0, 2.0, TINY, dtype=torch.float64)
    return statistics.median(_elapsed(lambda: tiny_step(A, y, y), REPEATS)) / CALLS


def tiny_step(A: Tensor, alpha: Tensor, g: Tensor) -> tuple[Tensor, Tensor, float]:
    """One Gauss-Seidel step on the rows with the largest residual g = y - A alpha, in CALLS tensor operations."""
    rows = torch.topk(g.abs(), BLOCK).indices
    K = A[rows]
    step = torch.linalg.solve_triangular(K[:, rows], g[rows, None], upper=False)[:, 0]
    alpha, g = alpha.index_add(0, rows, step), g - step @ K
    return alpha, g, float(alpha @ g)


def _elapsed(work: Callable[[], object], times: int) -> list[float]:
    """Seconds of each of so many runs of `work`, after one to warm up."""
    clock = time.perf_counter
    work()
    ends = [clock()]
    for _ in range(times):
        work()
        ends.append(clock())
    return [max(end - begin, 1e-9) for begin, end in pairwise(ends)]


class LongStep(NamedTuple):
    """A step that is expected to take longer than the limit in seconds: a sentence, and whether it will be given up."""

    note: str = ""
    is_given_up: bool = False


def long_step_of(run: Run) -> LongStep:
    """Whether steps are expected, by their formula, to last longer than the limit of the spec in seconds; on a CPU."""
    seconds = run.spec.budget.get("seconds") if run.spec else None
    if seconds is None or run.problem.train.y.device.type != "cpu" or run.method.map is not map:
        return LongStep()
    expected = machine().seconds(run.method.cost(run.problem))
    end = f" The first one is given up after {FIRST_OVERRUN * seconds + FIRST_PATIENCE:,.0f} s."
    note = long_step_note(expected, seconds)
    return LongStep(note and note + end, Budget(seconds=seconds).is_overrun(expected, in_first_step=True))


def points_for(n: int, seconds: float, steps: int = STEPS) -> int:
    """The number of inducing points m for which `steps` steps of n m^2 multiplications and additions take `seconds`.

    It is at least sqrt(n), the default of the methods, as long as STEPS steps take `seconds`.
    """

    def affordable(steps: int) -> float:
        return math.sqrt(machine().flops * seconds / (2.0 * steps * n))

    default = min(math.isqrt(n), int(affordable(STEPS)))
    return min(n, MOST_POINTS, max(LEAST_POINTS, default, rounded(affordable(steps))))


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
    affordable = (machine().flops * seconds / STEPS) ** (1 / 3)
    return min(n, MOST_ROWS, max(LEAST_ROWS, rounded(affordable)))


def rounded(size: float) -> int:
    """The next smaller power of two or 1.5 times one: sizes that people can read and compare."""
    power = 2 ** int(math.log2(max(size, 1.0)))
    return int(1.5 * power) if size >= 1.5 * power else power
