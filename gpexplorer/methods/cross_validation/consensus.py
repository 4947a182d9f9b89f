"""The loop over the folds: prepare them, then iterate every fold, form the consensus, and score it.

    one theta for all folds: they are one group with one kernel matrix, and L is summed over them      eq 15
    copies:  mean = sum_k (theta_k + nu_k / kappa) / K,   nu_k <- nu_k + kappa (theta_k - mean)        ADMM for eq 16
    kappa = 0: the folds are independent hold-out runs, and their mean is the naive scheme             section 3.2

Groups of folds are independent pieces of work for the method's mapper. State, report and channels of the three schemes
are here as well. Xu, Yin, Zhang, Luo and Cui (2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from ...kernels.theta.restrictions import projected
from ...linalg.deferred_reads import moved_together
from ...noise_floor import noise_floor
from ...problem import Outcome, Problem, Step, channel
from ..base import Steps, begun
from .fold_steps import FoldReport, FoldScore, FoldSettings, Local, iterate, prepare, score_folds
from .folds import FoldGroup, split
from .learning import initial_values
from .scale_direction import scale_direction
from .scheme import ELIMINATED, Scheme
from .theta_step import ConsensusPenalty

SPAN = 8.0  # every log-hyperparameter stays this close to its initial value
FAR_BELOW = 0.1  # with a relative gradient of this share of the tolerance, a step may have any length
MAX_RESETS = 3  # times that the folds are prepared again where theta rests and the gradient does not vanish


class ConsensusState(NamedTuple):
    """All that the trajectory depends on."""

    theta: Tensor  # [p] the best so far, with its scale determined
    mean: Tensor  # [p] the consensus, from which the next iteration continues
    step: int = 0
    phase: str = "start"  # "start" | "prepare" | "iterate"
    iteration: int = 0
    best: float = math.inf  # cross-validated error at theta
    folds: tuple[Local, ...] = ()
    moved: float = math.inf  # change of the mean in the last iteration, or the length of a refused step of a fold
    gap: float = math.inf  # the largest |C z - y_T| / |y_T| of the folds
    rollbacks: int = 0  # consecutive iterations in which every fold was rolled back
    still: int = 0  # consecutive iterations with a step below the tolerance, or a gradient far below it
    shared: bool = False  # whether the folds have one theta; a state without the field was written with copies
    resets: int = 0  # how often the folds were prepared again
    gradient: float = math.inf  # largest derivative of the cross-validated error at the mean, relative to the error
    distance: float = math.inf  # length of a Newton step from the mean: how far the minimum is, about


class ConsensusInfo(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: Annotated[float, channel("cross-validated squared error")] = math.nan
    lagrangian: Annotated[float, channel("augmented Lagrangian")] = math.nan
    gap: Annotated[float, channel("primal residual |Cz - y| / |y|", log=True)] = math.nan
    slope: Annotated[float, channel("dual residual", log=True)] = math.nan
    disagreement: Annotated[float, channel("disagreement of the folds", log=True)] = math.nan
    rho: Annotated[float, channel("penalty rho", log=True)] = math.nan
    z_norm: Annotated[float, channel("|z|")] = math.nan
    z_gap: Annotated[float, channel("|z - C^-1 y|^2", log=True)] = math.nan
    scale: Annotated[float, channel("log scale of all sds")] = math.nan
    iterations: Annotated[float, channel("CG iterations per z step")] = math.nan
    rolled_back: Annotated[float, channel("folds rolled back")] = math.nan
    consensus: Tensor = torch.zeros(0)  # [p]
    thetas: Tensor = torch.zeros(0, 0)  # [K, p]


@dataclass(frozen=True, eq=False)
class Setup:
    """What does not change from iteration to iteration."""

    scheme: Scheme
    problem: Problem
    groups: Sequence[FoldGroup]
    settings: FoldSettings
    scale_direction: Tensor | None  # [p]

    def kappa(self, best: float) -> float:
        """Return kappa at the cross-validated error `best`, relative to the loss of a fold and for any noise."""
        if len(self.groups) == 1 or not self.scheme.coupling_strength:
            return 0.0
        rows = self.validation_rows / len(self.groups)
        return float(self.scheme.coupling_strength * rows * best)

    @property
    def validation_rows(self) -> int:
        """The number of validation rows, all folds together."""
        return sum(group.validation_rows for group in self.groups)

    @property
    def training_rows(self) -> int:
        """The number of training rows, summed over the folds."""
        return sum(len(group.validation) * len(group.y) - group.validation_rows for group in self.groups)

    def mapped(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the results of a function for all groups; an argument that is a list has one item per group."""
        count = len(self.groups)
        items = (each if isinstance(each, list) else repeat(each, count) for each in arguments)
        return list(self.scheme.map(function, self.groups, *items))

    def by_group(self, per_fold: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Divide a sequence with one item per fold into one tuple per group."""
        items = iter(per_fold)
        return [tuple(next(items) for _ in group.validation) for group in self.groups]

    def penalty(self, mean: Tensor, best: float) -> ConsensusPenalty:
        """Return the terms that tie every fold to `mean`."""
        restrictions = getattr(self.problem.kernel, "restrictions", None)
        free = None if restrictions is None else restrictions.parameters
        direction, begin = self.unit_scale_direction, self.problem.theta
        return ConsensusPenalty(mean, self.kappa(best), direction, begin, SPAN, free, noise_floor(self.problem))

    @cached_property
    def unit_scale_direction(self) -> Tensor:
        """The scale direction [p] with length 1, or zero; kept, because its norm is a launch on a GPU."""
        direction = self.scale_direction
        return torch.zeros_like(self.problem.theta) if direction is None else direction / direction.norm()


def run(scheme: Scheme, problem: Problem, resume: ConsensusState | None) -> Steps:
    """Run algorithm 1 on all folds, with the safeguards that the settings of the scheme describe."""
    first = ConsensusState(problem.theta.clone(), problem.theta.clone(), shared=scheme.shares_theta)
    state = yield from begun(resume, first, ConsensusInfo("start"))
    setup = make_setup(scheme, problem)
    if state.phase == "start":
        state, info = _prepare_folds(setup, state)
        yield Step(state, info)
    elif state.shared != scheme.shares_theta and state.folds:
        state = _prepared_again(setup, state)
    while (outcome := outcome_of(scheme, state)) is None:
        state, info = iterate_folds(setup, state)
        yield Step(state, info)
    return replace(outcome, message=outcome.message + _at_the_limits(setup, state))


def _at_the_limits(setup: Setup, state: ConsensusState) -> str:
    """Return a sentence about the hyperparameters that have moved as far as they may; empty where there is none."""
    moved = (state.mean - setup.problem.theta).abs()
    count = int((moved >= SPAN * (1.0 - 1e-6)).sum())
    if not count:
        return ""
    are = "hyperparameter is" if count == 1 else "hyperparameters are"
    return f" {count} {are} a factor of {math.exp(SPAN):,.0f} from the initial value, which is the limit."


def make_setup(scheme: Scheme, problem: Problem) -> Setup:
    """Split the rows into folds and determine the scale direction."""
    validation = scheme.validation(len(problem.train))
    groups = split(problem, validation, scheme.seed, scheme.memory, shared=scheme.shares_theta and len(validation) > 1)
    return Setup(scheme, problem, groups, scheme.fold_settings(), scale_direction(problem))


def _score(setup: Setup, theta: Tensor, zs: Sequence[Tensor]) -> list[FoldScore]:
    return setup.mapped(score_folds, theta, setup.by_group(zs), setup.settings)


def _cross_validated_error(setup: Setup, scores: Sequence[FoldScore]) -> float:
    """Return the mean squared error of all validation rows (eq 15 over their number); infinite where it is nan."""
    error = sum(score.loss for score in scores) / setup.validation_rows
    return error if math.isfinite(error) else math.inf


def _log_scale(setup: Setup, scores: Sequence[FoldScore]) -> float:
    """Return log c with c^2 = sum_k y_T'C^-1 y_T / sum_k n_T: there the evidence of all folds is highest."""
    energy = sum(score.energy for score in scores) / setup.training_rows
    return 0.5 * math.log(energy) if math.isfinite(energy) and energy > 0.0 else 0.0


def _with_scale(setup: Setup, mean: Tensor, log_scale: float) -> Tensor:
    if setup.scale_direction is None or not setup.scheme.calibrate:
        return mean.clone()
    return mean + log_scale * setup.scale_direction


def _prepare_folds(setup: Setup, state: ConsensusState) -> tuple[ConsensusState, ConsensusInfo]:
    """Choose the initial theta of lowest cross-validated error, and prepare the folds there."""
    scheme = setup.scheme
    zeros = [group.y.new_zeros(len(z)) for group in setup.groups for z in group.vectors(group.T)]
    candidates: list[tuple[float, Tensor, list[FoldScore]]] = []
    for theta in initial_values(problem_theta=setup.problem.theta, restarts=scheme.restarts, seed=scheme.seed):
        theta = projected(setup.problem.kernel, theta)
        scores = _score(setup, theta, zeros)
        candidates.append((_cross_validated_error(setup, scores), theta, scores))
    error, mean, scores = min(candidates, key=lambda candidate: candidate[0])
    if not math.isfinite(error):
        return state._replace(step=1, phase="prepare"), ConsensusInfo("prepare")
    folds = _prepared(setup, mean, error)
    log_scale = _log_scale(setup, scores)
    after = state._replace(
        step=1, phase="prepare", theta=_with_scale(setup, mean, log_scale), best=error, mean=mean.clone(), folds=folds
    )
    return after, _info("prepare", (error, log_scale), after, [FoldReport() for _ in setup.groups], scores)


def _prepared(setup: Setup, mean: Tensor, error: float) -> tuple[Local, ...]:
    penalty = setup.penalty(mean, error)
    prepared = setup.mapped(prepare, mean, setup.settings, setup.scheme.dual_start, penalty)
    return tuple(local for group in prepared for local in group)


def _prepared_again(setup: Setup, state: ConsensusState) -> ConsensusState:
    """Return the state with new multipliers and Hessians at its mean, and the scheme's own kind of folds."""
    return state._replace(folds=_prepared(setup, state.mean, state.best), still=0, shared=setup.scheme.shares_theta)


def iterate_folds(setup: Setup, state: ConsensusState) -> tuple[ConsensusState, ConsensusInfo]:
    """Do one outer iteration of every fold, form the consensus, and score it.

    Where theta rested during the last iterations although the gradient is not small, the folds are prepared again
    first: their Hessians had become too large.
    """
    scheme, count = setup.scheme, len(setup.groups)
    if state.still >= scheme.patience and state.gradient > scheme.tolerance:
        state = _prepared_again(setup, state)._replace(resets=state.resets + 1)
    penalty, folds_of_groups = setup.penalty(state.mean, state.best), setup.by_group(state.folds)
    iterated = setup.mapped(iterate, folds_of_groups, penalty, setup.settings, count == 1)
    folds = [local for group, _, _ in iterated for local in group]
    reports = [report for _, report, _ in iterated]
    mean, folds = form_consensus(setup, state, folds)
    scores = [score for _, _, score in iterated if score is not None]
    if len(scores) < count:
        scores = _score(setup, mean, [local.z for local in folds])
    error, log_scale = _cross_validated_error(setup, scores), _log_scale(setup, scores)
    moved = max(float((mean - state.mean).norm()), *(report.refused for report in reports))
    rolled_back = all(report.rolled_back for report in reports)
    gradient, distance = _first_order(setup, folds)
    gap = max(report.gap for report in reports)
    if rolled_back:  # theta is where it was, with the same z, and only the Hessian is multiplied
        gap, distance = state.gap, state.distance
    at_rest = moved <= scheme.tolerance or gradient <= FAR_BELOW * scheme.tolerance
    after = state._replace(
        step=state.step + 1,
        phase="iterate",
        iteration=state.iteration + 1,
        theta=_with_scale(setup, mean, log_scale) if error < state.best else state.theta,
        best=min(error, state.best),
        mean=mean,
        folds=tuple(folds),
        moved=moved,
        gap=gap,
        rollbacks=state.rollbacks + 1 if rolled_back else 0,
        still=state.still + 1 if at_rest and not rolled_back else 0,
        gradient=gradient,
        distance=distance,
    )
    return after, _info("iterate", (error, log_scale), after, reports, scores)


def _first_order(setup: Setup, folds: Sequence[Local]) -> tuple[float, float]:
    """Return the largest |d CV / d theta_j| / CV, CV being the sum of the losses, and the length of a Newton step.

    At the multipliers of a fold the gradient of L is that of its loss, to first order in the gap: this is the
    first-order condition of eq 15. Copies of theta that differ have gradients at different places, so that their
    disagreement counts as well. The Hessians are those of BFGS, without their inflation.
    """
    first_of_group = [group[0] for group in setup.by_group(folds)]
    parts = ((fold.g, fold.B, fold.theta) for fold in first_of_group)
    gs, Bs, copies = map(torch.stack, zip(*parts, strict=True))
    host, penalty = torch.device("cpu"), setup.penalty(setup.problem.theta, 1.0)
    gs, Bs, copies, begin = moved_together([gs, Bs, copies, penalty.begin], host)
    penalty = penalty._replace(begin=begin, free=None if penalty.free is None else penalty.free.to(host))
    B = torch.stack([B / max(local.length, 1.0) for B, local in zip(Bs, first_of_group, strict=True)]).sum(0)
    _, B = penalty.along_floor(copies.mean(0), gs.sum(0), B)
    g = penalty.descending(copies.mean(0), gs.sum(0))
    rows = g != 0.0  # not those at a limit
    disagreement = float((copies - copies.mean(0)).abs().max()) if setup.kappa(1.0) else 0.0
    gradient = float(g.abs().max()) / max(sum(local.loss for local in folds), 1e-30)
    distance = math.inf
    if bool(B.any()) and bool(B.isfinite().all()) and bool(g.isfinite().all()):
        distance = float((torch.linalg.pinv(B[rows][:, rows], hermitian=True) @ g[rows]).norm())
    return max(gradient, disagreement), max(distance, disagreement)


def form_consensus(setup: Setup, state: ConsensusState, folds: list[Local]) -> tuple[Tensor, list[Local]]:
    """Return the consensus [p], and the folds with their multipliers nu updated (eq 16).

    Over-relaxation applies to the copies theta_k as it does to the dual step. Where kappa is 0, the mean is that of
    the copies, which are all the same if there is one group.
    """
    kappa, alpha = setup.kappa(state.best), setup.scheme.relaxation
    copies = torch.stack([local.theta for local in folds])  # [K, p]
    if len(setup.groups) == 1:
        return copies[0].clone(), folds
    if not kappa:
        return projected(setup.problem.kernel, copies.mean(0)), folds
    relaxed = alpha * copies + (1.0 - alpha) * state.mean
    nus = torch.stack([local.nu for local in folds])  # [K, p]
    mean = projected(setup.problem.kernel, (relaxed + nus / kappa).mean(0))
    nus = nus + kappa * (relaxed - mean)
    return mean, [local._replace(nu=nu.clone()) for local, nu in zip(folds, nus, strict=True)]


def _info(
    phase: str,
    error_and_scale: tuple[float, float],
    state: ConsensusState,
    reports: Sequence[FoldReport],
    scores: Sequence[FoldScore],
) -> ConsensusInfo:
    copies = torch.stack([local.theta for local in state.folds])  # [K, p]
    exact = [z for score in scores for z in score.zs]
    all_z = torch.cat([local.z for local in state.folds])
    distances = [(copies - state.mean).norm(dim=1).max(), all_z.norm(), (all_z - torch.cat(exact)).square().sum()]
    disagreement, z_norm, z_gap = torch.stack(distances).tolist()
    return ConsensusInfo(
        phase=phase,
        objective=error_and_scale[0],
        lagrangian=sum(report.lagrangian for report in reports),
        gap=max(report.gap for report in reports),
        slope=max(report.gradient for report in reports),
        disagreement=disagreement,
        rho=math.exp(sum(math.log(local.rho) for local in state.folds) / len(state.folds)),
        z_norm=z_norm,
        z_gap=z_gap,
        scale=error_and_scale[1],
        iterations=sum(report.iterations for report in reports) / len(reports),
        rolled_back=sum(report.rolled_back for report in reports),
        consensus=state.mean.clone(),
        thetas=copies,
    )


def outcome_of(scheme: Scheme, state: ConsensusState) -> Outcome | None:
    """Return why the run ends here, or None where another iteration follows."""
    best = f"The best theta has a cross-validated error of {state.best:.4g}."
    if not math.isfinite(state.best):
        message = "C z = y has no finite solution at any initial theta. Choose other initial values, or more noise."
        return Outcome("diverged", message)
    gradient = f"the largest relative derivative of the error is {state.gradient:.2g}"
    is_refused = state.rollbacks >= scheme.max_rollbacks
    if is_refused and (state.gradient > scheme.tolerance or state.gap > scheme.tolerance):
        way_out = "bound the noise from below" if scheme.theta_method == ELIMINATED else "raise rho"
        way_out = way_out if state.theta.dtype == torch.float64 else f"use dtype float64, or {way_out}"
        message = (
            f"{state.rollbacks} consecutive steps violated C z = y too much and were taken back; {way_out}. {best}"
        )
        return Outcome("diverged", message)
    if (is_refused or state.still >= scheme.patience) and state.gap <= scheme.tolerance:
        if state.gradient <= scheme.tolerance:
            accuracy = (
                f"theta is accurate to about {max(state.distance, state.gap):.1g}, and depends on rounding below that"
            )
            message = f"{gradient.capitalize()}, and the residual of C z = y is {state.gap:.2g}; {accuracy}. {best}"
            return Outcome("converged", message)
        if state.resets >= MAX_RESETS:
            way_out = "Lower cg_tolerance"
            if state.gap > max((fold.tolerance for fold in state.folds), default=math.inf):
                way_out = f"Rounding leaves a residual of C z = y of {state.gap:.2g}; bound the noise from below"
            message = f"theta no longer moves, but {gradient}: this is not a minimum. {way_out}. {best}"
            return Outcome("stopped", message)
    if state.iteration >= scheme.max_iterations:
        return Outcome("budget", f"All {scheme.max_iterations} iterations are done; raise max_iterations. {best}")
    return None
