"""The loop over folds: prepare, then theta, z and dual steps of every fold, the consensus, and a judgement of it.

mean = sum_k (theta_k + nu_k / kappa) / K,  nu_k += kappa (theta_k - mean)                       eq 16
kappa = 0 ties nothing: K hold-out runs, averaged                                                the naive scheme

Folds are independent pieces of work for the method's `map`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from ...problem import Outcome, Problem, Step
from ..base import Steps
from .fold_steps import Judged, Local, Report, Rules, advance, judge, prepare
from .folds import split
from .learning import starts
from .scale_direction import direction
from .state import Info, State
from .theta_step import Pull

SPAN = 8.0  # log-hyperparameters stay this close to where they began


@dataclass(frozen=True, eq=False)
class Setup:
    """What does not change from step to step."""

    method: Any
    problem: Problem
    folds: Sequence[Any]
    rules: Rules
    along: Tensor | None  # [p] the direction of scale

    def kappa(self, best: float) -> float:
        """kappa at this cross-validated error: in the units of a fold's loss, whatever noise the targets have."""
        rows = sum(len(fold.y) - fold.trained for fold in self.folds) / len(self.folds)
        return float(self.method.coupled * rows * best) if self.method.coupled else 0.0

    def pull(self, mean: Tensor, best: float) -> Pull:
        """What ties a fold."""
        u = torch.zeros_like(mean) if self.along is None else self.along / self.along.norm()
        return Pull(mean, self.kappa(best), u, self.problem.theta, SPAN)


def run(method: Any, problem: Problem, resume: State | None) -> Steps:
    """Algorithm 1 over all folds; see the method's settings for every safeguard."""
    state, theta = resume, problem.theta
    if state is None:
        state = State(0, "start", 0, theta.clone(), math.inf, theta.clone(), (), math.inf, math.inf, 0, 0)
        yield Step(state, Info("start"))
    setup = _setup(method, problem)
    if state.phase == "start":
        state, info = _prepared(setup, state)
        yield Step(state, info)
    ending = _ending(method, state)
    while ending is None:
        state, info = _iterated(setup, state)
        yield Step(state, info)
        ending = _ending(method, state)
    return ending


def _setup(method: Any, problem: Problem) -> Setup:
    folds = split(problem, method.validation(len(problem.train)), method.seed, method.memory)
    return Setup(method, problem, folds, method.rules(), direction(problem))


def _judged(setup: Setup, theta: Tensor, zs: Sequence[Tensor]) -> list[Judged]:
    return list(setup.method.map(judge, setup.folds, repeat(theta, len(zs)), zs, repeat(setup.rules, len(zs))))


def _error(setup: Setup, judged: Sequence[Judged]) -> float:
    """Mean squared error over all rows held out; infinite where it is not a number."""
    error = sum(one.loss for one in judged) / sum(len(fold.y) - fold.trained for fold in setup.folds)
    return error if math.isfinite(error) else math.inf


def _scale(setup: Setup, judged: Sequence[Judged]) -> float:
    """log c of the scale c^2 = y'C^-1 y / n at which the evidence is highest, all folds together."""
    energy = sum(one.energy for one in judged) / sum(fold.trained for fold in setup.folds)
    return 0.5 * math.log(energy) if math.isfinite(energy) and energy > 0.0 else 0.0


def _scaled(setup: Setup, mean: Tensor, scale: float) -> Tensor:
    return mean.clone() if setup.along is None or not setup.method.calibrate else mean + scale * setup.along


def _prepared(setup: Setup, state: State) -> tuple[State, Info]:
    """Of all starts, the one of the lowest cross-validated error, and the folds prepared there."""
    method, count = setup.method, len(setup.folds)
    found: list[tuple[float, Tensor, list[Judged]]] = []
    for theta in starts(method, setup.problem.theta):
        judged = _judged(setup, theta, [fold.y.new_zeros(fold.trained) for fold in setup.folds])
        found.append((_error(setup, judged), theta, judged))
    error, mean, judged = min(found, key=lambda one: one[0])
    if not math.isfinite(error):
        return state._replace(step=1, phase="prepare"), Info("prepare")
    same = [repeat(one, count) for one in (mean, setup.rules, method.dual_start, setup.pull(mean, error))]
    folds = tuple(method.map(prepare, setup.folds, *same))
    scale = _scale(setup, judged)
    theta = _scaled(setup, mean, scale)
    state = State(1, "prepare", 0, theta, error, mean.clone(), folds, math.inf, math.inf, 0, 0)
    return state, _info("prepare", error, scale, state, [Report() for _ in folds], judged)


def _iterated(setup: Setup, state: State) -> tuple[State, Info]:
    """One outer iteration of every fold, the consensus, and its cross-validated error."""
    method, count = setup.method, len(setup.folds)
    pulls, rules = repeat(setup.pull(state.mean, state.best), count), repeat(setup.rules, count)
    advanced = list(method.map(advance, setup.folds, state.folds, pulls, rules))
    folds, reports = [local for local, _ in advanced], [report for _, report in advanced]
    mean, folds = _agreed(setup, state, folds)
    judged = _judged(setup, mean, [local.z for local in folds])
    error, scale = _error(setup, judged), _scale(setup, judged)
    moved = max(float((mean - state.mean).norm()), *(report.refused for report in reports))
    better = error < state.best
    after = State(
        state.step + 1,
        "iterate",
        state.iteration + 1,
        _scaled(setup, mean, scale) if better else state.theta,
        min(error, state.best),
        mean,
        tuple(folds),
        moved,
        max(report.gap for report in reports),
        state.rollbacks + 1 if all(report.rolled_back for report in reports) else 0,
        state.still + 1 if moved <= method.tolerance else 0,
    )
    return after, _info("iterate", error, scale, after, reports, judged)


def _agreed(setup: Setup, state: State, folds: list[Local]) -> tuple[Tensor, list[Local]]:
    """The consensus, and the folds with their multipliers brought up to it; over-relaxed as the dual step is."""
    kappa, alpha, before = setup.kappa(state.best), setup.method.relaxation, state.mean
    copies = torch.stack([local.theta for local in folds])  # [K, p]
    if not kappa:
        return copies.mean(0), folds
    relaxed = alpha * copies + (1.0 - alpha) * before
    nus = torch.stack([local.nu for local in folds])
    mean = (relaxed + nus / kappa).mean(0)
    nus = nus + kappa * (relaxed - mean)
    return mean, [local._replace(nu=nu.clone()) for local, nu in zip(folds, nus, strict=True)]


def _info(
    phase: str, error: float, scale: float, state: State, reports: Sequence[Report], judged: Sequence[Judged]
) -> Info:
    copies = torch.stack([local.theta for local in state.folds])
    gaps = [(local.z - one.z).square().sum() for local, one in zip(state.folds, judged, strict=True)]
    return Info(
        phase,
        error,
        sum(report.lagrangian for report in reports),
        max(report.gap for report in reports),
        max(report.slope for report in reports),
        float((copies - state.mean).norm(dim=1).max()),
        math.exp(sum(math.log(local.rho) for local in state.folds) / len(state.folds)),
        float(torch.cat([local.z for local in state.folds]).norm()),
        float(sum(gaps)),
        scale,
        sum(report.iterations for report in reports) / len(reports),
        sum(report.rolled_back for report in reports),
        state.mean.clone(),
        copies,
    )


def _ending(method: Any, state: State) -> Outcome | None:
    """Why no further iteration follows, if none does."""
    where = f"the best theta has cross-validated error {state.best:.4g}"
    if not math.isfinite(state.best):
        return Outcome("diverged", "C z = y has no finite solution at the start; start elsewhere, or with more noise.")
    if state.rollbacks >= method.max_rollbacks:
        text = f"{state.rollbacks} steps in a row broke C z = y by too much and were taken back; {where}."
        return Outcome("diverged", text)
    if state.still >= method.patience and state.gap <= method.tolerance:
        text = f"theta moved by {state.moved:.2g} and C z = y holds to {state.gap:.2g}; {where}."
        return Outcome("converged", text)
    if state.iteration >= method.max_iterations:
        return Outcome("budget", f"All {method.max_iterations} iterations are done; {where}.")
    return None
