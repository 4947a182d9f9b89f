"""Kernels on histograms, counts and categories, which have no gradient with respect to the inputs.

    histogram intersection   sd^2 sum_q min(x_q, z_q)                         Lee (2008), Cao et al. (2013) section 4.1
    Tanimoto                 sd^2 x'z / (x'x + z'z - x'z)                     Ralaivola et al. (2005)
    MinMax                   sd^2 sum_q min(x_q, z_q) / sum_q max(x_q, z_q)   Ralaivola et al. (2005)

If a histogram sums to one, its prior variance under the first kernel is sd^2. Two empty fingerprints count as equal.

A weighted sum of several similarities of the same rows, each with its own variance, is the base of kernels on
molecules and of histograms of three cameras:

    k(x, z) = sum_v sd_v^2 S_v(x, z),    theta = [log sd_1, ..., log sd_v, log noise sd]

The similarities S_v have no hyperparameters, and both k and its gradient are linear in them, so they can be computed
once for all theta. Cao et al. (2013), section 4.1, use two such kernels: fourteen graph kernels on molecules, and three
histogram intersections, one per camera.

On categories, two equal words have the variance sd^2, two different ones a share of it:

    category   k(s, t) = sd^2 if s = t, else sd^2 exp(-1 / (2 l^2))
    same       the same for rows of numbers, which are equal where each of their numbers is

It is the squared-exponential kernel of the Hamming distance. The share is that of any pair of different words:
close to 1 where the category hardly matters, and to 0 where each word has a function of its own.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import KernelError
from ..problem import Dataset
from .base import Covariance, Theta, require_texts, target_sd


class Counts(Covariance):
    """Base class of kernels on nonnegative rows [n, d]: theta = [log sd, log noise sd]."""

    inputs = "counts"
    parameter_names = ("sd",)

    def check(self, X: Any) -> None:
        """Raise KernelError if a count is negative."""
        super().check(X)
        require_counts(self.key, X)

    @abstractmethod
    def similarity(self, X: Tensor, Z: Tensor) -> Tensor:
        """Covariance [n, m] at sd = 1."""

    def self_similarity(self, X: Tensor) -> Tensor:
        """Prior variance [n] of each row at sd = 1."""
        return torch.ones_like(X[:, 0])

    def __call__(self, theta: Theta, X: Tensor, Z: Tensor) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z."""
        return torch.exp(2.0 * theta[0]) * self.similarity(X, Z)

    def diag(self, theta: Theta, X: Tensor) -> Float[Tensor, " n"]:
        """Prior variance k(x, x) [n] of each row."""
        return torch.exp(2.0 * theta[0]) * self.self_similarity(X)

    def initial_values(self, train: Dataset) -> list[float]:
        """The value at which the mean prior variance is the variance of the targets."""
        variance = float(self.self_similarity(train.X).mean())  # at sd = 1
        return [math.log(target_sd(train)) - 0.5 * math.log(variance if variance > 0.0 else 1.0)]


class HistogramIntersection(Counts):
    """Histogram intersection: the mass that two histograms have in common."""

    key, title = "histogram", "histogram intersection"
    formula = r"\sigma_f^2 \sum_q \min(x_q, x_q')"

    def similarity(self, X: Tensor, Z: Tensor) -> Tensor:
        return sum_of_minima(X, Z)

    def self_similarity(self, X: Tensor) -> Tensor:
        return X.sum(1)


class Tanimoto(Counts):
    """Tanimoto kernel: the Jaccard similarity of two sets of bits, computed by inner products."""

    key, title = "tanimoto", "Tanimoto"
    formula = r"\sigma_f^2 \frac{x^\top x'}{x^\top x + x'^\top x' - x^\top x'}"

    def similarity(self, X: Tensor, Z: Tensor) -> Tensor:
        inner = X @ Z.T
        return _ratio(inner, X.square().sum(1)[:, None] + Z.square().sum(1) - inner)


class MinMax(Counts):
    """MinMax kernel: the Jaccard similarity of two vectors of counts."""

    key, title = "minmax", "MinMax"
    formula = r"\sigma_f^2 \frac{\sum_q \min(x_q, x_q')}{\sum_q \max(x_q, x_q')}"

    def similarity(self, X: Tensor, Z: Tensor) -> Tensor:
        minima = sum_of_minima(X, Z)
        return _ratio(minima, X.sum(1)[:, None] + Z.sum(1) - minima)  # min + max = x + z


def require_counts(key: str, X: Float[Tensor, "n d"]) -> None:
    """Raise KernelError, which names the kernel, if an input is negative."""
    if len(X) and float(X.min()) < 0.0:
        raise KernelError(
            f"Kernel {key!r} needs counts of 0 or more, but the smallest input is {float(X.min()):g}; "
            "do not standardise the inputs."
        )


def sum_of_minima(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Return sum_q min(x_q, z_q) for every pair of rows of nonnegative numbers.

    It is computed as (sum_q x_q + sum_q z_q - |x - z|_1) / 2 in n m d operations and O(n m) memory. Columns that are
    zero on either side cost nothing. The result is exact for whole numbers.
    """
    used = (X != 0).any(0) & (Z != 0).any(0)
    if not bool(used.all()):
        X, Z = X[:, used], Z[:, used]
    return torch.cdist(X, Z, p=1.0).neg_().add_(X.sum(1)[:, None]).add_(Z.sum(1)).mul_(0.5).clamp_min_(0.0)


def _ratio(intersection: Tensor, union: Tensor) -> Tensor:
    """Their ratio, and 1 where the union is empty."""
    empty = union == 0.0
    return torch.where(empty, 1.0, intersection / torch.where(empty, 1.0, union))


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

    def __call__(self, theta: Theta, X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z."""
        return torch.tensordot(self._variances(theta), self.similarities(X, Z, theta), 1)

    def diag(self, theta: Theta, X: Any) -> Float[Tensor, " n"]:
        """Prior variance k(x, x) [n] of each row."""
        return self._variances(theta) @ self.self_similarities(X, theta)

    def theta_gradient(self, theta: Theta, X: Any, Z: Any, G: Float[Tensor, "n m"]) -> Theta:
        """Gradient [p] in closed form: d / d log sd_v = 2 sd_v^2 sum_ij G_ij S_v,ij."""
        gradient = 2.0 * self._variances(theta) * torch.tensordot(self.similarities(X, Z, theta), G, 2)
        return torch.cat([gradient, theta.new_zeros(1)])

    def theta_gradient_diag(self, theta: Theta, X: Any, g: Float[Tensor, " n"]) -> Theta:
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
    views = tuple(f"camera {c + 1}" for c in range(CAMERAS))

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


ROUNDING = 8.0  # times eps, and the larger number if that exceeds 1: what standardising the same number twice may give


class Category(Covariance):
    """Equal or different: theta = [log sd, log lengthscale, log noise sd]; X is a sequence of words."""

    key, title, inputs = "category", "equal or different words", "strings"
    formula = r"\sigma_f^2 \exp\left(-\tfrac{[s \ne t]}{2\ell^2}\right)"
    parameter_names = ("sd", "lengthscale")  # the lengthscale in units of one difference

    def check(self, X: Any) -> None:
        """Raise KernelError if a row is not a text."""
        require_texts(self.key, X, "words")

    def __call__(self, theta: Theta, X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the words of the sequences X and Z."""
        # A list of objects is made first: NumPy would cut the null characters off the end of a text.
        words = np.empty(len(X) + len(Z), dtype=object)
        words[:] = [*X, *Z]
        codes = torch.from_numpy(np.unique(words, return_inverse=True)[1]).to(theta.device)
        return _of_equal(theta, codes[: len(X), None] == codes[len(X) :])

    def diag(self, theta: Theta, X: Any) -> Float[Tensor, " n"]:
        """Prior variance sd^2 [n] of each row."""
        return torch.exp(2.0 * theta[0]).expand(len(X))

    def initial_values(self, train: Dataset) -> list[float]:
        """The standard deviation of the targets, and a lengthscale of 1: different words correlate by 0.61."""
        return [math.log(target_sd(train)), 0.0]


class Same(Category):
    """Equal or different numbers, such as codes; theta = [log sd, log lengthscale, log noise sd]."""

    key, title, inputs, compares = "same", "equal or different numbers", "real", True
    formula = r"\sigma_f^2 \exp\left(-\tfrac{[x \ne x']}{2\ell^2}\right)"

    def check(self, X: Any) -> None:
        """Raise KernelError unless X is a matrix of d numbers per row."""
        Covariance.check(self, X)

    def __call__(self, theta: Theta, X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z; numbers that rounding may have parted count as equal."""
        equal = torch.ones(len(X), len(Z), dtype=torch.bool, device=X.device)
        for x, z in zip(X.T, Z.T, strict=True):
            largest = torch.maximum(x.abs()[:, None], z.abs()).clamp_min(1.0)  # [n, m]
            equal &= (x[:, None] - z).abs() <= ROUNDING * torch.finfo(X.dtype).eps * largest
        return _of_equal(theta, equal)


def _of_equal(theta: Theta, equal: Tensor) -> Float[Tensor, "n m"]:
    """The covariances where rows are equal [n, m], and where not."""
    return torch.exp(2.0 * theta[0] - 0.5 * torch.exp(-2.0 * theta[1]) * (~equal).to(theta.dtype))
