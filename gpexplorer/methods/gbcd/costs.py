"""What an iteration costs, from the formulas: kernel entries, flops, and the arrays that are held."""

from __future__ import annotations

from ...problem import Cost, Problem

ENTRY = 20.0  # flops that one kernel entry is worth, the exponential counted by its time, beside 2 d for the distance


def cost(problem: Problem, cache: float, entries: float, flops: float, columns: int) -> Cost:
    """`entries` and `flops` an iteration, `columns` of length n held beside the rows kept in `cache` gigabytes."""
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    kept = min(cache * 1e9, 1.0 * s * n * n)
    fresh = entries * max(0.0, 1.0 - kept / (s * n * n))
    arrays = {"kept kernel rows": kept, "block columns": 1.0 * s * n * columns, "alpha and gradient": 4.0 * s * n}
    return Cost(flops + fresh * (ENTRY + 2.0 * d), s * (2.0 * entries + 6.0 * n), arrays)
