"""The augmented Lagrangian of one fold: its value, its gradient in theta, and its minimiser in z.

    C = K_TT + s2 I                                                                      [n_T, n_T]
    L = |y_V - K_VT z|^2 + lambda'(C z - y_T) + rho/2 |C z - y_T|^2                      section 3.1
    r = y_V - K_VT z [n_V],  c = C z - y_T [n_T],  w = lambda + rho c [n_T]
    dL/dtheta = d/dtheta [(w, -2 r)' M(theta) z], and 2 s2 w'z in addition for the log noise sd
    (2 K_VT' K_VT + rho C^2) z = 2 K_VT' y_V + C (rho y_T - lambda)                      eq 13, gradient in z is zero

The equations are those of Xu, Yin, Zhang, Luo and Cui (2019). Their gradients (17) and (18) omit the products of the
noise variance and the kernel; the gradient here is derived anew and tested against finite differences. Every operation
costs O(n^2): products of M with vectors. In the code `dual` is lambda.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.conjugate_gradients import Product, begin, cg
from ...linalg.preconditioners import nystrom_root, sufficient_rank, woodbury
from ...objectives import noise_variance
from .folds import Fold, FoldKernel

ITERATIONS_PER_ROW = 20  # limit of conjugate gradient iterations; an ill-conditioned system needs a few per row


class LagrangianTerms(NamedTuple):
    """The augmented Lagrangian at one (theta, z, lambda), term by term."""

    loss: float  # |r|^2, the squared error of the validation rows
    gap: float  # |c|, the violation of the constraint C z = y_T
    total: float  # L
    c: Tensor  # [n_T]
    r: Tensor  # [n_V]


def lagrangian_terms(fold: Fold, M: FoldKernel, z: Tensor, dual: Tensor, rho: float) -> LagrangianTerms:
    """Compute the terms of L at z [n_T] and lambda [n_T], by one product with M."""
    n_T, product = fold.trained, M.times(z)  # [n]
    c = product[:n_T] + noise_variance(M.theta) * z - fold.y[:n_T]
    r = fold.y[n_T:] - product[n_T:]
    loss, squared_gap = float(r @ r), float(c @ c)
    return LagrangianTerms(loss, squared_gap**0.5, loss + float(dual @ c) + 0.5 * rho * squared_gap, c, r)


def theta_gradient(M: FoldKernel, z: Tensor, w: Tensor, r: Tensor) -> Tensor:
    """Compute dL/dtheta [p] at w = lambda + rho c, in one pass over the kernel."""
    gradient = M.gradient(torch.cat([w, -2.0 * r]), z)
    gradient[-1] += 2.0 * noise_variance(M.theta) * (w @ z)
    return gradient


class Limits(NamedTuple):
    """When a solution by conjugate gradients is good enough."""

    iterations: int
    tolerance: float  # of the relative error below


class Solution(NamedTuple):
    """The result of conjugate gradients."""

    x: Tensor
    iterations: int
    error: float  # sqrt(r'P r / b'P b) with the residual r and the preconditioner P


def solve(product: Product, b: Tensor, x: Tensor, precondition: Product | None, limits: Limits) -> Solution:
    """Solve A x = b by conjugate gradients, starting at x.

    It stops when `limits.iterations` are done, when the error is `limits.tolerance`, or after ITERATIONS_PER_ROW
    iterations per row. In exact arithmetic one iteration per row is enough. Rounding may leave an error that no
    further iteration removes.

    Notes
    -----
    The error is measured in the norm of the preconditioner. Where that is C^-1 or its square, the error is a share
    of |y|.
    """
    norm = float(b @ precondition(b) if precondition else b @ b)
    iterate, k = begin(product, b, x, precondition), 0
    most = min(limits.iterations, ITERATIONS_PER_ROW * len(b))
    least = max(limits.tolerance**2 * norm, torch.finfo(b.dtype).tiny)
    if float(iterate.rz) > least:
        for k, following in enumerate(cg(product, iterate, precondition), start=1):
            iterate = following
            if k >= most or float(iterate.rz) <= least:
                break
    return Solution(iterate.x, k, (float(iterate.rz) / norm) ** 0.5 if norm > 0.0 else 0.0)


class FoldSystems:
    """The two linear systems of a fold at one theta: C x = b, and the system (13) of the z step.

    Both are solved by conjugate gradients. The preconditioner of the first is (K_hat + s2 I)^-1 with a Nystrom
    approximation K_hat of at most `rank` rows; for the second it is applied twice. With rank 0 there is none.
    """

    def __init__(self, fold: Fold, M: FoldKernel, rank: int) -> None:
        self.fold, self.M, self.s2 = fold, M, noise_variance(M.theta)
        self.C_inverse = woodbury(nystrom_root(M.columns, self._nystrom_rows(rank)), self.s2) if rank else None

    def _nystrom_rows(self, rank: int) -> Tensor:
        """Return the rows of the preconditioner: no more than reduce the condition number of C to about 2."""
        n_T = self.fold.trained
        rows = torch.linspace(0, n_T - 1, min(rank, n_T), device=self.fold.y.device).long()
        return rows[: sufficient_rank(self.M.columns(rows)[rows], self.s2 / n_T)]

    def times_C(self, v: Tensor) -> Tensor:
        """Return C v [n_T]."""
        return self.M.times(v)[: self.fold.trained] + self.s2 * v

    def solve_C(self, b: Tensor, x: Tensor, limits: Limits) -> Solution:
        """Solve C x = b, starting at x."""
        return solve(self.times_C, b, x, self.C_inverse, limits)

    def z_step(self, dual: Tensor, rho: float, z: Tensor, limits: Limits) -> Solution:
        """Solve (13), starting at z. Each iteration reads M twice; the preconditioner is (C^-1)^2 / rho."""
        y, n_T = self.fold.y, self.fold.trained
        constraint_part = rho * y[:n_T] - dual
        b = self.M.transposed_times(torch.cat([constraint_part, 2.0 * y[n_T:]])) + self.s2 * constraint_part
        precondition = partial(self._C_inverse_squared, rho) if self.C_inverse else None
        return solve(partial(self._times_z_matrix, rho), b, z, precondition, limits)

    def _times_z_matrix(self, rho: float, v: Tensor) -> Tensor:
        """Return (2 K_VT' K_VT + rho C^2) v."""
        n_T, u = self.fold.trained, self.M.times(v)
        u[:n_T] = rho * (u[:n_T] + self.s2 * v)
        u[n_T:] *= 2.0
        return self.M.transposed_times(u) + self.s2 * u[:n_T]

    def _C_inverse_squared(self, rho: float, v: Tensor) -> Tensor:
        return v if self.C_inverse is None else self.C_inverse(self.C_inverse(v)) / rho
