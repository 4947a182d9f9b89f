"""How fast this machine is, so that a count of operations, bytes and calls becomes seconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...problem import Cost

ORDER, LENGTH, TIMES = 384, 2_000_000, 4
TINY, BLOCK, CALLS = 64, 4, 10  # a step in a block of so many unknowns dispatches ten operations
TURNS = 60  # of which the median counts: a neighbour on the same cores delays some


class Speed(NamedTuple):
    """Double-precision operations and bytes a second, and the seconds of one small operation."""

    flops: float
    bytes: float
    call: float = 0.0

    def seconds(self, cost: Cost) -> float:
        """Arithmetic and memory traffic overlap, so that the slower of the two counts; asking for them comes on top."""
        return max(cost.flops / self.flops, cost.bytes / self.bytes) + cost.calls * self.call


@cache
def machine() -> Speed:
    """A middling matrix product, a sum of long vectors and steps on a tiny block, timed once, in about 50 ms."""
    call = _overhead()  # first: threads of a large product wait busily for the next
    a, x = torch.ones(ORDER, ORDER, dtype=torch.float64), torch.ones(LENGTH, dtype=torch.float64)
    flops, moved = TIMES * 2 * ORDER**3, TIMES * 3 * 8 * LENGTH
    return Speed(flops / _took(lambda: a @ a, TIMES), moved / _took(lambda: x + x, TIMES), call)


def _overhead() -> float:
    """Seconds of one small operation: the median of some steps of block descent on a tiny system.

    A sum in a loop takes a third of it. What methods do is more mixed: rows are chosen and gathered, a small system is
    solved, a number is taken out, and Python goes from one to the next.
    """
    A = torch.full((TINY, TINY), 0.1, dtype=torch.float64).fill_diagonal_(3.0)
    y = torch.linspace(1.0, 2.0, TINY, dtype=torch.float64)
    return statistics.median(_took(lambda: tiny_step(A, y, y), 1) for _ in range(TURNS)) / CALLS


def tiny_step(A: Tensor, alpha: Tensor, g: Tensor) -> tuple[Tensor, Tensor, float]:
    """Descend once through the rows with the largest residual g = y - A alpha (Gauss-Seidel): CALLS operations."""
    rows = torch.topk(g.abs(), BLOCK).indices
    K = A[rows]
    step = torch.linalg.solve_triangular(K[:, rows], g[rows, None], upper=False)[:, 0]
    alpha, g = alpha.index_add(0, rows, step), g - step @ K
    return alpha, g, float(alpha @ g)


def _took(work: Callable[[], object], times: int) -> float:
    work()
    begin = time.perf_counter()
    for _ in range(times):
        work()
    return max(time.perf_counter() - begin, 1e-6)
