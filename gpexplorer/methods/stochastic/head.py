"""Gradients, closed form, of what MINIMAX and SCGD share: [g(theta) + <M, F(theta)>] / (2n), from a minibatch.

    r = Phi w - y,   F(theta) = Phi'Phi + s2 I,   sums over s rows stand for n / s times as many
    d / dPhi  = (r w' / s2 + Phi M) / s
    d / dw    = Phi'r / (s s2) + w / n
    d / dlog sd = -r'r / (s s2) + (n - D) / n + s2 tr(M) / n

SCGD takes M = F^-1 with a running F; MINIMAX takes M = -mu B / |A|. A gradient is of nats a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .model import Model, Tape


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

    def s2(self) -> Tensor:
        """Noise variance, as a tensor with no dimension."""
        return (2.0 * self.theta[-1]).exp()

    def gradient(self, at: Tape, y: Tensor, M: Tensor) -> Tensor:
        """Write the gradient into g; return r'r / s2 over these rows. 2 b D^2 flops and a pullback."""
        b, n, s2 = len(y), self.model.n, self.s2()
        r = torch.addmv(y, at.Phi, self.w, beta=-1.0)  # [b]
        scaled = r / (b * s2)
        torch.mv(at.Phi.T, scaled, out=self.g_w)
        self.g_w.add_(self.w, alpha=1.0 / n)
        G = torch.mm(at.Phi, M).mul_(1.0 / b).addr_(scaled, self.w)
        self.model.pullback(self.parts, at, G, self.into)
        fit = torch.dot(r, r) / s2
        self.into[-1].copy_((n - self.model.D - fit * (n / b) + s2 * M.diagonal().sum()) / n)
        return fit

    def hold(self, log_floor: float, largest: float) -> None:
        """Project onto sd >= sd_min and the box |zeta| <= zeta_max."""
        self.x[: self.size].clamp_(-largest, largest)
        self.theta[-1].clamp_(min=log_floor)
