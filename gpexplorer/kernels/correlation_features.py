"""Places of rows between which a short distance means a high correlation: where near neighbours are sought.

    |phi(x) - phi(z)|^2 = -2 log correlation(x, z)
    squared exponential      phi = x / l
    periodic                 phi = (cos a, sin a) / l,   a = 2 pi x / period, for each input
    product                  phi = those of all factors, side by side

Any other stationary factor counts as the squared exponential that falls to one half at the same distance. Without a
periodic part, the lengths of the whole kernel suffice. A sum with a periodic part has no such places, because the terms
order rows differently: tomorrow is near today by a trend, and a year later by a season. Each term then has its own, and
neighbours are taken in turn: of the nearest rows of all terms, that with the highest correlation by the whole kernel,
then the nearest by each term. So none of the terms is left without rows that tell of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ..linalg.blocks import row_blocks
from ..problem import Kernel
from .groups import LEVEL, correlation_lengths
from .row_scaled import unscaled_kernel

TIE = 1e-3  # of the range of an input: of rows with the same phase, those nearest in the input come first
BLOCK_BYTES = 16 * 2**20
Points = NDArray[np.float64]


class Wave(NamedTuple):
    """The place of a row on the circle of a periodic factor."""

    columns: list[int]
    frequency: Tensor  # radians per unit of the input
    rate: Tensor  # 1 / l


class Term(NamedTuple):
    """A product of kernels."""

    log_variance: Tensor
    rates: Tensor  # [d] 1 / l, of what is not periodic
    waves: list[Wave]


class CorrelationFeatures:
    """Places of rows by a stationary kernel.

    Parameters
    ----------
    kernel : Kernel
        A stationary kernel, or a `RowScaled` one of it.
    theta : Tensor [p]
        Log-hyperparameters.
    X : Tensor [n, D]
        Training rows, whose ranges say what distances matter.
    lengths : Tensor [d], optional
        What each input is divided by; by default, where the correlation of the kernel falls below one half.
    """

    def __init__(self, kernel: Kernel, theta: Float[Tensor, " p"], X: Tensor, lengths: Tensor | None = None) -> None:
        self.kernel: Any = unscaled_kernel(kernel)
        self.theta, self.d = theta.double(), X.shape[1] - (self.kernel is not kernel)
        inputs = X[:, : self.d].double()
        ranges = inputs.amax(0) - inputs.amin(0)
        self.ranges = torch.where(ranges > 0.0, ranges, 1.0)
        self.lengths = correlation_lengths(kernel, theta, self.ranges) if lengths is None else lengths.double()
        products = _products(self.kernel, self.theta)
        is_periodic = any("period" in atom.parameter_names for product in products for atom, _ in product)
        self.terms = [self._term(product) for product in products] if is_periodic else []

    def places(self, X: Float[Tensor, "b D"]) -> list[Points]:
        """The places [b, c] of rows by each term, or by the whole kernel."""
        X = X[:, : self.d].detach().double()
        if not self.terms:
            return [(X / self.lengths).cpu().numpy()]
        return [self._places(term, X).cpu().numpy() for term in self.terms]

    def neighbours(self, X: Tensor, Z: Tensor, nearest: Sequence[Any]) -> Tensor:
        """The neighbours [b, k] of rows, in turn the one with the highest correlation and the nearest by each term.

        Parameters
        ----------
        X, Z : Tensor [n, D] and Tensor [b, D]
            Training rows, and the rows whose neighbours are asked for.
        nearest : sequence of arrays [b, k]
            Of each of `places`, the numbers of the nearest rows of X, the nearest first.
        """
        by_term = torch.stack([torch.as_tensor(rows) for rows in nearest], 2).to(X.device)  # [b, k, terms]
        if len(nearest) == 1:
            return by_term[:, :, 0]
        X, Z, zero = X[:, : self.d].double(), Z[:, : self.d].double(), self.ranges.new_zeros(1, self.d)
        _, k, terms = by_term.shape
        chosen = by_term.new_empty(len(Z), k)
        for block in row_blocks(len(Z), 8 * k * terms * (6 + 3 * self.d), X, BLOCK_BYTES):
            candidates = by_term[block].flatten(1).sort(1).values
            D = (Z[block, None] - X[candidates]).flatten(0, 1)
            K = self.kernel(self.theta, D, zero).reshape(candidates.shape)
            K[:, 1:].masked_fill_(candidates[:, 1:] == candidates[:, :-1], -math.inf)
            by_kernel = candidates.gather(1, K.argsort(dim=1, descending=True, stable=True)[:, :k])
            chosen[block] = _first_distinct(torch.cat([by_kernel[:, :, None], by_term[block]], 2).flatten(1), k)
        return chosen

    def stretch(self, before: CorrelationFeatures) -> float:
        """How much distances have changed but for their unit: the largest ratio of proportions, times 1 + turn.

        The turn is how far the phases at both ends of the rows have moved apart, in radians.
        """
        if not self.terms:
            return _spread((self.lengths / before.lengths).log())
        pairs = list(zip(self.terms, before.terms, strict=True))
        stretch = math.sqrt(_spread(torch.stack([new.log_variance - old.log_variance for new, old in pairs])))
        turn = 0.0
        for new, old in pairs:
            waves = list(zip(new.waves, old.waves, strict=True))
            rates = [
                (new.rates / old.rates).log(),
                *((wave.rate / earlier.rate).log()[None] for wave, earlier in waves),
            ]
            stretch = max(stretch, _spread(torch.cat(rates)))
            for wave, earlier in waves:
                width = float(self.ranges[wave.columns].max())
                turn = max(turn, float((wave.frequency - earlier.frequency).abs()) * width)
        return stretch * (1.0 + turn)

    def _term(self, product: list[tuple[Any, Tensor]]) -> Term:
        """The rates of a product; those of its factors add up as squares."""
        squares, waves, zero = TIE**2 / self.ranges.square(), [], self.ranges.new_zeros(1, self.d)
        log_variance = self.theta.new_zeros(())
        for atom, theta in product:
            names, columns = atom.parameter_names, list(getattr(atom, "places", range(self.d)))
            log_variance = log_variance + atom.diag(theta, zero)[0].log()
            rates = {name: torch.exp(-own) for name, own in zip(names, theta, strict=False)}
            if "period" not in names:
                squares = squares - 2.0 * math.log(LEVEL) / correlation_lengths(atom, theta, self.ranges).square()
                continue
            waves.append(Wave(columns, 2.0 * math.pi * rates["period"], rates["lengthscale"]))
            if "width" in names:
                squares[columns] += rates["width"].square()
        return Term(log_variance, squares.sqrt(), waves)

    def _places(self, term: Term, X: Tensor) -> Tensor:
        parts = [X * term.rates]
        for wave in term.waves:
            a = wave.frequency * X[:, wave.columns]
            parts += [wave.rate * a.cos(), wave.rate * a.sin()]
        return torch.cat(parts, 1)


def _products(kernel: Any, theta: Tensor) -> list[list[tuple[Any, Tensor]]]:
    """A kernel as a sum of products: the factors of each, with the theta that begins with their own entries."""
    if not getattr(kernel, "parts", ()):
        return [[(kernel, theta)]]
    first, second = kernel.parts
    left, right = _products(first, theta), _products(second, theta[first.size :])
    return left + right if kernel.sign == "+" else [one + other for one in left for other in right]


def _first_distinct(rows: Tensor, k: int) -> Tensor:
    """The first k distinct numbers [b, k] of each line, in their order; there are at least so many."""
    numbers, place = rows.sort(dim=1, stable=True)
    repeats = torch.zeros_like(rows, dtype=torch.bool)
    repeats.scatter_(1, place[:, 1:], numbers[:, 1:] == numbers[:, :-1])
    return rows[~repeats & ((~repeats).cumsum(1) <= k)].reshape(-1, k)


def _spread(logs: Tensor) -> float:
    """The largest ratio over the smallest."""
    return float((logs.max() - logs.min()).exp())
