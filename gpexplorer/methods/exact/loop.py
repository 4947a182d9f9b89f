"""What the solvers share: learn theta on a subset, then iterate until the gradient, from scratch, is small.

A solver is a generator of moves; whether one may stop is decided here, on a gradient that no rounding has touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...problem import Channel, Outcome, Problem, Step, channel
from ..base import Steps
from ..fixed_subset import learn_on_subset
from .system import Move, System

GIGABYTE = 1e9

CHANNELS: tuple[Channel, ...] = (
    channel("objective", "quadratic f(alpha)", monotone=True),
    channel("largest", "largest gradient |g|", log=True),
    channel("norm", "gradient norm", log=True),
    channel("evidence", "NLML on the subset", "nat"),
    channel("drift", "drift of the carried gradient", log=True),
)

RESTLESS = (replace(CHANNELS[0], monotone=False), *CHANNELS[1:])  # with momentum it may rise
ONE_STEP = RESTLESS  # of a method that leaves no series


class State(NamedTuple):
    """All that the trajectory depends on: alpha and, for some solvers, a few more [n]."""

    step: int
    phase: str  # "learn" | "solve": what the step was part of
    position: int  # steps done in this phase
    theta: Tensor  # [p]
    alpha: Tensor  # [n]
    memory: tuple[Tensor, ...]
    largest: float  # |g|_inf, from scratch where it is within the tolerance
    gradient: Tensor  # [n] as carried where the columns are of lower precision; else empty, for it can be had again


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply; f(0) = 0 whatever theta is."""

    phase: str
    objective: float = math.nan
    largest: float = math.nan
    norm: float = math.nan
    evidence: float = math.nan
    drift: float = math.nan
    active: Tensor = torch.zeros(0, dtype=torch.int64)
    gains: Tensor = torch.zeros(0)  # of the active rows, each alone, when it was chosen


def solve(method: Any, problem: Problem, resume: State | None) -> Steps:
    """Steps of a solver: one evaluation of the likelihood each while it learns, one iteration each after that."""
    state, none = resume, problem.train.y.new_zeros(0)
    if state is None:
        zero = torch.zeros_like(problem.train.y)
        state = State(0, "learn", 0, problem.theta.clone(), zero, (), math.inf, none)
        yield Step(state, Info("start", 0.0))
    if state.phase == "learn":
        if method.learn:
            state = yield from learning(method, problem, state, partial(Info, objective=0.0))
        state = state._replace(phase="solve", position=0)

    system = System(problem, state.theta, method.cache * GIGABYTE, method.mixed, method.map)
    over = _ending(method, state)
    if len(state.gradient):
        system.carry(state.alpha, state.gradient)
    moves = method.moves(system, state)
    while over is None:
        move = next(moves, None)
        if move is None:
            return Outcome("converged", f"The system is solved; the largest gradient is {state.largest:.2g}.")
        move, drift = _refreshed(method, system, move, state.position + 1)
        largest = float(move.gradient.abs().max())
        state = state._replace(
            step=state.step + 1,
            position=state.position + 1,
            alpha=move.alpha.clone(),
            memory=tuple(part.clone() for part in move.memory),
            largest=largest,
            gradient=move.gradient.clone() if system.mixed else none,
        )
        yield Step(state, _info(system, move, largest, drift))
        over = _ending(method, state)
        if not math.isnan(drift) and over is None:
            system.carry(state.alpha, move.gradient)
            moves = method.moves(system, state)
    return over


def _refreshed(method: Any, system: System, move: Move, position: int) -> tuple[Move, float]:
    """The move with its gradient from scratch, and the drift, where it may be the last or a refresh is due.

    A solver then starts again from there, without what it remembered: that belongs to the gradient that drifted.
    """
    due = method.refresh and position % method.refresh == 0
    if not due and not float(move.gradient.abs().max()) <= method.tolerance:
        return move, math.nan
    exact = system.gradient(move.alpha)
    return move._replace(gradient=exact, memory=()), float((exact - move.gradient).abs().max())


def _ending(method: Any, state: State) -> Outcome | None:
    """Why no further iteration is taken after this state, if none is."""
    if state.position and not math.isfinite(state.largest):
        return Outcome("diverged", f"The gradient is not finite after {state.position} iterations.")
    if state.position and state.largest <= method.tolerance:
        return Outcome(
            "converged", f"No gradient exceeds {state.largest:.2g}, within the tolerance {method.tolerance:g}."
        )
    if state.position >= method.max_iterations:
        return Outcome("budget", f"All {method.max_iterations} iterations are done; raise max_iterations to go on.")
    return None


def _info(system: System, move: Move, largest: float, drift: float) -> Info:
    active = torch.zeros(0, dtype=torch.int64) if move.active is None else move.active.clone()
    gains = move.gradient.new_zeros(0) if move.gains is None else move.gains.clone()
    value = system.value(move.alpha, move.gradient)
    return Info("solve", value, largest, float(move.gradient.norm()), drift=drift, active=active, gains=gains)


def learning(method: Any, problem: Problem, state: Any, report: Callable[..., Any]) -> Generator[Step, None, Any]:
    """Maximum likelihood on a subset, for any state and info; resumed by replaying its evaluations."""
    for k, best in enumerate(learn_on_subset(problem, method.seed, method.subset, method.evaluations)):
        if k < state.position:
            continue
        state = state._replace(step=state.step + 1, position=k + 1, theta=best.theta)
        yield Step(state, report("learn", evidence=best.value))
    return state
