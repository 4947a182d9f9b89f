"""The nearest of many rows: by a k-d tree where there are few inputs, and by all distances where there are many.

A k-d tree answers in O(log n) with few inputs. With many it visits nearly all rows, one after another, and takes ten
and more times as long as the distances from all rows by one product of matrices,

    |z - x|^2 = |z|^2 + (|x|^2 - 2 z'x)

of which the brackets suffice to order the rows. Their rounding is that of |z|^2, with the origin at the median of each
input. So some more rows than asked for are ordered by differences, and where even their distances are below rounding,
as in a small cluster far from the others, the tree answers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .blocks import row_blocks

TREE_INPUTS = 20  # inputs up to which a tree is faster, also with rows that fill the space
SPARE = 8  # rows beyond those asked for whose distances are computed again
LEAST_DIGITS = 1e-3  # of a squared distance: it is below rounding where it loses more
BLOCK_BYTES = 64 * 2**20  # of the distances from all rows, and of the differences from the nearest ones
Points = NDArray[np.float64]


class Nearest:
    """Rows of which the nearest ones to others are found.

    Parameters
    ----------
    X : array [n, d]
        The rows, in units in which distances count alike.
    """

    def __init__(self, X: Points) -> None:
        self._rows = X
        self._by_tree = X.shape[1] <= TREE_INPUTS

    def query(self, Z: Points, k: int) -> tuple[Points, NDArray[np.int64]]:
        """Return the distances [b, k] and numbers [b, k] of the k nearest rows to each row of Z, the nearest first.

        Parameters
        ----------
        Z : array [b, d]
            New rows, or rows of X, which are found as well.
        k : int
            At most the number of rows.

        Notes
        -----
        O(log n) per row of Z with a tree, and 2 n d flops without.
        """
        if self._by_tree:
            return self._from_tree(Z, k)
        distances, rows = np.empty((len(Z), k)), np.empty((len(Z), k), dtype=np.int64)
        X = self._centred[0]
        row_bytes = X.element_size() * max(len(X), (k + SPARE) * X.shape[1])
        for block in row_blocks(len(Z), row_bytes, X, BLOCK_BYTES):
            distances[block], rows[block] = self._from_all(Z[block], k)
        return distances, rows

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree

        return cKDTree(self._rows, balanced_tree=False, compact_nodes=False)

    @cached_property
    def _centred(self) -> tuple[Tensor, Tensor, Tensor]:
        """The rows around the origin [n, d], their squared norms [n], and the origin [d]."""
        rows = torch.from_numpy(np.ascontiguousarray(self._rows, dtype=np.float64))
        origin = rows.median(0).values
        rows = rows - origin
        return rows, rows.square().sum(1), origin

    def _from_tree(self, Z: Points, k: int) -> tuple[Points, NDArray[np.int64]]:
        distances, rows = self._tree.query(Z, k=list(range(1, k + 1)))
        return distances, rows

    def _from_all(self, Z: Points, k: int) -> tuple[Points, NDArray[np.int64]]:
        X, squares, origin = self._centred
        z = torch.from_numpy(np.ascontiguousarray(Z, dtype=np.float64)) - origin  # [b, d]
        order = torch.addmm(squares, z, X.T, alpha=-2.0)  # [b, n]
        near = order.topk(min(k + SPARE, len(X)), largest=False).indices  # [b, k + SPARE]
        r2, place = (X[near] - z[:, None]).square().sum(2).sort(1)
        r2, rows = r2[:, :k], near.gather(1, place[:, :k])
        rounding = torch.finfo(z.dtype).eps * z.square().sum(1)  # [b]
        lost = (rounding > LEAST_DIGITS * r2[:, -1]) & (r2[:, -1] > 0.0)
        distances, numbers = r2.sqrt().numpy(), rows.numpy()
        if bool(lost.any()):
            distances[lost], numbers[lost] = self._from_tree(Z[lost.numpy()], k)
        return distances, numbers
