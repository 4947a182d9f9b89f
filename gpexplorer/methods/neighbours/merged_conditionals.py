"""Conditionals whose rows overlap are computed together: each row then also depends on the earlier rows of its block.

    p(y_i | y_N(i))  becomes  p(y_i | y_j for all j < i in U),   U the union of (N(i), i) over the rows i of its block

One Cholesky factor of the rows of U, in their order, has all conditionals of its block. None knows less than before, so
that the divergence from the exact density falls, and a pair of rows in several conditionals is computed once. Two
blocks are merged where the sum of |U|^2, the entries of the covariances, does not grow:

    |U_a or U_b|^2 <= |U_a|^2 + |U_b|^2                                                            Guinness (2018)

The paper goes through all rows and neighbours in a loop. Here, blocks are merged in rounds: in each, every block finds,
among those that have a neighbour of one of its rows, the one with which it saves most, and two that find each other
become one. Overlaps are counted by sparse products, for some pairs of blocks at a time.

Reference: Guinness (2018), Permutation and grouping methods for sharpening Gaussian process approximations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

POWER = 2.0  # of the sizes of blocks, whose sum does not grow
STRIP = 20_000  # pairs of blocks whose overlaps are counted at a time
STEP = 4  # a block has as many rows as the smallest and a multiple of this, so that few sizes exist
Rows = NDArray[np.int64]


class Batch(NamedTuple):
    """Blocks of the same size, computed side by side; the blocks with the fewest conditionals come first."""

    rows: Tensor  # int64 [c, g] places in the order; the first may be padding
    padding: Tensor | None  # bool [c, STEP - 1] which of the first rows are; None if none is
    places: Tensor  # int64 [c, r] which of the g rows have their conditionals here, ascending; then -1
    counts: Rows  # [c] how many have


def single_conditionals(positions: Tensor, neighbours: Tensor) -> list[Batch]:
    """Each conditional of rows [b] given neighbours [b, k] as a block of its own."""
    last = torch.full_like(positions[:, None], neighbours.shape[1])
    return [Batch(torch.cat([neighbours, positions[:, None]], 1), None, last, np.ones(len(last), np.int64))]


def merged_conditionals(positions: Tensor, neighbours: Tensor, n: int) -> list[Batch]:
    """Blocks of conditionals that share rows.

    Parameters
    ----------
    positions : Tensor [b]
        Places of the rows in the order, ascending.
    neighbours : Tensor [b, k]
        Places of the rows that each depends on, all of them earlier.
    n : int
        Number of all rows.

    Returns
    -------
    list of Batch
        The conditional of every position is in one block.
    """
    from scipy.sparse import csr_matrix

    b, k = neighbours.shape
    order, near = positions.cpu().numpy(), neighbours.cpu().numpy()
    rows = np.concatenate([near, order[:, None]], 1)
    unions = csr_matrix((np.ones(rows.size, np.int32), rows.ravel(), np.arange(0, rows.size + 1, k + 1)), (b, n))
    of_row = np.full(n, -1)
    of_row[order] = block = np.arange(b)  # of each conditional
    pairs = _different(np.repeat(block, k), of_row[near].ravel(), b)
    while len(pairs[0]):
        number, count = _renumbered(unions, *pairs)
        if count == unions.shape[0]:
            break
        block, pairs = number[block], _different(number[pairs[0]], number[pairs[1]], count)
        join = csr_matrix((np.ones(len(number), np.int32), (number, np.arange(len(number)))), (count, len(number)))
        unions = join @ unions
        unions.data[:] = 1
    unions.sort_indices()
    return list(_batches(unions, block, order, k + 1, positions.device))


def _different(a: Rows, b: Rows, count: int) -> tuple[Rows, Rows]:
    """Pairs of different blocks, each once; a number below 0 is of no block."""
    high, low = np.maximum(a, b), np.minimum(a, b)
    return np.divmod(np.unique((high * count + low)[(low >= 0) & (low < high)]), count)


def _renumbered(unions: Any, a: Rows, b: Rows) -> tuple[Rows, int]:
    """What number each block has after one round of merging these pairs, and how many blocks there are then."""
    size, count = np.diff(unions.indptr).astype(float), unions.shape[0]
    strips = [slice(begin, begin + STRIP) for begin in range(0, len(a), STRIP)]
    shared = np.concatenate([np.asarray(unions[a[at]].multiply(unions[b[at]]).sum(1))[:, 0] for at in strips])
    saved = size[a] ** POWER + size[b] ** POWER - (size[a] + size[b] - shared) ** POWER
    a, b, saved = a[saved >= 0.0], b[saved >= 0.0], saved[saved >= 0.0]
    code = np.random.default_rng(0).integers(2**31, size=count)
    saved += (code[a] ^ code[b]) / 2.0**32  # many are equal
    most = np.full(count, -1.0)
    for side in (a, b):
        np.maximum.at(most, side, saved)
    is_merged = (saved == most[a]) & (saved == most[b])
    first = np.arange(count)
    first[a[is_merged]] = b[is_merged]
    kept, number = np.unique(first, return_inverse=True)
    return number, len(kept)


def _batches(unions: Any, block: Rows, positions: Rows, smallest: int, device: torch.device) -> Iterator[Batch]:
    n, count = unions.shape[1], unions.shape[0]
    size, begin = np.diff(unions.indptr), unions.indptr[:-1]
    padded = smallest + -(-(size - smallest) // STEP) * STEP
    number = np.repeat(np.arange(count), size) * n + unions.indices  # ascending
    place = np.searchsorted(number, block * n + positions) - begin[block] + (padded - size)[block]
    by_block, counts = np.argsort(block, kind="stable"), np.bincount(block, minlength=count)
    first = np.cumsum(counts) - counts
    for g in np.unique(padded):
        chosen = np.flatnonzero(padded == g)
        chosen = chosen[np.argsort(counts[chosen], kind="stable")]
        padding = g - size[chosen, None]
        rows = unions.indices[begin[chosen, None] + np.maximum(np.arange(g) - padding, 0)]
        is_padding = torch.from_numpy(np.arange(STEP - 1) < padding).to(device) if padding.any() else None
        nth = np.arange(counts[chosen[-1]])
        is_here = nth < counts[chosen, None]
        places = np.where(is_here, place[by_block[np.where(is_here, first[chosen, None] + nth, 0)]], -1)
        at_rows, at_places = (torch.from_numpy(each.astype(np.int64)).to(device) for each in (rows, places))
        yield Batch(at_rows, is_padding, at_places, counts[chosen])
