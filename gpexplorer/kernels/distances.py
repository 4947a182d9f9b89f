"""Squared distances between scaled rows, computed by one matrix product, and the size of blocks of covariances.

With A = (X - c) / l and B = (Z - c) / l, rows a_i and b_j, the squared distance is

    r2_ij = sum_q (x_iq - z_jq)^2 / l_q^2 = |a_i|^2 + |b_j|^2 - 2 a_i'b_j

and an affine function of it is one product of two factors with d + 2 columns:

    scale r2_ij + shift = P_i Q_j',   P_i = [-2 scale a_i, scale |a_i|^2 + shift, 1],   Q_j = [b_j, 1, scale |b_j|^2]

The centre c is the mean of Z. Without it, inputs near 1e4 would lose eight digits to cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

FILL_BYTES = 2**20  # a block of this size stays in the cache while its distances become covariances
FILL_ROWS = 8  # a block has at least this many rows


def squared_distances(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor) -> Float[Tensor, "n m"]:
    """Squared distances r2 between the rows of X and of Z, in units of the lengthscale.

    Parameters
    ----------
    X, Z : Tensor [n, d], [m, d]
        Inputs.
    lengthscale : Tensor [d] or []
        One lengthscale per input, or one for all.

    Returns
    -------
    Tensor [n, m]
        Never negative. The diagonal is exactly 0 if X and Z are the same object. Differentiable.

    Notes
    -----
    2 n m d flops. One input is subtracted directly, which loses no digits.
    """
    if X.shape[1] == 1:
        return ((X - Z.T) / lengthscale).square()
    centre = Z.mean(0)
    A, B = (X - centre) / lengthscale, (Z - centre) / lengthscale
    r2 = torch.addmm(B.square().sum(1).expand(len(A), -1), A, B.T, alpha=-2.0)  # [n, m]
    r2 = r2 + A.square().sum(1)[:, None]
    if X is Z:
        r2 = r2 - torch.diag_embed(r2.diagonal())
    return r2.clamp_min(0.0)


def affine_distances(
    X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor, scale: float, shift: float | Tensor
) -> Callable[[slice, Tensor], Tensor]:
    """Prepare to compute scale r2 + shift by blocks of rows, each with one matrix product.

    Parameters
    ----------
    X, Z : Tensor [n, d], [m, d]
        Inputs.
    lengthscale : Tensor [d] or []
        One lengthscale per input, or one for all.
    scale, shift : float
        The affine function of the squared distance.

    Returns
    -------
    callable
        `write(rows, out)` writes scale r2 + shift for these rows of X into `out` [rows, m] and returns `out`.

    Notes
    -----
    2 m (d + 2) flops per row. The result is not differentiable, and it is not clamped: where r2 is 0 it may be wrong
    by a rounding error in either direction.
    """
    if X.shape[1] == 1:
        centre, unit = Z.mean(0), lengthscale / math.sqrt(abs(scale))
        A, B, offset = (X - centre) / unit, ((Z - centre) / unit).T.contiguous(), torch.as_tensor(shift).to(X)
        sign = math.copysign(1.0, scale)
        return lambda rows, out: torch.addcmul(offset, torch.sub(A[rows], B, out=out), out, value=sign, out=out)
    P, Q = distance_factors(X, Z, lengthscale, scale, shift)
    Q = Q.T.contiguous()  # [d + 2, m]
    return lambda rows, out: torch.mm(P[rows], Q, out=out)


def distance_factors(
    X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor, scale: float, shift: float | Tensor
) -> tuple[Float[Tensor, "n d+2"], Float[Tensor, "m d+2"]]:
    """Return P and Q of the module docstring, so that P Q' = scale r2 + shift. Both are differentiable."""
    centre = Z.mean(0)
    A, B = (X - centre) / lengthscale, (Z - centre) / lengthscale
    a2, b2 = (scale * side.square().sum(1, keepdim=True) for side in (A, B))
    P = torch.cat([-2.0 * scale * A, a2 + shift, torch.ones_like(a2)], 1)
    return P, torch.cat([B, torch.ones_like(b2), b2], 1)


def safe_sqrt(r2: Tensor) -> Tensor:
    """Return sqrt(r2), with gradient 0 instead of infinity where r2 is 0."""
    zero = r2 == 0.0
    return torch.where(zero, torch.zeros_like(r2), torch.where(zero, torch.ones_like(r2), r2).sqrt())
