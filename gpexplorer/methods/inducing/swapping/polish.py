"""Polishing: once swaps stall, the chosen points leave their rows and follow the gradient of the same objective.

No choice of rows reaches what moved points can, since rows are a few of all places; in turn a descent from rows that
swaps have chosen begins where a descent from random rows arrives late. Points and hyperparameters (where they are
learned) move together in one life of SciPy's L-BFGS, whose memory is not part of the state: a run is taken up by
replaying its evaluations. Inputs without a gradient (strings, counts, molecules) have to stay at rows.
"""

from __future__ import annotations

from functools import partial

from ....objectives import Terms
from ....problem import Outcome, Problem, Step
from ...base import Steps
from ..moving import state as inputs
from ..moving.loop import Descent, descent_steps
from ..moving.sparse_objectives import sparse_gradient
from .state import Info, State


def polished(problem: Problem, state: State, objective: str, learn: bool, limit: int) -> Steps:
    """Steps of the last phase, each one of at most `limit` evaluations of objective and gradient."""
    gradient = partial(sparse_gradient, likelihood=objective)
    descent = Descent(gradient, objective, learn, "L-BFGS-B", limit)
    if state.phase != "polish":
        Z = problem.train.X[state.inducing]
        state = state._replace(
            phase="polish", position=0, Z=Z, Z_begin=Z.clone(), theta_begin=state.theta, epoch_begin=state.objective
        )
    for step in descent_steps(problem, _moving(state), descent):
        at, info = step.state, step.info
        state = state._replace(step=at.step, position=at.position, Z=at.Z, theta=at.theta, objective=info.objective)
        told = Info("polish", info.objective, info.fit, info.logdet, info.trace, moved=info.moved, jitter=info.jitter)
        yield Step(state, told)
    return Outcome("converged" if state.position < limit else "budget", _said(state))


def _moving(state: State) -> inputs.State:
    """The part that moves, as the loop of the rivals with moving points holds it."""
    assert state.Z is not None
    assert state.Z_begin is not None
    unknown = Terms(*(float("nan"),) * 3)
    counts, places = (state.step, 0, "move", state.position), (state.Z, state.theta, state.Z_begin, state.theta_begin)
    return inputs.State(*counts, *places, unknown, state.epoch_begin)


def _said(state: State) -> str:
    return (
        f"Swaps ended at {state.epoch_begin:.5g}; {state.position} evaluations moved the points off their rows, down "
        f"to {state.objective:.5g}. No choice of rows has to reach what moved points can."
    )
