"""A large matrix that changes by rank one again and again: changes wait, and are folded in by one product.

    M + A' W, with the waiting changes a' w as rows of A [k, n] and W [k, m]

A rank-one change reads and writes all of M for two operations an entry; sixteen at a time cost little more than one.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .tall_products import rows_times, times_rows


class Updated:
    """M [n, m] and the changes that wait. Memory n m + most (n + m) numbers."""

    def __init__(self, base: Float[Tensor, "n m"], most: int) -> None:
        n, m = base.shape
        self.base, self.most, self.waiting = base, most, 0
        self.A, self.W = base.new_zeros(most, n), base.new_zeros(most, m)

    def add(self, A: Float[Tensor, "k n"], W: Float[Tensor, "k m"]) -> bool:
        """M <- M + A' W, sometime; True where the changes that waited are folded in now, M read and written."""
        end = self.waiting + len(A)
        self.A[self.waiting : end], self.W[self.waiting : end], self.waiting = A, W, end
        full = end + len(A) > self.most
        if full:
            self.whole()
        return full

    def whole(self) -> Float[Tensor, "n m"]:
        """M with nothing waiting; it changes with what is added later."""
        if self.waiting:
            self.base.addmm_(self.A[: self.waiting].T, self.W[: self.waiting])
            self.waiting = 0
        return self.base

    def rows(self, index: Tensor) -> Float[Tensor, "c m"]:
        """Rows of M."""
        k = self.waiting
        return torch.addmm(self.base[index], self.A[:k, index].T, self.W[:k])

    def times_rows(self, W: Float[Tensor, "c m"]) -> Float[Tensor, "c n"]:
        """W M', one read of M."""
        k = self.waiting
        return times_rows(self.base, W).addmm_(W @ self.W[:k].T, self.A[:k])

    def rows_times(self, R: Float[Tensor, "c n"]) -> Float[Tensor, "c m"]:
        """R M, one read of M."""
        k = self.waiting
        return rows_times(R, self.base).addmm_(R @ self.A[:k].T, self.W[:k])
