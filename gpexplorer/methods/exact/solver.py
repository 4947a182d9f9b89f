"""What all solvers of the exact GP share: learn theta on a subset, iterate on alpha, stop on an exact gradient.

A solver is a generator of iterations (`Solver.iterations`). Whether it may stop is decided here, on a gradient that is
computed from scratch, so that rounding in the updated gradient cannot end a run too early.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...problem import Channel, Outcome, Posterior, Problem, Step
from ..base import Method, Steps
from ..capabilities import Correlations
from ..fixed_subset import learn_on_subset
from . import settings
from .gradient_correlation import gradient_correlations, gradient_entries
from .posteriors import exact_posterior
from .state import CHANNELS
from .state import Info as SolverInfo
from .state import State as SolverState
from .system import Iteration, System


class Solver(Method):
    """Base class of iterative solvers of (K + s2 I) alpha = y; a subclass defines `iterations` and `cost`.

    Notes
    -----
    A run has two phases. In the first, theta is learned by maximum likelihood on a random subset (`learn`). In the
    second, each step is one iteration on alpha with theta fixed. The run ends when no entry of the gradient exceeds
    `tolerance`; the gradient is then computed from scratch, n^2 / 2 kernel entries.
    """

    family: ClassVar[str] = "exact"
    State: ClassVar[type] = SolverState
    Info: ClassVar[type] = SolverInfo
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    learn = settings.learn()
    subset = settings.subset()
    evaluations = settings.evaluations()
    tolerance = param.Number(
        1e-4,
        bounds=(0.0, None),
        softbounds=(1e-6, 1e-1),
        doc="Stop when no entry of the gradient exceeds this. The gradient is computed from scratch before stopping.",
    )
    max_iterations = param.Integer(2000, bounds=(1, None), softbounds=(10, 5000), doc="Largest number of iterations.")
    cache = param.Number(
        1.0,
        bounds=(0.0, None),
        softbounds=(0.0, 8.0),
        doc="Gigabytes of kernel rows that are kept in memory instead of computed again; 0 keeps none.",
    )
    variance_rows = param.Integer(
        2000,
        bounds=(0, None),
        softbounds=(0, 5000),
        doc="Number of random training rows that a predictive variance uses. It is then an upper bound on the exact "
        "variance. 0 uses all rows, by conjugate gradients for many test points at once.",
    )

    # settings of solvers that update a gradient, which may drift or have a lower precision; the others keep these
    mixed: Any = False
    refresh: Any = 0

    @abstractmethod
    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """Iterations that continue from this state, without end or until the system is solved."""

    def steps(self, problem: Problem, resume: SolverState | None = None) -> Steps:
        """Learn theta, one likelihood evaluation per step; then solve for alpha, one iteration per step."""
        state, empty = resume, problem.train.y.new_zeros(0)
        if state is None:
            alpha = torch.zeros_like(problem.train.y)
            state = SolverState(
                step=0,
                phase="learn",
                position=0,
                theta=problem.theta.clone(),
                alpha=alpha,
                memory=(),
                largest=math.inf,
                gradient=empty,
            )
            yield Step(state, SolverInfo("start", objective=0.0))
        if state.phase == "learn":
            if self.learn:
                evaluations = learn_on_subset(problem, self.seed, self.subset, self.evaluations)
                for position, best in islice(enumerate(evaluations, 1), state.position, None):  # replays the first ones
                    state = state._replace(step=state.step + 1, position=position, theta=best.theta)
                    yield Step(state, SolverInfo("learn", objective=0.0, evidence=best.value))
            state = state._replace(phase="solve", position=0)
        return (yield from self._solve(problem, state))

    def _solve(self, problem: Problem, state: SolverState) -> Steps:
        """The second phase, from any state of it."""
        system = System(problem, state.theta, self.cache * settings.GIGABYTE, self.mixed, self.map)
        empty = problem.train.y.new_zeros(0)
        outcome = self._outcome(state)
        if len(state.gradient):
            system.carry_gradient(state.alpha, state.gradient)
        iterations = self.iterations(system, state)
        while outcome is None:
            iteration = next(iterations, None)
            if iteration is None:
                return Outcome("converged", f"The system is solved; the largest gradient entry is {state.largest:.2g}.")
            iteration, drift = self._refreshed(system, iteration, state.position + 1)
            largest = float(iteration.gradient.abs().max())
            state = state._replace(
                step=state.step + 1,
                position=state.position + 1,
                alpha=iteration.alpha.clone(),
                memory=tuple(vector.clone() for vector in iteration.memory),
                largest=largest,
                gradient=iteration.gradient.clone() if system.mixed else empty,
            )
            yield Step(state, _info(system, iteration, largest, drift))
            outcome = self._outcome(state)
            if not math.isnan(drift) and outcome is None:  # the gradient is new: start again from it
                system.carry_gradient(state.alpha, iteration.gradient)
                iterations = self.iterations(system, state)
        return outcome

    def _refreshed(self, system: System, iteration: Iteration, position: int) -> tuple[Iteration, float]:
        """The iteration with its gradient from scratch, and the drift, if a refresh is due or the run may stop.

        The solver's memory is dropped then, because it belongs to the gradient that has drifted.
        """
        due = self.refresh and position % self.refresh == 0
        if not due and not float(iteration.gradient.abs().max()) <= self.tolerance:
            return iteration, math.nan
        exact = system.gradient(iteration.alpha)
        return iteration._replace(gradient=exact, memory=()), float((exact - iteration.gradient).abs().max())

    def _outcome(self, state: SolverState) -> Outcome | None:
        """Why the run ends after this state; None if it continues."""
        if state.position and not math.isfinite(state.largest):
            return Outcome("diverged", f"The gradient is not finite after {state.position} iterations.")
        if state.position and state.largest <= self.tolerance:
            return Outcome(
                "converged",
                f"The largest gradient entry is {state.largest:.2g}, within the tolerance {self.tolerance:g}.",
            )
        if state.position >= self.max_iterations:
            return Outcome(
                "budget", f"All {self.max_iterations} iterations are done. Raise max_iterations to continue."
            )
        return None

    def posterior(self, problem: Problem, state: SolverState) -> Posterior:
        """Predictive mean and variance of f at this state; see `exact_posterior`."""
        return exact_posterior(problem, state, self.variance_rows, self.seed)

    def gradient_entries(self, problem: Problem, state: SolverState, rows: Tensor) -> Tensor:
        """Entries [r] of the gradient A alpha - y at these rows; n kernel entries per row."""
        return gradient_entries(problem, state.theta, state.alpha[None], rows)[0]

    def gradient_correlations(
        self, problem: Problem, states: list[SolverState], centres: int, neighbours: int
    ) -> Correlations:
        """Correlations between gradient entries of neighbouring rows over these states (figure 1 of the paper)."""
        solved = [state for state in states if state.phase == "solve"]
        alphas = torch.stack([state.alpha for state in solved]) if solved else problem.train.y.new_zeros(0, 0)
        return gradient_correlations(problem, states[-1].theta, alphas, centres, neighbours)


def _info(system: System, iteration: Iteration, largest: float, drift: float) -> SolverInfo:
    """What the step reports about this iteration."""
    active = torch.zeros(0, dtype=torch.int64) if iteration.active is None else iteration.active.clone()
    gains = iteration.gradient.new_zeros(0) if iteration.gains is None else iteration.gains.clone()
    return SolverInfo(
        phase="solve",
        objective=system.value(iteration.alpha, iteration.gradient),
        largest=largest,
        norm=float(iteration.gradient.norm()),
        drift=drift,
        active=active,
        gains=gains,
    )
