"""All rows of a fold against those it trains on: one tall kernel matrix that serves every product of ADMM.

M = [K_TT; K_VT]  [n, n_T],  the n_T rows trained on first, then the n_V validated on
M z = (K z, K_VT z)             M'u = K u_T + K_VT' u_V             K = K_TT being symmetric

Rows are kept while the workspace's bytes last and computed again, block by block, beyond them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.workspace import Workspace
from ...problem import take


class Cross:
    """M at one theta. n n_T kernel entries once, or at every product where they are not kept."""

    def __init__(self, kernel: Any, theta: Tensor, X: Any, trained: int, room: Workspace) -> None:
        self.kernel, self.theta, self.X, self.trained = kernel, theta, X, trained
        self.X_T = take(X, torch.arange(trained, device=theta.device))
        self.kept = min(int(room.budget // (theta.element_size() * max(trained, 1))), len(X))
        self._M = room.matrix(self, self.kept, trained, theta)
        for rows in row_blocks(self.kept, theta.element_size() * trained):
            self._fill(rows, self._M[rows])

    def forward(self, z: Tensor) -> Tensor:
        """M z [n], for z [n_T]."""
        return torch.cat([self._M @ z, *(K @ z for _, K in self._beyond())])

    def backward(self, u: Tensor) -> Tensor:
        """M'u [n_T], for u [n]."""
        out = u[: self.kept] @ self._M
        for rows, K in self._beyond():
            out += u[rows] @ K
        return out

    def columns(self, rows: Tensor) -> Tensor:
        """K_T,rows [n_T, c], for `rows` of those trained on."""
        if self.kept >= self.trained:
            return self._M[rows].T
        return self.kernel(self.theta, self.X_T, take(self.X_T, rows))

    def gradient(self, u: Tensor, z: Tensor) -> Tensor:
        """Gradient [p] of u'M(theta) z in theta: products with the rows kept where they tell it, else n n_T slopes."""
        kept, n = slice(0, self.kept), len(self.X)
        told = self.kernel.theta_gradient_from_matrix(self.theta, self._rows(kept), self.X_T, (u[kept], z), self._M)
        total, left = (torch.zeros_like(self.theta), slice(0, n)) if told is None else (told, slice(self.kept, n))
        if left.start < n:
            total += self.kernel.theta_gradient_bilinear(self.theta, self._rows(left), self.X_T, (u[left], z))
        return total

    def _beyond(self) -> Iterator[tuple[slice, Tensor]]:
        """The rows that are not kept, a block at a time."""
        for block in row_blocks(len(self.X) - self.kept, self.theta.element_size() * self.trained):
            rows = slice(self.kept + block.start, self.kept + block.stop)
            K = self.theta.new_empty(rows.stop - rows.start, self.trained)
            self._fill(rows, K)
            yield rows, K

    def _fill(self, rows: slice, out: Tensor) -> None:
        self.kernel.fill(self.theta, self._rows(rows), self.X_T, out)

    def _rows(self, rows: slice) -> Any:
        return take(self.X, torch.arange(rows.start, rows.stop, device=self.theta.device))
