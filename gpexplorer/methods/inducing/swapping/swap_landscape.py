"""The swap landscape: what every row would bring in the place of one inducing point; and a swap chosen by a person.

The approximate scores are those that the next swap would see (Cao et al. 2013, figure 1). The exact ones are evaluated
in blocks of candidates: for all rows if there are few, otherwise for a random sample.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ....errors import SettingError
from ....linalg.blocks import row_blocks
from ....linalg.randomness import generator
from ....linalg.ranks import rank_correlation
from ...capabilities import Landscape
from .factor import Factor
from .swap import Swapper
from .swap_effects import Removal

ALL_ROWS = 500  # up to this many candidates, all are evaluated exactly
SAMPLE = 200  # with more candidates, a random sample of this size is


def swap_landscape(swapper: Swapper, slot: int, seed: int, step: int) -> Landscape:
    """Evaluate every row in the place of one inducing point.

    Parameters
    ----------
    swapper : Swapper
        The factor and its pivots, as the next swap would find them.
    slot : int
        Slot of the inducing point that is taken out.
    seed, step : int
        They determine the random sample.

    Returns
    -------
    Landscape
        Approximate and exact decrease of the objective for each row.

    Notes
    -----
    2 n m flops per exact evaluation, besides the factor.
    """
    factor, pivots = swapper.factor, swapper.pivots
    n, removed = len(factor.train), int(factor.inducing[slot])
    rows = torch.arange(n, device=factor.train.y.device)
    exact = torch.full((n,), math.nan, dtype=factor.train.y.dtype, device=rows.device)
    if pivots is None:
        return Landscape(rows, torch.full_like(exact, -math.inf), exact, removed, math.nan, rows[:0])

    removal = _removal(factor, slot)
    loss = removal.terms.total(factor.objective) - factor.total
    approx = pivots.without(removal).approximate() - loss
    chosen = _sample(rows[approx > -math.inf], pivots.rows, seed, step)
    for block in row_blocks(len(chosen), 3 * exact.element_size() * n):
        exact[chosen[block]] = _exact(factor, removal, chosen[block]) - loss
    comparable = torch.isfinite(approx) & torch.isfinite(exact)
    correlation = math.nan
    if int(comparable.sum()) > 2:
        correlation = rank_correlation(approx[comparable].cpu().numpy(), exact[comparable].cpu().numpy())
    return Landscape(rows, approx, exact, removed, correlation, pivots.rows.clone())


def force_swap(factor: Factor, slot: int, row: int) -> None:
    """Put data row `row` in the place of the inducing point in `slot`, and compute the factor again.

    Raises
    ------
    SettingError
        The row is an inducing point already, or the points that stay explain it to rounding.

    Notes
    -----
    4 n m^2 flops.
    """
    if bool(factor.is_inducing[row]):
        raise SettingError(f"Row {row} is an inducing point already; choose another row.")
    residual, _ = factor.residual_columns(torch.tensor([row], device=factor.D.device), [], _removal(factor, slot))
    if float(residual[0, row]) <= float(factor.least[row]):
        raise SettingError(f"Row {row} is explained by the inducing points to rounding; choose another row.")
    inducing = factor.inducing.clone()
    inducing[slot] = row
    factor.build(inducing)


def _removal(factor: Factor, slot: int) -> Removal:
    return factor.remove(slot, factor.times(factor.direction(slot)[None])[0])


def _sample(candidates: Tensor, pivots: Tensor, seed: int, step: int) -> Tensor:
    """Return the rows that are evaluated exactly: all, or a random sample with the pivots."""
    if len(candidates) <= ALL_ROWS:
        return candidates
    order = torch.randperm(len(candidates), generator=generator(seed, "landscape", step)).to(candidates.device)
    return torch.unique(torch.cat([candidates[order[:SAMPLE]], pivots[torch.isin(pivots, candidates)]]))


def _exact(factor: Factor, removal: Removal, rows: Tensor) -> Tensor:
    """Return the exact decrease of the objective [c] by each candidate, without the loss by the removal."""
    R, _ = factor.residual_columns(rows, [], removal)  # [c, n]
    reduction = factor.propose(removal, rows, R).addition.reduction
    return reduction.where(reduction > -math.inf, math.nan)
