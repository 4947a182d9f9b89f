"""Conjugate gradients for A x = b, one iteration at a time, for one right-hand side or many.

    r = b - A x,  z = M^-1 r,  p <- z + (r'z / r_old'z_old) p,  step = r'z / p'A p          (Hestenes and Stiefel 1952)

A is symmetric positive definite and given as a product v -> A v; M is a preconditioner, given as v -> M^-1 v. Several
right-hand sides are columns, and each column has its own scalars. A column that has converged stays where it is.

Apart because it knows no Gaussian process: any product v -> A v will do, as tests and benchmarks use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


class Iterate(NamedTuple):
    """The position of an iteration: everything that is needed to continue it."""

    x: Tensor  # [n] or [n, k]
    r: Tensor  # the residual b - A x
    p: Tensor  # the search direction
    rz: Tensor  # [] or [k] r'M^-1 r


def begin(product: Product, b: Tensor, x: Tensor, precondition: Product | None = None) -> Iterate:
    """The iterate before the first step from x [n] or [n, k]; one product with A unless x is zero."""
    return from_residual(x, b - product(x) if bool(x.any()) else b.clone(), precondition)


def from_residual(x: Tensor, r: Tensor, precondition: Product | None = None) -> Iterate:
    """The iterate before the first step, if the residual r = b - A x is already available; no product with A."""
    z = precondition(r) if precondition else r
    return Iterate(x.clone(), r, z.clone(), (r * z).sum(0))


def cg(product: Product, iterate: Iterate, precondition: Product | None = None) -> Iterator[Iterate]:
    """Yield the iterates that follow, without end.

    Parameters
    ----------
    product : callable
        v -> A v for v [n] or [n, k].
    iterate : Iterate
        Where to start, from `begin`, `from_residual` or an earlier iterate.
    precondition : callable, optional
        v -> M^-1 v; the identity if omitted.

    Yields
    ------
    Iterate
        New tensors each time: what was yielded never changes.

    Notes
    -----
    One product with A and one with M^-1 per iteration.

    Examples
    --------
    >>> A, b = torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([2.0, 4.0])
    >>> *_, last = islice(cg(A.mv, begin(A.mv, b, torch.zeros(2))), 2)
    >>> last.x
    tensor([1., 1.])
    """
    x, r, p, rz = iterate
    tiny = torch.finfo(x.dtype).tiny
    while True:
        Ap = product(p)
        curvature = (p * Ap).sum(0)
        step = torch.where(curvature > tiny, rz / curvature.clamp_min(tiny), 0.0)
        x, r = x + step * p, r - step * Ap
        z = precondition(r) if precondition else r
        rz, rz_before = (r * z).sum(0), rz
        p = z + torch.where(rz_before > tiny, rz / rz_before.clamp_min(tiny), 0.0) * p
        yield Iterate(x, r, p, rz)
