"""The posterior of sparse GPs, as a function of inputs.

    l* = L_mm^-1 k_m(x*)
    mean = l*' A^-1 L'y                               O(m) per point, after the kernel row
    var  = k(x*, x*) - l*'l* + s2 l*' A^-1 l*         O(m^2) per point

The letters are those of `objectives`. Projected process and variational free energy have the same posterior (Cao et al.
2013, section 2; Titsias 2009, eq 6).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .linalg.blocks import row_blocks
from .objectives import Nystrom
from .problem import Kernel, Posterior, Prediction


def nystrom_posterior(kernel: Kernel, theta: Float[Tensor, " p"], Z: Any, factors: Nystrom) -> Posterior:
    """Make the posterior of f from the factors that `nystrom` has computed.

    Parameters
    ----------
    kernel : Kernel
        Covariance function.
    theta : Tensor [p]
        Log-hyperparameters.
    Z : Tensor [m, d] or sequence
        Inducing inputs.
    factors : Nystrom
        The result of `nystrom` for the same theta and Z.

    Returns
    -------
    Posterior
        A function from inputs [t, d] to mean [t] and variance [t] of f. Variances are never negative.
    """
    weights = torch.cholesky_solve(factors.c[:, None], factors.L_A)  # [m, 1] A^-1 L'y
    alpha = torch.linalg.solve_triangular(factors.L_mm.T, weights, upper=True)[:, 0]  # [m]
    m = len(Z)

    def predict(X: Any) -> Prediction:
        t = len(X)
        mean, var = alpha.new_empty(t), kernel.diag(theta, X)
        for rows in row_blocks(t, 3 * alpha.element_size() * m):
            K = kernel(theta, Z, X[rows])  # [m, block]
            mean[rows] = K.T @ alpha
            L_star = torch.linalg.solve_triangular(factors.L_mm, K, upper=False)  # [m, block] columns l*
            var[rows] -= L_star.square().sum(0)
            var[rows] += factors.s2 * torch.linalg.solve_triangular(factors.L_A, L_star, upper=False).square().sum(0)
        return Prediction(mean, var.clamp_min_(0.0))

    return predict
