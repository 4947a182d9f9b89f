"""One swap: remove a point, score every row, test the best few exactly, keep the best or put the point back.

Steps I to VI of Cao et al. 2013, section 3.4. Differing from the paper: the pivots' own exact scores, which cost
nothing, compete with the proposals; rejected proposals become pivots, since their columns are already paid for; and
the column needed to remove the *next* point rides along with the proposals, so a swap reads L twice, not three times.
Without proposals the pivots alone compete: a swap then reads L not at all, and only drawing pivots anew does, for all
of them and for the removals to come at once, in products that a BLAS does well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ....linalg.randomness import generator
from .factor import Factor
from .pivot_policies import FIRST, POOL, TRUSTED, WINDOW, best_of_pool, by_variance, missed, rank_correlation
from .pivots import Pivots, View
from .removal_columns import Ahead, Taken
from .swap_effects import Addition, Column, Proposals, Removal

LEAST_GAIN = 1e-12  # of the objective: smaller gains are rounding


class Tried(NamedTuple):
    """What one swap did. `approx` and `exact` are falls of the objective, the removal's loss counted.

    `regret` is by how much the best candidate tested beats the one with the best score, which the paper tests alone.
    Without proposals nothing is predicted, since all are tested: `approx` is nan, and scores are the last draw's.
    """

    removed: int
    proposed: int
    accepted: bool
    approx: float
    exact: float
    regret: float


class Swapper:
    """A factor, its pivots, and the column that removes the next point."""

    def __init__(self, factor: Factor, num_pivots: int, num_proposals: int, seed: int, policy: str = "random") -> None:
        self.factor, self.num_pivots, self.num_proposals, self.seed = factor, num_pivots, num_proposals, seed
        self.policy = policy
        self.pivots: Pivots | None = None
        self.ahead: Ahead | None = None
        self.recall(factor.D.new_zeros(0, 2))

    def recall(self, tested: Tensor) -> None:
        """Approximate and exact falls [<= WINDOW, 2] of the newest candidates tested, and how well they rank alike."""
        self.tested, self.correlation = tested, rank_correlation(tested)

    def refresh(self, step: int, slots: Sequence[int] = ()) -> bool:
        """Choose every pivot anew from the rows not yet explained; False when no such row is left.

        The adaptive policy keeps those it has grown. `slots` are those offered for removal until the next time.
        """
        if self.policy == "adaptive" and self.pivots is not None:
            return True
        eligible = torch.nonzero(self._eligible())[:, 0]
        order = torch.randperm(len(eligible), generator=generator(self.seed, "pivots", step)).to(eligible.device)
        if self.policy == "scored" and len(eligible):
            self._rescore(eligible, eligible[order[: self.num_pivots]], step, slots)
            return True
        wide = {"optimised": POOL * self.num_pivots, "adaptive": min(FIRST, self.num_pivots)}
        rows = eligible[order[: wide.get(self.policy, self.num_pivots)]]
        if self.policy == "optimised" and len(rows):
            rows = best_of_pool(self.factor.residual_columns(rows, [])[0], rows, self.num_pivots)
        self.pivots = None
        if len(rows):
            self.choose(rows, 0, slots)
        return self.pivots is not None

    def choose(self, rows: Tensor, oldest: int, slots: Sequence[int] = (), ranked: Tensor | None = None) -> None:
        """These rows become the pivots; in the same product come the columns that remove the next points."""
        f, wanted = self.factor, self._wanted(slots)
        E, V = f.residual_columns(rows, wanted)
        self.pivots = Pivots(f, rows, E, oldest, ranked)
        if wanted:
            self.ahead = Ahead(f, wanted, V)

    def _wanted(self, slots: Sequence[int]) -> list[int]:
        """Those of these slots whose columns are not at hand; proposals bring along the next one in every swap."""
        if not self.num_proposals:
            return list(slots)
        held = self.ahead is not None and self.ahead.slots[:1] == slots[:1]
        return [] if held else list(slots[:1])

    def _rescore(self, eligible: Tensor, drawn: Tensor, step: int, slots: Sequence[int]) -> None:
        """Half the rows that the present pivots rank best, a quarter by residual variance, the rest of those drawn."""
        f, z = self.factor, self.num_pivots
        scores = torch.full_like(f.D, -math.inf)
        if self.pivots is not None:
            scores = self.pivots.without(f.nothing()).approximate()
        best = scores.topk(min(z // 2, len(drawn))).indices
        best = best[scores[best] > -math.inf]
        apart = by_variance(f.D[eligible], z // 4, generator(self.seed, "variance", step))
        pool = [*best.tolist(), *eligible[apart].tolist(), *drawn.tolist()]
        rows = torch.tensor(list(dict.fromkeys(pool)), device=drawn.device)
        self.choose(rows[:z], 0, slots, ranked=best)
        assert self.pivots is not None
        exact = self.pivots.without(f.nothing()).exact().reduction
        self._remember(scores[self.pivots.rows], exact)

    def rebuild(self) -> float:
        """Recompute the factor; return how far the carried objective had drifted, relative."""
        f = self.factor
        carried = f.total
        f.build(f.inducing)
        self.ahead = None
        if self.pivots is not None:
            self.choose(self.pivots.rows, self.pivots.oldest, ranked=self.pivots.ranked)
        exact = f.total
        return abs(carried - exact) / max(abs(exact), 1e-300)

    def swap(self, slots: list[int], step: int) -> Tried:
        """Offer the point in the first of these slots for removal; the others are those that follow."""
        f, pivots, position = self.factor, self.pivots, slots[0]
        assert pivots is not None, "refresh() before swap()"
        removed = int(f.inducing[position])
        removal = f.remove(position, *self._taken(slots))
        view = pivots.without(removal)
        at_pivots = view.exact()  # [z]
        scores = view.approximate() if self.num_proposals else f.D.new_empty(0)  # [n]

        rows = self._proposals(scores, step) if self.num_proposals else pivots.rows[:0]
        tested = self._tested(removal, rows, slots[1:])

        reduction = torch.cat([at_pivots.reduction, tested.found.reduction])
        best, guesses = int(reduction.argmax()), self._guesses(scores, rows)
        row = int(torch.cat([pivots.rows, rows])[best])
        kept = f.total
        loss = removal.terms.total(f.objective) - kept
        exact = float(reduction[best]) - loss
        accepted = exact > LEAST_GAIN * abs(kept)

        if accepted:
            z = len(pivots.rows)
            self._accept(view, row, view.pivot(best, at_pivots) if best < z else view.proposal(best - z, tested))
        elif len(rows):
            pivots.recycle(removal, tested, room=self._room())
        if len(rows):
            self._remember(scores[rows], tested.found.reduction)
        if not math.isfinite(exact):
            return Tried(removed, -1, False, math.nan, math.nan, math.nan)
        approx = float(scores[row]) - loss if len(rows) else math.nan
        return Tried(removed, row, accepted, approx, exact, missed(reduction, guesses))

    def _guesses(self, scores: Tensor, rows: Tensor) -> Tensor:
        """What ranks the candidates tested, pivots first, -inf where no score is known: [z + c]."""
        assert self.pivots is not None
        return scores[torch.cat([self.pivots.rows, rows])] if self.num_proposals else self.pivots.guesses()

    def _tested(self, removal: Removal, rows: Tensor, following: list[int]) -> Proposals:
        """The exact effects of the proposals; the next removal's column comes along with theirs."""
        f, held = self.factor, self.ahead is not None and bool(self.ahead.slots)
        if not len(rows):
            none, empty = f.D.new_empty(0), f.c.new_empty(f.m, 0)
            return Proposals(rows, f.D.new_empty(0, len(f.D)), empty, empty, Addition(*(none,) * 5))
        also = [] if held else following[:1]
        R, V = f.residual_columns(rows, also, removal)
        if also:
            self.ahead = Ahead(f, also, V)
        return f.propose(removal, rows, R)

    def _room(self) -> int:
        """By how many pivots a rejected swap may enlarge the set."""
        assert self.pivots is not None
        grows = self.policy == "adaptive" and not self.correlation >= TRUSTED
        return self.num_pivots - len(self.pivots.rows) if grows else 0

    def _remember(self, approx: Tensor, exact: Tensor) -> None:
        pairs = torch.stack([approx, exact], 1)
        self.recall(torch.cat([self.tested, pairs[torch.isfinite(pairs).all(1)]])[-WINDOW:])

    def _eligible(self) -> Tensor:
        return ~self.factor.is_inducing & (self.factor.D > self.factor.least)

    def _taken(self, slots: list[int]) -> Taken:
        """The columns of the first slot; where they are not at hand, those that follow come along in one product."""
        found = self.ahead.take(slots[0]) if self.ahead is not None else None
        if found is None:
            wanted = self._wanted(slots)
            self.ahead = Ahead(self.factor, wanted, self.factor.times(self.factor.T[:, wanted].T))
            found = self.ahead.take(slots[0])
        assert found is not None
        return found

    def _proposals(self, scores: Tensor, step: int) -> Tensor:
        """Rows to test exactly: the best by score and as many drawn evenly, none of them a pivot."""
        assert self.pivots is not None
        open_rows = scores.index_fill(0, self.pivots.rows, -math.inf)
        by_score = (self.num_proposals + 1) // 2
        top = open_rows.topk(min(by_score, len(scores)))
        rows = top.indices[top.values > -math.inf]
        draws = torch.randint(
            len(scores), (4 * (self.num_proposals - by_score),), generator=generator(self.seed, "proposals", step)
        ).to(rows.device)
        draws = draws[open_rows[draws] > -math.inf]
        pool = torch.cat([rows, draws]).tolist()
        return torch.tensor(list(dict.fromkeys(pool))[: self.num_proposals], dtype=torch.int64, device=rows.device)

    def _accept(self, view: View, row: int, new: Column) -> None:
        """Make the swap; pivots and the next removals' columns follow it."""
        f, removal, ahead = self.factor, view.removal, self.ahead
        assert ahead is not None
        removed = int(f.inducing[removal.position])

        change = f.accept(removal, row, new)
        view.pivots.accepted(view, new, row, removed)
        ahead.follow(removal, change)
