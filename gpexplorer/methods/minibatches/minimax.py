"""MINIMAX: the Gram matrix as a variable of its own, held to the real one by a penalty whose gradient has no bias.

    Psi = g(theta) + log |A| + mu <B, A - F(theta)> / |A|,   min over (theta, A), max over |B| <= 1        eq 3.2
    1. (theta, A) <- proj(. - a grad Psi)        A >= s2 I, sd >= sd_min, and the box
    2. B <- proj(B + b grad Psi), on a minibatch of its own

F is linear in the rows, so its minibatches are unbiased. A and F are kept per row (A / n): the penalty is the same.

Published, A and B move by the optimiser of theta (`metric="flat"`); A then leaves the cone at almost every step when F
is ill-conditioned, and mu = 1 is too small for A = F: that takes mu >= |F| |F^-1|. With `metric="affine"` their steps
are preconditioned so as to fit every eigenvalue, and A is pulled towards F, as the saddle alone would spiral outwards:

    M = -mu B / |A|                          the multiplier of A = F, which tends to F^-1
    A <- A - a (2 (A^-1 + M)^-1 - A) - a kappa (A - F),    since 2 (A^-1 + M)^-1 - A = (A^-1 + M)^-1 (A^-1 - M) A
    B <- B + b (|A| / mu) A^-1 (A - F) A^-1,          A^-1 F A^-1 = (Phi A^-1)'(Phi A^-1) / s + s2 A^-2 / n

A^-1 - M is the gradient in A, but for the derivative of 1 / |A|, which vanishes where A = F. These matrices are kept in
float64 whatever the features are: M is nearly the inverse of A, and float32 does not hold both ends of either. M is
noisy: where that takes A^-1 + M out of the cone, M is held to M >= -A^-1 / 2, by which A loses at most 3 a A in a step.
"""

from __future__ import annotations

import math
from typing import ClassVar

import param
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.cholesky import cholesky
from ...problem import Cost, Problem
from . import settings
from .costs import cost, factored, forward
from .exact_likelihood import Exact, exact
from .gradients import Point
from .learner import Learner, Rows
from .loop import Minibatches
from .model import Model
from .positive_definite import above, inverted, lifted, squarings, within_ball
from .state import State

LEAST = -0.5  # of A^-1, to which M is held


class Minimax(Minibatches):
    """Unbiased stochastic descent and ascent on a saddle whose value is the marginal likelihood."""

    key: ClassVar[str] = "minimax"
    title: ClassVar[str] = "MINIMAX"
    equations: ClassVar[dict[str, str]] = {
        **Minibatches.equations,
        "mu": r"\Psi = g + \log|A| + \mu\,\langle B, A - F(\theta)\rangle / \|A\|",
        "rate_matrix": r"A \leftarrow \operatorname{proj}_{A \succeq \sigma^2 I}(A - a\,\nabla_A \Psi)",
        "rate_ascent": r"B \leftarrow \operatorname{proj}_{\|B\|\le 1}(B + b\,\nabla_B \Psi)",
    }

    batch_size = settings.batch_size()
    metric: str = param.Selector(  # type: ignore[assignment]
        default="affine",
        objects=["affine", "flat"],
        doc="Geometry of the steps of A and B: that of positive definite matrices, or the flat one of the paper.",
    )
    mu = param.Number(
        1e10,
        bounds=(0.0, None),
        inclusive_bounds=(False, True),
        doc="Penalty on A - F: 1 in the paper; A = F takes mu above the condition number of F.",
    )
    mu_growth = param.Number(
        1.0, bounds=(1.0, None), softbounds=(1.0, 10.0), doc="Factor by which mu grows with each epoch."
    )
    rate_matrix = param.Number(
        0.05, bounds=(0.0, None), inclusive_bounds=(False, True), softbounds=(1e-3, 1.0), doc="Rate a of A (affine)."
    )
    rate_ascent = param.Number(
        0.02, bounds=(0.0, None), inclusive_bounds=(False, True), softbounds=(1e-3, 1.0), doc="Rate b of B."
    )
    damping = param.Number(
        2.0, bounds=(0.0, None), softbounds=(0.0, 10.0), doc="Pull kappa of A towards F (affine); 0 is undamped."
    )
    refresh = settings.refresh()

    def learner(self, model: Model, state: State) -> Learner:
        return _Learner(self, model, state)

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        D, b = model.D, min(self.batch_size, model.n)
        cubes, squares, products, wide = 25.0 / 3.0, 1.0, 6.0, 1.0  # A leaves the flat cone
        if self.metric == "affine":
            cubes, squares, products = 3.0, 1.0 + squarings(self.rate_matrix), 8.0
            wide = 8.0 / model.like.element_size()
        algebra = cubes * factored(D) + 2.0 * squares * D**3 + products * b * D**2
        algebra += b * forward(model)  # again for the ascent
        return cost(self, model, algebra, matrices=6.0 * wide, calls=76.0)


class _Learner(Learner):
    A: Tensor  # [D, D] stands for F / n
    B: Tensor  # [D, D]
    held: tuple[Tensor, ...]  # averages of B, in the flat metric
    off: Tensor  # [D, D] A - F / n as the minibatch of theta saw it
    s2_before: float  # noise variance at that minibatch

    def begin(self, state: State) -> Point:
        method, model = self.method, self.model
        self.flat, self.refresh, self.mu_growth = method.metric == "flat", method.refresh, method.mu_growth
        self.a, self.b, self.kappa, self.mu = method.rate_matrix, method.rate_ascent, method.damping, method.mu
        self.wide = model.like.dtype if self.flat else torch.float64
        self.other = Rows(method.seed, model.n, method.batch_size, "ascent")
        if state.matrices:
            self.A, self.B, *rest = (part.clone() for part in state.matrices)
            theta, w, self.held = state.theta, state.w, tuple(rest)
        else:
            theta = model.matched(state.theta)
            now = exact(model, theta)
            self.A, w = self._of(now), now.w
        point = Point(model, w, theta, self.A.flatten() if self.flat else None)
        if self.flat:
            self.A = point.extra.view(model.D, model.D)
        self._factored(point)
        if not state.matrices:
            self.B = within_ball(self.inverse * (-self.norm / self.mu))
            self.held = tuple(torch.zeros_like(self.B) for _ in range(self.optimiser.averages if self.flat else 0))
        return point

    def _of(self, now: Exact) -> Tensor:
        """F / n."""
        A = now.gram / self.model.n
        A.diagonal().add_(now.s2 / self.model.n)
        return A.to(self.wide)

    def _factored(self, point: Point) -> None:
        """Bring A back above s2 I, then its inverse, log determinant and norm up to date."""
        above(self.A, point.s2() / self.model.n)
        self._inverted()

    def _inverted(self) -> None:
        self.inverse, self.logdet = inverted(self.A, "A")
        self.norm = self.A.norm().item()

    def matrices(self) -> tuple[Tensor, ...]:
        return (self.A.clone(), self.B.clone(), *(part.clone() for part in self.held))

    def gap(self, now: Exact) -> tuple[float, float]:
        off = (self.A - self._of(now)).norm()
        return float(off / self._of(now).norm()), float(self.mu * off / self.A.norm())

    def before(self, t: int) -> None:
        if self.refresh and t and t % self.refresh == 0:
            self.A.copy_(self._of(exact(self.model, self.point.theta)))
            self._factored(self.point)

    def gradient(self, index: Tensor, t: int) -> float:
        model, point, mu = self.model, self.point, self._mu(t)
        X, y = model.rows(index)
        at, size = model.features(point.parts, X), self.norm
        self.off, self.s2_before = self._off(at.Phi.to(self.wide)), point.s2()

        fit = point.gradient(at, y, self.B, -mu / (model.n * size))
        inner = mu * torch.dot(self.B.flatten(), self.off.flatten()).item() / size
        if self.flat:
            slope = self.inverse + self.B * (mu / size) - self.A * (inner / size**2)
            torch.mul(slope, 0.5 / model.n, out=point.g_extra.view_as(self.A))
        ridge = torch.dot(point.w, point.w).item() + (model.n - model.D) * point.log_s2()
        logdet = self.logdet + model.D * math.log(model.n)
        return fit / len(y) + (ridge + logdet + inner) / model.n

    def after(self, t: int) -> None:
        if self.flat:
            self._factored(self.point)
        else:
            self._stepped(self._mu(t))
        X, _ = self.model.rows(self.other(t))
        Phi, size = self.model.features(self.point.parts, X).Phi, self.norm
        if self.flat:
            slope = self._off(Phi).mul_(-0.5 * self._mu(t) / (self.model.n * size))
            self.optimiser.move(self.B, slope, self.held, t, self.b)
        else:
            self._ascended(Phi.to(self.wide), self.b * size / self._mu(t))
        within_ball(self.B)

    def _stepped(self, mu: float) -> None:
        """A by its affine step, and by what the noise moved.

        From A >= s2 I and a (1 + kappa) <= 1, the step leads to A >= (1 - a) s2 I; features that hardly vary all come
        to rest near s2.
        """
        now = self.point.s2() / self.model.n
        mean = self._mean(mu / self.norm)
        self.A.mul_(1.0 + self.a).sub_(mean, alpha=2.0 * self.a).sub_(self.off, alpha=self.a * self.kappa)
        self.A.diagonal().add_(now - self.s2_before / self.model.n)
        self.inverse, self.logdet = lifted(self.A, now, self.a)
        self.norm = self.A.norm().item()

    def _ascended(self, Phi: Tensor, rate: float) -> None:
        """B by its affine step."""
        G, inverse = torch.mm(Phi, self.inverse), self.inverse
        self.B.add_(inverse, alpha=rate).addmm_(G.T, G, alpha=-rate / len(Phi))
        self.B.addmm_(inverse, inverse, alpha=-rate * self.point.s2() / self.model.n)

    def _mu(self, t: int) -> float:
        return float(self.mu * self.mu_growth ** (t // self.rows.per_epoch))

    def _mean(self, scale: float) -> Tensor:
        """(A^-1 + M)^-1, half the harmonic mean of A and M^-1."""
        L, info = torch.linalg.cholesky_ex(torch.sub(self.inverse, self.B, alpha=scale).mT)
        return self._held_mean(scale) if int(info) else torch.cholesky_inverse(L).mT

    def _held_mean(self, scale: float) -> Tensor:
        """The same where minibatches have turned M beyond -A^-1: first M >= LEAST A^-1, in B too."""
        if not bool(torch.isfinite(self.B).all()):
            raise NotPositiveDefinite("A^-1 + M", len(self.B), 0.0, "It holds values that are not finite: lower rates.")
        L = cholesky(self.A, "A").L
        turned, Q = torch.linalg.eigh(L.T @ self.B @ L * -scale)  # A^-1/2 M A^-1/2, but for a rotation
        held, W = turned.clamp_min(LEAST), torch.linalg.solve_triangular(L.T, Q, upper=True)
        self.B.addmm_(W * ((turned - held) / scale), W.T)
        V = L @ Q
        return (V / (1.0 + held)) @ V.T

    def _off(self, Phi: Tensor) -> Tensor:
        """A - F / n, as this minibatch sees it."""
        off = torch.addmm(self.A, Phi.T, Phi, alpha=-1.0 / len(Phi))
        off.diagonal().sub_(self.point.s2() / self.model.n)
        return off
