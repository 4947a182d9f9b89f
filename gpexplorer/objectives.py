"""The objectives of sparse and exact GPs as sums of named terms, and their gradients with respect to theta.

    K_hat = K_nm K_mm^-1 K_mn = L L',   L = K_nm L_mm^-T [n, m],   K_mm = L_mm L_mm'       eqs 3, 6
    fit        E_D = y'(K_hat + s2 I)^-1 y                                                 eq 7
    complexity E_C = log det(K_hat + s2 I)                                                 eq 8
    trace      E_V = tr(K - K_hat) / s2                                                    eq 9
    PP  = (E_D + E_C) / 2            projected process                                     eq 4
    VFE = (E_D + E_C + E_V) / 2      variational free energy                               eq 5
    tight VFE: E_V = sum_i log(1 + D_i / s2),  D = diag(K - K_hat)  Titsias (2025)

Equations of Cao, Brubaker, Fleet and Hertzmann (2013). The constant n/2 log 2 pi is left out, as in the paper, so
-VFE - n/2 log 2 pi is the lower bound of Titsias (2009) on the log evidence.

The tight VFE ("tight-vfe" in the settings) is a lower bound of the evidence too, and never a looser one, since
log(1 + x) <= x; both are equal where D = 0. It follows from q(f, u) = q(f | u) q(u), where q(f | u) has the mean of the
prior's conditional, and the covariance (K - K_hat)^1/2 V (K - K_hat)^1/2 with a diagonal V, for which
v_i = 1 / (1 + D_i / s2) is optimal. The optimal q(u) is that of the VFE. Predictions at new inputs integrate the
conditional p(f* | u) of the prior over q(u), so at given theta and Z they are those of the VFE. This leaves out that
q(f | u) is narrower at the training rows than p(f | u), which is an approximation that Titsias makes too.

References: Titsias (2025), New bounds for sparse variational Gaussian processes, ICML, arXiv 2502.08730; Bui, Ashman
and Turner (2025), Tighter sparse variational Gaussian processes, TMLR.

In code, A = L'L + s2 I [m, m], L_A is its Cholesky factor, and c = L'y [m].
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .linalg.blocks import row_blocks
from .linalg.cholesky import cholesky, logdet, solve_transposed
from .problem import Dataset, Kernel


class Terms(NamedTuple):
    """The three terms of the sparse objectives, before they are halved.

    `trace` is E_V in the form of the objective for which it was computed: sum_i log(1 + D_i / s2) for "tight-vfe", and
    the trace itself for every other one.
    """

    fit: float
    complexity: float
    trace: float

    def total(self, objective: str) -> float:
        """Return the objective: "vfe" (eq 5), "tight-vfe", or "pp" (eq 4), which leaves out E_V."""
        return 0.5 * (self.fit + self.complexity + (0.0 if objective == "pp" else self.trace))


class Nystrom(NamedTuple):
    """The result of one pass over the rows: all that objective and predictions need, in O(m^2) memory."""

    terms: Terms
    L_mm: Tensor  # [m, m] Cholesky factor of K_mm
    L_A: Tensor  # [m, m] Cholesky factor of A = L'L + s2 I
    c: Tensor  # [m] L'y
    s2: float
    jitter: float  # of K_mm
    unexplained: float = math.nan  # tr(K - K_hat)


def noise_variance(theta: Float[Tensor, " p"]) -> float:
    """Return s2 = exp(2 theta[-1]); the last entry of theta is the log noise standard deviation."""
    return math.exp(2.0 * float(theta[-1]))


def noise_derivative(kernel: Any, value: float | Tensor) -> float | Tensor:
    """Return the derivative with respect to the log noise, which is 0 where the noise is known and must stay."""
    return 0.0 if getattr(kernel, "noise_is_known", False) else value


def nystrom(kernel: Kernel, theta: Float[Tensor, " p"], train: Dataset, Z: Any, objective: str = "vfe") -> Nystrom:
    """Compute the terms and the factors of the sparse objectives at inducing inputs Z.

    Parameters
    ----------
    kernel : Kernel
        Covariance function.
    theta : Tensor [p]
        Log-hyperparameters.
    train : Dataset
        n rows.
    Z : Tensor [m, d] or sequence
        Inducing inputs.
    objective : {"vfe", "tight-vfe", "pp"}
        It determines the form of E_V; nothing else depends on it.

    Returns
    -------
    Nystrom
        Terms of the objectives, and the factors from which predictions are made.

    Raises
    ------
    NotPositiveDefinite
        If K_mm or A is not positive definite even with jitter.

    Notes
    -----
    2 n m^2 flops, n m kernel entries, and O(m^2) memory beside one block of rows. By the matrix inversion lemma,

        E_D = (y'y - c'A^-1 c) / s2,    E_C = (n - m) log s2 + log det A,    E_V = (tr K - tr L'L) / s2
    """
    m, n, y = len(Z), len(train), train.y
    L_mm, jitter = cholesky(kernel(theta, Z, Z), "K_mm", accurate=True)
    A, c, s2 = y.new_zeros(m, m), y.new_zeros(m), noise_variance(theta)
    prior, E_V = kernel.diag(theta, train.X), 0.0  # [n]
    for rows in row_blocks(n, y.element_size() * m):
        Lt = torch.linalg.solve_triangular(L_mm, kernel(theta, Z, train.X[rows]), upper=False)  # [m, block]
        A.addmm_(Lt, Lt.T)
        c.addmv_(Lt, y[rows])
        if objective == "tight-vfe":
            E_V += log_variance_ratio(residual_variance(prior[rows], Lt), s2)
    tr_K_hat = float(A.diagonal().sum())
    A.diagonal().add_(s2)
    L_A = cholesky(A, "L'L + s2 I").L
    fit = (float(y @ y) - float(torch.linalg.solve_triangular(L_A, c[:, None], upper=False).square().sum())) / s2
    complexity = (n - m) * math.log(s2) + logdet(L_A)
    unexplained = float(prior.sum()) - tr_K_hat
    E_V = E_V if objective == "tight-vfe" else unexplained / s2
    return Nystrom(Terms(fit, complexity, E_V), L_mm, L_A, c, s2, jitter, unexplained)


def residual_variance(prior: Float[Tensor, " n"], Lt: Float[Tensor, "m n"]) -> Float[Tensor, " n"]:
    """Return D = diag(K - L L') [n] from diag(K) and L'; values below 0, which come from rounding, become 0."""
    return (prior - torch.linalg.vecdot(Lt, Lt, dim=0)).clamp_min_(0.0)


def log_variance_ratio(D: Float[Tensor, " n"], s2: float) -> float:
    """Return sum_i log(1 + D_i / s2), the E_V of the tight VFE."""
    total = float(log_products((D / s2).add_(1.0)[None], 1).sum())
    return total if math.isfinite(total) else float((D / s2).log1p_().sum())


def log_products(X: Float[Tensor, "a b"], dim: int) -> Tensor:
    """Multiply the entries of X in groups along `dim`, and return the logarithms; X is overwritten.

    A group has 8 factors in float64 and 4 in float32. Their product stays within the range of the numbers as long as
    each factor lies within 1e-38 and 1e38, or 1e-9 and 1e9. Logarithms in float64 take 20 times as long as products.
    """
    width = X.shape[dim]
    for _ in range(3 if X.dtype == torch.float64 else 2):
        half = width // 2
        X.narrow(dim, 0, half).mul_(X.narrow(dim, width - half, half))
        width -= half
    return X.narrow(dim, 0, width).log_()


def nystrom_gradient(
    kernel: Any, theta: Float[Tensor, " p"], train: Dataset, Z: Any, objective: str
) -> tuple[Nystrom, Float[Tensor, " p"]]:
    """Compute a sparse objective and its gradient with respect to theta, at fixed inducing inputs.

    Parameters
    ----------
    kernel : Covariance
        A kernel with `theta_gradient` and `theta_gradient_diag`.
    theta : Tensor [p]
        Log-hyperparameters.
    train : Dataset
        n rows.
    Z : Tensor [m, d] or sequence
        Inducing inputs.
    objective : {"vfe", "tight-vfe", "pp"}
        Which objective.

    Returns
    -------
    tuple of Nystrom and Tensor [p]
        The result of `nystrom`, and the gradient of `terms.total(objective)`.

    Notes
    -----
    About 6 n m^2 flops, 10 n m^2 for the tight VFE, 2 n m kernel entries, and O(m^2) memory beside one block of rows.
    With beta = (K_hat + s2 I)^-1 y and alpha = K_mm^-1 K_mn beta, and with the terms in brackets for VFE only, the
    derivatives of the objective F are

        dF/dK_nm = -beta alpha' + L (A^-1 [- I/s2]) L_mm^-1
        dF/dK_mm = (alpha alpha' + L_mm^-T (s2 A^-1 - I [+ A/s2 - I]) L_mm^-1) / 2
        dF/dk_ii = [1 / (2 s2)]
        dF/ds2   = (-beta'beta + (n - m)/s2 + tr A^-1 [- E_V/s2]) / 2,    ds2/dtheta_p = 2 s2

    For the tight VFE, delta_i = 1 / (s2 + D_i) takes the place of 1/s2 in the brackets, row by row: L/s2 becomes
    diag(delta) L, A/s2 - I becomes L' diag(delta) L, and E_V/s2 becomes sum_i (1/s2 - delta_i).
    """
    factors = nystrom(kernel, theta, train, Z, objective)
    y, n, m, s2 = train.y, len(train), len(Z), factors.s2
    vfe, tight, prior = objective == "vfe", objective == "tight-vfe", kernel.diag(theta, train.X)
    delta = torch.full_like(prior, 1.0 / s2 if vfe else 0.0)  # [n] twice dF/dk_ii
    A_inv, eye = torch.cholesky_inverse(factors.L_A), torch.eye(m).to(factors.L_A)  # [m, m]
    weights = A_inv @ factors.c  # [m]: the posterior mean at the training rows is L weights
    alpha = solve_transposed(factors.L_mm, weights[:, None])[:, 0]  # [m]
    # (A^-1 [- I/s2]) L_mm^-1 [m, m], the factor that every row of dF/dK_nm has in common
    right = torch.linalg.solve_triangular(factors.L_mm, A_inv - eye / s2 if vfe else A_inv, upper=False, left=False)

    gradient, beta_beta, weighted = torch.zeros_like(theta), 0.0, torch.zeros_like(eye)  # [p], beta'beta, [m, m]
    for rows in row_blocks(n, 3 * y.element_size() * m):
        X = train.X[rows]
        Lt = torch.linalg.solve_triangular(factors.L_mm, kernel(theta, Z, X), upper=False)  # [m, block]
        beta = (y[rows] - Lt.T @ weights) / s2  # [block]
        beta_beta += float(beta @ beta)
        if tight:
            delta[rows] = 1.0 / (s2 + residual_variance(prior[rows], Lt))
            scaled = Lt * delta[rows]  # [m, block]
            weighted.addmm_(scaled, Lt.T)
            in_K_mn = solve_transposed(factors.L_mm, A_inv @ Lt - scaled)
        else:
            in_K_mn = right.T @ Lt
        gradient += kernel.theta_gradient(theta, Z, X, in_K_mn.addr_(alpha, beta, alpha=-1.0))  # dF/dK_mn

    middle = s2 * A_inv - eye + weighted  # [m, m], the bracket of dF/dK_mm
    if vfe:
        middle += factors.L_A @ factors.L_A.T / s2 - eye
    if vfe or tight:
        gradient += kernel.theta_gradient_diag(theta, train.X, 0.5 * delta)  # dF/dk_ii
    twice_in_K_mm = torch.outer(alpha, alpha) + solve_transposed(factors.L_mm, solve_transposed(factors.L_mm, middle).T)
    gradient += kernel.theta_gradient(theta, Z, Z, 0.5 * twice_in_K_mm)

    twice_in_s2 = -beta_beta + (n - m) / s2 + float(A_inv.diagonal().sum())
    twice_in_s2 -= factors.terms.trace / s2 if vfe else float((1.0 / s2 - delta).sum()) if tight else 0.0
    gradient[-1] += noise_derivative(kernel, twice_in_s2 * s2)
    return factors, gradient


def evidence(kernel: Any, theta: Float[Tensor, " p"], train: Dataset) -> tuple[float, Float[Tensor, " p"]]:
    """Compute the negative log marginal likelihood of the exact GP, and its gradient with respect to theta.

    Parameters
    ----------
    kernel : Covariance
        A kernel with `theta_gradient`.
    theta : Tensor [p]
        Log-hyperparameters.
    train : Dataset
        n rows.

    Returns
    -------
    value : float
        NLML = (y'a + log det A) / 2 without its constant, where A = K + s2 I and a = A^-1 y.
    gradient : Tensor [p]
        Its derivative, tr((A^-1 - a a') dA/dtheta) / 2.

    Raises
    ------
    NotPositiveDefinite
        If A is not positive definite even with jitter.

    Notes
    -----
    n^3 flops, 2 n^2 kernel entries, O(n^2) memory.

    References
    ----------
    Rasmussen and Williams (2006), eqs 5.8 and 5.9.
    """
    terms, gradient, _ = evidence_terms(kernel, theta, train)
    return terms.total("vfe"), gradient


def evidence_terms(kernel: Any, theta: Float[Tensor, " p"], train: Dataset) -> tuple[Terms, Float[Tensor, " p"], float]:
    """Compute the terms of `evidence` (the trace term is zero), its gradient [p], and the jitter of its factor."""
    s2 = noise_variance(theta)
    A = kernel(theta, train.X, train.X)  # [n, n]
    A.diagonal().add_(s2)
    L, jitter = cholesky(A, "K + s2 I")
    a = torch.cholesky_solve(train.y[:, None], L)[:, 0]  # [n]
    W = torch.cholesky_inverse(L).addr_(a, a, alpha=-1.0).mul_(0.5)  # [n, n] dNLML/dA
    gradient = kernel.theta_gradient(theta, train.X, train.X, W)
    gradient[-1] += noise_derivative(kernel, 2.0 * s2 * float(W.diagonal().sum()))  # dA/dtheta_p = 2 s2 I
    return Terms(float(train.y @ a), logdet(L), 0.0), gradient, jitter
