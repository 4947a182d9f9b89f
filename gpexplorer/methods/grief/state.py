"""What GP-GRIEF carries from step to step, and what it reports."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor


class State(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    phase: str  # "subset" | "learn" | "weights": what the step was part of
    round: int  # how often the eigenfunctions were chosen
    position: int  # evaluations done in this round, or on the subset
    theta: Tensor  # [P]
    theta_begin: Tensor  # [P] where this round began, and which chose its eigenfunctions
    objective: float  # best NLML so far
    round_begin: float


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: float = math.nan
    fit: float = math.nan
    kept: float = math.nan
    evidence: float = math.nan
