"""Hyperparameters of a finite basis by marginal likelihood: on a subset first, then in rounds, each with a new choice.

A round is a descent with the basis functions held; their number p stays, so that rounds can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...features.choices import Choice
from ...linalg.blocks import BLOCK_BYTES
from ...linalg.descent import Evaluated, descend
from ...problem import Channel, Cost, Outcome, Problem, Step, channel
from ..subset import learn_on_subset
from .evidence import ON_AXES, gradient, gram
from .state import Info, State

EVALUATION, A_BLOCK = 100.0, 30.0  # calls: factors and the slope's matrices; a block of Phi, forward and back

Phase = Generator[Step, None, State]
Choose = Callable[[Tensor], Choice]  # theta -> basis functions

CHANNELS: tuple[Channel, ...] = (
    channel("objective", "NLML, of the subset at first", "nat"),
    channel("evidence", "NLML on the subset", "nat"),
    channel("fit", "data fit", "nat"),
    channel("kept", "share of the prior variance kept"),
)


def opened(problem: Problem) -> State:
    """The start: nothing learned yet."""
    theta = problem.theta.clone()
    return State(0, "subset", 0, 0, theta, theta.clone(), math.inf, math.inf)


def on_subset(method: Any, problem: Problem, state: State) -> Phase:
    """Where to begin; resumed by replaying its evaluations."""
    found = learn_on_subset(problem, method.seed, method.subset, method.evaluations) if method.learn else ()
    for k, best in enumerate(found):
        if k < state.position:
            continue
        state = state._replace(step=state.step + 1, position=k + 1, theta=best.theta)
        yield Step(state, Info("subset", best.value, evidence=best.value))
    return state._replace(phase="learn", position=0, theta_begin=state.theta.clone())


def rounds(method: Any, problem: Problem, state: State, choose: Choose) -> Generator[Step, None, tuple[State, Outcome]]:
    """Rounds until choosing anew gains nothing."""
    while state.round < method.max_rounds:
        state = yield from _round(method, problem, state, choose(state.theta_begin))
        if not method.learn:
            return state, Outcome("converged", "The weights are found; the hyperparameters stay as they started.")
        gain = state.round_begin - state.objective
        if gain <= method.tolerance * max(abs(state.objective), 1.0):
            return state, Outcome("converged", f"Choosing the basis functions anew gained {max(gain, 0.0):.2g} nat.")
        state = state._replace(
            round=state.round + 1, position=0, theta_begin=state.theta.clone(), round_begin=state.objective
        )
    return state, Outcome("budget", f"All {method.max_rounds} rounds are done; raise max_rounds to go on.")


def _round(method: Any, problem: Problem, state: State, choice: Choice) -> Phase:
    """Evaluations with one choice of basis functions; resumed by replaying them."""
    train, like = problem.train, problem.theta

    def evaluate(point: np.ndarray) -> Evaluated | None:
        theta = torch.as_tensor(point).to(like)
        try:
            now = gram(choice, theta, train, method.map)
            slope = gradient(choice, theta, train, now, method.map)
        except (NotPositiveDefinite, IndexError):  # no factor there, or an eigenvalue fell below rounding
            return None
        return Evaluated(now.value, slope.double().cpu().numpy(), now.fit)

    limit = method.evaluations if method.learn else 1
    begin, kept = state.theta_begin.double().cpu().numpy(), share_kept(problem, state.theta_begin, choice)
    for k, best in enumerate(descend(evaluate, begin, "L-BFGS-B", limit)):
        if k < state.position:
            continue
        better = best.value < state.objective or state.round == 0
        theta = torch.as_tensor(best.point).to(like) if better else state.theta
        state = state._replace(
            step=state.step + 1, position=k + 1, theta=theta, objective=min(best.value, state.objective)
        )
        yield Step(state, Info("learn", state.objective, best.extra or math.nan, kept))
    return state


def share_kept(problem: Problem, theta: Tensor, choice: Choice) -> float:
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
