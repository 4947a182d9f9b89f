"""What one fold does, as pure functions of a module: on this machine, or on a worker.

prepare   C z = y_T, and multipliers that make the slope of L the slope of the loss
advance   theta step, z step, dual step: lambda += alpha rho (C z - y_T)                         algorithm 1
judge     the loss at a theta that is given, with C z = y_T
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.randomness import generator
from .lagrangian import Fold, Systems, slope, terms
from .theta_step import FIRST, TRIES, Ground, Here, Pull, Trial, armijo, bfgs, direction

SOFTER = 8.0
PROBES, LEAST = 4, 1e-6
ROLLED_BACK = 4.0  # rho is multiplied by this after a step was taken back


class Local(NamedTuple):
    """All that a fold carries."""

    theta: Tensor  # [p] its copy of the hyperparameters
    z: Tensor  # [n_T]
    dual: Tensor  # [n_T] lambda
    nu: Tensor  # [p] multipliers of theta_k = mean
    B: Tensor  # [p, p] Hessian of L, or zero before there is one
    g: Tensor  # [p] dL/dtheta at the multipliers
    loss: float  # |y_V - K_VT z|^2
    slack: float  # lambda'(C z - y_T)
    gap: float  # |C z - y_T|
    rho: float
    length: float  # of the last gradient step; where z follows, how much stiffer than learned B is


class Rules(NamedTuple):
    """The settings that a fold needs."""

    rank: int
    cg: tuple[int, float]  # iterations and relative residual of the z step
    steps: int  # of theta, where z is held still
    follow: bool  # z follows theta
    relaxation: float
    balance: float  # 0 is none
    rho_span: float
    rho: float
    largest_gap: float  # of |y_T|; a step beyond is taken back


class Report(NamedTuple):
    """What a fold tells of a step."""

    lagrangian: float = math.nan
    gap: float = math.nan  # |C z - y_T| / |y_T|
    slope: float = math.nan  # |dL/dtheta| / loss at the new multipliers: the dual residual
    iterations: int = 0
    evaluations: int = 0
    rolled_back: bool = False
    refused: float = 0.0  # the shortest step that was tried in vain


class Judged(NamedTuple):
    """The fold's loss at a theta, with a z that satisfies the constraint there."""

    loss: float  # |y_V - K_VT z|^2
    energy: float  # y_T'C^-1 y_T
    z: Tensor  # [n_T]
    error: float  # relative residual of the constraint


def prepare(fold: Fold, theta: Tensor, rules: Rules, start: str, pull: Pull) -> Local:
    """z and lambda at the start; `start` is "adjoint" (2 C^-1 K_VT' r), "zeros" or "ones"."""
    n_T, p, most = fold.trained, len(theta), (10 * rules.cg[0], 1e-2 * rules.cg[1])
    systems = Systems(fold, fold.cross(theta), rules.rank)
    zero = fold.y.new_zeros(n_T)
    z = systems.constraint(fold.y[:n_T], zero, most).x
    r = terms(fold, systems.M, z, zero, 0.0).r
    dual = torch.ones_like(zero) if start == "ones" else zero
    if start == "adjoint":
        dual = systems.constraint(2.0 * systems.M.backward(torch.cat([zero, r])), zero, most).x
    nothing, none = torch.zeros_like(theta), torch.zeros(p, p).to(theta)
    at = terms(fold, systems.M, z, dual, rules.rho)
    measured = (at.loss, float(dual @ at.c), at.gap)
    local = Local(theta.clone(), z, dual, nothing, none, nothing, *measured, rules.rho, 0.0)
    g = _ground(fold, local, pull, rules).slope(Trial(theta, z, systems, at, 0.0, 0))
    return local._replace(g=g, B=_bend(fold, systems, z, g, pull) if rules.follow else none)


def _bend(fold: Fold, systems: Systems, z: Tensor, g: Tensor, pull: Pull) -> Tensor:
    """B to begin with: 2 diag(J'J), J = dr/dtheta where C z = y_T, and no entry of -B^-1 g beyond FIRST.

    Rows of u'J for random signs u: E (u'J)_j^2 is what the diagonal holds. A solve and a pass over the kernel each.
    """
    n_T, zero, probes = fold.trained, torch.zeros_like(z), torch.zeros_like(g)
    for k in range(PROBES):
        u = torch.randint(0, 2, (len(fold.y) - n_T,), generator=generator(k, "signs")).to(z).mul_(2.0).sub_(1.0)
        w = systems.constraint(systems.M.backward(torch.cat([zero, u])), zero, (100, 1e-3)).x
        probes += pull.free(slope(systems.M, z, w, 0.5 * u)).square()
    bend = torch.maximum(probes.mul_(2.0 / PROBES), g.abs() / FIRST)
    return torch.diag(bend.clamp_min(LEAST * float(bend.max())))  # an input that is constant bends nothing


def _ground(fold: Fold, local: Local, pull: Pull, rules: Rules) -> Ground:
    return Ground(fold, local.z, local.dual, local.nu, local.rho, rules.rank, rules.cg, pull)


def advance(fold: Fold, local: Local, pull: Pull, rules: Rules) -> tuple[Local, Report]:
    """One outer iteration. No factorisation beyond rank x rank, no product of two n x n matrices."""
    ground, rho = _ground(fold, local, pull, rules), local.rho
    there, evaluations, refused = (_following if rules.follow else _still)(ground, local, rules)
    if there is None:
        return _taken_back(local, rules), Report(evaluations=evaluations, rolled_back=True)
    gap = there.at.gap / max(float(fold.y[: fold.trained].norm()), 1e-30)
    if not gap <= rules.largest_gap:
        return _taken_back(local, rules), Report(gap=gap, evaluations=evaluations, rolled_back=True)

    dual = local.dual + rules.relaxation * rho * there.at.c
    g = ground._replace(dual=dual, rho=0.0).slope(there)
    s = there.theta - local.theta
    B, length = _learned(local, s, g - local.g, refused) if rules.follow else (local.B, float(s.norm()))
    left = float(ground.pulled(there.theta, g).norm()) / max(there.at.loss, 1e-30)
    report = Report(there.at.total, gap, left, there.iterations, evaluations, refused=refused)
    measured = (there.at.loss, float(dual @ there.at.c), there.at.gap)
    rho = _balanced(rho, gap, left, rules)
    return Local(there.theta, there.z, dual, local.nu, B, g, *measured, rho, length), report


def _following(ground: Ground, local: Local, rules: Rules) -> tuple[Trial | None, int, float]:
    """One quasi-Newton step, z following; a z step alone where no length of it falls.

    The fall is from L at the z there was, which needs no product: it is psi but for a square of the gap.
    """
    pull = ground.pull.value(local.theta, local.nu)
    value = local.loss + local.slack + 0.5 * local.rho * local.gap**2 + pull
    g = ground.pulled(local.theta, local.g)
    d = direction(g, local.B, ground.pull.kappa)
    there, tried = armijo(ground, Here(local.theta, value), d, g, True)
    if there is not None:
        return there, tried, 0.0
    return ground.trial(local.theta, True), tried + 1, float(d.norm()) * 0.5 ** (TRIES - 1)


def _still(ground: Ground, local: Local, rules: Rules) -> tuple[Trial | None, int, float]:
    """Gradient steps with z held still, then the z step."""
    length, here, evaluations = local.length or 1.0, ground.trial(local.theta, False), 1
    if here is None:
        return None, evaluations, 0.0
    for _ in range(rules.steps):
        g = ground.pulled(here.theta, ground.slope(here))
        d = -length * g / g.norm().clamp_min(1e-30)
        there, tried = armijo(ground, Here(here.theta, here.value), d, g, False)
        evaluations += tried
        if there is None:
            break
        length, here = 2.0 * float((there.theta - here.theta).norm()), there
    return ground.trial(here.theta, True), evaluations + 1, 0.0


def judge(fold: Fold, theta: Tensor, z: Tensor, rules: Rules) -> Judged:
    """From z on, by conjugate gradients; the kernel is computed once more. An infinite loss where it is not finite."""
    n_T = fold.trained
    try:
        systems = Systems(fold, fold.cross(theta), rules.rank)
    except NotPositiveDefinite:
        return Judged(math.inf, math.nan, z, math.inf)
    solved = systems.constraint(fold.y[:n_T], z, (4 * rules.cg[0], rules.cg[1]))
    r = fold.y[n_T:] - systems.M.forward(solved.x)[n_T:]
    return Judged(float(r @ r), float(fold.y[:n_T] @ solved.x), solved.x, solved.error)


def _taken_back(local: Local, rules: Rules) -> Local:
    """Where it was, to be tried again with shorter steps and a larger penalty."""
    rho = _bounded(ROLLED_BACK * local.rho, rules)
    return local._replace(rho=rho, B=ROLLED_BACK * local.B, length=local.length / ROLLED_BACK)


def _learned(local: Local, s: Tensor, y: Tensor, refused: float) -> tuple[Tensor, float]:
    """B, and how much stiffer it is than what was learned.

    A step refused at every length stiffens all directions at once, though one alone may be to blame: steps that
    succeed give that back, while BFGS puts right the direction each of them took.
    """
    stiff = max(local.length, 1.0)
    if refused:
        first = torch.eye(len(y)).to(y) * float(local.g.norm()) / FIRST
        return 2.0**TRIES * (local.B if bool(local.B.any()) else first), 2.0**TRIES * stiff
    if not bool(s.any()):
        return local.B, stiff
    softer = min(stiff, SOFTER)
    return bfgs(local.B / softer, s, y), stiff / softer


def _balanced(rho: float, gap: float, left: float, rules: Rules) -> float:
    """Twice rho where the constraint lags, half of it where theta does (Boyd et al. 2011, section 3.4.1)."""
    if not rules.balance:
        return rho
    if gap > left:
        return _bounded(2.0 * rho, rules)
    return _bounded(0.5 * rho, rules) if gap * rules.balance < left else rho


def _bounded(rho: float, rules: Rules) -> float:
    return min(max(rho, rules.rho / rules.rho_span), rules.rho * rules.rho_span)
