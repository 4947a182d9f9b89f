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

import torch
from torch import Tensor

from ....linalg.randomness import generator
from ..block import Block, BlockBuffers, CoarseRows
from ..block_choice import BlockSizes, fill_block
from ..system import System
from .right_hand_sides import COMPACT, Columns

SMALLEST_BLOCK, LARGEST_BLOCK = 500, 1000  # rows, beside three times as many coarse rows
SHORTLIST = 4  # candidates per row of a block
ESTIMATES = 10  # number of times per pass that the norms of gradients are estimated
SAMPLED_ROWS = 1000  # number of rows from which the norms of gradients are estimated
BLOCK_MEMORY = 0.48e9  # bytes: 1000 and 3000 rows of 30 000 numbers in float32


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
    Kernel entries cost the same whatever the number of right-hand sides, and every row of a block costs 2 n flops for
    each of them. A coarse row costs little (see `right_hand_sides`) and reduces the number of passes, so that three
    quarters of the memory are for coarse rows. On kin40k at n = 30000, 300 variances take 4.04 n^2 entries and 62
    seconds of a processor with 1000 rows per block and 3000 coarse rows, and 4.97 n^2 and 71 with 2000 and 2000.
    """
    rows = int(BLOCK_MEMORY / (number_bytes * n))  # of blocks and coarse rows together
    block = max(min(LARGEST_BLOCK, rows // 4, n // 12), min(SMALLEST_BLOCK, n // 2))
    coarse = min(3 * LARGEST_BLOCK, n // 3, max(rows - block, 0))
    return BlockSizes(block, max(block // 10, 1), coarse, 0, seed, SHORTLIST)


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
        Stop once the blocks together had this many times n rows, finished or not.

    Yields
    ------
    int
        Number of blocks so far, after each block. The iteration ends when all columns are finished.

    Notes
    -----
    Per block of b rows and m coarse rows, n b kernel entries whatever the number k of columns, and 2 (n + 2 m + b) b k
    flops; 2 n m k more whenever norms are computed, which is after a pass or where they seem to be within limits.
    Columns that are combined with previous steps take 2 n (b + m) k flops per block.
    """
    coarse = system.once("coarse rows", lambda: CoarseRows(system, min(sizes.coarse, system.n // 2), sizes.seed))
    b = min(sizes.block, system.n - len(coarse.rows))
    buffers = BlockBuffers(coarse.W, b)
    sample = torch.randperm(system.n, generator=generator(sizes.seed, "norms"))[:SAMPLED_ROWS].to(coarse.rows.device)
    blocks_per_pass = max(system.n // b, 1)  # norms are computed once per pass in any case, and estimated more often
    number, unfinished = 0, [group for group in groups if not group.drop_finished()]
    while unfinished and number * b < passes * system.n:
        gradient = _gradient_for_choice(groups[0], unfinished, number, sizes.seed)
        block = Block(system, gradient, coarse, buffers)
        for _ in fill_block(system, block, sizes, number):
            pass
        for group in unfinished:
            group.move(block)
        number += 1
        in_any_case = number % blocks_per_pass == 0 or number * b >= passes * system.n
        estimated = number % max(blocks_per_pass // ESTIMATES, 1) == 0
        unfinished = [group for group in unfinished if not _is_finished(group, sample, estimated, in_any_case)]
        yield number


def _is_finished(group: Columns, sample: Tensor, estimated: bool, in_any_case: bool) -> bool:
    """Whether all columns are finished; their norms are computed in any case, or if that seems worth it."""
    if group.conjugate or in_any_case:
        return group.drop_finished()
    return estimated and group.share_within_limits(sample) > 1.0 - COMPACT and group.drop_finished()


def _gradient_for_choice(first: Columns, unfinished: Sequence[Columns], number: int, seed: int) -> Tensor:
    """The gradient [n] for which block `number` is chosen."""
    if number % 2 == 0 and first.conjugate and len(first.active) and int(first.active[0]) == 0:
        return first.G[:, 0].clone()
    draw = generator(seed, "combination", number)
    total = torch.zeros(len(unfinished[0].G), dtype=unfinished[0].dtype, device=unfinished[0].G.device)  # [n]
    for group in unfinished:
        weights = torch.randn(len(group.active), generator=draw, dtype=torch.float64).to(total)
        total += group.combined_gradient(weights / group.limits)
    return total
