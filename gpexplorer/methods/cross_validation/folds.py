"""Which rows each fold validates on, and the fold made of them: the rows it trains on come first."""

from __future__ import annotations

import torch
from torch import Tensor

from ...linalg.randomness import generator
from ...linalg.workspace import Workspace
from ...problem import Problem
from .exact_posterior import GIGABYTE
from .lagrangian import Fold


def shuffled(n: int, seed: int) -> Tensor:
    """All rows in an order that the seed alone decides."""
    return torch.randperm(n, generator=generator(seed, "folds"))


def split(problem: Problem, held: list[slice], seed: int, gigabytes: float) -> list[Fold]:
    """One fold for each slice of the shuffled rows, that slice being validated on and all others trained on."""
    room = Workspace(gigabytes * GIGABYTE)
    train, order = problem.train, shuffled(len(problem.train), seed).to(problem.train.y.device)
    folds = []
    for part in held:
        rest = torch.cat([order[: part.start], order[part.stop :]])
        rows = train.rows(torch.cat([rest, order[part]]))
        folds.append(Fold(problem.kernel, rows.X, rows.y, len(rest), room))
    return folds
