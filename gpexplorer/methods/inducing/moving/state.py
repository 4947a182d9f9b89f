"""State, report and channels of the methods whose inducing inputs Z may lie between the rows of the data."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from ....errors import SettingError
from ....objectives import Terms
from ....problem import Problem, described_rows
from ..distinct_rows import random_order
from ..reporting import UNKNOWN_TERMS, Complexity, ExactLeast, Fit, Jitter, Moved, Objective, Trace, halves


class MovingState(NamedTuple):
    """All that the trajectory depends on: O(m d) numbers."""

    Z: Tensor  # [m, d] inducing inputs
    theta: Tensor  # [p]
    Z_begin: Tensor  # [m, d] at the beginning of this phase
    theta_begin: Tensor  # [p]
    terms: Terms = UNKNOWN_TERMS
    step: int = 0
    epoch: int = 0
    phase: str = "start"  # "start" | "move" | "learn": what the step was part of
    position: int = 0  # steps done in this phase
    epoch_begin: float = math.inf  # F when the epoch began


class MovingInfo(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: Objective = math.nan
    fit: Fit = math.nan
    logdet: Complexity = math.nan
    trace: Trace = math.nan
    moved: Moved = math.nan
    jitter: Jitter = 0.0
    exact_least: ExactLeast = math.nan


START = MovingInfo("start")


def initial_state(problem: Problem, m: int, seed: int, title: str) -> MovingState:
    """Return the state before any work, with Z at random rows.

    Raises
    ------
    SettingError
        The inputs are not columns of numbers.
    """
    X = continuous_inputs(problem, title)
    Z, theta = X[random_order(problem, seed)[:m]].clone(), problem.theta.clone()
    return MovingState(Z=Z, theta=theta, Z_begin=Z.clone(), theta_begin=theta.clone())


def points_can_move(problem: Problem) -> bool:
    """Return whether inducing inputs may lie between the rows: the inputs are numbers, and the kernel is smooth."""
    kernel = problem.kernel
    is_smooth = getattr(kernel, "inputs", "real") == "real" and not getattr(kernel, "compares", False)
    return isinstance(problem.train.X, Tensor) and is_smooth


def continuous_inputs(problem: Problem, title: str) -> Tensor:
    """Return the inputs [n, d]; raise SettingError where inducing inputs cannot lie between them."""
    X, kernel = problem.train.X, problem.kernel
    if points_can_move(problem):
        return X
    reason = f"the inputs are {described_rows(X)}"
    if isinstance(X, Tensor):
        what = "asks only which numbers are equal" if getattr(kernel, "compares", False) else "takes counts"
        reason = f"kernel {kernel.key!r} {what}, and has no gradient in them"
    raise SettingError(
        f"{title} moves inducing inputs between the rows, which needs columns of numbers, but {reason}; choose points "
        "from the data with cholqr (polish 0) or titsias."
    )


def report(
    state: MovingState, objective: str, moved: float, jitter: float, exact_least: float = math.nan
) -> MovingInfo:
    """Report a step that moved the points by this distance."""
    return MovingInfo(state.phase, state.terms.total(objective), *halves(state.terms), moved, jitter, exact_least)


def distance_moved(Z: Tensor, before: Tensor) -> float:
    """Return the root mean square of the distances between points, nan where their number differs."""
    return float((Z - before).norm()) / math.sqrt(len(before)) if before.shape == Z.shape else math.nan
