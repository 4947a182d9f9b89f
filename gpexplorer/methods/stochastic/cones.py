"""Positive definite matrices: their inverses, and the projections that keep MINIMAX's where they belong."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.cholesky import cholesky

SLACK = 1e-6  # by which lifted eigenvalues clear the floor, so that rounding does not ask for the next lift


def above(A: Float[Tensor, "D D"], floor: float, lift: float = 0.0) -> Float[Tensor, "D D"]:
    """The nearest symmetric matrix with A >= floor I, in place: A itself, by one factor, wherever it is one.

    Where it is not, and `lift` on its diagonal makes it one, that is taken for near enough. D^3 / 3 flops where it is,
    9 D^3 more where eigenvalues have to be lifted.
    """
    floor = max(floor, 4.0 * torch.finfo(A.dtype).eps * A.trace().item())  # what A's precision can tell
    if _is_above(A, floor):
        return A
    A.diagonal().add_(lift)
    if lift and _is_above(A, floor):
        return A
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
