"""Cholesky with side information: pivots of a partial Cholesky factor chosen for the targets too, by looking ahead.

    J(L) = kappa min_w |y - L w|^2 / |y|^2 + (1 - kappa) tr(K - L L') / tr K

A second factor W [a, n], of a look-ahead pivots, stands in for the residual K - L L'. Candidate j's column is taken as
u_j = W'w_j / |w_j|, with w_j = W e_j, so all n gains cost O(n a^2). With Q' an orthonormal basis of L's columns,
T = W W', B = Q W', S = T - B'B and g = W y - B'Q y,

    fall of J by j = kappa (g'w_j)^2 / (|y|^2 w_j'S w_j) + (1 - kappa) w_j'T w_j / (|w_j|^2 tr K)

The best j then enters L exactly, and leaves W by one Householder reflection. Bach and Jordan (2005), sections 4-5; here
T and B are formed anew at each step, at n a (k + a) multiply-adds, so that nothing drifts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....problem import Dataset, Kernel
from ..distinct_rows import rounding


class Lookahead:
    """L, its orthonormal basis Q and the look-ahead factor W. Memory n (2 m + a) numbers."""

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, most: int, ahead: int) -> None:
        self.kernel, self.theta, self.train = kernel, theta, train
        n, y = len(train), train.y
        self.D = kernel.diag(theta, train.X)  # [n] diag(K - L L')
        self.least, self.trace = rounding(y.dtype) * self.D, float(self.D.sum())
        self.Lt, self.Q = y.new_zeros(most, n), y.new_zeros(most, n)
        self.W, self.rows = y.new_zeros(0, n), torch.zeros(0, dtype=torch.int64, device=y.device)
        for _ in range(min(ahead, n)):
            self._look_further()

    def gains(self, kappa: float) -> Tensor:
        """The fall of J by adding each row [n], to the accuracy of the look-ahead; -inf where a row is explained."""
        Q, W, y = self.Q[: len(self.rows)], self.W, self.train.y
        T, B = W @ W.T, Q @ W.T
        S, g = T - B.T @ B, W @ y - B.T @ (Q @ y)
        norm = W.square().sum(0)  # [n]
        known = (norm > self.least) & (self.D > self.least)
        norm = torch.where(known, norm, 1.0)
        across = torch.where(known, ((S @ W) * W).sum(0), 1.0)
        floor = 1e2 * torch.finfo(y.dtype).eps * ((T @ W) * W).sum(0)
        fit = torch.where(
            across > floor, (g @ W).square() / across.clamp_min(1e-300 if y.dtype == torch.float64 else 1e-30), 0.0
        )
        gain = kappa * fit / float(y @ y) + (1.0 - kappa) * ((T @ W) * W).sum(0) / norm / self.trace
        return gain.masked_fill(~known, -torch.inf)

    def add(self, row: int) -> None:
        """Row `row` enters L: one kernel column, one read of L, Q and W."""
        k = len(self.rows)
        r = self._column(row)
        ahead = r - self.W[:, row] @ self.W
        new = bool(ahead[row] > self.least[row])
        if new:  # not yet in W: with it there, W'W holds this column exactly
            self.W = torch.cat([self.W, (ahead / ahead[row].sqrt())[None]])
        u = r / self.D[row].sqrt()
        self.Lt[k], self.Q[k] = u, self._orthonormal(u)
        self.D.addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.D[row] = 0.0
        self.rows = torch.cat([self.rows, self.rows.new_tensor([row])])
        self.W = _without(self.W, row)
        if not new:
            self._look_further()

    def _column(self, row: int) -> Tensor:
        """The residual column of a row [n]."""
        X, k = self.train.rows(torch.tensor([row], device=self.D.device)).X, len(self.rows)
        return self.kernel(self.theta, X, self.train.X)[0] - self.Lt[:k, row] @ self.Lt[:k]

    def _orthonormal(self, u: Tensor) -> Tensor:
        """u less its part in Q, of length one: twice, as once loses orthogonality. Zero where nothing is left."""
        Q, length = self.Q[: len(self.rows)], u.norm()
        for _ in range(2):
            u = u - (Q @ u) @ Q
        left = u.norm()
        return u / left if float(left) > 1e2 * torch.finfo(u.dtype).eps * float(length) else torch.zeros_like(u)

    def _look_further(self) -> None:
        """One more look-ahead pivot: the row that L and W explain least."""
        left = (self.D - self.W.square().sum(0)).where(self.D > self.least, 0.0)
        row = int(left.argmax())
        if float(left[row]) <= float(self.least[row]):
            return
        ahead = self._column(row) - self.W[:, row] @ self.W
        if float(ahead[row]) > 0.0:
            self.W = torch.cat([self.W, (ahead / ahead[row].sqrt())[None]])


def _without(W: Tensor, row: int) -> Tensor:
    """W without its direction w = W e_row: a Householder reflection brings it first, and the first row is dropped."""
    w = W[:, row]
    length = w.norm()
    if float(length) == 0.0:
        return W
    v = w / length
    v = torch.cat([(v[:1] + torch.where(v[:1] < 0.0, -1.0, 1.0)), v[1:]])
    return (W - torch.outer(v, v @ W) * (2.0 / v.square().sum()))[1:].clone()
