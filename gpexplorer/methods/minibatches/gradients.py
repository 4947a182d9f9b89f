"""Closed-form minibatch gradients of the terms that MINIMAX and SCGD share: [g(theta) + <M, F(theta)>] / (2n).

    r = Phi w - y,   F(theta) = Phi'Phi + s2 I,   a sum over s rows is multiplied by n / s
    d / dPhi  = (r w' / s2 + Phi M) / s
    d / dw    = Phi'r / (s s2) + w / n
    d / dlog sd = -r'r / (s s2) + (n - D) / n + s2 tr(M) / n

SCGD uses M = F^-1 with a running F; MINIMAX uses M = -mu B / |A|. Gradients are in nat per row.

Sums that end in a single number are Python numbers on a CPU, where reading them costs nothing and saves several small
operations. On a GPU they stay on the device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...linalg.deferred_reads import Number, add_multiple, add_product, at_most, exp, number
from .model import Model, Tape

MAX_LOG = 700.0  # close to the logarithm of the largest float64


class Parameters:
    """The parameters [w, theta] in one vector x, and their gradient g; the attributes are views of these two.

    Parameters
    ----------
    w : Tensor
        Weights of the features [D].
    theta : Tensor
        Parameters of the kernel [p].
    extra : Tensor, optional
        Further parameters, flat, that the same optimiser moves; they follow theta in the vector.
    """

    def __init__(self, model: Model, w: Tensor, theta: Tensor, extra: Tensor | None = None) -> None:
        self.model, D, p = model, len(w), model.size
        self.size = D + p
        self.x = torch.cat([w, theta] if extra is None else [w, theta, extra])  # a copy that belongs to this object
        self.g = torch.zeros_like(self.x)
        self.w, self.theta, self.extra = self.x[:D], self.x[D : D + p], self.x[D + p :]
        self.g_w, g_theta, self.g_extra = self.g[:D], self.g[D : D + p], self.g[D + p :]
        self.parts, self.into = model.parts(self.theta), model.parts(g_theta)
        self._log_sd, self._bounded = self.theta[-1], self.x[: D + p]
        self._known_log_s2: Number = None  # None until it is computed, and again after each move of x

    def log_s2(self) -> Number:
        """Return the log noise variance."""
        if self._known_log_s2 is None:
            self._known_log_s2 = 2.0 * number(self._log_sd)
        return self._known_log_s2

    def s2(self) -> Number:
        """Return the noise variance, finite even if theta has diverged; the loop checks for divergence."""
        return exp(at_most(self.log_s2(), MAX_LOG))

    def forget_noise(self) -> None:
        """Compute the noise again when it is needed next, because theta has been written."""
        self._known_log_s2 = None

    def write_gradient(self, tape: Tape, y: Tensor, M: Tensor, scale: Number = 1.0, solved: bool = False) -> Number:
        """Write the gradient of a minibatch into g, by the formulas above. 2 b D^2 flops and a backward pass.

        Parameters
        ----------
        tape : Tape
            Features of the rows of the minibatch.
        y : Tensor
            Their targets [b].
        M : Tensor
            Matrix [D, D], in float64 or in the precision of the features.
        scale : Number, default 1.0
            Factor of M.
        solved : bool, default False
            Whether w is solved for; its gradient then stays zero.

        Returns
        -------
        r'r / s2 over these rows.
        """
        b, n, s2 = len(y), self.model.n, self.s2()
        r = torch.addmv(y, tape.Phi, self.w, beta=-1.0)  # [b]
        fit = number(torch.dot(r, r)) / s2
        r.mul_(1.0 / (b * s2))
        if not solved:
            torch.mv(tape.Phi.T, r, out=self.g_w).add_(self.w, alpha=1.0 / n)
        G = torch.outer(r, self.w)  # [b, D]
        if M.dtype == G.dtype:
            add_product(G, tape.Phi, M, scale / b)
        else:
            add_multiple(G, torch.mm(tape.Phi.to(M.dtype), M), scale / b)
        self.model.pullback(self.parts, tape, G, self.into)
        self.into[-1].fill_((n - self.model.D - fit * (n / b) + s2 * scale * number(M.trace())) / n)
        return fit

    def project(self, log_floor: float, largest: float, log_ceiling: float = math.inf) -> None:
        """Project w and theta onto the box |x| <= largest, and the log noise sd between log_floor and log_ceiling.

        It has to be called after each move of x.
        """
        self._bounded.clamp_(-largest, largest)
        self.forget_noise()
        if not self.x.is_cpu or log_ceiling < math.inf:
            self._log_sd.clamp_(log_floor, log_ceiling)
            self.forget_noise()
        elif self.log_s2() < 2.0 * log_floor:
            self._log_sd.fill_(log_floor)
            self.forget_noise()
