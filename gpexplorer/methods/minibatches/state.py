"""What a step of these methods leaves behind, and what it reports."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from ...problem import Channel, channel

CHANNELS: tuple[Channel, ...] = (
    channel("objective", "NLML", "nat"),
    channel("estimate", "NLML as the minibatches see it", "nat"),
    channel("noise", "noise sd", log=True),
    channel("error", "RMSE on the rows set aside"),
    channel("gap", "relative error of the Gram matrix", log=True),
    channel("penalty", "penalty mu |A - F| / |A|", log=True),
    channel("rate", "learning rate", log=True),
    channel("epoch", "epochs"),
)


class State(NamedTuple):
    """All that the trajectory depends on. Matrices are of rows, not sums over them: F / n."""

    step: int
    phase: str  # "start" | "search" | "learn" | "best": what the step was part of
    batches: int  # minibatches done in this phase
    theta: Tensor  # [p] map, kernel, log noise sd
    w: Tensor  # [D] weights of the features; SVGP: its variational parameters, flat
    averages: tuple[Tensor, ...]  # of the optimiser
    matrices: tuple[Tensor, ...]  # SCGD: Phi'Phi / n, Phi'y / n; MINIMAX: A / n, B and the averages of B
    rate: float
    trial: int = 0  # learning rates tried
    best_value: float = math.inf
    best_rate: float = math.nan
    best_theta: Tensor | None = None  # [p]
    best_w: Tensor | None = None
    waited: int = 0  # evaluations without improvement


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: float = math.nan
    estimate: float = math.nan
    noise: float = math.nan
    error: float = math.nan
    gap: float = math.nan
    penalty: float = math.nan
    rate: float = math.nan
    epoch: float = math.nan
