"""A block as it grows: its columns, the factor of its matrix by borders, its exact step, and the gradient after it.

min over t, t_C of f(a + e_B t + e_C t_C)              C the coarse rows, always solved for along with the block
W = L_C^-1 A_CB,  M = A_BB - W'W,  h = L_C^-1 g_C
M t = -(g_B - W'h),   t_C = -L_C^-T (h + W t),   e = g + A_:B t + A_:C t_C
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...linalg.cholesky import cholesky
from .system import System, moved


class Coarse:
    """Rows solved for with every block: m n numbers, and m^3 / 3 flops once."""

    def __init__(self, system: System, rows: Tensor) -> None:
        self.rows, self.A = rows, system.rows(rows)  # [m], [m, n]
        self.L = cholesky(self.A[:, rows].to(system.y.dtype), "A_CC [coarse rows]").L


class Block:
    """At most `most` rows. n kernel entries and 2 n b flops a row that joins; `space` [most, n] is its workspace."""

    def __init__(self, system: System, g: Tensor, coarse: Coarse, space: Tensor) -> None:
        self.system, self.g, self.coarse, self.A, most = system, g, coarse, space, len(space)
        self.rows = torch.zeros(0, dtype=torch.int64, device=g.device)
        self.W, self.L = g.new_empty(len(coarse.rows), most), g.new_zeros(most, most)
        self.h = torch.linalg.solve_triangular(coarse.L, g[coarse.rows][:, None], upper=False)[:, 0]
        self.u = g.new_empty(most)  # L^-1 of the right-hand side

    def join(self, new: Tensor) -> None:
        """Rows [c] join: their columns, and a border of the factor."""
        q, to = len(self.rows), len(self.rows) + len(new)
        A = self.system.rows(new)  # [c, n]
        self.A[q:to], W = A, self.W[:, :q]
        W_new = torch.linalg.solve_triangular(self.coarse.L, A[:, self.coarse.rows].T.to(W.dtype), upper=False)
        self.W[:, q:to] = W_new

        side = A[:, self.rows].to(W.dtype) - W_new.T @ W  # [c, q]
        border = torch.linalg.solve_triangular(self.L[:q, :q], side.T, upper=False).T
        inner = A[:, new].to(W.dtype) - W_new.T @ W_new - border @ border.T
        L = cholesky(inner, "A_BB [border of the block]", largest=1e-2).L
        self.L[q:to, :q], self.L[q:to, q:to] = border, L
        right = W_new.T @ self.h - self.g[new] - border @ self.u[:q]
        self.u[q:to] = torch.linalg.solve_triangular(L, right[:, None], upper=False)[:, 0]
        self.rows = torch.cat([self.rows, new])

    def step(self) -> tuple[Tensor, Tensor]:
        """t_C [m] of the coarse rows and t [b] of these."""
        q = len(self.rows)
        t = torch.linalg.solve_triangular(self.L[:q, :q].T, self.u[:q, None], upper=True)[:, 0]
        half = self.h + self.W[:, :q] @ t
        return -torch.linalg.solve_triangular(self.coarse.L.T, half[:, None], upper=True)[:, 0], t

    def gradient(self, step: tuple[Tensor, Tensor], at: Tensor | None = None) -> Tensor:
        """e after this step, for all rows [n], or for those at which it is asked: (b + m) flops times 2 a row."""
        g, A, A_C = self.g, self.A[: len(self.rows)], self.coarse.A
        if at is not None:
            g, A, A_C = g[at], A[:, at], A_C[:, at]
        for columns, moves in ((A_C, step[0]), (A, step[1])):
            g = moved(g, columns, moves) if len(moves) else g
        return g
