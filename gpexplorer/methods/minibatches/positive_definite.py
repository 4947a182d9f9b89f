"""Positive definite matrices: their inverses, and the projections that keep MINIMAX's where they belong."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.cholesky import cholesky

SLACK = 1e-6  # by which lifted eigenvalues clear the floor, so that rounding does not ask for the next lift
CLEAR = 0.5  # floors over eigenvalues, their sum: less, and none is near the floor
FALLEN = 4.0  # (floor / eigenvalue)^k, its root mean square: less where all fell by a rate below 1/2
STEEPEST = 6  # squarings: k is 64 at most


def above(A: Float[Tensor, "D D"], floor: float) -> Float[Tensor, "D D"]:
    """The nearest symmetric matrix with A >= floor I, in place: A itself, by one factor, wherever it is one.

    D^3 / 3 flops where it is, 9 D^3 more where eigenvalues have to be lifted.
    """
    floor = max(floor, 4.0 * _blur(A))
    return A if _is_above(A, floor) else _projected(A, floor)


def lifted(A: Float[Tensor, "D D"], floor: float, rate: float) -> tuple[Float[Tensor, "D D"], float]:
    """A >= floor I, in place, where a step has taken eigenvalues below it by the fraction `rate`; A's inverse, log |A|.

    In floors, f(x) = x + c x^-k with c = k^k / (k + 1)^(k + 1) is no less than 1 for any x > 0. With k about 1 / rate,
    eigenvalues at the floor are lifted by 1 / (e k) of it, and larger ones by next to nothing: 3e-7 of two floors where
    k = 16. That takes products with an inverse that is at hand; the nearest matrix would take all eigenvalues, and is
    left for what has fallen farther. 2 D^3 flops and log2 k products; 10 D^3 more where eigenvalues are computed.
    """
    floor = max(floor, 4.0 * _blur(A))
    L, info = torch.linalg.cholesky_ex(A.mT)
    if int(info):
        return inverted(_projected(A, floor), "A")
    inverse, logdet = _by_factor(L)
    least, squares = (1.0 + SLACK) * floor, squarings(rate)
    Y, k = inverse * least, 2**squares
    if Y.trace().item() < CLEAR:
        return inverse, logdet
    for _ in range(squares):
        Y = torch.mm(Y, Y)
    if Y.norm().item() > FALLEN * math.sqrt(len(A)):
        return inverted(_projected(A, floor), "A")
    return inverted(A.add_(Y, alpha=least * (k / (k + 1)) ** k / (k + 1)), "A")


def squarings(rate: float) -> int:
    """log2 k, for the largest power of two k that is no more than 1 / rate."""
    return min(max(math.floor(-math.log2(rate)), 0), STEEPEST)


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
    return _by_factor(L)


def _by_factor(L: Tensor) -> tuple[Tensor, float]:
    """The inverse, which lies row by row like all that it is added to, and the log determinant."""
    return torch.cholesky_inverse(L).mT, 2.0 * L.diagonal().log().sum().item()


def within_ball(B: Float[Tensor, "D D"]) -> Float[Tensor, "D D"]:
    """The nearest matrix with Frobenius norm at most 1, in place."""
    size = B.norm().item()
    return B.div_(size) if size > 1.0 else B
