"""One swap: remove a point, score every row, test the best few exactly, keep the best or put the point back.

Steps I to VI of Cao et al. 2013, section 3.4. Differing from the paper: the pivots' own exact scores, which cost
nothing, compete with the proposals; rejected proposals become pivots, since their columns are already paid for; and
the column needed to remove the *next* point rides along with the proposals, so a swap reads L twice, not three times.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.randomness import generator
from .factor import Addition, Column, Factor, Removal
from .pivots import Pivots, View
from .policies import FIRST, POOL, TRUSTED, WINDOW, best_of_pool, rank_correlation

LEAST_GAIN = 1e-12  # of the objective: smaller gains are rounding


class Tried(NamedTuple):
    """What one swap did. `approx` and `exact` are falls of the objective, the removal's loss counted.

    `regret` is by how much the best candidate tested beats the one with the best score, which the paper tests alone.
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
        self._next: tuple[int, Tensor] | None = None

    def refresh(self, step: int) -> bool:
        """Choose every pivot anew from the rows not yet explained; False when no such row is left.

        The adaptive policy keeps those it has grown.
        """
        if self.policy == "adaptive" and self.pivots is not None:
            return True
        eligible = torch.nonzero(self._eligible())[:, 0]
        order = torch.randperm(len(eligible), generator=generator(self.seed, "pivots", step)).to(eligible.device)
        wide = {"random": self.num_pivots, "optimised": POOL * self.num_pivots, "adaptive": min(FIRST, self.num_pivots)}
        rows = eligible[order[: wide[self.policy]]]
        if self.policy == "optimised" and len(rows):
            rows = best_of_pool(Pivots(self.factor, rows).E, rows, self.num_pivots)
        self.pivots = Pivots(self.factor, rows) if len(rows) else None
        return self.pivots is not None

    @property
    def correlation(self) -> float:
        """Rank correlation of scores and exact falls over the newest candidates tested."""
        return rank_correlation(self.tested)

    def rebuild(self) -> float:
        """Recompute the factor; return how far the carried objective had drifted, relative."""
        f = self.factor
        carried = f.total
        f.build(f.inducing)
        self._next = None
        if self.pivots is not None:
            self.pivots.choose(self.pivots.rows, self.pivots.oldest)
        exact = f.total
        return abs(carried - exact) / max(abs(exact), 1e-300)

    def swap(self, position: int, next_position: int, step: int) -> Tried:
        """Offer the point in slot `position` for removal; `next_position` is the slot that follows."""
        f, pivots = self.factor, self.pivots
        assert pivots is not None, "refresh() before swap()"
        removed = int(f.inducing[position])
        removal = f.remove(position, self._removal_column(position))
        view = pivots.without(removal)
        scores = view.approximate()  # [n]
        at_pivots = view.exact()  # [z]

        rows = self._proposals(scores, step)
        R, Lw = f.residual_columns(removal, rows, f.direction(next_position))  # [c, n], [n]
        B = f.transposed_times(R)  # [m, c]
        tested = self._test(removal, rows, R, B)

        reduction = torch.cat([at_pivots.reduction, tested.reduction])
        best = int(reduction.argmax())
        row = int(torch.cat([pivots.rows, rows])[best])
        kept = f.total
        loss = removal.terms.total(f.objective) - kept
        exact = float(reduction[best]) - loss
        accepted = exact > LEAST_GAIN * abs(kept)

        if accepted:
            self._accept(view, row, self._column(view, best, at_pivots, tested, R, B), next_position, Lw)
        else:
            self._next = (next_position, Lw)
            pivots.recycle(removal, rows, R, B, room=self._room())
        self._remember(scores[rows], tested.reduction)
        if not math.isfinite(exact):
            return Tried(removed, -1, False, math.nan, math.nan, math.nan)
        regret = float(reduction[best] - tested.reduction[0]) if len(rows) else math.nan
        return Tried(removed, row, accepted, float(scores[row]) - loss, exact, regret)

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

    def _removal_column(self, position: int) -> Tensor:
        if self._next is not None and self._next[0] == position:
            return self._next[1]
        return self.factor.times(self.factor.direction(position)[None])[0]

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
        found = f.exact(removal, D, R.square().sum(1), R @ f.train.y, B)
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

    def _accept(self, view: View, row: int, new: Column, next_position: int, Lw: Tensor) -> None:
        """Make the swap, and derive the next removal's column from columns at hand."""
        f, removal = self.factor, view.removal
        i, removed = removal.position, int(f.inducing[removal.position])
        length_i, length_next = float(f.T[:, i].norm()), float(f.T[:, next_position].norm())

        a, beta = f.accept(removal, row, new, next_position)
        view.pivots.accepted(view, new.u, new.b, a, row, removed)

        t_next = f.T[:, next_position]  # = T e_next - beta T e_i of the old T
        column = length_next * Lw - (beta * length_i) * removal.v + float(removal.w @ t_next) * a
        self._next = (next_position, column / t_next.norm())
