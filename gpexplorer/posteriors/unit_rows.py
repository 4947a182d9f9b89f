"""A posterior of f from one of d f: the inputs get one more column, the number 1.

Rows of unequal noise are multiplied by numbers d (`kernels.row_scaled`), and what is learned from them is the
distribution of a function of (x, d). At d = 1 it is f.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import PosteriorError
from .base import Posterior
from .saved.parts import Parts, read_posterior, write_posterior


def with_ones(X: Tensor) -> Tensor:
    """Inputs [t, d] with a last column of ones."""
    return torch.cat([X, X.new_ones(X.shape[0], 1)], 1)


def emptied(posterior: Posterior) -> Posterior:
    """The same posterior before any row; PosteriorError if its kind has no such form."""
    if not hasattr(posterior, "without_rows"):
        raise PosteriorError(
            f"The rows of a {type(posterior).__name__} cannot be left out, because it consists of them; use a "
            "method with inducing points or features."
        )
    other: Posterior = posterior.without_rows()
    return other


class UnitRowsPosterior(Posterior):
    """The posterior of f, where `inner` is that of a function of (x, d).

    Parameters
    ----------
    inner : Posterior
        Its kernel is a `RowScaled` one, or its features take rows with a last column.
    """

    kind: ClassVar[str] = "unit rows"

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
        return self.inner.joint(with_ones(X), with_ones(Z))

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        paths = self.inner.draw_paths(size, draw)
        return lambda X: paths(with_ones(X))

    def without_rows(self) -> UnitRowsPosterior:
        """The prior, to which rows can be added."""
        return UnitRowsPosterior(emptied(self.inner)).asked_for(self.of, self.noise_variance)

    def updated(self, X: Any, y: Tensor, V: Tensor) -> UnitRowsPosterior:
        inner = self.inner.updated(with_ones(X), y, V)
        return UnitRowsPosterior(inner).asked_for(self.of, self.noise_variance)

    def write(self, parts: Parts) -> None:
        parts.text["inner"] = parts.keep_part(lambda own: write_posterior(own, self.inner))

    @classmethod
    def read(cls, parts: Parts) -> UnitRowsPosterior:
        return cls(read_posterior(parts.part("inner"), "inducing", "rows", "nearest rows", "features", "prior"))

    def examples(self) -> Any:
        X = self.inner.examples()
        return X[:, :-1] if len(X) else X

    def check(self) -> None:
        self.inner.check()
