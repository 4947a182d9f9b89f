"""Scaled squared distances as one matrix product, safe far from the origin and differentiable at zero.

    r2_ij = sum_q (x_iq - z_jq)^2 / l_q^2 = |a_i|^2 + |b_j|^2 - 2 a_i'b_j,   a = (x - c) / l, b = (z - c) / l

    scale r2_ij + shift = [-2 scale a_i, scale |a_i|^2 + shift, 1]' [b_j, 1, scale |b_j|^2]

The centre c is Z's mean: without it, inputs near 1e4 would lose eight digits to cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def squared(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor) -> Float[Tensor, "n m"]:
    """r2 [n, m] for a lengthscale of shape [d] or []. 2 n m d flops; exactly 0 between identical rows of X is Z."""
    if X.shape[1] == 1:
        return ((X - Z.T) / lengthscale).square()
    centre = Z.mean(0)
    A, B = (X - centre) / lengthscale, (Z - centre) / lengthscale
    r2 = torch.addmm(B.square().sum(1).expand(len(A), -1), A, B.T, alpha=-2.0)
    r2 = r2 + A.square().sum(1)[:, None]
    if X is Z:
        r2 = r2 - torch.diag_embed(r2.diagonal())
    return r2.clamp_min(0.0)


def affine(
    X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor, scale: float, shift: float | Tensor
) -> Callable[[slice, Tensor], Tensor]:
    """What writes scale r2 + shift of some rows of X into a buffer [rows, m]: one product, 2 m (d + 2) flops a row.

    Neither differentiable nor clamped: where r2 is 0 it may be a rounding below.
    """
    if X.shape[1] == 1:
        centre, unit = Z.mean(0), lengthscale / math.sqrt(abs(scale))
        A, B, added = (X - centre) / unit, ((Z - centre) / unit).T.contiguous(), torch.as_tensor(shift).to(X)
        sign = math.copysign(1.0, scale)
        return lambda rows, out: torch.addcmul(added, torch.sub(A[rows], B, out=out), out, value=sign, out=out)
    P, Q = halves(X, Z, lengthscale, scale, shift)
    Q = Q.T.contiguous()
    return lambda rows, out: torch.mm(P[rows], Q, out=out)


def halves(
    X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor, scale: float, shift: float | Tensor
) -> tuple[Float[Tensor, "n d+2"], Float[Tensor, "m d+2"]]:
    """P and Q with P Q' = scale r2 + shift; differentiable."""
    centre = Z.mean(0)
    A, B = (X - centre) / lengthscale, (Z - centre) / lengthscale
    a, b = (scale * side.square().sum(1, keepdim=True) for side in (A, B))
    return torch.cat([-2.0 * scale * A, a + shift, torch.ones_like(a)], 1), torch.cat([B, torch.ones_like(b), b], 1)


def root(r2: Tensor) -> Tensor:
    """sqrt(r2) whose gradient at 0 is 0 instead of infinite."""
    zero = r2 == 0.0
    return torch.where(zero, torch.zeros_like(r2), torch.where(zero, torch.ones_like(r2), r2).sqrt())
