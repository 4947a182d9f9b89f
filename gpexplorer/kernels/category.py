"""Kernels on categories: two equal words have the variance sd^2, two different ones a share of it.

    category   k(s, t) = sd^2 if s = t, else sd^2 exp(-1 / (2 l^2))
    same       the same for rows of numbers, which are equal where each of their numbers is

It is the squared-exponential kernel of the Hamming distance. The share is that of any pair of different words:
close to 1 where the category hardly matters, and to 0 where each word has a function of its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import KernelError
from ..problem import Dataset
from .base import Covariance, target_sd

ROUNDING = 8.0  # times eps, and the larger number if that exceeds 1: what standardising the same number twice may give


class Category(Covariance):
    """Equal or different: theta = [log sd, log lengthscale, log noise sd]; X is a sequence of words."""

    key, title, inputs = "category", "equal or different words", "strings"
    formula = r"\sigma_f^2 \exp\left(-\tfrac{[s \ne t]}{2\ell^2}\right)"
    parameter_names = ("sd", "lengthscale")  # the lengthscale in units of one difference

    def check(self, X: Any) -> None:
        """Raise KernelError if a row is not a text."""
        wrong = next((i for i, word in enumerate(X) if not isinstance(word, str)), None)
        if wrong is not None:
            raise KernelError(f"Kernel {self.key!r} needs words, but row {wrong} is a {type(X[wrong]).__name__}.")

    def __call__(self, theta: Float[Tensor, " p"], X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the words of the sequences X and Z."""
        # A list of objects is made first: NumPy would cut the null characters off the end of a text.
        words = np.empty(len(X) + len(Z), dtype=object)
        words[:] = [*X, *Z]
        codes = torch.from_numpy(np.unique(words, return_inverse=True)[1]).to(theta.device)
        return _of_equal(theta, codes[: len(X), None] == codes[len(X) :])

    def diag(self, theta: Float[Tensor, " p"], X: Any) -> Float[Tensor, " n"]:
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

    def __call__(self, theta: Float[Tensor, " p"], X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z; numbers that rounding may have parted count as equal."""
        equal = torch.ones(len(X), len(Z), dtype=torch.bool, device=X.device)
        for x, z in zip(X.T, Z.T, strict=True):
            largest = torch.maximum(x.abs()[:, None], z.abs()).clamp_min(1.0)  # [n, m]
            equal &= (x[:, None] - z).abs() <= ROUNDING * torch.finfo(X.dtype).eps * largest
        return _of_equal(theta, equal)


def _of_equal(theta: Float[Tensor, " p"], equal: Tensor) -> Float[Tensor, "n m"]:
    """The covariances where rows are equal [n, m], and where not."""
    return torch.exp(2.0 * theta[0] - 0.5 * torch.exp(-2.0 * theta[1]) * (~equal).to(theta.dtype))
