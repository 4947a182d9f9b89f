"""Greedy block coordinate descent for many right-hand sides: a kernel row that is computed serves all of them.

    1. Choose a block B for one gradient: in turn that of the first column, and a random combination of all columns.
    2. Solve for B and the coarse rows for every column, with one factor:   T = -A_JJ^-1 G_J,   J = B and C
    3. V_J += T,   G += A_:J T

The combination sum_j w_j g_j / limit_j with w_j ~ N(0, 1) has the mean square sum_j (g_j / limit_j)^2 at every row, so
that rows are preferred where the columns together are farthest from their limits. Choosing for the first column every
other time costs the others little and lets the first one converge nearly as fast as alone: on kin40k at n = 3000 with
eight samples and 200 variances, the mean has an error of 4e-4 after 4.2 n^2 kernel entries (1.7e-3 when every block
was chosen for five combinations, 4e-2 with one combination only), and the samples have 5e-2 in all three cases.

One set of kernel rows for many right-hand sides is the idea of Wu et al. (2024), section 3, and Lin et al. (2024),
section 3; the choice of blocks by combinations is our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ....linalg.randomness import generator
from ..block import Block, CoarseRows, fill_block
from ..system import System
from .right_hand_sides import Columns

LARGEST_BLOCK = 2000  # rows, and as many coarse rows
BLOCK_MEMORY = 0.48e9  # bytes: 2000 rows each for 30 000 rows in float32


class BlockSizes(NamedTuple):
    """How blocks are chosen; the fields are those of the settings of GBCD."""

    block: int = 500
    chunk: int = 50
    coarse: int = 500
    pool: int = 0
    seed: int = 0


def sizes_for(n: int, seed: int = 0, number_bytes: int = 8) -> BlockSizes:
    """Return sizes of blocks for many right-hand sides: as many coarse rows and rows per block as fit into memory.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int
        Of the draws.
    number_bytes : int
        Bytes of an entry of a kernel row; the columns of the coarse rows and of a block take at most BLOCK_MEMORY.

    Notes
    -----
    Kernel rows cost the same whatever the number of right-hand sides, but every coarse row and every row of a block
    costs 2 n flops for each of them. Large blocks with many coarse rows need far fewer of both: on kin40k at n = 6000,
    365 targets, samples and points need 15.1 n^2 entries with 500 rows per block and 1000 coarse rows, 11.7 n^2 with
    1000 and 1000, and 4.5 n^2, in a third of the time, with 2000 and 2000.
    """
    coarse = min(LARGEST_BLOCK, n // 4, int(BLOCK_MEMORY / (2 * number_bytes * n)))
    block = max(coarse, BlockSizes().block)
    return BlockSizes(block, block // 10, coarse, 0, seed)


def solve_together(system: System, groups: Sequence[Columns], sizes: BlockSizes, passes: float) -> Iterator[int]:
    """Solve for all columns of all groups; the first column of the first group is preferred.

    Parameters
    ----------
    system : System
        A, with its cache of kernel rows.
    groups : sequence of Columns
        Right-hand sides; they are updated in place.
    sizes : BlockSizes
        Sizes of blocks.
    passes : float
        Stop after blocks of so many times n rows in all, finished or not.

    Yields
    ------
    int
        Number of blocks so far, after each block. The iteration ends when all columns are finished.

    Notes
    -----
    Per block of b rows and m coarse rows, n b kernel entries whatever the number k of columns, and 2 n (b + m) k flops.
    """
    coarse = system.once("coarse rows", lambda: CoarseRows(system, min(sizes.coarse, system.n // 2), sizes.seed))
    b = min(sizes.block, system.n - len(coarse.rows))
    workspace = coarse.W.new_empty(b, system.n)  # [b, n]
    number, left = 0, [group for group in groups if not group.drop_finished()]
    while left and number * b < passes * system.n:
        gradient = _gradient_for_choice(groups[0], left, number, sizes.seed)
        block = Block(system, gradient, coarse, workspace)
        for _ in fill_block(system, block, sizes.chunk, sizes.pool, sizes.seed, number):
            pass
        for group in left:
            group.move(block)
        left = [group for group in left if not group.drop_finished()]
        number += 1
        yield number


def _gradient_for_choice(first: Columns, left: Sequence[Columns], number: int, seed: int) -> Tensor:
    """The gradient [n] for which block `number` is chosen."""
    if number % 2 == 0 and len(first.active) and int(first.active[0]) == 0:
        return first.G[:, 0].clone()
    draw, total = generator(seed, "combination", number), torch.zeros_like(left[0].G[:, 0])
    for group in left:
        weights = torch.randn(len(group.active), generator=draw, dtype=torch.float64).to(total)
        total += group.G @ (weights / group.limits)
    return total
