"""What a swap costs, from the formulas."""

from __future__ import annotations

from ...problem import Cost, Problem
from .factor import QUEUE


def swap_cost(problem: Problem, m: int, z: int, c: int, refresh: int) -> Cost:
    """One swap with z pivots, drawn anew every `refresh` swaps, and c proposals beside them.

    Proposals read L twice; pivots are drawn by two products with it, and a waiting change is folded in every few swaps.
    """
    n, s = len(problem.train), problem.train.y.element_size()
    m, z = min(m, n), min(z, n)
    share = 1.0 / refresh
    scoring = 8.0 * n * z * z * (1.0 if c else share)
    flops = 2.0 * n * m * ((2 * c + 1 if c else 1) + 2 * z * share + 1) + scoring + 2.0 * m * m * (z + c + 6)
    reads = s * (n * m * ((2.0 if c else 0.0) + 3.0 * share + 2.0 / QUEUE) + 8.0 * n * (z + c))
    arrays = {
        "factor L": s * n * m,
        "waiting changes": s * n * QUEUE,
        "pivot columns": 3 * s * n * z,
        "m x m factors": 4 * s * m * m,
        "K_mn while L is built": s * n * m,
    }
    return Cost(flops, reads, arrays)
