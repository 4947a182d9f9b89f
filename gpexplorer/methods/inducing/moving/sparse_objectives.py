"""The gradient of the sparse objectives in theta and in inducing inputs Z, which may lie anywhere.

`objectives` computes the derivatives in the covariances K_mn and K_mm, for all four objectives and in one pass over the
rows. Here they go on to theta and Z. For a stationary kernel both come from one pass over G = dF/dk(Z, X): with
W = G * sd^2 dk/dr2,

    d / d log l_q = sum_ij W_ij (z_iq - x_jq)^2 / l_q^2,    d / d z_i = sum_j W_ij (x_j - z_i) / l^2

and the derivative in the log sd is that trace tr S which `objectives.pull_back` returns. Other kernels use
`theta_gradient` and autograd.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ....kernels.distances import squared_distances, weighted_square_sums
from ....objectives import Nystrom, pull_back
from ....problem import Dataset


class Gradient(NamedTuple):
    """The gradient of F."""

    theta: Tensor  # [p]
    Z: Tensor  # [m, d]


def sparse_gradient(
    kernel: Any, theta: Float[Tensor, " p"], train: Dataset, Z: Float[Tensor, "m d"], likelihood: str
) -> tuple[Nystrom, Gradient]:
    """Compute what `objectives.nystrom` does, and the gradient of F in theta and Z.

    Parameters
    ----------
    kernel : Covariance
        A kernel of columns of numbers.
    theta : Tensor [p]
        Log-hyperparameters.
    train : Dataset
        n rows.
    Z : Tensor [m, d]
        Inducing inputs.
    likelihood : {"pp", "vfe", "tight-vfe", "fitc"}
        Which objective.

    Raises
    ------
    NotPositiveDefinite
        K_mm has no Cholesky factor, even with jitter.

    Notes
    -----
    About 6 n m^2 flops, 10 n m^2 for FITC and the tight VFE, and 3 n m kernel entries. Memory is n m numbers, or, where
    these would take more than `objectives.KEPT_BYTES`, O(n) numbers for n m^2 flops and n m kernel entries more.
    """
    gradient = Gradient(torch.zeros_like(theta), torch.zeros_like(Z))

    def receive(X: Tensor, G: Tensor) -> None:
        add_gradient(gradient, kernel, theta, (Z, X), G, symmetric=X is Z)

    model, rest, trace_S = pull_back(kernel, theta, train, Z, likelihood, receive)
    gradient.theta.add_(rest)
    if _is_simple(kernel):  # theta[0] is a log sd: its derivative is sum G K over K_mn, plus that over K_mm
        gradient.theta[0] += trace_S
    return model, gradient


def add_gradient(
    gradient: Gradient, kernel: Any, theta: Tensor, pair: tuple[Tensor, Tensor], G: Tensor, symmetric: bool = False
) -> None:
    """Add the gradient of sum_ij G_ij k(z_i, x_j) in theta and Z.

    Parameters
    ----------
    gradient : Gradient
        Changed in place.
    theta : Tensor [p]
    pair : tuple of Tensor
        Z [m, d] and X [k, d].
    G : Tensor [m, k]
    symmetric : bool
        Whether X is Z itself, so that both arguments of k move; otherwise X is fixed.

    Notes
    -----
    For a stationary kernel both parts come from one pass: with W = G * sd^2 dk/dr2,

        d / d log l_q = sum_ij W_ij (z_iq - x_jq)^2 / l_q^2,    d / d z_i = sum_j W_ij (x_j - z_i) / l^2

    The derivative in the log sd, 2 sum G K, is left to the caller, who has it as a trace. Other kernels use
    `theta_gradient` and autograd.
    """
    Z, X = pair
    if not _is_simple(kernel):
        gradient.theta.add_(kernel.theta_gradient(theta, Z, X, G))
        gradient.Z.add_(_autograd_in_Z(kernel, theta, Z, X, G + G.T if symmetric else G))
        return
    lengthscale, centre = theta[1:-1].exp(), X.mean(0)
    X = X - centre
    Z = X if symmetric else Z - centre  # the same object, so that distances on the diagonal are exactly 0
    W = (
        kernel.profile_derivative(theta, squared_distances(Z, X, lengthscale)).mul_(G).mul_(torch.exp(2.0 * theta[0]))
    )  # [m, k]
    WX, row_sums, column_sums = W @ X, W.sum(1), W.sum(0)
    spread = weighted_square_sums(W, Z, X, lengthscale)  # [d]
    gradient.theta[1:-1] += spread if len(lengthscale) == len(spread) else spread.sum()
    in_Z = WX - Z * row_sums[:, None]
    if symmetric:
        in_Z = in_Z + W.T @ Z - Z * column_sums[:, None]
    gradient.Z.add_(in_Z / lengthscale.square())


def _is_simple(kernel: Any) -> bool:
    """Return whether theta is [log sd, log lengthscales, log noise] of a stationary kernel, and nothing more."""
    return hasattr(kernel, "profile_derivative") and all(name.startswith("lengthscale") for name in kernel.names[1:-1])


def _autograd_in_Z(kernel: Any, theta: Tensor, Z: Tensor, X: Tensor, G: Tensor) -> Tensor:
    X = X.clone() if X is Z else X
    with torch.enable_grad():
        points = Z.detach().clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad((kernel(theta, points, X) * G).sum(), points)
    return gradient
