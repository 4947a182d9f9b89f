"""What an iteration costs, from the formulas: kernel entries, flops, and the arrays that are held."""

from __future__ import annotations

from ...linalg.blocks import BLOCK_BYTES
from ...problem import Cost, Problem

ENTRY = 100.0  # flops of a matrix product in the time of one entry, beside 2 d: 0.4 to 0.6 G entries/s at 50 GF/s
CALLS = 1.5e7  # as many again in the time of the thirty small calls that a pair, or a joining, is made of


def cost(problem: Problem, cache: float, entries: float, flops: float, columns: int) -> Cost:
    """`entries` and `flops` an iteration, `columns` of length n held beside the rows kept in `cache` gigabytes.

    What is kept spares a product with the whole matrix its entries, and symmetry half of the others; a block's are
    counted as met for the first time.
    """
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    kept = min(cache * 1e9, 1.0 * s * n * n)
    fresh = entries * (0.5 * (1.0 - kept / (s * n * n)) ** 2 if entries >= n * n else 1.0)
    arrays = {
        "kept kernel rows": kept,
        "block columns": 1.0 * s * n * columns,
        "rows on their way": min(s * entries, 1.0 * BLOCK_BYTES),
        "alpha and gradient": 4.0 * s * n,
    }
    return Cost(flops + fresh * (ENTRY + 2.0 * d), s * (entries + 2.0 * fresh + 6.0 * n), arrays)
