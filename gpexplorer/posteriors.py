"""Predictive distributions, as functions of inputs; each is built once and then costs only its own rows.

    l* = L_mm^-1 k_m(x*)
    mean = l*' A^-1 L'y          O(m) a point, after the kernel row
    var  = k(x*, x*) - l*'l* + s2 l*' A^-1 l*        O(m^2) a point

Projected process and variational free energy share these equations (Cao et al. 2013, section 2; Titsias 2009, eq 6).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .linalg.blocks import row_blocks
from .objectives import Nystrom
from .problem import Kernel, Posterior, Prediction


def nystrom_posterior(kernel: Kernel, theta: Float[Tensor, " p"], Z: Any, now: Nystrom) -> Posterior:
    """The posterior of f given inducing inputs Z [m, d] and the factors left by `nystrom`."""
    weights = torch.cholesky_solve(now.c[:, None], now.L_A)  # [m, 1]
    alpha = torch.linalg.solve_triangular(now.L_mm.T, weights, upper=True)[:, 0]  # [m]
    m = len(Z)

    def predict(X: Any) -> Prediction:
        t = len(X)
        mean, var = alpha.new_empty(t), kernel.diag(theta, X)
        for rows in row_blocks(t, 3 * alpha.element_size() * m):
            K = kernel(theta, Z, X[rows])  # [m, block]
            mean[rows] = K.T @ alpha
            half = torch.linalg.solve_triangular(now.L_mm, K, upper=False)
            var[rows] -= half.square().sum(0)
            var[rows] += now.s2 * torch.linalg.solve_triangular(now.L_A, half, upper=False).square().sum(0)
        return Prediction(mean, var.clamp_min_(0.0))

    return predict
