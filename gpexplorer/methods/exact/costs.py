"""What an iteration costs, from the formulas: kernel entries, flops, calls, and the arrays that are held."""

from __future__ import annotations

from ...linalg.blocks import BLOCK_BYTES
from ...problem import Cost, Problem

ENTRY = 100.0  # flops of a matrix product in the time of one entry, beside 2 d: 0.4 to 0.6 G entries/s at 50 GF/s
KEPT = 100.0  # more, where it is copied into memory that nobody has touched before
ITERATION = 60.0  # calls of an iteration as every solver makes it: rows are chosen, their system solved, alpha moves
SKETCH = 130.0  # more, where a block is stood for by its leading eigenvectors
CONJUGATED, JOINING = 80.0, 70.0  # more, where steps are taken together; and each time that rows join a block
PAIR, LOOKS = 52.0, 40.0  # calls of a pair, and vectors of length n that they read: masks, gains, the largest of them
REGRESSORS, GAINS = 67.0, 50.0  # calls each time that regressors join; and where their gains are computed before
FILL, FILL_BYTES = 8.0, 2**20  # calls while so many bytes of entries are made: they are filled in by such blocks
STRIPS = 2.0  # times as many where the whole matrix is met, by strips that are used on both sides


def cost(problem: Problem, cache: float, entries: float, flops: float, columns: int) -> Cost:
    """`entries` and `flops` an iteration, `columns` of length n held beside the rows kept in `cache` gigabytes.

    What is kept spares a product with the whole matrix its entries, and symmetry half of the others; a block's are
    counted as met for the first time. Calls are those of ITERATION and of filling what is fresh.
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
    moved = s * (entries + 2.0 * fresh + 6.0 * n)
    calls = ITERATION + filling(s * fresh) * (STRIPS if entries >= n * n else 1.0)
    each = ENTRY + 2.0 * d + (0.0 if entries >= n * n else KEPT)
    return Cost(flops + fresh * each, moved, arrays, calls)


def filling(fresh: float) -> float:
    """Calls that fill in so many bytes of kernel entries."""
    return FILL * (1.0 + fresh / FILL_BYTES)
