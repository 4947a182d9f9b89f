"""Two choices before a try: which points are offered for removal, and which rows are the information pivots.

Points are offered in one of two orders. The paper offers each in turn, in random order ("random"). The default ("least
loss") offers the points whose removal increases the objective least, which is known exactly for every point in O(m^2)
flops; for the tight VFE it is estimated.

Pivots are drawn by one of four policies, each an object:

"random"     Every few swaps all z are drawn again from the rows; this is the paper's choice (section 3.3.2).
"optimised"  Greedy on the trace norm of the residual, as in the look-ahead of CSI (Bach and Jordan 2005). Among four
             times as many candidates, the row whose residual column e, after deflation by the rows chosen before,
             explains most: the largest |e|^2 / e_j.
"adaptive"   It begins with a few. While the scores rank candidates badly, the column of a rejected proposal is added
             instead of replacing another one.
"scored"     Half of the pivots are the rows that the previous pivots scored best, a quarter is drawn in proportion to
             D = diag(K - K_hat) (Chen et al. 2022, randomly pivoted Cholesky), the rest uniformly. They are the
             candidates to swap in, and every swap tests all of them exactly until they are drawn again. A row far from
             all others is in no pivot's column, so that no score finds it and uniform draws find it rarely; its D does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ....linalg.randomness import generator
from .factor import Factor
from .pivots import Pivots

POOL = 4  # candidates per pivot of the optimised policy
FIRST = 8  # pivots that the adaptive policy begins with
TRUSTED = 0.8  # rank correlation from which on the adaptive policy adds no pivots
WINDOW = 32  # newest exact tests from which the rank correlation is computed


class Turn(NamedTuple):
    """Which swap of a run comes next.

    Attributes
    ----------
    position : int
        Swaps done in this epoch.
    per_epoch : int
        Swaps in each epoch.
    swaps : int
        Swaps until the pivots are chosen again; this many slots are chosen together.
    """

    epoch: int
    position: int
    per_epoch: int
    swaps: int
    seed: int


class RemovalOrder(NamedTuple):
    """Chooses the slots whose points are offered for removal. It has no memory: a state carries what it needs.

    Attributes
    ----------
    slots : callable
        Returns the slots to offer from now on until the pivots are chosen again; there may be more. Its last argument
        is what `to_carry` returned after the previous swap.
    to_carry : callable
        Returns the part of the slots that a state has to carry after the first of them was offered.
    """

    slots: Callable[[Factor, Turn, list[int]], list[int]]
    to_carry: Callable[[list[int]], list[int]]


def random_order(factor: Factor, turn: Turn, remaining: list[int]) -> list[int]:
    """Return every slot in turn: random permutations of all m, continued from epoch to epoch (Cao et al. 2013, 3)."""
    order = removal_permutation(factor.m, turn.epoch, turn.per_epoch, turn.seed)
    return order[turn.position : turn.position + turn.swaps + 1]


def least_loss(factor: Factor, turn: Turn, remaining: list[int]) -> list[int]:
    """Return the slots whose points the objective needs least, by its increase without each; see `Factor.losses`."""
    return remaining or factor.losses().topk(min(turn.swaps, factor.m), largest=False).indices.tolist()


ORDERS = {
    "random": RemovalOrder(random_order, lambda slots: []),  # the order follows from the seed
    "least loss": RemovalOrder(least_loss, lambda slots: slots[1:]),
}


def removal_permutation(m: int, epoch: int, per_epoch: int, seed: int) -> list[int]:
    """Return the slots to offer in this epoch and the next one after: permutations of all m, joined over epochs."""
    begin, order = epoch * per_epoch, []
    for turn in range(begin // m, (begin + per_epoch) // m + 1):
        order += torch.randperm(m, generator=generator(seed, "removals", turn)).tolist()
    return order[begin % m : begin % m + per_epoch + 1]


class Candidates(NamedTuple):
    """What a policy draws pivots from.

    Attributes
    ----------
    rows : Tensor [k]
        Rows that are neither inducing points nor explained by them; k is at least 1.
    shuffled : Tensor [k]
        The same rows in random order.
    pivots : Pivots or None
        The present pivots.
    num_pivots : int
        z, the number of pivots wanted.
    seed, step : int
        They determine further random draws.
    """

    factor: Factor
    rows: Tensor
    shuffled: Tensor
    pivots: Pivots | None
    num_pivots: int
    seed: int
    step: int


class Drawn(NamedTuple):
    """New pivots.

    Attributes
    ----------
    rows : Tensor [<= z]
    ranked : Tensor, optional
        Those that were chosen by their score, the best first.
    scores : Tensor [n], optional
        The scores from which they were chosen.
    """

    rows: Tensor
    ranked: Tensor | None = None
    scores: Tensor | None = None


class PivotPolicy(NamedTuple):
    """Draws the information pivots. It has no memory: all it depends on are the candidates.

    Attributes
    ----------
    draw : callable
        Returns new pivots.
    keeps_pivots : bool
        Whether pivots stay, once drawn, instead of being drawn again. Rejected proposals are then added to them until
        the scores rank candidates well.
    """

    draw: Callable[[Candidates], Drawn]
    keeps_pivots: bool = False

    def room(self, count: int, present: int, correlation: float) -> int:
        """Return how many pivots a rejected swap may add, given the rank correlation of the scores."""
        is_trusted = correlation >= TRUSTED  # False where the correlation is nan
        return count - present if self.keeps_pivots and not is_trusted else 0


def draw_optimised(candidates: Candidates) -> Drawn:
    """Choose z rows of a random pool greedily by the trace norm of the residual that they explain."""
    pool = candidates.shuffled[: POOL * candidates.num_pivots]
    E, _ = candidates.factor.residual_columns(pool, [])  # [pool, n]
    return Drawn(best_of_pool(E, pool, candidates.num_pivots))


def draw_scored(candidates: Candidates) -> Drawn:
    """Draw half by the scores of the present pivots, a quarter by the residual variance, the rest uniformly."""
    factor, z = candidates.factor, candidates.num_pivots
    scores = torch.full_like(factor.D, -math.inf)  # [n]
    if candidates.pivots is not None:
        scores = candidates.pivots.without(factor.no_removal()).approximate()
    uniform = candidates.shuffled[:z]
    best = scores.topk(min(z // 2, len(uniform))).indices
    best = best[scores[best] > -math.inf]
    rng = generator(candidates.seed, "variance", candidates.step)
    far = candidates.rows[by_variance(factor.D[candidates.rows], z // 4, rng)]
    pool = dict.fromkeys([*best.tolist(), *far.tolist(), *uniform.tolist()])  # distinct rows, in this order
    rows = torch.tensor(list(pool), device=uniform.device)
    return Drawn(rows[:z], ranked=best, scores=scores)


POLICIES = {
    "random": PivotPolicy(lambda own: Drawn(own.shuffled[: own.num_pivots])),
    "optimised": PivotPolicy(draw_optimised),
    "adaptive": PivotPolicy(lambda own: Drawn(own.shuffled[: min(FIRST, own.num_pivots)]), keeps_pivots=True),
    "scored": PivotPolicy(draw_scored),
}


def best_of_pool(E: Float[Tensor, "k n"], pool: Tensor, z: int) -> Tensor:
    """Choose rows greedily by the trace norm of the residual that their columns explain.

    Parameters
    ----------
    E : Tensor [k, n]
        Residual columns of the pool.
    pool : Tensor [k]
        Rows of the data.

    Returns
    -------
    Tensor [<= z]
        Rows of the pool; fewer where the others are explained by them.

    Notes
    -----
    With G = E E' and C = E[:, pool], choosing row k deflates both by rank one. n k^2 flops once, k^2 per choice.
    """
    G, C = (E @ E.T).double(), E[:, pool].double()  # [k, k] each
    least = 1e2 * torch.finfo(E.dtype).eps * float(C.diagonal().max())
    chosen: list[int] = []
    for _ in range(min(z, len(pool))):
        d = C.diagonal()
        gain = torch.where(d > least, G.diagonal() / d, -torch.inf)
        k = int(gain.argmax())
        if not torch.isfinite(gain[k]):
            break
        chosen.append(k)
        c, g = C[:, k] / C[k, k], G[:, k].clone()
        G = G - torch.outer(c, g) - torch.outer(g, c) + torch.outer(c, c) * g[k]
        C = C - torch.outer(c, C[k])
    return pool[chosen]


def by_variance(D: Float[Tensor, " k"], count: int, rng: torch.Generator) -> Int[Tensor, " c"]:
    """Draw up to `count` of k indices without repetition, each in proportion to D among those that are left.

    Each index gets an exponential arrival time with rate D; the first to arrive are drawn.
    """
    arrivals = torch.empty(len(D), dtype=torch.float64).exponential_(generator=rng).to(D)
    return (D / arrivals).topk(min(count, len(D))).indices


def missed_reduction(exact: Float[Tensor, "*k c"], scores: Float[Tensor, "*k c"]) -> Float[Tensor, "*k"]:
    """Return by how much the best candidate is better than the one with the best score.

    Parameters
    ----------
    exact : Tensor [..., c]
        Exact reductions; -inf where a candidate is explained.
    scores : Tensor [..., c]
        -inf where a candidate has no score.

    Returns
    -------
    Tensor [...]
        In nat; nan where no candidate has a score.
    """
    scores = torch.where(exact == -torch.inf, -torch.inf, scores)
    best_score = scores.max(-1)
    missed = exact.amax(-1) - exact.gather(-1, best_score.indices[..., None])[..., 0]
    return missed.masked_fill(best_score.values == -torch.inf, torch.nan)
