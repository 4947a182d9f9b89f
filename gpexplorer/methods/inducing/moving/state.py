"""What the rivals share whose inducing inputs Z are points of their own, not rows of the data."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ....errors import SettingError
from ....objectives import Terms
from ....problem import Channel, Posterior, Prediction, Problem, channel
from ..lloyd import nearest
from ..selection.loop import random_order

CHANNELS: tuple[Channel, ...] = (
    channel("objective", "objective F", "nat"),
    channel("fit", "data fit, E_D / 2", "nat"),
    channel("logdet", "complexity, E_C / 2", "nat"),
    channel("trace", "trace, E_V / 2", "nat"),
    channel("moved", "how far the points moved, rms", "sd of x", log=True),
    channel("jitter", "jitter on K_mm", log=True),
)


class State(NamedTuple):
    """All that the trajectory depends on: O(m d) numbers."""

    step: int
    epoch: int
    phase: str  # "start" | "move" | "learn": what the step was part of
    position: int  # steps done in this phase
    Z: Tensor  # [m, d] inducing inputs
    theta: Tensor  # [p]
    Z_begin: Tensor  # [m, d] where this phase began
    theta_begin: Tensor  # [p]
    terms: Terms
    epoch_begin: float  # F when the epoch began


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: float
    fit: float
    logdet: float
    trace: float
    moved: float = math.nan
    jitter: float = 0.0


START = Info("start", math.nan, math.nan, math.nan, math.nan)


def begun(problem: Problem, m: int, seed: int, title: str) -> State:
    """The state before any work: Z at random rows. SettingError where the inputs are not columns of numbers."""
    X = movable(problem, title)
    Z, theta = X[random_order(problem, seed)[:m]].clone(), problem.theta.clone()
    unknown = Terms(math.nan, math.nan, math.nan)
    return State(0, 0, "start", 0, Z, theta, Z.clone(), theta.clone(), unknown, math.inf)


def may_move(problem: Problem) -> bool:
    """Whether points may lie between the rows."""
    return isinstance(problem.train.X, Tensor) and getattr(problem.kernel, "inputs", "real") == "real"


def movable(problem: Problem, title: str) -> Tensor:
    """The inputs [n, d], where points may lie between them; SettingError where they may not."""
    X, kernel = problem.train.X, problem.kernel
    if may_move(problem):
        return X
    found = f"the inputs are {type(X[0]).__name__} objects"
    if isinstance(X, Tensor):
        found = f"kernel {kernel.key!r} is one of counts, which has no gradient in them"
    raise SettingError(
        f"{title} puts inducing inputs between the rows, which takes columns of numbers, but {found}; choose points "
        "from the data, with cholqr (polish 0) or titsias."
    )


def report(state: State, objective: str, before: Tensor, jitter: float) -> Info:
    """The report of a step that left the points `before` where the state has them now."""
    fit, complexity, trace = state.terms
    moved = float((state.Z - before).square().sum(1).mean().sqrt()) if before.shape == state.Z.shape else math.nan
    return Info(state.phase, state.terms.total(objective), fit / 2, complexity / 2, trace / 2, moved, jitter)


def prior(problem: Problem, state: State) -> Posterior:
    """The prediction before any work."""
    y = problem.train.y
    return lambda X: Prediction(y.new_zeros(len(X)), problem.kernel.diag(state.theta, X))


def rows_near(X: Tensor, Z: Tensor) -> Tensor:
    """The distinct rows of X nearest to the points Z: at most m of them, in the order of Z."""
    rows = nearest(Z, X).indices.tolist()
    return torch.tensor(list(dict.fromkeys(rows)), dtype=torch.int64, device=X.device)
