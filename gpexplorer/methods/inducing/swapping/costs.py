"""What a swap costs, from the formulas."""

from __future__ import annotations

from typing import Any

from ....problem import Cost, Problem
from .factor import QUEUE

SWAP, PROPOSING = 260.0, 100.0  # calls of a swap: pivots are kept up to date; and of looking at proposals beside them


def swap_cost(method: Any, problem: Problem) -> Cost:
    """One swap with z pivots, drawn anew every few swaps, and c proposals beside them.

    Proposals read L twice; pivots are drawn by two products with it, one of them with the columns of the removals to
    come, and waiting changes are folded in every few swaps.
    """
    m, z, c = method.num_inducing, method.num_pivots, method.num_proposals
    n, s = len(problem.train), problem.train.y.element_size()
    m, z = min(m, n), min(z, n)
    share = 1.0 / method.pivot_refresh
    scoring = 8.0 * n * z * z * (1.0 if c else share)
    flops = 2.0 * n * m * ((2 * c + 1 if c else 1) + 2 * z * share + 1) + scoring
    flops += 2.0 * m * m * (z * share + c + 12)
    reads = s * (n * m * ((2.0 if c else 0.0) + 2.0 * share + 2.0 / QUEUE) + (8.0 * n * (z + c) if c else 3.0 * n * z))
    arrays = {
        "factor L": s * n * m,
        "waiting changes": s * n * QUEUE,
        "pivot columns": 3 * s * n * z,
        "m x m factors": 4 * s * m * m,
        "K_mn while L is built": s * n * m,
    }
    return Cost(flops, reads, arrays, SWAP + (PROPOSING if c else 0.0))
