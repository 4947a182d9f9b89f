"""Scaled squared distances as one matrix product, safe far from the origin and differentiable at zero.

    r2_ij = sum_q (x_iq - z_jq)^2 / l_q^2 = |a_i|^2 + |b_j|^2 - 2 a_i'b_j,   a = (x - c) / l, b = (z - c) / l

The centre c is Z's mean: without it, inputs near 1e4 would lose eight digits to cancellation.
"""

from __future__ import annotations

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


def root(r2: Tensor) -> Tensor:
    """sqrt(r2) whose gradient at 0 is 0 instead of infinite."""
    zero = r2 == 0.0
    return torch.where(zero, torch.zeros_like(r2), torch.where(zero, torch.ones_like(r2), r2).sqrt())
