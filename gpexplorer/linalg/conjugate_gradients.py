"""Conjugate gradients for A x = b, one iteration at a time, for one right-hand side or many.

    r = b - A x,  z = M^-1 r,  p <- z + (r'z / r_old'z_old) p,  step = r'z / p'A p          (Hestenes and Stiefel 1952)

Right-hand sides are columns and keep their own scalars; a column that has come to rest stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


class Iterate(NamedTuple):
    """Where the iteration is: all it needs to go on."""

    x: Tensor  # [n] or [n, k]
    r: Tensor  # the residual b - A x
    p: Tensor  # the search direction
    rz: Tensor  # [] or [k] r'M^-1 r


def begin(product: Product, b: Tensor, x: Tensor, precondition: Product | None = None) -> Iterate:
    """The iterate before the first step; one product unless x is zero."""
    return from_residual(x, b - product(x) if bool(x.any()) else b.clone(), precondition)


def from_residual(x: Tensor, r: Tensor, precondition: Product | None = None) -> Iterate:
    """The iterate before the first step where r = b - A x is known: no product."""
    z = precondition(r) if precondition else r
    return Iterate(x.clone(), r, z.clone(), (r * z).sum(0))


def cg(product: Product, at: Iterate, precondition: Product | None = None) -> Iterator[Iterate]:
    """Iterates after `at`, without end: a product each. What was yielded never changes."""
    x, r, p, rz = at
    tiny = torch.finfo(x.dtype).tiny
    while True:
        Ap = product(p)
        curvature = (p * Ap).sum(0)
        step = torch.where(curvature > tiny, rz / curvature.clamp_min(tiny), 0.0)
        x, r = x + step * p, r - step * Ap
        z = precondition(r) if precondition else r
        rz, before = (r * z).sum(0), rz
        p = z + torch.where(before > tiny, rz / before.clamp_min(tiny), 0.0) * p
        yield Iterate(x, r, p, rz)
