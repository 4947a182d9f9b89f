"""A weighted sum of several kernels on the same rows, one variance each: what a task with many views of a row takes.

    k(x, z) = sum_v sd_v^2 S_v(x, z)                      theta = [log sd_1, ..., log sd_v, log noise sd]

The similarities S have no parameters, so they are computed once for all of theta: value and gradient are both linear in
them. Cao et al. (2013), section 4.1: fourteen graph kernels on molecules; three on histograms, one a camera.
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
from .discrete import shared

CAMERAS = 3


class Weighted(Covariance):
    """Similarities of several kinds, each with its own standard deviation."""

    @property
    @abstractmethod
    def views(self) -> tuple[str, ...]:
        """What each similarity looks at, in a word or two."""

    @abstractmethod
    def similarities(self, X: Any, Z: Any, like: Tensor) -> Tensor:
        """S [v, n, m], in the precision and on the device of `like`."""

    @abstractmethod
    def self_similarities(self, X: Any, like: Tensor) -> Tensor:
        """S of each row with itself [v, n]."""

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """One standard deviation a view."""
        return tuple(f"sd {view}" for view in self.views)

    def __call__(self, theta: Float[Tensor, " p"], X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m]."""
        return torch.tensordot(self._variances(theta), self.similarities(X, Z, theta), 1)

    def diag(self, theta: Float[Tensor, " p"], X: Any) -> Float[Tensor, " n"]:
        """k(x, x) [n]."""
        return self._variances(theta) @ self.self_similarities(X, theta)

    def theta_gradient(
        self, theta: Float[Tensor, " p"], X: Any, Z: Any, G: Float[Tensor, "n m"]
    ) -> Float[Tensor, " p"]:
        """d / d log sd_v = 2 sd_v^2 sum_ij G_ij S_v,ij."""
        slopes = 2.0 * self._variances(theta) * torch.tensordot(self.similarities(X, Z, theta), G, 2)
        return torch.cat([slopes, theta.new_zeros(1)])

    def theta_gradient_diag(self, theta: Float[Tensor, " p"], X: Any, g: Float[Tensor, " n"]) -> Float[Tensor, " p"]:
        """Likewise on the diagonal."""
        return torch.cat([2.0 * self._variances(theta) * (self.self_similarities(X, theta) @ g), theta.new_zeros(1)])

    def initial_values(self, train: Dataset) -> list[float]:
        """Every view starts with an equal share of the target's variance."""
        sizes = self.self_similarities(train.X, train.y).mean(1).clamp_min(1e-300).tolist()
        share = math.log(target_sd(train)) - 0.5 * math.log(len(sizes))
        return [share - 0.5 * math.log(size) for size in sizes]

    def _variances(self, theta: Tensor) -> Tensor:
        return torch.exp(2.0 * theta[: len(self.views)])


class CameraHistograms(Weighted):
    """Histogram intersection of each of three equal blocks of columns: one histogram a camera."""

    key, title, inputs = "histogram-3", "histogram intersection, three cameras", "counts"
    formula = r"\sum_{c=1}^{3} \sigma_c^2 \sum_q \min(x_{cq}, x'_{cq})"

    @property
    def views(self) -> tuple[str, ...]:
        """The cameras."""
        return tuple(f"camera {c + 1}" for c in range(CAMERAS))

    def check(self, X: Any) -> None:
        """Three equal blocks of nonnegative columns."""
        super().check(X)
        if X.shape[1] % CAMERAS:
            raise KernelError(f"Kernel {self.key!r} needs {CAMERAS} equal blocks of columns, but X has {X.shape[1]}.")
        if len(X) and float(X.min()) < 0.0:
            raise KernelError(
                f"Kernel {self.key!r} needs histograms of 0 or more, but the smallest input is {float(X.min()):g}; "
                "do not standardise the inputs."
            )

    def similarities(self, X: Tensor, Z: Tensor, like: Tensor) -> Tensor:
        """n m d operations."""
        return torch.stack([shared(x, z) for x, z in zip(X.chunk(CAMERAS, 1), Z.chunk(CAMERAS, 1), strict=True)])

    def self_similarities(self, X: Tensor, like: Tensor) -> Tensor:
        """What each histogram sums to."""
        return torch.stack([x.sum(1) for x in X.chunk(CAMERAS, 1)])
