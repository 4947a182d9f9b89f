"""Cholesky with side information: a partial Cholesky factor whose pivots are chosen for the targets too.

    J(L) = kappa min_w |y - L w|^2 / |y|^2 + (1 - kappa) tr(K - L L') / tr K

A second factor W [a, n], of a look-ahead pivots, approximates the residual K - L L' by W'W. The column of candidate j
is approximated by u_j = W'w_j / |w_j|, with w_j = W e_j, so that all n gains cost O(n a^2). With Q' an orthonormal
basis of the columns of L, T = W W', B = Q W', S = T - B'B and g = W y - B'Q y,

    gain of j = kappa (g'w_j)^2 / (|y|^2 w_j'S w_j) + (1 - kappa) w_j'T w_j / (|w_j|^2 tr K)

The best j then joins L exactly, and is removed from W by one Householder reflection (Bach and Jordan 2005, sections 4
and 5). In contrast to the paper, T and B are computed again at each step, with n a (k + a) multiplications and
additions, so that nothing drifts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....problem import Dataset, Kernel
from ..distinct_rows import rounding


class Lookahead:
    """L, an orthonormal basis Q of its columns, and the look-ahead factor W.

    Parameters
    ----------
    kernel, theta, train : Kernel, Tensor, Dataset
        The model: covariance function, log-hyperparameters [p] and training rows.
    most : int
        Largest number of pivots m.
    ahead : int
        Look-ahead pivots a.

    Attributes
    ----------
    rows : Tensor [k]
        The pivots so far.

    Notes
    -----
    Memory is n (2 m + a) numbers.
    """

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, most: int, ahead: int) -> None:
        self.kernel, self.theta, self.train = kernel, theta, train
        n, y = len(train), train.y
        self.D = kernel.diag(theta, train.X)  # [n] diag(K - L L')
        self.least, self.trace = rounding(y.dtype) * self.D, float(self.D.sum())  # [n], tr K
        self.Lt, self.Q = y.new_zeros(most, n), y.new_zeros(most, n)  # [m, n] each
        self.W, self.rows = y.new_zeros(0, n), torch.zeros(0, dtype=torch.int64, device=y.device)
        for _ in range(min(ahead, n)):
            self._add_lookahead_pivot()

    def gains(self, kappa: float) -> Tensor:
        """Estimate the decrease of J by adding each row [n]; -inf where it is explained. kappa weighs the targets."""
        Q, W, y = self.Q[: len(self.rows)], self.W, self.train.y
        T, B = W @ W.T, Q @ W.T  # [a, a], [k, a]
        S, g = T - B.T @ B, W @ y - B.T @ (Q @ y)  # [a, a], [a]
        norm = W.square().sum(0)  # [n] |w_j|^2
        eligible = (norm > self.least) & (self.D > self.least)
        norm = torch.where(eligible, norm, 1.0)
        wSw = torch.where(eligible, ((S @ W) * W).sum(0), 1.0)  # [n]
        floor = 1e2 * torch.finfo(y.dtype).eps * ((T @ W) * W).sum(0)
        fit = torch.where(
            wSw > floor, (g @ W).square() / wSw.clamp_min(1e-300 if y.dtype == torch.float64 else 1e-30), 0.0
        )
        gain = kappa * fit / float(y @ y) + (1.0 - kappa) * ((T @ W) * W).sum(0) / norm / self.trace
        return gain.masked_fill(~eligible, -torch.inf)

    def add(self, row: int) -> None:
        """Add a row to L: one kernel column, and one read of L, Q and W."""
        k = len(self.rows)
        r = self._column(row)
        beyond_W = r - self.W[:, row] @ self.W  # [n]
        is_new = bool(beyond_W[row] > self.least[row])
        if is_new:  # with this row in W as well, W'W contains its column exactly
            self.W = torch.cat([self.W, (beyond_W / beyond_W[row].sqrt())[None]])
        u = r / self.D[row].sqrt()
        self.Lt[k], self.Q[k] = u, self._orthonormal(u)
        self.D.addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.D[row] = 0.0
        self.rows = torch.cat([self.rows, self.rows.new_tensor([row])])
        self.W = _without(self.W, row)
        if not is_new:
            self._add_lookahead_pivot()

    def _column(self, row: int) -> Tensor:
        """Compute the residual column of a row [n]."""
        X, k = self.train.rows(torch.tensor([row], device=self.D.device)).X, len(self.rows)
        return self.kernel(self.theta, X, self.train.X)[0] - self.Lt[:k, row] @ self.Lt[:k]

    def _orthonormal(self, u: Tensor) -> Tensor:
        """Orthogonalise u against Q, twice since once is not accurate enough, and scale it to length 1 or 0."""
        Q, length = self.Q[: len(self.rows)], u.norm()
        for _ in range(2):
            u = u - (Q @ u) @ Q
        remaining = u.norm()
        vanishes = float(remaining) <= 1e2 * torch.finfo(u.dtype).eps * float(length)
        return torch.zeros_like(u) if vanishes else u / remaining

    def _add_lookahead_pivot(self) -> None:
        """Add the row to W that L and W explain least."""
        unexplained = (self.D - self.W.square().sum(0)).where(self.D > self.least, 0.0)  # [n]
        row = int(unexplained.argmax())
        if float(unexplained[row]) <= float(self.least[row]):
            return
        beyond_W = self._column(row) - self.W[:, row] @ self.W  # [n]
        if float(beyond_W[row]) > 0.0:
            self.W = torch.cat([self.W, (beyond_W / beyond_W[row].sqrt())[None]])


def _without(W: Tensor, row: int) -> Tensor:
    """Remove the direction W e_row: a Householder reflection makes it the first one, and the first row is dropped."""
    w = W[:, row]
    length = w.norm()
    if float(length) == 0.0:
        return W
    v = w / length
    v = torch.cat([(v[:1] + torch.where(v[:1] < 0.0, -1.0, 1.0)), v[1:]])
    return (W - torch.outer(v, v @ W) * (2.0 / v.square().sum()))[1:].clone()
