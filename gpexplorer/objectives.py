"""The sparse objectives in named terms, and their gradient in the hyperparameters.

    Khat = K_nm K_mm^-1 K_mn = L L'                                        eqs 3, 6
    fit        E_D = y' (Khat + s2 I)^-1 y                                 eq 7
    complexity E_C = log |Khat + s2 I|                                     eq 8
    trace      E_V = tr(K - Khat) / s2                                     eq 9
    PP = (E_D + E_C) / 2,   VFE = (E_D + E_C + E_V) / 2                    eqs 4, 5

Equations of Cao, Brubaker, Fleet and Hertzmann (2013). The constant n/2 log 2 pi is left out, as in the paper, so
-VFE - n/2 log 2 pi is Titsias' bound on the log evidence.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .linalg.blocks import row_blocks
from .linalg.cholesky import cholesky, logdet
from .problem import Dataset, Kernel


class Terms(NamedTuple):
    """The three terms of the objective; `total` adds those the objective has."""

    fit: float
    complexity: float
    trace: float

    def total(self, objective: str) -> float:
        """VFE or PP, halved as in eqs 4 and 5."""
        return 0.5 * (self.fit + self.complexity + (self.trace if objective == "vfe" else 0.0))


class Nystrom(NamedTuple):
    """What one pass over the rows leaves behind: all that the objective and the predictions need, in O(m^2)."""

    terms: Terms
    L_mm: Tensor  # [m, m] Cholesky factor of K_mm
    L_A: Tensor  # [m, m] Cholesky factor of A = L'L + s2 I
    c: Tensor  # [m] L'y
    s2: float
    jitter: float


def noise_variance(theta: Float[Tensor, " p"]) -> float:
    """s2: the last entry of theta is the log noise standard deviation."""
    return math.exp(2.0 * float(theta[-1]))


def nystrom(kernel: Kernel, theta: Float[Tensor, " p"], train: Dataset, Z: Any) -> Nystrom:
    """Terms and factors at inducing inputs Z [m, d]. 2 n m^2 flops, n m kernel entries, O(m^2 + block) memory."""
    m, n, y = len(Z), len(train), train.y
    L_mm, jitter = cholesky(kernel(theta, Z, Z), "K_mm")
    A, c, s2 = y.new_zeros(m, m), y.new_zeros(m), noise_variance(theta)
    for rows in row_blocks(n, y.element_size() * m):
        Lt = torch.linalg.solve_triangular(L_mm, kernel(theta, Z, train.X[rows]), upper=False)  # [m, block]
        A.addmm_(Lt, Lt.T)
        c.addmv_(Lt, y[rows])
    explained = float(A.diagonal().sum())
    A.diagonal().add_(s2)
    L_A = cholesky(A, "L'L + s2 I").L
    fit = (float(y @ y) - float(torch.linalg.solve_triangular(L_A, c[:, None], upper=False).square().sum())) / s2
    complexity = (n - m) * math.log(s2) + logdet(L_A)
    trace = (float(kernel.diag(theta, train.X).sum()) - explained) / s2
    return Nystrom(Terms(fit, complexity, trace), L_mm, L_A, c, s2, jitter)


def nystrom_gradient(
    kernel: Any, theta: Float[Tensor, " p"], train: Dataset, Z: Any, objective: str
) -> tuple[Nystrom, Float[Tensor, " p"]]:
    """Objective terms and d total / d theta. About 6 n m^2 flops and 2 n m kernel entries; O(m^2 + block) memory.

    With A = L'L + s2 I, beta = (Khat + s2 I)^-1 y and alpha = K_mm^-1 K_mn beta, the terms marked * being VFE's own:

        dF/dK_nm = -beta alpha' + L (A^-1 - I/s2 *) L_mm^-1
        dF/dK_mm = (alpha alpha' + L_mm^-T (s2 A^-1 - I + [A/s2 - I] *) L_mm^-1) / 2
        dF/dk_ii = 1 / (2 s2) *
        dF/ds2   = (-beta'beta + (n - m)/s2 + tr A^-1 - [E_V/s2] *) / 2,    ds2/dtheta_p = 2 s2
    """
    now = nystrom(kernel, theta, train, Z)
    y, n, m, s2, vfe = train.y, len(train), len(Z), now.s2, objective == "vfe"
    A_inv, eye = torch.cholesky_inverse(now.L_A), torch.eye(m).to(now.L_A)  # [m, m]
    weights = A_inv @ now.c  # [m]: the posterior mean is L weights
    alpha = _solve_t(now.L_mm, weights[:, None])[:, 0]  # [m]
    right = torch.linalg.solve_triangular(now.L_mm, A_inv - eye / s2 if vfe else A_inv, upper=False, left=False)

    gradient, beta2 = torch.zeros_like(theta), 0.0
    for rows in row_blocks(n, 3 * y.element_size() * m):
        X = train.X[rows]
        Lt = torch.linalg.solve_triangular(now.L_mm, kernel(theta, Z, X), upper=False)  # [m, block]
        beta = (y[rows] - Lt.T @ weights) / s2  # [block]
        beta2 += float(beta @ beta)
        gradient += kernel.theta_gradient(theta, Z, X, (right.T @ Lt).addr_(alpha, beta, alpha=-1.0))

    middle = s2 * A_inv - eye
    if vfe:
        middle += now.L_A @ now.L_A.T / s2 - eye
        gradient += kernel.theta_gradient_diag(theta, train.X, y.new_full((n,), 0.5 / s2))
    half = torch.outer(alpha, alpha) + _solve_t(now.L_mm, _solve_t(now.L_mm, middle).T)
    gradient += kernel.theta_gradient(theta, Z, Z, 0.5 * half)

    slope = -beta2 + (n - m) / s2 + float(A_inv.diagonal().sum()) - (now.terms.trace / s2 if vfe else 0.0)
    gradient[-1] += slope * s2
    return now, gradient


def _solve_t(L: Float[Tensor, "m m"], B: Float[Tensor, "m k"]) -> Float[Tensor, "m k"]:
    return torch.linalg.solve_triangular(L.T, B, upper=True)


def evidence(kernel: Any, theta: Float[Tensor, " p"], train: Dataset) -> tuple[float, Float[Tensor, " p"]]:
    """Negative log marginal likelihood of the exact GP without its constant, and its gradient in theta [p].

    NLML = (y'a + log |A|) / 2 with A = K + s2 I and a = A^-1 y; d/dtheta = tr((A^-1 - a a') dA) / 2
    (Rasmussen and Williams 2006, eqs 5.8 and 5.9). n^3 flops, 2 n^2 kernel entries, O(n^2) memory.
    """
    s2 = noise_variance(theta)
    A = kernel(theta, train.X, train.X)
    A.diagonal().add_(s2)
    L = cholesky(A, "K + s2 I").L
    a = torch.cholesky_solve(train.y[:, None], L)[:, 0]
    W = torch.cholesky_inverse(L).addr_(a, a, alpha=-1.0).mul_(0.5)  # [n, n]
    gradient = kernel.theta_gradient(theta, train.X, train.X, W)
    gradient[-1] += 2.0 * s2 * float(W.diagonal().sum())
    return 0.5 * (float(train.y @ a) + logdet(L)), gradient
