"""The posterior of GPs that predict from training rows and one coefficient per row.

    A    = K_SS + s2 I,   S the rows that the variance uses
    mean = k(x, X) alpha                                        O(n) per point
    cov  = k(x, z) - k(x, S) A^-1 k(S, z)                       one solve with A per point
    path = mean + h(x) - k(x, S) A^-1 (h(S) + e)                h from the prior, e ~ N(0, s2 I)

Rows that were added later may have noise of their own, which then stands for s2 in A and in e.

With S = X and alpha = A^-1 y this is the exact GP (Rasmussen and Williams 2006, eqs 2.25, 2.26) and the paths are those
of Wilson et al. (2020), eq 12. With fewer rows S the covariance is that of a GP that saw only these rows, which is
never smaller. How A^-1 is applied is the solver's: by a Cholesky factor here, by iterations elsewhere.

`StatesPosterior` is that of a GP of one input whose kernel is that of a small state, with waves: exact, at O(log n) per
new point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import PosteriorError
from ..kernels.row_scaled import unscaled_kernel
from ..kernels.states.filtering import Smoother, merged
from ..linalg.blocks import row_blocks
from ..linalg.cholesky import cholesky, cholesky_in_place
from ..linalg.kernel_columns import fill_rows
from ..objectives import noise_variance
from ..problem import Dataset, Kernel, joined_rows
from .base import Posterior
from .sample_paths import prior_paths
from .saved.kernel_parts import read_kernel, read_rows, write_kernel, write_rows
from .saved.parts import Parts, check_moments, trial_rows
from .weights import normal_columns

Rows = TypeVar("Rows", bound="RowsPosterior")
KeptRows = TypeVar("KeptRows", bound="KeptRowsPosterior")

FEW = 500  # rows: a posterior of so few that was read is tried out with its variances
IN_PLACE = 2000  # more rows than this are factored in the memory of their matrix


@runtime_checkable
class Solver(Protocol):
    """How A^-1 is applied to right-hand sides B [s, t]."""

    def solve(self, B: Float[Tensor, "s t"]) -> Float[Tensor, "s t"]:
        """Solutions A^-1 B."""

    def explained(self, B: Float[Tensor, "s t"]) -> Float[Tensor, " t"]:
        """The quadratic forms b'A^-1 b of the columns of B; an iteration stopped early gives lower bounds."""


class CholeskySolver:
    """A^-1 by a Cholesky factor, which is computed at the first use; a pickle contains the rows and not the factor.

    Parameters
    ----------
    theta : Tensor [p]
    S : inputs [s, d] or sequence
        The rows of A = K_SS + s2 I.
    name : str
        What an error calls the matrix.
    noise : Tensor [s], optional
        Noise variance of each row, where it is not s2.

    Raises
    ------
    NotPositiveDefinite
        At the first use, if A is not positive definite even with jitter.

    Notes
    -----
    s^3 / 3 flops and s^2 numbers once, then 2 s^2 flops per right-hand side.
    """

    def __init__(
        self, kernel: Kernel, theta: Tensor, S: Any, name: str = "K + s2 I", noise: Tensor | None = None
    ) -> None:
        self.kernel, self.theta, self.S, self.name, self.noise = kernel, theta, S, name, noise
        self._L: Tensor | None = None

    @property
    def L(self) -> Tensor:
        """The Cholesky factor [s, s]."""
        if self._L is None:
            if isinstance(self.S, Tensor) and len(self.S) > IN_PLACE:
                A = self.theta.new_empty(len(self.S), len(self.S))
                self._L = cholesky_in_place(self._fill, A, self.name).L
            else:
                A = self.kernel(self.theta, self.S, self.S)  # [s, s]
                A.diagonal().add_(self._noise)
                self._L = cholesky(A, self.name).L
        return self._L

    @property
    def _noise(self) -> Tensor | float:
        return noise_variance(self.theta) if self.noise is None else self.noise

    def _fill(self, A: Tensor) -> None:
        """Write A from its diagonal to the right, strip by strip."""
        for part in row_blocks(len(A), A.element_size() * len(A), A):
            fill_rows(self.kernel, self.theta, self.S[part], self.S[part.start :], A[part, part.start :])
        A.diagonal().copy_(self.kernel.diag(self.theta, self.S) + self._noise)

    def __getstate__(self) -> dict[str, Any]:
        """A copy computes its factor again."""
        return {**self.__dict__, "_L": None}

    def solve(self, B: Float[Tensor, "s t"]) -> Float[Tensor, "s t"]:
        half = torch.linalg.solve_triangular(self.L, B, upper=False)  # `cholesky_solve` would copy the factor
        return torch.linalg.solve_triangular(self.L.mT, half, upper=True)

    def with_border(self, X: Any, V: Float[Tensor, " b"], L_new: Float[Tensor, "b b"]) -> CholeskySolver:
        """The solver of the rows and b new ones with noise V, from the factor of the Schur complement of A."""
        s, b = len(self.S), len(V)
        border = torch.linalg.solve_triangular(self.L, self.kernel(self.theta, self.S, X), upper=False)  # [s, b]
        L = self.L.new_zeros(s + b, s + b)
        L[:s, :s], L[s:, :s], L[s:, s:] = self.L, border.T, L_new
        noise = self.L.new_full((s,), noise_variance(self.theta)) if self.noise is None else self.noise
        solver = CholeskySolver(self.kernel, self.theta, joined_rows(self.S, X), self.name, torch.cat([noise, V]))
        solver._L = L
        return solver

    def explained(self, B: Float[Tensor, "s t"]) -> Float[Tensor, " t"]:
        return torch.linalg.solve_triangular(self.L, B, upper=False).square().sum(0)


class RowsPosterior(Posterior):
    """A GP that predicts from training rows.

    Parameters
    ----------
    theta : Tensor [p]
        Log-hyperparameters; the last one is the log noise standard deviation.
    mean_rows : inputs [r, d] or sequence, and coefficients [r]
        The rows X and alpha of the mean.
    variance_rows : inputs [s, d] or sequence
        The rows S of the covariance.
    solver : Solver
        Applies A^-1.
    """

    kind: ClassVar[str] = "rows"

    def __init__(
        self, kernel: Kernel, theta: Tensor, mean_rows: tuple[Any, Tensor], variance_rows: Any, solver: Solver
    ) -> None:
        self.X, self.alpha = mean_rows
        super().__init__(self.alpha, noise_variance(theta))
        self.kernel, self.theta, self.S, self.solver = kernel, theta, variance_rows, solver

    def _contents(self) -> str:
        return f"{self.kind}, {len(self.alpha):,} rows"

    @property
    def row_numbers(self) -> int:
        return len(self.X) + 3 * len(self.S)

    @property
    def row_noise(self) -> Tensor | None:
        """Noise variance [s] of each row of the covariance, where it is not s2."""
        return getattr(self.solver, "noise", None)

    def block_mean(self, X: Any) -> Tensor:
        return self.kernel(self.theta, self.X, X).T @ self.alpha if len(self.X) else self.like.new_zeros(len(X))

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        K = self.kernel(self.theta, self.S, X)  # [s, b]
        mean = K.T @ self.alpha if self.X is self.S else self.block_mean(X)
        return mean, self.kernel.diag(self.theta, X) - self.solver.explained(K)

    def joint(self, X: Any, Z: Any) -> Tensor:
        W = self.solver.solve(self.kernel(self.theta, self.S, X)).T  # [b, s]
        blocks = row_blocks(len(Z), W.element_size() * len(self.S), W)
        return self.kernel(self.theta, X, Z) - torch.cat(
            [W @ self.kernel(self.theta, self.S, Z[rows]) for rows in blocks] or [W.new_zeros(len(X), 0)], 1
        )

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        prior, V = prior_paths(self.kernel, self.theta, size, draw), self.row_noise
        sd = noise_variance(self.theta) ** 0.5 if V is None else V.sqrt()[:, None]
        C = self.solver.solve(prior(self.S).T + sd * normal_columns(self.alpha, len(self.S), size, draw))  # [s, size]
        return lambda X: self.block_mean(X) + prior(X) - C.T @ self.kernel(self.theta, self.S, X)

    def updated(self: Rows, X: Any, y: Tensor, V: Tensor) -> Rows:
        if not isinstance(self.solver, CholeskySolver):  # such as one that was chosen to have no factor in memory
            return super().updated(X, y, V)
        alpha, L_new = self.with_new_coefficients(X, y, V)
        solver = self.solver.with_border(X, V.to(alpha), L_new)
        return self.changed(X=solver.S, alpha=alpha, S=solver.S, solver=solver)

    def write(self, parts: Parts) -> None:
        """Write the rows and their coefficients; no factor is kept."""
        same = self.X is self.S
        parts.text |= {"same": same, "solved": True}
        parts.keep(alpha=self.alpha)
        write_kernel(parts, self.kernel, self.theta)
        write_rows(parts, "X", self.X)
        if not same:
            write_rows(parts, "S", self.S)
        if self.row_noise is not None:
            parts.keep(row_noise=self.row_noise)
        if (by_blocks := getattr(self.solver, "description", None)) is not None:
            parts.text["by_blocks"] = by_blocks

    @classmethod
    def from_parts(cls, parts: Parts) -> RowsPosterior:
        X, d = read_rows(parts, "X")
        S = X if parts.flag("same") else read_rows(parts, "S")[0]
        kernel, theta = read_kernel(parts, d)
        noise = parts.positive("row_noise", len(S)) if "row_noise" in parts else None
        mean_rows, solver = (X, parts.tensor("alpha", len(X))), CholeskySolver(kernel, theta, S, noise=noise)
        if not parts.flag("solved"):
            return UnsolvedPosterior(kernel, theta, mean_rows, S, solver, parts.tensor("error_weights", len(S)))
        posterior = RowsPosterior(kernel, theta, mean_rows, S, solver)
        if "by_blocks" not in parts or parts.by_blocks is None or S is not X:
            return posterior
        own, least = parts.part("by_blocks"), {"cache": 0.0, "tolerance": 1e-12, "seed": 0.0}
        return parts.by_blocks(posterior, {name: own.number(name, low) for name, low in least.items()})

    def examples(self) -> Any:
        return trial_rows(self.X)

    def check(self) -> None:
        """Try out the moments; those of many rows only by their means, because variances need a factor."""
        if len(self.S) <= FEW and isinstance(self.solver, CholeskySolver):
            super().check()
        else:
            mean = self.block_mean(X := self.examples())
            check_moments(mean, self.kernel.diag(self.theta, X), 0.0)

    def rounding_scale(self, X: Any, var: Tensor) -> Tensor:
        return self.kernel.diag(self.theta, X)

    def with_new_coefficients(self, X: Any, y: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients [n + b] after new rows, and the factor [b, b] of their Schur complement.

            B = A^-1 k(S, X),   C = k(X, X) + V - k(X, S) B = L L'          the covariance of y at the new rows
            alpha_new = C^-1 (y - k(X, S) alpha),   alpha_old = alpha - B alpha_new

        The targets of the old rows are not needed.
        """
        if self.X is not self.S:
            raise PosteriorError(
                f"The variances of this posterior use {len(self.S)} of {len(self.X):,} training rows: no row can be "
                'added; fit with bands="exact".'
            )
        K = self.kernel(self.theta, self.S, X)  # [s, b]
        B = self.solver.solve(K)
        prior = self.kernel(self.theta, X, X)
        C = prior - K.T @ B
        L_new = cholesky(0.5 * (C + C.T) + torch.diag(V.to(C)), "C + V of the new rows", diagonal=prior.diagonal()).L
        alpha_new = torch.cholesky_solve((y.to(K) - K.T @ self.alpha)[:, None], L_new)[:, 0]  # [b]
        return torch.cat([self.alpha - B @ alpha_new, alpha_new]), L_new


class UnsolvedPosterior(RowsPosterior):
    """What is known before a solver has converged: its mean, with the estimated error of the mean in the covariance.

    Parameters
    ----------
    kernel, theta, mean_rows, variance_rows, solver : Kernel or Tensor or tuple of object and Tensor or object or Solver
        As in `RowsPosterior`.
    error_weights : Tensor [s]
        A^-1 (y - A alpha) at the rows that the variance uses: coefficients of the estimated error of the mean.

    Notes
    -----
    The error is one function with a standard normal coefficient: covariances contain error(x) error(z).
    """

    def __init__(
        self,
        kernel: Kernel,
        theta: Tensor,
        mean_rows: tuple[Any, Tensor],
        variance_rows: Any,
        solver: Solver,
        error_weights: Tensor,
    ) -> None:
        super().__init__(kernel, theta, mean_rows, variance_rows, solver)
        self.error_weights = error_weights

    def updated(self, X: Any, y: Tensor, V: Tensor) -> NoReturn:
        raise PosteriorError("The solver has not converged, so that rows cannot be added: let the run end first.")

    def write(self, parts: Parts) -> None:
        super().write(parts)
        parts.text["solved"] = False
        parts.keep(error_weights=self.error_weights)

    def check(self) -> None:
        super().check()
        error = self.error(self.examples())
        check_moments(error, error.square(), 0.0)

    def error(self, X: Any) -> Tensor:
        """Estimated difference [b] between the mean of the GP and that of the solver, at one block of rows."""
        return self.kernel(self.theta, self.S, X).T @ self.error_weights

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        mean, var = super().moments(X)
        return mean, var.clamp_min(0.0) + self.error(X).square()

    def joint(self, X: Any, Z: Any) -> Tensor:
        return super().joint(X, Z) + torch.outer(self.error(X), self.error(Z))

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        paths, coefficient = super().draw_paths(size, draw), normal_columns(self.alpha, size, 1, draw)
        return lambda X: paths(X) + coefficient * self.error(X)


def exact_gp_posterior(kernel: Kernel, theta: Float[Tensor, " p"], train: Dataset) -> RowsPosterior:
    """Make the posterior of the exact GP by a Cholesky factor.

    Parameters
    ----------
    theta : Tensor [p]
        Log-hyperparameters.
    train : Dataset
        n rows; they may be alike.

    Returns
    -------
    RowsPosterior

    Raises
    ------
    NotPositiveDefinite
        If K + s2 I is not positive definite even with jitter.

    Notes
    -----
    The factor costs n^3 / 3 flops and n^2 numbers once; a variance costs n^2 flops per test row.
    """
    solver = CholeskySolver(kernel, theta, train.X)
    alpha = solver.solve(train.y[:, None])[:, 0]  # [n]
    return RowsPosterior(kernel, theta, (train.X, alpha), train.X, solver)


class KeptRowsPosterior(Posterior):
    """Base class of posteriors that keep their training rows, each with its noise.

    Parameters
    ----------
    theta : Tensor [p]
        Log-hyperparameters; the last one is the log noise standard deviation.
    X, y : Tensor [n, D] and Tensor [n]
        Training rows.
    noise : Tensor [n], optional
        Noise variance of each row, where it is not s2.
    """

    def __init__(self, kernel: Kernel, theta: Tensor, X: Tensor, y: Tensor, noise: Tensor | None = None) -> None:
        super().__init__(y, noise_variance(theta))
        self.kernel, self.theta, self.X, self.y, self.noise = kernel, theta, X, y, noise

    def _contents(self) -> str:
        return f"{self.kind or type(self).__name__}, {len(self.y):,} rows"

    @property
    def noise_of_rows(self) -> Float[Tensor, " n"]:
        """The noise variance of each row, in float64."""
        if self.noise is None:
            return self.y.new_full((1,), noise_variance(self.theta), dtype=torch.float64).expand(len(self.y))
        return self.noise.double()

    def updated(self: KeptRows, X: Tensor, y: Tensor, V: Tensor) -> KeptRows:
        X, y = joined_rows(self.X, X.to(self.X)), torch.cat([self.y, y.to(self.y)])
        return self.changed(X=X, y=y, noise=torch.cat([self.noise_of_rows, V.double()]))

    def write(self, parts: Parts) -> None:
        """Write the rows; what follows from them is computed again."""
        parts.keep(y=self.y)
        write_kernel(parts, self.kernel, self.theta)
        write_rows(parts, "X", self.X)
        if self.noise is not None:
            parts.keep(row_noise=self.noise)

    @staticmethod
    def read_kept(parts: Parts) -> tuple[Any, Tensor, Tensor, Tensor, Tensor | None]:
        """What `write` has written: the kernel, theta, X, y and the noise."""
        X, d = read_rows(parts, "X")
        noise = parts.positive("row_noise", len(X)) if "row_noise" in parts else None
        return *read_kernel(parts, d), X, parts.tensor("y", len(X)), noise

    def examples(self) -> Any:
        return trial_rows(self.X)

    def rounding_scale(self, X: Any, var: Tensor) -> Tensor:
        return self.kernel.diag(self.theta, X)


class StatesPosterior(KeptRowsPosterior):
    """An exact GP of one input that filters and smooths its rows.

    The kernel is a Matern or periodic one, a sum or product of such, or a `RowScaled` one of them. The parameters are
    those of `KeptRowsPosterior`.
    """

    kind: ClassVar[str] = "states"
    joint_by_blocks: ClassVar[bool] = False
    row_numbers = 200

    def __getstate__(self) -> dict[str, Any]:
        """A copy smooths again."""
        return {key: value for key, value in self.__dict__.items() if key != "smoother"}

    @cached_property
    def smoother(self) -> Smoother:
        """What the rows say, found at the first use."""
        return self._smoothed(self.y.double()[None])

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, var = self.smoother.moments(X[:, 0].double())
        a = self._scales(X)
        return (mean[0] * a).to(self.like), (var * a.square()).to(self.like)

    def joint(self, X: Tensor, Z: Tensor) -> Tensor:
        C = self.smoother.cov(X[:, 0].double(), None if Z is X else Z[:, 0].double())
        if self._is_scaled:
            C.mul_(self._scales(X)[:, None]).mul_(self._scales(Z))
        return C.to(self.like)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        prior = prior_paths(self.kernel, self.theta, size, draw)
        e = normal_columns(self.y, len(self.y), size, draw).double() * self.noise_of_rows.sqrt()[:, None]
        smoother = self._smoothed(self.y.double() - prior(self.X).double() - e.T)
        return lambda X: (smoother.moments(X[:, 0].double())[0] * self._scales(X) + prior(X)).to(self.like)

    @classmethod
    def from_parts(cls, parts: Parts) -> StatesPosterior:
        return cls(*cls.read_kept(parts))

    def _smoothed(self, targets: Float[Tensor, "k n"]) -> Smoother:
        a = self._scales(self.X)
        rows, _ = merged(self.X[:, 0].double(), targets / a, a.square() / self.noise_of_rows)
        return Smoother(self.kernel, self.theta, rows)

    def _scales(self, X: Tensor) -> Float[Tensor, " b"]:
        """What f is multiplied by at each row."""
        return X[:, 1].double() if self._is_scaled else torch.ones_like(X[:, 0], dtype=torch.float64)

    @property
    def _is_scaled(self) -> bool:
        return unscaled_kernel(self.kernel) is not self.kernel
