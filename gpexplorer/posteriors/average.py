"""A weighted average of the predictive distributions of several models: a mixture, not a product.

    p(f | x) = sum_k w_k p_k(f | x),   w_k >= 0,   sum_k w_k = 1
    mean = sum_k w_k mean_k
    cov(x, z) = sum_k w_k [ cov_k(x, z) + (mean_k(x) - mean(x)) (mean_k(z) - mean(z)) ]

The second part of the covariance is what the models disagree about. Densities, quantiles and intervals are those of the
mixture. Each model adds its own noise to its own distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import PosteriorError, number
from ..linalg.randomness import generator
from .base import SAMPLE_COPIES, Of
from .in_units import InUnits
from .marginals import Marginals, MixtureMarginals
from .sample_paths import checked_seed, checked_size
from .saved.parts import Parts, read_posterior, write_posterior
from .table_posterior import TablePosterior

MAX_MODELS = 100  # in a file


class AveragePosterior(TablePosterior):
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
    level: ClassVar[int] = 4

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
        self.parts, self.of, self.columns = tuple(part.asked_for("f") for part in parts), parts[0].of, first

    def _contents(self) -> str:
        return f"average of {len(self.parts)} models"

    @property
    def row_numbers(self) -> int:
        return sum(part.row_numbers for part in self.parts)

    def asked_for(self, of: Of, noise_variance: float | None = None) -> AveragePosterior:
        """Return the same average of the function or of an observation; its noise is that of its models.

        Raises
        ------
        PosteriorError
            If `noise_variance` is another one than that of the models.
        """
        noise = None if noise_variance is None else number("noise_variance", noise_variance, whole=False, low=0.0)
        if noise is not None and not math.isclose(noise, self.noise_variance, rel_tol=1e-6):
            raise PosteriorError(
                f"An average of models has their noise, {self.noise_variance:.4g}, and not {noise:.4g}: "
                "ask its models for another one, and average them again."
            )
        return super().asked_for(of)

    def block_marginals(self, X: Any) -> Marginals:
        return MixtureMarginals([part.block_marginals(X) for part in self.parts], self.weights)

    def observed(self, marginals: Any) -> Marginals:
        pairs = zip(self.parts, marginals.parts, strict=True)
        return MixtureMarginals([part.observed(own) for part, own in pairs], self.weights)

    def block_mean(self, X: Any) -> Tensor:
        return self._averaged([part.block_mean(X).double() for part in self._asked_alike(None)])

    def joint(self, X: Any, Z: Any) -> Tensor:
        return self.cov(X, Z, noise=False)

    def cov(self, X: Any, Z: Any = None, noise: bool | None = None) -> Tensor:
        """Joint covariance; see `Posterior.cov`."""
        parts, X, Z = self._asked_alike(noise), self.rows(X), None if Z is None else self.rows(Z)
        at_X = self._differences(parts, X)
        at_Z = at_X if Z is None else self._differences(parts, Z)
        total = self.like.new_zeros(len(X), len(X if Z is None else Z))
        for part, weight, x, z in zip(parts, self.weights, at_X, at_Z, strict=True):
            total.add_(part.cov(X, Z).double().add_(torch.outer(x, z)), alpha=weight)
        overflows = [at[0].isinf() | at[0].isnan() for at in (at_X, at_Z)]  # the mean of the average is infinite
        return total.masked_fill_(overflows[0][:, None] | overflows[1], math.inf)

    def sample(self, X: Any, size: int = 1, seed: int = 0, noise: bool | None = None) -> Tensor:
        """Draw joint samples at given rows: a model for each sample, and the sample from the model.

        See `Posterior.sample` for parameters and errors.
        """
        X, seed = self.rows(X), checked_seed(seed)
        size = checked_size(size, SAMPLE_COPIES * len(X))
        models = self._drawn_models(size, generator(seed, "models of samples"))
        values = self.like.new_empty(size, len(X))
        for k, part in enumerate(self._asked_alike(noise)):
            if count := int((models == k).sum()):
                values[models == k] = part.sample(X, count, seed + k).double()
        return values

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        """Draw a model for each function, and the function from the model."""
        models = self._drawn_models(size, draw)
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
        return AveragePosterior(parts, self.weights).asked_for(self.of)

    def without_rows(self) -> AveragePosterior:
        """The average of the models before any row with the same weights; see `InUnits.without_rows`."""
        return AveragePosterior([part.without_rows() for part in self.parts], self.weights).asked_for(self.of)

    def write(self, parts: Parts) -> None:
        """Write the models; the names of their tensors begin with their numbers."""
        parts.text["weights"] = list(self.weights)
        parts.text["parts"] = [
            parts.keep_part(partial(write_posterior, posterior=part), f"{k}/") for k, part in enumerate(self.parts)
        ]

    @classmethod
    def from_parts(cls, parts: Parts) -> AveragePosterior:
        models, weights = parts.text.get("parts"), parts.text.get("weights")
        if not isinstance(models, list) or not isinstance(weights, list) or not 0 < len(models) <= MAX_MODELS:
            raise PosteriorError(f"it is an average of no models, or of more than {MAX_MODELS}.")
        return cls(
            [read_posterior(parts.part_of(model, "model", f"{k}/"), "units") for k, model in enumerate(models)],
            [parts.number_of(weight, "weight", 0.0) for weight in weights],
        )

    def check(self) -> None:
        for part in self.parts:
            part.check()

    def _asked_alike(self, noise: bool | None) -> list[InUnits]:
        """The models, all of the function or all of an observation."""
        of: Of = "y" if self.wants_noise(noise) else "f"
        return [part.asked_for(of) for part in self.parts]

    def _differences(self, parts: Sequence[InUnits], X: Any) -> list[Tensor]:
        """mean_k - mean [t] of each model."""
        means = [part.mean(X).double() for part in parts]
        mean = self._averaged(means)
        return [own - mean for own in means]

    def _drawn_models(self, size: int, draw: torch.Generator) -> Tensor:
        """The number of a model for each of `size` samples."""
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return torch.multinomial(weights, size, True, generator=draw).to(self.like.device)

    def _averaged(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack([weight * value for weight, value in zip(self.weights, values, strict=True)]).sum(0)
