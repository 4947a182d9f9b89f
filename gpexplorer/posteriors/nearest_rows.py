"""The posterior of GPs that predict each new row from its nearest training rows.

    S      = k(N, N) + V,   N = N(x) the k training rows nearest to x, V their noise
    w      = S^-1 k(N, x)                                       O(k^3) per point
    mean   = w'y_N,   var = k(x, x) - w'k(N, x)
    cov    = cov(e(x), e(z)) under the prior,   e(x) = f(x) - w(x)'y_N(x)
    path   = mean + h(x) - w'(h(N) + e_N)                       h from the prior, e ~ N(0, V)

The covariance is that of the errors of all local predictions together, so that it is never negative, its diagonal is
the variance, and the paths have it too. With k = n it is the covariance of the exact GP. All is computed in float64.

References: Vecchia (1988); Datta et al. (2016), section 2.2; Wilson et al. (2020), eq 12, for the paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..kernels.groups import Groups
from ..linalg.blocks import row_blocks
from ..linalg.cholesky import cholesky_of_each
from ..linalg.nearest import Nearest
from ..problem import Kernel
from .exact import KeptRowsPosterior
from .sample_paths import prior_paths
from .saved.parts import Parts
from .weights import normal_columns


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
        What each input is divided by before distances are measured.
    neighbours : int
        Number of nearest rows k.
    noise : Tensor [n], optional
        Noise variance of each row, where it is not s2.

    Notes
    -----
    With few inputs the rows lie in a k-d tree, so that a new row costs O(log n + k^3); see `linalg.nearest`. A
    covariance of b and c rows takes (b + u) (c + v) entries of the kernel, where u and v rows are near any of them.
    """

    kind: ClassVar[str] = "nearest rows"

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
        self._rows: Nearest | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes its tree again."""
        return {**self.__dict__, "_rows": None}

    @property
    def row_numbers(self) -> int:
        return 2 * self._groups.numbers

    def nearest(self, X: Float[Tensor, "b D"]) -> Tensor:
        """The nearest training rows [b, k] of each new row, the nearest first."""
        if self._rows is None:
            self._rows = Nearest(self._places(self.X))
        return torch.as_tensor(self._rows.query(self._places(X), self.neighbours)[1]).to(X.device)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, var, _, _ = self._conditionals(X)
        return mean.to(self.like), var.to(self.like)

    def joint(self, X: Tensor, Z: Tensor) -> Tensor:
        _, _, w_x, N_x = self._conditionals(X)
        _, _, w_z, N_z = self._conditionals(Z)
        (used_x, at_x), (used_z, at_z) = (N.unique(return_inverse=True) for N in (N_x, N_z))
        left = torch.cat([X.double(), self.X[used_x].double()])  # [b + u, D]
        right = torch.cat([Z.double(), self.X[used_z].double()])  # [c + v, D]
        row = torch.cat([used_x.new_full((len(X),), -1), used_x])  # [b + u] of the training rows
        column = torch.cat([used_z.new_full((len(Z),), -1), used_z])  # [c + v]
        noise = torch.cat([w_x.new_zeros(len(X)), self.noise_of_rows[used_x].to(w_x)])  # [b + u]
        with_e = []
        for part in row_blocks(len(left), 8 * (len(right) + len(Z)), left):
            C = self.kernel(self.theta.double(), right, left[part])
            C = C + noise[part] * (row[part] == column[:, None])  # of y at the training rows
            with_e.append(C[: len(Z)] - weighted_sums(w_z, at_z, C[len(Z) :]))
        E = torch.cat(with_e, 1).T  # [b + u, c] with e(z)
        return (E[: len(X)] - weighted_sums(w_x, at_x, E[len(X) :])).to(self.like)

    def draw_paths(self, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
        prior = prior_paths(self.kernel, self.theta, size, draw)
        e = normal_columns(self.y, len(self.y), size, draw) * self.noise_of_rows.sqrt()[:, None]

        def evaluate(X: Tensor) -> Tensor:
            mean, _, w, N = self._conditionals(X)
            used, place = N.unique(return_inverse=True)
            at_rows = [prior(self.X[used[rows]]) for rows in row_blocks(len(used), 8 * (4096 + size), self.X)]
            drawn = torch.cat(at_rows, 1) + e[used].T  # [size, used]
            return (mean + prior(X) - (drawn[:, place] * w).sum(2)).to(self.like)

        return evaluate

    def write(self, parts: Parts) -> None:
        """Write the rows and how their distances are measured; no factor is kept."""
        super().write(parts)
        parts.text["neighbours"] = self.neighbours
        parts.keep(lengths=self.lengths)

    @classmethod
    def read(cls, parts: Parts) -> NearestRowsPosterior:
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

    def _places(self, X: Tensor) -> Any:
        return (X[:, : len(self.lengths)].detach().double() / self.lengths.double()).cpu().numpy()


def weighted_sums(w: Float[Tensor, "b k"], places: Int[Tensor, "b k"], rows: Float[Tensor, "u c"]) -> Tensor:
    """The sums [b, c] of k rows each, by their places and with their weights."""
    return torch.nn.functional.embedding_bag(places, rows.contiguous(), mode="sum", per_sample_weights=w)
