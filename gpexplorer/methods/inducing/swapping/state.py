"""What CholQR carries from step to step, and what it reports."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from torch import Tensor

from ....problem import channel
from ..reporting import Complexity, ExactLeast, ExactReduction, Fit, Jitter, Moved, Trace


class SwapState(NamedTuple):
    """All that the trajectory depends on: O(m) numbers."""

    inducing: Tensor  # [m] rows of the training data, by slot
    pivots: Tensor  # [z] rows, by slot
    theta: Tensor  # [p]
    theta_begin: Tensor  # [p] at the beginning of this epoch's learning
    tested: Tensor  # [<= 32, 2] approximate and exact reductions of the newest candidates tested
    slots: Tensor  # slots chosen for removal that are still to be offered; empty where the order is random
    ranked: Tensor  # pivots that were chosen by their score, the best first
    step: int = 0
    epoch: int = 0
    phase: str = "swap"  # "swap" | "learn" | "all rows" | "polish": what the step was part of
    position: int = 0  # steps done in this phase
    oldest: int = 0  # slot of the pivot that is replaced next
    accepted: int = 0  # swaps accepted in this epoch
    objective: float = math.inf  # F at this state
    epoch_begin: float = math.inf  # F at the beginning of the epoch
    Z: Tensor | None = None  # [m, d] points that polishing has moved; None while they are rows of the data
    Z_begin: Tensor | None = None  # [m, d] at the beginning of polishing


class SwapInfo(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: Annotated[float, channel("objective F", "nat", monotone=True)] = math.nan
    fit: Fit = math.nan
    logdet: Complexity = math.nan
    trace: Trace = math.nan
    approx: Annotated[float, channel("predicted reduction", "nat")] = math.nan
    exact: ExactReduction = math.nan
    correlation: Annotated[float, channel("rank correlation of scores and exact reductions")] = math.nan
    regret: Annotated[float, channel("reduction missed by the best score alone", "nat")] = math.nan
    acceptance: Annotated[float, channel("accepted this epoch")] = math.nan
    drift: Annotated[float, channel("drift of the carried objective", log=True)] = math.nan
    moved: Moved = math.nan
    inverse_error: Annotated[float, channel("error of the inverse P", log=True)] = math.nan
    reads: Annotated[float, channel("passes over the n x m factor")] = math.nan
    jitter: Jitter = 0.0
    exact_least: ExactLeast = math.nan
    gap: Annotated[float, channel("largest distance to the exact model", "nat", log=True)] = math.nan
    removed: int = -1
    proposed: int = -1
    accepted: bool = False


START = SwapInfo("start")


def initial_state(inducing: Tensor, theta: Tensor, tested: Tensor) -> SwapState:
    """Return the state before any work: no pivots, F unknown."""
    no_rows = inducing[:0]
    return SwapState(
        inducing=inducing,
        pivots=no_rows.clone(),
        theta=theta.clone(),
        theta_begin=theta.clone(),
        tested=tested,
        slots=no_rows.clone(),
        ranked=no_rows.clone(),
    )
