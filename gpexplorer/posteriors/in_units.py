"""A posterior in the units of the file.

    f_file = f * y_sd + y_mean,   cov_file = cov * y_sd^2,   x = (x_file - x_mean) / x_sd

With a transform T of the target, f_file = T^-1(f * y_sd + y_mean), whose distribution is not normal; its moments and
covariances are those that `target_transforms` gives.

Rows of unequal noise are multiplied by numbers d (`kernels.row_scaled`), and what is learned from them is the
distribution of a function of (x, d). `UnitRowsPosterior` gives the inputs one more column, the number 1: at d = 1 that
function is f.

A band of all rows contains a whole function at once, and not only each of its values by itself:

    P(|f(x_i) - mean_i| <= c sd_i for all i) = level            c from samples of the joint distribution

The usual band mean +- 2 sd contains each value with probability 95 %, and a function with many values much less often.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from ..data.reader.table_reader import reader_from
from ..data.standardising import scaled_inputs, scaled_targets, targets
from ..errors import PosteriorError, SettingError
from ..hyperparameters import Hyperparameters, hyperparameters
from ..kernels.base import Covariance
from ..kernels.row_scaled import plain_rows
from ..linalg.blocks import row_blocks
from ..problem import Dataset, MixedRows, Prediction, Problem, Scale, take
from ..target_transforms import TargetTransform, transform_from
from .base import Posterior, check_fits
from .features import FeaturePosterior
from .marginals import Marginals, NormalMarginals, TransformedMarginals
from .saved.parts import LARGEST, Parts, check_moments, kinds_below, read_posterior, write_posterior
from .table_posterior import TablePosterior

LARGEST_TRIED = 1e40  # mean and sd of a transformed target up to which moments are tried out: their squares are finite
Guard = Callable[[], AbstractContextManager[None]]


class InUnits(TablePosterior):
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
    level: ClassVar[int] = 3
    joint_by_blocks: ClassVar[bool] = False

    def __init__(self, inner: Posterior, train: Dataset, guard: Guard = nullcontext) -> None:
        self.columns = train.rows(torch.arange(0))  # no rows: only how inputs are read
        self.y_sd = train.scale.y_sd if train.scale else 1.0
        super().__init__(inner.like.double(), inner.noise_variance * self.y_sd**2)
        self.inner, self.of, self.guard = inner, inner.of, guard

    def _contents(self) -> str:
        return self.inner._contents()

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters of the model, in the units of the file.

        Raises
        ------
        PosteriorError
            If the posterior is not that of one kernel, such as an average of several.
        """
        inner: Any = self.inner
        while not hasattr(inner, "theta") and hasattr(inner, "inner"):
            inner = inner.inner
        if not hasattr(inner, "theta") or not isinstance(getattr(inner, "kernel", None), Covariance):
            raise PosteriorError(f"A {type(self.inner).__name__} has no table of hyperparameters; ask its run for it.")
        return hyperparameters(inner.kernel, self.columns, inner.theta)

    @property
    def row_numbers(self) -> int:
        return self.inner.row_numbers + 2 * self.columns.d

    def at_scaled(self, X: Any) -> Prediction:
        """Predict, in the units of the file, at inputs that are scaled already, such as the test rows of a split."""
        return Prediction(*self.marginals_at_scaled(X).moments)

    def marginals_at_scaled(self, X: Any) -> Marginals:
        """The same as whole distributions."""
        with self.guard():
            of_f = self._in_units(*self.inner._marginals(self.inner.rows(X), False).moments)
            return self.observed(of_f) if self.of == "y" else of_f

    def block_marginals(self, X: Any) -> Marginals:
        with self.guard():
            mean, var = self.inner.moments(scaled_inputs(X, self.columns))
            return self._in_units(mean, var.clamp_min(0.0))

    def block_mean(self, X: Any) -> Tensor:
        with self.guard():
            return targets(self.inner.block_mean(scaled_inputs(X, self.columns)), self.columns)

    def joint(self, X: Any, Z: Any) -> Tensor:
        return self._scaled_joint(X, Z).mul_(self.y_sd**2)

    def updated(self, X: Any, y: Tensor, V: Tensor) -> Self:
        with self.guard():
            scaled = scaled_inputs(X, self.columns), scaled_targets(y, self.columns)
            return self.changed(inner=self.inner.updated(*scaled, V / self.y_sd**2))

    def without_rows(self) -> Self:
        """Return the same model before any row: the prior, to which rows can be added.

        Raises
        ------
        PosteriorError
            If the posterior consists of its rows, or its weights are not those of a regression.
        """
        return self.changed(inner=self.inner.without_rows())

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        with self.guard():
            paths = self.inner.draw_paths(size, draw)
        return lambda X: targets(paths(scaled_inputs(X, self.columns)), self.columns)

    def write(self, parts: Parts) -> None:
        parts.text["columns"] = parts.keep_part(lambda own: write_columns(own, self.columns))
        parts.text["inner"] = parts.keep_part(lambda own: write_posterior(own, self.inner))

    @classmethod
    def from_parts(cls, parts: Parts) -> InUnits:
        inner = read_posterior(parts.part("inner"), *kinds_below(cls.level))
        columns = read_columns(parts.part("columns"))
        numbers = columns.X.numbers if isinstance(columns.X, MixedRows) else columns.X
        if getattr(inner, "column", 0) >= (max(numbers.shape[1], 1) if isinstance(numbers, Tensor) else 1):
            raise PosteriorError("it widens variances by an input that it does not have.")
        return in_units_of(inner, columns)

    def check(self) -> None:
        """Try out the posterior in the scaled space, and observations in the units of the file."""
        self.inner.check()
        if len(X := self._tried_in_units()):
            check_moments(*self.asked_for("y").at_scaled(X), 0.0)

    def _tried_in_units(self) -> Any:
        """Scaled rows at which observations are tried out."""
        return self.inner.examples()

    def _in_units(self, mean: Tensor, var: Tensor) -> Marginals:
        """The distributions of f where the scaled function has these moments [b]."""
        return NormalMarginals(targets(mean, self.columns), var.double() * self.y_sd**2)

    def _scaled_joint(self, X: Any, Z: Any) -> Tensor:
        with self.guard():
            scaled = scaled_inputs(X, self.columns)
            return self.inner.covariances(scaled, scaled if Z is X else scaled_inputs(Z, self.columns)).double()


class TransformedInUnits(InUnits):
    """The distribution of a target whose transform is a Gaussian process; predictions may be skewed.

    The parameters are those of `InUnits`.

    Notes
    -----
    `noise_variance`, also of new rows, is in units of the transformed target. The mean of f is not that of y, because
    the noise is transformed as well; the medians are the same.
    """

    @property
    def row_numbers(self) -> int:
        return super().row_numbers + self.transform.row_numbers

    @property
    def scale(self) -> Scale:
        """How targets are scaled and transformed."""
        assert self.columns.scale is not None
        return self.columns.scale

    @property
    def transform(self) -> TargetTransform:
        """The transform of the target."""
        assert self.scale.transform is not None
        return self.scale.transform

    def block_mean(self, X: Any) -> Tensor:
        return self._marginals(X, None).moments[0]

    def observed(self, marginals: Any) -> Marginals:
        return self._in_units(marginals.scaled.mean, marginals.scaled.var + self._scaled_noise)

    def joint(self, X: Any, Z: Any) -> Tensor:
        return self._joint(X, Z, 0.0)

    def cov(self, X: Any, Z: Any = None, noise: bool | None = None) -> Tensor:
        """Joint covariance; see `Posterior.cov`. With noise, of observations at X and other observations at Z."""
        X = self.rows(X)
        other = X if Z is None else self.rows(Z)
        check_fits(len(X), len(other), self.like)
        K = self._joint(X, other, self._scaled_noise if self._noise(noise) else 0.0)
        if Z is None:
            K.diagonal().copy_(self._marginals(X, noise).moments[1])
        return K

    def sample(self, X: Any, size: int = 1, seed: int = 0, noise: bool | None = None) -> Tensor:
        """Draw joint samples at given rows; see `Posterior.sample`."""
        inner = self.inner.asked_for("y" if self._noise(noise) else "f", self._scaled_noise)
        with self.guard():
            return targets(inner.sample(scaled_inputs(self.rows(X), self.columns), size, seed), self.columns)

    @property
    def _scaled_noise(self) -> float:
        return self.noise_variance / self.y_sd**2

    def _in_units(self, mean: Tensor, var: Tensor) -> TransformedMarginals:
        return TransformedMarginals(NormalMarginals(mean, var), self.scale)

    def _tried_in_units(self) -> Any:
        """Those near the targets: far ahead a trend is uncertain, and the moments of its exponential are infinite."""
        X = self.inner.examples()
        if not len(X):
            return X
        with self.guard():
            mean, var = self.inner._marginals(self.inner.rows(X), False).moments
        mean, var = self._in_units(mean, var.clamp_min(0.0) + self._scaled_noise).moments
        return take(X, (torch.maximum(mean.abs(), var.sqrt()) <= LARGEST_TRIED).nonzero()[:, 0])

    def _joint(self, X: Any, Z: Any, noise: float) -> Tensor:
        """Covariance [b, c], with this noise in the scaled space."""
        C = self._scaled_joint(X, Z).mul_(self.y_sd**2)  # [b, c] of the transformed target
        at_X = self._row_terms(X, noise)
        at_Z = at_X if Z is X else self._row_terms(Z, noise)
        K = torch.empty_like(C)
        for rows in row_blocks(len(C), 6 * C.element_size() * C.shape[1], C):
            K[rows] = self.transform.covariances(C[rows], at_X[rows], at_Z)
        return K

    def _row_terms(self, X: Any, noise: float) -> Tensor:
        """What covariances need of each row [t, k]; see `TargetTransform.row_terms`."""
        parts = []
        for rows in self._blocks(X):
            with self.guard():
                mean, var = self.inner.moments(scaled_inputs(X[rows], self.columns))
            parts.append(self.transform.row_terms(*self._in_units(mean, var.clamp_min(0.0) + noise).of_transform))
        return torch.cat(parts) if parts else self.transform.row_terms(self.like, self.like)


def write_columns(parts: Parts, train: Dataset) -> None:
    """Write how inputs are read: names, kinds, units and precision."""
    scale, is_mixed = train.scale, isinstance(train.X, MixedRows)
    parts.text |= {"names": list(train.names), "target": train.target, "d": train.d, "scaled": scale is not None}
    parts.text |= {"numeric": isinstance(train.X, Tensor), "dtype": str(train.y.dtype).removeprefix("torch.")}
    if is_mixed:
        parts.text["texts"] = len(train.X.texts)
    if scale is not None:
        parts.keep(x_mean=scale.x_mean, x_sd=scale.x_sd)
        parts.text |= {"y_mean": scale.y_mean, "y_sd": scale.y_sd}
        if scale.transform is not None:
            parts.text["transform"], parts.version = scale.transform.described(), 2
        if scale.x_log is not None:
            parts.keep(x_log=scale.x_log)
    if train.reader is not None:
        parts.text["reader"], parts.version = train.reader.to_json(), 3
    if scale is not None and scale.x_log is not None:
        parts.version = 5


def read_columns(parts: Parts) -> Dataset:
    """A data set without rows, which says how inputs are read."""
    dtype = getattr(torch, parts.one_of("dtype", ("float32", "float64")))
    d, names, numeric, scale = parts.whole("d"), parts.texts("names"), parts.flag("numeric"), None
    texts = parts.whole("texts") if "texts" in parts else 0
    if texts > d or (names and len(names) != d and (numeric or texts)):
        raise PosteriorError(f"it names {len(names):,} columns and needs {d}, {texts} of them of text.")
    if parts.flag("scaled"):
        width = d - texts if numeric or texts else None
        mean, sd = parts.tensor("x_mean", width), parts.positive("x_sd", width)
        transform = transform_from(parts.text["transform"]) if "transform" in parts else None
        x_log = parts.tensor("x_log", width) if "x_log" in parts else None
        if x_log is not None and not bool((x_log >= 0.0).all()):
            raise PosteriorError("the logarithms of its inputs have a negative unit.")
        scale = Scale(mean, sd, parts.number("y_mean"), parts.number("y_sd", 1.0 / LARGEST), transform, x_log)
    empty = torch.zeros(0, dtype=dtype, device=parts.device)
    numbers = empty.reshape(0, 1).expand(0, d - texts)
    X: Any = numbers if numeric else MixedRows(numbers, ((),) * texts) if texts else []
    reader = reader_from(parts.text["reader"]) if "reader" in parts else None
    if reader is not None and reader.names != tuple(names):
        raise PosteriorError("the reader of its table makes other inputs than the model has.")
    return Dataset(X, empty, tuple(names), str(parts.text.get("target", "y")), scale, reader=reader)


def in_units_of(inner: Posterior, train: Dataset, guard: Guard = nullcontext) -> InUnits:
    """Return a posterior of scaled rows in the units of the file; the parameters are those of `InUnits`."""
    is_transformed = train.scale is not None and train.scale.transform is not None
    return (TransformedInUnits if is_transformed else InUnits)(inner, train, guard)


def in_units(inner: Posterior, problem: Problem, guard: Guard = nullcontext) -> InUnits:
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
    return in_units_of(inner, train, guard)


def with_ones(X: Tensor) -> Tensor:
    """Inputs [t, d] with a last column of ones."""
    return torch.cat([X, X.new_ones(X.shape[0], 1)], 1)


class UnitRowsPosterior(Posterior):
    """The posterior of f, where `inner` is that of a function of (x, d).

    Parameters
    ----------
    inner : Posterior
        Its kernel is a `RowScaled` one, or its features take rows with a last column.
    """

    kind: ClassVar[str] = "unit rows"
    level: ClassVar[int] = 1
    joint_by_blocks: ClassVar[bool] = False

    def __init__(self, inner: Posterior) -> None:
        super().__init__(inner.like, inner.noise_variance)
        self.inner, self.of = inner, inner.of

    @property
    def row_numbers(self) -> int:
        return self.inner.row_numbers + 1

    def block_mean(self, X: Any) -> Tensor:
        return self.inner.block_mean(with_ones(X))

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        return self.inner.moments(with_ones(X))

    def joint(self, X: Any, Z: Any) -> Tensor:
        rows = with_ones(X)
        return self.inner.covariances(rows, rows if Z is X else with_ones(Z))

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        paths = self.inner.draw_paths(size, draw)
        return lambda X: paths(with_ones(X))

    def without_rows(self) -> UnitRowsPosterior:
        """The prior, to which rows can be added."""
        return self.changed(inner=self.inner.without_rows())

    def updated(self, X: Any, y: Tensor, V: Tensor) -> UnitRowsPosterior:
        return self.changed(inner=self.inner.updated(with_ones(X), y, V))

    def write(self, parts: Parts) -> None:
        parts.text["inner"] = parts.keep_part(lambda own: write_posterior(own, self.inner))

    @classmethod
    def from_parts(cls, parts: Parts) -> UnitRowsPosterior:
        return cls(read_posterior(parts.part("inner"), *kinds_below(cls.level)))

    def examples(self) -> Any:
        X = self.inner.examples()
        return X[:, :-1] if len(X) else X

    def check(self) -> None:
        self.inner.check()


class JointBand(NamedTuple):
    """A band [t] that contains f at all t rows with the given probability, and its half width in sd.

    If the target is transformed, the half width is that of the band of the scaled function.
    """

    lower: Tensor
    upper: Tensor
    factor: float


def joint_band(posterior: Posterior, X: Any, level: float = 0.95, size: int = 2000, seed: int = 0) -> JointBand:
    """Compute a simultaneous band of f.

    Parameters
    ----------
    X : Tensor [t, d], array, frame or sequence
        Inputs, t <= 5000.
    level : float, default 0.95
        Probability with which the band contains f at all rows.
    size : int, default 2000
        Number of samples from which the width is estimated; the error of the probability is about
        (level (1 - level) / size)^1/2.
    seed : int, default 0
        Of the samples.

    Raises
    ------
    SettingError
        If the level is not between 0 and 1.
    PosteriorError
        If the posterior has no joint samples.

    Notes
    -----
    Of no rows, the factor is nan. An eigendecomposition of the covariance, about 9 t^3 flops.
    """
    if not 0.0 < level < 1.0:
        raise SettingError(f"level is {level!r}; give a probability between 0 and 1, such as 0.95.")
    if isinstance(posterior, TransformedInUnits):  # the transform of a band contains the transform of a function
        scaled = joint_band(posterior.inner, scaled_inputs(posterior.rows(X), posterior.columns), level, size, seed)
        lower, upper = (targets(end, posterior.columns) for end in (scaled.lower, scaled.upper))
        return JointBand(lower, upper, scaled.factor)
    mean, sd = posterior.mean(X), posterior.sd(X, noise=False)
    if not len(sd):
        return JointBand(mean, mean, float("nan"))
    largest = sd.max().clamp_min(1e-300)
    deviations = (posterior.sample(X, size, seed, noise=False) - mean).abs() / sd.clamp_min(1e-9 * largest)  # [size, t]
    factor = float(deviations.amax(1).double().quantile(level))
    return JointBand(mean - factor * sd, mean + factor * sd, factor)
