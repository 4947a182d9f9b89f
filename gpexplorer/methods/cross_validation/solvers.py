"""Conjugate gradients for the systems of a group of folds: several right-hand sides at once, and stable to rounding.

    R = B - A X,  Z = P R,  S <- Z + beta S,  X <- X + alpha S,  R <- R - alpha A S       (Hestenes and Stiefel 1952)

Each column has its own alpha and beta; a product with A serves all columns. The residuals of exact arithmetic satisfy
r_i' P r_j = 0. Rounding destroys this within tens of iterations, and from then on two computations that round
differently, as with another number of threads, have different iterates. Here every new residual is made orthogonal to
the earlier ones, which costs O(n) per earlier iteration, and iterates differ by little more than rounding itself. The
residual that is updated may become smaller than the true one, which is therefore computed again after many iterations.

The number of iterations jumps by one where a residual passes the tolerance, and rounding decides on which side it is.
The solution must not jump: iterates are smoothed so that their residual decreases at every iteration, and the solution
lies between the last two, where the residual has just reached the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.cholesky import cholesky_of_each
from ...linalg.deferred_reads import Number, happens, sum_with_product
from ...linalg.preconditioners import masked_nystrom_root, nystrom_root, sufficient_rank
from .folds import FoldGroup, FoldKernel

Product = Callable[[Tensor], Tensor]
ITERATIONS_PER_ROW = 20  # limit of iterations; an ill-conditioned system needs a few per row
FEWEST = 2  # iterations at least: where one is enough, its result still has the rounding of the preconditioner
TRUSTED = 20  # after more iterations the residual is computed from its definition before the solution is accepted
CONFIRMED = 1.1  # the residual that is updated must be smaller than the tolerance by this factor
REMEMBERED = 200  # earlier residuals that are kept; then the iterations restart


class Solution(NamedTuple):
    """The result of conjugate gradients."""

    X: Tensor  # [c, K]
    iterations: int
    error: Number  # the largest of the columns, in units of its target: at most 1 where all of them are solved


class Target(NamedTuple):
    """When a column is solved."""

    norms: Tensor  # [K]
    iterations: int  # at most
    of_solution: bool = False  # whether norms bound |P r|, about the error of x; otherwise |r|, that of A x
    is_few: bool = False  # whether a GPU assumes that FEWEST iterations are enough, and records where they are not


def solve(
    product: Product, B: Tensor, X: Tensor, precondition: Product, target: Target, R: Tensor | None = None
) -> Solution:
    """Solve A X = B by preconditioned conjugate gradients, starting at X.

    Parameters
    ----------
    product : callable
        X [c, K] -> A X, A being symmetric and positive definite.
    B, X : Tensor [c, K]
    precondition : callable
        R -> P R, with P close to A^-1, symmetric and positive definite.
    target : Target
        There are also at most ITERATIONS_PER_ROW iterations per row, since rounding may leave a residual that no
        further iteration removes.
    R : Tensor [c, K], optional
        The residual B - A X, where it is known.
    """
    norms = target.norms.clamp_min(torch.finfo(B.dtype).tiny)
    reads_cost = not B.is_cpu  # a GPU takes FEWEST iterations even from the exact solution, which they do not move
    most = min(target.iterations, ITERATIONS_PER_ROW * len(B))
    if R is None:
        R = B - product(X) if reads_cost or bool(X.any()) else B
    earlier = _Residuals(B)
    S = Y = F = rz_before = R  # [c, K] direction, the smoothed iterate, and its residual or error: after an iteration
    k = since = 0  # iterations, and those since R was computed from its definition
    while True:
        Z = precondition(R) if target.of_solution else None  # else it is needed only where an iteration follows
        E, before = (R if Z is None else Z), (Y, F)
        Y, F = _smoothed(Y, F, X, E) if since else (X, E)
        is_exact = k < FEWEST and not reads_cost and not bool(R.any())
        if target.is_few and k == FEWEST:
            error = (F.norm(dim=0) / norms).max()
            happens((error <= 1.0 / CONFIRMED).logical_not())
            return Solution(Y, k, error)
        error = _largest_share(F, norms) if k >= min(FEWEST, most) or is_exact else math.inf
        solved = error <= (1.0 / CONFIRMED if since else 1.0) and (k >= FEWEST or is_exact)
        if solved and since and k > FEWEST:
            share = _share_of_step(before[1], F, target.norms / CONFIRMED)
            Y, F = torch.lerp(before[0], Y, share), torch.lerp(before[1], F, share)
            error = _largest_share(F, norms)
        if since > TRUSTED and (solved or since >= min(REMEMBERED, len(B))):
            X, R = Y, B - product(Y)
            earlier, since = _Residuals(B), 0
            continue
        if k >= most or solved:
            return Solution(Y, k, error)
        Z = precondition(R) if Z is None else Z
        rz = (R * Z).sum(0)  # [K]
        S = torch.addcmul(Z, ratio(rz, rz_before), S) if since else Z
        AS = product(S)
        alpha = ratio(rz, (S * AS).sum(0))
        earlier.append(R, Z, rz)
        X = torch.addcmul(X, alpha, S)
        R = earlier.orthogonal(torch.addcmul(R, alpha, AS, value=-1.0))
        rz_before, k, since = rz, k + 1, since + 1


def _largest_share(F: Tensor, norms: Tensor) -> float:
    """The largest length of a column of F, in units of its norm [K]."""
    return float((F.norm(dim=0) / norms).max())


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """Return a / b [K], or 0 where b is not positive: a column that is solved already."""
    return a / torch.threshold(b, torch.finfo(b.dtype).tiny, math.inf)


def _smoothed(Y: Tensor, F: Tensor, X: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
    """The point between Y and X, per column, whose residual between F and E is shortest, and that residual."""
    D = F - E
    FD, DD = torch.stack([F, D]).mul_(D).sum(1)  # [K] each
    share = FD.div_(DD.clamp_min_(torch.finfo(D.dtype).tiny)).clamp_(0.0, 1.0)
    return torch.lerp(Y, X, share), torch.lerp(F, E, share)


def _share_of_step(E_before: Tensor, E: Tensor, norms: Tensor) -> float:
    """The least t in [0, 1] for which no column of E_before + t (E - E_before) is longer than its norm [K].

    A column that is short enough before and after the step is so in between. Of the others, t is the root of

        |b + t s|^2 = norm^2,   b = E_before,  s = E - E_before:   t = q / (h + sqrt(h^2 - |s|^2 q)),
        q = |b|^2 - norm^2,  h = -b's
    """
    s = E - E_before
    q, h, ss = E_before.square().sum(0) - norms.square(), -(E_before * s).sum(0), s.square().sum(0)
    t = q / (h + (h.square() - ss * q).clamp_min(0.0).sqrt()).clamp_min(torch.finfo(s.dtype).tiny)
    return float(torch.where(q > 0.0, t, 0.0).clamp(0.0, 1.0).max())


class _Residuals:
    """The residuals of earlier iterations with their preconditioned ones, normalised so that r'P r = 1."""

    def __init__(self, like: Tensor) -> None:
        self._count = 0
        self._R, self._Z = (like.new_empty(like.shape[1], 8, len(like)) for _ in range(2))  # [K, capacity, c]

    def append(self, R: Tensor, Z: Tensor, rz: Tensor) -> None:
        if self._count == self._R.shape[1]:
            self._R, self._Z = (torch.cat([stored, torch.empty_like(stored)], 1) for stored in (self._R, self._Z))
        if not self._count:
            self._least = rz * torch.finfo(rz.dtype).eps ** 2
        scale = rz.masked_fill(rz <= self._least, torch.inf).rsqrt_()[:, None]  # 0 where a column is solved to rounding
        for stored, columns in ((self._R, R), (self._Z, Z)):
            torch.mul(columns.T, scale, out=stored[:, self._count])
        self._count += 1

    def orthogonal(self, R: Tensor) -> Tensor:
        """Return R [c, K] without its parts along the earlier residuals, in the inner product of P.

        They are subtracted twice: what rounding leaves the first time is gone after the second.
        """
        earlier_R, earlier_Z = self._R[:, : self._count].mT, self._Z[:, : self._count]
        column = R.T[:, :, None]  # [K, c, 1]
        for _ in range(2):
            column = torch.baddbmm(column, earlier_R, earlier_Z @ column, alpha=-1.0)
        return column[:, :, 0].T


class NystromInverse:
    """The preconditioner (K_hat + s2 I)^-1 of C = K_TT + s2 I, for every fold of a group.

    K_hat = L L' is the Nystrom approximation by at most `rank` rows, the same for all folds; a fold takes the rows of
    L that it trains on. By Woodbury's identity

        (L_T L_T' + s2 I)^-1 v = (v - L_T (L_T'L_T + s2 I)^-1 L_T'v) / s2

    Notes
    -----
    n rank^2 flops for L and for all L_T'L_T together, rank^3 / 3 per fold, 4 n rank per vector. With rank 0 it is the
    identity.
    """

    def __init__(self, group: FoldGroup, M: FoldKernel, rank: int, s2: Number) -> None:
        self.T, self.s2, self.rank = group.T, s2, rank
        if not rank:
            return
        last, dtype = group.trained - 1, torch.float64
        rows = torch.linspace(0, last, min(rank, group.trained), dtype=dtype, device=self.T.device).long()
        variance = s2 / group.trained  # of rows that are left out: the condition number of P C is about 2
        if isinstance(s2, Tensor):  # inside a graph, whose shapes are fixed
            self.L = masked_nystrom_root(M.columns, rows, variance)  # [c, r]
        else:
            self.L = nystrom_root(M.columns, rows[: sufficient_rank(M.columns(rows)[rows], variance)])  # [c, r]
        gram = self.L.T @ self.L  # [r, r]
        validation = [self.L[part] for part in group.validation]  # empty for a single fold: its rows have no columns
        inner = torch.stack([torch.addmm(gram, L_V.T, L_V, alpha=-1.0) for L_V in validation])
        inner.diagonal(dim1=1, dim2=2).add_(s2)
        self.factors = cholesky_of_each(inner, "L'L + s2 I of the preconditioner")  # [K, r, r]

    def __call__(self, V: Tensor) -> Tensor:
        """Return P V [c, K], for V that is zero outside of the training rows."""
        if not self.rank:
            return V
        inner = torch.cholesky_solve((self.L.T @ V).T[:, :, None], self.factors)[:, :, 0].T  # [r, K]
        return sum_with_product(V, self.L, inner, beta=1.0 / self.s2, alpha=-1.0 / self.s2).mul_(self.T)
