"""What a step of a solver of the exact GP carries (State) and reports (Info)."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from ...problem import channel, channels_of


class State(NamedTuple):
    """All that the rest of a run depends on."""

    step: int
    phase: str  # what the step was part of: "learn" (theta, on a subset), "full" (theta, on all rows) or "solve"
    position: int  # steps done in this phase
    theta: Tensor  # [p]
    alpha: Tensor  # [n]
    memory: tuple[Tensor, ...]  # what a solver needs besides alpha in order to continue, [n] each
    largest: float  # |g|_inf, computed from scratch if it is within the tolerance
    gradient: Tensor  # [n] as the solver updated it if columns are float32; else empty, because it can be recomputed
    float64_from: int = 0  # iteration from which on columns are float64 although `mixed` is set; 0 if there is none
    repaired: int = 0  # iteration at which rounding was last repaired by a gradient from scratch; 0 if there is none
    checked: float = math.inf  # |g|_inf from scratch, when the updated gradient was last within the tolerance
    stalled: bool = False  # whether |g|_inf cannot reach the tolerance in this precision
    norm: float = math.inf  # |g|_2, computed from scratch if the run may stop on it
    probes: Tensor = torch.zeros(0)  # [n, s] solutions for the probes, while theta is learned on all rows
    moments: Tensor = torch.zeros(0)  # [2, p] of Adam, while theta is learned on all rows


class Info(NamedTuple):
    """What a step reports. Channels that do not apply are nan; f(0) = 0 for every theta."""

    phase: str
    objective: Annotated[float, channel("quadratic f(alpha)", monotone=True)] = math.nan
    largest: Annotated[float, channel("largest gradient |g|", log=True)] = math.nan  # |g|_inf
    norm: Annotated[float, channel("gradient norm", log=True)] = math.nan  # |g|_2
    # negative log marginal likelihood on the subset, while theta is learned
    evidence: Annotated[float, channel("NLML on the subset", "nat")] = math.nan
    # |g from scratch - g as updated|_inf, at the steps where g is computed from scratch
    drift: Annotated[float, channel("drift of the carried gradient", log=True)] = math.nan
    # norm of the estimated gradient of the NLML in theta, per row
    likelihood_gradient: Annotated[float, channel("gradient of the NLML of all rows", "nat per row", log=True)] = (
        math.nan
    )
    # f(alpha) - min f is at most this, |g|_2^2 / (2 s2)
    gap_bound: Annotated[float, channel("bound on f - minimum", log=True)] = math.nan
    # no predictive mean errs by more than this
    mean_bound: Annotated[float, channel("bound on the error of a mean", "noise sd", log=True)] = math.nan
    active: Tensor = torch.zeros(0, dtype=torch.int64)  # rows of alpha that changed
    gains: Tensor = torch.zeros(0)  # decrease of f that each active row alone promised when it was chosen


# for methods whose objective may rise: solvers with momentum, and a solver whose single step leaves no series
CHANNELS_NOT_MONOTONE = channels_of(Info, objective=channel("quadratic f(alpha)"))
