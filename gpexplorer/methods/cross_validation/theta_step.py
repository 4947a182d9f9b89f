"""Two theta steps of one fold at fixed multipliers: the published one, which fixes z, and one in which z follows.

    phi(theta) = L(theta, z, lambda) + penalty          gradient descent                             eqs 11a and 12
    psi(theta) = min_z L(theta, z, lambda) + penalty    quasi-Newton
    penalty    = nu'(theta - mean) + kappa/2 |theta - mean|^2                                        eq 16

Both choose the length of a step by Armijo's rule. The curvature of phi is that of rho |d(C z)/dtheta|^2: with z fixed,
theta moves very slowly where rho is large. The curvature of psi is that of the cross-validated loss itself, and a step
of it is one of the method of multipliers, the setting of theorem 1. Both have the same gradient.

    d = -(B + kappa I)^-1 g,   B [p, p] the BFGS approximation of the Hessian of L alone, with Powell's damping

The gradients have no part along the direction u in which the whole covariance is multiplied by a number, since no
predicted mean changes along it (scale_direction).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from .folds import Fold
from .lagrangian import FoldSystems, LagrangianTerms, Limits, lagrangian_terms, theta_gradient

ARMIJO = 1e-4
TRIALS, TRIALS_FIXED_Z = 6, 25  # halvings of a step at most: each costs a z step, or one value of L
FIRST = 0.3  # length of the first step, in log-hyperparameters
LONGEST = 1.0  # no log-hyperparameter moves further in one step: a factor of e
ENOUGH_CURVATURE = 0.2  # Powell's damping keeps this share of s'Bs


class ConsensusPenalty(NamedTuple):
    """The terms that tie a fold to the others (eq 16), and the limits of theta.

    Attributes
    ----------
    mean : Tensor [p]
        The consensus.
    kappa : float
        Weight of the penalty. 0 leaves the folds independent.
    u : Tensor [p]
        Unit vector of the scale direction, or zero where the kernel has none.
    begin : Tensor [p]
        The theta of the problem.
    span : float
        Every log-hyperparameter stays within this distance of `begin`.
    """

    mean: Tensor
    kappa: float
    u: Tensor
    begin: Tensor
    span: float

    def value(self, theta: Tensor, nu: Tensor) -> float:
        """Return the penalty at theta; infinite beyond the span."""
        difference = theta - self.mean
        beyond = float((theta - self.begin).abs().max()) > self.span
        return math.inf if beyond else float(nu @ difference) + 0.5 * self.kappa * float(difference @ difference)

    def without_scale(self, g: Tensor) -> Tensor:
        """Return g without its part along u."""
        return g - (g @ self.u) * self.u


class Trial(NamedTuple):
    """One theta that a step may lead to, with z and L there."""

    theta: Tensor  # [p]
    z: Tensor  # [n_T]
    systems: FoldSystems
    terms: LagrangianTerms
    value: float  # L and the penalty
    iterations: int  # of conjugate gradients, for z


class ThetaProblem(NamedTuple):
    """The subproblem of one theta step (eq 11a): all that is fixed while theta moves."""

    fold: Fold
    z: Tensor  # [n_T] where the z step starts, or the fixed z
    dual: Tensor  # [n_T] lambda
    nu: Tensor  # [p] multipliers of theta_k = mean
    rho: float
    rank: int
    limits: Limits
    penalty: ConsensusPenalty

    def trial(self, theta: Tensor, z_follows: bool) -> Trial | None:
        """Evaluate L at theta: one kernel matrix, and one z step if z follows. None where L is not finite."""
        penalty = self.penalty.value(theta, self.nu)
        if not math.isfinite(penalty):
            return None
        try:
            systems = FoldSystems(self.fold, self.fold.kernel_matrix(theta), self.rank if z_follows else 0)
        except NotPositiveDefinite:  # the kernel matrix is not finite, or beyond rounding
            return None
        z, iterations = self.z, 0
        if z_follows:
            z, iterations, _ = systems.z_step(self.dual, self.rho, z, self.limits)  # eq 11b
        terms = lagrangian_terms(self.fold, systems.M, z, self.dual, self.rho)
        if not math.isfinite(terms.total):
            return None
        return Trial(theta, z, systems, terms, terms.total + penalty, iterations)

    def lagrangian_gradient(self, trial: Trial) -> Tensor:
        """Return dL/dtheta [p] without the penalty."""
        w = self.dual + self.rho * trial.terms.c  # [n_T]
        return self.penalty.without_scale(theta_gradient(trial.systems.M, trial.z, w, trial.terms.r))

    def total_gradient(self, theta: Tensor, g: Tensor) -> Tensor:
        """Return the gradient [p] with the penalty, from dL/dtheta = g."""
        penalty = self.penalty
        return penalty.without_scale(g + self.nu + penalty.kappa * (theta - penalty.mean))

    def armijo(
        self, theta: Tensor, value: float, step: tuple[Tensor, Tensor], z_follows: bool
    ) -> tuple[Trial | None, int]:
        """Try the lengths 1, 1/2, 1/4, ... until Armijo's rule accepts one.

        Parameters
        ----------
        theta : Tensor [p]
            Where the step begins.
        value : float
            L and the penalty there.
        step : pair of Tensor [p]
            The direction, and the gradient at theta.
        z_follows : bool

        Returns
        -------
        Trial or None
            The accepted trial; None where no length is accepted.
        int
            The number of trials.
        """
        d, g = step
        expected, most = ARMIJO * float(d @ g), TRIALS if z_follows else TRIALS_FIXED_Z
        for k in range(most if expected < 0.0 else 0):
            trial = self.trial(theta + 0.5**k * d, z_follows)
            if trial is not None and trial.value <= value + 0.5**k * expected:
                return trial, k + 1
            trial = None  # frees its kernel matrix for the next trial
        return None, most


def newton_direction(g: Tensor, B: Tensor, kappa: float) -> Tensor:
    """Return -(B + kappa I)^-1 g, shortened so that no entry exceeds LONGEST.

    Where B is zero, as before the first step, the direction is -g with length FIRST.
    """
    if not bool(B.any()):
        return -FIRST * g / g.norm().clamp_min(torch.finfo(g.dtype).tiny)
    d = -torch.linalg.solve(B + kappa * torch.eye(len(g)).to(B), g)
    largest = float(d.abs().max())
    return d * (LONGEST / largest) if largest > LONGEST else d


def bfgs(B: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """Update the Hessian B [p, p] after a step s along which the gradient changed by y; it stays positive definite.

    References
    ----------
    Nocedal and Wright (2006), Numerical optimization, procedure 18.2 (damped BFGS).
    """
    if not bool(B.any()):
        B = torch.eye(len(s)).to(s) * float(y.norm() / s.norm())
    Bs = B @ s
    sBs, sy = float(s @ Bs), float(s @ y)
    if sBs <= 0.0 or not math.isfinite(sy):
        return B
    share = 1.0 if sy >= ENOUGH_CURVATURE * sBs else (1.0 - ENOUGH_CURVATURE) * sBs / (sBs - sy)
    y = share * y + (1.0 - share) * Bs
    return B - torch.outer(Bs, Bs) / sBs + torch.outer(y, y) / float(s @ y)
