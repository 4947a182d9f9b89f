"""Two theta steps of one fold, multipliers held still: published with z held still too, and with z following.

    phi(theta) = L(theta, z, lambda)           gradient descent                                     eqs 11a and 12
    psi(theta) = min_z L(theta, z, lambda)     quasi-Newton

both with nu'(theta - mean) + kappa/2 |theta - mean|^2 beside them (eq 16) and Armijo's rule for their length. phi bends
as rho |d(C z)/dtheta|^2: with z still, theta crawls where the penalty is large. psi bends as the cross-validated loss
itself; a step with z following is one of the method of multipliers, the setting of theorem 1. The slope is the same.

d = -(B + kappa I)^-1 g,  B being BFGS's Hessian of L alone [p, p], damped as by Powell
Slopes are freed of the direction u along which the whole covariance is scaled: no mean moves along it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from .lagrangian import Fold, Systems, Terms, slope, terms

ARMIJO = 1e-4
TRIES, TRIES_STILL = 6, 25  # halvings of a step: each costs a z step, or a value alone
FIRST = 0.3  # of a log-hyperparameter: the length of the first step
LONGEST = 1.0  # a factor of e


class Pull(NamedTuple):
    """What ties a fold to the others, and which direction it must not take."""

    mean: Tensor  # [p] the consensus
    kappa: float
    u: Tensor  # [p] a unit vector, or zero
    begin: Tensor  # [p]
    span: float  # theta stays this close to `begin`

    def value(self, theta: Tensor, nu: Tensor) -> float:
        """What is added to L; infinite beyond the span."""
        away = theta - self.mean
        far = float((theta - self.begin).abs().max()) > self.span
        return math.inf if far else float(nu @ away) + 0.5 * self.kappa * float(away @ away)

    def free(self, g: Tensor) -> Tensor:
        """g without its part along u."""
        return g - (g @ self.u) * self.u


class Trial(NamedTuple):
    """Where a step would lead."""

    theta: Tensor  # [p]
    z: Tensor  # [n_T]
    systems: Systems
    at: Terms
    value: float
    iterations: int


class Ground(NamedTuple):
    """Where a step starts from, and what is held still."""

    fold: Fold
    z: Tensor  # [n_T]
    dual: Tensor  # [n_T]
    nu: Tensor  # [p]
    rho: float
    rank: int
    cg: tuple[int, float]
    pull: Pull

    def trial(self, theta: Tensor, follow: bool) -> Trial | None:
        """One fill of the kernel, and a z step if z is to follow; None where L is not finite."""
        pull = self.pull.value(theta, self.nu)
        if not math.isfinite(pull):
            return None
        try:
            systems = Systems(self.fold, self.fold.cross(theta), self.rank if follow else 0)
        except NotPositiveDefinite:  # the kernel is beyond rounding there
            return None
        z, iterations = self.z, 0
        if follow:
            z, iterations, _ = systems.z_step(self.dual, self.rho, z, self.cg)
        at = terms(self.fold, systems.M, z, self.dual, self.rho)
        return Trial(theta, z, systems, at, at.total + pull, iterations) if math.isfinite(at.total) else None

    def slope(self, here: Trial) -> Tensor:
        """dL/dtheta [p], the pull left out."""
        return self.pull.free(slope(here.systems.M, here.z, self.dual + self.rho * here.at.c, here.at.r))

    def pulled(self, theta: Tensor, g: Tensor) -> Tensor:
        """The slope with the pull."""
        return self.pull.free(g + self.nu + self.pull.kappa * (theta - self.pull.mean))


class Here(NamedTuple):
    """Where a step begins."""

    theta: Tensor  # [p]
    value: float


def armijo(ground: Ground, here: Here, d: Tensor, g: Tensor, follow: bool) -> tuple[Trial | None, int]:
    """The first of the steps 1, 1/2, 1/4, ... that keeps its promise, and how many were tried."""
    promised, most = ARMIJO * float(d @ g), TRIES if follow else TRIES_STILL
    for k in range(most if promised < 0.0 else 0):
        there = ground.trial(here.theta + 0.5**k * d, follow)
        if there is not None and there.value <= here.value + 0.5**k * promised:
            return there, k + 1
        there = None  # its kernel leaves room for the next
    return None, most


def direction(g: Tensor, B: Tensor, kappa: float) -> Tensor:
    """-(B + kappa I)^-1 g, no entry beyond LONGEST; the first, B being zero, is FIRST long."""
    if not bool(B.any()):
        return -FIRST * g / g.norm().clamp_min(torch.finfo(g.dtype).tiny)
    d = -torch.linalg.solve(B + kappa * torch.eye(len(g)).to(B), g)
    largest = float(d.abs().max())
    return d * (LONGEST / largest) if largest > LONGEST else d


def bfgs(B: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """The Hessian after a step s along which the slope changed by y; positive definite whatever y is."""
    if not bool(B.any()):
        B = torch.eye(len(s)).to(s) * float(y.norm() / s.norm())
    Bs = B @ s
    bend, seen = float(s @ Bs), float(s @ y)
    if bend <= 0.0 or not math.isfinite(seen):
        return B
    share = 1.0 if seen >= 0.2 * bend else 0.8 * bend / (bend - seen)
    y = share * y + (1.0 - share) * Bs
    return B - torch.outer(Bs, Bs) / bend + torch.outer(y, y) / float(s @ y)
