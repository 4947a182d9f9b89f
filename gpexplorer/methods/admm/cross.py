"""All rows of a fold against those it trains on: one tall kernel matrix that serves every product of ADMM.

M = [K_TT; K_VT]  [n, n_T],  the n_T rows trained on first, then the n_V validated on
M z = (K z, K_VT z)             M'u = K u_T + K_VT' u_V             K = K_TT being symmetric

Rows are kept while `budget` bytes last and computed again, block by block, beyond them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...problem import take


class Cross:
    """M at one theta. n n_T kernel entries once, or at every product where they are not kept."""

    def __init__(self, kernel: Any, theta: Tensor, X: Any, trained: int, budget: float) -> None:
        self.kernel, self.theta, self.X, self.trained = kernel, theta, X, trained
        self.X_T = take(X, torch.arange(trained, device=theta.device))
        self.kept = min(int(budget // (theta.element_size() * max(trained, 1))), len(X))
        self._M = theta.new_empty(self.kept, trained)
        for rows in row_blocks(self.kept, theta.element_size() * trained):
            self._M[rows] = self._fresh(rows)

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

    def _beyond(self) -> Iterator[tuple[slice, Tensor]]:
        """The rows that are not kept, a block at a time."""
        for block in row_blocks(len(self.X) - self.kept, self.theta.element_size() * self.trained):
            rows = slice(self.kept + block.start, self.kept + block.stop)
            yield rows, self._fresh(rows)

    def _fresh(self, rows: slice) -> Tensor:
        index = torch.arange(rows.start, rows.stop, device=self.theta.device)
        return self.kernel(self.theta, take(self.X, index), self.X_T)


def outer_gradient(kernel: Any, theta: Tensor, X: Any, trained: int, left_right: tuple[Tensor, Tensor]) -> Tensor:
    """Gradient [p] of u'M(theta) z in theta, u [n] and z [n_T]: n n_T entries and O(n n_T) flops, no matrix held."""
    (u, z), total = left_right, torch.zeros_like(theta)
    X_T = take(X, torch.arange(trained, device=theta.device))
    for rows in row_blocks(len(X), 4 * theta.element_size() * trained):
        index = torch.arange(rows.start, rows.stop, device=theta.device)
        total += kernel.contract(theta, take(X, index), X_T, torch.outer(u[rows], z))
    return total
