"""The posteriors of sparse GPs and of the exact GP, as functions of inputs.

    l* = L_mm^-1 k_m(x*)
    mean = l*' A^-1 L'y                               O(m) per point, after the kernel row
    var  = k(x*, x*) - l*'l* + s2 l*' A^-1 l*         O(m^2) per point

The letters are those of `objectives`. Projected process and variational free energy have the same posterior (Cao et al.
2013, section 2; Titsias 2009, eq 6). The exact GP predicts with A = K + s2 I:

    mean = k(x*, X) A^-1 y                            O(n) per point
    var  = k(x*, x*) - k(x*, X) A^-1 k(X, x*)         O(n^2) per point, Rasmussen and Williams (2006), eqs 2.25, 2.26
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .linalg.blocks import row_blocks
from .linalg.cholesky import cholesky
from .objectives import Nystrom, noise_variance
from .problem import Dataset, Kernel, Posterior, Prediction


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


def exact_gp_posterior(kernel: Kernel, theta: Float[Tensor, " p"], train: Dataset) -> Posterior:
    """Make the posterior of f of the exact GP by a Cholesky factor.

    Parameters
    ----------
    kernel : Kernel
        Covariance function.
    theta : Tensor [p]
        Log-hyperparameters.
    train : Dataset
        n rows; they may be alike.

    Returns
    -------
    Posterior
        A function from inputs [t, d] to mean [t] and variance [t] of f. Variances are never negative.

    Raises
    ------
    NotPositiveDefinite
        If K + s2 I is not positive definite even with jitter.

    Notes
    -----
    The factor costs n^3 / 3 flops and n^2 numbers once; a variance costs n^2 flops per test row.
    """
    A = kernel(theta, train.X, train.X)  # [n, n]
    A.diagonal().add_(noise_variance(theta))
    L = cholesky(A, "K + s2 I").L
    alpha = torch.cholesky_solve(train.y[:, None], L)[:, 0]  # [n]

    def predict(X: Any) -> Prediction:
        mean, var = train.y.new_empty(len(X)), kernel.diag(theta, X)
        for rows in row_blocks(len(X), 2 * mean.element_size() * len(train)):
            K = kernel(theta, train.X, X[rows])  # [n, block]
            mean[rows] = K.T @ alpha
            var[rows] -= torch.linalg.solve_triangular(L, K, upper=False).square().sum(0)
        return Prediction(mean, var.clamp_min_(0.0))

    return predict
