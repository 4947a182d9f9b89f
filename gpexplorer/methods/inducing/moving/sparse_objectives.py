"""Four sparse objectives as functions of theta and of inducing inputs Z that may lie anywhere, with their gradients.

    C = K_hat + V,   K_hat = L L',   L' = L_mm^-1 K_mn [m, n],   D = diag(K - K_hat) [n],   V diagonal:
    PP    V = s2                F = (y'C^-1 y + log|C|) / 2                            Cao et al. (2013), eq 4
    VFE   V = s2                F = (y'C^-1 y + log|C| + sum D / s2) / 2               eq 5; Titsias (2009), eq 9
    tight V = s2                F = (y'C^-1 y + log|C| + sum log(1 + D / s2)) / 2      Titsias (2025)
    FITC  V = s2 + D            F = (y'C^-1 y + log|C|) / 2                            Snelson and Ghahramani (2006)

One gradient serves all three. With B = I + L'V^-1 L [m, m], a = B^-1 L'V^-1 y [m], beta = C^-1 y = V^-1 (y - L a) [n]
and M_ii = (C^-1)_ii - beta_i^2, let delta = 0 (PP), 1/s2 (VFE), 1/(s2 + D_i)
(tight VFE), M_ii (FITC). Then

    inner    = B^-1 L'V^-1 - a beta' - L' diag(delta)                                  [m, n]
    dF/dK_mn = L_mm^-T inner
    dF/dK_mm = -L_mm^-T S L_mm^-1 / 2,   S = inner L = I - B^-1 - a a' - L' diag(delta) L [m, m]
    dF/dk_ii = delta_i / 2
    dF/ds2   = (sum M_ii - [sum D / s2^2 for VFE, sum delta_i D_i / s2 for the tight VFE]) / 2

All of these are sums over rows. L' is kept between the value and the gradient where it takes at most KEPT_BYTES. Above
that its columns are computed twice, block by block, so that memory is a few vectors of n numbers for any m.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from ....kernels.distances import squared_distances, weighted_square_sums
from ....linalg.blocks import row_blocks
from ....linalg.cholesky import cholesky, logdet, solve_transposed
from ....objectives import (
    Nystrom,
    Terms,
    log_variance_ratio,
    noise_derivative,
    noise_variance,
    residual_variance,
)
from ....problem import Dataset, Kernel

BLOCK = 4 * 2**20  # bytes of the temporaries of a block of rows: they stay in the cache and cause no page faults
KEPT_BYTES = 2**28  # larger L' are computed twice: no more time with 64 points, 9 to 18 % more with 512


class Gradient(NamedTuple):
    """The gradient of F."""

    theta: Tensor  # [p]
    Z: Tensor  # [m, d]


class _Columns:
    """L' = L_mm^-1 K_mn [m, n], of which blocks of columns can be taken: from memory, or computed again each time."""

    def __init__(self, kernel: Kernel, theta: Tensor, Z: Tensor, X: Any, L_mm: Tensor) -> None:
        self.kernel, self.theta, self.Z, self.X, self.L_mm = kernel, theta, Z, X, L_mm
        self.kept = self._compute(X) if is_kept(len(X), len(Z), L_mm.element_size()) else None

    def __getitem__(self, rows: slice) -> Tensor:
        return self._compute(self.X[rows]) if self.kept is None else self.kept[:, rows]

    def _compute(self, X: Any) -> Tensor:
        return torch.linalg.solve_triangular(self.L_mm, self.kernel(self.theta, self.Z, X), upper=False)


def is_kept(n: int, m: int, itemsize: int) -> bool:
    """Return whether L' [m, n] stays in memory between the value and the gradient."""
    return itemsize * n * m <= KEPT_BYTES


class _Factors(NamedTuple):
    """What the value and the gradient share."""

    L_mm: Tensor  # [m, m]
    Lt: _Columns  # [m, n] L'
    L_B: Tensor  # [m, m] Cholesky factor of B
    c: Tensor  # [m] L'V^-1 y
    V: Tensor  # [n]
    D: Tensor  # [n] where an objective needs it, otherwise empty
    E_V: float
    s2: float
    jitter: float


class _Inner(NamedTuple):
    """The parts of `inner` and S that do not depend on delta."""

    B_inv: Tensor  # [m, m]
    S: Tensor  # [m, m], completed in place
    a: Tensor  # [m]
    beta: Tensor  # [n], written in place, block by block


class _RowTerms(Protocol):
    """How an objective treats the rows: add dF/dK_mn to the gradient, complete S and beta, return delta and sum M."""

    def __call__(
        self, kernel: Any, theta: Tensor, train: Dataset, Z: Tensor, f: _Factors, inner: _Inner, gradient: Gradient
    ) -> tuple[Tensor, float]: ...


def total_objective(terms: Terms, likelihood: str) -> float:
    """Return F from its terms."""
    return terms.total(objective_name(likelihood))


def objective_name(likelihood: str) -> str:
    """Return the objective whose total of terms is F: FITC has no E_V, as PP has none."""
    return "pp" if likelihood == "fitc" else likelihood


def sparse_model(kernel: Kernel, theta: Float[Tensor, " p"], train: Dataset, Z: Tensor, likelihood: str) -> Nystrom:
    """Compute the terms of F, and the factors that `nystrom_posterior` predicts from: L_A = s L_B, c = s2 L'V^-1 y.

    Parameters
    ----------
    theta : Tensor [p]
    Z : Tensor [m, d]
        Inducing inputs.
    likelihood : {"pp", "vfe", "tight-vfe", "fitc"}

    Raises
    ------
    NotPositiveDefinite
        K_mm has no Cholesky factor, even with jitter.

    Notes
    -----
    2 n m^2 flops.
    """
    f = _factors(kernel, theta, train, Z, likelihood)
    return _model(f, train.y)


def sparse_gradient(
    kernel: Any, theta: Float[Tensor, " p"], train: Dataset, Z: Float[Tensor, "m d"], likelihood: str
) -> tuple[Nystrom, Gradient]:
    """Compute what `sparse_model` does, and the gradient of F in theta and Z.

    Notes
    -----
    About 6 n m^2 flops, 10 n m^2 for FITC and the tight VFE, and 3 n m kernel entries. Memory is n m numbers, or, where
    these would take more than KEPT_BYTES, O(n) numbers for n m^2 flops and n m kernel entries more.
    """
    f = _factors(kernel, theta, train, Z, likelihood)
    m, y = len(Z), train.y
    a = torch.cholesky_solve(f.c[:, None], f.L_B)[:, 0]  # [m]
    B_inv, eye = torch.cholesky_inverse(f.L_B), torch.eye(m).to(y)
    S = eye - B_inv - torch.outer(a, a)  # [m, m]

    gradient = Gradient(torch.zeros_like(theta), torch.zeros_like(Z))
    delta, sum_M = ROW_TERMS[likelihood](kernel, theta, train, Z, f, _Inner(B_inv, S, a, torch.empty_like(y)), gradient)

    G = -0.5 * solve_transposed(f.L_mm, solve_transposed(f.L_mm, S).T)  # [m, m] dF/dK_mm
    add_gradient(gradient, kernel, theta, (Z, Z), G, symmetric=True)
    if likelihood != "pp":
        gradient.theta.add_(kernel.theta_gradient_diag(theta, train.X, 0.5 * delta))
    if _is_simple(kernel):  # theta[0] is a log sd: its derivative is sum G K over K_mn, minus half of that over K_mm
        gradient.theta[0] += float(S.diagonal().sum())
    gradient.theta[-1] += noise_derivative(kernel, sum_M * f.s2)  # dF/d log noise sd = 2 s2 dF/ds2
    return _model(f, y), gradient


def _pp_rows(
    kernel: Any, theta: Tensor, train: Dataset, Z: Tensor, f: _Factors, inner: _Inner, gradient: Gradient
) -> tuple[Tensor, float]:
    _add_uniform_rows(kernel, theta, train, (Z, gradient), f, inner, inner.B_inv)
    return torch.full_like(train.y, 0.0), _uniform_sum_M(len(train), f, inner)


def _vfe_rows(
    kernel: Any, theta: Tensor, train: Dataset, Z: Tensor, f: _Factors, inner: _Inner, gradient: Gradient
) -> tuple[Tensor, float]:
    eye = torch.eye(len(Z)).to(inner.S)
    inner.S.sub_(f.L_B @ f.L_B.T - eye)  # L' diag(delta) L = B - I
    _add_uniform_rows(kernel, theta, train, (Z, gradient), f, inner, inner.B_inv - eye)
    return torch.full_like(train.y, 1.0 / f.s2), _uniform_sum_M(len(train), f, inner) - f.E_V / f.s2


def _tight_vfe_rows(
    kernel: Any, theta: Tensor, train: Dataset, Z: Tensor, f: _Factors, inner: _Inner, gradient: Gradient
) -> tuple[Tensor, float]:
    delta = 1.0 / (f.s2 + f.D)  # [n]
    for rows in row_blocks(len(train), 4 * delta.element_size() * len(Z), BLOCK):
        Lt = _columns_with_beta(f, inner, train.y, rows)
        scaled = Lt * delta[rows]
        inner.S.addmm_(scaled, Lt.T, alpha=-1.0)
        G = (inner.B_inv @ Lt).div_(f.s2).sub_(scaled).addr_(inner.a, inner.beta[rows], alpha=-1.0)  # [m, block]
        add_gradient(gradient, kernel, theta, (Z, train.X[rows]), solve_transposed(f.L_mm, G))
    return delta, _uniform_sum_M(len(train), f, inner) - float((delta * f.D).sum()) / f.s2


def _add_uniform_rows(
    kernel: Any,
    theta: Tensor,
    train: Dataset,
    Z_and_gradient: tuple[Tensor, Gradient],
    f: _Factors,
    inner: _Inner,
    weights: Tensor,
) -> None:
    """Add dF/dK_mn where V and delta are the same for all rows: L_mm^-T (W L' / s2 - a beta') with W [m, m].

    W is B^-1 (PP) or B^-1 - I (VFE), so that a block of rows costs one product and one outer product.
    """
    Z, gradient = Z_and_gradient
    W = solve_transposed(f.L_mm, weights / f.s2)  # [m, m]
    w = solve_transposed(f.L_mm, inner.a[:, None])[:, 0]  # [m]
    for rows in row_blocks(len(train), 3 * W.element_size() * len(Z), BLOCK):
        G = W @ _columns_with_beta(f, inner, train.y, rows)  # [m, block]
        G.addr_(w, inner.beta[rows], alpha=-1.0)
        add_gradient(gradient, kernel, theta, (Z, train.X[rows]), G)


def _columns_with_beta(f: _Factors, inner: _Inner, y: Tensor, rows: slice) -> Tensor:
    """Return L' for a block of rows [m, block], and write beta of these rows."""
    Lt = f.Lt[rows]
    inner.beta[rows] = (y[rows] - Lt.T @ inner.a) / f.V[rows]
    return Lt


def _uniform_sum_M(n: int, f: _Factors, inner: _Inner) -> float:
    """Return sum M = (n - tr(I - B^-1)) / s2 - beta'beta."""
    m = len(inner.B_inv)
    return (n - m + float(inner.B_inv.diagonal().sum())) / f.s2 - float(inner.beta @ inner.beta)


def _fitc_rows(
    kernel: Any, theta: Tensor, train: Dataset, Z: Tensor, f: _Factors, inner: _Inner, gradient: Gradient
) -> tuple[Tensor, float]:
    B_inv, S, a, beta = inner
    M = torch.empty_like(train.y)
    for rows in row_blocks(len(train), 4 * M.element_size() * len(Z), BLOCK):
        Lt, V = _columns_with_beta(f, inner, train.y, rows), f.V[rows]
        G = (B_inv @ Lt).div_(V)  # [m, block]
        M[rows] = 1.0 / V - torch.linalg.vecdot(G, Lt, dim=0) / V - beta[rows].square()
        scaled = Lt * M[rows]
        S.addmm_(scaled, Lt.T, alpha=-1.0)
        G.addr_(a, beta[rows], alpha=-1.0).sub_(scaled)
        add_gradient(gradient, kernel, theta, (Z, train.X[rows]), solve_transposed(f.L_mm, G))
    return M, float(M.sum())


ROW_TERMS: dict[str, _RowTerms] = {
    "pp": _pp_rows,
    "vfe": _vfe_rows,
    "tight-vfe": _tight_vfe_rows,
    "fitc": _fitc_rows,
}


def _factors(kernel: Kernel, theta: Tensor, train: Dataset, Z: Tensor, likelihood: str) -> _Factors:
    L_mm, jitter = cholesky(kernel(theta, Z, Z), "K_mm", accurate=True)  # [m, m]
    Lt, s2 = _Columns(kernel, theta, Z, train.X, L_mm), noise_variance(theta)
    prior, y = kernel.diag(theta, train.X), train.y  # [n]
    eye, has_row_noise = torch.eye(len(Z)).to(L_mm), likelihood == "fitc"
    V, B, c = torch.full_like(prior, s2), eye.clone(), torch.zeros_like(L_mm[0])
    D = torch.empty_like(prior) if likelihood in ("fitc", "tight-vfe") else prior[:0]  # [n]
    block = BLOCK if has_row_noise or Lt.kept is None else KEPT_BYTES
    for rows in row_blocks(len(prior), prior.element_size() * len(Z), block):
        columns = Lt[rows]  # [m, block]
        if len(D):
            D[rows] = residual_variance(prior[rows], columns)
        if has_row_noise:
            V[rows] += D[rows]
            B.addmm_(columns / V[rows], columns.T)
        else:
            B.addmm_(columns, columns.T, alpha=1.0 / s2)
        c.addmv_(columns, y[rows] / V[rows])
    if likelihood == "fitc":
        E_V = float(D.sum()) / s2
    elif likelihood == "tight-vfe":
        E_V = log_variance_ratio(D, s2)
    else:
        E_V = float(prior.sum()) / s2 - float((B - eye).diagonal().sum())
    return _Factors(L_mm, Lt, cholesky(B, "I + L'V^-1 L").L, c, V, D, E_V, s2, jitter)


def _model(f: _Factors, y: Tensor) -> Nystrom:
    unexplained = float(f.D.sum()) if len(f.D) else f.s2 * f.E_V
    return Nystrom(_terms(f, y), f.L_mm, math.sqrt(f.s2) * f.L_B, f.s2 * f.c, f.s2, f.jitter, unexplained)


def _terms(f: _Factors, y: Tensor) -> Terms:
    half = torch.linalg.solve_triangular(f.L_B, f.c[:, None], upper=False)  # [m, 1]
    fit = float((y * y / f.V).sum()) - float(half.square().sum())
    return Terms(fit, float(f.V.log().sum()) + logdet(f.L_B), f.E_V)


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
