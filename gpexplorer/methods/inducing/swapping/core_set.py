"""What a swap costs, and points of more rows than its factors fit for: chosen on a core set, fitted to all rows.

A swap needs columns of n numbers: those of L, of the pivots, and of the changes that wait. Where these would take more
than the setting `memory`, swaps and the hyperparameters between them use a random core set of as many rows as fit. Once
they end, all rows have the last word: the hyperparameters are learned further on the objective of all rows, which is a
sum over them and takes one block at a time, and so are moved points, where `polish` moves them. Predictions are always
those of all rows.

While points are chosen, the objective and its terms that a step reports are those of the core set, multiplied by the
number of all rows per row of the core set: an estimate of the objective of all rows, up to the terms in m.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....errors import SettingError
from ....objectives import nystrom
from ....problem import Cost, Outcome, Problem, Step
from ...capabilities import Landscape
from ...setting_kinds import amount
from ..distinct_rows import random_order
from ..reductions import ENTRY_FLOPS, SAMPLE, WIDTH
from ..reporting import halves
from ..settings import SparseMethod
from .after_swaps import Phase, learning_phase, most_points
from .factor import QUEUE
from .state import SwapInfo, SwapState

ALL_ROWS = "all rows"  # the phase after the last swap
GIGABYTE = 1e9
FIXED = "m x m factors"  # the part of a swap's memory that does not depend on the rows
WHILE_REFRESHED = 1.33  # times the formula of a swap: old and new columns exist while pivots are drawn again
FEWEST_ROWS = 10  # per inducing point, however little memory is allowed
SWAP_CALLS = 210.0  # tensor operations of a swap in which pivots are updated
PROPOSAL_CALLS = 100.0  # further ones where proposals are tested
TIGHT_CALLS = 12.0  # further ones per pass of `log_reductions`


def memory() -> Any:
    """Return the setting that limits the memory of swaps."""
    return amount(
        2.0,
        (0.0, 16.0),
        doc="Gigabytes for the columns of swaps, about. Where all rows take more, points are chosen on a random core "
        "set of as many rows as fit, and then fitted to all rows; 0 means no limit.",
    )


class SwapMethod(SparseMethod):
    """What a core set asks of the method that chooses points on it: CholQR, which is defined above this module."""

    memory: Any
    gap: Any
    num_pivots: Any
    num_proposals: Any
    pivot_refresh: Any

    @abstractmethod
    def swap_landscape(self, problem: Problem, state: SwapState, slot: int | None = None) -> Landscape | None: ...
    @abstractmethod
    def force_swap(self, problem: Problem, state: SwapState, row: int, slot: int | None = None) -> Step: ...
    @abstractmethod
    def move_point(self, problem: Problem, state: SwapState, slot: int, position: Tensor) -> Step: ...


class CoreSet(NamedTuple):
    """Some rows of a problem, and a method that chooses inducing points among them.

    Attributes
    ----------
    whole, part : Problem
        With all rows, and with those of the core set.
    rows : Tensor [k]
        The rows of the core set, in ascending order.
    method : SwapMethod
        Swaps without a limit of memory and without moved points.
    """

    whole: Problem
    part: Problem
    rows: Tensor
    method: SwapMethod

    # -- what CholQR does, on the core set -------------------------------------------------------------------------

    def steps(self, state: SwapState | None) -> Generator[Step, None, tuple[SwapState, Outcome]]:
        """Yield all steps but those of moved points; return the last state, and why they ended.

        A state of the last phase is resumed without choosing again.
        """
        outcome = Outcome("converged", "The points are chosen.")
        if state is None or state.phase in ("swap", "learn"):
            state, outcome = yield from self._choose(state)
        state = yield from self._fit(state)
        return state, outcome

    def noted(self, outcome: Outcome) -> Outcome:
        """Add to the message of an outcome on which rows the points were chosen, and why."""
        n, k = len(self.whole.train), len(self.rows)
        sentence = (
            f" The points were chosen on a core set of {k:,} random rows of {n:,}, because swaps among all rows take "
            f"more than the setting memory allows. The last objective and the predictions are those of all {n:,} rows."
        )
        return Outcome(outcome.reason, outcome.message + sentence)

    def swap_landscape(self, state: SwapState, slot: int | None) -> Landscape | None:
        """Return the landscape of one slot, for the rows of the core set."""
        landscape = self.method.swap_landscape(self.part, self._on_part(state), slot)
        if landscape is None:
            return None
        rows, pivots = self.rows[landscape.rows], self.rows[landscape.pivots]
        return landscape._replace(rows=rows, pivots=pivots, removed=self._row(landscape.removed))

    def force_swap(self, state: SwapState, row: int, slot: int | None) -> Step:
        """Return the step in which a row of the core set takes the place of a point.

        Raises
        ------
        SettingError
            The row is not in the core set, or it cannot become a point.
        """
        place = int(torch.searchsorted(self.rows, row))
        if place == len(self.rows) or int(self.rows[place]) != row:
            raise SettingError(
                f"Row {row} is not one of the {len(self.rows):,} rows among which swaps choose; choose another one, or "
                "raise memory."
            )
        return self._of_whole(self.method.force_swap(self.part, self._on_part(state), place, slot))

    def move_point(self, state: SwapState, slot: int, position: Tensor) -> Step:
        """Swap a point for the row of the core set that is nearest to `position` [d]."""
        return self._of_whole(self.method.move_point(self.part, self._on_part(state), slot, position))

    # -- the phases ------------------------------------------------------------------------------------------------

    def _choose(self, resume: SwapState | None) -> Generator[Step, None, tuple[SwapState, Outcome]]:
        """Yield the steps of swaps; return the last state and why they ended."""
        state, run = resume, self.method.steps(self.part, None if resume is None else self._on_part(resume))
        try:
            while True:
                step = self._of_whole(next(run))
                state = step.state
                yield step
        except StopIteration as end:
            assert state is not None
            return state, end.value
        finally:
            run.close()

    def _fit(self, state: SwapState) -> Phase:
        """Yield the steps in which the hyperparameters follow the objective of all rows, the points fixed."""
        if state.phase != ALL_ROWS:
            state = state._replace(
                phase=ALL_ROWS, position=0, theta_begin=state.theta.clone(), slots=state.slots[:0].clone()
            )
        if self.method.learn:
            return (yield from learning_phase(self.whole, state, self.method, ALL_ROWS))
        if state.position == 0:
            train, objective = self.whole.train, self.method.objective
            model = nystrom(self.whole.kernel, state.theta, train, train.rows(state.inducing).X, objective)
            total = model.terms.total(objective)
            state = state._replace(step=state.step + 1, position=1, objective=total)
            yield Step(state, SwapInfo(ALL_ROWS, total, *halves(model.terms), jitter=model.jitter))
        return state

    def _on_part(self, state: SwapState) -> SwapState:
        """Return a state of the whole problem as one of the core set, whose rows have other numbers."""
        phase = "learn" if state.phase == ALL_ROWS else state.phase
        return self._with_rows(state, lambda rows: torch.searchsorted(self.rows, rows))._replace(phase=phase)

    def _of_whole(self, step: Step) -> Step:
        """Return a step on the core set as one of the whole problem."""
        state, info, scale = step.state, step.info, len(self.whole.train) / len(self.rows)
        reported = {name: scale * getattr(info, name) for name in ("objective", "fit", "logdet", "trace")}
        numbers = {name: self._row(getattr(info, name)) for name in ("removed", "proposed")}
        return Step(self._with_rows(state, lambda rows: self.rows[rows]), info._replace(**reported, **numbers))

    def _row(self, place: int) -> int:
        return int(self.rows[place]) if place >= 0 else -1

    def _with_rows(self, state: SwapState, numbered: Callable[[Tensor], Tensor]) -> SwapState:
        return state._replace(
            inducing=numbered(state.inducing), pivots=numbered(state.pivots), ranked=numbered(state.ranked)
        )


def core_set(method: SwapMethod, problem: Problem) -> CoreSet | None:
    """Return the core set on which a method chooses its points; None if swaps among all rows fit.

    Parameters
    ----------
    method : SwapMethod
        With the settings `memory`, `num_inducing` and `polish`.

    Notes
    -----
    A copy of k rows, besides the permutation of n from which they are taken.
    """
    size = core_size(method, problem, largest_cost(method, problem))
    if size == len(problem.train):
        return None
    rows = random_order(problem, method.seed)[:size].sort().values
    part = Problem(problem.train.rows(rows), problem.kernel, problem.theta)
    settings = {name: value for name, value in method.param.values().items() if name != "name"}
    settings |= {"num_inducing": method.num_points(len(problem.train)), "memory": 0.0, "polish": 0}
    return CoreSet(problem, part, rows, type(method)(**settings))


def core_size(method: SwapMethod, problem: Problem, need: Cost) -> int:
    """Return the number of rows of the core set: all of them, if swaps among all rows, of this cost, fit."""
    n, fixed = len(problem.train), need.arrays[FIXED]
    limit = GIGABYTE * method.memory / WHILE_REFRESHED
    if limit == 0.0 or need.memory <= limit:
        return n
    fewest = FEWEST_ROWS * method.num_points(n)
    return min(n, max(int(n * (limit - fixed) / (need.memory - fixed)), fewest))


def cost_of_rows(cost: Cost, share: float) -> Cost:
    """Return the cost of a swap among this share of the rows."""
    arrays = {name: size * (1.0 if name == FIXED else share) for name, size in cost.arrays.items()}
    return Cost(share * cost.flops, share * cost.bytes, arrays, cost.calls)


def largest_cost(method: SwapMethod, problem: Problem) -> Cost:
    """Return the cost of a swap among all rows, with the most points that the setting `gap` may add."""
    n, m = len(problem.train), method.num_points(len(problem.train))
    return swap_cost(method, problem, most_points(n, m) if method.gap else m)


def swap_cost(method: SwapMethod, problem: Problem, num_inducing: int) -> Cost:
    """Predict the mean cost of one swap among all rows.

    Notes
    -----
    Proposals read L twice. Pivots are drawn by two products with L, one of them with the columns of the next removals.
    Waiting changes are applied once in `QUEUE` swaps.
    """
    z, c = method.num_pivots, method.num_proposals
    n, s = len(problem.train), problem.train.y.element_size()
    m, z = min(num_inducing, n), min(z, n)
    share = 1.0 / method.pivot_refresh
    scoring = 8.0 * n * z * z * (1.0 if c else share)
    flops = 2.0 * n * m * ((2 * c + 1 if c else 1) + 2 * z * share + 1) + scoring
    flops += 2.0 * m * m * (z * share + c + 12)
    calls = SWAP_CALLS + (PROPOSAL_CALLS if c else 0.0)
    if method.objective == "tight-vfe":
        flops += ENTRY_FLOPS * n * (z + c) + SAMPLE * (2.0 * z + ENTRY_FLOPS) * n * (1.0 if c else share)
        calls += TIGHT_CALLS * n / WIDTH
    moved = s * (n * m * ((2.0 if c else 0.0) + 2.0 * share + 2.0 / QUEUE) + (8.0 * n * (z + c) if c else 3.0 * n * z))
    arrays = {
        "factor L": s * n * m,
        "waiting changes": s * n * QUEUE,
        "pivot columns": 3 * s * n * z,
        FIXED: 4 * s * m * m,
        "K_mn while L is built": s * n * m,
    }
    return Cost(flops, moved, arrays, calls)
