"""A fixed function plus the posterior of what it leaves: f = m + g.

    mean = m(x) + mean_g(x),   cov(x, z) = cov_g(x, z)

m is a sum of regression trees, a linear function or a mean of nearest rows, and is held as plain numbers, so that a
file of it runs nothing. g is a GP on the residuals of m, or 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import PosteriorError
from ..problem import MixedRows
from .base import Posterior
from .saved.parts import Parts, check_moments, read_posterior, write_posterior


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
        return self.like.new_zeros(len(X), len(Z)) if self.inner is None else self.inner.joint(X, Z)

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
    def read(cls, parts: Parts) -> ShiftedPosterior:
        kind = MEANS[parts.one_of("mean", tuple(MEANS))]
        values = {}
        for field in fields(kind):
            shape = (None, None) if field.name == "Z" else (None,)
            values[field.name] = parts.tensor(field.name, *shape, whole=field.name in WHOLE)
        mean_function = kind(**values)
        mean_function.check()
        inner = read_posterior(parts.part("inner", "residuals/"), "rows") if "inner" in parts else None
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
