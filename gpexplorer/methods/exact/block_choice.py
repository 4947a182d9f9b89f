"""The greedy choice of the rows of a block, Algorithm 2 of Bo and Sminchisescu (2008), with its candidates.

    1. B empty, e = g, all rows are candidates O
    3. s = argmax over O of e_i^2 / (2 A_ii): the decrease of f if row i alone moved                            eq 10
    4. update the factor of A_BB and t                                                                         (`Block`)
    5. B = B + {s}
    6. draw new candidates O of size 60, e = g + A_:B t at O

Three sets of candidates are possible. The paper draws `pool` random rows for each row that joins. All rows are better,
but then each e takes a read of all columns, which is most of the time of a block. A shortlist of the rows whose gains
are largest at the beginning gives blocks that are nearly as good as those from all rows, at a fraction of these reads:
with 4 candidates per row, kin40k at n = 10000 takes 154 iterations instead of 148, and 8.2 seconds instead of 10.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.randomness import generator
from ...linalg.tall_products import minus_product
from .block import Block
from .system import System, updated_gradient


class BlockSizes(NamedTuple):
    """How blocks are chosen; the fields are those of the settings of GBCD."""

    block: int = 500
    chunk: int = 50
    coarse: int = 500
    pool: int = 0
    seed: int = 0
    shortlist: int = 0


def fill_block(system: System, block: Block, sizes: BlockSizes, number: int) -> Iterator[Tensor]:
    """Algorithm 2: fill a block, and yield the decrease of f that each new row promises alone.

    Parameters
    ----------
    system : System
        The linear system.
    block : Block
        An empty block, made for the gradient that the choice is for.
    sizes : BlockSizes
        How many rows join at a time, and their candidates.
    number : int
        Number of the block, for the draws of candidates.

    Notes
    -----
    n b (b + 2 m) / chunk flops; with a shortlist 2 n m + s b^2 (b + 2 m) / chunk.
    """
    b = len(block.A)
    if sizes.shortlist and not sizes.pool and sizes.chunk < b and sizes.shortlist * b < len(block.g):
        yield from _fill_from_shortlist(system, block, sizes)
        return
    taken = block.coarse.is_coarse.clone()  # [n]
    while len(block.rows) < b:  # line 2
        count = min(sizes.chunk, b - len(block.rows))
        size = sizes.pool * count if len(block.rows) else 0  # O of lines 1, 6: first all rows, then a random subset
        candidates = _candidates(taken, count, size, (sizes.seed, "pool", number, len(block.rows)))
        e = block.gradient_for_choice(candidates)  # lines 1 and 6
        factors, closed = (part if candidates is None else part[candidates] for part in (system.gain_factors, taken))
        best = (e * factors).mul_(e).masked_fill_(closed, -torch.inf).topk(count)  # eq 10
        new = best.indices if candidates is None else candidates[best.indices]  # line 3
        taken.index_fill_(0, new, True)
        block.join(new)  # lines 4 and 5
        yield best.values


def _candidates(taken: Tensor, count: int, size: int, place: tuple[int, str, int, int]) -> Tensor | None:
    """`size` random candidates for `count` new rows; None means all rows, also where too few of them are free."""
    if not size or size >= len(taken):
        return None
    drawn = torch.randperm(len(taken), generator=generator(*place))[:size].to(taken.device)
    return drawn if int((~taken[drawn]).sum()) >= count else None


class Shortlist:
    """Candidates that are the same for all rows of a block, with their part of the columns.

    Parameters
    ----------
    block : Block
        An empty block.
    rows : Tensor [c]
        The candidates.

    Notes
    -----
    c (m + b) numbers are copied per block, into buffers that the next block overwrites.
    """

    def __init__(self, block: Block, rows: Tensor) -> None:
        self.rows, self.g = rows, block.g[rows]
        self.W, self.A = block.buffers.shortlist(len(rows))  # [c, m], [b, c]
        torch.index_select(block.coarse.W, 0, rows, out=self.W)
        self._filled = 0

    def gradient(self, block: Block) -> Tensor:
        """Gradient e [c] at the candidates after the step that is possible so far. 2 c (b + m) flops."""
        new, minimiser = slice(self._filled, len(block.rows)), block.minimiser()
        at_candidates = self.rows.expand(new.stop - new.start, -1)
        torch.gather(block.A[new], 1, at_candidates, out=self.A[new])  # index_select would use one thread
        self._filled = new.stop
        return updated_gradient(minus_product(self.g, self.W, minimiser.v), self.A[: new.stop], minimiser.t)


def _fill_from_shortlist(system: System, block: Block, sizes: BlockSizes) -> Iterator[Tensor]:
    """Fill a block with the best of the rows whose gains are largest at the beginning."""
    b = len(block.A)
    e = block.gradient_for_choice(None)
    gain = (e * system.gain_factors).mul_(e).masked_fill_(block.coarse.is_coarse, -torch.inf)  # line 1
    best = gain.topk(sizes.shortlist * b)
    shortlist, gain, factors = Shortlist(block, best.indices), best.values, system.gain_factors[best.indices]
    taken = gain == -torch.inf  # coarse rows, where too few others are left
    while True:
        chosen = gain.topk(min(sizes.chunk, b - len(block.rows)))  # line 3
        taken.index_fill_(0, chosen.indices, True)
        block.join(shortlist.rows[chosen.indices])  # lines 4 and 5
        yield chosen.values
        if len(block.rows) == b:  # line 2
            return
        e = shortlist.gradient(block)
        gain = (e * factors).mul_(e).masked_fill_(taken, -torch.inf)  # line 6
