"""What a step costs, from the formulas."""

from __future__ import annotations

from ...problem import Cost, Problem

ENTRY = 20.0  # flops that a kernel entry is worth, its exponential counted by its time, beside 2 d for the distance


def dense_cost(problem: Problem, flops: float, matrices: int) -> Cost:
    """A method that holds so many n x n matrices: `flops` beside the kernel and its gradient."""
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    entries = 1.0 * n * n
    return Cost(
        flops + 2.0 * entries * (ENTRY + 4.0 * d), 10.0 * s * entries, {"n x n matrices": matrices * s * entries}
    )
