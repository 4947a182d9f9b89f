"""The posterior of GPs that predict each new row from its nearest training rows.

    S      = k(N, N) + V,   N = N(x) the k training rows nearest to x, V their noise
    w      = S^-1 k(N, x)                                       O(k^3) per point
    mean   = w'y_N,   var = k(x, x) - w'k(N, x)
    cov    = cov(e(x), e(z)) under the prior,   e(x) = f(x) - w(x)'y_N(x)
    path   = mean + h(x) - w'(h(N) + e_N)                       h from the prior, e ~ N(0, V)

The covariance is that of the errors of all local predictions together, so that it is never negative, its diagonal is
the variance, and the paths have it too. With e = T v, where v are the values of f at the new rows and of y at all rows
near any of them, and G = cov(v), it is T G T'. With k = n it is the covariance of the exact GP. All is computed in
float64.

References: Vecchia (1988); Datta et al. (2016), section 2.2; Wilson et al. (2020), eq 12, for the paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..kernels.correlation_features import CorrelationFeatures
from ..kernels.groups import Groups
from ..linalg.blocks import row_blocks
from ..linalg.cholesky import cholesky_of_each
from ..linalg.nearest import Nearest
from ..problem import Kernel
from .exact import KeptRowsPosterior
from .sample_paths import prior_paths
from .saved.parts import Parts
from .weights import normal_columns


class Terms(NamedTuple):
    """Terms of sums; the numbers of the sums ascend."""

    row: Tensor  # [s] the sum to which a term belongs
    column: Tensor  # [s] the value that it takes
    weight: Tensor  # [s]

    def between(self, begin: int, end: int) -> Terms:
        """The terms of the values from `begin` to before `end`, numbered from 0."""
        is_in = (self.column >= begin) & (self.column < end)
        return Terms(self.row[is_in], self.column[is_in] - begin, self.weight[is_in])

    def sums(self, values: Float[Tensor, "v c"], count: int) -> Tensor:
        """The sums [count, c] of these values."""
        counts = self.row.bincount(minlength=count)
        offsets = counts.cumsum(0) - counts
        embedding_bag = torch.nn.functional.embedding_bag
        return embedding_bag(self.column, values.contiguous(), offsets, mode="sum", per_sample_weights=self.weight)


class Errors(NamedTuple):
    """The errors e of b rows as sums of values: of f there, and of y at the u training rows near any of them."""

    values: Tensor  # [b + u, D] where the values are
    used: Tensor  # [u] training rows, ascending
    terms: Terms  # of the values
    y: Terms  # those of y, by training rows


class NearestRowsPosterior(KeptRowsPosterior):
    """A GP that predicts each new row from its nearest training rows.

    Parameters
    ----------
    kernel : Kernel
        A stationary kernel, or a `RowScaled` one of it.
    theta : Tensor [p]
        Log-hyperparameters; the last one is the log noise standard deviation.
    X, y : Tensor [n, D] and Tensor [n]
        Training rows.
    lengths : Tensor [d]
        What each input is divided by before distances are measured; see `kernels.correlation_features` for a kernel
        with a periodic part.
    neighbours : int
        Number of nearest rows k.
    noise : Tensor [n], optional
        Noise variance of each row, where it is not s2.

    Notes
    -----
    With few inputs the rows lie in a k-d tree, so that a new row costs O(log n + k^3); see `linalg.nearest`. A
    covariance of b and c rows takes (b + u) (c + v) entries of the kernel, where u and v rows are near any of them, and
    half as many of b rows among themselves.
    """

    kind: ClassVar[str] = "nearest rows"
    joint_by_blocks: ClassVar[bool] = False

    def __init__(
        self,
        kernel: Kernel,
        theta: Tensor,
        X: Tensor,
        y: Tensor,
        *,
        lengths: Tensor,
        neighbours: int,
        noise: Tensor | None = None,
    ) -> None:
        super().__init__(kernel, theta, X, y, noise)
        self.lengths, self.neighbours = lengths, min(neighbours, len(y))
        self._groups = Groups(kernel, theta.double(), self.neighbours + 1)
        self._rows: tuple[CorrelationFeatures, list[Nearest]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes its tree again."""
        return {**self.__dict__, "_rows": None}

    @property
    def row_numbers(self) -> int:
        return 2 * self._groups.numbers

    def nearest(self, X: Float[Tensor, "b D"]) -> Tensor:
        """The nearest training rows [b, k] of each new row, the nearest first."""
        if self._rows is None:
            features = CorrelationFeatures(self.kernel, self.theta, self.X, self.lengths)
            self._rows = features, [Nearest(places) for places in features.places(self.X)]
        features, trees = self._rows
        found = [tree.query(Z, self.neighbours)[1] for tree, Z in zip(trees, features.places(X), strict=True)]
        return features.neighbours(self.X, X.detach(), found)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, var, _, _ = self._conditionals(X)
        return mean.to(self.like), var.to(self.like)

    def joint(self, X: Tensor, Z: Tensor) -> Tensor:
        """The covariance T_x G T_z' [b, c], in strips of G.

        If X is Z, it is M + M', where M has the part of G before its diagonal, and half of the blocks on it.
        """
        left = self._errors(X)
        right = left if Z is X else self._errors(Z)
        n, b, symmetric = len(self.y), len(X), right is left
        place = left.used.new_full((n,), -1)  # of each training row among the values at the left
        place[left.used] = torch.arange(b, len(left.values), device=place.device)
        noise = Terms(right.y.row, place[right.y.column], right.y.weight * self.noise_of_rows[right.y.column])
        M = left.values.new_zeros(b, len(Z))
        for part in row_blocks(len(left.values), 8 * (len(right.values) + 2 * len(Z)), M):
            before, until = (part.start, part.stop) if symmetric else (len(right.values), len(right.values))
            G = self.kernel(self.theta.double(), right.values[:until], left.values[part])  # [until, strip]
            E = right.terms.between(0, before).sums(G[:before], len(Z))  # [c, strip] with e(z)
            own = noise.between(part.start, part.stop)
            of_own = torch.zeros_like(E).index_put((own.row, own.column), own.weight, accumulate=True)
            if symmetric:
                of_own = 0.5 * (of_own + right.terms.between(before, until).sums(G[before:], len(Z)))
            own = left.terms.between(part.start, part.stop)
            rows, number = own.row.unique_consecutive(return_inverse=True)
            M = M.index_add_(0, rows, own._replace(row=number).sums((E + of_own).T, len(rows)))
        return (M + M.T if symmetric else M).to(self.like)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        prior = prior_paths(self.kernel, self.theta, size, draw)
        e = normal_columns(self.y, len(self.y), size, draw) * self.noise_of_rows.sqrt()[:, None]

        def evaluate(X: Tensor) -> Tensor:
            mean, _, w, N = self._conditionals(X)
            used, place = N.unique(return_inverse=True)
            drawn = prior(self.X[used]) + e[used].T  # [size, used]
            return (mean + prior(X) - (drawn[:, place] * w).sum(2)).to(self.like)

        return evaluate

    def write(self, parts: Parts) -> None:
        """Write the rows and how their distances are measured; no factor is kept."""
        super().write(parts)
        parts.text["neighbours"] = self.neighbours
        parts.keep(lengths=self.lengths)

    @classmethod
    def from_parts(cls, parts: Parts) -> NearestRowsPosterior:
        kernel, theta, X, y, noise = cls.read_kept(parts)
        lengths, neighbours = parts.positive("lengths", kernel.d), parts.whole("neighbours")
        return cls(kernel, theta, X, y, noise=noise, lengths=lengths, neighbours=neighbours)

    def _conditionals(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean [b], variance [b], weights [b, k] of the neighbours, and the neighbours [b, k]."""
        N = self.nearest(X)
        S = self._groups.matrices(torch.cat([self.X[N].double(), X[:, None].double()], 1))  # [b, k + 1, k + 1]
        K, K_x, variance = S[:, :-1, :-1], S[:, :-1, -1:], S[:, -1, -1]
        L = cholesky_of_each(K + torch.diag_embed(self.noise_of_rows[N]), "K + s2 I of near rows")
        w = torch.cholesky_solve(K_x, L)[:, :, 0]
        mean = (w * self.y[N]).sum(1)
        return mean, variance - (w * K_x[:, :, 0]).sum(1), w, N

    def _errors(self, X: Tensor) -> Errors:
        blocks = [self._conditionals(X[rows])[2:] for rows in self._blocks(X)]
        w, N = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        (b, k), (used, place) = N.shape, N.unique(return_inverse=True)
        row = torch.arange(b, device=N.device)[:, None]
        columns, weights = torch.cat([row, b + place], 1), torch.cat([torch.ones_like(w[:, :1]), -w], 1)
        terms = Terms(row.expand(b, k + 1).flatten(), columns.flatten(), weights.flatten())
        of_y = Terms(row.expand(b, k).flatten(), N.flatten(), -w.flatten())
        return Errors(torch.cat([X.double(), self.X[used].double()]), used, terms, of_y)
