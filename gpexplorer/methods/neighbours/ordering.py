"""The order of rows in a Vecchia approximation, and the nearest of the rows that come before each.

    maximin: row i+1 is the row whose distance to the nearest of the first i rows is largest         Guinness (2018)

A prefix of the order covers all rows evenly, so the first rows fix the large features and later ones fill in. Up to
EXACT rows the order is computed as defined, with O(n^2) distances. Beyond, rows are taken in rounds: each halves the
width of the cells of a grid, and takes the row that is nearest to its centre from every cell without an earlier row.
Within a round the order is random. That is O(n log n), and a prefix is spaced nearly as widely.

Reference: Guinness (2018), Permutation and grouping methods for sharpening Gaussian process approximations.

Apart because it is geometry: it knows rows and distances, and no kernel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EXACT = 3000  # rows: beyond, an order by grids
MOST_CELLS = 2**20  # per input, after which what is left joins in random order
ROUND = 1.5  # the tree of the rows before a row contains at most so many times as many rows
Rows = NDArray[np.int64]
Points = NDArray[np.float64]


def maximin_order(X: Points, seed: int) -> Rows:
    """An order [n] of rows X [n, d], all of whose prefixes are spread evenly.

    Parameters
    ----------
    X : array [n, d]
        Inputs, in units in which distances count alike.
    seed : int
        Of the first row and of ties.
    """
    random = np.random.default_rng(seed)
    return _exact_order(X, random) if len(X) <= EXACT else _order_by_grids(X, random)


def _exact_order(X: Points, random: np.random.Generator) -> Rows:
    n = len(X)
    order = np.empty(n, dtype=np.int64)
    order[0] = random.integers(n)
    distance = np.full(n, np.inf)
    for i in range(1, n):
        np.minimum(distance, np.square(X - X[order[i - 1]]).sum(1), out=distance)
        distance[order[i - 1]] = -1.0
        order[i] = distance.argmax()
    return order


def _order_by_grids(X: Points, random: np.random.Generator) -> Rows:
    low = X.min(0)
    unit = (X - low) / (float((X.max(0) - low).max()) or 1.0)  # [n, d] in [0, 1]
    multipliers = random.integers(1, 2**62, X.shape[1]) | 1  # of a hash that numbers the cells
    left, order, cells = random.permutation(len(X)), [], 1
    before = left[:0]
    while len(left) and cells < MOST_CELLS:
        cells *= 2
        scaled = unit[left] * cells
        cell = np.floor(scaled)
        number = cell.astype(np.int64) @ multipliers
        by_cell = np.lexsort((np.square(scaled - cell - 0.5).sum(1), number))  # from the centre of each cell outwards
        first = by_cell[np.flatnonzero(np.diff(number[by_cell], prepend=~number[by_cell[:1]]))]
        occupied = np.floor(unit[before] * cells).astype(np.int64) @ multipliers
        is_free = np.ones(len(first), dtype=bool)
        place = np.minimum(np.searchsorted(number[first], occupied), len(first) - 1)  # these numbers ascend
        is_free[place[number[first][place] == occupied]] = False
        chosen = random.permutation(first[is_free])
        order.append(left[chosen])
        before = np.concatenate([before, order[-1]])
        left = np.delete(left, chosen)
    return np.concatenate([*order, left])


def earlier_neighbours(X: Points, positions: Rows, k: int) -> Rows:
    """The k nearest of the rows before each of some rows, the nearest first.

    Parameters
    ----------
    X : array [n, d]
        All rows in their order.
    positions : array [b]
        Rows whose neighbours are asked for, in ascending order, each at least k.
    k : int
        Number of neighbours.

    Returns
    -------
    array [b, k]

    Notes
    -----
    Exact. Rows are asked in blocks, each of a tree that contains at most ROUND times as many rows as come before it.
    Where fewer than k of the nearest rows come before, twice as many are asked for.
    """
    from scipy.spatial import cKDTree

    neighbours = np.empty((len(positions), k), dtype=np.int64)
    begin = 0
    while begin < len(positions):
        size = min(len(X), max(int(ROUND * positions[begin]), 8 * k))
        end = int(np.searchsorted(positions, size))
        tree = cKDTree(X[:size], balanced_tree=False, compact_nodes=False)
        left, asked = np.arange(begin, end), min(2 * k + 2, size)
        while len(left):
            nearest = tree.query(X[positions[left]], k=asked)[1].reshape(len(left), asked)
            is_earlier = nearest < positions[left][:, None]
            is_earlier &= np.cumsum(is_earlier, 1) <= k
            enough = is_earlier.sum(1) == k
            neighbours[left[enough]] = nearest[enough][is_earlier[enough]].reshape(-1, k)
            left, asked = left[~enough], min(2 * asked, size)
        begin = end
    return neighbours
