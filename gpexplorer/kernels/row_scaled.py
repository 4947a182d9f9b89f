"""Known noise per row, as a kernel: rows with unequal noise become rows of equal noise after each is multiplied by d_i.

    y_i = f(x_i) + e_i,   var e_i = s2 r_i          r_i the noise of row i relative to that of a row with r = 1
    d_i y_i = d_i f(x_i) + d_i e_i,   d_i = r_i^-1/2        all d_i e_i have variance s2
    k'((x, a), (z, b)) = a k(x, z) b                the covariance of d f, where d is one more column of the inputs

Whatever a method does with rows (x_i, d_i), targets d_i y_i and k' is what its algebra gives for rows of unequal noise,
exactly. Only densities change by a constant: log p(y) = log p(d y) + sum_i log d_i. A prediction of f has d = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import SettingError
from ..problem import Dataset, Kernel, Problem
from .base import Covariance, Sides, Theta


class RowScaled(Covariance):
    """A kernel of rows that are multiplied by the number in their last column.

    Parameters
    ----------
    base : Covariance
        The kernel of all columns but the last.
    noise_is_known : bool
        Whether theta[-1] is given and stays as it is; see `objectives.noise_derivative`.
    """

    def __init__(self, base: Covariance, noise_is_known: bool = False) -> None:
        super().__init__(base.d)
        self.base, self.noise_is_known = base, noise_is_known
        self.inputs, self.compares = base.inputs, base.compares
        self.key = f"row-scaled {base.key}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Those of the kernel."""
        return self.base.parameter_names

    def check(self, X: Any) -> None:
        """Raise KernelError if the kernel is not defined for these inputs."""
        self.base.check(X[:, :-1])

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z."""
        return self.base(theta, X[:, :-1], Z[:, :-1]) * X[:, -1:] * Z[:, -1]

    def diag(self, theta: Theta, X: Tensor) -> Float[Tensor, " n"]:
        """Prior variance [n] of each row."""
        return self.base.diag(theta, X[:, :-1]) * X[:, -1].square()

    def fill(self, theta: Theta, X: Tensor, Z: Tensor, out: Float[Tensor, "n m"]) -> None:
        """Write the covariance into `out`."""
        self.base.fill(theta, X[:, :-1], Z[:, :-1], out)
        out.mul_(X[:, -1:]).mul_(Z[:, -1])

    def theta_gradient(self, theta: Theta, X: Tensor, Z: Tensor, G: Float[Tensor, "n m"]) -> Theta:
        """Gradient [p], by the closed form of the kernel if it has one."""
        return self.base.theta_gradient(theta, X[:, :-1], Z[:, :-1], G * X[:, -1:] * Z[:, -1])

    def theta_gradient_bilinear(self, theta: Theta, X: Tensor, Z: Tensor, sides: Sides) -> Theta:
        """Gradient [p] of u'K z, by the closed form of the kernel if it has one."""
        return self.base.theta_gradient_bilinear(theta, X[:, :-1], Z[:, :-1], _scaled(sides, X, Z))

    def theta_gradient_from_matrix(
        self, theta: Theta, X: Tensor, Z: Tensor, sides: Sides, K: Float[Tensor, "n m"]
    ) -> Theta | None:
        """Gradient [p] of u'K z from the matrix, if the kernel has such a formula."""
        unscaled = K / X[:, -1:] / Z[:, -1]
        return self.base.theta_gradient_from_matrix(theta, X[:, :-1], Z[:, :-1], _scaled(sides, X, Z), unscaled)

    def theta_gradient_diag(self, theta: Theta, X: Tensor, g: Float[Tensor, " n"]) -> Theta:
        """Gradient [p] of the weighted sum of prior variances."""
        return self.base.theta_gradient_diag(theta, X[:, :-1], g * X[:, -1].square())

    def random_features(self, theta: Theta, count: int, draw: torch.Generator) -> Callable[[Tensor], Tensor] | None:
        """Features of the kernel, times the last column."""
        features = self.base.random_features(theta, count, draw)
        return None if features is None else lambda X: features(X[:, :-1]) * X[:, -1:].double()

    def terms(self, theta: Theta) -> None:
        """No sum of products over inputs, because the last column is none."""
        return None

    def initial_values(self, train: Dataset) -> list[float]:
        """The values for the rows before they were multiplied."""
        return self.base.initial_values(unscaled_rows(train))


def _scaled(sides: Sides, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    scales = (X[:, -1:], Z[:, -1:]) if sides[0].ndim == 2 else (X[:, -1], Z[:, -1])
    return sides[0] * scales[0], sides[1] * scales[1]


def with_row_noise(problem: Problem) -> Problem:
    """Return the problem of equal noise that a problem with noise per row is equivalent to.

    Parameters
    ----------
    problem : Problem
        If its training rows have no noise of their own (`Dataset.noise`), it is returned as it is.

    Returns
    -------
    Problem
        Rows (x_i, d_i), targets d_i y_i, and a `RowScaled` kernel. The last entry of theta is that of the known noise,
        or one with which the average row begins with the noise that the kernel proposes.

    Raises
    ------
    SettingError
        If the inputs are objects and not columns of numbers.
    """
    train, kernel, theta = problem.train, problem.kernel, problem.theta.clone()
    if train.noise is None:
        return problem
    if not isinstance(train.X, Tensor) or not isinstance(kernel, Covariance):
        raise SettingError("Noise per row needs inputs that are columns of numbers, but these are objects.")
    ratio, common = train.noise
    d = ratio.rsqrt().to(train.y)  # [n]
    y_sd = train.scale.y_sd if train.scale else 1.0
    theta[-1] = 0.5 * math.log(common) - math.log(y_sd) if common else theta[-1] - 0.5 * math.log(float(ratio.mean()))
    rows = replace(train, X=torch.cat([train.X, d[:, None]], 1), y=train.y * d, noise=None)
    return Problem(rows, RowScaled(kernel, common is not None), theta)


def unscaled_rows(train: Dataset) -> Dataset:
    """The rows (x_i, y_i) that rows (x_i, d_i), d_i y_i were made from."""
    return replace(train, X=train.X[:, :-1], y=train.y / train.X[:, -1])


def log_density_change(problem: Problem) -> float:
    """The sum of log d_i: what to add to a log density of d y to have that of y."""
    return float(problem.train.X[:, -1].double().log().sum()) if input_count(problem) < problem.train.d else 0.0


def unscaled_kernel(kernel: Kernel) -> Kernel:
    """The kernel of rows that are not multiplied: the part of a `RowScaled` one, or the kernel itself."""
    base = getattr(kernel, "base", None)  # a counted kernel has the attributes of the kernel
    return kernel if base is None else base


def input_count(problem: Problem) -> int:
    """The number of inputs, without the column of a `RowScaled` kernel."""
    return problem.train.d - (unscaled_kernel(problem.kernel) is not problem.kernel)


def plain_rows(problem: Problem) -> Dataset:
    """The training rows of a problem as they were before `with_row_noise`."""
    return unscaled_rows(problem.train) if input_count(problem) < problem.train.d else problem.train
