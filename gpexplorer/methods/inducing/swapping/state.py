"""What CholQR carries from step to step, and what it reports."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from ....objectives import Terms
from .swap import Swapper, Tried


class State(NamedTuple):
    """All that the trajectory depends on: O(m) numbers."""

    step: int
    epoch: int
    phase: str  # "swap" | "learn" | "polish": what the step was part of
    position: int  # steps done in this phase
    inducing: Tensor  # [m] rows of the training data, in slots that the removal order refers to
    pivots: Tensor  # [z] rows, in slots
    oldest: int  # the pivot slot to be replaced next
    theta: Tensor  # [p]
    theta_begin: Tensor  # [p] where this epoch's learning began
    accepted: int  # swaps accepted in this epoch
    objective: float  # F at this state
    epoch_begin: float  # F when the epoch began
    tested: Tensor  # [<= 32, 2] approximate and exact falls of the newest candidates tested
    slots: Tensor  # slots chosen for removal that are yet to be offered; empty where the order is drawn
    ranked: Tensor  # the pivots that a score chose, the best first
    Z: Tensor | None = None  # [m, d] where polishing moved the points; None while they are at their rows
    Z_begin: Tensor | None = None  # [m, d] where it found them


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: float
    fit: float
    logdet: float
    trace: float
    approx: float = math.nan
    exact: float = math.nan
    correlation: float = math.nan
    regret: float = math.nan
    acceptance: float = math.nan
    drift: float = math.nan
    moved: float = math.nan
    reads: float = math.nan
    jitter: float = 0.0
    removed: int = -1
    proposed: int = -1
    accepted: bool = False


def begun(inducing: Tensor, theta: Tensor, untested: Tensor) -> State:
    """Where a run starts: nothing done, no pivots chosen, F unknown."""
    none = inducing[:0]
    counts, at = (0, 0, "swap", 0), (theta.clone(), theta.clone())
    return State(
        *counts,
        inducing,
        none.clone(),
        0,
        *at,
        0,
        math.inf,
        math.inf,
        untested,
        slots=none.clone(),
        ranked=none.clone(),
    )


def halves(terms: Terms) -> tuple[float, float, float]:
    """The terms as they add up to the objective."""
    return terms.fit / 2, terms.complexity / 2, terms.trace / 2


def swap_info(swapper: Swapper, tried: Tried, state: State, drift: float) -> Info:
    """The report of one swap."""
    factor = swapper.factor
    return Info(
        "swap",
        state.objective,
        *halves(factor.terms),
        tried.approx,
        tried.exact,
        swapper.correlation,
        tried.regret,
        state.accepted / state.position,
        drift,
        reads=factor.reads,
        jitter=factor.jitter,
        removed=tried.removed,
        proposed=tried.proposed,
        accepted=tried.accepted,
    )
