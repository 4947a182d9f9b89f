"""Vecchia's approximation: each row depends on its nearest rows among the earlier ones, in an order that covers all.

    p(y) ~ prod_i p(y_i | y_N(i))                               `conditionals` has the formulas

Learning minimises the negative log likelihood of that approximation by L-BFGS, one evaluation per step. Distances are
measured in units of the lengths over which the kernel loses its correlation. Where learning has changed their
proportions, order and neighbours are found again, and a new descent begins: a round. Above `conditionals` rows, a
random sample of the conditionals stands for all, the same throughout; each still depends on its nearest rows among all.

Noise is in the covariance of the targets (the response form), so that y_i depends on the noisy targets of its
neighbours.

References: Vecchia (1988), Estimation and model identification for continuous spatial processes; Datta et al. (2016),
Hierarchical nearest-neighbor Gaussian process models; Katzfuss and Guinness (2021), A general framework for Vecchia
approximations of Gaussian processes.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import param
import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...kernels.groups import check_stationary, correlation_lengths
from ...kernels.row_scaled import input_count
from ...posteriors import NearestRowsPosterior, Posterior
from ...problem import Cost, Outcome, Problem, Step, channel
from ..base import Steps
from ..capabilities import NearRows
from .conditionals import GROUP_BYTES, Conditionals
from .recorded_descent import DescendingMethod, no_answers, recorded_descent, slope_of

STRETCH = 1.25  # change of the proportions of the lengths above which neighbours are found again
FLOPS_PER_ENTRY = 200.0  # of a covariance with its derivative, the time of exponentials included
CHUNK_CALLS = 160.0  # per chunk of conditionals


class VecchiaState(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    theta: Tensor  # [p] the best of this round
    objective: float  # there
    round: int
    begin: Tensor  # [p] theta at which the neighbours of this round were found
    answers: Tensor  # [k, p + 1] value and gradient of every evaluation of this round; nan where there is no value


class VecchiaInfo(NamedTuple):
    """What a step reports."""

    phase: str  # "start", "neighbours" where they were found in this step, or "learn"
    objective: Annotated[float, channel("Vecchia NLML", "nat")] = math.nan
    slope: Annotated[float, channel("largest derivative", log=True)] = math.nan
    stretch: Annotated[float, channel("change of proportions since neighbours were found")] = math.nan


class Vecchia(DescendingMethod):
    """A GP in which each row depends on its nearest rows: for many rows of few inputs.

    References
    ----------
    Vecchia (1988). Estimation and model identification for continuous spatial processes.
    """

    key: ClassVar[str] = "vecchia"
    title: ClassVar[str] = "Vecchia"
    paper: ClassVar[str] = (
        "Vecchia (1988); Katzfuss and Guinness (2021). A general framework for Vecchia approximations of Gaussian "
        "processes."
    )
    equations: ClassVar[dict[str, str]] = {"num_neighbours": r"p(y) \approx \prod_i p(y_i \mid y_{N(i)}),\ |N(i)| = k"}
    State: ClassVar[type] = VecchiaState
    Info: ClassVar[type] = VecchiaInfo

    num_neighbours: Any = param.Integer(
        15,
        bounds=(1, None),
        softbounds=(1, 40),
        doc="Rows that each row depends on, k. Too few give a patchwork; time grows with k^2 to k^3.",
    )
    num_nearest: Any = param.Integer(
        30,
        bounds=(1, None),
        softbounds=(5, 100),
        doc="Training rows from which a new row is predicted. All rows may be its neighbours, so more pay here.",
    )
    conditionals: Any = param.Integer(
        5000,
        bounds=(1, None),
        softbounds=(500, 50_000),
        doc="Rows whose conditionals make the likelihood: where there are more, a random sample of this size.",
    )
    rounds: Any = param.Integer(
        3, bounds=(1, None), softbounds=(1, 6), doc="How often neighbours are found and learning begins anew, at most."
    )

    def steps(self, problem: Problem, resume: VecchiaState | None = None) -> Steps:
        check_stationary(problem.kernel, problem.train.X, self.title)
        state, theta = resume, problem.theta
        if state is None:
            state = VecchiaState(0, theta.clone(), math.inf, 0, theta.clone(), no_answers(theta))
            yield Step(state, VecchiaInfo("start"))
        while True:
            lengths = self._lengths(problem, state.begin)
            found = Conditionals(problem, lengths, self.num_neighbours, self.conditionals, self.seed)
            results = list(state.answers)
            stretch = 1.0
            evaluate, limit = partial(found.likelihood, begin=problem.theta), self.evaluations if self.learn else 1
            for best in recorded_descent(problem, evaluate, state, results, limit, self.tolerance):
                stretch = _stretch(self._lengths(problem, best.theta), lengths)
                phase = "neighbours" if len(results) == 1 else "learn"
                state = VecchiaState(
                    state.step + 1, best.theta, best.of_the_data, state.round, state.begin, torch.stack(results)
                )
                yield Step(state, VecchiaInfo(phase, state.objective, slope_of(problem.kernel, state), stretch))
            if not math.isfinite(state.objective):
                return Outcome("failed", "The covariance of near rows has no Cholesky factor. Raise the noise.")
            stretch = _stretch(self._lengths(problem, state.theta), lengths)
            if stretch <= STRETCH or state.round + 1 >= self.rounds:
                return self._outcome(problem, state, stretch)
            state = VecchiaState(state.step, state.theta, math.inf, state.round + 1, state.theta, no_answers(theta))

    def posterior(self, problem: Problem, state: VecchiaState) -> Posterior:
        train = problem.train
        return NearestRowsPosterior(
            problem.kernel,
            state.theta,
            train.X,
            train.y,
            lengths=self._lengths(problem, state.theta),
            neighbours=self.num_nearest,
        )

    def near_rows(self, problem: Problem, state: VecchiaState, most: int) -> NearRows:
        lengths = self._lengths(problem, state.begin)
        found = Conditionals(problem, lengths, self.num_neighbours, most, self.seed)
        try:
            sd = found.sds(state.theta)
        except NotPositiveDefinite:
            sd = torch.full((len(found.positions),), math.nan, dtype=torch.float64)
        return NearRows(found.order[found.positions], found.positions, found.order[found.neighbours], sd)

    def cost(self, problem: Problem) -> Cost:
        n, d, k = len(problem.train), problem.train.d, min(self.num_neighbours, len(problem.train) - 1) + 1
        used = min(n, self.conditionals)
        pairs = 0.5 * k * (k + 1)
        flops = used * (pairs * (FLOPS_PER_ENTRY + 8.0 * d) + k**3 / 3.0 + 6.0 * k**2)
        arrays = {"rows in order": 8.0 * n * (d + 2), "neighbours": 8.0 * used * k, "chunk": 1.0 * GROUP_BYTES}
        chunk = max(1.0, GROUP_BYTES / (8.0 * pairs * (10.0 + 3.0 * d)))
        return Cost(flops, 8.0 * used * pairs * 130.0, arrays, CHUNK_CALLS * (1.0 + used / chunk))

    def _lengths(self, problem: Problem, theta: Tensor) -> Float[Tensor, " d"]:
        """What inputs are divided by; their common factor does not matter."""
        inputs = problem.train.X[:, : input_count(problem)]
        ranges = (inputs.amax(0) - inputs.amin(0)).double()
        return correlation_lengths(problem.kernel, theta, torch.where(ranges > 0.0, ranges, 1.0))

    def _outcome(self, problem: Problem, state: VecchiaState, stretch: float) -> Outcome:
        slope, rounds = slope_of(problem.kernel, state), state.round + 1
        if not self.learn:
            return Outcome("converged", "The hyperparameters kept their initial values. Turn on learn to learn them.")
        if len(state.answers) < self.evaluations and stretch <= STRETCH:
            message = f"The largest derivative is {slope:.2g} after {state.step} evaluations in {rounds} round"
            return Outcome("converged", f"{message}{'s' if rounds > 1 else ''}.")
        lever = "evaluations" if len(state.answers) >= self.evaluations else "rounds"
        return Outcome(
            "budget",
            f"All {lever} are used after {state.step} steps; the largest derivative is {slope:.2g}. Raise {lever}.",
        )


def _stretch(lengths: Tensor, before: Tensor) -> float:
    """How much the proportions of the lengths have changed: the largest ratio over the smallest."""
    ratio = lengths / before
    return float(ratio.max() / ratio.min())
