"""What GP-GRIEF carries from step to step, and what it reports."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor


class State(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    phase: str  # "subset" | "trial" | "learn" | "weights": what the step was part of
    round: int  # which start on the subset; on all rows, how often the eigenfunctions were chosen
    position: int  # evaluations done in this round
    theta: Tensor  # [P] best of this phase
    theta_begin: Tensor  # [P] where this phase's starts, or this round, began
    objective: float  # best NLML of this phase
    chosen: Tensor  # [P] the theta whose largest eigenfunctions theta's basis is
    spacing: str  # of the grid they lie on


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: float = math.nan
    fit: float = math.nan
    kept: float = math.nan
    evidence: float = math.nan
