"""An inducing point put elsewhere by hand: what the bound becomes, and a state to go on from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...objectives import Terms
from ...problem import Problem, Step
from .forced import forced
from .moving import state as inputs
from .moving.sparse_objectives import sparse_model, total_objective
from .swapping import cholqr
from .swapping.state import State


def movable(method: Any, state: Any) -> bool:
    """Whether `dragged` knows how to put a point of this state elsewhere."""
    return isinstance(state, inputs.State) or (isinstance(method, cholqr.CholQR) and isinstance(state, State))


def dragged(method: Any, problem: Problem, state: Any, slot: int, to: Tensor) -> Step:
    """The step that leaves inducing point `slot` at `to` [d], scaled, theta as it was. About 4 n m^2 flops.

    Where points are rows of the data it becomes the nearest row that is no inducing point yet. Raises SettingError
    where that row is explained by the others.
    """
    if isinstance(state, State):
        return forced(method, problem, state, _nearest(problem.train.X, to, state.inducing), slot)
    likelihood = getattr(method, "likelihood", None) or method.objective
    Z = state.Z.clone()
    Z[slot] = to
    now = sparse_model(problem.kernel, state.theta, problem.train, Z, likelihood)
    after = state._replace(
        step=state.step + 1,
        phase="move",
        position=0,
        Z=Z,
        Z_begin=Z.clone(),
        theta_begin=state.theta.clone(),
        terms=now.terms,
        epoch_begin=total_objective(now.terms, likelihood),
    )
    report = inputs.report(after, "vfe" if likelihood == "vfe" else "pp", state.Z, now.jitter)
    return Step(after, report._replace(phase="forced"))


def bound(method: Any, problem: Problem, state: Any) -> Terms:
    """The terms of the bound at a state, where its report has none: the start, before any work."""
    Z = state.Z if isinstance(state, inputs.State) else problem.train.rows(state.inducing).X
    likelihood = getattr(method, "likelihood", None) or method.objective
    return sparse_model(problem.kernel, state.theta, problem.train, Z, likelihood).terms


def _nearest(X: Tensor, to: Tensor, taken: Tensor) -> int:
    far = (X - to).square().sum(1)
    far[taken] = torch.inf
    return int(far.argmin())
