"""A large matrix that receives many low-rank updates, which are collected and applied together.

    M + A' W,    with the pending updates a'w as rows of A [k, n] and W [k, m]

A rank-one update reads and writes all of M for two operations per entry. Sixteen updates applied together cost little
more than one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from .tall_products import rows_times, times_rows


class DeferredUpdates:
    """A matrix M [n, m] with pending low-rank updates, which all its products include.

    Parameters
    ----------
    base : Tensor [n, m]
        M; it is changed in place when updates are applied.
    capacity : int
        Number of rank-one updates after which they are applied. Memory: n m + capacity (n + m) numbers.
    """

    def __init__(self, base: Float[Tensor, "n m"], capacity: int) -> None:
        n, m = base.shape
        self.base, self.capacity, self.pending = base, capacity, 0
        self._both = base.new_zeros(2, capacity, max(n, m))  # A and W, which one copy fills if M is square
        self.A, self.W = self._both[0, :, :n], self._both[1, :, :m]

    def add(self, A: Float[Tensor, "k n"], W: Float[Tensor, "k m"]) -> bool:
        """Add A' W to M. True if all pending updates were applied now, for which M is read and written once."""
        end = self.pending + len(A)
        self.A[self.pending : end], self.W[self.pending : end] = A, W
        return self._added(len(A))

    def add_both(self, A_and_W: Float[Tensor, "rows n"]) -> bool:
        """Add A' W to a square M by one copy; A is the first half of the rows given, and W the second half."""
        k = len(A_and_W) // 2
        self._both[:, self.pending : self.pending + k] = A_and_W.view(2, k, -1)
        return self._added(k)

    def _added(self, count: int) -> bool:
        self.pending += count
        full = self.pending + count > self.capacity
        if full:
            self.applied()
        return full

    def applied(self) -> Float[Tensor, "n m"]:
        """Apply all pending updates and return M itself, which later updates change."""
        if self.pending:
            self.base.addmm_(self.A[: self.pending].T, self.W[: self.pending])
            self.pending = 0
        return self.base

    def rows(self, index: Tensor) -> Float[Tensor, "c m"]:
        """Return the rows M[index]."""
        k = self.pending
        return torch.addmm(self.base[index], self.A[:k, index].T, self.W[:k])

    def each_row(self, index: Sequence[int]) -> Float[Tensor, "c m"]:
        """Return the rows of M at a few indices of the host, which need not be copied to the device."""
        if self.base.is_cpu:
            return self.rows(torch.tensor(index))
        out, k = self.base.new_empty(len(index), self.base.shape[1]), self.pending
        for row, place in zip(out, index, strict=True):
            torch.addmv(self.base[place], self.W[:k].T, self.A[:k, place], out=row)
        return out

    def times_rows(self, W: Float[Tensor, "c m"]) -> Float[Tensor, "c n"]:
        """Return W M', with one read of M."""
        k = self.pending
        return times_rows(self.base, W).addmm_(W @ self.W[:k].T, self.A[:k])

    def rows_times(self, R: Float[Tensor, "c n"]) -> Float[Tensor, "c m"]:
        """Return R M, with one read of M."""
        k = self.pending
        return rows_times(R, self.base).addmm_(R @ self.A[:k].T, self.W[:k])
