"""The posterior of GPs of one input whose kernel is that of a small state, with waves: exact, O(log n) per new point.

`kernels.states.smoothing` has the formulas. A path is mean + h(x) minus the mean that h at the rows, with noise, would
give; h is drawn from the prior (Wilson et al. 2020, eq 12). All is computed in float64. Apart because it is one kind of
posterior, as each file beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..kernels.row_scaled import unscaled_kernel
from ..kernels.states.filtering import merged
from ..kernels.states.smoothing import Smoother
from ..linalg.blocks import row_blocks
from ..objectives import noise_variance
from ..problem import Kernel
from .base import Posterior
from .exact import joined_rows
from .sample_paths import prior_paths
from .saved.kernel_parts import read_kernel, read_rows, write_kernel, write_rows
from .saved.parts import Parts, trial_rows
from .weights import normal_columns


class StatesPosterior(Posterior):
    """An exact GP of one input that filters and smooths its rows.

    Parameters
    ----------
    kernel : Kernel
        Matern and periodic kernels, their sums and products, or a `RowScaled` one of them.
    theta : Tensor [p]
        Log-hyperparameters; the last one is the log noise standard deviation.
    X, y : Tensor [n, D] and Tensor [n]
        Training rows.
    noise : Tensor [n], optional
        Noise variance of each row, where it is not s2.
    """

    kind: ClassVar[str] = "states"
    row_numbers = 200

    def __init__(self, kernel: Kernel, theta: Tensor, X: Tensor, y: Tensor, noise: Tensor | None = None) -> None:
        super().__init__(y, noise_variance(theta))
        self.kernel, self.theta, self.X, self.y, self.noise = kernel, theta, X, y, noise
        self.is_scaled = unscaled_kernel(kernel) is not kernel

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
        both = torch.cat([X, Z]).double()
        a = self._scales(both)
        C = self.smoother.cov(both[:, 0])[: len(X), len(X) :]
        return (a[: len(X), None] * C * a[len(X) :]).to(self.like)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        prior = prior_paths(self.kernel, self.theta, size, draw)
        e = normal_columns(self.y, len(self.y), size, draw).double() * self._noise_of_rows.sqrt()[:, None]
        drawn = torch.cat([prior(self.X[rows]) for rows in row_blocks(len(self.X), 8 * (4096 + size), self.X)], 1)
        smoother = self._smoothed(self.y.double() - drawn.double() - e.T)
        return lambda X: (smoother.moments(X[:, 0].double())[0] * self._scales(X) + prior(X)).to(self.like)

    def updated(self, X: Tensor, y: Tensor, V: Tensor) -> StatesPosterior:
        noise = torch.cat([self._noise_of_rows, V.double()])
        return self.changed(X=joined_rows(self.X, X.to(self.X)), y=torch.cat([self.y, y.to(self.y)]), noise=noise)

    def write(self, parts: Parts) -> None:
        """Write the rows; they are smoothed again."""
        parts.keep(y=self.y)
        write_kernel(parts, self.kernel, self.theta)
        write_rows(parts, "X", self.X)
        if self.noise is not None:
            parts.keep(row_noise=self.noise)

    @classmethod
    def read(cls, parts: Parts) -> StatesPosterior:
        X, d = read_rows(parts, "X")
        kernel, theta = read_kernel(parts, d)
        noise = parts.positive("row_noise", len(X)) if "row_noise" in parts else None
        return cls(kernel, theta, X, parts.tensor("y", len(X)), noise)

    def examples(self) -> Any:
        return trial_rows(self.X)

    @property
    def _noise_of_rows(self) -> Float[Tensor, " n"]:
        if self.noise is None:
            return torch.full_like(self.y, noise_variance(self.theta), dtype=torch.float64)
        return self.noise.double()

    def _smoothed(self, targets: Float[Tensor, "k n"]) -> Smoother:
        a = self._scales(self.X)
        rows, _ = merged(self.X[:, 0].double(), targets / a, a.square() / self._noise_of_rows)
        return Smoother(self.kernel, self.theta, rows)

    def _scales(self, X: Tensor) -> Float[Tensor, " b"]:
        """What f is multiplied by at each row."""
        return X[:, 1].double() if self.is_scaled else torch.ones_like(X[:, 0], dtype=torch.float64)
