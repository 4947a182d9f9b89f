"""Three sparse likelihoods as functions of theta and of inducing inputs Z that may lie anywhere, with both gradients.

    C = Khat + V,   Khat = L L',   L' = L_mm^-1 K_mn [m, n],   D = diag(K - Khat),   V diagonal:
    PP    V = s2                F = (y'C^-1 y + log|C|) / 2                            Cao et al. 2013, eq 4
    VFE   V = s2                F = (y'C^-1 y + log|C| + sum D / s2) / 2               eq 5; Titsias 2009
    FITC  V = s2 + D            F = (y'C^-1 y + log|C|) / 2                            Snelson and Ghahramani 2006

One gradient serves all three. With B = I + L'V^-1 L, a = B^-1 L'V^-1 y, beta = C^-1 y = V^-1 (y - L a) and
M_ii = (C^-1)_ii - beta_i^2, let delta = 0 (PP), 1/s2 (VFE), M_ii (FITC). Then

    inner    = B^-1 L'V^-1 - a beta' - L' diag(delta)                                  [m, n]
    dF/dK_mn = L_mm^-T inner
    dF/dK_mm = -L_mm^-T (inner L) L_mm^-1 / 2,   inner L = I - B^-1 - a a' - L' diag(delta) L
    dF/dk_ii = delta_i / 2
    dF/ds2   = (sum M_ii - [sum D / s2^2 for VFE]) / 2
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...kernels.distances import squared
from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky, logdet
from ...objectives import Nystrom, Terms, noise_variance
from ...problem import Dataset, Kernel


class Slopes(NamedTuple):
    """The gradient of F."""

    theta: Tensor  # [p]
    Z: Tensor  # [m, d]


class _Factors(NamedTuple):
    """What value and gradient share."""

    L_mm: Tensor  # [m, m]
    Lt: Tensor  # [m, n]
    L_B: Tensor  # [m, m] Cholesky factor of B
    c: Tensor  # [m] L'V^-1 y
    V: Tensor  # [n]
    D: Tensor  # [n]
    s2: float
    jitter: float


def total(terms: Terms, likelihood: str) -> float:
    """F from its terms: the trace counts in VFE alone."""
    return terms.total("vfe" if likelihood == "vfe" else "pp")


def sparse(kernel: Kernel, theta: Float[Tensor, " p"], train: Dataset, Z: Tensor, likelihood: str) -> Nystrom:
    """Terms, and the factors `nystrom_posterior` predicts from: L_A = s L_B and c = s2 L'V^-1 y. 2 n m^2 flops."""
    f = _factors(kernel, theta, train, Z, likelihood)
    return Nystrom(_terms(f, train.y), f.L_mm, math.sqrt(f.s2) * f.L_B, f.s2 * f.c, f.s2, f.jitter)


def sparse_gradient(
    kernel: Any, theta: Float[Tensor, " p"], train: Dataset, Z: Float[Tensor, "m d"], likelihood: str
) -> tuple[Nystrom, Slopes]:
    """Terms and the gradient of F in theta and Z. About 6 n m^2 flops and 3 n m kernel entries; O(n m) memory."""
    f = _factors(kernel, theta, train, Z, likelihood)
    n, m, y = len(train), len(Z), train.y
    a = torch.cholesky_solve(f.c[:, None], f.L_B)[:, 0]  # [m]
    beta = (y - f.Lt.T @ a) / f.V  # [n]
    B_inv, eye = torch.cholesky_inverse(f.L_B), torch.eye(m).to(y)
    S = eye - B_inv - torch.outer(a, a)  # [m, m], inner L

    slopes, M = Slopes(torch.zeros_like(theta), torch.zeros_like(Z)), torch.empty_like(y)
    delta = torch.full_like(y, 1.0 / f.s2 if likelihood == "vfe" else 0.0)
    for rows in row_blocks(n, 3 * y.element_size() * m):
        Lt, V = f.Lt[:, rows], f.V[rows]
        inner = (B_inv @ Lt).div_(V)  # [m, block]
        M[rows] = 1.0 / V - (inner * Lt).sum(0) / V - beta[rows].square()
        if likelihood == "fitc":
            delta[rows] = M[rows]
        inner.addr_(a, beta[rows], alpha=-1.0)
        if likelihood != "pp":
            scaled = Lt * delta[rows]
            S.addmm_(scaled, Lt.T, alpha=-1.0)
            inner.sub_(scaled)
        _add(slopes, kernel, theta, Z, train.X[rows], _solve_t(f.L_mm, inner))

    G = -0.5 * _solve_t(f.L_mm, _solve_t(f.L_mm, S).T)  # [m, m]
    slopes.theta.add_(kernel.contract(theta, Z, Z, G))
    slopes.Z.add_(input_slopes(kernel, theta, Z, Z, G + G.T))
    if likelihood != "pp":
        slopes.theta.add_(kernel.contract_diag(theta, train.X, 0.5 * delta))
    slope = float(M.sum()) - (float(f.D.sum()) / f.s2**2 if likelihood == "vfe" else 0.0)
    slopes.theta[-1] += slope * f.s2
    now = Nystrom(_terms(f, y), f.L_mm, math.sqrt(f.s2) * f.L_B, f.s2 * f.c, f.s2, f.jitter)
    return now, slopes


def _factors(kernel: Kernel, theta: Tensor, train: Dataset, Z: Tensor, likelihood: str) -> _Factors:
    L_mm, jitter = cholesky(kernel(theta, Z, Z), "K_mm")
    Lt = torch.linalg.solve_triangular(L_mm, kernel(theta, Z, train.X), upper=False)
    s2, D = noise_variance(theta), kernel.diag(theta, train.X)
    for rows in row_blocks(len(D), Lt.element_size() * len(Z)):
        D[rows] -= Lt[:, rows].square().sum(0)
    V = s2 + D.clamp_min(0.0) if likelihood == "fitc" else torch.full_like(D, s2)
    B, c = torch.eye(len(Z)).to(Lt), Lt @ (train.y / V)
    for rows in row_blocks(len(D), Lt.element_size() * len(Z)):
        B.addmm_(Lt[:, rows] / V[rows], Lt[:, rows].T)
    return _Factors(L_mm, Lt, cholesky(B, "I + L'V^-1 L").L, c, V, D, s2, jitter)


def _terms(f: _Factors, y: Tensor) -> Terms:
    half = torch.linalg.solve_triangular(f.L_B, f.c[:, None], upper=False)
    fit = float((y * y / f.V).sum()) - float(half.square().sum())
    return Terms(fit, float(f.V.log().sum()) + logdet(f.L_B), float(f.D.sum()) / f.s2)


def _add(slopes: Slopes, kernel: Any, theta: Tensor, Z: Tensor, X: Tensor, G: Tensor) -> None:
    """Add the part of the gradient that goes through k(Z, X), given dF/dK [m, block]."""
    slopes.theta.add_(kernel.contract(theta, Z, X, G))
    slopes.Z.add_(input_slopes(kernel, theta, Z, X, G))


def input_slopes(kernel: Any, theta: Tensor, Z: Float[Tensor, "m d"], X: Tensor, G: Tensor) -> Float[Tensor, "m d"]:
    """Gradient of sum_ij G_ij k(z_i, x_j) in Z, X held fixed.

    Stationary kernels in closed form: with W = G * sd^2 slope(r2), row i is (sum_j W_ij x_j - z_i sum_j W_ij) / l^2;
    others by autograd.
    """
    if not hasattr(kernel, "slope"):
        return _by_autograd(kernel, theta, Z, X, G)
    scales = [i for i, name in enumerate(kernel.names) if name.startswith("lengthscale")]
    lengthscale, centre = theta[scales].exp(), X.mean(0)
    W = kernel.slope(theta, squared(Z, X, lengthscale)).mul_(G).mul_(torch.exp(2.0 * theta[0]))
    return (W @ (X - centre) - (Z - centre) * W.sum(1, keepdim=True)) / lengthscale.square()


def _by_autograd(kernel: Any, theta: Tensor, Z: Tensor, X: Tensor, G: Tensor) -> Tensor:
    with torch.enable_grad():
        at = Z.detach().clone().requires_grad_(True)
        (slope,) = torch.autograd.grad((kernel(theta, at, X) * G).sum(), at)
    return slope


def _solve_t(L: Tensor, B: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(L.T, B, upper=True)
