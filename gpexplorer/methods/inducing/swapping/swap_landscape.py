"""The swap landscape: what every row would be worth in the place of one inducing point, approximately and exactly.

The approximate scores are those the next swap would see (Cao et al. 2013, figure 1); the exact ones are evaluated in
blocks of candidates, for all rows where they are few, else for a seeded sample.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ....linalg.blocks import row_blocks
from ....linalg.randomness import generator
from ....linalg.ranks import rank_correlation
from ....problem import Problem
from .cholqr import CholQR
from .factor import Factor
from .state import State
from .swap_effects import Removal

ALL_ROWS = 500  # up to here every candidate is evaluated exactly
SAMPLE = 200  # beyond, so many are


class Landscape(NamedTuple):
    """Falls of the objective, in nat, for each row in the removed point's place; the loss by removal is counted."""

    rows: Tensor  # int64 [n]
    approx: Tensor  # [n] -inf where a row is inducing or explained
    exact: Tensor  # [n] nan where not evaluated
    removed: int  # data row of the inducing point taken out
    correlation: float  # Spearman's, over rows with both values
    pivots: Tensor  # int64 [z]


def landscape(method: CholQR, problem: Problem, state: State, position: int | None = None) -> Landscape:
    """Scores for the removal at slot `position`, by default the one the next swap would try.

    Costs a factor from scratch (2 n m^2 flops) and 2 n m flops for each exact evaluation.
    """
    swapper, slot = method.prepare(problem, state)
    factor, pivots = swapper.factor, swapper.pivots
    slot = slot if position is None else position
    n, removed = len(problem.train), int(factor.inducing[slot])
    rows = torch.arange(n, device=problem.train.y.device)
    exact = torch.full((n,), math.nan, dtype=problem.train.y.dtype, device=rows.device)
    if pivots is None:
        return Landscape(rows, torch.full_like(exact, -math.inf), exact, removed, math.nan, rows[:0])

    removal = factor.remove(slot, factor.times(factor.direction(slot)[None])[0])
    loss = removal.terms.total(method.objective) - factor.total
    approx = pivots.without(removal).approximate() - loss
    chosen = _sample(rows[approx > -math.inf], pivots.rows, method.seed, state.step)
    for block in row_blocks(len(chosen), 3 * exact.element_size() * n):
        exact[chosen[block]] = _exact(factor, removal, chosen[block]) - loss
    known = torch.isfinite(approx) & torch.isfinite(exact)
    correlation = math.nan
    if int(known.sum()) > 2:
        correlation = rank_correlation(approx[known].cpu().numpy(), exact[known].cpu().numpy())
    return Landscape(rows, approx, exact, removed, correlation, pivots.rows.clone())


def _sample(candidates: Tensor, pivots: Tensor, seed: int, step: int) -> Tensor:
    if len(candidates) <= ALL_ROWS:
        return candidates
    order = torch.randperm(len(candidates), generator=generator(seed, "landscape", step)).to(candidates.device)
    return torch.unique(torch.cat([candidates[order[:SAMPLE]], pivots[torch.isin(pivots, candidates)]]))


def _exact(factor: Factor, removal: Removal, rows: Tensor) -> Tensor:
    """Exact falls of the objective for these candidates, the removal's loss not counted: [c]."""
    R, _ = factor.residual_columns(rows, [], removal)
    reduction = factor.propose(removal, rows, R).found.reduction
    return reduction.where(reduction > -math.inf, math.nan)
