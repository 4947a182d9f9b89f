"""What cross-validation by ADMM carries from step to step, and what it reports."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...problem import Channel, channel
from .fold_steps import Local


class State(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    phase: str  # "start" | "prepare" | "iterate"
    iteration: int
    theta: Tensor  # [p] the best so far, its scale put right
    best: float  # cross-validated error there
    mean: Tensor  # [p] the consensus, from which the next iteration goes on
    folds: tuple[Local, ...]
    moved: float  # |mean - mean before|, or the shortest step of a fold that was refused
    gap: float  # the largest of the folds' |C z - y_T| / |y_T|
    rollbacks: int  # in a row
    still: int  # iterations in a row that moved theta by less than the tolerance


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: float = math.nan
    lagrangian: float = math.nan
    gap: float = math.nan
    slope: float = math.nan
    disagreement: float = math.nan
    rho: float = math.nan
    z_norm: float = math.nan
    z_gap: float = math.nan
    scale: float = math.nan
    iterations: float = math.nan
    rolled_back: float = math.nan
    consensus: Tensor = torch.zeros(0)  # [p]
    thetas: Tensor = torch.zeros(0, 0)  # [K, p]


CHANNELS: tuple[Channel, ...] = (
    channel("objective", "cross-validated squared error"),
    channel("lagrangian", "augmented Lagrangian"),
    channel("gap", "primal residual |Cz - y| / |y|", log=True),
    channel("slope", "dual residual", log=True),
    channel("disagreement", "disagreement of the folds", log=True),
    channel("rho", "penalty rho", log=True),
    channel("z_norm", "|z|"),
    channel("z_gap", "|z - C^-1 y|^2", log=True),
    channel("scale", "log scale of all sds"),
    channel("iterations", "CG iterations of a z step"),
    channel("rolled_back", "folds rolled back"),
)
