"""One swap: remove a point, score every row, test the best few exactly, keep the best or put the point back.

Steps I to VI of Cao et al. 2013, section 3.4. Differing from the paper: the pivots' own exact scores, which cost
nothing, compete with the proposals; rejected proposals become pivots, since their columns are already paid for; and
the column needed to remove the *next* point rides along with the proposals, so a swap reads L twice, not three times.
Without proposals the pivots alone compete: a swap then reads L not at all, and only drawing pivots anew does, for all
of them and for the removals to come at once, in products that a BLAS does well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.randomness import generator
from .ahead import Ahead
from .factor import Addition, Column, Factor, Removal
from .pivots import Pivots, View
from .policies import FIRST, POOL, TRUSTED, WINDOW, best_of_pool, by_variance, missed, rank_correlation

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
        self.tested = factor.D.new_zeros(0, 2)  # approximate and exact fall of the newest candidates tested
        self.ahead: Ahead | None = None

    def refresh(self, step: int) -> bool:
        """Choose every pivot anew from the rows not yet explained; False when no such row is left.

        The adaptive policy keeps those it has grown.
        """
        if self.policy == "adaptive" and self.pivots is not None:
            return True
        eligible = torch.nonzero(self._eligible())[:, 0]
        order = torch.randperm(len(eligible), generator=generator(self.seed, "pivots", step)).to(eligible.device)
        if self.policy == "scored" and len(eligible):
            return self._rescore(eligible, eligible[order[: self.num_pivots]], step)
        wide = {"optimised": POOL * self.num_pivots, "adaptive": min(FIRST, self.num_pivots)}
        rows = eligible[order[: wide.get(self.policy, self.num_pivots)]]
        if self.policy == "optimised" and len(rows):
            rows = best_of_pool(Pivots(self.factor, rows).E, rows, self.num_pivots)
        self.pivots = Pivots(self.factor, rows) if len(rows) else None
        return self.pivots is not None

    def _rescore(self, eligible: Tensor, drawn: Tensor, step: int) -> bool:
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
        self.pivots = Pivots(f, rows[:z])
        self.pivots.ranked = best
        exact = self.pivots.without(f.nothing()).exact().reduction
        self._remember(scores[self.pivots.rows], exact)
        return True

    @property
    def correlation(self) -> float:
        """Rank correlation of scores and exact falls over the newest candidates tested."""
        return rank_correlation(self.tested)

    def rebuild(self) -> float:
        """Recompute the factor; return how far the carried objective had drifted, relative."""
        f = self.factor
        carried = f.total
        f.build(f.inducing)
        self.ahead = None
        if self.pivots is not None:
            self.pivots.choose(self.pivots.rows, self.pivots.oldest)
        exact = f.total
        return abs(carried - exact) / max(abs(exact), 1e-300)

    def swap(self, slots: list[int], step: int) -> Tried:
        """Offer the point in the first of these slots for removal; the others are those that follow."""
        f, pivots, position = self.factor, self.pivots, slots[0]
        assert pivots is not None, "refresh() before swap()"
        removed = int(f.inducing[position])
        removal = f.remove(position, self._removal_column(slots))
        view = pivots.without(removal)
        at_pivots = view.exact()  # [z]
        scores = view.approximate() if self.num_proposals else f.D.new_empty(0)  # [n]

        rows = self._proposals(scores, step) if self.num_proposals else pivots.rows[:0]
        R, B, tested = self._columns(removal, rows, slots[1:])

        reduction = torch.cat([at_pivots.reduction, tested.reduction])
        best, guesses = int(reduction.argmax()), self._guesses(scores, rows)
        row = int(torch.cat([pivots.rows, rows])[best])
        kept = f.total
        loss = removal.terms.total(f.objective) - kept
        exact = float(reduction[best]) - loss
        accepted = exact > LEAST_GAIN * abs(kept)

        if accepted:
            self._accept(view, row, self._column(view, best, at_pivots, tested, R, B))
        elif len(rows):
            pivots.recycle(removal, rows, R, B, room=self._room())
        if len(rows):
            self._remember(scores[rows], tested.reduction)
        if not math.isfinite(exact):
            return Tried(removed, -1, False, math.nan, math.nan, math.nan)
        approx = float(scores[row]) - loss if len(rows) else math.nan
        return Tried(removed, row, accepted, approx, exact, missed(reduction, guesses))

    def _guesses(self, scores: Tensor, rows: Tensor) -> Tensor:
        """What ranks the candidates tested, pivots first, nan where no score is known: [z + c]."""
        assert self.pivots is not None
        held = scores[self.pivots.rows] if self.num_proposals else self.pivots.guesses()
        found = torch.cat([held, scores[rows]])
        return found.where(torch.isfinite(found), math.nan)

    def _columns(self, removal: Removal, rows: Tensor, following: list[int]) -> tuple[Tensor, Tensor, Addition]:
        """The proposals' columns R [c, n], L'R' [m, c] and exact effects; the next removal's column comes along."""
        f, held = self.factor, self.ahead is not None and bool(self.ahead.slots)
        if not len(rows):
            none = f.D.new_empty(0)
            R, B = f.D.new_empty(0, len(f.D)), f.c.new_empty(f.m, 0)
            return R, B, Addition(none, none, none, none, B, none)
        also = [] if held else following[:1]
        R, V = f.residual_columns(removal, rows, f.directions(also))
        if also:
            self.ahead = Ahead(f, also, V)
        B = f.transposed_times(R)
        return R, B, self._test(removal, rows, R, B)

    def _room(self) -> int:
        """By how many pivots a rejected swap may enlarge the set."""
        assert self.pivots is not None
        grows = self.policy == "adaptive" and not self.correlation >= TRUSTED
        return self.num_pivots - len(self.pivots.rows) if grows else 0

    def _remember(self, approx: Tensor, exact: Tensor) -> None:
        pairs = torch.stack([approx, exact], 1)
        self.tested = torch.cat([self.tested, pairs[torch.isfinite(pairs).all(1)]])[-WINDOW:]

    def _eligible(self) -> Tensor:
        return ~self.factor.is_inducing & (self.factor.D > self.factor.least)

    def _removal_column(self, slots: list[int]) -> Tensor:
        """v of the first slot; where it is not at hand, those that follow come along in the same product."""
        found = self.ahead.take(slots[0]) if self.ahead is not None else None
        if found is None:
            wanted = slots[:1] if self.num_proposals else slots
            self.ahead = Ahead(self.factor, list(wanted), self.factor.times(self.factor.directions(wanted)))
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

    def _test(self, removal: Removal, rows: Tensor, R: Tensor, B: Tensor) -> Addition:
        f = self.factor
        D = R.gather(1, rows[:, None])[:, 0]
        explained = D <= f.least[rows]
        D = torch.where(explained, torch.ones_like(D), D)
        found = f.exact(D, R.square().sum(1), R @ f.train.y, B, removal.solve(f.P, B))
        return found._replace(reduction=found.reduction.masked_fill(explained, -math.inf))

    def _column(self, view: View, best: int, at_pivots: Addition, tested: Addition, R: Tensor, B: Tensor) -> Column:
        """The winner, a pivot or a tested proposal, normalised."""
        z = len(at_pivots.D)
        if best < z:
            (r, b), chosen, k = view.column(best), at_pivots, best
        else:
            r, b, chosen, k = R[best - z], B[:, best - z], tested, best - z
        root = float(chosen.D[k]) ** 0.5
        return Column(r / root, b / root, float(chosen.uu[k]), float(chosen.s[k]), chosen.Nb[:, k])

    def _accept(self, view: View, row: int, new: Column) -> None:
        """Make the swap; pivots and the next removals' columns follow it."""
        f, removal, ahead = self.factor, view.removal, self.ahead
        assert ahead is not None
        removed, lengths = int(f.inducing[removal.position]), ahead.lengths(removal.position)

        a, beta = f.accept(removal, row, new)
        view.pivots.accepted(view, new, row, removed)
        ahead.follow(removal, lengths, a, beta)
