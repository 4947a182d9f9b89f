"""A block as it grows: its columns, the factor of its matrix by borders, its exact step, and the gradient after it.

min over t, t_C of f(a + e_B t + e_C t_C)              C the coarse rows, always solved for along with the block
W = A_:C L_C^-T once, for all rows;   M = A_BB - W_B W_B',  h = L_C^-1 g_C
M t = -(g_B - W_B h),   v = h + W_B't,   t_C = -L_C^-T v,   e = g + A_:B t - W v

W takes the place of A_C: a block reads its share of it instead of solving for it. A block is in the precision of its
columns, factor and all: its step may be off by their rounding, the gradient after it is that of the very step.
Few columns of many are picked by index_select, which takes a third of the time that brackets do.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.cholesky import cholesky
from ...linalg.kernel_columns import rows_of
from ...linalg.preconditioners import drawn_root
from ...linalg.tall_products import times_vector
from ...problem import take
from .system import System, moved

BORDER = "A_BB [border of the block]"


class Coarse:
    """Rows solved for with every block: m n numbers; m^3 / 3 + n m^2 flops and n m kernel entries once.

    Drawn by the variance that those before them leave: they explain more than as many drawn alike.
    """

    def __init__(self, system: System, most: int, seed: int) -> None:
        def rows_of_K(rows: Tensor) -> Tensor:
            return rows_of(columns.kernel, columns.theta, take(columns.X, rows), columns.X)

        columns, exact = system.columns, system.exact
        self.W = columns.theta.new_empty(system.n, most)
        self.rows = drawn_root(rows_of_K, system.diag - system.s2, self.W, seed, system.s2)
        X = take(exact.X, self.rows)
        A_CC = exact.kernel(exact.theta, X, X) if most else system.diag.new_empty(0, 0)
        A_CC.diagonal().add_(system.s2)
        self.L = cholesky(A_CC, "A_CC [coarse rows]").L
        self.W[self.rows] = self.L.to(self.W.dtype)  # where A is K + s2 I


class Reach(NamedTuple):
    """How far the rows of a block, and the coarse rows in their coordinates, are moved."""

    v: Tensor  # [m]
    t: Tensor  # [b]


class Block:
    """At most `most` rows. n kernel entries and 2 n b flops a row that joins; `space` [most, n] is its workspace."""

    def __init__(self, system: System, g: Tensor, coarse: Coarse, space: Tensor) -> None:
        self.system, self.g, self.coarse, self.A, most = system, g, coarse, space, len(space)
        self.rows = torch.zeros(0, dtype=torch.int64, device=g.device)
        self.W, self.L = space.new_empty(most, len(coarse.rows)), space.new_zeros(most, most)
        self.h = torch.linalg.solve_triangular(coarse.L, g[coarse.rows][:, None], upper=False)[:, 0]
        self.u = space.new_empty(most)  # L^-1 of the right-hand side

    def join(self, new: Tensor) -> None:
        """Rows [c] join: their columns, and a border of the factor."""
        q, to, dtype = len(self.rows), len(self.rows) + len(new), self.A.dtype
        A, W, W_new = self.system.rows(new, self.A[q:to]), self.W[:q], self.coarse.W[new]
        self.W[q:to] = W_new

        side = torch.addmm(A.index_select(1, self.rows), W_new, W.T, alpha=-1.0)  # [c, q]
        border = torch.linalg.solve_triangular(self.L[:q, :q], side.T, upper=False).T
        inner = torch.addmm(A.index_select(1, new), W_new, W_new.T, alpha=-1.0).addmm_(border, border.T, alpha=-1.0)
        name = "A_BB [border of the block, of float32 columns: set mixed=False]" if self.system.mixed else BORDER
        L = cholesky(inner, name, largest=1e-2).L
        self.L[q:to, :q], self.L[q:to, q:to] = border, L
        right = W_new @ self.h.to(dtype) - self.g[new].to(dtype) - border @ self.u[:q]
        self.u[q:to] = torch.linalg.solve_triangular(L, right[:, None], upper=False)[:, 0]
        self.rows = torch.cat([self.rows, new])

    @property
    def settled(self) -> bool:
        """Whether the coarse rows alone would move no entry of g by a hundredth of the largest: |W_i| <= A_ii^1/2."""
        return float(self.h.norm() * self.system.diag.max().sqrt()) <= 0.01 * float(self.g.abs().max())

    def reach(self) -> Reach:
        """The exact minimiser over these rows and the coarse ones."""
        q = len(self.rows)
        t = torch.linalg.solve_triangular(self.L[:q, :q].T, self.u[:q, None], upper=True)[:, 0]
        return Reach(moved(self.h, self.W[:q], t), t)

    def step(self, reach: Reach) -> Tensor:
        """What it adds to alpha [m + b], at the coarse rows and then at these. m^2 flops."""
        back = torch.linalg.solve_triangular(self.coarse.L.T, reach.v[:, None], upper=True)[:, 0]
        return torch.cat([back.neg_(), reach.t.to(back.dtype)])

    def gradient(self, reach: Reach, at: Tensor | None = None) -> Tensor:
        """e after this step, for all rows [n], or for those at which it is asked: (b + m) flops times 2 a row."""
        g, A, W = self.g, self.A[: len(self.rows)], self.coarse.W
        if at is not None:
            g, A, W = g[at], A.index_select(1, at), W[at]
        if bool(reach.v.any()):
            g = g - times_vector(W, reach.v.to(W.dtype)).to(g.dtype)
        return moved(g, A, reach.t) if bool(reach.t.any()) else g
