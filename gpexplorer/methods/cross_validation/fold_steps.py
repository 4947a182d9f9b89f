"""What one fold computes, as pure functions of this module: they run in this process or on a worker.

    prepare      solve C z = y_T, and choose multipliers
    iterate      theta step, z step, dual step: lambda <- lambda + alpha rho (C z - y_T)     algorithm 1, eqs 11 to 14
    score_fold   the validation loss at a given theta, where C z = y_T

Xu, Yin, Zhang, Luo and Cui (2019).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.randomness import generator
from .folds import Fold
from .lagrangian import FoldSystems, Limits, lagrangian_terms, theta_gradient
from .theta_step import FIRST, TRIALS, ConsensusPenalty, ThetaProblem, Trial, bfgs, newton_direction

PROBES = 4  # random rows behind the first Hessian
PROBE_LIMITS = Limits(100, 1e-3)
LEAST_CURVATURE = 1e-6  # of the largest entry of the first Hessian
RHO_AFTER_ROLLBACK = 4.0  # rho and the Hessian are multiplied by this after a step that was taken back
RELAXATION_PER_STEP = 8.0  # a successful step divides an inflated Hessian by at most this
TINY = 1e-30


class Local(NamedTuple):
    """All that one fold carries from iteration to iteration."""

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
    length: float  # of the last gradient step; where z follows, the factor by which B is inflated


class FoldSettings(NamedTuple):
    """The settings that a fold needs."""

    rank: int
    limits: Limits  # of a z step
    gradient_steps: int  # theta steps per iteration, where z is fixed
    z_follows: bool
    relaxation: float  # alpha
    balance: float  # 0 leaves rho as it is
    rho_span: float
    rho: float  # to begin with
    largest_gap: float  # relative to |y_T|: a step that leaves a larger gap is taken back


class FoldReport(NamedTuple):
    """What a fold reports about one iteration."""

    lagrangian: float = math.nan
    gap: float = math.nan  # |C z - y_T| / |y_T|, the primal residual
    gradient: float = math.nan  # |dL/dtheta| / loss at the new multipliers, the dual residual
    iterations: int = 0  # of conjugate gradients, in the accepted trial
    rolled_back: bool = False
    refused: float = 0.0  # length of the shortest step that Armijo's rule refused, if it refused all


class FoldScore(NamedTuple):
    """The validation loss of a fold at a given theta."""

    loss: float  # |y_V - K_VT z|^2
    energy: float  # y_T'C^-1 y_T
    z: Tensor  # [n_T] the solution of C z = y_T
    error: float  # relative residual of C z = y_T


def prepare(fold: Fold, theta: Tensor, settings: FoldSettings, dual_start: str, penalty: ConsensusPenalty) -> Local:
    """Initialise a fold at theta.

    Parameters
    ----------
    fold : Fold
    theta : Tensor [p]
    settings : FoldSettings
    dual_start : {"adjoint", "zeros", "ones"}
        First multipliers. The adjoint 2 C^-1 K_VT' r makes the gradient of L that of the validation loss.
    penalty : ConsensusPenalty

    Returns
    -------
    Local
    """
    n_T, p = fold.trained, len(theta)
    limits = Limits(10 * settings.limits.iterations, 1e-2 * settings.limits.tolerance)
    systems = FoldSystems(fold, fold.kernel_matrix(theta), settings.rank)
    zero = fold.y.new_zeros(n_T)
    z = systems.solve_C(fold.y[:n_T], zero, limits).x  # eq 10
    r = lagrangian_terms(fold, systems.M, z, zero, 0.0).r
    dual = torch.ones_like(zero) if dual_start == "ones" else zero
    if dual_start == "adjoint":
        dual = systems.solve_C(2.0 * systems.M.transposed_times(torch.cat([zero, r])), zero, limits).x
    terms = lagrangian_terms(fold, systems.M, z, dual, settings.rho)
    local = Local(
        theta=theta.clone(),
        z=z,
        dual=dual,
        nu=torch.zeros_like(theta),
        B=torch.zeros(p, p).to(theta),
        g=torch.zeros_like(theta),
        loss=terms.loss,
        slack=float(dual @ terms.c),
        gap=terms.gap,
        rho=settings.rho,
        length=0.0,
    )
    g = _theta_problem(fold, local, penalty, settings).lagrangian_gradient(Trial(theta, z, systems, terms, 0.0, 0))
    return local._replace(g=g, B=initial_hessian(fold, systems, z, g, penalty) if settings.z_follows else local.B)


def initial_hessian(fold: Fold, systems: FoldSystems, z: Tensor, g: Tensor, penalty: ConsensusPenalty) -> Tensor:
    """Estimate the first B [p, p]: 2 diag(J'J) with J = dr/dtheta where C z = y_T, a Gauss-Newton Hessian.

    With random signs u, E (u'J)_j^2 is the j-th diagonal entry of J'J. Each of the PROBES rows u'J costs one solution
    with C and one pass over the kernel. No entry of -B^-1 g exceeds FIRST.
    """
    n_T, zero, squares = fold.trained, torch.zeros_like(z), torch.zeros_like(g)
    for k in range(PROBES):
        u = torch.randint(0, 2, (len(fold.y) - n_T,), generator=generator(k, "signs")).to(z).mul_(2.0).sub_(1.0)
        w = systems.solve_C(systems.M.transposed_times(torch.cat([zero, u])), zero, PROBE_LIMITS).x
        squares += penalty.without_scale(theta_gradient(systems.M, z, w, 0.5 * u)).square()
    diagonal = torch.maximum(squares.mul_(2.0 / PROBES), g.abs() / FIRST)  # [p]
    return torch.diag(diagonal.clamp_min(LEAST_CURVATURE * float(diagonal.max())))  # a constant input has curvature 0


def _theta_problem(fold: Fold, local: Local, penalty: ConsensusPenalty, settings: FoldSettings) -> ThetaProblem:
    return ThetaProblem(
        fold=fold,
        z=local.z,
        dual=local.dual,
        nu=local.nu,
        rho=local.rho,
        rank=settings.rank,
        limits=settings.limits,
        penalty=penalty,
    )


def iterate(fold: Fold, local: Local, penalty: ConsensusPenalty, settings: FoldSettings) -> tuple[Local, FoldReport]:
    """Do one outer iteration of a fold: algorithm 1, lines 2 to 4.

    Notes
    -----
    No matrix larger than rank x rank is factored, and no two n x n matrices are multiplied.
    """
    problem, rho = _theta_problem(fold, local, penalty, settings), local.rho
    theta_step = _quasi_newton_step if settings.z_follows else _gradient_steps
    trial, refused = theta_step(problem, local, settings)  # lines 2 and 3, eqs 12 and 14
    if trial is None:
        return _rolled_back(local, settings), FoldReport(rolled_back=True)
    gap = trial.terms.gap / max(float(fold.y[: fold.trained].norm()), TINY)
    if not gap <= settings.largest_gap:
        return _rolled_back(local, settings), FoldReport(gap=gap, rolled_back=True)

    dual = local.dual + settings.relaxation * rho * trial.terms.c  # line 4, eq 11c
    g = problem._replace(dual=dual, rho=0.0).lagrangian_gradient(trial)
    s = trial.theta - local.theta
    B, length = (local.B, float(s.norm()))
    if settings.z_follows:
        B, length = _updated_hessian(local, s, g - local.g, refused)
    dual_residual = float(problem.total_gradient(trial.theta, g).norm()) / max(trial.terms.loss, TINY)
    report = FoldReport(trial.terms.total, gap, dual_residual, trial.iterations, refused=refused)
    after = Local(
        theta=trial.theta,
        z=trial.z,
        dual=dual,
        nu=local.nu,
        B=B,
        g=g,
        loss=trial.terms.loss,
        slack=float(dual @ trial.terms.c),
        gap=trial.terms.gap,
        rho=balanced_rho(rho, gap, dual_residual, settings),
        length=length,
    )
    return after, report


def _quasi_newton_step(problem: ThetaProblem, local: Local, settings: FoldSettings) -> tuple[Trial | None, float]:
    """Do one quasi-Newton step of psi, or a z step alone where Armijo's rule refuses every length.

    The decrease is measured from L at the z before the step, which needs no product. It differs from psi by a term
    of second order in the gap.
    """
    penalty = problem.penalty.value(local.theta, local.nu)
    value = local.loss + local.slack + 0.5 * local.rho * local.gap**2 + penalty
    g = problem.total_gradient(local.theta, local.g)
    d = newton_direction(g, local.B, problem.penalty.kappa)
    trial, _ = problem.armijo(local.theta, value, (d, g), z_follows=True)
    if trial is not None:
        return trial, 0.0
    return problem.trial(local.theta, z_follows=True), float(d.norm()) * 0.5 ** (TRIALS - 1)


def _gradient_steps(problem: ThetaProblem, local: Local, settings: FoldSettings) -> tuple[Trial | None, float]:
    """Do gradient steps of phi with z fixed, then the z step, as published."""
    length, current = local.length or 1.0, problem.trial(local.theta, z_follows=False)
    if current is None:
        return None, 0.0
    for _ in range(settings.gradient_steps):
        g = problem.total_gradient(current.theta, problem.lagrangian_gradient(current))
        d = -length * g / g.norm().clamp_min(TINY)
        trial, _ = problem.armijo(current.theta, current.value, (d, g), z_follows=False)
        if trial is None:
            break
        length, current = 2.0 * float((trial.theta - current.theta).norm()), trial
    return problem.trial(current.theta, z_follows=True), 0.0


def score_fold(fold: Fold, theta: Tensor, z: Tensor, settings: FoldSettings) -> FoldScore:
    """Compute the validation loss at theta, by conjugate gradients for C z = y_T that start at z.

    The kernel matrix is computed once. The loss is infinite where the matrix is not finite.
    """
    n_T = fold.trained
    try:
        systems = FoldSystems(fold, fold.kernel_matrix(theta), settings.rank)
    except NotPositiveDefinite:
        return FoldScore(math.inf, math.nan, z, math.inf)
    limits = Limits(4 * settings.limits.iterations, settings.limits.tolerance)
    solution = systems.solve_C(fold.y[:n_T], z, limits)  # eq 8
    r = fold.y[n_T:] - systems.M.times(solution.x)[n_T:]
    return FoldScore(float(r @ r), float(fold.y[:n_T] @ solution.x), solution.x, solution.error)


def _rolled_back(local: Local, settings: FoldSettings) -> Local:
    """Return the fold before the step, with a larger penalty and shorter steps for the next one."""
    factor = RHO_AFTER_ROLLBACK
    return local._replace(
        rho=_bounded_rho(factor * local.rho, settings), B=factor * local.B, length=local.length / factor
    )


def _updated_hessian(local: Local, s: Tensor, y: Tensor, refused: float) -> tuple[Tensor, float]:
    """Return B after a step s, and the factor by which it is inflated beyond what BFGS learned.

    A step refused at every length inflates B in all directions, though one direction alone may be the cause. Steps
    that succeed take the factor back, while BFGS corrects the direction of each of them.
    """
    inflation = max(local.length, 1.0)
    if refused:
        first = torch.eye(len(y)).to(y) * float(local.g.norm()) / FIRST
        return 2.0**TRIALS * (local.B if bool(local.B.any()) else first), 2.0**TRIALS * inflation
    if not bool(s.any()):
        return local.B, inflation
    factor = min(inflation, RELAXATION_PER_STEP)
    return bfgs(local.B / factor, s, y), inflation / factor


def balanced_rho(rho: float, primal: float, dual: float, settings: FoldSettings) -> float:
    """Return the next rho: doubled where the primal residual is the larger one, halved where the dual one is.

    References
    ----------
    Boyd, Parikh, Chu, Peleato and Eckstein (2011), section 3.4.1.
    """
    if not settings.balance:
        return rho
    if primal > dual:
        return _bounded_rho(2.0 * rho, settings)
    return _bounded_rho(0.5 * rho, settings) if primal * settings.balance < dual else rho


def _bounded_rho(rho: float, settings: FoldSettings) -> float:
    return min(max(rho, settings.rho / settings.rho_span), settings.rho * settings.rho_span)
