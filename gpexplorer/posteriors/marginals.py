"""The predictive distribution of each row by itself: mean, variance, density, probabilities and quantiles.

    normal        N(y; mu, v)
    transformed   T(y) = a + b z with z ~ N(mu, v)          log p(y) = log N(z(y); mu, v) + log T'(y) - log b
    mixture       sum_k w_k p_k(y)                          its quantiles are found by bisection

The moments of a transformed row are those that `target_transforms` gives: exact for logarithms, else integrals over z.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.in_memory import plain_array, with_values
from ..errors import DataError, SettingError, quoted
from ..linalg.blocks import row_blocks
from ..problem import Scale
from ..target_transforms import TargetTransform

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def numbers(name: str, values: Any, like: Tensor) -> Tensor:
    """Return a number or numbers by their position, in float64 and on the device of `like`; DataError for others."""
    if isinstance(values, Tensor) and not values.is_complex():
        return with_values(values).to(like.device, torch.float64)
    array = plain_array(values)
    try:
        if array is None or np.iscomplexobj(array):
            raise ValueError
        return torch.from_numpy(np.array(array, np.float64)).to(like.device)  # a Series has labels of its own
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{name} is {quoted(values)}; give numbers.") from None


def in_standard_deviations(y: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """(y - mean) / var^1/2, which is 0 at the mean also where there is no variance."""
    difference = y - mean
    return torch.where(difference == 0.0, 0.0, difference / var.sqrt())


def _places(values: Tensor) -> Tensor:
    """The places of numbers in the order of all float64, as int64.

    Halving an interval of places takes 64 steps at most to the next number, also from 1e-300 to infinity, where halving
    one of numbers would end at the larger end's precision, or never.
    """
    bits = (values.detach() + 0.0).view(torch.int64)  # -0.0 becomes 0.0
    return bits ^ ((bits >> 63) & torch.iinfo(torch.int64).max)


def _at_places(places: Tensor) -> Tensor:
    """The numbers at these places."""
    return (places ^ ((places >> 63) & torch.iinfo(torch.int64).max)).view(torch.float64)


class Marginals(ABC):
    """The distributions of t rows, each by itself."""

    @property
    @abstractmethod
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean [t] and variance [t]."""

    def log_density(self, y: Any) -> Tensor:
        """The log density [t] of one value y [t] per row, or of one value for all; DataError if they are no numbers."""
        return self._log_density(self._numbers("y", y))

    def cdf(self, y: Any) -> Tensor:
        """The probability [..., t] of a value of at most y [..., t]; DataError if they are no numbers.

        A normal distribution without variance has 1/2 at its mean.
        """
        return self._cdf(self._numbers("y", y))

    def quantile(self, q: Any) -> Tensor:
        """The values [t] below which a share q such as 0.9 lies, or [k, t] for k shares; SettingError for others."""
        levels = numbers("q", q, torch.empty(0))
        if levels.ndim > 1 or not bool(((levels > 0.0) & (levels < 1.0)).all()):
            raise SettingError(f"q is {quoted(q)}; give probabilities between 0 and 1, such as (0.025, 0.975).")
        return self._quantile(levels)

    def _numbers(self, name: str, values: Any) -> Tensor:
        """These numbers on the device of the moments; a tensor as it is."""
        return values if isinstance(values, Tensor) else numbers(name, values, self.moments[0])

    @abstractmethod
    def _log_density(self, y: Tensor) -> Tensor: ...

    @abstractmethod
    def _cdf(self, y: Tensor) -> Tensor: ...

    @abstractmethod
    def _quantile(self, levels: Tensor) -> Tensor: ...

    def standardised(self, y: Tensor) -> Tensor:
        """The residuals [t] of one value per row in standard deviations, of the transformed target if there is one."""
        return in_standard_deviations(y, *self.moments)

    @abstractmethod
    def widened(self, factors: Tensor) -> Marginals:
        """The same with variances, of the transformed target if there is one, multiplied by `factors` [t]."""

    def double(self) -> Marginals:
        """The same in float64, as all kinds but normal distributions are."""
        return self


class NormalMarginals(Marginals):
    """Normal distributions with means [t] and variances [t]."""

    def __init__(self, mean: Tensor, var: Tensor) -> None:
        self.mean, self.var = mean, var

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        return self.mean, self.var

    def _log_density(self, y: Tensor) -> Tensor:
        difference = y - self.mean
        density = -(HALF_LOG_2PI + 0.5 * self.var.log() + 0.5 * difference.square() / self.var)
        known = torch.where(difference == 0.0, math.inf, -math.inf * difference.abs())  # without variance
        return torch.where(self.var == 0.0, known, density)

    def _cdf(self, y: Tensor) -> Tensor:
        return torch.special.ndtr(in_standard_deviations(y, self.mean, self.var))

    def _quantile(self, levels: Tensor) -> Tensor:
        return self.mean + torch.special.ndtri(levels).to(self.mean)[..., None] * self.var.sqrt()

    def widened(self, factors: Tensor) -> NormalMarginals:
        return NormalMarginals(self.mean, self.var * factors.to(self.var))

    @property
    def numbers(self) -> list[Tensor]:
        """Tensors [t] that describe the distributions; `with_numbers` makes those of other rows of as many."""
        return [self.mean, self.var]

    def with_numbers(self, numbers: Iterator[Tensor]) -> NormalMarginals:
        """Distributions of the same kind that the next of these tensors describe."""
        return NormalMarginals(next(numbers), next(numbers))

    def double(self) -> NormalMarginals:
        return NormalMarginals(self.mean.double(), self.var.double())


class TransformedMarginals(Marginals):
    """Distributions of y, where the scaled and transformed target is normal.

    Parameters
    ----------
    scaled : NormalMarginals
        The distributions of z, in float64.
    scale : Scale
        How z becomes y; it has a transform.
    """

    def __init__(self, scaled: NormalMarginals, scale: Scale) -> None:
        self.scaled, self.scale = scaled.double(), scale

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        transform, (mean, var) = self.transform, self.of_transform
        blocks = row_blocks(len(mean), transform.row_numbers * mean.element_size(), mean)
        parts = [transform.moments(mean[rows], var[rows]) for rows in blocks] or [self.scaled.moments]
        means, variances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(variances)

    @property
    def transform(self) -> TargetTransform:
        """The transform T of the target."""
        assert self.scale.transform is not None
        return self.scale.transform

    @property
    def of_transform(self) -> tuple[Tensor, Tensor]:
        """Mean [t] and variance [t] of T(y)."""
        return self.scaled.mean * self.scale.y_sd + self.scale.y_mean, self.scaled.var * self.scale.y_sd**2

    def _log_density(self, y: Tensor) -> Tensor:
        of_z = self.scaled.log_density(self.scale.scaled_target(y))
        return torch.where(of_z == -math.inf, of_z, of_z + self.scale.log_derivative(y))

    def _cdf(self, y: Tensor) -> Tensor:
        return self.scaled.cdf(self.scale.scaled_target(y))

    def _quantile(self, levels: Tensor) -> Tensor:
        return self.scale.target_in_units(self.scaled.quantile(levels))

    def standardised(self, y: Tensor) -> Tensor:
        return self.scaled.standardised(self.scale.scaled_target(y))

    def widened(self, factors: Tensor) -> TransformedMarginals:
        return TransformedMarginals(self.scaled.widened(factors), self.scale)

    @property
    def numbers(self) -> list[Tensor]:
        return self.scaled.numbers

    def with_numbers(self, numbers: Iterator[Tensor]) -> TransformedMarginals:
        return TransformedMarginals(self.scaled.with_numbers(numbers), self.scale)


class MixtureMarginals(Marginals):
    """Weighted averages of distributions of the same rows.

    Parameters
    ----------
    parts : sequence of Marginals
    weights : sequence of float
        Positive, with the sum 1.
    """

    def __init__(self, parts: Sequence[Marginals], weights: Sequence[float]) -> None:
        self.parts: list[Any] = [part.double() for part in parts]
        self.weights = tuple(weights)

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        means, variances = zip(*(part.moments for part in self.parts), strict=True)
        mean = self._averaged(means)
        differences = (var + (own - mean).square() for own, var in zip(means, variances, strict=True))
        return mean, torch.where(mean.isinf(), math.inf, self._averaged(differences))

    def _log_density(self, y: Tensor) -> Tensor:
        pairs = zip(self.parts, self.weights, strict=True)
        return reduce(torch.logaddexp, (part.log_density(y) + math.log(weight) for part, weight in pairs))

    def _cdf(self, y: Tensor) -> Tensor:
        return self._averaged(part.cdf(y) for part in self.parts)

    def _quantile(self, levels: Tensor) -> Tensor:
        low = high = self.parts[0].quantile(levels)  # [..., t]
        for part in self.parts[1:]:  # the quantile of a mixture lies between those of its parts
            end = part.quantile(levels)
            low, high = torch.minimum(low, end), torch.maximum(high, end)
        below, is_nan = levels.to(low)[..., None], low.isnan()
        low, high = _places(low), _places(high)
        distance = float((high.double() - low.double()).max()) if low.numel() else 0.0
        for _ in range(math.ceil(math.log2(max(distance, 1.0)))):  # until low and high are neighbours
            middle = (low >> 1) + (high >> 1) + (low & high & 1)
            is_low = self.cdf(_at_places(middle)) < below
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
        lowest, own = _at_places(low), _at_places(high)
        return torch.where(is_nan, math.nan, torch.where(lowest == -math.inf, lowest, own))  # -inf: below all numbers

    def widened(self, factors: Tensor) -> MixtureMarginals:
        return MixtureMarginals([part.widened(factors) for part in self.parts], self.weights)

    @property
    def numbers(self) -> list[Tensor]:
        return [number for part in self.parts for number in part.numbers]

    def with_numbers(self, numbers: Iterator[Tensor]) -> MixtureMarginals:
        return MixtureMarginals([part.with_numbers(numbers) for part in self.parts], self.weights)

    def _averaged(self, values: Iterable[Tensor]) -> Tensor:
        return reduce(torch.add, (weight * value for weight, value in zip(self.weights, values, strict=True)))
