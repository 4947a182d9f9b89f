"""What a group of folds computes, as pure functions of this module: they run in this process or on a worker.

    prepare      solve C z = y_T, and choose multipliers
    iterate      theta step, z step, dual step: lambda <- lambda + alpha rho (C z - y_T)     algorithm 1, eqs 11 to 14
    score_folds  the validation loss at a given theta, where C z = y_T

Xu, Yin, Zhang, Luo and Cui (2019). All folds of a group have one theta, and L is the sum over them.

A step with z eliminated is also one function of tensors, which a GPU records as a graph and repeats with one read:

    (theta, tolerance, z, lambda)  ->  z and L at theta, the next lambda, the gradient there, and the score

All that follows if Armijo's rule accepts theta is computed with the trial: it accepts most of them. Conjugate
gradients are assumed to need `FEWEST` iterations, as they do with a preconditioner that covers the kernel; where they
need more, the step is repeated with reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.deferred_reads import Number, RepeatedEvaluations, moved_together
from ...linalg.randomness import generator
from .folds import FoldGroup
from .theta_step import (
    FIRST,
    TINY,
    TRIALS,
    ConsensusPenalty,
    ExactLoss,
    FoldSystems,
    LagrangianTerms,
    Limits,
    NextStep,
    Recorded,
    Solved,
    ThetaProblem,
    Trial,
    ZRule,
    bfgs,
    exact_loss,
    fixed_z,
    lagrangian_terms,
    largest_gap,
    theta_gradient,
    z_eliminated,
    z_follows,
)

PROBES = 4  # random rows behind the first Hessian
PROBE_TOLERANCE = 1e-2  # relative to the largest entry
LEAST_CURVATURE = 1e-6  # of the largest entry of the first Hessian
RHO_AFTER_ROLLBACK = 4.0  # rho and the Hessian are multiplied by this after a step that was taken back
RELAXATION_PER_STEP = 8.0  # a successful step divides an inflated Hessian by at most this
LOOSEST, TIGHTEST = 30.0, 1e-3  # the tolerance of a z step stays within these multiples of the setting
VECTORS = 3  # of the results of a recorded step, those that stay on the device
SHARPER = 0.1  # the tolerance of z steps is multiplied by this where Armijo's rule refused every length


class Local(NamedTuple):
    """All that one fold carries from iteration to iteration. Folds of a group share theta, B, g, rho and length."""

    theta: Tensor  # [p] its copy of the hyperparameters
    z: Tensor  # [n_T]
    dual: Tensor  # [n_T] lambda
    nu: Tensor  # [p] multipliers of theta_k = mean
    B: Tensor  # [p, p] Hessian of L, or zero before there is one
    g: Tensor  # [p] dL/dtheta at the multipliers
    rho: float
    loss: float = 0.0  # |y_V - K_VT z|^2
    slack: float = 0.0  # lambda'(C z - y_T)
    gap: float = 0.0  # |C z - y_T|
    length: float = 0.0  # of the last gradient step; where z follows, the factor by which B is inflated
    tolerance: float = math.inf  # of the last z step


class FoldSettings(NamedTuple):
    """The settings that a fold needs."""

    rank: int
    limits: Limits  # of a z step
    forcing: float  # the tolerance of a z step is this share of the outer residual; 0 leaves it fixed
    gradient_steps: int  # theta steps per iteration, where z is fixed
    one_at_a_time: bool  # these steps move one hyperparameter after the other
    z_rule: ZRule
    relaxation: float  # alpha
    balance: float  # 0 leaves rho as it is
    rho_span: float
    rho: float  # to begin with
    largest_gap: float  # relative to |y_T|: a step that leaves a larger gap is taken back


class FoldReport(NamedTuple):
    """What a group of folds reports about one iteration."""

    lagrangian: float = math.nan
    gap: float = math.nan  # the largest |C z - y_T| / |y_T| of the folds, the primal residual
    gradient: float = math.nan  # |dL/dtheta| / loss at the new multipliers, the dual residual
    iterations: int = 0  # of conjugate gradients, in the accepted trial
    rolled_back: bool = False
    refused: float = 0.0  # length of the shortest step that Armijo's rule refused, if it refused all


class FoldScore(NamedTuple):
    """The validation loss of a group of folds at a given theta."""

    loss: float  # sum |y_V - K_VT z|^2
    energy: float  # sum y_T'C^-1 y_T
    zs: tuple[Tensor, ...]  # [n_T] each, the solutions of C z = y_T


def prepare(
    group: FoldGroup, theta: Tensor, settings: FoldSettings, dual_start: str, penalty: ConsensusPenalty
) -> tuple[Local, ...]:
    """Initialise the folds of a group at theta.

    Parameters
    ----------
    theta : Tensor [p]
    dual_start : {"adjoint", "zeros", "ones"}
        First multipliers. The adjoint 2 C^-1 K_VT' r makes the gradient of L that of the validation loss.

    Returns
    -------
    tuple of Local
        One per fold.
    """
    systems = FoldSystems(group, group.kernel_matrix(theta), settings.rank)
    zeros = torch.zeros_like(systems.y_T)  # [c, K]
    limits = Limits(10 * settings.limits.iterations, settings.limits.tolerance)
    Z = systems.solve_C(systems.y_T, zeros, limits).X  # eq 10
    r = lagrangian_terms(group, systems.M, Z, zeros, 0.0).r
    dual = group.T.clone() if dual_start == "ones" else zeros
    if dual_start == "adjoint":
        dual = systems.adjoint(r, zeros, limits).X
    terms = lagrangian_terms(group, systems.M, Z, dual, settings.rho)
    W = dual + settings.rho * terms.c
    g = penalty.without_scale(theta_gradient(group, systems.M, Z, W, terms.r))
    B = theta.new_zeros(len(theta), len(theta))
    if settings.z_rule is not fixed_z:
        B = initial_hessian(systems, Z, g, penalty)
    shared = Local(theta.clone(), z=theta, dual=theta, nu=torch.zeros_like(theta), B=B, g=g, rho=settings.rho)
    return _locals(group, [shared] * len(group.validation), Z, dual, terms)


def _locals(
    group: FoldGroup, shared: Sequence[Local], Z: Tensor, dual: Tensor, terms: LagrangianTerms
) -> tuple[Local, ...]:
    """Return one Local per fold, with its own z, lambda and terms."""
    slacks = (dual * terms.c).sum(0)
    numbers = torch.stack([terms.losses, slacks, terms.gaps], 1).tolist()  # [K, 3]
    per_fold = zip(shared, group.vectors(Z), group.vectors(dual), numbers, strict=True)
    return tuple(
        local._replace(z=z, dual=lam, loss=loss, slack=slack, gap=gap) for local, z, lam, (loss, slack, gap) in per_fold
    )


def initial_hessian(systems: FoldSystems, Z: Tensor, g: Tensor, penalty: ConsensusPenalty) -> Tensor:
    """Estimate the first B [p, p]: 2 diag(J'J) with J = dr/dtheta where C z = y_T, a Gauss-Newton Hessian.

    With random signs u on all validation rows, E (u'J)_j^2 is the j-th diagonal entry of J'J. Each of the PROBES rows
    u'J costs one solution with C and one pass over the kernel per fold. No entry of -B^-1 g exceeds FIRST.
    """
    group, squares = systems.group, torch.zeros_like(g)
    limits = Limits(100, PROBE_TOLERANCE)
    for k in range(PROBES):
        signs = torch.randint(0, 2, group.V.shape, generator=generator(k, "signs")).to(Z).mul_(2.0).sub_(1.0)
        u = group.V * signs  # [n, K]
        B = systems.T * systems.M.transposed_times(u)
        scale = float((B.norm(dim=0) / systems.y_norms).max())
        W = systems.solve_C(B, torch.zeros_like(Z), limits._replace(tolerance=PROBE_TOLERANCE * scale)).X
        squares += penalty.without_scale(theta_gradient(group, systems.M, Z, W, 0.5 * u)).square()
    diagonal = torch.maximum(squares.mul_(2.0 / PROBES), g.abs() / FIRST)  # [p]
    return torch.diag(diagonal.clamp_min(LEAST_CURVATURE * float(diagonal.max())))  # a constant input has curvature 0


def inexact_limits(
    group: FoldGroup, local: Sequence[Local], penalty: ConsensusPenalty, settings: FoldSettings
) -> Limits:
    """Return the limits of the next z step: its tolerance follows the outer residual.

    A relative error e of C z changes the gradient of the loss by about e |y| / |r|, relative to the loss. Therefore
    the tolerance is `forcing` times the relative gradient, times |r| / |y|.

    References
    ----------
    Eisenstat and Walker (1996), Choosing the forcing terms in an inexact Newton method.
    """
    if not settings.forcing:
        return settings.limits
    loss = sum(fold.loss for fold in local)
    total = local[0].g + local[0].nu + penalty.kappa * (local[0].theta - penalty.mean)
    gradient = float(penalty.at(local[0].theta, total).norm()) / max(loss, TINY)
    noise_to_signal = math.sqrt(loss / max(group.validation_energy, TINY))
    tolerance = settings.forcing * gradient * min(noise_to_signal, 1.0)
    low, high = (factor * settings.limits.tolerance for factor in (TIGHTEST, LOOSEST))
    tolerance = min(max(tolerance, low), high, local[0].tolerance)
    return settings.limits._replace(tolerance=tolerance)


def iterate(
    group: FoldGroup, local: Sequence[Local], penalty: ConsensusPenalty, settings: FoldSettings, score: bool
) -> tuple[tuple[Local, ...], FoldReport, FoldScore | None]:
    """Do one outer iteration of a group: algorithm 1, lines 2 to 4.

    With `score`, the new theta is scored as well, with the kernel matrix that is there already. The score is None
    otherwise, and where the step was taken back.

    Notes
    -----
    No matrix larger than rank x rank is factored, and no two n x n matrices are multiplied.
    """
    before, is_eliminated = local, settings.z_rule is z_eliminated  # local on the device of the group
    local, penalty = _on_host(local, penalty)
    problem = ThetaProblem(
        group=group,
        Z=group.columns([fold.z for fold in local]),
        dual=group.columns([fold.dual for fold in local]),
        nu=local[0].nu,
        rho=0.0 if is_eliminated else local[0].rho,
        rank=settings.rank,
        limits=inexact_limits(group, local, penalty, settings),
        penalty=penalty,
        recorded=recorded_step(group, settings.rank, settings.limits.iterations, score) if is_eliminated else None,
    )
    theta_step = _gradient_steps if settings.z_rule is fixed_z else _quasi_newton_step
    trial, refused = theta_step(problem, local, settings)  # lines 2 and 3, eqs 12 and 14
    if trial is None:
        return _rolled_back(before, settings), FoldReport(rolled_back=True), None
    gap = trial.gap
    if not gap <= settings.largest_gap:
        return _rolled_back(before, settings), FoldReport(gap=gap, rolled_back=True), None

    dual, g, exact = trial.ahead or _next_step(problem, trial, settings)
    s = trial.theta - local[0].theta
    B, length = local[0].B, float(s.norm())
    if settings.z_rule is not fixed_z:
        B, length = _updated_hessian(local[0], s, g - local[0].g, refused)
    loss = trial.terms.loss
    dual_residual = float(problem.total_gradient(trial.theta, g).norm()) / max(loss, TINY)
    report = FoldReport(trial.terms.total, gap, dual_residual, trial.iterations, refused=refused)
    rho = balanced_rho(local[0].rho, gap, dual_residual, settings)
    tolerance = problem.limits.tolerance
    if refused and settings.forcing:  # the values were not accurate enough to see a decrease
        tolerance = max(SHARPER * tolerance, TIGHTEST * settings.limits.tolerance)
    theta, B, g = moved_together([trial.theta, B, g], group.y.device)
    shared = [fold._replace(theta=theta, B=B, g=g, rho=rho, length=length, tolerance=tolerance) for fold in before]
    after = _locals(group, shared, trial.Z, dual, trial.terms)
    if score and exact is None:
        exact = exact_loss(trial.solved, trial.Z, dual, problem.limits)
    return after, report, _fold_score(group, exact) if exact else None


def recorded_step(group: FoldGroup, rank: int, iterations: int, is_scored: bool) -> Recorded | None:
    """Return the step of a group on a GPU; None on a CPU, and where the kernel reads or M is not stored as a whole."""
    is_stored = group.y.element_size() * len(group.y) * group.trained <= group.workspace.budget
    if group.y.is_cpu or not is_stored or not hasattr(group.kernel, "profile_derivative"):
        return None
    key = rank, iterations, is_scored
    if key not in group.evaluations:
        counter = getattr(group.kernel, "counter", None)
        work = partial(_recorded, group, rank, iterations, is_scored)
        group.evaluations[key] = RepeatedEvaluations(work, group.y, counter, kept=VECTORS)
    evaluations = group.evaluations[key]

    def recorded(problem: ThetaProblem, theta: Tensor) -> tuple[Solved, Number]:
        begin = torch.cat([theta, theta.new_tensor([problem.limits.tolerance])]).to(group.y.device)
        parts = evaluations(torch.cat([begin, problem.Z.flatten(), problem.dual.flatten()]))
        count, loss, total, gap, g, score_loss, energy, sums, vectors, r = parts
        losses, slacks, gaps = sums
        terms = LagrangianTerms(losses, slacks, gaps, float(loss), float(total), c=vectors[2], r=r)
        score = ExactLoss(vectors[3], float(score_loss), float(energy)) if is_scored else None
        ahead = NextStep(vectors[1], problem.penalty.without_scale(g), score)
        return (None, vectors[0], int(count), terms, ahead), gap

    return recorded


def _recorded(group: FoldGroup, rank: int, iterations: int, is_scored: bool, point: Tensor) -> tuple[Number, ...]:
    """The function that is recorded; its point is theta, the tolerance, and z and the multipliers of each fold."""
    shape = group.y_T.shape
    theta, vectors = point.split([len(point) - 2 * shape.numel(), 2 * shape.numel()])
    Z, dual = vectors.view(2, *shape)
    theta, limits = theta[:-1], Limits(iterations, theta[-1])
    systems = FoldSystems(group, group.kernel_matrix(theta), rank)
    solution = systems.solve_C(systems.y_T, Z, limits)  # eq 8
    terms = lagrangian_terms(group, systems.M, solution.X, dual, 0.0)
    dual = systems.adjoint(terms.r, dual, limits).X  # the limit of eq 11c
    g = theta_gradient(group, systems.M, solution.X, dual, terms.r)
    exact = exact_loss(systems, solution.X, dual, limits) if is_scored else ExactLoss(solution.X, 0.0, 0.0)
    numbers = solution.iterations, terms.loss, terms.total, largest_gap(systems, terms)
    sums = torch.stack([terms.losses, terms.slacks, terms.gaps])
    return *numbers, g, exact.loss, exact.energy, sums, torch.stack([solution.X, dual, terms.c, exact.Z]), terms.r


def _next_step(problem: ThetaProblem, trial: Trial, settings: FoldSettings) -> NextStep:
    """Compute the multipliers and the gradient of an accepted trial."""
    if settings.z_rule is z_eliminated:
        dual = trial.solved.adjoint(trial.terms.r, problem.dual, problem.limits).X  # the limit of eq 11c
    else:
        dual = problem.dual + settings.relaxation * problem.rho * trial.terms.c  # line 4, eq 11c
    return NextStep(dual, problem._replace(dual=dual, rho=0.0).lagrangian_gradient(trial), None)


def _on_host(local: Sequence[Local], penalty: ConsensusPenalty) -> tuple[Sequence[Local], ConsensusPenalty]:
    """Return a group and its penalty with all tensors of p or p x p entries on the host, by one read."""
    first, host = local[0], torch.device("cpu")
    parts = [first.theta, first.B, first.g, first.nu, penalty.mean, penalty.u, penalty.begin]
    theta, B, g, nu, mean, u, begin = moved_together(parts, host)
    folds = [fold._replace(theta=theta, B=B, g=g, nu=nu) for fold in local]
    free = None if penalty.free is None else penalty.free.to(host)
    return folds, penalty._replace(mean=mean, u=u, begin=begin, free=free)


def _quasi_newton_step(
    problem: ThetaProblem, local: Sequence[Local], settings: FoldSettings
) -> tuple[Trial | None, float]:
    """Do one quasi-Newton step of psi or F, or a z step alone where Armijo's rule refuses every length.

    The decrease is measured from L at the z before the step, which needs no product. It differs from psi or F by a
    term of second order in the gap.
    """
    theta, rho = local[0].theta, problem.rho
    value = sum(fold.loss + fold.slack + 0.5 * rho * fold.gap**2 for fold in local)
    value += problem.penalty.value(theta, problem.nu)
    d, g = problem.newton_step(theta, local[0].g, local[0].B)
    trial, _ = problem.armijo(theta, value, (d, g), settings.z_rule)
    if trial is not None:
        return trial, 0.0
    return problem.trial(theta, settings.z_rule), float(d.norm()) * 0.5 ** (TRIALS - 1)


def _gradient_steps(
    problem: ThetaProblem, local: Sequence[Local], settings: FoldSettings
) -> tuple[Trial | None, float]:
    """Do gradient steps of phi with z fixed, then the z step, as published.

    Where the settings say so, a step is a sweep of coordinate descent (section 5.3). Every coordinate begins with
    twice the longest move of the last sweep, since their curvatures differ, and Armijo's rule shortens it.
    """
    length, current = local[0].length or 1.0, problem.trial(local[0].theta, fixed_z)
    if current is None:
        return None, 0.0
    directions = problem.penalty.coordinates() if settings.one_at_a_time else [None]
    g = None
    for _ in range(settings.gradient_steps):
        moves = []
        for direction in directions:
            if g is None:
                g = problem.total_gradient(current.theta, problem.lagrangian_gradient(current))
            part = g if direction is None else (g @ direction) * direction
            d = -length * part / part.norm().clamp_min(TINY)
            trial, _ = problem.armijo(current.theta, current.value, (d, g), fixed_z)
            if trial is not None:
                moves.append(float((trial.theta - current.theta).norm()))
                current, g = trial, None
        if not moves:
            break
        length = 2.0 * max(moves)
    return problem.trial(current.theta, z_follows), 0.0


def score_folds(group: FoldGroup, theta: Tensor, zs: Sequence[Tensor], settings: FoldSettings) -> FoldScore:
    """Compute the validation loss at theta, by conjugate gradients for C z = y_T that start at `zs`.

    The kernel matrix is computed once. The loss is infinite where the matrix is not finite.

    Notes
    -----
    With residual c = C z - y_T and multipliers lambda = 2 C^-1 K_VT' r, the number |r|^2 + lambda'c differs from the
    loss at the exact solution by a term of second order in c. Likewise y'C^-1 y = (y - c)'z to second order.
    """
    try:
        systems = FoldSystems(group, group.kernel_matrix(theta), settings.rank)
    except NotPositiveDefinite:
        return FoldScore(math.inf, math.nan, tuple(zs))
    return _fold_score(group, exact_loss(systems, group.columns(zs), torch.zeros_like(systems.y_T), settings.limits))


def _fold_score(group: FoldGroup, exact: ExactLoss) -> FoldScore:
    return FoldScore(exact.loss, exact.energy, tuple(group.vectors(exact.Z)))


def _rolled_back(local: Sequence[Local], settings: FoldSettings) -> tuple[Local, ...]:
    """Return the folds before the step, with a larger penalty and shorter steps for the next one.

    The tolerance becomes larger as well: rounding may not allow a smaller one.
    """
    factor, tolerance = RHO_AFTER_ROLLBACK, min(local[0].tolerance / SHARPER, LOOSEST * settings.limits.tolerance)
    rho = _bounded_rho(factor * local[0].rho, settings)
    return tuple(
        fold._replace(rho=rho, tolerance=tolerance, B=factor * fold.B, length=fold.length / factor) for fold in local
    )


def _updated_hessian(local: Local, s: Tensor, y: Tensor, refused: float) -> tuple[Tensor, float]:
    """Return B after a step s, and the factor by which it is inflated beyond what BFGS learned.

    A step refused at every length inflates B in all directions, though one direction alone may be the cause. Steps
    that succeed take the factor back, while BFGS corrects the direction of each of them.
    """
    inflation = max(local.length, 1.0)
    if refused:
        initial = torch.eye(len(y)).to(y) * float(local.g.norm()) / FIRST
        return 2.0**TRIALS * (local.B if bool(local.B.any()) else initial), 2.0**TRIALS * inflation
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
