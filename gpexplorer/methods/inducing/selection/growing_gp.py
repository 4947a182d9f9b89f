"""A sparse GP that gains one inducing point at a time, its objective exact at every size.

Rows I of the data are the inducing points, Khat = L L' [n, n], D = diag(K - Khat), A = L'L + s2 I = R R'.

    adding j      u = (k_j - L l_j) / sqrt(D_j),   L <- [L, u]                     Cao et al. 2013, eq 13
                  half = R^-1 L'u,   s = u'u + s2 - |half|^2,   e = y'u - half'h,  h = R^-1 L'y
    falls         dE_D = e^2 / (s2 s),  dE_C = log s2 - log s,  dE_V = u'u / s2    eqs 14-16

Greedy rivals grow one of these and differ only in the row they ask for next.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ....linalg.blocks import row_blocks
from ....objectives import Terms, noise_variance
from ....problem import Dataset, Kernel
from ..distinct_rows import rounding
from ..swapping.swap_effects import reductions


class Effect(NamedTuple):
    """What adding each of c rows, alone, would do. u = column / root."""

    falls: Tensor  # [c] of the objective, -inf where a row is explained
    columns: Tensor  # [c, n] residual columns
    root: Tensor  # [c] sqrt(D)
    half: Tensor  # [k, c]
    uu: Tensor  # [c]
    s: Tensor  # [c]
    e: Tensor  # [c]


class Growing:
    """L, R and h for the rows added so far. Memory n m numbers; adding a row reads L twice."""

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, objective: str, most: int) -> None:
        self.kernel, self.theta, self.train, self.objective = kernel, theta, train, objective
        n, y = len(train), train.y
        self.s2 = noise_variance(theta)
        self.D = kernel.diag(theta, train.X)  # [n]
        self.least = rounding(y.dtype) * self.D  # [n] below it a residual is rounding
        self.Lt, self.R, self.h = y.new_zeros(most, n), y.new_zeros(most, most), y.new_zeros(most)
        self.rows = torch.zeros(0, dtype=torch.int64, device=y.device)
        yy, prior = float(y @ y), float(self.D.sum())
        self.terms = Terms(yy / self.s2, n * math.log(self.s2), prior / self.s2)

    @property
    def total(self) -> float:
        """The objective at this size."""
        return self.terms.total(self.objective)

    @property
    def eligible(self) -> Tensor:
        """Whether a row would add something [n]: neither chosen nor explained to rounding."""
        return self.D > self.least

    def columns(self, rows: Tensor) -> Tensor:
        """Residual columns r = k - L l of these rows [c, n]: one read of L."""
        Lt = self.Lt[: len(self.rows)]
        K = self.kernel(self.theta, self.train.rows(rows).X, self.train.X)
        return K.addmm_(Lt[:, rows].T, Lt, alpha=-1.0)

    def reductions(self, rows: Tensor) -> Tensor:
        """The exact fall of the objective by adding each of these rows [c]. 4 n k flops a row, O(n block) memory."""
        falls = [
            self._effect(rows[block]).falls for block in row_blocks(len(rows), self.Lt.element_size() * len(self.D))
        ]
        return torch.cat(falls)

    def add(self, row: int) -> float:
        """Add one row, which must be eligible; return the fall of the objective. 4 n k flops."""
        k, before = len(self.rows), self.total
        rows = torch.tensor([row], device=self.D.device)
        found = self._effect(rows)
        u, s_one, e_one, uu = found.columns[0] / found.root, float(found.s), float(found.e), float(found.uu)
        self.Lt[k] = u
        self.R[k, :k], self.R[k, k], self.h[k] = found.half[:, 0], math.sqrt(s_one), e_one / math.sqrt(s_one)
        self.D.addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.D[row] = 0.0
        self.rows = torch.cat([self.rows, rows])
        fit, complexity, trace = self.terms
        self.terms = Terms(
            fit - e_one**2 / (self.s2 * s_one), complexity + math.log(s_one / self.s2), max(trace - uu / self.s2, 0.0)
        )
        return before - self.total

    def _effect(self, rows: Tensor) -> Effect:
        """The effect of adding each of these rows alone. Nothing of size [c, n] is made beside the columns."""
        k = len(self.rows)
        columns = self.columns(rows)
        D = columns.gather(1, rows[:, None])[:, 0]
        explained = D <= self.least[rows]
        root = torch.where(explained, torch.ones_like(D), D).sqrt()
        B = (columns @ self.Lt[:k].T).T / root  # [k, c] L'u
        half = torch.linalg.solve_triangular(self.R[:k, :k], B, upper=False)
        uu = torch.linalg.vecdot(columns, columns) / root.square()
        s = (uu - half.square().sum(0)).clamp_min(0.0) + self.s2
        e = columns @ self.train.y / root - self.h[:k] @ half
        falls = reductions(e, s, uu, self.s2, self.objective).masked_fill(explained, -math.inf)
        return Effect(falls, columns, root, half, uu, s, e)
