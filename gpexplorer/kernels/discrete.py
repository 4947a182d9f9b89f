"""Kernels on histograms and count fingerprints, where no gradient in the inputs exists.

    histogram intersection   sd^2 sum_q min(x_q, z_q)                        Lee (2008), Cao et al. (2013) section 4.1
    Tanimoto                 sd^2 x'z / (x'x + z'z - x'z)                    Ralaivola et al. (2005)
    MinMax                   sd^2 sum_q min(x_q, z_q) / sum_q max(x_q, z_q)

Histograms should sum to one for k(x, x) to be sd^2; two empty fingerprints count as equal.
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


class Counts(Covariance):
    """A kernel on nonnegative rows [n, d], scaled by one standard deviation: theta = [log sd, log noise sd]."""

    inputs = "counts"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The standard deviation."""
        return ("sd",)

    def check(self, X: Any) -> None:
        """Negative counts are refused."""
        super().check(X)
        if len(X) and float(X.min()) < 0.0:
            raise KernelError(
                f"Kernel {self.key!r} needs counts of 0 or more, but the smallest input is {float(X.min()):g}; "
                "do not standardise the inputs."
            )

    @abstractmethod
    def similarity(self, X: Tensor, Z: Tensor) -> Tensor:
        """The kernel at sd = 1: [n, m]."""

    def self_similarity(self, X: Tensor) -> Tensor:
        """The kernel of each row with itself at sd = 1: [n]."""
        return torch.ones_like(X[:, 0])

    def __call__(self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m]."""
        return torch.exp(2.0 * theta[0]) * self.similarity(X, Z)

    def diag(self, theta: Float[Tensor, " p"], X: Tensor) -> Float[Tensor, " n"]:
        """k(x, x) [n]."""
        return torch.exp(2.0 * theta[0]) * self.self_similarity(X)

    def initial_values(self, train: Dataset) -> list[float]:
        """The target's sd, over the typical size of k(x, x)."""
        size = float(self.self_similarity(train.X).mean())
        return [math.log(target_sd(train)) - 0.5 * math.log(size if size > 0.0 else 1.0)]


class HistogramIntersection(Counts):
    """What two histograms share."""

    key, title = "histogram", "histogram intersection"
    formula = r"\sigma_f^2 \sum_q \min(x_q, x_q')"

    def similarity(self, X: Tensor, Z: Tensor) -> Tensor:
        return shared(X, Z)

    def self_similarity(self, X: Tensor) -> Tensor:
        return X.sum(1)


class Tanimoto(Counts):
    """Jaccard similarity of fingerprints, by inner products."""

    key, title = "tanimoto", "Tanimoto"
    formula = r"\sigma_f^2 \frac{x^\top x'}{x^\top x + x'^\top x' - x^\top x'}"

    def similarity(self, X: Tensor, Z: Tensor) -> Tensor:
        inner = X @ Z.T
        return _ratio(inner, X.square().sum(1)[:, None] + Z.square().sum(1) - inner)


class MinMax(Counts):
    """Jaccard similarity of count vectors, by minima and maxima."""

    key, title = "minmax", "MinMax"
    formula = r"\sigma_f^2 \frac{\sum_q \min(x_q, x_q')}{\sum_q \max(x_q, x_q')}"

    def similarity(self, X: Tensor, Z: Tensor) -> Tensor:
        low = shared(X, Z)
        return _ratio(low, X.sum(1)[:, None] + Z.sum(1) - low)


def shared(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """sum_q min(x_q, z_q) = (sum_q x_q + sum_q z_q - |x - z|_1) / 2: n m d operations in O(n m) memory.

    Inputs that either side lacks cost nothing. Whole counts come out exact.
    """
    used = (X != 0).any(0) & (Z != 0).any(0)
    if not bool(used.all()):
        X, Z = X[:, used], Z[:, used]
    return torch.cdist(X, Z, p=1.0).neg_().add_(X.sum(1)[:, None]).add_(Z.sum(1)).mul_(0.5).clamp_min_(0.0)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    empty = whole == 0.0
    return torch.where(empty, 1.0, part / torch.where(empty, 1.0, whole))
