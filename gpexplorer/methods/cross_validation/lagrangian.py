"""The augmented Lagrangian of one fold: its value, its slope in theta, its minimiser in z.

L = |y_V - K_VT z|^2 + lambda'(C z - y_T) + rho/2 |C z - y_T|^2,  C = K_TT + s2 I                section 3.1
r = y_V - K_VT z,  c = C z - y_T,  w = lambda + rho c
dL/dtheta = d/dtheta [(w, -2 r)' M(theta) z],  and 2 s2 w'z more for the log noise sd
(2 K_VT' K_VT + rho C^2) z = 2 K_VT' y_V + C (rho y_T - lambda)                                  eq 13

Equations of Xu, Yin, Zhang, Luo and Cui (2019). Their (17) and (18) lose the products of noise and kernel; these are
derived anew and held against finite differences. Everything is O(n^2): products of M with vectors.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...linalg.conjugate_gradients import Product, begin, cg
from ...linalg.preconditioners import enough, nystrom_root, woodbury
from ...linalg.workspace import Workspace
from ...objectives import noise_variance
from .fold_kernel import Cross

ENOUGH = 20  # conjugate gradient iterations a row: what an ill conditioned system takes, several times over


class Fold(NamedTuple):
    """The rows of one fold, those trained on first; small enough to be sent to a worker."""

    kernel: Any
    X: Any  # [n, d]
    y: Tensor  # [n]
    trained: int  # n_T
    room: Workspace  # of the kernel rows held

    def cross(self, theta: Tensor) -> Cross:
        """M(theta)."""
        return Cross(self.kernel, theta, self.X, self.trained, self.room)


class Terms(NamedTuple):
    """L at one (theta, z, lambda), taken apart."""

    loss: float  # |r|^2
    gap: float  # |c|
    total: float  # L
    c: Tensor  # [n_T]
    r: Tensor  # [n_V]


def terms(fold: Fold, M: Cross, z: Tensor, dual: Tensor, rho: float) -> Terms:
    """One product."""
    n_T, product = fold.trained, M.forward(z)
    c = product[:n_T] + noise_variance(M.theta) * z - fold.y[:n_T]
    r = fold.y[n_T:] - product[n_T:]
    loss, gap2 = float(r @ r), float(c @ c)
    return Terms(loss, gap2**0.5, loss + float(dual @ c) + 0.5 * rho * gap2, c, r)


def slope(M: Cross, z: Tensor, w: Tensor, r: Tensor) -> Tensor:
    """dL/dtheta [p] at w = lambda + rho c. One pass over the kernel."""
    gradient = M.gradient(torch.cat([w, -2.0 * r]), z)
    gradient[-1] += 2.0 * noise_variance(M.theta) * (w @ z)
    return gradient


class Solved(NamedTuple):
    """What conjugate gradients came to."""

    x: Tensor
    iterations: int
    error: float  # of b: sqrt(r'M^-1 r / b'M^-1 b)


def solve(product: Product, b: Tensor, x: Tensor, precondition: Product | None, most: tuple[int, float]) -> Solved:
    """From x, until `most[0]` iterations are done or the error is `most[1]`, and never beyond ENOUGH a row.

    In exact arithmetic an iteration a row ends it; rounding may leave an error that no more of them remove.
    The error is measured behind the preconditioner: a share of |y| where that is C^-1 or its square.
    """
    norm = float(b @ precondition(b) if precondition else b @ b)
    at, k, limit = begin(product, b, x, precondition), 0, min(most[0], ENOUGH * len(b))
    least = max(most[1] ** 2 * norm, torch.finfo(b.dtype).tiny)
    if float(at.rz) > least:
        for k, now in enumerate(cg(product, at, precondition), start=1):
            at = now
            if k >= limit or float(at.rz) <= least:
                break
    return Solved(at.x, k, (float(at.rz) / norm) ** 0.5 if norm > 0.0 else 0.0)


class Systems:
    """The two systems of a fold at one theta: C x = b, and the one of the z step."""

    def __init__(self, fold: Fold, M: Cross, rank: int) -> None:
        self.fold, self.M, self.s2 = fold, M, noise_variance(M.theta)
        self.inverse = woodbury(nystrom_root(M.columns, self._rows(rank)), self.s2) if rank else None  # ~ C^-1

    def _rows(self, most: int) -> Tensor:
        """Rows behind the preconditioner: no more than bring C's condition behind it to about 2."""
        n_T = self.fold.trained
        rows = torch.linspace(0, n_T - 1, min(most, n_T), device=self.fold.y.device).long()
        return rows[: enough(self.M.columns(rows)[rows], self.s2 / n_T)]

    def C(self, v: Tensor) -> Tensor:
        """C v."""
        return self.M.forward(v)[: self.fold.trained] + self.s2 * v

    def constraint(self, b: Tensor, x: Tensor, most: tuple[int, float]) -> Solved:
        """C x = b."""
        return solve(self.C, b, x, self.inverse, most)

    def z_step(self, dual: Tensor, rho: float, z: Tensor, most: tuple[int, float]) -> Solved:
        """Eq 13 from z: two reads of M an iteration, (C^-1)^2 / rho as the preconditioner."""
        y, n_T = self.fold.y, self.fold.trained
        want = rho * y[:n_T] - dual
        b = self.M.backward(torch.cat([want, 2.0 * y[n_T:]])) + self.s2 * want
        return solve(partial(self._normal, rho), b, z, partial(self._twice, rho) if self.inverse else None, most)

    def _normal(self, rho: float, v: Tensor) -> Tensor:
        """(2 K_VT' K_VT + rho C^2) v."""
        n_T, u = self.fold.trained, self.M.forward(v)
        u[:n_T] = rho * (u[:n_T] + self.s2 * v)
        u[n_T:] *= 2.0
        return self.M.backward(u) + self.s2 * u[:n_T]

    def _twice(self, rho: float, v: Tensor) -> Tensor:
        """The preconditioner."""
        return v if self.inverse is None else self.inverse(self.inverse(v)) / rho
