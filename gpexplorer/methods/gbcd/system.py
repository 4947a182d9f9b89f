"""The linear system of exact GP regression, and the quadratic that solving it minimises.

A = K + s2 I,   f(a) = a'A a / 2 - y'a,   g = A a - y,   so that f = (a'g - y'a) / 2        Bo and Sminchisescu, eq 3
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.cholesky import cholesky
from ...linalg.kernel_columns import KernelColumns
from ...objectives import noise_variance
from ...problem import Problem


class System:
    """A and y of one problem at one theta. Kernel columns are kept within `budget` bytes."""

    def __init__(self, problem: Problem, theta: Tensor, budget: float) -> None:
        self.y, self.s2 = problem.train.y, noise_variance(theta)
        self.columns = KernelColumns(problem.kernel, theta, problem.train.X, budget)
        self.diag = problem.kernel.diag(theta, problem.train.X) + self.s2  # [n]

    @property
    def n(self) -> int:
        return len(self.y)

    def product(self, V: Tensor) -> Tensor:
        """A V for V [n] or [n, k]: n^2 kernel entries where they are not kept."""
        return self.columns.product(V).add_(V, alpha=self.s2)

    def rows(self, index: Tensor) -> Tensor:
        """A[index] [c, n]."""
        K = self.columns(index)
        K[torch.arange(len(index), device=index.device), index] += self.s2
        return K

    def gradient(self, alpha: Tensor) -> Tensor:
        """g [n], from scratch; for alpha [n, k], that of each column."""
        return self.product(alpha).sub_(self.y if alpha.ndim == 1 else self.y[:, None])

    def value(self, alpha: Tensor, g: Tensor) -> float:
        """f, from alpha and its gradient: no product."""
        return 0.5 * float(alpha @ (g - self.y))


class Move(NamedTuple):
    """One iteration of a solver."""

    alpha: Tensor  # [n]
    gradient: Tensor  # [n] A alpha - y, carried along
    memory: tuple[Tensor, ...] = ()  # what the solver needs beside alpha to go on
    active: Tensor | None = None  # int64 rows that this iteration moved; None is all


def solved(system: System, rows: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The exact step [b] for a block, and the gradient [n] after it: n b kernel entries, b^3 / 3 flops."""
    A_B = system.rows(rows)  # [b, n]
    L = cholesky(A_B[:, rows], "A_BB [block]").L
    step = torch.cholesky_solve(-g[rows][:, None], L)[:, 0]
    return step, torch.addmv(g, A_B.T, step)
