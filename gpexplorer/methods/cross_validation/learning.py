"""An exact objective of all rows, lowered over theta one evaluation after another: what the rivals here share.

Every evaluation costs n^3, so the answers are remembered in the state: a run taken up again repeats the optimiser's
arithmetic on theta, and no evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.randomness import generator
from ...linalg.scipy_descent import Best, Evaluated, descend
from ...problem import Outcome, Problem, Step
from ..base import Steps
from .scale_direction import direction

STEEPEST = "gradient descent"
OPTIMISERS = ["L-BFGS-B", "CG", STEEPEST]
ARMIJO = 1e-4  # share of the promised fall that a step must keep
LONGEST = 1.0  # the longest first step in log-hyperparameters: a factor of e


class State(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    theta: Tensor  # [p] the best so far
    objective: float  # there
    answers: Tensor  # [k, p + 2] value, log scale and gradient of every evaluation; nan where the objective has none


class Info(NamedTuple):
    """What a step reports."""

    phase: str
    objective: float = math.nan
    slope: float = math.nan
    scale: float = math.nan


class Objective(NamedTuple):
    """What is lowered, and whether the scale that it leaves open is put into theta afterwards."""

    at: Callable[[Tensor], tuple[float, float, Tensor]]  # theta -> value, log scale of all sds, gradient [p]
    scaled: bool = False


def learn(method: Any, problem: Problem, resume: State | None, objective: Objective) -> Steps:
    """Lower `objective` from the problem's theta and `restarts` random ones, `evaluations` each at most."""
    like, state = problem.theta, resume
    if state is None:
        state = State(0, like.clone(), math.inf, like.new_zeros(0, len(like) + 2))
        yield Step(state, Info("start"))
    along = direction(problem) if objective.scaled else None
    memory = list(state.answers)
    recall = iter(state.answers)

    def evaluate(point: np.ndarray) -> Evaluated | None:
        answer = next(recall, None)
        if answer is None:
            answer = _asked(objective, torch.as_tensor(point).to(like))
            memory.append(answer)
        value, scale, *gradient = answer.tolist()
        return Evaluated(value, np.array(gradient), scale) if math.isfinite(value) else None

    lowest = Best(like.double().cpu().numpy(), math.inf, 0.0)
    for k, best in enumerate(_descents(method, like, evaluate)):
        lowest = best if best.value < lowest.value else lowest
        if k >= state.step:
            state = State(k + 1, _scaled(lowest, along, like), lowest.value, torch.stack(memory))
            yield Step(state, Info("learn", lowest.value, _slope(state), lowest.extra))
    return _ending(method, state)


def starts(method: Any, like: Tensor) -> Iterator[Tensor]:
    """The problem's theta, then `restarts` of them a factor of about e away in every log-hyperparameter."""
    yield like
    for k in range(method.restarts):
        moved = torch.randn(len(like), generator=generator(method.seed, "restart", k), dtype=torch.float64)
        yield like + moved.to(like)


def _descents(method: Any, like: Tensor, evaluate: Callable[[np.ndarray], Evaluated | None]) -> Iterator[Best]:
    """Every start's best so far, each descent ended where its slope is within the tolerance."""
    lower = steepest if method.optimiser == STEEPEST else descend
    for start in starts(method, like):
        slope = math.inf

        def watched(point: np.ndarray) -> Evaluated | None:
            nonlocal slope
            here = evaluate(point)
            slope = float(np.abs(here.gradient).max()) if here else math.inf
            return here

        found = lower(watched, start.double().cpu().numpy(), method.optimiser, method.evaluations)
        for best in found:
            yield best
            if slope <= method.tolerance * max(abs(best.value), 1.0):
                break
        found.close()


def _slope(state: State) -> float:
    """The largest at the best point."""
    best = int(state.answers[:, 0].nan_to_num(math.inf).argmin())
    return float(state.answers[best, 2:].abs().max())


def _ending(method: Any, state: State) -> Outcome:
    if not state.step:
        return Outcome("failed", "K + s2 I has no Cholesky factor at any start; start elsewhere, or with more noise.")
    slope, evaluations = _slope(state), len(state.answers)
    if slope <= method.tolerance * max(abs(state.objective), 1.0):
        return Outcome("converged", f"After {evaluations} evaluations the largest slope is {slope:.2g}.")
    return Outcome("budget", f"All {evaluations} evaluations are done; the largest slope is {slope:.2g}.")


def _asked(objective: Objective, theta: Tensor) -> Tensor:
    """One evaluation, as a row of the memory; all nan where there is no factor."""
    try:
        value, scale, gradient = objective.at(theta)
    except NotPositiveDefinite:
        return torch.full((len(theta) + 2,), math.nan).to(theta)
    row = torch.cat([theta.new_tensor([value, scale]), gradient])
    return row if bool(row.isfinite().all()) else torch.full_like(row, math.nan)


def _scaled(best: Best, along: Tensor | None, like: Tensor) -> Tensor:
    theta = torch.as_tensor(best.point).to(like)
    return theta if along is None else theta + best.extra * along


def steepest(
    evaluate: Callable[[np.ndarray], Evaluated | None], start: np.ndarray, _: str, limit: int
) -> Generator[Best, None, None]:
    """Eq 3 with Armijo's rule: the best so far after each of at most `limit` evaluations, like `descend`.

    A step doubles after a success and halves after a failure; its first length is LONGEST.
    """
    here = evaluate(start)
    if here is None:
        return
    point, length = start, LONGEST / max(float(np.linalg.norm(here.gradient)), 1e-12)
    yield Best(point, here.value, here.extra)
    for _k in range(limit - 1):
        trial = point - length * here.gradient
        there = evaluate(trial)
        promised = ARMIJO * length * float(here.gradient @ here.gradient)
        if there is not None and there.value <= here.value - promised:
            point, here, length = trial, there, 2.0 * length
        else:
            length *= 0.5
        yield Best(point, here.value, here.extra)
