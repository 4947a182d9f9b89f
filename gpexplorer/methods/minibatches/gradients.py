"""Gradients, closed form, of what MINIMAX and SCGD share: [g(theta) + <M, F(theta)>] / (2n), from a minibatch.

    r = Phi w - y,   F(theta) = Phi'Phi + s2 I,   sums over s rows stand for n / s times as many
    d / dPhi  = (r w' / s2 + Phi M) / s
    d / dw    = Phi'r / (s s2) + w / n
    d / dlog sd = -r'r / (s s2) + (n - D) / n + s2 tr(M) / n

SCGD takes M = F^-1 with a running F; MINIMAX takes M = -mu B / |A|. A gradient is of nats a row.

Sums that end in one number are read as numbers: on a processor that is free and spares a row of tiny operations.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .model import Model, Tape

LARGEST = 700.0  # log of nearly the largest number there is


class Point:
    """The parameters [w, theta] in one vector, with their gradient: views into both, none of them copies."""

    def __init__(self, model: Model, w: Tensor, theta: Tensor, extra: Tensor | None = None) -> None:
        """`extra`, flat, joins the vector after theta: what else the same optimiser moves."""
        self.model, D, p = model, len(w), model.size
        self.size = D + p
        self.x = torch.cat([w, theta] if extra is None else [w, theta, extra])  # owned
        self.g = torch.zeros_like(self.x)
        self.w, self.theta, self.extra = self.x[:D], self.x[D : D + p], self.x[D + p :]
        self.g_w, g_theta, self.g_extra = self.g[:D], self.g[D : D + p], self.g[D + p :]
        self.parts, self.into = model.parts(self.theta), model.parts(g_theta)
        self._log_sd, self._moving = self.theta[-1], self.x[: D + p]

    def log_s2(self) -> float:
        """Log noise variance."""
        return 2.0 * self._log_sd.item()

    def s2(self) -> float:
        """Noise variance; finite even where theta has diverged, for `hold` and the loop to see to."""
        return math.exp(min(self.log_s2(), LARGEST))

    def gradient(self, at: Tape, y: Tensor, M: Tensor, times: float = 1.0, solved: bool = False) -> float:
        """Write the gradient into g; return r'r / s2 over these rows. 2 b D^2 flops and a pullback.

        M, in float64 or as wide as the features, counts so many `times`. Where w is `solved` for, its gradient stays
        zero.
        """
        b, n, s2 = len(y), self.model.n, self.s2()
        r = torch.addmv(y, at.Phi, self.w, beta=-1.0)  # [b]
        fit = torch.dot(r, r).item() / s2
        r.mul_(1.0 / (b * s2))
        if not solved:
            torch.mv(at.Phi.T, r, out=self.g_w).add_(self.w, alpha=1.0 / n)
        G = torch.outer(r, self.w)
        if M.dtype == G.dtype:
            G.addmm_(at.Phi, M, alpha=times / b)
        else:
            G.add_(torch.mm(at.Phi.to(M.dtype), M), alpha=times / b)
        self.model.pullback(self.parts, at, G, self.into)
        self.into[-1].fill_((n - self.model.D - fit * (n / b) + s2 * times * M.trace().item()) / n)
        return fit

    def hold(self, log_floor: float, largest: float) -> None:
        """Project onto sd >= sd_min and the box |zeta| <= zeta_max."""
        self._moving.clamp_(-largest, largest)
        if self._log_sd.item() < log_floor:
            self._log_sd.fill_(log_floor)
