"""The few eigenvalues of a positive definite matrix that lie below a floor, lifted to it without all the others.

    T_j(C) = 2 C T_j-1(C) - T_j-2(C),    C = 2 GAP floor A^-1 - I       Chebyshev's, from a block of any vectors

|T_j| <= 1 on eigenvalues above GAP floor; it grows as (4 GAP)^j / 2 at the floor, so that few products with an inverse
that is at hand leave the lowest eigenvectors alone in the block; Rayleigh and Ritz tell them from each other.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

COUNT = 8  # vectors of a block
GAP = 3.0  # eigenvalues above so many floors are damped
DEGREE = 10
CONVERGED = 1e-8  # of the floor: the most that A q - lambda q may be
LEAST = 8 * COUNT  # order below which all eigenvalues take no longer


class Lowest(NamedTuple):
    """Eigenvalues in ascending order, their vectors, and how far A q is from lambda q."""

    values: Float[Tensor, " k"]
    Q: Float[Tensor, "D k"]
    error: Float[Tensor, " k"]


def lowest(A: Float[Tensor, "D D"], inverse: Float[Tensor, "D D"], floor: float, block: Float[Tensor, "k D"]) -> Lowest:
    """The k lowest eigenpairs, where those of interest are below the floor or near it. 2 (DEGREE + 2) k D^2 flops."""
    C = torch.mul(inverse, 4.0 * GAP * floor)
    C.diagonal().sub_(2.0)  # twice C
    before, now = block, torch.mm(block, C).mul_(0.5)
    for _ in range(DEGREE - 1):
        before, now = now, torch.addmm(before, now, C, beta=-1.0)
    Q = torch.linalg.qr(torch.mm(now, inverse * floor).T).Q  # and the highest are left by 1 / lambda
    AQ = torch.mm(Q.T, A).T  # A is symmetric, and so read row by row
    values, V = torch.linalg.eigh(torch.mm(Q.T, AQ))
    Q = torch.mm(Q, V)
    return Lowest(values, Q, (torch.mm(AQ, V) - Q * values).norm(dim=0))


def raised(A: Float[Tensor, "D D"], at: Lowest, least: float) -> Float[Tensor, "D D"]:
    """A with these eigenvalues lifted to the least."""
    return torch.addmm(A, at.Q * (least - at.values).clamp_min(0.0), at.Q.T)


def raised_inverse(inverse: Float[Tensor, "D D"], at: Lowest, least: float) -> Float[Tensor, "D D"]:
    """The inverse of what `raised` makes of A, in place."""
    return inverse.addmm_(at.Q * (1.0 / at.values.clamp_min(least) - 1.0 / at.values), at.Q.T)


def gained(at: Lowest, least: float) -> Float[Tensor, ""]:
    """By how much its log determinant is above A's."""
    return (at.values.clamp_min(least) / at.values).log().sum()
