"""Hyperparameters of a finite basis by marginal likelihood: on a subset first, then in rounds, each with a new choice.

A round is a descent with the basis functions held; their number p stays, so that rounds can be compared. A new choice
is taken where it makes the rows likelier than the old one does at the same theta, and theta keeps the functions it was
found with: the largest eigenfunctions at one theta may be a poor basis at the theta they led to.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import torch

from ...errors import NotPositiveDefinite
from ...features.basis_choices import Choice
from ...linalg.blocks import BLOCK_BYTES
from ...problem import Channel, Cost, Outcome, Problem, Step, channel
from .evidence import ON_AXES, gram
from .initial_values import Choose, on_subset, trial
from .restarts import Found, Phase, finite, followed, patient
from .state import Info, State

EVALUATION, A_BLOCK = 100.0, 30.0  # calls: factors and the slope's matrices; a block of Phi, forward and back

CHANNELS: tuple[Channel, ...] = (
    channel("objective", "NLML, of the subset at first", "nat"),
    channel("evidence", "NLML on the subset", "nat"),
    channel("fit", "data fit", "nat"),
    channel("kept", "share of the prior variance kept"),
)


def opened(problem: Problem, spacing: str = "") -> State:
    """The start: nothing learned yet."""
    theta = problem.theta.clone()
    return State(0, "subset", 0, 0, theta, theta, math.inf, theta, spacing)


def learned(
    method: Any, problem: Problem, state: State, choose: Choose, spacings: tuple[str, ...]
) -> Generator[Step, None, tuple[State, Outcome]]:
    """Every phase in turn, from wherever the state is."""
    if state.phase == "subset":
        state = yield from on_subset(method, problem, state)
    if state.phase == "trial":
        state = yield from trial(method, problem, state, choose, spacings)
    return (yield from _rounds(method, problem, state, choose, spacings))


def _rounds(
    method: Any, problem: Problem, state: State, choose: Choose, spacings: tuple[str, ...]
) -> Generator[Step, None, tuple[State, Outcome]]:
    """Rounds until choosing anew gains next to nothing; one cut short while it gained goes on, functions and all."""
    while True:
        state = yield from _round(method, problem, state, choose(state.chosen, state.spacing))
        if not method.learn:
            return state, Outcome("converged", "The weights are found; the hyperparameters stay as they started.")
        if state.round + 1 >= method.max_rounds:
            return state, Outcome("budget", f"All {method.max_rounds} rounds are done; raise max_rounds to go on.")
        values = {spacing: _value(method, problem, state, choose(state.theta, spacing)) for spacing in spacings}
        spacing = min(values, key=lambda one: values[one])
        gain, cut = state.objective - values[spacing], state.position >= method.evaluations
        if gain > method.tolerance * max(abs(state.objective), 1.0):
            state = state._replace(chosen=state.theta, spacing=spacing)
        elif not cut:
            return state, Outcome("converged", f"Choosing the basis functions anew gained {max(gain, 0.0):.2g} nat.")
        state = state._replace(round=state.round + 1, position=0, theta_begin=state.theta)


def _round(method: Any, problem: Problem, state: State, choice: Choice) -> Phase:
    """Evaluations with one choice of basis functions; resumed by replaying them."""
    kept = share_kept(problem, state.theta_begin, choice)

    def report(state: State, best: Found) -> Info:
        return Info("learn", state.objective, math.nan if best.fit is None else best.fit, kept)

    found = patient(finite(method, choice, problem.train, state.theta_begin), method.tolerance)
    return (yield from followed(state, found, lambda theta: {}, report))


def _value(method: Any, problem: Problem, state: State, choice: Choice) -> float:
    """NLML of all rows on these functions; infinite where there is no factor."""
    try:
        return gram(choice, state.theta, problem.train, method.map).value
    except NotPositiveDefinite:
        return math.inf


def share_kept(problem: Problem, theta: torch.Tensor, choice: Choice) -> float:
    """Share of the prior variance that the basis functions carry, over at most 500 rows."""
    X = problem.train.X[:500]
    with torch.no_grad():
        carried = choice(theta)(X).square().sum()
    return float(carried / problem.kernel.diag(theta, X).sum())


def cost(problem: Problem, p: float, calls: float) -> Cost:
    """Of one evaluation with its gradient, p basis functions; `calls` are those that make them and differentiate."""
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    rows = min(n, BLOCK_BYTES / (s * (3.0 * p + ON_AXES * d)))  # of a block of the slope, the smaller one
    arrays = {"Gram matrix and factors": 4.0 * s * p * p, "block of Phi": 8.0 * s * rows * p}
    calls += EVALUATION + A_BLOCK * 4.5 * s * n * p / BLOCK_BYTES
    return Cost(4.0 * n * p * p + 8.0 * n * p * d + p**3, 6.0 * s * n * p, arrays, calls)
