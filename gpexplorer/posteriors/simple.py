"""The prior as a posterior without data, and posteriors that know means and variances only.

Apart because they need no kernel matrix and no file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from ..errors import PosteriorError
from ..problem import Kernel, Predictor
from .base import Posterior
from .sample_paths import prior_paths
from .saved.kernel_parts import read_kernel, write_kernel
from .saved.parts import Parts

ROWS_TOGETHER = 8192  # rows that are given to a plain function at once


class PriorPosterior(Posterior):
    """The prior of f: what a method predicts before any work.

    Parameters
    ----------
    theta : Tensor [p]
    """

    kind: ClassVar[str] = "prior"
    row_numbers = 2

    def __init__(self, kernel: Kernel, theta: Tensor) -> None:
        super().__init__(theta, float((2.0 * theta[-1]).exp()))
        self.kernel, self.theta = kernel, theta

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        var = self.kernel.diag(self.theta, X)
        return torch.zeros_like(var), var

    def joint(self, X: Any, Z: Any) -> Tensor:
        return self.kernel(self.theta, X, Z)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        return prior_paths(self.kernel, self.theta, size, draw)

    def write(self, parts: Parts) -> None:
        write_kernel(parts, self.kernel, self.theta)

    @classmethod
    def read(cls, parts: Parts) -> PriorPosterior:
        return cls(*read_kernel(parts, len(parts.tensor("theta" if "x_mean" not in parts else "x_mean"))))


class MarginalPosterior(Posterior):
    """A posterior that is given as a plain function from inputs to mean and variance.

    It has no joint covariance, no samples and no paths, and says so.

    Parameters
    ----------
    predict : callable
        Takes inputs and gives a `Prediction` of f.
    like : Tensor
        Device and precision.
    noise_variance : float
        Noise variance of an observation.
    """

    row_numbers = max(1, 24 * 2**20 // (8 * ROWS_TOGETHER))

    def __init__(self, predict: Predictor, like: Tensor, noise_variance: float = 0.0) -> None:
        super().__init__(like, noise_variance)
        self.predict = predict

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        if isinstance(X, Tensor) and X.requires_grad:
            self._refuse("derivatives")
        mean, var = self.predict(X)
        return mean, var

    def joint(self, X: Any, Z: Any) -> NoReturn:
        self._refuse("covariance between rows, and so no joint samples")

    def draw_paths(self, size: int, draw: torch.Generator) -> NoReturn:
        self._refuse("sample paths")

    def _refuse(self, what: str) -> NoReturn:
        raise PosteriorError(
            f"This posterior was given as a function of means and variances, so it has no {what}; let the method "
            "return one of gpexplorer.posteriors, such as InducingPosterior."
        )


def as_posterior(given: Posterior | Predictor, theta: Tensor) -> Posterior:
    """Return a posterior as it is, and a plain function as a posterior of means and variances with theta's noise."""
    if isinstance(given, Posterior):
        return given
    return MarginalPosterior(given, theta, float((2.0 * theta[-1]).exp()))
