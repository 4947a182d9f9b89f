"""The objectives of sparse and exact GPs as sums of named terms, and their gradients with respect to theta.

    K_hat = K_nm K_mm^-1 K_mn = L L',   L = K_nm L_mm^-T [n, m],   K_mm = L_mm L_mm'       eqs 3, 6
    fit        E_D = y'(K_hat + V)^-1 y                                                    eq 7
    complexity E_C = log det(K_hat + V)                                                    eq 8
    trace      E_V = tr(K - K_hat) / s2                                                    eq 9
    PP   V = s2 I      F = (E_D + E_C) / 2            projected process                    eq 4
    VFE  V = s2 I      F = (E_D + E_C + E_V) / 2      variational free energy              eq 5; Titsias (2009), eq 9
    tight VFE          F = (E_D + E_C + E_V) / 2,     E_V = sum_i log(1 + D_i / s2)        Titsias (2025)
    FITC V = s2 I + D  F = (E_D + E_C) / 2,           D = diag(K - K_hat)                  Snelson and Ghahramani (2006)

Equations of Cao, Brubaker, Fleet and Hertzmann (2013). The constant n/2 log 2 pi is left out, as in the paper, so
-VFE - n/2 log 2 pi is the lower bound of Titsias (2009) on the log evidence. Given L, this is the model of
`linalg.gaussian` with Phi = L: A = L'W L + s2 I, c = L'W y, W = s2 V^-1, w = A^-1 c, beta = (K_hat + V)^-1 y.

One gradient serves all four. With delta_i = 0 (PP), 1 / s2 (VFE), 1 / (s2 + D_i) (tight VFE) or
M_i = (C^-1)_ii - beta_i^2 (FITC, C = K_hat + V),

    inner    = A^-1 L'W - w beta' - L' diag(delta)                                         [m, n]
    dF/dK_mn = L_mm^-T inner
    dF/dK_mm = -L_mm^-T S L_mm^-1 / 2,   S = inner L = I - s2 A^-1 - w w' - L' diag(delta) L
    dF/dk_ii = delta_i / 2
    dF/ds2   = (sum M_i - [E_V / s2 for VFE, sum delta_i D_i / s2 for the tight VFE]) / 2

The tight VFE ("tight-vfe" in the settings) is a lower bound of the evidence too, and never a looser one, since
log(1 + x) <= x; both are equal where D = 0. It follows from q(f, u) = q(f | u) q(u), where q(f | u) has the mean of the
prior's conditional, and the covariance (K - K_hat)^1/2 Q (K - K_hat)^1/2 with a diagonal Q, for which
q_i = 1 / (1 + D_i / s2) is optimal. The optimal q(u) is that of the VFE. Predictions at new inputs integrate the
conditional p(f* | u) of the prior over q(u), so at given theta and Z they are those of the VFE. This leaves out that
q(f | u) is narrower at the training rows than p(f | u), which is an approximation that Titsias makes too.

References: Titsias (2025), New bounds for sparse variational Gaussian processes, ICML, arXiv 2502.08730; Bui, Ashman
and Turner (2025), Tighter sparse variational Gaussian processes, TMLR.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .linalg.blocks import add_gram_, row_blocks, symmetric_from_lower
from .linalg.cholesky import cholesky, solve_transposed
from .linalg.deferred_reads import Number, add_multiple, exp, happens, read_unless_deferred, sum_with_product
from .linalg.gaussian import LinearGaussian, Sums
from .problem import Dataset, Kernel

BLOCK = 4 * 2**20  # bytes of the temporaries of a block of rows: they stay in the cache and cause no page faults
KEPT_BYTES = 2**28  # larger L' are computed twice: no more time with 64 points, 9 to 18 % more with 512


class Terms(NamedTuple):
    """The three terms of the sparse objectives, before they are halved.

    `trace` is E_V in the form of the objective for which it was computed: sum_i log(1 + D_i / s2) for "tight-vfe", and
    the trace itself for every other one.
    """

    fit: Number
    complexity: Number
    trace: Number

    def total(self, objective: str) -> Number:
        """Return the objective: "vfe" (eq 5) or "tight-vfe"; or "pp" (eq 4) or "fitc", which leave out E_V."""
        return 0.5 * (self.fit + self.complexity + (0.0 if objective in ("pp", "fitc") else self.trace))


class Nystrom(NamedTuple):
    """The result of one pass over the rows: all that objective and predictions need, in O(m^2) memory."""

    terms: Terms
    L_mm: Tensor  # [m, m] Cholesky factor of K_mm
    model: LinearGaussian  # of y on the columns of L
    jitter: float  # of K_mm
    unexplained: Number = math.nan  # tr(K - K_hat)

    @property
    def L_A(self) -> Float[Tensor, "m m"]:
        """Cholesky factor of A = L'W L + s2 I."""
        return self.model.L

    @property
    def c(self) -> Float[Tensor, " m"]:
        """The vector L'W y."""
        return self.model.c

    @property
    def s2(self) -> Number:
        """The noise variance s2."""
        return self.model.s2


def noise_variance(theta: Float[Tensor, " p"]) -> float:
    """Return s2 = exp(2 theta[-1]); the last entry of theta is the log noise standard deviation."""
    return math.exp(2.0 * float(theta[-1]))


def deferred_noise_variance(theta: Float[Tensor, " p"]) -> Number:
    """Return `noise_variance`; a theta on a GPU is not read while rare cases are assumed away."""
    return exp(2.0 * read_unless_deferred(theta[-1]))


def rounding(dtype: torch.dtype) -> float:
    """Return the part of a prior variance below which a residual variance is rounding: 2e-11, in float32 1e-4."""
    return (1e5 if dtype == torch.float64 else 1e3) * torch.finfo(dtype).eps


def least_noise(kernel: Kernel, theta: Tensor, train: Dataset) -> float:
    """Return the noise variance below which the terms of an objective that are divided by it consist of rounding."""
    return rounding(train.y.dtype) * float(kernel.diag(theta.to(train.y.device), train.X).mean())


def noise_derivative(kernel: Any, value: float | Tensor) -> float | Tensor:
    """Return the derivative with respect to the log noise, which is 0 where the noise is known and must stay."""
    return 0.0 if getattr(kernel, "noise_is_known", False) else value


def is_kept(n: int, m: int, itemsize: int) -> bool:
    """Return whether L' [m, n] is small enough to stay in memory, where a second pass would compute it again."""
    return itemsize * n * m <= KEPT_BYTES


class _Columns:
    """L' = L_mm^-1 K_mn [m, n], of which blocks of columns can be taken: from memory, or computed again each time."""

    def __init__(self, kernel: Kernel, theta: Tensor, Z: Any, X: Any, L_mm: Tensor, keep: bool) -> None:
        self.kernel, self.theta, self.Z, self.X, self.L_mm = kernel, theta, Z, X, L_mm
        self.kept, self.K_mn = None, None  # K_mn is kept too where the derivative of the kernel needs nothing else
        if keep and is_kept(len(X), len(Z), L_mm.element_size()):
            K_mn = kernel(theta, Z, X)
            self.kept = self._whitened(K_mn)
            self.K_mn = K_mn if getattr(kernel, "is_own_derivative", False) else None

    def __getitem__(self, rows: slice) -> Tensor:
        if self.kept is not None:
            return self.kept[:, rows]
        return self._whitened(self.kernel(self.theta, self.Z, self.X[rows]))

    def covariances(self, rows: slice) -> Tensor | None:
        """Those columns of K_mn, where they are kept."""
        return None if self.K_mn is None else self.K_mn[:, rows]

    def _whitened(self, K: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.L_mm, K, upper=False)


class _Fit(NamedTuple):
    """What the value and the gradient share."""

    result: Nystrom
    Lt: _Columns  # [m, n] L'
    K_mm: Tensor | None  # [m, m] where K_mn is kept
    D: Tensor  # [n] where the objective needs it, otherwise empty


def nystrom(kernel: Kernel, theta: Float[Tensor, " p"], train: Dataset, Z: Any, objective: str = "vfe") -> Nystrom:
    """Compute the terms and the factors of the sparse objectives at inducing inputs Z.

    Parameters
    ----------
    theta : Tensor [p]
        Log-hyperparameters.
    train : Dataset
        n rows.
    Z : Tensor [m, d] or sequence
        Inducing inputs.
    objective : {"vfe", "tight-vfe", "pp", "fitc"}
        It determines the form of E_V. "fitc" gives each row its own noise variance; nothing else depends on it.

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
    2 n m^2 flops, n m kernel entries, and O(n + m^2) memory beside one block of rows.
    """
    return _fit(kernel, theta, train, Z, objective, keep=False).result


def _fit(kernel: Kernel, theta: Tensor, train: Dataset, Z: Any, objective: str, keep: bool) -> _Fit:
    """The pass over the rows; L' is kept for a second pass if asked for and small enough."""
    m, n, y, s2 = len(Z), len(train), train.y, deferred_noise_variance(theta)
    theta = theta.to(y.device)
    K_mm = kernel(theta, Z, Z)
    L_mm, jitter = cholesky(K_mm, "K_mm", accurate=True)
    Lt, sums, prior = _Columns(kernel, theta, Z, train.X, L_mm, keep), Sums(m, y), kernel.diag(theta, train.X)
    D = torch.empty_like(prior) if objective in ("fitc", "tight-vfe") else prior[:0]  # [n]
    block_bytes = KEPT_BYTES if Lt.kept is not None and objective != "fitc" else BLOCK
    for rows in row_blocks(n, y.element_size() * m, y, block_bytes):
        columns = Lt[rows]  # [m, block]
        if len(D):
            D[rows] = residual_variance(prior[rows], columns)
        sums.add(columns, y[rows], s2 / (s2 + D[rows]) if objective == "fitc" else None)
    if objective == "fitc":
        V, unexplained = s2 + D, read_unless_deferred(D.sum())
        log_V = read_unless_deferred(V.log().sum())
        model = sums.model(n, s2 * (y @ (y / V)), s2, name="L'W L + s2 I", log_V=log_V)
    else:
        model = sums.model(n, y @ y, s2, name="L'L + s2 I", prior=prior.sum())
        unexplained = model.unexplained
    E_V = log_variance_ratio(D, s2) if objective == "tight-vfe" else unexplained / s2
    terms = Terms(model.fit, model.complexity, E_V)
    return _Fit(Nystrom(terms, L_mm, model, jitter, unexplained), Lt, None if Lt.K_mn is None else K_mm, D)


def residual_variance(prior: Float[Tensor, " n"], Lt: Float[Tensor, "m n"]) -> Float[Tensor, " n"]:
    """Return D = diag(K - L L') [n] from diag(K) and L'; values below 0, which come from rounding, become 0."""
    return (prior - torch.linalg.vecdot(Lt, Lt, dim=0)).clamp_min_(0.0)


def log_variance_ratio(D: Float[Tensor, " n"], s2: Number) -> Number:
    """Return sum_i log(1 + D_i / s2), the E_V of the tight VFE."""
    total = read_unless_deferred(log_products((D / s2).add_(1.0)[None], 1).sum())
    if isinstance(total, Tensor):
        return (D / s2).log1p_().sum() if happens(total.isfinite().logical_not()) else total
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
    theta, train, Z, objective : Tensor [p], Dataset, Tensor [m, d] or sequence, str
        As those of `nystrom`.

    Returns
    -------
    tuple of Nystrom and Tensor [p]
        The result of `nystrom`, and the gradient of `terms.total(objective)`.

    Notes
    -----
    About 6 n m^2 flops, 10 n m^2 for the tight VFE, 2 n m kernel entries, and O(n + m^2) memory beside one block of
    rows.
    """
    on_device = theta.to(train.y.device)
    gradient = torch.zeros_like(on_device)

    def receive(X: Any, G: Tensor, K: Tensor | None) -> None:
        gradient.add_(kernel.theta_gradient(on_device, Z, X, G))

    result, rest, _ = pull_back(kernel, theta, train, Z, objective, receive, keep=False)
    return result, gradient + rest


def pull_back(
    kernel: Any,
    theta: Float[Tensor, " p"],
    train: Dataset,
    Z: Any,
    objective: str,
    receive: Callable[[Any, Tensor, Tensor | None], None],
    keep: bool = True,
) -> tuple[Nystrom, Float[Tensor, " p"], Float[Tensor, ""]]:
    """Compute a sparse objective, and its derivatives in the covariances that it consists of.

    Parameters
    ----------
    kernel, theta, train, Z, objective : Covariance, Tensor, Dataset, inputs and str
        As for `nystrom_gradient`. theta may be on the host, where its noise is known without a read; on a GPU, while
        rare cases are assumed away, nothing is read.
    receive : callable
        It is called with some inputs X, dF/dK(Z, X), which it may overwrite, and K(Z, X) or None: block by block with
        the rows, and last with Z itself. K is there where it was kept and the kernel is its own derivative.
    keep : bool
        Whether L' is kept between the value and the gradient, where it takes at most KEPT_BYTES.

    Returns
    -------
    result : Nystrom
        As `nystrom` returns it.
    gradient : Tensor [p]
        The part of dF/dtheta that does not go through K_mn and K_mm: that of diag(K), and that of the noise.
    trace : Tensor []
        tr S, the derivative by way of K_mn and K_mm in the log sd of a kernel that is sd^2 times another one.
    """
    result, columns, K_mm, D = _fit(kernel, theta, train, Z, objective, keep)
    y, n, m, s2, L_mm = train.y, len(train), len(Z), result.s2, result.L_mm
    is_uniform, is_vfe, model = objective in ("vfe", "pp"), objective == "vfe", result.model.pullback()
    A_inv, w, beta = model.inverse, model.weights, torch.empty_like(y)  # [m, m], [m], [n]
    # S = I - s2 A^-1 - w w' [- (A / s2 - I)]  [m, m], without L' diag(delta) L
    S = sum_with_product(A_inv, result.L_A, result.L_A.T, -s2, -1.0 / s2) if is_vfe else A_inv * -s2
    S.addr_(w, w, alpha=-1.0).diagonal().add_(2.0 if is_vfe else 1.0)
    alpha = solve_transposed(L_mm, w[:, None])[:, 0]  # [m]
    if is_vfe:
        A_inv.diagonal().sub_(1.0 / s2)  # A^-1 - I/s2, all that is needed of it from here on
    if is_uniform:  # L_mm^-T (A^-1 [- I/s2]), a factor that all of dF/dK_mn has in common
        right = solve_transposed(L_mm, A_inv)  # [m, m]
    is_tight = objective == "tight-vfe"
    delta = 1.0 / (s2 + D) if is_tight else torch.empty_like(y).fill_(1.0 / s2 if is_vfe else 0.0)  # [n]

    for rows in row_blocks(n, (3 if is_uniform else 4) * y.element_size() * m, y, BLOCK):
        Lt, V = columns[rows], s2 + D[rows] if objective == "fitc" else None  # [m, block], [block]
        model.beta(Lt, y[rows], V, out=beta[rows])
        if is_uniform:
            dK = (right @ Lt).addr_(alpha, beta[rows], alpha=-1.0)  # [m, block]
        else:
            inner = A_inv @ Lt  # [m, block]
            if V is not None:
                inner.mul_(s2 / V)
                delta[rows] = (1.0 - torch.linalg.vecdot(inner, Lt, dim=0)) / V - beta[rows].square()  # M
            scaled = Lt * delta[rows]
            add_gram_(S, scaled, Lt, alpha=-1.0)
            dK = solve_transposed(L_mm, inner.sub_(scaled).addr_(w, beta[rows], alpha=-1.0))
        receive(train.X[rows], dK, columns.covariances(rows))

    S = S if is_uniform else symmetric_from_lower(S)
    receive(Z, solve_transposed(L_mm, solve_transposed(L_mm, S).T).mul_(-0.5), K_mm)
    is_pp = objective == "pp"
    theta = columns.theta
    gradient = torch.zeros_like(theta) if is_pp else kernel.theta_gradient_diag(theta, train.X, 0.5 * delta)
    by_noise = 0.5 * delta.sum() if objective == "fitc" else model.by_noise(beta @ beta)  # []
    if is_vfe:
        by_noise.sub_(0.5 * result.terms.trace / s2)
    elif is_tight:
        add_multiple(by_noise, delta @ D, -0.5 / s2)
    gradient[-1].add_(noise_derivative(kernel, by_noise.mul_(2.0 * s2)))  # ds2 / d log noise sd = 2 s2
    return result, gradient, S.diagonal().sum()


def evidence(kernel: Any, theta: Float[Tensor, " p"], train: Dataset) -> tuple[Number, Float[Tensor, " p"]]:
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
        NLML = (y'a + log det A) / 2 without its constant, where A = K + s2 I and a = A^-1 y. On a GPU a tensor, while
        rare cases are assumed away.
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
    s2, theta = deferred_noise_variance(theta), theta.to(train.y.device)
    A = kernel(theta, train.X, train.X)  # [n, n]
    A.diagonal().add_(s2)
    L, jitter = cholesky(A, "K + s2 I")
    a = torch.cholesky_solve(train.y[:, None], L)[:, 0]  # [n]
    W = torch.cholesky_inverse(L).addr_(a, a, alpha=-1.0).mul_(0.5)  # [n, n] dNLML/dA
    gradient = kernel.theta_gradient(theta, train.X, train.X, W)
    trace, half_logdet, fit = map(read_unless_deferred, (W.diagonal().sum(), L.diagonal().log().sum(), train.y @ a))
    gradient[-1] += noise_derivative(kernel, 2.0 * s2 * trace)  # dA/dtheta_p = 2 s2 I
    return Terms(fit, 2.0 * half_logdet, 0.0), gradient, jitter
