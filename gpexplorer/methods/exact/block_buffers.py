"""Buffers that one block after another overwrites.

The operating system hands out large arrays as pages of zeros, at the first write to each page. To copy 4000 rows of
2500 numbers takes 13 ms into a new array and 2.5 ms into an old one, and a block of GBCD has three such arrays.
"""

from __future__ import annotations

from torch import Tensor


class BlockBuffers:
    """The buffers of a block and of its shortlist.

    Parameters
    ----------
    W : Tensor [n, m]
        The columns of the coarse rows, whose number, precision and device the buffers take.
    block : int
        Largest number of rows b of a block.

    Attributes
    ----------
    A : Tensor [b, n]
        Columns of the rows of a block.
    W : Tensor [b, m]
        The rows of W that belong to it.
    L : Tensor [b, b]
        Its Cholesky factor. What lies above the diagonal has no meaning.
    """

    def __init__(self, W: Tensor, block: int) -> None:
        n, m = W.shape
        self.A, self.W, self.L = W.new_empty(block, n), W.new_empty(block, m), W.new_empty(block, block)
        self._shortlist = (W.new_empty(0, m), W.new_empty(block, 0))

    def shortlist(self, candidates: int) -> tuple[Tensor, Tensor]:
        """Return buffers for the rows of W [c, m] and the columns of a block [b, c] that belong to c candidates."""
        W, A = self._shortlist
        if len(W) != candidates:
            W, A = self._shortlist = W.new_empty(candidates, W.shape[1]), A.new_empty(len(A), candidates)
        return W, A
