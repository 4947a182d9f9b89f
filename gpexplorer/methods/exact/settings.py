"""Settings that several solvers share: a function each, and a base class for those of learning on a subset."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

import param

from ...linalg.replayed_descent import Replayed, Watched
from ...problem import Outcome, Problem, Step
from ..base import Method, end_of_descent
from ..fixed_subset import learn_on_subset
from ..setting_kinds import count

GIGABYTE = 1e9  # bytes: memory budgets are settings in gigabytes


LEAST_BLOCK, MOST_BLOCK = 10, 500  # rows of a block whose size follows the number of rows
LEAST_SUBSET, MOST_SUBSET = 500, 2000  # rows for learning, where their number follows the number of rows
OPTIMUM = 1e-4  # no derivative exceeds this share of the objective at an optimum, as with the default of `ml`
MANY_ROWS = 4000  # with at least this many rows, more coarse rows and float32 columns save time


class LearnsOnSubset(Method):
    """Base class of methods that first learn theta by maximum likelihood on a random subset of the rows."""

    learn = param.Boolean(
        True,
        doc="Learn the hyperparameters first, by maximum likelihood on a random subset. If off, they keep their "
        "initial values.",
    )
    subset = count(
        0,
        (0, 2000),
        doc="Number of rows on which the hyperparameters are learned, at subset^3 flops per evaluation. 0 is "
        f"automatic: an eighth of all rows, but at least {LEAST_SUBSET} and at most {MOST_SUBSET}, as in the paper.",
    )
    evaluations = count(25, (5, 100), doc="Number of likelihood evaluations that are spent on the hyperparameters.")

    def rows_to_learn_on(self, n: int) -> int:
        """Return the number of rows on which theta is learned, of this number of rows."""
        return min(n, max(self.subset, 2) if self.subset else max(LEAST_SUBSET, min(MOST_SUBSET, n // 8)))

    def learning_phase(
        self, problem: Problem, state: Any, report: Callable[[Replayed], Any]
    ) -> Generator[Step, None, Any]:
        """Learn theta, if that is asked for: one step per evaluation, with the info that `report` makes of it."""
        if self.learn:
            size = self.rows_to_learn_on(len(problem.train))
            descent = Watched(learn_on_subset(problem, self.seed, size, self.evaluations, state.position))
            with closing(descent):
                for best in descent:
                    slope = best.extra if best.extra > OPTIMUM * max(abs(best.of_the_data), 1.0) else 0.0
                    state = state._replace(step=state.step + 1, position=best.position, theta=best.theta, slope=slope)
                    yield Step(state, report(best))
            limit = state.position if descent.result is None else math.inf
            end = end_of_descent("L-BFGS-B", state.slope, 0.0, state.position, limit=limit)
            state = state._replace(unlearned="" if end.reason == "converged" else end.message)
        return state

    def with_end_of_learning(self, outcome: Outcome, state: Any) -> Outcome:
        """Return the outcome of what follows learning; it says too where learning ended before an optimum."""
        if not state.unlearned:
            return outcome
        reason = "budget" if outcome.reason == "converged" else outcome.reason
        return Outcome(reason, f"{outcome.message} Learning ended before it converged. {state.unlearned}")


def block() -> Any:
    """Number of rows in a block."""
    return count(
        0,
        (0, 1000),
        doc="Number of rows per block. Each iteration solves for them together, at block^3 / 3 flops. 0 is "
        f"automatic: an eighth of all rows, but at least {LEAST_BLOCK} and at most {MOST_BLOCK}.",
    )


def rows_per_block(block: int, n: int) -> int:
    """Return the number of rows of a block for this setting, of either kind, and this number of rows."""
    automatic = MOST_BLOCK if block < 0 else max(LEAST_BLOCK, min(MOST_BLOCK, n // 8))
    return min(block if block > 0 else automatic, n)


def conjugate(steps: int) -> Any:
    """Number of previous steps that each step is combined with."""
    return count(
        steps,
        (0, 5),
        doc="Number of previous steps that each step is combined with, with the best coefficients. Each takes 2 n "
        "numbers of memory and no kernel entries. 0 is the published method.",
    )


def mixed() -> Any:
    """Whether kernel columns are computed in float32."""
    return param.Boolean(
        False,
        doc="Compute kernel columns in float32, at half the time and memory. Gradients from scratch stay in float64. "
        "Columns become float64 if rounding decides the steps, as it may where the signal variance is more than 10^4 "
        "times the noise variance.",
    )


def refresh() -> Any:
    """Number of iterations between gradients from scratch."""
    return count(
        0,
        (0, 200),
        doc="Number of iterations after which the gradient is computed from scratch, at n^2 / 2 kernel entries. "
        "0 does so only before stopping.",
    )
