"""A weighted sum of several similarities of the same rows, each with its own variance.

    k(x, z) = sum_v sd_v^2 S_v(x, z),    theta = [log sd_1, ..., log sd_v, log noise sd]

The similarities S_v have no hyperparameters, and both k and its gradient are linear in them, so they can be computed
once for all theta. Cao et al. (2013), section 4.1, use two such kernels: fourteen graph kernels on molecules, and three
histogram intersections, one per camera.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import KernelError
from ..problem import Dataset
from .base import Covariance, target_sd
from .discrete import require_counts, sum_of_minima

CAMERAS = 3


class Weighted(Covariance):
    """Base class of weighted sums: a subclass defines its views and their similarities."""

    @property
    @abstractmethod
    def views(self) -> tuple[str, ...]:
        """One name per similarity, of a word or two."""

    @abstractmethod
    def similarities(self, X: Any, Z: Any, like: Tensor) -> Tensor:
        """Similarities S [v, n, m], in the precision and on the device of `like`."""

    @abstractmethod
    def self_similarities(self, X: Any, like: Tensor) -> Tensor:
        """Similarities [v, n] of each row with itself."""

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """One standard deviation per view."""
        return tuple(f"sd {view}" for view in self.views)

    def __call__(self, theta: Float[Tensor, " p"], X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z."""
        return torch.tensordot(self._variances(theta), self.similarities(X, Z, theta), 1)

    def diag(self, theta: Float[Tensor, " p"], X: Any) -> Float[Tensor, " n"]:
        """Prior variance k(x, x) [n] of each row."""
        return self._variances(theta) @ self.self_similarities(X, theta)

    def theta_gradient(
        self, theta: Float[Tensor, " p"], X: Any, Z: Any, G: Float[Tensor, "n m"]
    ) -> Float[Tensor, " p"]:
        """Gradient [p] in closed form: d / d log sd_v = 2 sd_v^2 sum_ij G_ij S_v,ij."""
        gradient = 2.0 * self._variances(theta) * torch.tensordot(self.similarities(X, Z, theta), G, 2)
        return torch.cat([gradient, theta.new_zeros(1)])

    def theta_gradient_diag(self, theta: Float[Tensor, " p"], X: Any, g: Float[Tensor, " n"]) -> Float[Tensor, " p"]:
        """Gradient [p] in closed form: d / d log sd_v = 2 sd_v^2 sum_i g_i S_v,ii."""
        return torch.cat([2.0 * self._variances(theta) * (self.self_similarities(X, theta) @ g), theta.new_zeros(1)])

    def initial_values(self, train: Dataset) -> list[float]:
        """The values at which every view contributes the same share of the variance of the targets."""
        variances = self.self_similarities(train.X, train.y).mean(1).clamp_min(1e-300).tolist()
        share = math.log(target_sd(train)) - 0.5 * math.log(len(variances))
        return [share - 0.5 * math.log(variance) for variance in variances]

    def _variances(self, theta: Tensor) -> Tensor:
        return torch.exp(2.0 * theta[: len(self.views)])


class CameraHistograms(Weighted):
    """Histogram intersection of each of three equal blocks of columns, one block per camera."""

    key, title, inputs = "histogram-3", "histogram intersection, three cameras", "counts"
    formula = r"\sum_{c=1}^{3} \sigma_c^2 \sum_q \min(x_{cq}, x'_{cq})"

    @property
    def views(self) -> tuple[str, ...]:
        """The three cameras, by number."""
        return tuple(f"camera {c + 1}" for c in range(CAMERAS))

    def check(self, X: Any) -> None:
        """Raise KernelError unless X has three equal blocks of nonnegative columns."""
        super().check(X)
        if X.shape[1] % CAMERAS:
            raise KernelError(f"Kernel {self.key!r} needs {CAMERAS} equal blocks of columns, but X has {X.shape[1]}.")
        require_counts(self.key, X)

    def similarities(self, X: Tensor, Z: Tensor, like: Tensor) -> Tensor:
        """Similarities [3, n, m]; n m d operations."""
        return torch.stack([sum_of_minima(x, z) for x, z in zip(X.chunk(CAMERAS, 1), Z.chunk(CAMERAS, 1), strict=True)])

    def self_similarities(self, X: Tensor, like: Tensor) -> Tensor:
        """Similarities [3, n] of each histogram with itself, which are the sums of its bins."""
        return torch.stack([x.sum(1) for x in X.chunk(CAMERAS, 1)])
