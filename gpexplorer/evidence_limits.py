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

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .linalg.blocks import row_blocks
from .linalg.cholesky import cholesky
from .linalg.deferred_reads import Number, at_least
from .objectives import Nystrom, nystrom
from .problem import Dataset

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
        Steps of conjugate gradients, each with n^2 kernel entries; 0 needs n m entries alone.

    Returns
    -------
    EvidenceLimits

    Raises
    ------
    NotPositiveDefinite
        K_mm has no Cholesky factor, even with jitter.

    Notes
    -----
    2 n m^2 flops, and n^2 kernel entries with 2 n^2 flops per iteration. Memory is one block of rows.
    """
    model = nystrom(kernel, theta, train, Z, "tight-vfe")
    y, terms = train.y, model.terms
    yy = float(y @ y)
    least, largest = least_objective(model, yy), terms.total("tight-vfe")
    if not iterations:
        return EvidenceLimits(least, largest)

    def solve_sparse(r: Tensor) -> Tensor:
        """(K_hat + s2 I)^-1 r [n]: two passes over n m kernel entries."""
        return _solve_sparse(kernel, theta, train, Z, model, r)

    v, r = torch.zeros_like(y), y.clone()
    z = solve_sparse(r)
    p, rz = z.clone(), float(r @ z)
    lowest, highest = 2.0 * least - terms.complexity, terms.fit  # of y'(K + s2 I)^-1 y
    for _ in range(iterations):
        Ap = _times_exact(kernel, theta, train, model.s2, p)
        step = rz / float(p @ Ap)
        v, r = v + step * p, r - step * Ap
        z = solve_sparse(r)
        energy = float(v @ (y + r))  # 2 v'y - v'(K + s2 I) v
        previous_rz, rz = rz, float(r @ z)
        lowest, highest = max(lowest, energy), min(highest, energy + rz)
        if rz <= 1e-12 * yy / model.s2:
            break
        p = z + (rz / previous_rz) * p
    return EvidenceLimits(0.5 * (lowest + terms.complexity), 0.5 * (highest + terms.complexity + terms.trace))


def _times_exact(kernel: Any, theta: Tensor, train: Dataset, s2: float, v: Tensor) -> Tensor:
    """(K + s2 I) v [n], by blocks of rows of K."""
    product = s2 * v
    for rows in row_blocks(len(train), v.element_size() * len(train), v):
        product[rows] += kernel(theta, train.X[rows], train.X) @ v
    return product


def _solve_sparse(kernel: Any, theta: Tensor, train: Dataset, Z: Any, model: Nystrom, r: Tensor) -> Tensor:
    """(L L' + s2 I)^-1 r = (r - L A^-1 L'r) / s2 [n], with L' = L_mm^-1 K_mn."""
    Lr, blocks = torch.zeros_like(model.c), list(row_blocks(len(train), r.element_size() * len(Z), r))
    for rows in blocks:
        Lr += kernel(theta, Z, train.X[rows]) @ r[rows]
    Lr = torch.linalg.solve_triangular(model.L_mm, Lr[:, None], upper=False)  # [m, 1]
    w = torch.cholesky_solve(Lr, model.L_A)
    w = torch.linalg.solve_triangular(model.L_mm.T, w, upper=True)[:, 0]  # [m]
    solution = r.clone()
    for rows in blocks:
        solution[rows] -= kernel(theta, train.X[rows], Z) @ w
    return solution / model.s2
