"""The likelihood of Vecchia's approximation, with its gradient: each row given its nearest rows among the earlier ones.

    p(y) ~ p(y_1, ..., y_h) prod_i>h p(y_i | y_N(i)),   N(i) the k rows nearest to i among 1, ..., i - 1

With S = k(X, X) + s2 I for the rows (N(i), i), i the last, S = L L', w = L^-1 y, u = L'^-1 e_i and a = L'^-1 w,

    -log p(y_i | y_N(i)) = log L_ii + w_i^2 / 2
    its derivative       = u'dS v,   v = (1 + w_i^2) u / 2 - w_i a

which follows from S^-1 = [S_N^-1, 0; 0, 0] + u u'. The first h = k + 1 rows are together an exact GP, so that k = n - 1
is the exact likelihood. The constant n/2 log 2 pi is left out. All is computed in float64.

If only b of the other rows are used, chosen at random, their sum is multiplied by (n - h) / b: an unbiased estimate.

References: Vecchia (1988); Datta et al. (2016); Katzfuss and Guinness (2021); Guinness (2018) for the order.

Apart because it is the likelihood alone, which tests compare with dense algebra; steps are the method's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...kernels.groups import Groups
from ...kernels.row_scaled import input_count
from ...linalg.blocks import row_blocks
from ...linalg.randomness import generator, random_rows
from ...objectives import evidence, noise_derivative, noise_variance, rounding
from ...problem import Problem
from .ordering import earlier_neighbours, maximin_order

GROUP_BYTES = 16 * 2**20  # of the temporaries of one chunk of conditionals


class Conditionals:
    """Which rows each row depends on, and the likelihood of that approximation.

    Parameters
    ----------
    problem : Problem
        Training rows and a stationary kernel.
    lengths : Tensor [d]
        What each input is divided by before distances are measured.
    neighbours : int
        Number of neighbours k, fewer where there are not so many rows.
    most : int
        Conditionals that are used; a random sample of this size where there are more.
    seed : int
        Of the order and of the sample.

    Attributes
    ----------
    order : Tensor [n]
        The rows of the problem in the order of the approximation.
    positions : Tensor [b]
        Places in the order of the rows whose conditionals are used.
    neighbours : Tensor [b, k]
        Places of the rows that each depends on.
    """

    def __init__(self, problem: Problem, lengths: Float[Tensor, " d"], neighbours: int, most: int, seed: int) -> None:
        self.kernel, n, device = problem.kernel, len(problem.train), problem.train.y.device
        k = min(neighbours, n - 1)
        inputs = problem.train.X[:, : input_count(problem)].double().cpu().numpy() / lengths.cpu().numpy()
        order = maximin_order(inputs, seed)
        self.n, self.head, self.order = n, k + 1, torch.from_numpy(order)
        chosen = random_rows(n - self.head, most, generator(seed, "conditionals")) + self.head
        positions = chosen.sort().values.numpy()
        self.weight = (n - self.head) / max(len(positions), 1)
        nearest = (
            earlier_neighbours(inputs[order], positions, k) if len(positions) else np.empty((0, k), dtype=np.int64)
        )
        self.positions, self.neighbours = torch.from_numpy(positions), torch.from_numpy(nearest)
        self.order, self.positions, self.neighbours = (
            each.to(device) for each in (self.order, self.positions, self.neighbours)
        )
        self.rows: Any = problem.train.rows(self.order).to(device, torch.float64)

    def likelihood(self, theta: Float[Tensor, " p"], begin: Float[Tensor, " p"]) -> tuple[float, Float[Tensor, " p"]]:
        """The negative log likelihood without its constant, and its gradient [p] in float64.

        Parameters
        ----------
        theta : Tensor [p]
            Log-hyperparameters.
        begin : Tensor [p]
            Where learning began, which says how small the noise may be.

        Raises
        ------
        NotPositiveDefinite
            If the covariance of some row and its neighbours is not positive definite, or the noise cannot be resolved.
        """
        theta, s2 = theta.double(), noise_variance(theta)
        least = 100.0 * rounding(torch.float64) * float(self.kernel.diag(theta, self.rows.X[:1]).mean())
        if s2 < min(least, noise_variance(begin)):
            raise NotPositiveDefinite("K + s2 I of near rows", self.head, 0.0, "The noise is too small; raise it.")
        value, gradient = evidence(self.kernel, theta, self.rows.rows(range(self.head)))
        gradient = gradient.clone()
        groups = Groups(self.kernel, theta, self.head)
        for X, y, L in self._chunks(groups, s2):
            w = torch.linalg.solve_triangular(L, y[:, :, None], upper=False)  # [c, k + 1, 1]
            last = torch.zeros_like(w)
            last[:, -1] = 1.0
            ua = torch.linalg.solve_triangular(L.mT, torch.cat([last, w], 2), upper=True)
            u, a, w_last = ua[:, :, 0], ua[:, :, 1], w[:, -1]
            v = 0.5 * (1.0 + w_last.square()) * u - w_last * a
            value += self.weight * float((L[:, -1, -1].log() + 0.5 * w_last[:, 0].square()).sum())
            gradient += self.weight * groups.gradient(X, u, v)
            gradient[-1] += noise_derivative(self.kernel, self.weight * 2.0 * s2 * float((u * v).sum()))
        return value, gradient

    def sds(self, theta: Float[Tensor, " p"]) -> Float[Tensor, " b"]:
        """The standard deviation of each target given its neighbours, noise included."""
        groups = Groups(self.kernel, theta.double(), self.head)
        parts = [L[:, -1, -1] for _, _, L in self._chunks(groups, noise_variance(theta))]
        return torch.cat([theta.double()[:0], *parts])

    def _chunks(self, groups: Groups, s2: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows X [c, k + 1, D], targets y [c, k + 1] and factors L [c, k + 1, k + 1] of some conditionals at a time."""
        for chunk in row_blocks(len(self.positions), 8 * groups.numbers, self.positions, GROUP_BYTES):
            rows = torch.cat([self.neighbours[chunk], self.positions[chunk, None]], 1)
            X = self.rows.X[rows]
            yield X, self.rows.y[rows], _factors(groups.matrices(X), s2)


def _factors(S: Tensor, s2: float) -> Tensor:
    """Cholesky factors [c, g, g] of S + s2 I."""
    S.diagonal(dim1=1, dim2=2).add_(s2)
    L, info = torch.linalg.cholesky_ex(S)
    if bool(info.any()) or not math.isfinite(float(L[:, -1, -1].sum())):
        raise NotPositiveDefinite("K + s2 I of near rows", S.shape[1], 0.0)
    return L
