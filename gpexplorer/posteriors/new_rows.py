"""New rows for a posterior of fixed weights: the same as a fit to old and new rows together, at the cost of the new.

    A' = A + sum_i w_i phi_i phi_i',   c' = c + sum_i w_i y_i phi_i,   w_i = s2 / V_i           V_i the noise of row i

phi are the whitened kernel columns l of inducing inputs, or the features of a regression. The factor of A' is the
triangle of a QR factorisation of [L, sqrt(w) phi]', which does not square the condition number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..linalg.blocks import row_blocks
from .weights import PrecisionFactor


def without_rows(weights: PrecisionFactor) -> PrecisionFactor:
    """The distribution of the same weights before any row: A = s2 I, so that they are standard normal."""
    eye = torch.eye(len(weights.mean)).to(weights.L)
    return PrecisionFactor(torch.zeros_like(weights.mean), weights.s2**0.5 * eye, weights.s2)


def updated(weights: PrecisionFactor, Phi: Tensor, y: Tensor, V: Tensor) -> PrecisionFactor:
    """Add rows to a distribution of weights.

    Parameters
    ----------
    weights : PrecisionFactor
        Mean A^-1 c [r] and the Cholesky factor of A [r, r].
    Phi : Tensor [r, b]
        One column per new row.
    y : Tensor [b]
        Targets.
    V : Tensor [b]
        Noise variance of each new row.

    Returns
    -------
    PrecisionFactor

    Notes
    -----
    2 r^2 (b + r) flops per block of about r rows.
    """
    L, c = weights.L, weights.L @ (weights.L.T @ weights.mean)
    root = (weights.s2 / V).sqrt()  # [b]
    for rows in row_blocks(len(y), 1, max(len(L), 1)):
        scaled = Phi[:, rows] * root[rows]  # [r, block]
        R = torch.linalg.qr(torch.cat([L, scaled], 1).T, mode="r").R  # [r, r] A' = R'R
        L = (R * R.diagonal().sign()[:, None]).T
        c = c + scaled @ (root[rows] * y[rows])
    return PrecisionFactor(torch.cholesky_solve(c[:, None], L)[:, 0], L.contiguous(), weights.s2)
