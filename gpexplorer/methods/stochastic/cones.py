"""Euclidean projections that keep MINIMAX's matrices where they belong."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

SLACK = 1e-6  # by which lifted eigenvalues clear the floor, so that rounding does not ask for the next lift


def above(A: Float[Tensor, "D D"], floor: Tensor) -> Float[Tensor, "D D"]:
    """The nearest symmetric matrix with A >= floor I: A itself, by one Cholesky factor, wherever it is one.

    D^3 / 3 flops where it is, 9 D^3 more where eigenvalues have to be lifted.
    """
    floor = torch.maximum(floor, 4.0 * torch.finfo(A.dtype).eps * A.diagonal().sum())  # what A's precision can tell
    shifted = A.clone()
    shifted.diagonal().sub_(floor)
    if int(torch.linalg.cholesky_ex(shifted).info) == 0:
        return A
    values, Q = torch.linalg.eigh(A)
    return (Q * values.clamp_min((1.0 + SLACK) * floor)) @ Q.T


def within_ball(B: Float[Tensor, "D D"]) -> Float[Tensor, "D D"]:
    """The nearest matrix with Frobenius norm at most 1, in place."""
    return B.div_(B.norm().clamp_min(1.0))
