"""Positive definite matrices: their inverses, and the projections that keep MINIMAX's where they belong."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.cholesky import cholesky
from .lowest import CONVERGED, LEAST, gained, lowest, raised, raised_inverse

SLACK = 1e-6  # by which lifted eigenvalues clear the floor, so that rounding does not ask for the next lift


def above(A: Float[Tensor, "D D"], floor: float) -> Float[Tensor, "D D"]:
    """The nearest symmetric matrix with A >= floor I, in place: A itself, by one factor, wherever it is one.

    D^3 / 3 flops where it is, 9 D^3 more where eigenvalues have to be lifted.
    """
    floor = max(floor, 4.0 * _blur(A))
    return A if _is_above(A, floor) else _projected(A, floor)


def lifted(
    A: Float[Tensor, "D D"], floor: float, lift: float, v: Float[Tensor, " D"], block: Float[Tensor, "k D"]
) -> tuple[Float[Tensor, "D D"], float]:
    """A >= floor I near A, in place: A itself, else A with `lift` on its diagonal, else the nearest to that.

    Returns its inverse and log determinant. v is any vector; where v'Av shows that A is too low, as one near the last
    eigenvector does, a factor is spared. Few eigenvalues below the floor are found from a `block` of any vectors.
    A larger lift would spare them too, but what is above F that way turns the multiplier's sign, step by step.
    4/3 D^3 flops, and 1/3 D^3 more where v does not tell; 10 D^3 where many eigenvalues are below the floor.
    """
    blur = _blur(A)
    floor, value, size = max(floor, 4.0 * blur), torch.dot(v, torch.mv(A, v)).item(), torch.dot(v, v).item()
    if value >= floor * size and _is_above(A, floor):
        return inverted(A, "A")
    A.diagonal().add_(lift)
    if value + lift * size >= floor * size and _is_above(A, floor):
        return inverted(A, "A")
    few = _few_raised(A, floor, blur, block) if len(A) >= LEAST else None
    return few or inverted(_projected(A, floor), "A")


def _few_raised(A: Tensor, floor: float, blur: float, block: Tensor) -> tuple[Tensor, float] | None:
    """The projection of A in place, by few eigenvalues, with its inverse; None, and A as it was, where they are many.

    One factor says that A is positive definite, another one that nothing is left below the floor, but for rounding.
    """
    L, info = torch.linalg.cholesky_ex(A.mT)
    if int(info):
        return None
    inverse, least = torch.cholesky_inverse(L).mT, (1.0 + SLACK) * floor
    at = lowest(A, inverse, floor, block)
    near, unsettled = raised(A, at, least), (at.values < least) & (at.error > CONVERGED * floor + blur)
    rest = near.mT.clone()
    rest.diagonal().sub_(floor - blur)
    if int(torch.linalg.cholesky_ex(rest).info + unsettled.sum()):
        return None
    A.copy_(near)
    logdet = 2.0 * L.diagonal().log().sum() + gained(at, least)
    return raised_inverse(inverse, at, least), logdet.item()


def _blur(A: Tensor) -> float:
    """What rounding makes of an eigenvalue: four times that, and A's precision can tell it from zero."""
    return torch.finfo(A.dtype).eps * A.trace().item()


def _projected(A: Tensor, floor: float) -> Tensor:
    values, Q = torch.linalg.eigh(A)
    return A.copy_((Q * values.clamp_min((1.0 + SLACK) * floor)) @ Q.T)


def _is_above(A: Tensor, floor: float) -> bool:
    shifted = A.mT.clone()  # symmetric: column by column, as LAPACK has it
    shifted.diagonal().sub_(floor)
    return not int(torch.linalg.cholesky_ex(shifted).info)


def inverted(A: Float[Tensor, "D D"], name: str) -> tuple[Float[Tensor, "D D"], float]:
    """A^-1 and log |A|. D^3 flops; jitter only where rounding made A indefinite, NotPositiveDefinite beyond that."""
    L, info = torch.linalg.cholesky_ex(A.mT)  # symmetric: column by column, as LAPACK has it
    if int(info):
        L = cholesky(A, name).L
    symmetric = torch.cholesky_inverse(L).mT  # lies row by row, like all that it is added to
    return symmetric, 2.0 * L.diagonal().log().sum().item()


def within_ball(B: Float[Tensor, "D D"]) -> Float[Tensor, "D D"]:
    """The nearest matrix with Frobenius norm at most 1, in place."""
    size = B.norm().item()
    return B.div_(size) if size > 1.0 else B
