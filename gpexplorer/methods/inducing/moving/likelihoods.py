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
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ....kernels.distances import squared
from ....linalg.blocks import row_blocks
from ....linalg.cholesky import cholesky, logdet
from ....objectives import Nystrom, Terms, noise_variance
from ....problem import Dataset, Kernel

BLOCK = 4 * 2**20  # bytes of one block's temporaries: they stay in cache, and are not paid for in page faults


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
    left: float  # sum D
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
    m, y = len(Z), train.y
    a = torch.cholesky_solve(f.c[:, None], f.L_B)[:, 0]  # [m]
    beta = (y - f.Lt.T @ a) / f.V  # [n]
    B_inv, eye = torch.cholesky_inverse(f.L_B), torch.eye(m).to(y)
    S = eye - B_inv - torch.outer(a, a)  # [m, m], inner L

    slopes = Slopes(torch.zeros_like(theta), torch.zeros_like(Z))
    share = _fitc_slopes if likelihood == "fitc" else partial(_flat_slopes, vfe=likelihood == "vfe")
    delta, M = share(kernel, theta, train, (Z, slopes), f, (B_inv, S, a, beta))

    G = -0.5 * _solve_t(f.L_mm, _solve_t(f.L_mm, S).T)  # [m, m]
    add_slopes(slopes, kernel, theta, (Z, Z), G, both=True)
    if likelihood != "pp":
        slopes.theta.add_(kernel.theta_gradient_diag(theta, train.X, 0.5 * delta))
    if _simple(kernel):  # where theta[0] is a log sd: sum G K over K_mn, less half over K_mm
        slopes.theta[0] += float(S.diagonal().sum())
    slope = M - (f.left / f.s2**2 if likelihood == "vfe" else 0.0)
    slopes.theta[-1] += slope * f.s2
    now = Nystrom(_terms(f, y), f.L_mm, math.sqrt(f.s2) * f.L_B, f.s2 * f.c, f.s2, f.jitter)
    return now, slopes


Held = tuple[Tensor, ...]  # B^-1, inner L, a, beta


def _flat_slopes(
    kernel: Any, theta: Tensor, train: Dataset, at: tuple[Tensor, Slopes], f: _Factors, held: Held, vfe: bool
) -> tuple[Tensor, float]:
    """Where V and delta are the same for all rows: dF/dK_mn is one product C L' less one outer product a block.

    With C = L_mm^-T (B^-1 - I) / s2 (PP: B^-1 alone), and sum M = (n - tr(I - B^-1)) / s2 - beta'beta.
    """
    (Z, slopes), (B_inv, S, a, beta) = at, held
    n, m, eye = len(train), len(Z), torch.eye(len(Z)).to(S)
    if vfe:
        S -= f.L_B @ f.L_B.T - eye  # L' diag(delta) L = B - I
    C = _solve_t(f.L_mm, (B_inv - eye if vfe else B_inv) / f.s2)  # [m, m]
    c = _solve_t(f.L_mm, a[:, None])[:, 0]
    for rows in row_blocks(n, 3 * C.element_size() * m, BLOCK):
        G = (C @ f.Lt[:, rows]).addr_(c, beta[rows], alpha=-1.0)
        add_slopes(slopes, kernel, theta, (Z, train.X[rows]), G)
    M = (n - m + float(B_inv.diagonal().sum())) / f.s2 - float(beta @ beta)
    return torch.full_like(train.y, 1.0 / f.s2 if vfe else 0.0), M


def _fitc_slopes(
    kernel: Any, theta: Tensor, train: Dataset, at: tuple[Tensor, Slopes], f: _Factors, held: Held
) -> tuple[Tensor, float]:
    """FITC's share of the slopes through K_mn, and of `inner L`, both in place; delta = M [n] and its sum."""
    (Z, slopes), (B_inv, S, a, beta) = at, held
    M = torch.empty_like(train.y)
    for rows in row_blocks(len(train), 4 * M.element_size() * len(Z), BLOCK):
        Lt, V = f.Lt[:, rows], f.V[rows]
        inner = (B_inv @ Lt).div_(V)  # [m, block]
        M[rows] = 1.0 / V - torch.linalg.vecdot(inner, Lt, dim=0) / V - beta[rows].square()
        scaled = Lt * M[rows]
        S.addmm_(scaled, Lt.T, alpha=-1.0)
        inner.addr_(a, beta[rows], alpha=-1.0).sub_(scaled)
        add_slopes(slopes, kernel, theta, (Z, train.X[rows]), _solve_t(f.L_mm, inner))
    return M, float(M.sum())


def _factors(kernel: Kernel, theta: Tensor, train: Dataset, Z: Tensor, likelihood: str) -> _Factors:
    L_mm, jitter = cholesky(kernel(theta, Z, Z), "K_mm")
    Lt = torch.linalg.solve_triangular(L_mm, kernel(theta, Z, train.X), upper=False)
    s2, prior, eye = noise_variance(theta), kernel.diag(theta, train.X), torch.eye(len(Z)).to(Lt)
    if likelihood == "fitc":
        D = prior - torch.linalg.vecdot(Lt, Lt, dim=0)
        V, left, B = s2 + D.clamp_min(0.0), float(D.sum()), eye.clone()
        for rows in row_blocks(len(D), Lt.element_size() * len(Z), BLOCK):
            B.addmm_(Lt[:, rows] / V[rows], Lt[:, rows].T)
    else:
        V, B = torch.full_like(prior, s2), torch.addmm(eye, Lt, Lt.T, alpha=1.0 / s2)
        left = float(prior.sum()) - s2 * float((B - eye).diagonal().sum())
    c = Lt @ (train.y / V)
    return _Factors(L_mm, Lt, cholesky(B, "I + L'V^-1 L").L, c, V, left, s2, jitter)


def _terms(f: _Factors, y: Tensor) -> Terms:
    half = torch.linalg.solve_triangular(f.L_B, f.c[:, None], upper=False)
    fit = float((y * y / f.V).sum()) - float(half.square().sum())
    return Terms(fit, float(f.V.log().sum()) + logdet(f.L_B), f.left / f.s2)


def add_slopes(
    slopes: Slopes, kernel: Any, theta: Tensor, pair: tuple[Tensor, Tensor], G: Tensor, both: bool = False
) -> None:
    """Add the gradient of sum_ij G_ij k(z_i, x_j) in theta and Z, X held fixed or (`both`) X being Z itself.

    For a stationary kernel both come from one pass: with W = G * sd^2 slope(r2),

        d / d log l_q = sum_ij W_ij (z_iq - x_jq)^2 / l_q^2,    d / d z_i = sum_j W_ij (x_j - z_i) / l^2

    The derivative in its log sd, 2 sum G K, is left to the caller, who has it as a trace. Other kernels use
    `theta_gradient` and autograd.
    """
    Z, X = pair
    if not _simple(kernel):
        slopes.theta.add_(kernel.theta_gradient(theta, Z, X, G))
        slopes.Z.add_(_by_autograd(kernel, theta, Z, X, G + G.T if both else G))
        return
    lengthscale, centre = theta[1:-1].exp(), X.mean(0)
    Z, X = Z - centre, X - centre
    W = kernel.slope(theta, squared(Z, X, lengthscale)).mul_(G).mul_(torch.exp(2.0 * theta[0]))  # [m, block]
    WX, left, right = W @ X, W.sum(1), W.sum(0)
    spread = Z.square().T @ left + X.square().T @ right - 2.0 * (Z * WX).sum(0)  # [d]
    spread = spread / lengthscale.square()
    slopes.theta[1:-1] += spread if len(lengthscale) == len(spread) else spread.sum()
    forces = WX - Z * left[:, None]
    if both:
        forces = forces + W.T @ Z - Z * right[:, None]
    slopes.Z.add_(forces / lengthscale.square())


def _simple(kernel: Any) -> bool:
    """Whether theta is [log sd, log lengthscales, log noise] of a stationary kernel, and nothing more."""
    return hasattr(kernel, "slope") and all(name.startswith("lengthscale") for name in kernel.names[1:-1])


def _by_autograd(kernel: Any, theta: Tensor, Z: Tensor, X: Tensor, G: Tensor) -> Tensor:
    X = X.clone() if X is Z else X
    with torch.enable_grad():
        at = Z.detach().clone().requires_grad_(True)
        (slope,) = torch.autograd.grad((kernel(theta, at, X) * G).sum(), at)
    return slope


def _solve_t(L: Tensor, B: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(L.T, B, upper=True)
