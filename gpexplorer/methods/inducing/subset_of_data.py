"""Subset of data: an exact GP on m rows, which ignores all other rows.

    F = (y_m' (K_mm + s2 I)^-1 y_m + log |K_mm + s2 I|) / 2

The rows are chosen as another method would choose its inducing points; if that choice leaves out rows because others
explain them, random rows fill the subset (Chalupka, Williams and Murray 2013). The objective is that of m rows and not
of n, so it cannot be compared with that of another method; the scores can.

With every row of the subset an inducing point, VFE and PP equal F. The formulas here factor K_mm + s2 I instead of
K_mm, so that rows may be alike.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import ClassVar

from torch import Tensor

from ...objectives import Terms, evidence_terms
from ...posteriors import Posterior, exact_gp_posterior
from ...problem import Channel, Cost, Dataset, Outcome, Problem, Step, channel, channels_of
from ..base import Steps, begun
from ..setting_kinds import count
from . import settings
from .distinct_rows import random_order
from .initial_sets import start, start_rows
from .learning import learning_steps, minimise
from .reporting import EVALUATION_CALLS, entry_flops, halves
from .selection.loop import START, SelectionInfo, SelectionState, initial_state, subset_posterior


class SubsetOfData(settings.LearningMethod):
    """An exact GP on a few rows.

    Parameters
    ----------
    num_rows, start : int, str
        m, and how the rows are chosen.
    learn, optimiser, evaluations, max_epochs, tolerance, seed : bool or str or int or float
        Settings of the family.

    Notes
    -----
    About 8 m^3 flops per evaluation, independent of the number of rows.

    References
    ----------
    Chalupka, Williams and Murray (2013). A framework for evaluating approximation methods for Gaussian process
    regression. JMLR 14.
    """

    key: ClassVar[str] = "subset-of-data"
    title: ClassVar[str] = "Subset of data"
    paper: ClassVar[str] = "Chalupka, Williams & Murray (2013). A framework for evaluating approximation methods. JMLR."
    State: ClassVar[type] = SelectionState
    Info: ClassVar[type] = SelectionInfo
    equations: ClassVar[dict[str, str]] = {
        "num_rows": r"E = \tfrac12\left[y_m^\top(K_{mm}+\sigma^2 I)^{-1}y_m + \log|K_{mm}+\sigma^2 I|\right]"
    }
    channels: ClassVar[tuple[Channel, ...]] = channels_of(
        SelectionInfo,
        only=("objective", "fit", "logdet", "trace", "jitter"),
        objective=channel("objective of the subset", "nat", monotone=True),
    )

    num_rows = count(
        500, (50, 2000), doc="Rows m of the exact GP: a step costs m^3, independent of the number of rows of the data."
    )
    start = start("random")

    def steps(self, problem: Problem, resume: SelectionState | None = None) -> Steps:
        state = yield from begun(resume, initial_state(problem), START)
        if state.step == 0:
            chosen = start_rows(self.start, problem, self.num_rows, self.seed)
            rows = random_order(problem, self.seed, chosen)[: self.num_rows]
            terms, _, jitter = evidence_terms(problem.kernel, state.theta, problem.train.rows(rows))
            state = state._replace(step=1, inducing=rows, terms=terms, epoch_begin=terms.total("vfe"))
            yield Step(state, _report("choose", terms, jitter))

        subset = problem.train.rows(state.inducing)
        if not self.learn:
            return Outcome("converged", f"The {len(subset):,} rows are chosen; the hyperparameters stay fixed.")
        return (yield from self.epochs(problem, state, partial(self._learning_phase, problem, subset)))

    @property
    def likelihood_name(self) -> str:
        return "vfe"  # without the trace, which is 0

    def _learning_phase(
        self, problem: Problem, subset: Dataset, state: SelectionState
    ) -> Generator[Step, None, SelectionState]:
        """Learn hyperparameters on the likelihood of the subset, one evaluation per step."""

        def objective(theta: Tensor) -> tuple[Terms, Tensor, float]:
            return evidence_terms(problem.kernel, theta, subset)

        part = replace(problem, train=subset)
        evaluations = minimise(objective, part, self, state.theta_begin, state.position)
        return learning_steps(state, evaluations, lambda state, jitter: _report("learn", state.terms, jitter))

    def posterior(self, problem: Problem, state: SelectionState) -> Posterior:
        if state.step == 0:
            return subset_posterior(problem, state)
        return exact_gp_posterior(problem.kernel, state.theta, problem.train.rows(state.inducing))

    def theta_gradient(self, problem: Problem, state: SelectionState) -> Callable[[Tensor], Tensor] | None:
        """Return the gradient of the likelihood of the subset."""
        if not state.step:
            return None
        subset = problem.train.rows(state.inducing)
        return lambda theta: evidence_terms(problem.kernel, theta, subset)[1]

    def cost(self, problem: Problem) -> Cost:
        m, s = min(self.num_rows, len(problem.train)), problem.train.y.element_size()
        flops = 8.0 * m**3 + 3.0 * m * m * entry_flops(problem)
        return Cost(flops, 30.0 * s * m * m, {"m x m factors": 6.0 * s * m * m}, EVALUATION_CALLS)


def _report(phase: str, terms: Terms, jitter: float) -> SelectionInfo:
    return SelectionInfo(phase, terms.total("vfe"), *halves(terms), jitter=jitter)
