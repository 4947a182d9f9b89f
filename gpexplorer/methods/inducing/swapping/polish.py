"""Polishing: once swaps converge, the chosen points leave their rows and follow the gradient of the same objective.

    min over theta and Z of F(theta, Z),   Z [m, d] no longer restricted to rows

Rows are only a few of all places, so a choice of rows can be improved by moving the points. In turn, a descent that
starts from rows chosen by swaps starts close to where a descent from random rows ends. Points and hyperparameters
(where these are learned) move together in one run of SciPy's L-BFGS. Its memory is not part of the state, so polishing
is resumed by repeating its evaluations. Inputs without a gradient (strings, counts, molecules) have to stay at rows.
"""

from __future__ import annotations

from functools import partial

from ....problem import Outcome, Problem, Step
from ...base import Steps
from ..moving.loop import Descent, descent_steps
from ..moving.sparse_objectives import sparse_gradient
from ..moving.state import State as MovingState
from ..reporting import UNKNOWN_TERMS
from .state import Info, State


def polish(problem: Problem, state: State, objective: str, learn: bool, limit: int) -> Steps:
    """Yield one step per evaluation of the objective and its gradient.

    Parameters
    ----------
    problem : Problem
    state : State
        The state after the last swap, or one of this phase.
    objective : {"vfe", "tight-vfe", "pp"}
    learn : bool
        Whether the hyperparameters move too.
    limit : int
        Evaluations, at most.

    Notes
    -----
    About 6 n m^2 flops per evaluation.
    """
    descent = Descent(
        model_and_gradient=partial(sparse_gradient, likelihood=objective),
        likelihood=objective,
        learn=learn,
        optimiser="L-BFGS-B",
        limit=limit,
    )
    if state.phase != "polish":
        Z = problem.train.X[state.inducing]  # [m, d]
        state = state._replace(
            phase="polish", position=0, Z=Z, Z_begin=Z.clone(), theta_begin=state.theta, epoch_begin=state.objective
        )
    for step in descent_steps(problem, _as_moving(state), descent):
        moved, info = step.state, step.info
        state = state._replace(
            step=moved.step, position=moved.position, Z=moved.Z, theta=moved.theta, objective=info.objective
        )
        yield Step(
            state,
            Info(
                phase="polish",
                objective=info.objective,
                fit=info.fit,
                logdet=info.logdet,
                trace=info.trace,
                moved=info.moved,
                jitter=info.jitter,
                exact_least=info.exact_least,
            ),
        )
    message = (
        f"Swaps ended at objective {state.epoch_begin:.5g}. {state.position} evaluations then moved the points off "
        f"their rows, which decreased it to {state.objective:.5g}."
    )
    return Outcome("converged" if state.position < limit else "budget", message)


def _as_moving(state: State) -> MovingState:
    """Return the part of the state that moves, as a state of the methods with moving points."""
    assert state.Z is not None
    assert state.Z_begin is not None
    return MovingState(
        step=state.step,
        epoch=0,
        phase="move",
        position=state.position,
        Z=state.Z,
        theta=state.theta,
        Z_begin=state.Z_begin,
        theta_begin=state.theta_begin,
        terms=UNKNOWN_TERMS,
        epoch_begin=state.epoch_begin,
    )
