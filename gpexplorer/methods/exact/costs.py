"""What an iteration of a solver costs: floating-point operations, bytes, calls, and the arrays that it holds.

The constants were measured on a two-core machine at 50 Gflop/s; `python -m benchmarks costs` compares the
formulas with the clock. A "call" is one tensor operation that Python asks for: it takes a few microseconds however
small its operands are.
"""

from __future__ import annotations

from ...linalg.blocks import BLOCK_BYTES
from ...problem import Cost, Problem

FLOPS_PER_ENTRY = 100.0  # a kernel entry takes as long as this many flops and 2 d more (0.4 to 0.6 G entries/s)
FLOPS_PER_COPIED_ENTRY = 70.0  # additional flops if the entry is written into memory that was not used before

CALLS_PER_ITERATION = 60.0  # every solver: choose rows, solve their system, update alpha
CALLS_PER_SKETCH = 130.0  # additional calls if a block is replaced by its leading eigenvectors
CALLS_PER_SUBSPACE_STEP = 80.0  # additional calls if a step is combined with the previous ones
CALLS_PER_CHUNK = 70.0  # each time that rows join a block
CALLS_PER_PAIR = 52.0  # of SMO
VECTORS_PER_PAIR = 40.0  # vectors of length n that the choice of a pair reads: masks, gains, the largest of them
CALLS_PER_JOIN = 67.0  # each time that regressors join a sparse model
CALLS_PER_GAINS = 50.0  # each time that the gains of candidate regressors are computed

CALLS_PER_FILL, FILL_BYTES = 8.0, 2**20  # calls per FILL_BYTES of kernel entries, which are filled in blocks
STRIP_FACTOR = 2.0  # factor of the calls if the whole matrix is visited in strips that are used on both sides


def iteration_cost(problem: Problem, cache: float, entries: float, flops: float, columns: int) -> Cost:
    """Cost of one iteration from its counts of kernel entries and flops.

    Parameters
    ----------
    problem : Problem
        Training rows, for n, d and the number of bytes per number.
    cache : float
        Gigabytes of kernel rows that are kept.
    entries : float
        Kernel entries that the iteration reads. n^2 or more means a product with the whole matrix.
    flops : float
        Floating-point operations besides those for kernel entries.
    columns : int
        Vectors of length n that are held besides the kept rows.

    Returns
    -------
    Cost
        Kept rows save a product with the whole matrix their entries, and symmetry saves half of the others. The
        entries of a block are counted as if none of them was kept. Rows that are to be kept are computed in place.
    """
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    kept = min(cache * 1e9, 1.0 * s * n * n)
    computed = entries * (0.5 * (1.0 - kept / (s * n * n)) ** 2 if entries >= n * n else 1.0)
    arrays = {
        "kept kernel rows": kept,
        "block columns": 1.0 * s * n * columns,
        "rows being computed": min(s * entries, 1.0 * BLOCK_BYTES) if kept < s * n * n else 0.0,
        "alpha and gradient": 4.0 * s * n,
    }
    traffic = s * (entries + 2.0 * computed + 6.0 * n)
    calls = CALLS_PER_ITERATION + fill_calls(s * computed) * (STRIP_FACTOR if entries >= n * n else 1.0)
    per_entry = FLOPS_PER_ENTRY + 2.0 * d + (0.0 if entries >= n * n else FLOPS_PER_COPIED_ENTRY)
    return Cost(flops + computed * per_entry, traffic, arrays, calls)


def fill_calls(size: float) -> float:
    """Number of calls that compute kernel entries of this size in bytes."""
    return CALLS_PER_FILL * (1.0 + size / FILL_BYTES)
