"""How many inducing points? More of them between epochs, until the exact model is at most so many nat better.

The exact model's objective lies between the limits of `evidence_limits`. While their difference is larger than the
setting `gap`, the set grows by half between two epochs, by the rows of largest conditional variance, as Burt, Rasmussen
and van der Wilk (2020) choose them; the swaps of the next epoch then improve the whole set. Points are never taken
away, and a factor of n x m numbers is limited to 4e7 of them.

References: Burt, Rasmussen and van der Wilk (2020), Convergence of sparse variational inference, JMLR 21;
Pescador-Barrios, Filippi and van der Wilk (2025), Adjusting model size in continual Gaussian processes: how big is big
enough?, ICML.
"""

from __future__ import annotations

import math

from ....evidence_limits import evidence_limits
from ....problem import Problem
from ..selection.growing_gp import GrowingGP
from ..settings import MOST_ENTRIES
from .state import State

FACTOR = 1.5  # by which the number of points grows


def grown(problem: Problem, state: State, objective: str, gap: float) -> State | None:
    """Return the state at the beginning of an epoch with more points; None if there are enough of them.

    Parameters
    ----------
    problem : Problem
    state : State
        At the end of an epoch.
    objective : {"vfe", "tight-vfe", "pp"}
    gap : float
        Largest difference of the limits of the exact model's objective, in nat; 0 keeps the points.

    Notes
    -----
    About 8 n m^2 flops.
    """
    train, m = problem.train, len(state.inducing)
    most = min(len(train), max(m, int(MOST_ENTRIES / len(train))))
    if gap <= 0.0 or m >= most:
        return None
    limits = evidence_limits(problem.kernel, state.theta, train, train.rows(state.inducing).X)
    if limits.gap <= gap:
        return None
    model = GrowingGP(problem.kernel, state.theta, train, objective, min(most, math.ceil(FACTOR * m)))
    for row in state.inducing.tolist():
        model.add(row)
    before = model.total
    while len(model.rows) < model.most and bool(model.is_eligible.any()):
        model.add(int(model.D.where(model.is_eligible, 0.0).argmax()))
    if len(model.rows) == m or model.total >= before:
        return None
    none = state.inducing[:0]
    return state._replace(
        inducing=model.rows.clone(),
        pivots=none.clone(),
        ranked=none.clone(),
        slots=none.clone(),
        epoch_begin=math.inf,
        objective=model.total,
    )
