"""The folds of cross-validation: which rows each one holds out, and the kernel matrix that serves its products.

    M = [K_TT; K_VT]  [n, n_T]        the n_T training rows T of the fold first, then its n_V validation rows V
    M z  = (K_TT z, K_VT z)           M'u = K_TT u_T + K_VT' u_V,  since K_TT is symmetric

Rows of M are stored while the memory budget allows it. The others are computed again, block by block, in every product.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.randomness import generator
from ...linalg.workspace import Workspace
from ...problem import Problem, take
from .settings import GIGABYTE


class Fold(NamedTuple):
    """The rows of one fold, its training rows first. It is small enough to be sent to a worker.

    Attributes
    ----------
    kernel : kernel of the problem
    X : inputs [n, d]
    y : targets [n]
    trained : int
        n_T, the number of training rows.
    room : Workspace
        The memory for the stored rows of M. All folds share it.
    """

    kernel: Any
    X: Any  # [n, d]
    y: Tensor  # [n]
    trained: int  # n_T
    room: Workspace

    def kernel_matrix(self, theta: Tensor) -> FoldKernel:
        """Compute the kernel matrix of all rows of the fold against its training rows, M(theta)."""
        return FoldKernel(self.kernel, theta, self.X, self.trained, self.room)


def equal_parts(n: int, count: int) -> list[slice]:
    """Divide n rows into `count` consecutive parts of nearly equal size, or into n parts where n < count."""
    count = min(count, n)
    edges = [round(k * n / count) for k in range(count + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges)]


def split(problem: Problem, validation: list[slice], seed: int, gigabytes: float) -> list[Fold]:
    """Make one fold per slice of the shuffled rows: it validates on that slice and trains on all other rows.

    Parameters
    ----------
    problem : Problem
    validation : list of slice
        The validation rows of each fold, as positions in the shuffled order.
    seed : int
        It alone decides the order of the rows.
    gigabytes : float
        Memory for the stored rows of one kernel matrix.
    """
    room = Workspace(gigabytes * GIGABYTE)
    train = problem.train
    order = torch.randperm(len(train), generator=generator(seed, "folds")).to(train.y.device)
    folds = []
    for part in validation:
        training = torch.cat([order[: part.start], order[part.stop :]])
        rows = train.rows(torch.cat([training, order[part]]))
        folds.append(Fold(problem.kernel, rows.X, rows.y, len(training), room))
    return folds


class FoldKernel:
    """The matrix M of one fold at one theta.

    Notes
    -----
    It computes n n_T kernel entries once. Rows beyond the memory budget are computed again in every product.
    """

    def __init__(self, kernel: Any, theta: Tensor, X: Any, trained: int, room: Workspace) -> None:
        self.kernel, self.theta, self.X, self.trained = kernel, theta, X, trained
        self.X_T = take(X, torch.arange(trained, device=theta.device))
        self.stored = min(int(room.budget // (theta.element_size() * max(trained, 1))), len(X))
        self._M = room.matrix(self, self.stored, trained, theta)  # [stored, n_T]
        for rows in row_blocks(self.stored, theta.element_size() * trained):
            self._fill(rows, self._M[rows])

    def times(self, z: Tensor) -> Tensor:
        """Return M z [n] for z [n_T]."""
        return torch.cat([self._M @ z, *(K @ z for _, K in self._recomputed_blocks())])

    def transposed_times(self, u: Tensor) -> Tensor:
        """Return M'u [n_T] for u [n]."""
        out = u[: self.stored] @ self._M
        for rows, K in self._recomputed_blocks():
            out += u[rows] @ K
        return out

    def columns(self, rows: Tensor) -> Tensor:
        """Return the columns K_T,rows [n_T, c] of the training rows `rows` [c]."""
        if self.stored >= self.trained:
            return self._M[rows].T
        return self.kernel(self.theta, self.X_T, take(self.X_T, rows))

    def gradient(self, u: Tensor, z: Tensor) -> Tensor:
        """Return the gradient [p] of u'M(theta) z in theta.

        Where the kernel can derive its gradient from its own values, the stored rows need no new kernel entry. For
        all other rows the derivatives of n_T entries per row are computed.
        """
        stored, n = slice(0, self.stored), len(self.X)
        gradient = self.kernel.theta_gradient_from_matrix(
            self.theta, self._rows(stored), self.X_T, (u[stored], z), self._M
        )
        remaining = slice(self.stored, n)
        if gradient is None:
            gradient, remaining = torch.zeros_like(self.theta), slice(0, n)
        if remaining.start < n:
            gradient += self.kernel.theta_gradient_bilinear(
                self.theta, self._rows(remaining), self.X_T, (u[remaining], z)
            )
        return gradient

    def _recomputed_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows that are not stored, one block at a time."""
        for block in row_blocks(len(self.X) - self.stored, self.theta.element_size() * self.trained):
            rows = slice(self.stored + block.start, self.stored + block.stop)
            K = self.theta.new_empty(rows.stop - rows.start, self.trained)
            self._fill(rows, K)
            yield rows, K

    def _fill(self, rows: slice, out: Tensor) -> None:
        self.kernel.fill(self.theta, self._rows(rows), self.X_T, out)

    def _rows(self, rows: slice) -> Any:
        return take(self.X, torch.arange(rows.start, rows.stop, device=self.theta.device))
