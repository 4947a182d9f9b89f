"""A posterior whose variance grows with the time after the last training row, by factors measured on later rows.

    cov(x, z) = cov_inner(x, z) + e(x) e(z),   e(x)^2 = (c2(t) - 1) (var_inner(x) + s2)

t is one input, such as a date. c2 is 1 up to the last training row and piecewise linear after it, so that an
observation has c2(t) times the variance that the inner posterior gives it. What is added is one random deviation of the
whole future, because errors of a forecast have the same sign for a long time. Means do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import PosteriorError
from .base import Posterior
from .in_units import InUnits, emptied, in_units_of
from .saved.parts import Parts, read_posterior, write_posterior
from .shifted import numbers_of


@dataclass(frozen=True)
class Widening:
    """By how much variances grow with the time after the last training row.

    Parameters
    ----------
    column : str
        The input that is the time.
    last : float
        The time of the last training row.
    horizons : tuple of float
        Times after the last training row, rising, in the units of the column.
    factors : tuple of float
        What the variance of an observation is multiplied by at each of them, at least 1 and not falling.
    """

    column: str
    last: float
    horizons: tuple[float, ...]
    factors: tuple[float, ...]

    @property
    def widens(self) -> bool:
        """Whether a factor is above 1."""
        return max(self.factors, default=1.0) > 1.0

    def at_least(self, other: Widening) -> Widening:
        """The larger factor of this and of another one of the same column, at the horizons of this one.

        The other one counts up to its last horizon: its growth beyond is a guess where this one has measured.
        """
        ahead = torch.tensor(self.horizons, dtype=torch.float64)
        others = other.at(other.last + ahead.clamp_max(other.horizons[-1] if other.horizons else 0.0))
        larger = torch.maximum(self.at(self.last + ahead), others)
        return replace(self, factors=tuple(larger.clamp_min(1.0).cummax(0).values.tolist()))

    def at(self, times: Tensor) -> Tensor:
        """The factors [t] at these times [t]."""
        return interpolated(times.double(), *self.points)

    @property
    def points(self) -> tuple[Tensor, Tensor]:
        """The last time and those of the horizons [k], and the factors there [k]."""
        times = self.last + torch.tensor([0.0, *self.horizons], dtype=torch.float64)
        return times, torch.tensor([1.0, *self.factors], dtype=torch.float64)


def interpolated(times: Tensor, knots: Tensor, factors: Tensor) -> Tensor:
    """Piecewise linear factors [b]: 1 before the first knot; after the last one they grow as from the second to it.

    Parameters
    ----------
    times : Tensor [b]
    knots, factors : Tensor [k]
        Rising times and their factors, the first of which is 1.
    """
    slopes = factors.diff() / knots.diff()  # [k - 1]
    growth = (factors[-1] - factors[1]) / (knots[-1] - knots[1]) if len(knots) > 2 else torch.zeros_like(factors[0])
    changes = torch.cat([slopes, growth[None]]).diff(prepend=slopes.new_zeros(1))  # [k]
    return 1.0 + (times[:, None] - knots).clamp_min(0.0) @ changes


class WidenedPosterior(Posterior):
    """A posterior with larger variances after its last training row.

    Parameters
    ----------
    inner : Posterior
        Works on the same scaled inputs.
    column : int
        The position of the time among the inputs that are numbers.
    knots, factors : Tensor [k]
        Scaled times, of which the first is that of the last training row, and the factors of the variance of an
        observation there, of which the first is 1.
    """

    kind: ClassVar[str] = "widened"

    def __init__(self, inner: Posterior, column: int, knots: Tensor, factors: Tensor) -> None:
        super().__init__(inner.like, inner.noise_variance)
        self.inner, self.of = inner, inner.of
        self.column, self.knots, self.factors = column, knots, factors

    @property
    def row_numbers(self) -> int:
        return self.inner.row_numbers + len(self.knots) + 2

    def block_mean(self, X: Any) -> Tensor:
        return self.inner.block_mean(X)

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        mean, var = self.inner.moments(X)
        return mean, var + self._added(X, var)

    def joint(self, X: Any, Z: Any) -> Tensor:
        at_X, at_Z = (self._added(part, self.inner.moments(part)[1]).sqrt() for part in (X, Z))
        return self.inner.joint(X, Z) + torch.outer(at_X, at_Z)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        paths = self.inner.draw_paths(size, draw)
        normal = torch.randn(size, 1, generator=draw, dtype=torch.float64).to(self.like)
        return lambda X: paths(X) + normal * self._added(X, self.inner.moments(X)[1]).sqrt()

    def without_rows(self) -> Posterior:
        """The prior, which has no last row."""
        return emptied(self.inner)

    def updated(self, X: Any, y: Tensor, V: Tensor) -> WidenedPosterior:
        """The posterior after these rows; if they are later, times count from the last of them."""
        later = (numbers_of(X, self.like)[:, self.column].max() - self.knots[0]).clamp_min(0.0) if len(y) else 0.0
        return self.changed(inner=self.inner.updated(X, y, V), knots=self.knots + later)

    def write(self, parts: Parts) -> None:
        parts.text["column"] = self.column + 1
        parts.keep(knots=self.knots, factors=self.factors)
        parts.text["inner"] = parts.keep_part(lambda own: write_posterior(own, self.inner), "widened/")
        parts.version = 6

    @classmethod
    def read(cls, parts: Parts) -> WidenedPosterior:
        kinds = ("inducing", "rows", "nearest rows", "states", "features", "prior", "unit rows", "shifted")
        inner = read_posterior(parts.part("inner", "widened/"), *kinds)
        knots = parts.tensor("knots")
        factors = parts.positive("factors", len(knots))
        if len(knots) < 2 or not bool((knots.diff() > 0.0).all() & (factors.diff() >= 0.0).all() & (factors[0] == 1.0)):
            raise PosteriorError("the factors of its variances do not grow from 1 with time.")
        return cls(inner, parts.whole("column") - 1, knots, factors)

    def examples(self) -> Any:
        return self.inner.examples()

    def check(self) -> None:
        self.inner.check()

    def _added(self, X: Any, var: Tensor) -> Tensor:
        """What is added to the variance of f [b], where the inner posterior gives it `var`."""
        times = numbers_of(X, self.like)[:, self.column].double()
        factors = interpolated(times, self.knots.double(), self.factors.double())
        return ((factors - 1.0).clamp_min(0.0) * (var.clamp_min(0.0) + self.inner.noise_variance)).to(var)


def widened(posterior: InUnits, widening: Widening | None) -> InUnits:
    """The posterior with larger variances after the last row; the same one where nothing is widened."""
    if widening is None or not widening.widens:
        return posterior
    columns = posterior.columns
    position = columns.names.index(widening.column)
    width = numbers_of(columns.X, posterior.like).shape[1]
    times, factors = widening.points
    rows = torch.zeros(len(times), width, dtype=torch.float64).index_fill(1, torch.tensor([position]), 1.0)
    scaled = rows * times[:, None] if columns.scale is None else columns.scale.scaled_inputs(rows * times[:, None])
    knots = scaled[:, position].to(posterior.like.device)
    inner = WidenedPosterior(posterior.inner, position, knots, factors.to(knots))
    return in_units_of(inner, columns, posterior.guard).asked_for(posterior.of, posterior.noise_variance)
