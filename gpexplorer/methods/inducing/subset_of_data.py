"""Subset of data: an exact GP on m rows, deaf to all others. The rows are chosen as another rival would choose them.

With every row of the subset inducing, VFE = PP = the exact negative log marginal likelihood of the subset, so the
family's formulas serve as they are (Chalupka, Williams and Murray 2013). The objective is that of m rows and not of n:
compare it with no other method's; compare the scores.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import ClassVar

import param
import torch

from ...objectives import Terms, nystrom
from ...posteriors import nystrom_posterior
from ...problem import Channel, Cost, Dataset, Outcome, Posterior, Problem, Step, channel
from ..base import Method, Steps
from . import settings
from .initial_sets import start, start_rows
from .learning import descend
from .selection.loop import EVALUATION, converged, entry_flops, set_posterior
from .selection.loop import Info as Report
from .selection.loop import State as At

TAKEN = 7.0  # calls for each row, that it is not explained by those before it


class SubsetOfData(Method):
    """An exact GP on a few rows."""

    key: ClassVar[str] = "subset-of-data"
    title: ClassVar[str] = "Subset of data"
    family: ClassVar[str] = "inducing"
    paper: ClassVar[str] = "Chalupka, Williams & Murray (2013). A framework for evaluating approximation methods. JMLR."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "num_rows": r"E = \tfrac12\left[y_m^\top(K_{mm}+\sigma^2 I)^{-1}y_m + \log|K_{mm}+\sigma^2 I|\right]"
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel("objective", "objective of the subset", "nat", monotone=True),
        channel("fit", "data fit, E_D / 2", "nat"),
        channel("logdet", "complexity, E_C / 2", "nat"),
        channel("trace", "trace, E_V / 2", "nat"),
        channel("jitter", "jitter on K_mm", log=True),
    )

    num_rows = param.Integer(
        500,
        bounds=(1, None),
        softbounds=(50, 2000),
        doc="Rows kept, m: an exact GP on them costs m^3 a step, whatever the number of rows there are.",
    )
    start = start("random")
    learn = settings.learn()
    optimiser = settings.optimiser()
    evaluations = settings.evaluations()
    max_epochs = settings.max_epochs()
    tolerance = settings.tolerance()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        state = resume
        if state is None:
            none, theta = torch.zeros(0, dtype=torch.int64, device=problem.train.y.device), problem.theta.clone()
            unknown = Terms(math.nan, math.nan, math.nan)
            state = At(0, 0, "choose", 0, none, none.clone(), theta, theta.clone(), unknown, math.inf)
            yield Step(state, _report("start", unknown))
        if state.step == 0:
            rows = start_rows(self.start, problem, self.num_rows, self.seed)
            data = problem.train.rows(rows)
            now = nystrom(problem.kernel, state.theta, data, data.X)
            state = state._replace(step=1, inducing=rows, terms=now.terms, epoch_begin=now.terms.total("vfe"))
            yield Step(state, _report("choose", now.terms, now.jitter))

        data = problem.train.rows(state.inducing)
        while self.learn and state.epoch < self.max_epochs:
            state = yield from self._learning(problem, data, state)
            objective = state.terms.total("vfe")
            gain = state.epoch_begin - objective
            if gain <= self.tolerance * max(abs(objective), 1.0):
                return Outcome("converged", converged(state.epoch, gain, objective, self.tolerance))
            state = state._replace(
                epoch=state.epoch + 1, position=0, theta_begin=state.theta.clone(), epoch_begin=objective
            )
        if not self.learn:
            return Outcome("converged", f"The {len(data)} rows are chosen; the hyperparameters stay fixed.")
        return Outcome("budget", f"All {self.max_epochs} epochs are done; raise max_epochs to go on.")

    def _learning(self, problem: Problem, data: Dataset, state: At) -> Generator[Step, None, At]:
        """Hyperparameters by the subset's likelihood; resumed by replaying the evaluations of this epoch."""
        limit = self.evaluations or min(20, max(15, 2 * len(state.theta)))
        found = descend(problem.kernel, state.theta_begin, data, data.X, "vfe", self.optimiser, limit)
        done = state.position
        for k, (theta, terms, jitter) in enumerate(found):
            if k >= done:
                state = state._replace(step=state.step + 1, position=k + 1, phase="learn", theta=theta, terms=terms)
                yield Step(state, _report("learn", terms, jitter))
        return state

    def posterior(self, problem: Problem, state: At) -> Posterior:
        if state.step == 0:
            return set_posterior(problem, state)
        data = problem.train.rows(state.inducing)
        return nystrom_posterior(
            problem.kernel, state.theta, data.X, nystrom(problem.kernel, state.theta, data, data.X)
        )

    def cost(self, problem: Problem) -> Cost:
        m, s = min(self.num_rows, len(problem.train)), problem.train.y.element_size()
        flops = 8.0 * m**3 + 4.0 * m * m * entry_flops(problem)
        calls = EVALUATION if self.learn else TAKEN * m
        return Cost(flops, 30.0 * s * m * m, {"m x m factors": 6.0 * s * m * m}, calls)


def _report(phase: str, terms: Terms, jitter: float = 0.0) -> Report:
    return Report(phase, terms.total("vfe"), terms.fit / 2, terms.complexity / 2, terms.trace / 2, jitter=jitter)
