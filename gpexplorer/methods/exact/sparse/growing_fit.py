"""Least squares on a growing set of regressors: f is a sum over few rows and is fitted to all rows.

    f = K_nm a,   E = |y - f|^2 / 2 + s2 a'K_mm a / 2                       least squares with the GP's own prior
    V = L_mm^-1 K_mn,   min E = (y'y - h'h) / 2                             h of `linalg.gaussian` with Phi = V'
    gain_i = (k_i'(y - f) - s2 f_i)^2 / (2 (|k_i|^2 + s2 k_ii))             decrease of E if row i alone joins

The gain is that of Keerthi and Chu (2006). Both factors, L_mm of K_mm and that of A = V V' + s2 I, grow by borders.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....linalg.blocks import row_blocks
from ....linalg.cholesky import cholesky, independent_rows
from ....linalg.gaussian import GrowingGaussian
from ....objectives import noise_variance
from ....problem import Problem, take


class GrowingFit:
    """The penalised least-squares fit of a set of regressors to which rows are added.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    theta : Tensor [p]
        Log-hyperparameters.
    most : int
        Largest number of regressors; memory for them is allocated at once, n numbers each.

    Attributes
    ----------
    rows : Tensor [m]
        The regressors, in the order in which they joined.
    f : Tensor [n]
        The fit at the training rows.
    residual_variance : Tensor [n]
        Prior variance that the regressors do not explain.
    jitter : float
        Largest jitter that a border of K_mm needed.
    skipped : int
        Rows that were to join and did not, because the regressors before them explain them to rounding.
    """

    def __init__(self, problem: Problem, theta: Tensor, most: int) -> None:
        self.kernel, self.theta, self.train = problem.kernel, theta, problem.train
        self.s2, self.m, self.jitter, self.skipped = noise_variance(theta), 0, 0.0, 0
        y, most = problem.train.y, min(most, len(problem.train))
        self.rows = torch.zeros(0, dtype=torch.int64, device=y.device)
        self.V, self.f = y.new_empty(most, len(y)), torch.zeros_like(y)
        self.L_mm, self.gaussian = y.new_zeros(most, most), GrowingGaussian(most, self.s2, y)
        self.diag = problem.kernel.diag(theta, problem.train.X)  # [n]
        self.residual_variance = self.diag.clone()

    @property
    def residual_floor(self) -> float:
        """Residual variance at or below which a row adds nothing but rounding."""
        return 1e3 * torch.finfo(self.diag.dtype).eps * float(self.diag.max())

    def columns(self, rows: Tensor) -> Tensor:
        """Kernel rows K[rows] [c, n]."""
        return self.kernel(self.theta, take(self.train.X, rows), self.train.X)

    def join(self, new: Tensor) -> None:
        """Add rows [c]: extend both factors by a border and fit again. n m c flops, n c kernel entries.

        Rows that the regressors and the rows before them explain are skipped, so that the border of K_mm has a factor.
        """
        V, K = self.V[: self.m], self.columns(new)  # [m, n], [c, n]
        l = V[:, new].T  # noqa: E741 - [c, m], the border of L_mm
        border = K.index_select(1, new) - l @ l.T  # [c, c]
        trial, failed = torch.linalg.cholesky_ex(border)
        if bool(failed) or bool((trial.diagonal().square() <= self.residual_floor).any()):
            kept = independent_rows(border, torch.full_like(self.f[: len(new)], self.residual_floor))
            explained = torch.ones_like(new, dtype=torch.bool).index_fill_(0, kept, False)
            self.residual_variance[new[explained]] = 0.0
            self.skipped += len(new) - len(kept)
            new, K, l, border = new[kept], K[kept], l[kept], border[kept][:, kept]  # noqa: E741
        if not len(new):
            return
        m, end = self.m, self.m + len(new)
        L, jitter = cholesky(border, "K_mm of the regressors [border]", largest=1e-2)
        self.L_mm[m:end, :m], self.L_mm[m:end, m:end] = l, L
        self.V[m:end] = torch.linalg.solve_triangular(L, K.addmm_(l, V, alpha=-1.0), upper=False)

        V_new = self.V[m:end]  # [c, n]
        self.gaussian.join(V @ V_new.T, V_new @ V_new.T, V_new @ self.train.y, "V V' + s2 I [border]")
        self.m, self.rows, self.jitter = end, torch.cat([self.rows, new]), max(self.jitter, jitter)
        self.f = self.V[:end].T @ self.gaussian.weights
        self.residual_variance = (self.residual_variance - V_new.square().sum(0)).clamp_min_(0.0)
        self.residual_variance[new] = 0.0

    @property
    def value(self) -> float:
        """The minimum of E over the weights of these regressors: (y'y - h'h) / 2."""
        return 0.5 * (float(self.train.y @ self.train.y) - float(self.gaussian.h.square().sum()))

    def gains(self, rows: Tensor) -> Tensor:
        """Decrease of E [c] if each row alone joined; -inf for a row that adds nothing. n kernel entries per row."""
        residual, gain = self.train.y - self.f, self.f.new_empty(len(rows))
        for block in row_blocks(len(rows), self.f.element_size() * len(self.f)):
            index = rows[block]
            K = self.columns(index)  # [block, n]
            derivative = K @ residual - self.s2 * self.f[index]
            gain[block] = derivative.square() / (2.0 * (K.square().sum(1) + self.s2 * self.diag[index]))
        return gain.masked_fill(self.residual_variance[rows] <= self.residual_floor, -torch.inf)
