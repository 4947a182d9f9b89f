"""A weighted average of the predictive distributions of several models: a mixture, not a product.

    p(f | x) = sum_k w_k p_k(f | x),   w_k >= 0,   sum_k w_k = 1
    mean = sum_k w_k mean_k
    cov(x, z) = sum_k w_k [ cov_k(x, z) + (mean_k(x) - mean(x)) (mean_k(z) - mean(z)) ]

The second part of the covariance is what the models disagree about. An observation has the noise sum_k w_k noise_k.
Quantiles and intervals are those of the normal distribution with this mean and variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import PosteriorError
from ..problem import Dataset, Prediction
from .base import Posterior
from .in_units import InUnits


class AveragePosterior(Posterior):
    """The average of the distributions of several models of the same target.

    Parameters
    ----------
    parts : sequence of InUnits
        The models, all with the same input columns. Each may have standardised them in its own way.
    weights : sequence of float
        One positive weight per model. They are divided by their sum.

    Raises
    ------
    PosteriorError
        If there is no model, the columns differ, or there is not one positive weight per model.

    Notes
    -----
    A prediction costs as much as those of all models together.
    """

    kind: ClassVar[str] = "average"

    def __init__(self, parts: Sequence[InUnits], weights: Sequence[float]) -> None:
        if not parts or len(parts) != len(weights) or not all(math.isfinite(w) and w > 0.0 for w in weights):
            raise PosteriorError(f"{len(parts)} models have the weights {list(weights)}: give one above 0 per model.")
        first = parts[0].columns
        if any(part.columns.names != first.names or part.columns.d != first.d for part in parts):
            raise PosteriorError("The models of an average have different input columns: fit all of them to the same.")
        total = math.fsum(weights)
        self.weights = tuple(float(weight) / total for weight in weights)
        noise = math.fsum(w * part.noise_variance for w, part in zip(self.weights, parts, strict=True))
        super().__init__(parts[0].like.double(), noise)
        self.parts, self.of = tuple(part.asked_for("f") for part in parts), parts[0].of

    @property
    def columns(self) -> Dataset:
        """No rows: only how inputs are read."""
        return self.parts[0].columns

    @property
    def row_numbers(self) -> int:
        return sum(part.row_numbers for part in self.parts)

    def rows(self, X: Any) -> Any:
        """Check the inputs and put them on the device, in float64 and in the units of the file."""
        return self.parts[0].rows(X)

    def block_mean(self, X: Any) -> Tensor:
        return self._averaged([part.block_mean(X).double() for part in self.parts])

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        return self.combined([part.moments(X) for part in self.parts])

    def combined(self, predictions: Sequence[tuple[Tensor, Tensor]]) -> Prediction:
        """Mean and variance [b] of f from those of each model at the same rows."""
        means, variances = zip(*predictions, strict=True)
        mean = self._averaged([own.double() for own in means])  # [b]
        squares = [(own.double() - mean).square() for own in means]
        own = [var.double().clamp_min(0.0) for var in variances]  # rounding of one model is not that of another
        return Prediction(mean, self._averaged([var + square for var, square in zip(own, squares, strict=True)]))

    def joint(self, X: Any, Z: Any) -> Tensor:
        at_X, at_Z = self._differences(X), self._differences(Z)
        covariances = [part.joint(X, Z).double() for part in self.parts]
        pairs = zip(covariances, at_X, at_Z, strict=True)
        return self._averaged([K + torch.outer(of_X, of_Z) for K, of_X, of_Z in pairs])

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        """Draw a model for each function, and the function from the model."""
        models = torch.multinomial(torch.tensor(self.weights, dtype=torch.float64), size, True, generator=draw)
        drawn = [
            (k, part.draw_paths(count, draw))
            for k, part in enumerate(self.parts)
            if (count := int((models == k).sum()))
        ]

        def evaluate(X: Any) -> Tensor:
            values = self.like.new_empty(size, len(X))
            for k, paths in drawn:
                values[models == k] = paths(X).double()
            return values

        return evaluate

    def with_rows(self, X: Any, y: Any, noise: Any = None) -> AveragePosterior:
        """The average of the updated models with the same weights; without `noise` each model uses its own."""
        parts = [part.with_rows(X, y, noise) for part in self.parts]
        return AveragePosterior(parts, self.weights).asked_for(self.of, self.noise_variance)

    def _differences(self, X: Any) -> list[Tensor]:
        """mean_k - mean [b] of each model at one block of rows."""
        means = [part.block_mean(X).double() for part in self.parts]
        mean = self._averaged(means)
        return [own - mean for own in means]

    def _averaged(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack([weight * value for weight, value in zip(self.weights, values, strict=True)]).sum(0)
