"""Falkon by its formulas: kernel ridge regression on random centres, by preconditioned conjugate gradients.

    w = argmin |y - K_nm w|^2 / 2 + s2 w'K_mm w / 2           m random rows are centres Z (the subset of regressors)
    H w = K_nm'y,   H = K_nm'K_nm + s2 K_mm
    T'T = K_mm,   A'A = (n / m) T T' + s2 I,   B = T^-1 A^-1   so that B'H B is close to I: K_nm'K_nm ~ (n / m) K_mm^2
    B'H B v = A^-T (T^-T K_nm'(K_nm B v) + s2 A^-1 v)          one pass over K_nm per iteration

Rudi, Carratino and Rosasco (2017), section 3, with lambda n = s2. As in the authors' library, K_nm is float32 and the
factors are float64. K_nm is kept where it fits into a budget, and computed again in every pass where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gpexplorer.linalg.blocks import BLOCK_BYTES, row_blocks
from gpexplorer.linalg.cholesky import cholesky
from gpexplorer.linalg.kernel_columns import fill_tile
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.exact.cg import cg, from_residual
from gpexplorer.objectives import noise_variance
from gpexplorer.problem import Problem


class Falkon:
    """Random centres, the preconditioner that their covariances give, and the products with K_nm.

    Parameters
    ----------
    problem : Problem
        Training rows with numeric inputs, kernel and theta.
    num_centres : int
        Number m of centres; all rows if there are fewer.
    seed : int, default 0
        Seed of the draw of centres.
    budget : float, default 0
        Bytes of K_nm that may be kept; if they do not suffice, nothing is kept.
    dtype : torch.dtype, default torch.float32
        Precision of K_nm.

    Attributes
    ----------
    rows : Tensor [m]
        The training rows that are centres.

    Notes
    -----
    Two factors of m x m matrices and one product, 5 m^3 / 3 flops, before the first iteration; n m kernel entries and
    4 n m flops per iteration.

    References
    ----------
    Rudi, Carratino and Rosasco (2017). FALKON: an optimal large scale kernel method. NIPS 30.
    """

    def __init__(
        self,
        problem: Problem,
        num_centres: int,
        seed: int = 0,
        budget: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        train, kernel, theta = problem.train, problem.kernel, problem.theta
        self.kernel, self.theta, self.s2, self.y = kernel, theta.to(dtype), noise_variance(theta), train.y
        self.rows = torch.randperm(len(train), generator=generator(seed, "centres"))[:num_centres]
        self.X, self.Z = train.X.to(dtype), train.X[self.rows].to(dtype)
        m, Z = len(self.rows), train.X[self.rows]
        self._T = cholesky(kernel(theta, Z, Z), "K_mm [Falkon's centres]").L.T  # [m, m]
        TT = (len(train) / m) * (self._T @ self._T.T)
        TT.diagonal().add_(self.s2)
        self._A = cholesky(TT, "T T' n / m + s2 I").L.T  # [m, m]
        fits = self.X.element_size() * len(train) * m <= budget
        self._K_nm = self._entries(slice(0, len(train))) if fits else None

    def weights(self) -> Iterator[Tensor]:
        """Weights [m] of the centres after each iteration, without end; the mean at x is k(x, Z) w."""
        total = torch.zeros_like(self.y[: len(self.rows)])
        for rows, K_b in self._parts():
            total += K_b.T @ self.y[rows].to(K_b.dtype)
        right = self._transposed(total, 0.0 * total)
        iterate = from_residual(torch.zeros_like(right), right)
        for step in cg(self._product, iterate):
            yield self._preconditioned(step.x)[1]

    def _product(self, v: Tensor) -> Tensor:
        """B'H B v [m]."""
        u, w = self._preconditioned(v)
        w, total = w.to(self.X.dtype), torch.zeros_like(v)
        for _, K_b in self._parts():
            total += K_b.T @ (K_b @ w)
        return self._transposed(total, u)

    def _transposed(self, r: Tensor, u: Tensor) -> Tensor:
        """A^-T (T^-T r + s2 u)."""
        inner = torch.linalg.solve_triangular(self._T.T, r[:, None], upper=False).add_(u[:, None], alpha=self.s2)
        return torch.linalg.solve_triangular(self._A.T, inner, upper=False)[:, 0]

    def _preconditioned(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """A^-1 v and B v."""
        u = torch.linalg.solve_triangular(self._A, v[:, None], upper=True)
        return u[:, 0], torch.linalg.solve_triangular(self._T, u, upper=True)[:, 0]

    def _parts(self) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of rows and their part of K_nm [b, m]."""
        if self._K_nm is not None:
            yield slice(0, len(self.X)), self._K_nm
            return
        for rows in row_blocks(len(self.X), self.X.element_size() * len(self.Z), self.X, BLOCK_BYTES):
            yield rows, self._entries(rows)

    def _entries(self, rows: slice) -> Tensor:
        X = self.X[rows]
        return fill_tile(self.kernel, self.theta, X, self.Z, X.new_empty(len(X), len(self.Z)))
