"""How far a sparse GP is from the exact one: limits of the exact evidence from above and from below.

The objective of the exact model, less its constant, is E = (y'(K + s2 I)^-1 y + log |K + s2 I|) / 2. With the letters
of `objectives`, and T = tr(K - K_hat) = sum D, which is at least the largest eigenvalue of K - K_hat,

    least      ( y'(K_hat + (s2 + T) I)^-1 y + log |K_hat + s2 I| ) / 2                       Titsias (2014)
    largest    ( y'(K_hat + s2 I)^-1 y + log |K_hat + s2 I| + sum log(1 + D_i / s2) ) / 2     the tight VFE

    least <= E <= largest

Their difference says whether there are enough inducing points: neither more points nor all rows can gain more. `least`
follows from the factors of the objective in m^3 / 3 flops. With a few steps of conjugate gradients on (K + s2 I) v = y,
preconditioned by K_hat + s2 I, both get closer, at n^2 kernel entries per step: with r = y - (K + s2 I) v,

    2 v'y - v'(K + s2 I) v  <=  y'(K + s2 I)^-1 y  <=  2 v'y - v'(K + s2 I) v + r'(K_hat + s2 I)^-1 r

References
----------
Titsias (2014). Variational inference for Gaussian and determinantal point processes. NIPS workshop.
Artemev, Burt and van der Wilk (2021). Tighter bounds on the log marginal likelihood of Gaussian process regression
using conjugate gradients. ICML. Its bound of log |K + s2 I| is log |K_hat + s2 I| + n log(1 + T / (n s2)), which, by
Jensen's inequality, is never below the one that is used here.
Kim and Teh (2018). Scaling up the automatic statistician. AISTATS.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .linalg.blocks import row_blocks
from .linalg.cholesky import cholesky
from .linalg.deferred_reads import Number, at_least
from .objectives import Nystrom, nystrom
from .problem import Dataset, MixedRows

BOUNDS = ("vfe", "tight-vfe")  # objectives that are never below the exact one


class EvidenceLimits(NamedTuple):
    """Two numbers between which the objective of the exact model lies, in nat, without the constant n/2 log 2 pi."""

    least: float
    largest: float

    @property
    def gap(self) -> float:
        """How much better than the sparse model the exact one can be at most, in nat."""
        return self.largest - self.least

    def sentence(self) -> str:
        """Say how far the sparse model is from the exact one at most."""
        return f"At most {max(self.gap, 0.0):.3g} nat from the exact model with these hyperparameters."


def least_objective(model: Nystrom, yy: float) -> float:
    """Return a lower limit of the exact model's objective from the factors of a sparse one: m^3 / 3 flops.

    Parameters
    ----------
    model : Nystrom
        Factors, with `unexplained` = tr(K - K_hat).
    yy : float
        y'y.
    """
    return limit_from(yy - float(explained_energy(model)), model.s2, model.unexplained, model.terms.complexity)


def explained_energy(model: Nystrom) -> Float[Tensor, ""]:
    """Return c'(L'L + (s2 + T) I)^-1 c, the part of y'y that the lower limit explains, on the device."""
    return _explained_energy(model.L_A @ model.L_A.T, model.c, model.unexplained)


def least_from(A: Tensor, c: Tensor, yy: float, s2: float, unexplained: float, complexity: float) -> float:
    """Return the limit of `least_objective` from its parts; A is not changed.

    Parameters
    ----------
    A : Tensor [m, m]
        L'L + s2 I.
    c : Tensor [m]
        L'y.
    yy, s2 : float
        y'y and the noise variance.
    unexplained : float
        tr(K - K_hat).
    complexity : float
        E_C = log det(K_hat + s2 I).
    """
    return limit_from(yy - float(_explained_energy(A.clone(), c, unexplained)), s2, unexplained, complexity)


def _explained_energy(A: Tensor, c: Tensor, unexplained: Number) -> Tensor:
    """Overwrite A = L'L + s2 I."""
    A.diagonal().add_(at_least(unexplained, 0.0))
    whitened_c = torch.linalg.solve_triangular(cholesky(A, "L'L + (s2 + T) I").L, c[:, None], upper=False)[:, 0]
    return whitened_c @ whitened_c


def limit_from(remaining: float, s2: float, unexplained: float, complexity: float) -> float:
    """Return the limit from y'y without `explained_energy`, and from parts as for `least_from`."""
    return 0.5 * (remaining / (s2 + max(unexplained, 0.0)) + complexity)


def evidence_limits(
    kernel: Any, theta: Float[Tensor, " p"], train: Dataset, Z: Any, iterations: int = 0
) -> EvidenceLimits:
    """Compute limits of the exact model's objective from inducing inputs Z.

    Parameters
    ----------
    theta : Tensor [p]
    train : Dataset
        n rows.
    Z : Tensor [m, d] or sequence
        Inducing inputs.
    iterations : int
        Steps of conjugate gradients, each with n^2 kernel entries, and as many once more; 0 needs n m entries alone.

    Returns
    -------
    EvidenceLimits

    Raises
    ------
    NotPositiveDefinite
        K_mm has no Cholesky factor, even with jitter.

    Notes
    -----
    2 n m^2 flops, and per iteration as many again, and n^2 kernel entries with 2 n^2 flops. Memory is one block of
    rows.
    """
    # The limits are those of the given numbers: in single precision their own rounding would be larger than the gap.
    precise = (train.y.device, torch.float64)
    theta, train = theta.to(*precise), train.to(*precise)
    Z = Z.to(*precise) if isinstance(Z, Tensor | MixedRows) else Z
    model = nystrom(kernel, theta, train, Z, "tight-vfe")
    y, terms = train.y, model.terms
    least, largest = least_objective(model, float(y @ y)), terms.total("tight-vfe")
    if not iterations:
        return EvidenceLimits(least, largest)

    v, r, p, rz = torch.zeros_like(y), y.clone(), torch.zeros_like(y), math.inf
    for _ in range(iterations):
        z, bound = _solve_sparse(kernel, theta, train, Z, model, r)
        if bound <= 1e-12 * terms.fit:
            break
        previous_rz, rz = rz, float(r @ z)
        p = z + max(rz / previous_rz, 0.0) * p  # where z is rounded to nothing, rz may have the wrong sign
        Ap = _times_exact(kernel, theta, train, model.s2, p)
        step = float(r @ p) / float(p @ Ap)  # the best along any p
        v, r = v + step * p, r - step * Ap
    r = y - _times_exact(kernel, theta, train, model.s2, v)  # the r of the recurrence has drifted
    energy = float(v @ (y + r))  # 2 v'y - v'(K + s2 I) v
    _, bound = _solve_sparse(kernel, theta, train, Z, model, r)
    lowest, highest = max(2.0 * least - terms.complexity, energy), min(terms.fit, energy + bound)
    return EvidenceLimits(0.5 * (lowest + terms.complexity), 0.5 * (highest + terms.complexity + terms.trace))


def _times_exact(kernel: Any, theta: Tensor, train: Dataset, s2: float, v: Tensor) -> Tensor:
    """(K + s2 I) v [n], by blocks of rows of K."""
    product = s2 * v
    for rows in row_blocks(len(train), v.element_size() * len(train), v):
        product[rows] += kernel(theta, train.X[rows], train.X) @ v
    return product


def _solve_sparse(
    kernel: Any, theta: Tensor, train: Dataset, Z: Any, model: Nystrom, r: Tensor
) -> tuple[Tensor, float]:
    """z = (L L' + s2 I)^-1 r = (r - L u) / s2 [n], with L' = L_mm^-1 K_mn and u = A^-1 L'r; and a number not below r'z.

    r'z is the least (|r - L u|^2 + s2 |u|^2) / s2 over u. As a sum of squares, it is not below that with a rounded u;
    r'(r - L u) / s2 has no digit left where the noise is small. Two passes over n m kernel entries, m^2 n flops each.
    """
    Lr, blocks = torch.zeros_like(model.c), list(row_blocks(len(train), r.element_size() * len(Z), r))

    def whitened(rows: slice) -> Tensor:  # L' [m, rows]; K_nm L_mm'^-1 u as a product with L_mm'^-1 u cancels
        return torch.linalg.solve_triangular(model.L_mm, kernel(theta, Z, train.X[rows]), upper=False)

    for rows in blocks:
        Lr += whitened(rows) @ r[rows]
    u = torch.cholesky_solve(Lr[:, None], model.L_A)[:, 0]
    z = r.clone()
    for rows in blocks:
        z[rows] -= whitened(rows).T @ u
    z /= model.s2
    return z, model.s2 * float(z @ z) + float(u @ u)
