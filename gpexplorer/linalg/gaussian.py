"""One linear-Gaussian model, from sums over blocks of rows: weights, likelihood, gradient, more features, more rows.

    y = Phi w + e,   w ~ N(0, I) [m],   e ~ N(0, V),   V diagonal [n, n]
    C = Phi Phi' + V [n, n], the covariance of y, never formed
    W = s2 V^-1, the weights of the rows; W = I where every row has the noise variance s2

    sums         A = Phi'W Phi + s2 I = L L' [m, m],   c = Phi'W y [m],   y'W y
    weights      w = A^-1 c,   w | y ~ N(w, s2 A^-1)
    fit          y'C^-1 y = (y'W y - h'h) / s2,   h = L^-1 c
    complexity   log |C|  = sum_i log V_i - m log s2 + log |A|;   (n - m) log s2 + log |A| where W = I
    trace        tr(K - Phi Phi') / s2, for a covariance K of which Phi Phi' is a part
    NLML         (fit + complexity) / 2, without n/2 log 2 pi

    beta         C^-1 y = W (y - Phi w) / s2 [n]
    dNLML/dPhi   W Phi A^-1 - beta w' [n, m]
    dNLML/dV_i   (1 / V_i - W_i phi_i'A^-1 phi_i / V_i - beta_i^2) / 2
    dNLML/ds2    ((n - m) / s2 + tr A^-1 - beta'beta) / 2 where W = I;   with s2 = exp(2 log s),   d/dlog s = 2 s2 d/ds2

    another feature u    half = L^-1 Phi'W u,   s = u'W u + s2 - half'half,   e = y'W u - half'h
                         L gains the row (half', sqrt s), h the entry e / sqrt s
                         fit falls by e^2 / (s2 s), complexity rises by log(s / s2)
    several features U   the same with matrices: L gains (Half', L_S),  L_S L_S' = U'W U + s2 I - Half'Half
    more rows Phi_+      the new L' is the triangle of a QR factorisation of [L, Phi_+'W^1/2]', which does not square
                         the condition number; c gains Phi_+'W y_+

The families that use it differ in Phi: whitened kernel columns of inducing points (Phi = L of the sparse objectives),
eigenfunctions of a grid, random Fourier features, a network. Blocks come as Phi' [m, b], one column per row of data, or
as Phi [b, m]; each of m columns has the same place in both.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .blocks import add_gram_, symmetric_from_lower
from .cholesky import cholesky
from .deferred_reads import Number, is_deferring, log


class LinearGaussian(NamedTuple):
    """The model after all rows were added: everything that predictions and the gradient need, in O(m^2) numbers."""

    L: Tensor  # [m, m] Cholesky factor of A
    c: Tensor  # [m] Phi'W y
    s2: Number
    n: int
    fit: Number  # y'C^-1 y
    complexity: Number  # log |C|
    jitter: float  # what was added to the diagonal of A
    unexplained: Number = math.nan  # tr(K - Phi Phi'), where tr K was given

    @property
    def value(self) -> Number:
        """NLML in nat, without its constant."""
        return 0.5 * (self.fit + self.complexity)

    @property
    def weights(self) -> Float[Tensor, " m"]:
        """Posterior mean w = A^-1 c of the weights, computed at each access. 2 m^2 flops."""
        return torch.cholesky_solve(self.c[:, None], self.L)[:, 0]

    def pullback(self, like: Tensor | None = None) -> Pullback:
        """What the gradient of the NLML needs of the model, in the precision of `like`. m^3 flops."""
        inverse, weights = torch.cholesky_inverse(self.L), self.weights
        trace = inverse.diagonal().sum()
        if like is not None:
            inverse, weights = inverse.to(like), weights.to(like)
        return Pullback(inverse, weights, self.s2, self.n, trace)


class Sums:
    """A without its ridge, and c, to which blocks of rows are added.

    Parameters
    ----------
    m : int
        Number of features.
    like : Tensor
        It gives precision and device.
    """

    def __init__(self, m: int, like: Tensor) -> None:
        self._products, self.c = like.new_zeros(m, m), like.new_zeros(m)

    def add(self, Phi_t: Float[Tensor, "m b"], y: Float[Tensor, " b"], W: Float[Tensor, " b"] | None = None) -> None:
        """Add a block of rows, which are columns of Phi', with their weights if these are not 1.

        6/5 b m^2 flops, or 2 b m^2 with few features or on a GPU.
        """
        weighted = Phi_t if W is None else Phi_t * W
        add_gram_(self._products, weighted, Phi_t)
        self.c.addmv_(weighted, y)

    @property
    def A(self) -> Float[Tensor, "m m"]:
        """The sum of the products. It is overwritten by `model`, or computed from its lower triangle at each access."""
        return symmetric_from_lower(self._products)

    def model(self, *numbers: Any, **options: Any) -> LinearGaussian:
        """Return `linear_gaussian` of these sums, whose A is overwritten, with its further parameters n, yy, s2, ..."""
        return linear_gaussian(self.A, self.c, *numbers, **options)


def linear_gaussian(  # noqa: PLR0913 - the sums, and what is known of the noise and of the prior
    A: Float[Tensor, "m m"],
    c: Float[Tensor, " m"],
    n: int,
    yy: float | Tensor,
    s2: Number,
    name: str = "Phi'Phi + s2 I",
    log_V: Number | None = None,
    prior: Tensor | None = None,
) -> LinearGaussian:
    """Return the model whose sums are known.

    Parameters
    ----------
    A : Tensor [m, m]
        Phi'W Phi, symmetric. It is overwritten: s2 is added to its diagonal.
    c : Tensor [m]
        Phi'W y.
    n : int
        Number of rows.
    yy : float or Tensor []
        y'W y. A tensor is read together with the other numbers.
    s2 : float
        Noise variance of a row of weight 1. On a GPU it and `log_V` may be tensors, and the results are tensors while
        rare cases are assumed away.
    name : str
        Name of the matrix A with its ridge in error messages.
    log_V : float, optional
        Sum of the log noise variances of the rows; by default all of them are s2.
    prior : Tensor [], optional
        tr K for a covariance K of which Phi Phi' is a part, where W = I. It gives `unexplained`.

    Raises
    ------
    NotPositiveDefinite
        If A is not positive definite even with jitter.

    Notes
    -----
    m^3 / 3 flops.
    """
    m, rest = len(c), [] if prior is None else [prior - A.diagonal().sum()]
    A.diagonal().add_(s2)
    L, jitter = cholesky(A, name)
    h = torch.linalg.solve_triangular(L, c[:, None], upper=False)[:, 0]
    numbers = torch.stack([yy - h @ h, L.diagonal().log().sum(), *rest])  # one read for all of them
    values = numbers.double().unbind() if is_deferring() else numbers.tolist()
    residual, half_logdet, unexplained = [*values, math.nan][:3]
    log_rest = (n - m) * log(s2) if log_V is None else log_V - m * log(s2)
    return LinearGaussian(L, c, s2, n, residual / s2, log_rest + 2.0 * half_logdet, jitter, unexplained)


class Pullback(NamedTuple):
    """The gradient of the NLML in Phi and in the noise, block by block."""

    inverse: Tensor  # [m, m] A^-1
    weights: Tensor  # [m] w
    s2: Number
    n: int
    trace: Tensor  # [] tr A^-1, in the precision of the model

    def beta(
        self,
        Phi_t: Float[Tensor, "m b"],
        y: Float[Tensor, " b"],
        V: Float[Tensor, " b"] | None = None,
        out: Float[Tensor, " b"] | None = None,
    ) -> Float[Tensor, " b"]:
        """The entries of C^-1 y at some rows, given their noise variances V if these are not s2."""
        return torch.addmv(y, Phi_t.T, self.weights, alpha=-1.0, out=out).div_(self.s2 if V is None else V)

    def columns(self, Phi_t: Float[Tensor, "m b"], beta: Float[Tensor, " b"]) -> Float[Tensor, "m b"]:
        """dNLML/dPhi' where W = I. 2 b m^2 flops."""
        return (self.inverse @ Phi_t).addr_(self.weights, beta, alpha=-1.0)

    def rows(self, Phi: Float[Tensor, "b m"], beta: Float[Tensor, " b"]) -> Float[Tensor, "b m"]:
        """dNLML/dPhi where W = I, for features that are stored row by row. 2 b m^2 flops."""
        return (Phi @ self.inverse).addr_(beta, self.weights, alpha=-1.0)

    def by_noise(self, beta_beta: Tensor) -> Tensor:
        """dNLML/ds2 [] where W = I, from beta'beta []."""
        return 0.5 * (self.trace - beta_beta + (self.n - len(self.weights)) / self.s2)


class Additions(NamedTuple):
    """The effect of each of k candidates as the only new feature."""

    half: Tensor  # [m, k]
    s: Tensor  # [k]
    e: Tensor  # [k]


class GrowingGaussian:
    """L and h of a model that gains features, whose cross products come from a pass over the rows.

    Parameters
    ----------
    most : int
        Largest number of features.
    s2 : float
        Noise variance of a row of weight 1.
    like : Tensor
        It gives precision and device.
    """

    def __init__(self, most: int, s2: float, like: Tensor) -> None:
        self._L, self._h, self.s2, self.m = like.new_zeros(most, most), like.new_zeros(most), s2, 0

    @property
    def L(self) -> Float[Tensor, "m m"]:
        """The factor at this size."""
        return self._L[: self.m, : self.m]

    @property
    def h(self) -> Float[Tensor, " m"]:
        """L^-1 c at this size."""
        return self._h[: self.m]

    @property
    def weights(self) -> Float[Tensor, " m"]:
        """Posterior mean of the weights. m^2 flops."""
        return torch.linalg.solve_triangular(self.L.T, self.h[:, None], upper=True)[:, 0]

    def additions(
        self, cross: Float[Tensor, "m k"], squares: Float[Tensor, " k"], targets: Float[Tensor, " k"]
    ) -> Additions:
        """Return the effect of each of k features u alone, from Phi'W u, u'W u and y'W u. m^2 k flops."""
        half = torch.linalg.solve_triangular(self.L, cross, upper=False)  # [m, k]
        s = (squares - half.square().sum(0)).clamp_min(0.0) + self.s2
        return Additions(half, s, targets - self.h @ half)

    def add(self, feature: Additions) -> tuple[float, float]:
        """Add the only feature of `additions`; return by how much the fit falls and the complexity rises."""
        m, s, e = self.m, float(feature.s), float(feature.e)
        self._L[m, :m], self._L[m, m], self._h[m] = feature.half[:, 0], math.sqrt(s), e / math.sqrt(s)
        self.m += 1
        return e**2 / (self.s2 * s), math.log(s / self.s2)

    def join(
        self, cross: Float[Tensor, "m k"], squares: Float[Tensor, "k k"], targets: Float[Tensor, " k"], name: str
    ) -> None:
        """Add k features U together, from Phi'W U, U'W U and y'W U; the border of A is called `name` in errors."""
        m, end = self.m, self.m + len(targets)
        half = torch.linalg.solve_triangular(self.L, cross, upper=False).T  # [k, m]
        border = squares - half @ half.T
        border.diagonal().add_(self.s2)
        L_S, right = cholesky(border, name).L, (targets - half @ self.h)[:, None]
        self._L[m:end, :m], self._L[m:end, m:end] = half, L_S
        self._h[m:end] = torch.linalg.solve_triangular(L_S, right, upper=False)[:, 0]
        self.m = end


def with_rows(
    L: Float[Tensor, "m m"],
    weights: Float[Tensor, " m"],
    Phi_t: Float[Tensor, "m b"],
    y: Float[Tensor, " b"],
    W: Float[Tensor, " b"],
) -> tuple[Float[Tensor, "m m"], Float[Tensor, " m"]]:
    """Return the factor of A and the weights after more rows, at the cost of the new rows alone.

    Parameters
    ----------
    L, weights : Tensor [m, m] and [m]
        The factor and the weights before.
    Phi_t : Tensor [m, b]
        One column per new row.
    y, W : Tensor [b]
        Targets, and the weights s2 / V of the new rows.

    Notes
    -----
    2 m^2 (b + m) flops per block of about m rows.
    """
    c, root = L @ (L.T @ weights), W.sqrt()  # [m], [b]
    for scaled, targets in zip((Phi_t * root).split(max(len(L), 1), 1), (root * y).split(max(len(L), 1)), strict=True):
        R = torch.linalg.qr(torch.cat([L, scaled], 1).T, mode="r").R  # [m, m]
        L = (R * R.diagonal().sign()[:, None]).T
        c = c + scaled @ targets
    return L.contiguous(), torch.cholesky_solve(c[:, None], L)[:, 0]
