"""Covariances within many small groups of rows, for stationary kernels: what methods of near neighbours compute.

    k(x, z) = k(x - z, 0)        so the entries of all groups are one column: differences [c pairs, d] against one zero

Each pair of a group is computed once, from its exact difference, so that far from the origin no digit is lost. A
`RowScaled` kernel multiplies each entry by the last columns of both rows. It stands apart from the kernels because
every one of them serves, through its public functions only.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import KernelError
from ..problem import Kernel, described_rows
from .row_scaled import unscaled_kernel

LEVEL = 0.5  # of the correlation, at which the length of an input is read
LENGTHS = (1e-8, 1e4, 400)  # shortest and longest that are tried, and how many, in units of the largest input range


class Groups:
    """Covariance matrices of groups of g rows each, and the gradient of their weighted sum.

    Parameters
    ----------
    kernel : Kernel
        A stationary kernel, or a `RowScaled` one of it.
    theta : Tensor [p]
        Log-hyperparameters.
    size : int
        Rows per group, g.
    """

    def __init__(self, kernel: Kernel, theta: Float[Tensor, " p"], size: int) -> None:
        self.kernel: Any = unscaled_kernel(kernel)
        self.theta, self.size, self.is_scaled = theta, size, self.kernel is not kernel
        self.first, self.second = torch.tril_indices(size, size, -1, device=theta.device)  # [pairs]
        place = torch.zeros(size, size, dtype=torch.int64, device=theta.device)
        place[self.first, self.second] = torch.arange(1, len(self.first) + 1, device=theta.device)
        self.place = (place + place.T).flatten()  # of each entry of a matrix among (variance, pairs)

    @property
    def numbers(self) -> int:
        """How many numbers one group takes in memory while its matrix is computed."""
        return 2 * self.size**2 + len(self.first) * (6 + 3 * self.kernel.d)

    def matrices(self, X: Float[Tensor, "c g D"]) -> Float[Tensor, "c g g"]:
        """Covariance matrices of the groups, which autograd can differentiate with respect to X."""
        D, zero = self._differences(X)
        pairs = self.kernel(self.theta, D, zero).reshape(len(X), -1)  # [c, pairs]
        variance = self.kernel.diag(self.theta, zero).expand(len(X), 1)
        S = torch.cat([variance, pairs], 1).index_select(1, self.place).reshape(-1, self.size, self.size)
        return S * X[:, :, None, -1] * X[:, None, :, -1] if self.is_scaled else S

    def gradient(self, X: Float[Tensor, "c g D"], u: Float[Tensor, "c g r"], v: Float[Tensor, "c g r"]) -> Tensor:
        """Gradient [p] of the sum of u'k(theta, X, X) v over groups and the r pairs of vectors of each."""
        D, zero = self._differences(X)
        if self.is_scaled:
            u, v = u * X[:, :, -1:], v * X[:, :, -1:]
        W = torch.cat([u, v], 2) @ torch.cat([v, u], 2).mT  # [c, g, g]
        both = W.flatten(1).index_select(1, self.first * self.size + self.second)  # [c, pairs]
        gradient = self.kernel.theta_gradient(self.theta, D, zero, both.reshape(-1, 1))
        return gradient + self.kernel.theta_gradient_diag(self.theta, zero, (u * v).sum()[None])

    def _differences(self, X: Tensor) -> tuple[Tensor, Tensor]:
        inputs = (X[:, :, :-1] if self.is_scaled else X).permute(2, 0, 1).contiguous()  # [d, c, g]
        D = inputs.index_select(2, self.first) - inputs.index_select(2, self.second)
        D = D.flatten(1).T  # [c pairs, d], stored by columns: sums over its rows are then fast
        return D, D.new_zeros(1, D.shape[1])


def check_stationary(kernel: Kernel, X: Any, method: str) -> None:
    """Raise KernelError unless the kernel is stationary and the rows are columns of numbers.

    Parameters
    ----------
    X : inputs
        Training rows.
    method : str
        Who asks, for the error.
    """
    if not isinstance(X, Tensor):
        raise KernelError(f"{method} needs columns of numbers, but the inputs are {described_rows(X)}.")
    if not getattr(unscaled_kernel(kernel), "stationary", False):
        raise KernelError(
            f"{method} needs a stationary kernel, one of differences between rows, but {kernel.key!r} is not; choose "
            'one such as "matern32-ard", or a sum of such.'
        )


def correlation_lengths(kernel: Kernel, theta: Float[Tensor, " p"], ranges: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """The distance along each input at which the correlation first falls below one half, in float64.

    The kernel is one that `Groups` takes. The positive range of each input says what distances matter. Inputs that the
    kernel does not use get the longest distance that is tried.
    """
    base: Any = unscaled_kernel(kernel)
    shortest, longest, count = LENGTHS
    theta, d = theta.double(), len(ranges)
    grid = torch.logspace(math.log10(shortest), math.log10(longest), count, dtype=torch.float64, device=theta.device)
    h = grid * float(ranges.max())
    D = torch.zeros(d, count, d, dtype=torch.float64, device=theta.device)
    D[torch.arange(d), :, torch.arange(d)] = h
    zero = D.new_zeros(1, d)
    correlation = (base(theta, D.flatten(0, 1), zero) / base.diag(theta, zero)).reshape(d, count)
    below = correlation < LEVEL
    at = torch.where(below.any(1), below.double().argmax(1), count - 1).clamp_min(1)  # [d] the first below the level
    high, low = (correlation.gather(1, (at - k)[:, None])[:, 0] for k in (1, 0))
    share = ((high - LEVEL) / (high - low).clamp_min(1e-300)).clamp(0.0, 1.0)
    return torch.exp(h[at - 1].log() + share * (h[at].log() - h[at - 1].log()))
