"""A fixed function plus the posterior of what it leaves: f = m + g.

    mean = m(x) + mean_g(x),   cov(x, z) = cov_g(x, z)

m is a sum of regression trees, a linear function or a mean of nearest rows, and is held as plain numbers, so that a
file of it runs nothing. g is a GP on the residuals of m, or 0.

The simplest posteriors stand here too: the prior, without data, and one that knows means and variances only.

A posterior whose variance grows with the time after the last training row, by factors measured on later rows.

    cov(x, z) = cov_inner(x, z) + e(x) e(z),   e(x)^2 = (c2(t) - 1) (var_inner(x) + s2)

t is one input, such as a date. c2 is 1 up to the last training row and piecewise linear after it, so that an
observation has c2(t) times the variance that the inner posterior gives it. What is added is one random deviation of the
whole future, because errors of a forecast have the same sign for a long time. Means do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from ..errors import PosteriorError
from ..problem import Kernel, MixedRows, Predictor
from .base import Posterior
from .in_units import InUnits, in_units_of
from .sample_paths import prior_paths
from .saved.kernel_parts import read_kernel, write_kernel
from .saved.parts import Parts, check_moments, kinds_below, read_posterior, write_posterior


@dataclass(frozen=True, eq=False)
class LinearMean:
    """A linear function; without slopes a constant.

    Parameters
    ----------
    weights : Tensor [d]
    constant : Tensor [1]
    """

    kind: ClassVar[str] = "linear"
    weights: Tensor
    constant: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        return X @ self.weights + self.constant

    def check(self) -> None:
        if self.weights.ndim != 1 or self.constant.shape != (1,):
            raise PosteriorError("its linear function does not have one weight per input and one constant.")


@dataclass(frozen=True, eq=False)
class NeighboursMean:
    """The mean of the targets of the nearest rows.

    Parameters
    ----------
    Z, y : Tensor [n, d], Tensor [n]
        Rows and targets.
    count : Tensor [1]
        The number of rows of a mean.
    """

    kind: ClassVar[str] = "neighbours"
    Z: Tensor
    y: Tensor
    count: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        distances = torch.cdist(X, self.Z, compute_mode="donot_use_mm_for_euclid_dist")  # [b, n]
        return self.y[distances.topk(int(self.count), largest=False).indices].mean(1)

    def check(self) -> None:
        n = len(self.y)
        if self.Z.ndim != 2 or self.y.shape != (len(self.Z),) or not 0 < int(self.count) <= n:
            raise PosteriorError("its nearest rows do not have one target each, or are too few.")


@dataclass(frozen=True, eq=False)
class TreesMean:
    """A sum of regression trees, whose nodes are numbered through.

    Parameters
    ----------
    feature, threshold : Tensor [nodes]
        A row goes left where this input is at most this threshold.
    left, right : Tensor [nodes]
        The nodes below, which have larger numbers; a leaf has itself.
    value : Tensor [nodes]
        What a leaf adds.
    roots : Tensor [trees]
    constant : Tensor [1]
    """

    kind: ClassVar[str] = "trees"
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    roots: Tensor
    constant: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        node = self.roots.expand(len(X), -1)  # [b, trees]
        while True:
            goes_left = X.gather(1, self.feature[node]) <= self.threshold[node]
            below = torch.where(goes_left, self.left[node], self.right[node])
            if torch.equal(below, node):
                return self.value[node].sum(1) + self.constant
            node = below

    def check(self) -> None:
        nodes, own = len(self.value), torch.arange(len(self.value), device=self.value.device)
        shapes = {part.shape for part in (self.feature, self.threshold, self.left, self.right, self.value)}
        is_leaf = (self.left == own) & (self.right == own)
        below_later = ((self.left > own) & (self.right > own)) | is_leaf  # so that every path ends
        inside = (self.left < nodes).all() & (self.right < nodes).all() & (self.feature >= 0).all()
        rooted = len(self.roots) > 0 and bool((self.roots >= 0).all() & (self.roots < nodes).all())
        if len(shapes) != 1 or not bool(below_later.all() & inside) or not rooted or self.constant.shape != (1,):
            raise PosteriorError("its trees are no trees: a node leads to none, or to one before it.")


MEANS: dict[str, type[Any]] = {kind.kind: kind for kind in (LinearMean, NeighboursMean, TreesMean)}
WHOLE = ("feature", "left", "right", "roots", "count")  # fields of whole numbers
ROW_NUMBERS = 2000  # numbers of a row while trees or nearest rows are looked up


def numbers_of(X: Any, like: Tensor) -> Tensor:
    """The inputs that are numbers [b, q]; of texts there are none."""
    numbers = X.numbers if isinstance(X, MixedRows) else X
    return numbers if isinstance(numbers, Tensor) else like.new_zeros(len(X), 0)


class ShiftedPosterior(Posterior):
    """A fixed function plus the posterior of the residuals.

    Parameters
    ----------
    mean_function : MeanFunction
        Works on the scaled inputs; of mixed rows, on their numbers.
    inner : Posterior, optional
        Of the residuals; without it they are noise.
    like : Tensor
        The device and precision.
    noise_variance : float
        Noise of an observation.
    """

    kind: ClassVar[str] = "shifted"
    level: ClassVar[int] = 1
    joint_by_blocks: ClassVar[bool] = False

    def __init__(self, mean_function: Any, inner: Posterior | None, like: Tensor, noise_variance: float) -> None:
        super().__init__(like, noise_variance)
        self.mean_function, self.inner = mean_function, inner

    @property
    def row_numbers(self) -> int:
        return ROW_NUMBERS + (0 if self.inner is None else self.inner.row_numbers)

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        shift = self._shift(X)
        if self.inner is None:
            return shift, torch.zeros_like(shift)
        mean, var = self.inner.moments(X)
        return mean + shift, var

    def joint(self, X: Any, Z: Any) -> Tensor:
        return self.like.new_zeros(len(X), len(Z)) if self.inner is None else self.inner.covariances(X, Z)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        if self.inner is None:
            return lambda X: self._shift(X).expand(size, -1)
        paths = self.inner.draw_paths(size, draw)
        return lambda X: paths(X) + self._shift(X)

    def updated(self, X: Any, y: Tensor, V: Tensor) -> ShiftedPosterior:
        """The same function, with new rows for the GP on its residuals."""
        if self.inner is None:
            raise PosteriorError(
                f"This model is a function ({self.mean_function.kind}) and a noise, which takes no new rows: fit it "
                'again, or let recommend answer with Gaussian processes alone, by prefer="gp".'
            )
        return self.changed(inner=self.inner.updated(X, y - self._shift(X), V))

    def write(self, parts: Parts) -> None:
        parts.text["mean"], parts.version = self.mean_function.kind, 4
        parts.keep(**{f.name: getattr(self.mean_function, f.name) for f in fields(self.mean_function)})
        if self.inner is not None:
            inner = self.inner
            parts.text["inner"] = parts.keep_part(lambda own: write_posterior(own, inner), "residuals/")

    @classmethod
    def from_parts(cls, parts: Parts) -> ShiftedPosterior:
        kind = MEANS[parts.one_of("mean", tuple(MEANS))]
        shapes = {field.name: (None, None) if field.name == "Z" else (None,) for field in fields(kind)}
        values = {name: parts.tensor(name, *shape, whole=name in WHOLE) for name, shape in shapes.items()}
        mean_function = kind(**values)
        mean_function.check()
        below = kinds_below(cls.level)
        inner = read_posterior(parts.part("inner", "residuals/"), *below) if "inner" in parts else None
        like = next(value for value in values.values() if value.is_floating_point())
        return cls(mean_function, inner, like, parts.number("noise_variance", 0.0))

    def examples(self) -> Any:
        return () if self.inner is None else self.inner.examples()

    def check(self) -> None:
        if self.inner is not None:
            self.inner.check()
        if len(X := self.examples()):
            check_moments(*self.moments(X), 1.0)

    def _shift(self, X: Any) -> Tensor:
        numbers = numbers_of(X, self.like)
        values: Tensor = self.mean_function(numbers.double())
        return values.to(self.like)


ROWS_TOGETHER = 8192  # rows that are given to a plain function at once


class PriorPosterior(Posterior):
    """The prior of f: what a method predicts before any work.

    Parameters
    ----------
    theta : Tensor [p]
    """

    kind: ClassVar[str] = "prior"
    row_numbers = 2

    def __init__(self, kernel: Kernel, theta: Tensor) -> None:
        super().__init__(theta, float((2.0 * theta[-1]).exp()))
        self.kernel, self.theta = kernel, theta

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        var = self.kernel.diag(self.theta, X)
        return torch.zeros_like(var), var

    def joint(self, X: Any, Z: Any) -> Tensor:
        return self.kernel(self.theta, X, Z)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        return prior_paths(self.kernel, self.theta, size, draw)

    def write(self, parts: Parts) -> None:
        write_kernel(parts, self.kernel, self.theta)

    @classmethod
    def from_parts(cls, parts: Parts) -> PriorPosterior:
        return cls(*read_kernel(parts, len(parts.tensor("theta" if "x_mean" not in parts else "x_mean"))))


class MarginalPosterior(Posterior):
    """A posterior that is given as a plain function from inputs to mean and variance.

    It has no joint covariance, no samples and no paths, and says so.

    Parameters
    ----------
    predict : callable
        Takes inputs and gives a `Prediction` of f.
    like : Tensor
        Device and precision.
    noise_variance : float
        Noise variance of an observation.
    """

    row_numbers = max(1, 24 * 2**20 // (8 * ROWS_TOGETHER))

    def __init__(self, predict: Predictor, like: Tensor, noise_variance: float = 0.0) -> None:
        super().__init__(like, noise_variance)
        self.predict = predict

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        if isinstance(X, Tensor) and X.requires_grad:
            self._refuse("derivatives")
        mean, var = self.predict(X)
        return mean, var

    def joint(self, X: Any, Z: Any) -> NoReturn:
        self._refuse("covariance between rows, and so no joint samples")

    def draw_paths(self, size: int, draw: torch.Generator) -> NoReturn:
        self._refuse("sample paths")

    def _refuse(self, what: str) -> NoReturn:
        raise PosteriorError(
            f"This posterior was given as a function of means and variances, so it has no {what}; let the method "
            "return one of gpexplorer.posteriors, such as InducingPosterior."
        )


def as_posterior(given: Posterior | Predictor, theta: Tensor) -> Posterior:
    """Return a posterior as it is, and a plain function as a posterior of means and variances with theta's noise."""
    if isinstance(given, Posterior):
        return given
    return MarginalPosterior(given, theta, float((2.0 * theta[-1]).exp()))


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

    Up to the last knot, the variance of an observation is multiplied by the factors. How the variances of the inner
    posterior go on beyond it was not measured. There, what was added at the last knot grows in proportion to the time
    since the last training row, as the variance of a random walk does, and is added to the variance of the inner one.

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
    level: ClassVar[int] = 2
    joint_by_blocks: ClassVar[bool] = False

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
        at_X = self._deviations(X)
        return self.inner.covariances(X, Z).addr_(at_X, at_X if Z is X else self._deviations(Z))

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        paths = self.inner.draw_paths(size, draw)
        normal = torch.randn(size, 1, generator=draw, dtype=torch.float64).to(self.like)
        return lambda X: paths(X) + normal * self._deviations(X)

    def without_rows(self) -> Posterior:
        """The prior, which has no last row."""
        return self.inner.without_rows()

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
    def from_parts(cls, parts: Parts) -> WidenedPosterior:
        inner = read_posterior(parts.part("inner", "widened/"), *kinds_below(cls.level))
        knots = parts.tensor("knots")
        factors = parts.positive("factors", len(knots))
        if len(knots) < 2 or not bool((knots.diff() > 0.0).all() & (factors.diff() >= 0.0).all() & (factors[0] == 1.0)):
            raise PosteriorError("the factors of its variances do not grow from 1 with time.")
        return cls(inner, parts.whole("column") - 1, knots, factors)

    def examples(self) -> Any:
        return self.inner.examples()

    def check(self) -> None:
        self.inner.check()

    def _deviations(self, X: Any) -> Tensor:
        """The standard deviations [t] of what is added to f."""
        parts = [self._added(X[rows], self.inner.moments(X[rows])[1]).sqrt() for rows in self._blocks(X)]
        return torch.cat(parts) if parts else self.like

    def _added(self, X: Any, var: Tensor) -> Tensor:
        """What is added to the variance of f [b], where the inner posterior gives it `var`."""
        times, knots = numbers_of(X, self.like)[:, self.column].double(), self.knots.double()
        factors = interpolated(times.clamp_max(knots[-1]), knots, self.factors.double())
        far = torch.nonzero(times > knots[-1]).flatten()
        growth = torch.ones_like(times)
        if len(far):
            numbers = numbers_of(X[far], self.like)
            at_last = numbers.index_fill(1, torch.tensor([self.column], device=numbers.device), float(self.knots[-1]))
            rows = X[far].with_numbers(at_last) if isinstance(X, MixedRows) else at_last
            var = var.index_copy(0, far, self.inner.moments(rows)[1])
            growth = (times - knots[0]).clamp_min(knots[-1] - knots[0]) / (knots[-1] - knots[0])
        of_y = var.clamp_min(0.0) + self.inner.noise_variance
        return ((factors - 1.0).clamp_min(0.0) * growth * of_y).to(var)


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
