"""Right-hand sides that are solved for together: A V = R, one column each.

    f(v) = v'A v / 2 - r'v,   g = A v - r         for every column r of R and its solution v

A column is finished as soon as |g| is within its own limit, and takes no further work. Two limits are of use. The
variance at x* is k(x*, x*) + 2 min f for r = k(X, x*), and since no eigenvalue of A is below s2,

    k(x*, x*) + 2 f(v) - |g|^2 / s2  <=  variance  <=  k(x*, x*) + 2 f(v)

so that |g|^2 = tolerance s2 (variance + s2) bounds the relative error of a predictive variance of y. For targets or a
sample in place of r, v is the exact solution for targets that differ from r by g: |g| = tolerance s sqrt(n) changes
each target by `tolerance` noise standard deviations, in the root mean square.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ..block import Block

Limit = Callable[[Tensor, Tensor], Tensor]  # (columns [k], values 2 f [k]) -> largest |g| [k]

COMPACT = 0.8  # of the columns: finished ones are dropped from the arrays when no more than this share is left


def variance_limit(prior: Float[Tensor, " k"], s2: float, tolerance: float) -> Limit:
    """The limit for columns k(X, x*) with prior variances k(x*, x*): see the head of this file."""

    def limit(columns: Tensor, values: Tensor) -> Tensor:
        return (tolerance * s2 * ((prior[columns] + values).clamp_min(0.0) + s2)).sqrt()

    return limit


def target_limit(n: int, s2: float, tolerance: float) -> Limit:
    """The limit for targets and samples: `tolerance` noise standard deviations per row."""
    return lambda columns, values: torch.full_like(values, tolerance * (s2 * n) ** 0.5)


class Columns:
    """The solutions of some right-hand sides, their gradients, and which of them are not finished.

    Parameters
    ----------
    R : Tensor [n, k]
        Right-hand sides. The tensor is overwritten.
    limit : callable
        Largest gradient norm per column; see `variance_limit` and `target_limit`.
    conjugate : int, default 0
        Number of previous steps that each step is combined with, 2 n k numbers each.
    start : tuple of Tensor [n, k], optional
        Solutions from which to continue, and A times them.

    Attributes
    ----------
    V, G : Tensor [n, a]
        Solutions and gradients of the columns that are not finished.
    active : Tensor [a]
        Their numbers.
    values : Tensor [a]
        2 f of each of them.
    """

    def __init__(self, R: Tensor, limit: Limit, conjugate: int = 0, start: tuple[Tensor, Tensor] | None = None) -> None:
        self.limit, self.conjugate = limit, conjugate
        self.active = torch.arange(R.shape[1], device=R.device)
        if start is None:
            self.V, self.values = torch.zeros_like(R), R.new_zeros(R.shape[1])
            self.G = R.neg_()
        else:
            V, AV = start
            self.V, self.values = V.clone(), (V * (AV - 2.0 * R)).sum(0)
            self.G = R.neg_().add_(AV)
        self._V, self._G, self._values = self.V, self.G, self.values  # of all columns
        self._steps: list[tuple[Tensor, Tensor]] = []  # previous steps p and A p

    @property
    def limits(self) -> Tensor:
        """Largest gradient norm [a] of each unfinished column."""
        return self.limit(self.active, self.values)

    @property
    def norms(self) -> Tensor:
        """Gradient norm [a] of each unfinished column."""
        return self.G.norm(dim=0)

    def drop_finished(self) -> bool:
        """Leave out the columns whose gradients are within their limits; return whether none is left."""
        open_ = self.norms > self.limits
        left = int(open_.sum())
        if left and left > COMPACT * len(self.active):
            return False
        self._store()
        self.active = self.active[open_]
        self.V, self.G, self.values = self.V[:, open_], self.G[:, open_], self.values[open_]
        self._steps = [(p[:, open_], Ap[:, open_]) for p, Ap in self._steps]
        return not left

    def move(self, block: Block) -> None:
        """Solve for the rows of a block, and combine this step with the previous ones."""
        minimiser = block.joint_minimiser(self.G)
        rows, step = minimiser.rows, minimiser.step
        if not self.conjugate:
            self.values += (self.G[rows] * step).sum(0)  # at the minimiser, 2 f decreases by -g'step
            self.V.index_add_(0, rows, step)
            block.add_change(minimiser, self.G)
            return
        whole, change = torch.zeros_like(self.V).index_add_(0, rows, step), torch.zeros_like(self.G)
        block.add_change(minimiser, change)
        P, AP = [whole, *(p for p, _ in self._steps)], [change, *(Ap for _, Ap in self._steps)]
        c = _best_coefficients(P, AP, self.G)  # [h, a]
        p, Ap = whole.mul_(c[0]), change * c[0]
        for weight, old_p, old_Ap in zip(c[1:], P[1:], AP[1:], strict=True):
            p.addcmul_(old_p, weight)
            Ap.addcmul_(old_Ap, weight)
        self.values += (p * (2.0 * self.G + Ap)).sum(0)
        self.V += p
        self.G += Ap
        self._steps = [(p, Ap), *self._steps][: self.conjugate]

    def result(self) -> tuple[Tensor, Tensor, Tensor]:
        """Solutions [n, k], gradients [n, k] and values 2 f [k] of all columns, finished or not."""
        self._store()
        return self._V, self._G, self._values

    def _store(self) -> None:
        """Copy the unfinished columns into the arrays of all columns."""
        if self.V is self._V:
            return
        self._V[:, self.active], self._G[:, self.active] = self.V, self.G
        self._values[self.active] = self.values


def _best_coefficients(P: list[Tensor], AP: list[Tensor], G: Tensor) -> Tensor:
    """For each column, the coefficients [h, a] of the steps P [n, a] that minimise f; h^2 / 2 products of n numbers."""
    H = torch.stack([torch.stack([(p * Aq).sum(0) for Aq in AP], -1) for p in P], -2)  # [a, h, h]
    right = torch.stack([(p * G).sum(0) for p in P], -1)  # [a, h]
    scale = H.diagonal(dim1=1, dim2=2).clamp_min(torch.finfo(H.dtype).tiny).rsqrt()  # [a, h]
    unit = 0.5 * (H + H.mT) * scale[:, :, None] * scale[:, None, :]
    rounding = len(P) * torch.finfo(H.dtype).eps ** 0.5
    inverse = torch.linalg.pinv(unit, rtol=rounding, hermitian=True)
    return -(scale * (inverse @ (scale * right)[:, :, None])[:, :, 0]).T
