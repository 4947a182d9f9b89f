"""The linear system of exact GP regression, and the quadratic that solving it minimises.

A = K + s2 I,   f(a) = a'A a / 2 - y'a,   g = A a - y,   so that f = (a'g - y'a) / 2        Bo and Sminchisescu, eq 3

With mixed precision the columns that move a gradient are float32, and every gradient from scratch is not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...linalg.cholesky import cholesky
from ...linalg.kernel_columns import KernelColumns, Map
from ...objectives import noise_variance
from ...problem import Problem


class System:
    """A and y of one problem at one theta. Kernel columns are kept within `budget` bytes; `apply` maps products."""

    def __init__(self, problem: Problem, theta: Tensor, budget: float, mixed: bool = False, apply: Map = map) -> None:
        self.y, self.s2 = problem.train.y, noise_variance(theta)
        kernel, X = problem.kernel, problem.train.X
        self.columns = KernelColumns(kernel, theta, X, budget, torch.float32 if mixed else None)
        self.exact = self.columns
        if self.columns.theta.dtype != theta.dtype:
            self.exact = KernelColumns(kernel, theta, X, 0.0)
        self.columns.apply = self.exact.apply = apply
        self.diag = kernel.diag(theta, X) + self.s2  # [n]
        self.made: dict[str, Any] = {}  # what a solver made once, for when it starts again from elsewhere
        self._known: tuple[Tensor, Tensor] | None = None
        self._space = self.columns.theta.new_empty(0, self.n)

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def mixed(self) -> bool:
        """Whether columns are of a lower precision than the data."""
        return self.exact is not self.columns

    def product(self, V: Tensor) -> Tensor:
        """A V for V [n] or [n, k], in the precision of the columns: n^2 / 2 kernel entries where none are kept."""
        return self.columns.product(V).add_(V, alpha=self.s2)

    def rows(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """A[index] [c, n], in the precision of the columns; into `out` where it is given."""
        K = self.columns(index, out)
        K[torch.arange(len(index), device=index.device), index] += self.s2
        return K

    def lent(self, index: Tensor) -> Tensor:
        """A[index] [c, n] in a workspace that the next call writes over: no page of it is new twice."""
        if len(self._space) < len(index):
            self._space = self._space.new_empty(len(index), self.n)
        return self.rows(index, self._space[: len(index)])

    def gradient(self, alpha: Tensor) -> Tensor:
        """g [n] from scratch, for alpha [n, k] that of each column; once what `carry` gave, where alpha is that one."""
        known, self._known = self._known, None
        if known is not None and torch.equal(known[0], alpha):
            return known[1]
        y = self.y if alpha.ndim == 1 else self.y[:, None]
        if not bool(alpha.any()):
            return (-y).expand_as(alpha).clone()
        return self.exact.product(alpha).add_(alpha, alpha=self.s2).sub_(y)

    def carry(self, alpha: Tensor, g: Tensor) -> None:
        """The gradient that the next call answers with if it asks for this alpha."""
        self._known = (alpha.clone(), g.clone())

    def value(self, alpha: Tensor, g: Tensor) -> float:
        """f, from alpha and its gradient: no product."""
        return 0.5 * float(alpha @ (g - self.y))


class Move(NamedTuple):
    """One iteration of a solver."""

    alpha: Tensor  # [n]
    gradient: Tensor  # [n] A alpha - y, carried along
    memory: tuple[Tensor, ...] = ()  # what the solver needs beside alpha to go on
    active: Tensor | None = None  # int64 rows that this iteration moved; None is all
    gains: Tensor | None = None  # by how much each of them alone would have lowered f when it was chosen


def moved(g: Tensor, A_B: Tensor, step: Tensor) -> Tensor:
    """g + A_B' step [n], the product in the precision of A_B [b, n]."""
    if A_B.dtype == g.dtype:
        return torch.addmv(g, A_B.T, step)
    return g + (A_B.T @ step.to(A_B.dtype)).to(g.dtype)


def solved(system: System, rows: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The exact step [b] for a block, and the gradient [n] after it: n b kernel entries, b^3 / 3 flops."""
    A_B = system.lent(rows)  # [b, n]
    L = cholesky(A_B.index_select(1, rows).to(g.dtype), "A_BB [block]").L
    step = torch.cholesky_solve(-g[rows][:, None], L)[:, 0]
    return step, moved(g, A_B, step)
