"""What follows the swaps of an epoch: hyperparameters are learned, the number of points may change, points may move.

*Learning* is the continuous phase of Cao et al. 2013, section 3.4: nonlinear conjugate gradients, the points fixed.

*Resizing* answers how many inducing points there should be: as many as are needed until the exact model is at most so
many nat better. The exact model's objective lies between the limits of `evidence_limits`. Between two epochs the
present points are ordered by the variance that those before them leave, as Burt, Rasmussen and van der Wilk (2020)
choose points, and other rows follow in the same order. The set becomes the shortest beginning of this order whose
limits differ by at most the setting `gap`: larger by at most half, or smaller if the hyperparameters learned since need
fewer points. The swaps of the next epoch then improve the whole set. A factor of n x m numbers is limited to 4e7.

*Polishing* ends a run: the chosen points leave their rows and follow the gradient of the same objective.

    min over theta and Z of F(theta, Z),   Z [m, d] no longer restricted to rows

Rows are only a few of all places, so a choice of rows can be improved by moving the points; and a descent from rows
that swaps chose starts close to where a descent from random rows ends. Points and hyperparameters (where these are
learned) move together in one run of SciPy's L-BFGS, whose memory is not part of the state, so that polishing is resumed
by repeating its evaluations. Inputs without a gradient (strings, counts, molecules) have to stay at rows.

References: Burt, Rasmussen and van der Wilk (2020), Convergence of sparse variational inference, JMLR 21;
Pescador-Barrios, Filippi and van der Wilk (2025), Adjusting model size in continual Gaussian processes: how big is big
enough?, ICML.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import partial

import torch

from ....evidence_limits import EvidenceLimits, least_from
from ....objectives import log_variance_ratio
from ....problem import Outcome, Problem, Step
from ...base import Steps
from ..learning import learn_hyperparameters
from ..moving.loop import Descent, descent_steps, sparse_gradient
from ..moving.state import MovingState
from ..reporting import halves
from ..selection.streamed_gp import GrowingGP
from ..settings import MOST_ENTRIES, SparseMethod
from .state import SwapInfo, SwapState

FACTOR = 1.5  # by which the number of points grows at most between two epochs
SPACING = 1.05  # ratio of the numbers of points at which the limits are computed
FEWER = 0.9  # points are taken away only if this part of them is enough
AUTO = {"num_inducing": 32, "gap": 3.0}  # what num_inducing="auto" stands for

Phase = Generator[Step, None, SwapState]


# -- learning ----------------------------------------------------------------------------------------------------------


def learning_phase(problem: Problem, state: SwapState, method: SparseMethod, phase: str = "learn") -> Phase:
    """The continuous phase: hyperparameters by nonlinear conjugate gradients, the inducing points fixed.

    Its states have the phase `phase`. So has the report of its first step, and that of the others "learn".
    """
    Z = problem.train.rows(state.inducing).X
    evaluations = learn_hyperparameters(problem, Z, method, state.theta_begin, state.position)
    for position, theta, terms, jitter in evaluations:
        objective = terms.total(method.objective)
        state = state._replace(step=state.step + 1, phase=phase, position=position, theta=theta, objective=objective)
        yield Step(state, SwapInfo(phase if position == 1 else "learn", objective, *halves(terms), jitter=jitter))
    return state


# -- resizing ----------------------------------------------------------------------------------------------------------


def most_points(n: int, m: int) -> int:
    """Return the largest number of points to which a set of m may grow on n rows."""
    return min(n, max(m, int(MOST_ENTRIES / n)))


def resized(problem: Problem, state: SwapState, objective: str, gap: float) -> tuple[SwapState | None, EvidenceLimits]:
    """Return the state at the beginning of an epoch with more or fewer points, and the limits with its points.

    Parameters
    ----------
    state : SwapState
        At the end of an epoch.
    objective : {"vfe", "tight-vfe", "pp"}
    gap : float
        Largest difference of the limits of the exact model's objective, in nat.

    Returns
    -------
    state : SwapState or None
        None if the number of points stays, because it is right, or because it cannot grow.
    limits : EvidenceLimits
        With the points of the state that is returned, or of the present one.

    Notes
    -----
    About 9 n m^2 flops and n m kernel entries.
    """
    train, m = problem.train, len(state.inducing)
    most = min(most_points(len(train), m), math.ceil(FACTOR * m))
    model = GrowingGP(problem.kernel, state.theta, train, objective, most)
    yy, is_present = float(train.y @ train.y), torch.zeros_like(train.y, dtype=torch.bool)
    is_present[state.inducing] = True

    def add_present() -> bool:
        D = model.D.where(is_present & model.is_eligible, 0.0)
        row = int(D.argmax())
        if float(D[row]) > 0.0:
            model.add(row)
        return float(D[row]) > 0.0

    limits, due = limits_of(model, yy), 1
    while len(model.rows) < m and limits.gap > gap and add_present():
        if len(model.rows) >= due or len(model.rows) == m:
            limits, due = limits_of(model, yy), math.ceil(SPACING * len(model.rows) + 1)
    if limits.gap <= gap:
        if len(model.rows) > FEWER * m:
            return None, limits
        return _with_points(state, model), limits
    k = len(model.rows)
    while len(model.rows) < most and limits.gap > gap and bool(model.is_eligible.any()):
        model.add(int(model.D.where(model.is_eligible, 0.0).argmax()))
        if len(model.rows) >= due or len(model.rows) == most:
            limits, due = limits_of(model, yy), math.ceil(SPACING * len(model.rows) + 1)
    return (_with_points(state, model) if len(model.rows) > k else None), limits


def resize(
    problem: Problem, state: SwapState, objective: str, gap: float
) -> Generator[Step, None, tuple[SwapState | None, str]]:
    """Yield a step if the number of points changes; return its state or None, and a sentence on the distance.

    The step has the phase "resize", in which the objective may rise. See `resized`; a gap of 0 changes nothing.
    """
    if not gap:
        return None, ""
    changed, limits = resized(problem, state, objective, gap)
    if changed is not None:
        yield Step(changed, SwapInfo("resize", changed.objective, exact_least=limits.least, gap=limits.gap))
    m = len(state.inducing)
    sentence = f" With {m:,} points: a{limits.sentence()[1:]}"
    if limits.gap > gap:
        most = most_points(len(problem.train), m)
        why = "every row is explained" if m < most else "a factor with more points would be too large"
        sentence += f" That is more than the gap of {gap:g}, but {why}."
    return changed, sentence


def limits_of(model: GrowingGP, yy: float) -> EvidenceLimits:
    """Return the limits of the exact model's objective with the points added so far: k^3 flops.

    Parameters
    ----------
    yy : float
        y'y.
    """
    fit, complexity = model.terms.fit, model.terms.complexity
    R, h = model.gaussian.L, model.gaussian.h
    least = least_from(R @ R.T, R @ h, yy, model.s2, float(model.D.sum()), complexity)
    return EvidenceLimits(least, 0.5 * (fit + complexity + log_variance_ratio(model.D, model.s2)))


def _with_points(state: SwapState, model: GrowingGP) -> SwapState:
    none = state.inducing[:0]
    return state._replace(
        step=state.step + 1,
        epoch=state.epoch + 1,
        phase="swap",
        position=0,
        accepted=0,
        inducing=model.rows.clone(),
        pivots=none.clone(),
        ranked=none.clone(),
        slots=none.clone(),
        epoch_begin=math.inf,
        objective=model.total,
    )


# -- polishing ---------------------------------------------------------------------------------------------------------


def polish(problem: Problem, state: SwapState, objective: str, learn: bool, limit: int) -> Steps:
    """Yield one step per evaluation of the objective and its gradient.

    Parameters
    ----------
    state : SwapState
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
    descent = Descent(partial(sparse_gradient, likelihood=objective), objective, learn, "L-BFGS-B", limit)
    if state.phase != "polish":
        Z = problem.train.X[state.inducing]  # [m, d]
        state = state._replace(
            phase="polish", position=0, Z=Z, Z_begin=Z.clone(), theta_begin=state.theta, epoch_begin=state.objective
        )
    assert state.Z is not None and state.Z_begin is not None
    moving = MovingState(state.Z, state.theta, state.Z_begin, state.theta_begin, step=state.step, phase="move")
    moving = moving._replace(position=state.position, epoch_begin=state.epoch_begin)
    for step in descent_steps(problem, moving, descent):
        moved, info = step.state, step.info
        state = state._replace(
            step=moved.step, position=moved.position, Z=moved.Z, theta=moved.theta, objective=info.objective
        )
        yield Step(state, SwapInfo(**info._asdict() | {"phase": "polish"}))
    message = (
        f"Swaps ended at objective {state.epoch_begin:.5g}. {state.position} evaluations then moved the points off "
        f"their rows, which decreased it to {state.objective:.5g}."
    )
    return Outcome("converged" if state.position < limit else "budget", message)
