"""A posterior in the units of the file.

f_file = f * y_sd + y_mean,   cov_file = cov * y_sd^2,   x = (x_file - x_mean) / x_sd
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..data.units import checked_inputs, scaled_inputs, targets
from ..kernels.row_scaled import plain_rows
from ..problem import Dataset, Prediction, Problem
from .base import Posterior
from .features import FeaturePosterior
from .unit_rows import UnitRowsPosterior, emptied


class InUnits(Posterior):
    """The same distribution with inputs and answers in the units of the file.

    Parameters
    ----------
    inner : Posterior
        Works in the scaled space.
    train : Dataset
        The scaled training rows, for the names, the scale, the device and the precision; the rows are not kept.
    guard : callable
        Makes a context in which blocks are computed, for instance one that explains errors of memory allocation.
    """

    kind: ClassVar[str] = "units"

    def __init__(
        self, inner: Posterior, train: Dataset, guard: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self.columns = train.rows(torch.arange(0))  # no rows: only how inputs are read
        self.y_sd = train.scale.y_sd if train.scale else 1.0
        super().__init__(inner.like, inner.noise_variance * self.y_sd**2)
        self.inner, self.of, self.guard = inner, inner.of, guard

    @property
    def row_numbers(self) -> int:
        return self.inner.row_numbers + 2 * self.columns.d

    def rows(self, X: Any) -> Any:
        """Check the inputs and put them on the device, in float64 and in the units of the file."""
        return checked_inputs(X, self.columns)

    def at_scaled(self, X: Any) -> Prediction:
        """Predict, in the units of the file, at inputs that are scaled already, such as the test rows of a split."""
        with self.guard():
            mean, var = self.inner._mean_and_var(self.inner.rows(X), False)
            return Prediction(targets(mean, self.columns), var * self.y_sd**2 + self._noise(None))

    def block_mean(self, X: Any) -> Tensor:
        with self.guard():
            return targets(self.inner.block_mean(scaled_inputs(X, self.columns)), self.columns)

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        with self.guard():
            mean, var = self.inner.moments(scaled_inputs(X, self.columns))
            return targets(mean, self.columns), var * self.y_sd**2

    def joint(self, X: Any, Z: Any) -> Tensor:
        with self.guard():
            return self.inner.joint(*(scaled_inputs(part, self.columns) for part in (X, Z))) * self.y_sd**2

    def updated(self, X: Any, y: Tensor, V: Tensor) -> InUnits:
        scale = self.columns.scale
        y = y if scale is None else (y - scale.y_mean) / scale.y_sd
        with self.guard():
            inner = self.inner.updated(scaled_inputs(X, self.columns), y, V / self.y_sd**2)
        return InUnits(inner, self.columns, self.guard).asked_for(self.of, self.noise_variance)

    def without_rows(self) -> InUnits:
        """Return the same model before any row: the prior, to which rows can be added.

        Raises
        ------
        PosteriorError
            If the posterior consists of its rows, or its weights are not those of a regression.
        """
        return InUnits(emptied(self.inner), self.columns, self.guard).asked_for(self.of, self.noise_variance)

    def with_file(self, path: str | os.PathLike[str]) -> InUnits:
        """Return the posterior after all rows of a Parquet file, which is read once and may be larger than memory.

        Parameters
        ----------
        path : str or path
            Columns are found by the names of the fit, in any order.

        Returns
        -------
        InUnits
            The same as `with_rows` with all rows at once, to rounding.

        Raises
        ------
        DataError
            If a column does not exist, or a cell has no finite number.

        Notes
        -----
        The cost of `with_rows`, and memory for a few thousand rows. To use no row twice, fit to a sample of the rows
        and begin with ``posterior.without_rows()``.
        """
        from ..data.mapped import row_strips  # pyarrow

        posterior = self
        for X, y in row_strips(Path(path), self.columns.names, self.columns.target):
            posterior = posterior.with_rows(X, y)
        return posterior

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        with self.guard():
            paths = self.inner.draw_paths(size, draw)
        return lambda X: targets(paths(scaled_inputs(X, self.columns)), self.columns)


def in_units(
    inner: Posterior, problem: Problem, guard: Callable[[], AbstractContextManager[None]] = nullcontext
) -> InUnits:
    """Return a posterior of a problem, which may have rows of unequal noise, in the units of the file.

    Parameters
    ----------
    inner : Posterior
        Works in the scaled space.
    problem : Problem
        What it was computed from.
    guard : callable
        As for `InUnits`.
    """
    train = plain_rows(problem)
    if train is not problem.train and not isinstance(inner, FeaturePosterior):  # features take both kinds of rows
        inner = UnitRowsPosterior(inner)
    return InUnits(inner, train, guard)
