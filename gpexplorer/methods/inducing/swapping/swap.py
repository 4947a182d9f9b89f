"""One swap: remove a point, score the candidates, test the best exactly, accept the best or put the point back.

The steps are those of Cao et al. 2013, section 3.4, and stand in `Swapper.swap`:

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
done for all tries until the next draw together, and again only after an accepted one (`tries.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ....linalg.randomness import generator
from ....problem import Cost, Problem
from ..logarithmic_trace import ENTRY_FLOPS, SAMPLE, WIDTH
from .factor import QUEUE, Factor
from .pivot_policies import WINDOW, Candidates, PivotPolicy, missed_reduction, rank_correlation
from .pivots import Pivots
from .removal_columns import RemovalColumns
from .swap_effects import Addition, Proposals, Removal
from .tries import Tries

LEAST_GAIN = 1e-12  # a smaller decrease, relative to the objective, is rounding
INVERSE_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}  # |w'P G w - 1| from which on P is computed again
SWAP_CALLS = 210.0  # tensor operations of a swap in which pivots are updated
PROPOSAL_CALLS = 100.0  # further ones where proposals are tested
TIGHT_CALLS = 12.0  # further ones per pass of `log_reductions`


class Tried(NamedTuple):
    """What one swap did.

    Attributes
    ----------
    removed : int
        Data row that was offered for removal.
    proposed : int
        The best candidate; -1 if there was none.
    accepted : bool
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


class Swapper:
    """A factor, its pivots, and the columns that remove the next points.

    Parameters
    ----------
    factor : Factor
    num_pivots : int
        z, the number of information pivots.
    num_proposals : int
        Candidates beside the pivots that each swap tests exactly.
    seed : int
    policy : PivotPolicy
    compete : bool
        Whether every swap tests all pivots exactly, and makes pivots of rejected proposals. Without it only the
        candidate with the best score is tested, as in the paper (section 3.3.1), and one proposal is needed.

    Attributes
    ----------
    pivots : Pivots or None
        None before the first `refresh`.
    removal_columns : RemovalColumns or None
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
        self.removal_columns: RemovalColumns | None = None
        self._tries: Tries | None = None  # the next ones, as long as neither the factor nor the pivots change
        self._place, self._in_a_row = 0, 0  # of the next try in them; the newest tries that were all accepted
        self.set_tested(factor.D.new_zeros(0, 2))

    def set_tested(self, tested: Tensor) -> None:
        """Set the newest tests [<= WINDOW, 2], which stay on the host, and compute their rank correlation."""
        self.tested = tested.cpu()
        self.correlation = rank_correlation(self.tested)

    # -- pivots ----------------------------------------------------------------------------------------------------

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
        rows = torch.nonzero(self._is_eligible())[:, 0]  # [k]
        order = torch.randperm(len(rows), generator=generator(self.seed, "pivots", step)).to(rows.device)
        if not len(rows):
            self.pivots = None
            return False
        drawn = self.policy.draw(
            Candidates(
                factor=self.factor,
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
            exact = pivots.without(self.factor.no_removal()).exact().reduction
            self._add_tested(drawn.scores[pivots.rows], exact)
        return True

    def set_pivots(self, rows: Tensor, oldest: int, slots: Sequence[int] = (), ranked: Tensor | None = None) -> Pivots:
        """Make these rows [z] the pivots, and compute the columns that remove the next points in the same product."""
        wanted = self._slots_to_compute(slots)
        E, V = self.factor.residual_columns(rows, wanted)  # [z, n], [k, n]
        self.pivots, self._tries = Pivots(self.factor, rows, E, oldest, ranked), None
        if wanted:
            self.removal_columns = RemovalColumns(self.factor, wanted, V)
        return self.pivots

    def _slots_to_compute(self, slots: Sequence[int]) -> list[int]:
        """Return the slots whose columns are not yet known. With proposals every swap computes the next one."""
        if not self.num_proposals:
            return list(slots)
        is_known = self.removal_columns is not None and self.removal_columns.slots[:1] == slots[:1]
        return [] if is_known else list(slots[:1])

    def _is_eligible(self) -> Tensor:
        """Which rows [n] could become inducing points."""
        return ~self.factor.is_inducing & (self.factor.D > self.factor.least)

    def _add_tested(self, approx: Tensor, exact: Tensor) -> None:
        pairs = torch.stack([approx.cpu(), exact.cpu()], 1)  # [c, 2]
        self.set_tested(torch.cat([self.tested, pairs[torch.isfinite(pairs).all(1)]])[-WINDOW:])

    # -- swaps -----------------------------------------------------------------------------------------------------

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
        tries, i, inverse_error = self._next_try(slots)
        removed, current, loss = f.inducing_rows[slots[0]], f.total, tries.losses[i]
        if not self.num_proposals and not tries.reductions[i] - loss > LEAST_GAIN * abs(current):  # (V) no pivot gains
            self._in_a_row = 0
            exact, regret, row = tries.reductions[i] - loss, tries.regrets[i], int(pivots.rows_on_host[tries.best[i]])
            return Tried.of(removed, row, False, exact, approx=math.nan, regret=regret, inverse_error=inverse_error)

        # (III) select further candidates by their approximate reduction, and (IV) evaluate the exact one by each
        removal = tries.removal(i)
        scores_without, by_pivots = pivots.without(removal), tries.effects(i)
        scores = scores_without.approximate() if self.num_proposals else f.D.new_empty(0)  # [n]
        rows = self._proposed_rows(scores, step) if self.num_proposals else pivots.rows[:0]
        proposals = self._test(removal, rows, slots[1:])

        reduction, candidates, candidate_scores = by_pivots.reduction, pivots.rows_on_host, pivots.ranks_by_score()
        if not self.compete:
            reduction = reduction.masked_fill(candidates != int(scores.argmax()), -math.inf)
        if self.num_proposals:
            reduction = torch.cat([reduction, proposals.addition.reduction.cpu()])  # [z + c]
            candidates = torch.cat([candidates, rows.cpu()])  # [z + c]
            candidate_scores = scores[candidates].cpu()
        best = int(reduction.argmax())
        row, z = int(candidates[best]), len(pivots.rows)
        exact = float(reduction[best]) - loss
        accepted = exact > LEAST_GAIN * abs(current)

        # (V) accept the best candidate, or leave the factor as it is; (VI) update the pivots
        if accepted:
            if best < z:
                new = scores_without.pivot_column(best, by_pivots)
            else:
                new = scores_without.proposal_column(best - z, proposals, removed)
            change = f.accept(removal, row, new)
            pivots.accepted(scores_without, new, change.vectors, removed, best if best < z else None)
            assert self.removal_columns is not None
            self.removal_columns.follow(new, change)
            self._tries, self._in_a_row = None, self._in_a_row + 1
        elif len(rows) and self.compete:
            self._tries = None
            pivots.recycle(removal, proposals, room=self.policy.room(self.num_pivots, z, self.correlation))
        if len(rows):
            self._add_tested(scores[rows], proposals.addition.reduction)
        approx = float(scores[row]) - loss if len(scores) else math.nan
        regret = float(missed_reduction(reduction, candidate_scores))
        return Tried.of(removed, row, accepted, exact, approx=approx, regret=regret, inverse_error=inverse_error)

    def _next_try(self, slots: list[int]) -> tuple[Tries, int, float]:
        """Return the evaluation of the try of the first slot, with its place in it, and the error of the inverse P.

        If the error is large, P is computed again, and the evaluation repeated.
        """
        if self._tries is None or self._tries.slots[self._place : self._place + 1] != slots[:1]:
            self._evaluate(slots)
        assert self._tries is not None and self.removal_columns is not None
        error = self._tries.inverse_errors[self._place]
        if not error <= INVERSE_TOLERANCE[self.factor.c.dtype]:  # also where it is nan
            self._rebuild_inverse()
            self._evaluate(slots)
        self.removal_columns.drop_first()
        self._place += 1
        return self._tries, self._place - 1, error

    def _evaluate(self, slots: list[int]) -> None:
        """Evaluate the tries of these slots, or only that of the first.

        One is evaluated with proposals, which change the pivots at every try, and where the next try is likely to be
        accepted as the two before it were.
        """
        if self.removal_columns is None or self.removal_columns.slots[:1] != slots[:1]:
            wanted = self._slots_to_compute(slots)
            self.removal_columns = RemovalColumns(self.factor, wanted, self.factor.times(self.factor.T[:, wanted].T))
        assert self.pivots is not None
        most = 1 if self.num_proposals or self._in_a_row > 1 else len(slots)
        self._tries, self._place = Tries(self.factor, self.pivots, self.removal_columns, most), 0

    def _rebuild_inverse(self) -> None:
        """Compute P from G, and all that is carried with it: O(m^3 + m^2 z) flops, and no read of L."""
        self.factor.rebuild_inverse()
        if self.pivots is not None:
            self.pivots.multiply()
        if self.removal_columns is not None:
            self.removal_columns.multiply()

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
        draws = torch.randint(
            len(scores), (4 * (self.num_proposals - by_score),), generator=generator(self.seed, "proposals", step)
        ).to(rows.device)
        draws = draws[open_scores[draws] > -math.inf]
        distinct = list(dict.fromkeys(torch.cat([rows, draws]).tolist()))
        return torch.tensor(distinct[: self.num_proposals], dtype=torch.int64, device=rows.device)

    def _test(self, removal: Removal, rows: Tensor, following: list[int]) -> Proposals:
        """Compute the exact effects of the proposals, and in the same product the column of the next removal."""
        f = self.factor
        if not len(rows):
            no_rows = f.D.new_empty(0)
            nothing = Addition(D=no_rows, uu=no_rows, yu=no_rows, s=no_rows, reduction=no_rows)
            no_columns = f.c.new_empty(f.m, 0)
            return Proposals(rows, f.D.new_empty(0, len(f.D)), no_columns, no_columns, nothing)
        has_next = self.removal_columns is not None and bool(self.removal_columns.slots)
        next_slots = [] if has_next else following[:1]
        R, V = f.residual_columns(rows, next_slots, removal)  # [c, n], [<= 1, n]
        if next_slots:
            self.removal_columns = RemovalColumns(f, next_slots, V)
        return f.propose(removal, rows, R)

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
        self.removal_columns = self._tries = None
        if self.pivots is not None:
            self.set_pivots(self.pivots.rows, self.pivots.oldest, ranked=self.pivots.ranked)
        exact = f.total
        return abs(carried - exact) / max(abs(exact), 1e-300)


def swap_cost(
    problem: Problem,
    num_inducing: int,
    num_pivots: int,
    num_proposals: int,
    pivot_refresh: int,
    objective: str = "vfe",
) -> Cost:
    """Predict the mean cost of one swap.

    Parameters
    ----------
    problem : Problem
    num_inducing, num_pivots, num_proposals, pivot_refresh : int
        m, z, c, and the number of swaps after which pivots are drawn again.
    objective : {"vfe", "tight-vfe", "pp"}

    Notes
    -----
    Proposals read L twice. Pivots are drawn by two products with L, one of them with the columns of the next removals.
    Waiting changes are applied once in `QUEUE` swaps.
    """
    z, c = num_pivots, num_proposals
    n, s = len(problem.train), problem.train.y.element_size()
    m, z = min(num_inducing, n), min(z, n)
    share = 1.0 / pivot_refresh
    scoring = 8.0 * n * z * z * (1.0 if c else share)
    flops = 2.0 * n * m * ((2 * c + 1 if c else 1) + 2 * z * share + 1) + scoring
    flops += 2.0 * m * m * (z * share + c + 12)
    calls = SWAP_CALLS + (PROPOSAL_CALLS if c else 0.0)
    if objective == "tight-vfe":
        flops += ENTRY_FLOPS * n * (z + c) + SAMPLE * (2.0 * z + ENTRY_FLOPS) * n * (1.0 if c else share)
        calls += TIGHT_CALLS * n / WIDTH
    moved = s * (n * m * ((2.0 if c else 0.0) + 2.0 * share + 2.0 / QUEUE) + (8.0 * n * (z + c) if c else 3.0 * n * z))
    arrays = {
        "factor L": s * n * m,
        "waiting changes": s * n * QUEUE,
        "pivot columns": 3 * s * n * z,
        "m x m factors": 4 * s * m * m,
        "K_mn while L is built": s * n * m,
    }
    return Cost(flops, moved, arrays, calls)
