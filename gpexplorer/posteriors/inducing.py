"""The posterior of sparse GPs with m inducing inputs Z, whose values are L_mm v with v ~ N(b, C).

    l* = L_mm^-1 k_m(x*)
    mean = l*' b                                                O(m) per point, after the kernel row
    cov  = k(x, z) - l_x'l_z + l_x' C l_z                       O(m^2) per point
    path = h(x) + k_m(x)' L_mm^-T (v - L_mm^-1 h(Z))            h from the prior, v ~ N(b, C)

With the letters of `objectives`, b = A^-1 L'y and C = s2 A^-1. Projected process and variational free energy have the
same posterior (Cao et al. 2013, section 2; Titsias 2009, eq 6). Paths are those of Wilson et al. (2020), eq 13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import PosteriorError
from ..objectives import Nystrom, residual_variance
from ..problem import Kernel
from .base import Posterior
from .sample_paths import prior_paths
from .saved.kernel_parts import read_kernel, read_rows, write_kernel, write_rows
from .saved.parts import Parts, check_moments, trial_rows
from .weights import NormalWeights, PrecisionFactor, read_weights, updated, without_rows

UNLIKE = 0.01  # of the prior variance: how far a factor that was read may be from K_mm, which includes jitter
Inducing = TypeVar("Inducing", bound="InducingPosterior")


class InducingPosterior(Posterior):
    """A sparse GP.

    Parameters
    ----------
    theta : Tensor [p]
        Log-hyperparameters; the last one is the log noise standard deviation.
    Z : Tensor [m, d] or sequence
        Inducing inputs.
    L_mm : Tensor [m, m]
        Cholesky factor of K_mm.
    weights : NormalWeights
        The distribution of v.
    """

    kind: ClassVar[str] = "inducing"
    row_noise = False  # whether each row has the variance that Z leaves unexplained as additional noise (FITC)

    def __init__(self, kernel: Kernel, theta: Tensor, Z: Any, L_mm: Tensor, weights: NormalWeights) -> None:
        super().__init__(L_mm, float((2.0 * theta[-1]).exp()))
        self.kernel, self.theta, self.Z, self.L_mm, self.weights = kernel, theta, Z, L_mm, weights
        self.alpha = torch.linalg.solve_triangular(L_mm.T, weights.mean[:, None], upper=True)[:, 0]  # [m]

    def _contents(self) -> str:
        return f"{self.kind}, {len(self.Z):,} points"

    @property
    def row_numbers(self) -> int:
        return 4 * len(self.Z)

    def block_mean(self, X: Any) -> Tensor:
        return self.kernel(self.theta, self.Z, X).T @ self.alpha

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        K = self.kernel(self.theta, self.Z, X)  # [m, b]
        L_star = torch.linalg.solve_triangular(self.L_mm, K, upper=False)  # [m, b] columns l*
        var = self.kernel.diag(self.theta, X) - L_star.square().sum(0) + self.weights.half(L_star).square().sum(0)
        return K.T @ self.alpha, var

    def unexplained(self, X: Any) -> Float[Tensor, " b"]:
        """The prior variance of one block of rows that Z leaves unexplained, k(x, x) - l*'l*."""
        return residual_variance(self.kernel.diag(self.theta, X), self._whitened(X))

    def joint(self, X: Any, Z: Any) -> Tensor:
        left, right = self._whitened(X), self._whitened(Z)  # [m, b], [m, c]
        return self.kernel(self.theta, X, Z) - left.T @ right + self.weights.half(left).T @ self.weights.half(right)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        prior = prior_paths(self.kernel, self.theta, size, draw)
        v = self.weights.draw(size, draw)  # [m, size]
        missing = v - torch.linalg.solve_triangular(self.L_mm, prior(self.Z).T, upper=False)
        C = torch.linalg.solve_triangular(self.L_mm.T, missing, upper=True)  # [m, size]
        return lambda X: prior(X) + C.T @ self.kernel(self.theta, self.Z, X)

    def updated(self: Inducing, X: Any, y: Tensor, V: Tensor) -> Inducing:
        if not isinstance(self.weights, PrecisionFactor):
            return super().updated(X, y, V)
        L_star = self._whitened(X)
        if self.row_noise:
            V = V + residual_variance(self.kernel.diag(self.theta, X), L_star)
        return self._with(updated(self.weights, L_star, y.to(L_star), V.to(L_star)))

    def without_rows(self: Inducing) -> Inducing:
        """The same inducing inputs and hyperparameters before any row: the prior, to which rows can be added."""
        if not isinstance(self.weights, PrecisionFactor):
            raise PosteriorError(f"The rows of a {type(self).__name__} from a variational fit cannot be left out.")
        return self._with(without_rows(self.weights))

    def write(self, parts: Parts) -> None:
        parts.text["row_noise"] = self.row_noise
        parts.keep(L_mm=self.L_mm)
        write_kernel(parts, self.kernel, self.theta)
        write_rows(parts, "Z", self.Z)
        self.weights.write(parts)

    @classmethod
    def from_parts(cls, parts: Parts) -> InducingPosterior:
        Z, d = read_rows(parts, "Z")
        kernel, theta = read_kernel(parts, d)
        posterior = cls(kernel, theta, Z, parts.factor("L_mm", len(Z)), read_weights(parts, len(Z)))
        posterior.row_noise = parts.flag("row_noise")
        return posterior

    def examples(self) -> Any:
        return trial_rows(self.Z)

    def check(self) -> None:
        K = self.kernel(self.theta, self.Z, self.Z)
        difference = self.L_mm @ self.L_mm.T - K
        jitter = difference.diagonal().mean().clamp_min(0.0)  # as much as a share of a large noise variance may be
        difference.diagonal().sub_(jitter)
        if float(difference.abs().max()) > UNLIKE * float(K.diagonal().max()):
            raise PosteriorError("L_mm is not the Cholesky factor of the covariances of Z.")
        mean, var = self.moments(X := self.examples())
        check_moments(mean, var, self.kernel.diag(self.theta, X))

    def _with(self: Inducing, weights: NormalWeights) -> Inducing:
        """The same posterior with other weights; its noise is that of theta."""
        other = type(self)(self.kernel, self.theta, self.Z, self.L_mm, weights)
        other.row_noise, other.of = self.row_noise, self.of
        return other

    def _whitened(self, X: Any) -> Tensor:
        return torch.linalg.solve_triangular(self.L_mm, self.kernel(self.theta, self.Z, X), upper=False)


def nystrom_posterior(
    kernel: Kernel, theta: Float[Tensor, " p"], Z: Any, factors: Nystrom, row_noise: bool = False
) -> InducingPosterior:
    """Make the posterior from the factors that `nystrom` has computed.

    Parameters
    ----------
    theta : Tensor [p]
        Log-hyperparameters.
    Z : Tensor [m, d] or sequence
        Inducing inputs.
    factors : Nystrom
        The result of `nystrom` for the same theta and Z.
    row_noise : bool, default False
        Whether the factors are those of FITC, which matters to rows that are added later.

    Returns
    -------
    InducingPosterior
    """
    b = torch.cholesky_solve(factors.c[:, None], factors.L_A)[:, 0]  # [m] A^-1 L'y
    posterior = InducingPosterior(kernel, theta, Z, factors.L_mm, PrecisionFactor(b, factors.L_A, factors.s2))
    posterior.row_noise = row_noise
    return posterior
