"""A sparse GP that gains one inducing point at a time, with its exact objective at every size.

Rows I of the data are the inducing points, K_hat = L L' [n, n], D = diag(K - K_hat), A = L'L + s2 I = R R'.

    adding j      u = (k_j - L l_j) / sqrt(D_j),   L <- [L, u]                            Cao et al. 2013, eq 13
    reductions    dE_D = e^2 / (s2 s),   dE_C = log s2 - log s,   dE_V = u'u / s2         eqs 14-16

R, h = R^-1 L'y, and s and e of a new column are those of `linalg.gaussian`. The methods that choose rows one after
another grow one of these. They differ only in the row that they add next.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ....linalg.blocks import row_blocks
from ....linalg.gaussian import Additions, GrowingGaussian
from ....objectives import Terms, log_variance_ratio, noise_variance, rounding
from ....problem import Dataset, Kernel
from ..reductions import log_reductions, reductions


class Effect(NamedTuple):
    """The effect of adding each of c rows alone. The new column of L is `columns / root`."""

    reduction: Tensor  # [c] decrease of the objective; -inf where a row is explained
    columns: Tensor  # [c, n] residual columns
    root: Tensor  # [c] sqrt(D)
    uu: Tensor  # [c]
    additions: Additions


class GrowingGP:
    """L, R and h for the rows added so far.

    Parameters
    ----------
    kernel, theta, train : Kernel, Tensor, Dataset
        The model: covariance function, log-hyperparameters [p] and training rows.
    objective : {"vfe", "tight-vfe", "pp"}
    most : int
        Largest number of inducing points.

    Attributes
    ----------
    rows : Tensor [k]
        The inducing points so far.
    D : Tensor [n]
        Residual variances.

    Notes
    -----
    Memory is n m numbers. Adding a row reads L twice.
    """

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, objective: str, most: int) -> None:
        self.kernel, self.theta, self.train, self.objective = kernel, theta, train, objective
        n, y = len(train), train.y
        self.s2 = noise_variance(theta)
        self.D = kernel.diag(theta, train.X)  # [n]
        self.least = rounding(y.dtype) * self.D  # [n] a residual variance below this is rounding
        self.Lt, self.gaussian = y.new_zeros(most, n), GrowingGaussian(most, self.s2, y)
        self.rows = torch.zeros(0, dtype=torch.int64, device=y.device)
        yy, E_V = float(y @ y), self._E_V(float(self.D.sum()) / self.s2)
        self.terms = Terms(yy / self.s2, n * math.log(self.s2), E_V)  # eqs 7-9 without inducing points

    def _E_V(self, trace: float) -> float:
        """Return E_V, the trace of eq 9 being known."""
        return log_variance_ratio(self.D, self.s2) if self.objective == "tight-vfe" else trace

    @property
    def most(self) -> int:
        """Largest number of inducing points."""
        return len(self.Lt)

    @property
    def total(self) -> float:
        """The objective at this size."""
        return self.terms.total(self.objective)

    @property
    def is_eligible(self) -> Tensor:
        """Which rows [n] are neither inducing points nor explained by them to rounding."""
        return self.D > self.least

    def columns(self, rows: Tensor) -> Tensor:
        """Compute the residual columns r = k - L l of these rows [c, n]: one read of L."""
        Lt = self.Lt[: len(self.rows)]
        K = self.kernel(self.theta, self.train.rows(rows).X, self.train.X)
        return K.addmm_(Lt[:, rows].T, Lt, alpha=-1.0)

    def reductions(self, rows: Tensor) -> Tensor:
        """Compute the exact decrease of the objective by each of these rows [c]. 4 n k flops per row."""
        blocks = row_blocks(len(rows), self.Lt.element_size() * len(self.D), self.Lt)
        return torch.cat([self._effect(rows[block]).reduction for block in blocks])

    def add(self, row: int) -> float:
        """Add one eligible row; return the decrease of the objective. 4 n k flops."""
        k, before = len(self.rows), self.total
        rows = torch.tensor([row], device=self.D.device)
        effect = self._effect(rows)
        u, uu = effect.columns[0] / effect.root, float(effect.uu)
        self.Lt[k] = u
        dE_D, rise = self.gaussian.add(effect.additions)
        self.D.addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.D[row] = 0.0
        self.rows = torch.cat([self.rows, rows])
        fit, complexity, trace = self.terms
        self.terms = Terms(fit - dE_D, complexity + rise, self._E_V(max(trace - uu / self.s2, 0.0)))  # eqs 14-16
        return before - self.total

    def _effect(self, rows: Tensor) -> Effect:
        """Compute the effect of adding each of these rows alone; no [c, n] array is made beside the columns."""
        k = len(self.rows)
        columns = self.columns(rows)  # [c, n]
        D = columns.gather(1, rows[:, None])[:, 0]  # [c]
        explained = D <= self.least[rows]
        root = torch.where(explained, torch.ones_like(D), D).sqrt()
        B = (columns @ self.Lt[:k].T).T / root  # [k, c] L'u
        uu = torch.linalg.vecdot(columns, columns) / root.square()
        new = self.gaussian.additions(B, uu, columns @ self.train.y / root)
        dE_V: Tensor | float = uu / self.s2 if self.objective == "vfe" else 0.0
        if self.objective == "tight-vfe":
            dE_V = log_reductions(columns, root.square(), self.s2 + self.D)
        reduction = reductions(new.e, new.s, self.s2, dE_V).masked_fill(explained, -math.inf)
        return Effect(reduction, columns, root, uu, new)
