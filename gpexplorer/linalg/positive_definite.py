"""Positive definite matrices: inverses, and projections onto matrices with a lower bound on the eigenvalues."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .cholesky import cholesky
from .deferred_reads import Number, add_multiple, at_least, happens, number

SLACK = 1e-6  # lifted eigenvalues exceed the floor by this fraction, so that rounding does not cause the next lift
MARGIN = 0.5  # a lift ends above the floor by this times the rate, so that the next steps need none
MAX_RATIO = 4.0  # root mean square of (floor / eigenvalue)^k up to which the smooth lift is used
MAX_SQUARINGS = 6  # so that k is at most 64


def project_above(A: Float[Tensor, "D D"], floor: Number) -> Float[Tensor, "D D"]:
    """Replace A in place by the nearest symmetric matrix with A >= floor I.

    Cost: D^3 / 3 flops if A satisfies the bound already, 9 D^3 more if eigenvalues have to be raised.
    """
    floor = at_least(floor, 4.0 * _rounding(A))
    return _project(A, floor) if happens(_factor_above(A, floor).info) else A


def lift_above(A: Float[Tensor, "D D"], floor: Number, rate: float) -> tuple[Float[Tensor, "D D"], Number]:
    """Raise the eigenvalues of A that a step has taken below `floor`, in place, by a smooth function.

    Where all eigenvalues are at least `floor`, A stays as it is. Otherwise, with x = eigenvalue / least and least =
    (1 + MARGIN rate) floor, f(x) = x + c x^-k with c = k^k / (k + 1)^(k + 1) is at least 1 for every x > 0. For k about
    1 / rate, eigenvalues at `least` are raised by 1 / (e k) of it, and larger ones hardly: by 3e-7 at twice `least` for
    k = 16. The function needs only products with the inverse, which is known; the nearest matrix would need all
    eigenvalues, and is used only if eigenvalues are far below the floor. Most steps need no lift because of the margin.

    Parameters
    ----------
    A : Tensor [D, D]
        Symmetric matrix [D, D], changed in place.
    floor : Number
        Lower bound of the eigenvalues.
    rate : float
        The fraction by which the last step may have decreased an eigenvalue.

    Returns
    -------
    The inverse of A [D, D] and log |A|, after the lift.

    Notes
    -----
    Cost: 4/3 D^3 flops without a lift; with one, D^3 and log2 k matrix products more, and another 10 D^3 if eigenvalues
    are computed.
    """
    floor = at_least(floor, 4.0 * _rounding(A))
    is_below = number(_factor_above(A, floor).info)
    L, info = torch.linalg.cholesky_ex(A.mT)
    if happens(info):
        return inverse_and_logdet(_project(A, floor), "A")
    inverse, logdet = _from_factor(L)
    if not isinstance(is_below, Tensor) and not is_below:
        return inverse, logdet
    least, squarings = (1.0 + SLACK + MARGIN * min(rate, 1.0)) * floor, num_squarings(rate)
    Y, k = inverse * least, 2**squarings
    for _ in range(squarings):
        Y = torch.mm(Y, Y)
    is_far_below = Y.norm() > MAX_RATIO * math.sqrt(len(A))
    height = least * (k / (k + 1)) ** k / (k + 1)
    if isinstance(is_below, Tensor):  # on a GPU, where the host does not know whether any eigenvalue is below the floor
        is_below = is_below > 0
        is_far_below, Y, height = is_far_below & is_below, Y.where(is_below, 0.0), height * is_below
    if happens(is_far_below):
        return inverse_and_logdet(_project(A, floor), "A")
    return inverse_and_logdet(add_multiple(A, Y, height), "A")


def num_squarings(rate: float) -> int:
    """Return log2 k for the largest power of two k that is at most 1 / rate, limited to `MAX_SQUARINGS`."""
    return min(max(math.floor(-math.log2(rate)), 0), MAX_SQUARINGS)


def inverse_and_logdet(A: Float[Tensor, "D D"], name: str) -> tuple[Float[Tensor, "D D"], Number]:
    """Return A^-1 and log |A|, with jitter only if rounding has made A indefinite. D^3 flops.

    Raises
    ------
    NotPositiveDefinite : if the jitter does not help; `name` is the name of the matrix in the message.
    """
    L, info = torch.linalg.cholesky_ex(A.mT)  # A is symmetric; its transpose has the memory layout of LAPACK
    if happens(info):
        L = cholesky(A, name).L
    return _from_factor(L)


def project_to_unit_ball(B: Float[Tensor, "D D"]) -> Float[Tensor, "D D"]:
    """Replace B in place by the nearest matrix whose Frobenius norm is at most 1."""
    size = number(B.norm())
    if isinstance(size, Tensor):
        return B.div_(size.clamp_min(1.0))
    return B.div_(size) if size > 1.0 else B


def _rounding(A: Tensor) -> Number:
    """The rounding error of an eigenvalue; A's precision can distinguish four times this value from zero."""
    return torch.finfo(A.dtype).eps * number(A.trace())


def _project(A: Tensor, floor: Number) -> Tensor:
    values, Q = torch.linalg.eigh(A)
    return A.copy_((Q * values.clamp_min((1.0 + SLACK) * floor)) @ Q.T)


def _factor_above(A: Tensor, floor: Number) -> Any:
    """Factor A - floor I; the error code is not zero where an eigenvalue of A is below the floor."""
    shifted = A.mT.clone()  # A is symmetric; its transpose has the memory layout of LAPACK
    shifted.diagonal().sub_(floor)
    return torch.linalg.cholesky_ex(shifted)


def _from_factor(L: Tensor) -> tuple[Tensor, Number]:
    """The inverse, stored row by row like the matrices it is added to, and the log determinant."""
    return torch.cholesky_inverse(L).mT, 2.0 * number(L.diagonal().log().sum())
