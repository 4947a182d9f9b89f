"""One try: remove a point, score the candidates, test the best exactly, accept the best or put the point back.

The steps are those of Cao et al. 2013, section 3.4, and stand in `Swapper.swap` in this order:

    I    remove point i from the factors                                            section 3.2
    II   evaluate the objective F_{m-1} without it                                  eqs 9, 11, 12
    III  select a candidate by its approximate reduction                            section 3.3.1
    IV   evaluate the exact reduction by the candidate                              eqs 14, 15, 16
    V    accept the candidate if the objective decreases, otherwise put i back      section 3.2
    VI   update the information pivots where needed                                 sections 3.3.1, 3.3.2

Differences from the paper: the exact reductions by the pivots, which cost nothing in n, compete with the proposals;
rejected proposals become pivots, since their columns are known; and the column that removes the *next* point is
computed together with the proposals, so that a swap reads L twice instead of three times. Without proposals (the
default) only pivots are candidates. Then a swap does not read L at all; only drawing pivots again does, for all pivots
and for the removals until the next draw together, in matrix products that a BLAS does well. Steps I, II and IV are then
done for all tries until the next draw together, and again only after an accepted one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ....errors import SettingError
from ....linalg.blocks import row_blocks
from ....linalg.randomness import generator
from ....linalg.ranks import rank_correlation
from ...capabilities import Landscape
from .factor import Addition, Change, Column, Factor, Proposals, Removal
from .pivots import Pivots, ReplacementScores, exact_effects
from .policies import WINDOW, Candidates, PivotPolicy, missed_reduction

LEAST_GAIN = 1e-12  # a smaller decrease, relative to the objective, is rounding
INVERSE_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}  # |w'P G w - 1| from which on P is computed again
ALL_ROWS = 500  # up to this many candidates, a landscape evaluates all exactly
SAMPLE = 200  # with more candidates, a random sample of this size


class Tried(NamedTuple):
    """What one swap did.

    Attributes
    ----------
    removed : int
        Data row that was offered for removal.
    proposed : int
        The best candidate; -1 if there was none.
    approx, exact : float
        Approximate and exact decrease of the objective by the swap, in nat. Without proposals `approx` is nan, since
        all candidates are tested and none is predicted.
    regret : float
        By how much the best candidate is better than the one with the best score, which alone is tested in the paper.
    inverse_error : float
        |w'P G w - 1| at the removal. P was computed again if it was larger than `INVERSE_TOLERANCE`.
    """

    removed: int
    proposed: int
    accepted: bool
    approx: float
    exact: float
    regret: float
    inverse_error: float

    @classmethod
    def of(cls, removed: int, proposed: int, accepted: bool, exact: float, **others: float) -> Tried:
        """Describe a swap; where all candidates are explained, without numbers of a candidate."""
        if math.isfinite(exact):
            return cls(removed, proposed, accepted, exact=exact, **others)
        return cls(removed, -1, False, math.nan, math.nan, math.nan, others["inverse_error"])


class Removals:
    """The removals that are offered next (step I), and what each pivot would bring in the place of each point.

    For the slots that are offered next, whose columns of T are t, this keeps L t, G t and P t. Divided by |t| they are
    the v, G w and P w of a removal. L is read once for all of them, in one product together with the rows of pivots or
    proposals. An accepted swap changes the columns of T to t - beta w and L to L + a w', so that

        L t <- L t - beta v + (w't) a
        G t <- G t - beta G w + (w't) half + (half't) w                     with the new t on the right,
        P t <- P t - (q't) q / kappa + (g't) g / s                          except for q't, which uses the old t

    A try that is rejected changes nothing, so that steps II and IV are evaluated for several tries together, and again
    only after an accepted swap or with other pivots. With few points the calls take longer than the arithmetic. The
    tight VFE needs all n rows for each point, and is evaluated for one try at a time.

    Parameters
    ----------
    slots : list of int
        In the order in which they are offered.
    V : Tensor [k, n]
        L t for these slots.

    Attributes
    ----------
    products : Tensor [k, 3, m]
        t, G t and P t.
    index : Tensor [k]
        The slots, on the device.
    """

    def __init__(self, factor: Factor, slots: list[int], V: Tensor) -> None:
        self.factor, self.slots, self.V = factor, slots, V
        self.index = torch.tensor(slots, dtype=torch.int64, device=V.device)
        self.multiply()

    def multiply(self) -> None:
        """Compute G t and P t from the factor: 4 k m^2 flops."""
        T = self.factor.T[:, self.index].T  # [k, m]
        self.products = torch.stack([T, T @ self.factor.G, T @ self.factor.P], 1)  # [k, 3, m]
        self.forget()

    def forget(self) -> None:
        """Discard what was evaluated, because the factor or the pivots have changed."""
        self._i = self._count = 0  # of the tries evaluated together: the next one, and their number

    @property
    def is_evaluated(self) -> bool:
        """Whether steps II and IV are done for the first slot."""
        return self._i < self._count

    def evaluate(self, pivots: Pivots, most: int) -> None:
        """Evaluate the first slots, at most `most` of them, with the pivots as candidates.

        O(k m z) flops, and one read by the host; for the tight VFE O(n z).
        """
        f, self._i, self._count = self.factor, 0, 1 if self.factor.is_tight else min(most, len(self.slots))
        self._lengths, products, self._of_pivots = self._read(pivots)
        self._numbers = [f.removal_numbers(row) for row in products.tolist()]
        self._first: Removal | None = None
        if f.is_tight:
            self._first = self.removal()
            terms = [self._first.terms]
            self._effects = Addition(*(part[None] for part in ReplacementScores(pivots, self._first).exact()))
        else:
            terms = [f.terms_without(removed) for removed in self._numbers]  # (II) eqs 9, 11, 12
            each = f.removal_numbers(products.split(1, dim=1))  # [k, 1] each
            self._effects = exact_effects(pivots, each, self._of_pivots.unbind(1))  # (IV) [k, z] each    eqs 14-16
        self._losses = [without.total(f.objective) - f.total for without in terms]
        greatest = self._effects.reduction.max(1)
        self._reductions, self._best = greatest.values.tolist(), greatest.indices.tolist()
        self._regrets = missed_reduction(self._effects.reduction, pivots.ranks_by_score()).tolist()

    def _read(self, p: Pivots) -> tuple[list[float], Tensor, Tensor]:
        """Return |t| [k], numbers of the removals [k, 14] and their products with the pivots [k, 8, z], on the host.

        A removal is along w = t / |t|. On the device t is used, and the host divides.
        """
        f, k, z = self.factor, self._count, len(p.rows)
        V, rows = self.V[:k], self.products[:k]
        removed = torch.tensor([f.inducing_rows[slot] for slot in self.slots[:k]])
        both = torch.cat([p.rows_on_host, removed]).to(V.device)  # [z + k], in one copy
        flat_and_c = torch.cat([rows.flatten(0, 1), f.c_and_Pc])  # [3 k + 2, m]
        parts = [
            torch.bmm(rows, rows.mT),  # [k, 3, 3]
            flat_and_c @ p.H,  # [3 k + 2, z]
            rows @ f.c,  # [k, 3]
            V @ f.train.y,  # [k]
            V[:, both],  # [k, z + k]
            p.diagonal(),  # [z]
            p.E[:, both[z:]],  # [z, k]
        ]
        on_host = torch.cat([part.flatten() for part in parts]).cpu().split([part.numel() for part in parts])
        squares, with_H, of_v = on_host[0].view(k, 9), on_host[1].view(-1, z), on_host[4].view(k, z + k)
        length = squares[:, :1].sqrt()  # [k, 1]
        linear = torch.cat([on_host[2].view(k, 3), torch.stack([on_host[3], of_v[:, z:].diagonal()], 1)], 1)  # [k, 5]
        own = torch.cat([with_H[:-2].view(k, 3, z), of_v[:, None, :z]], 1) / length[:, None]  # [k, 4, z]
        shared = torch.cat([with_H[-2:], on_host[5][None]])  # [3, z]
        of_pivots = torch.cat([own, shared.expand(k, 3, z), on_host[6].view(z, k).T[:, None]], 1)  # [k, 8, z]
        return length[:, 0].tolist(), torch.cat([squares / length.square(), linear / length], 1), of_pivots

    # -- the first slot, once it is evaluated ----------------------------------------------------------------------

    @property
    def inverse_error(self) -> float:
        """|w'P G w - 1|, which is 0 as long as P is the inverse of G."""
        return abs(self._numbers[self._i].qGw - 1.0)

    @property
    def loss(self) -> float:
        """(II) The increase of the objective by the removal."""
        return self._losses[self._i]

    @property
    def best(self) -> tuple[int, float, float]:
        """(IV) The pivot that decreases the objective most, by how much, and how much better than the best score's."""
        return self._best[self._i], self._reductions[self._i], self._regrets[self._i]

    @property
    def effects(self) -> Addition:
        """(IV) The exact effects [z] of all pivots, on the host."""
        return Addition(*(part[self._i] for part in self._effects))

    def removal(self) -> Removal:
        """(I) The model without the point."""
        if self._first is not None:
            return self._first
        length = self._lengths[self._i]
        v, rows = self.V[0] / length, self.products[0] / length
        return self.factor.removal(self.slots[0], v, rows, self._numbers[self._i], self._of_pivots[self._i])

    def drop_first(self) -> None:
        """Go on to the next slot."""
        self._i += 1
        self.slots, self.index = self.slots[1:], self.index[1:]
        self.V, self.products = self.V[1:], self.products[1:]

    def follow(self, new: Column, change: Change) -> None:
        """Update the columns that are left after an accepted swap."""
        self.forget()
        if not self.slots:
            return
        factors = change.factors.index_select(1, self.index).T  # [k, 5]
        self.V.addmm_(factors[:, :2], new.vua[::2])  # v and a
        self.products.flatten(1).addmm_(factors, change.columns.view(5, -1))


class Swapper:
    """A factor, its pivots, and the removals that are offered next.

    Parameters
    ----------
    num_pivots : int
        z, the number of information pivots.
    num_proposals : int
        Candidates beside the pivots that each swap tests exactly.
    compete : bool
        Whether every swap tests all pivots exactly, and makes pivots of rejected proposals. Without it only the
        candidate with the best score is tested, as in the paper (section 3.3.1), and one proposal is needed.

    Attributes
    ----------
    pivots : Pivots or None
        None before the first `refresh`.
    tested : Tensor [<= WINDOW, 2]
        Approximate and exact reductions of the newest candidates tested.
    correlation : float
        Their rank correlation.
    """

    def __init__(
        self, factor: Factor, num_pivots: int, num_proposals: int, seed: int, policy: PivotPolicy, compete: bool = True
    ) -> None:
        self.factor, self.num_pivots, self.seed = factor, num_pivots, seed
        self.num_proposals, self.policy, self.compete = num_proposals if compete else 1, policy, compete
        self.pivots: Pivots | None = None
        self.removals: Removals | None = None
        self._accepted_in_a_row = 0  # the newest tries that were all accepted
        self.set_tested(factor.D.new_zeros(0, 2))

    def set_tested(self, tested: Tensor) -> None:
        """Set the newest tests [<= WINDOW, 2], which stay on the host, and compute their rank correlation."""
        self.tested = tested.cpu()
        self.correlation = window_correlation(self.tested)

    def _add_tested(self, approx: Tensor, exact: Tensor) -> None:
        pairs = torch.stack([approx.cpu(), exact.cpu()], 1)  # [c, 2]
        self.set_tested(torch.cat([self.tested, pairs[torch.isfinite(pairs).all(1)]])[-WINDOW:])

    def swap(self, slots: list[int], step: int) -> Tried:
        """Offer one point for removal, and replace it by the best candidate if the objective decreases.

        Parameters
        ----------
        slots : list of int
            The slot of the point, and the slots that are offered after it.
        step : int
            It determines the random draw of proposals.

        Returns
        -------
        Tried

        Notes
        -----
        Without proposals O(n z + m^2) flops; with c proposals 4 n m c more, and n z^2 for the scores.
        """
        f, pivots = self.factor, self.pivots
        assert pivots is not None, "refresh() comes before swap()"

        # (I) remove the point, (II) evaluate the objective without it, and (IV) the exact reduction by each pivot
        removals, inverse_error = self._offered(slots)
        removed, current, loss = f.inducing_rows[slots[0]], f.total, removals.loss
        best, greatest, regret = removals.best
        exact, approx = greatest - loss, math.nan
        if not self.num_proposals and not exact > LEAST_GAIN * abs(current):  # (V) no pivot gains: the point stays
            removals.drop_first()
            self._accepted_in_a_row = 0
            row = int(pivots.rows_on_host[best])
            return Tried.of(removed, row, False, exact, approx=approx, regret=regret, inverse_error=inverse_error)
        removal, by_pivots = removals.removal(), removals.effects
        removals.drop_first()

        # (III) select further candidates by their approximate reduction, and (IV) evaluate the exact one by each
        scores_without, z = pivots.without(removal), len(pivots.rows)
        reduction, candidates, candidate_scores = by_pivots.reduction, pivots.rows_on_host, pivots.ranks_by_score()
        if self.num_proposals:
            scores = scores_without.approximate()  # [n]
            proposals = self._tested_proposals(removal, scores, step, slots[1:])
            if not self.compete:  # the paper tests the candidate with the best score alone
                reduction = reduction.masked_fill(candidates != int(scores.argmax()), -math.inf)
            reduction = torch.cat([reduction, proposals.addition.reduction.cpu()])  # [z + c]
            candidates = torch.cat([candidates, proposals.rows.cpu()])  # [z + c]
            candidate_scores = scores[candidates].cpu()
        best = int(reduction.argmax())
        row, exact = int(candidates[best]), float(reduction[best]) - loss

        # (V) accept the best candidate, or leave the factor as it is; (VI) update the pivots
        accepted = exact > LEAST_GAIN * abs(current)
        if accepted:
            if best < z:
                new = scores_without.pivot_column(best, by_pivots)
            else:
                new = scores_without.proposal_column(best - z, proposals, removed)
            change = f.accept(removal, row, new)
            pivots.accepted(scores_without, new, change, removed, best if best < z else None)
            assert self.removals is not None
            self.removals.follow(new, change)
            self._accepted_in_a_row += 1
        if self.num_proposals:
            approx = float(scores[row]) - loss
            if len(proposals.rows):
                if not accepted and self.compete:
                    self._recycle(removal, proposals)
                self._add_tested(scores[proposals.rows], proposals.addition.reduction)
        regret = float(missed_reduction(reduction, candidate_scores))
        return Tried.of(removed, row, accepted, exact, approx=approx, regret=regret, inverse_error=inverse_error)

    # -- (I, II) the removals that are offered ---------------------------------------------------------------------

    def _offered(self, slots: list[int]) -> tuple[Removals, float]:
        """Return the removals, those of `slots` evaluated as far as it is worthwhile, and the error of the inverse P.

        One is evaluated with proposals, which change the pivots at every try, and where the next try is likely to be
        accepted as the two before it were. If the error is large, P is computed again, and the evaluation repeated.
        """
        f, pivots, removals = self.factor, self.pivots, self.removals_of(slots)
        assert pivots is not None
        most = 1 if self.num_proposals or self._accepted_in_a_row > 1 else len(slots)
        if not removals.is_evaluated:
            removals.evaluate(pivots, most)
        error = removals.inverse_error
        if not error <= INVERSE_TOLERANCE[f.c.dtype]:  # also where it is nan
            f.rebuild_inverse()
            pivots.multiply()
            removals.multiply()
            removals.evaluate(pivots, most)
        return removals, error

    def removals_of(self, slots: list[int]) -> Removals:
        """Return the removals of these slots, which are computed if they are not known."""
        if self.removals is None or self.removals.slots[:1] != slots[:1]:
            wanted = self._slots_to_compute(slots)
            self.removals = Removals(self.factor, wanted, self.factor.times(self.factor.T[:, wanted].T))
        return self.removals

    def _slots_to_compute(self, slots: Sequence[int]) -> list[int]:
        """Return the slots whose columns are not yet known. With proposals every swap computes the next one."""
        if not self.num_proposals:
            return list(slots)
        is_known = self.removals is not None and self.removals.slots[:1] == slots[:1]
        return [] if is_known else list(slots[:1])

    # -- (III, IV) candidates beside the pivots --------------------------------------------------------------------

    def _tested_proposals(self, removal: Removal, scores: Tensor, step: int, following: list[int]) -> Proposals:
        """Compute the exact effects of the proposals, and in the same product the column of the next removal."""
        f, rows = self.factor, self._proposed_rows(scores, step)
        if not len(rows):
            no_rows, no_columns = f.D.new_empty(0), f.c.new_empty(f.m, 0)
            nothing = Addition(D=no_rows, uu=no_rows, yu=no_rows, s=no_rows, reduction=no_rows)
            return Proposals(rows, f.D.new_empty(0, len(f.D)), no_columns, no_columns, nothing)
        has_next = self.removals is not None and bool(self.removals.slots)
        next_slots = [] if has_next else following[:1]
        R, V = f.residual_columns(rows, next_slots, removal)  # [c, n], [<= 1, n]
        if next_slots:
            self.removals = Removals(f, next_slots, V)
        return f.propose(removal, rows, R)

    def _proposed_rows(self, scores: Tensor, step: int) -> Tensor:
        """Return rows to test exactly: the best by score and as many drawn uniformly, none of them a pivot.

        Where the pivots do not compete, there is no proposal if a pivot has the best score.
        """
        assert self.pivots is not None
        if not self.compete and int(scores.argmax()) in self.pivots.rows_on_host.tolist():
            return self.pivots.rows[:0]
        open_scores = scores.index_fill(0, self.pivots.rows, -math.inf)  # [n]
        by_score = (self.num_proposals + 1) // 2
        top = open_scores.topk(min(by_score, len(scores)))
        rows = top.indices[top.values > -math.inf]
        draw, number = generator(self.seed, "proposals", step), 4 * (self.num_proposals - by_score)
        draws = torch.randint(len(scores), (number,), generator=draw).to(rows.device)
        draws = draws[open_scores[draws] > -math.inf]
        distinct = list(dict.fromkeys(torch.cat([rows, draws]).tolist()))
        return torch.tensor(distinct[: self.num_proposals], dtype=torch.int64, device=rows.device)

    def _recycle(self, removal: Removal, proposals: Proposals) -> None:
        """(VI) Make pivots of rejected proposals."""
        assert self.pivots is not None
        assert self.removals is not None
        self.removals.forget()
        room = self.policy.room(self.num_pivots, len(self.pivots.rows), self.correlation)
        self.pivots.recycle(removal, proposals, room)

    # -- (VI) drawing pivots again ---------------------------------------------------------------------------------

    def refresh(self, step: int, slots: Sequence[int] = ()) -> bool:
        """Draw the pivots again from the rows that are not yet explained (step VI, section 3.3.2).

        Parameters
        ----------
        step : int
            It determines the random draws.
        slots : sequence of int
            Slots that are offered for removal until the next refresh; their columns are computed together.

        Returns
        -------
        bool
            False if no row is left that could become an inducing point.
        """
        if self.policy.keeps_pivots and self.pivots is not None:
            return True
        f = self.factor
        rows = torch.nonzero(~f.is_inducing & (f.D > f.least))[:, 0]  # [k]
        order = torch.randperm(len(rows), generator=generator(self.seed, "pivots", step)).to(rows.device)
        if not len(rows):
            self.pivots = None
            return False
        drawn = self.policy.draw(
            Candidates(
                factor=f,
                rows=rows,
                shuffled=rows[order],
                pivots=self.pivots,
                num_pivots=self.num_pivots,
                seed=self.seed,
                step=step,
            )
        )
        if not len(drawn.rows):
            self.pivots = None
            return False
        pivots = self.set_pivots(drawn.rows, 0, slots, ranked=drawn.ranked)
        if drawn.scores is not None:  # compare these scores with the exact reductions, which cost nothing in n
            exact = pivots.without(f.no_removal()).exact().reduction
            self._add_tested(drawn.scores[pivots.rows], exact)
        return True

    def set_pivots(self, rows: Tensor, oldest: int, slots: Sequence[int] = (), ranked: Tensor | None = None) -> Pivots:
        """Make these rows [z] the pivots, and compute the columns that remove the next points in the same product."""
        wanted = self._slots_to_compute(slots)
        E, V = self.factor.residual_columns(rows, wanted)  # [z, n], [k, n]
        self.pivots = Pivots(self.factor, rows, E, oldest, ranked)
        if wanted:
            self.removals = Removals(self.factor, wanted, V)
        elif self.removals is not None:
            self.removals.forget()
        return self.pivots

    def rebuild(self) -> float:
        """Compute the factor again from scratch: 2 n m^2 flops.

        Returns
        -------
        float
            The drift: by how much the carried objective was wrong, relative to its value.
        """
        f = self.factor
        carried = f.total
        f.build(f.inducing)
        self.removals = None
        if self.pivots is not None:
            self.set_pivots(self.pivots.rows, self.pivots.oldest, ranked=self.pivots.ranked)
        return abs(carried - f.total) / max(abs(f.total), 1e-300)

    # -- what a person asks for ------------------------------------------------------------------------------------

    def landscape(self, slot: int, step: int) -> Landscape:
        """Evaluate every row in the place of the point in `slot`, as in figure 1 of the paper.

        The approximate scores are those that the next swap would see. The exact ones are evaluated for all rows if
        there are few, otherwise for a random sample that `step` determines: 2 n m flops per row.
        """
        f, pivots = self.factor, self.pivots
        n, removed = len(f.train), int(f.inducing[slot])
        rows = torch.arange(n, device=f.train.y.device)
        exact = torch.full((n,), math.nan, dtype=f.train.y.dtype, device=rows.device)
        if pivots is None:
            return Landscape(rows, torch.full_like(exact, -math.inf), exact, removed, math.nan, rows[:0])

        removal = f.remove(slot)
        loss = removal.terms.total(f.objective) - f.total
        approx = pivots.without(removal).approximate() - loss  # [n]
        chosen = rows[approx > -math.inf]
        if len(chosen) > ALL_ROWS:
            order = torch.randperm(len(chosen), generator=generator(self.seed, "landscape", step)).to(chosen.device)
            chosen = torch.unique(torch.cat([chosen[order[:SAMPLE]], pivots.rows[torch.isin(pivots.rows, chosen)]]))
        for block in row_blocks(len(chosen), 3 * exact.element_size() * n, exact):
            R, _ = f.residual_columns(chosen[block], removal=removal)  # [c, n]
            reduction = f.propose(removal, chosen[block], R).addition.reduction
            exact[chosen[block]] = reduction.where(reduction > -math.inf, math.nan) - loss
        comparable, correlation = torch.isfinite(approx) & torch.isfinite(exact), math.nan
        if int(comparable.sum()) > 2:
            correlation = rank_correlation(approx[comparable].cpu().numpy(), exact[comparable].cpu().numpy())
        return Landscape(rows, approx, exact, removed, correlation, pivots.rows.clone())

    def force(self, slot: int, row: int) -> None:
        """Put data row `row` in the place of the point in `slot`, and compute the factor again: 4 n m^2 flops.

        Raises
        ------
        SettingError
            The row is an inducing point already, or the points that stay explain it to rounding.
        """
        f = self.factor
        if bool(f.is_inducing[row]):
            raise SettingError(f"Row {row} is an inducing point already; choose another row.")
        residual, _ = f.residual_columns(torch.tensor([row], device=f.D.device), removal=f.remove(slot))
        if float(residual[0, row]) <= float(f.least[row]):
            raise SettingError(f"Row {row} is explained by the inducing points to rounding; choose another row.")
        inducing = f.inducing.clone()
        inducing[slot] = row
        f.build(inducing)


def window_correlation(tested: Tensor) -> float:
    """Return Spearman's correlation of approximate and exact reductions [w, 2]; nan for fewer than four."""
    return rank_correlation(*tested.cpu().numpy().T) if len(tested) >= WINDOW // 8 else math.nan
