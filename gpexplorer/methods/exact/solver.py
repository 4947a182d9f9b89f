"""The steps of all solvers of the exact GP: learn theta on a subset, iterate on alpha, stop on an exact gradient.

A solver is a generator of iterations (`Solver.iterations`). Three decisions are made here, for all solvers:

* A run may only stop on a gradient that is computed from scratch in float64.
* A step whose effect on f is decided by rounding (see `reliability`) is followed by a gradient from scratch, and a step
  that raises f is rejected and repeated.
* If that does not help, kernel columns and factors become float64; a run that uses that precision already ends with a
  sentence.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...objectives import evidence, noise_variance
from ...posteriors import Posterior
from ...problem import CONVERGED, Outcome, Problem, Step
from ..base import Steps, begun
from ..capabilities import Correlations
from ..fixed_subset import subset_rows
from ..setting_kinds import amount, choice, count
from . import settings
from .gradient_correlation import gradient_correlations, gradient_entries
from .posteriors import FACTOR_ROWS, ROWS_UNSOLVED, exact_posterior, posterior_of_subset
from .reliability import BANDS, ErrorBounds, Point, StepCheck, check_step, error_bounds, name_of, used_up, way_out
from .system import Iteration, SolverInfo, SolverState, System


class Solver(settings.LearnsOnSubset):
    """Base class of iterative solvers of (K + s2 I) alpha = y; a subclass defines `iterations` and `cost`.

    Notes
    -----
    A run has up to three phases. In the first, theta is learned by maximum likelihood on a random subset (`learn`). In
    the second, which only some methods have, it is learned on all rows. In the last, each step is one iteration on
    alpha with theta fixed. The run ends when the answer is certainly within `mean_tolerance` and no entry of
    the gradient exceeds `tolerance`, as far as these are not 0; the gradient is then computed from scratch, n^2 / 2
    kernel entries. It has "converged" if means err by at most 0.05 noise standard deviations and the objective by at
    most 0.05 nat, or by at most a larger `mean_tolerance` that was asked for, and if learning was not cut off by
    `evaluations` where a derivative exceeds 1e-4 of the likelihood.
    """

    family: ClassVar[str] = "exact"
    learned_channel: ClassVar[str] = "evidence"
    State: ClassVar[type] = SolverState
    Info: ClassVar[type] = SolverInfo
    added_settings: ClassVar[Mapping[str, Any]] = {"bands": "rows", "band_tolerance": 0.01, "mean_tolerance": 0.0}

    tolerance = amount(
        0.0,
        (0.0, 1e-1),
        doc="Iterate until no entry of the gradient exceeds this; 1e-4 is the rule of the paper. 0 leaves the end to "
        "mean_tolerance; if both are set, both must hold. The gradient is computed from scratch before stopping.",
    )
    mean_tolerance = amount(
        CONVERGED,
        (0.0, 1.0),
        doc="Iterate until it is certain that no predictive mean errs by more than this, in noise standard deviations, "
        "and the objective by no more than this, in nats. 0 leaves the end to tolerance, on the gradient.",
    )
    max_iterations = count(2000, (10, 5000), doc="Largest number of iterations.")
    cache = amount(
        1.0, (0.0, 8.0), doc="Gigabytes of kernel rows that are kept in memory instead of computed again; 0 keeps none."
    )
    bands: Any = choice(
        ["auto", "rows", "exact"],
        doc="Which rows a predictive variance of the solution uses. exact: all rows. rows: some random rows "
        "(variance_rows), which give an upper bound. auto: all rows if there are at most 5000, and otherwise some.",
    )
    band_tolerance = amount(
        0.01,
        (1e-4, 0.1),
        doc="Largest relative error of a predictive variance that uses all rows and is found by iterations. The "
        "variance is then an upper bound.",
    )
    variance_rows = count(
        2000,
        (0, 5000),
        doc="Number of random training rows that a predictive variance uses. It is then an upper bound on the exact "
        "variance. 0 uses all rows.",
    )

    # settings of solvers that update a gradient, which may drift or have a lower precision; the others keep these
    mixed: Any = False
    refresh: Any = 0

    @abstractmethod
    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """Iterations that continue from this state, without end or until the system is solved."""

    def in_float32(self, problem: Problem, theta: Tensor) -> bool:
        """Whether a run begins with float32 kernel columns."""
        return bool(self.mixed)

    def kept_memory(self, memory: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What is kept of a solver's memory when its iterations start again from a gradient from scratch."""
        return ()

    def steps(self, problem: Problem, resume: SolverState | None = None) -> Steps:
        """Learn theta, one evaluation of the likelihood or its gradient per step; then solve for alpha."""
        theta, alpha, empty = problem.theta.clone(), torch.zeros_like(problem.train.y), problem.train.y.new_zeros(0)
        first = SolverState(theta, alpha, gradient=empty, probes=empty, moments=empty)
        state = yield from begun(resume, first, SolverInfo("start", objective=0.0))
        if state.phase == "learn":
            state = yield from self.learning_phase(
                problem, state, lambda best: SolverInfo("learn", objective=0.0, evidence=best.of_the_data)
            )
            state = state._replace(phase="full", position=0)
        if state.phase == "full":
            for step in self.learn_on_all(problem, state):
                state = step.state
                yield step
            if state.position:  # theta is no longer that of the subset
                state = state._replace(unlearned="")
            state = state._replace(phase="solve", position=0, probes=empty, moments=empty)
        outcome = yield from self._solve(problem, state)
        return self.with_end_of_learning(outcome, state)

    def learn_on_all(self, problem: Problem, state: SolverState) -> Iterator[Step]:
        """Steps that learn theta on all rows, from this state on; none unless a subclass has them."""
        return iter(())

    def _solve(self, problem: Problem, state: SolverState) -> Steps:
        """The second phase, from any state of it: with float32 columns if `mixed`, and in float64 once it must be."""
        while True:
            mixed = self.in_float32(problem, state.theta) and not state.float64_from
            system = System(problem, state.theta, self.cache * settings.GIGABYTE, mixed, self.map)
            result = yield from self._iterate(system, state)
            if isinstance(result, Outcome):
                return result
            state = result

    def _iterate(self, system: System, state: SolverState) -> Generator[Step, None, Outcome | SolverState]:
        """Iterate in one precision. Return the outcome, or the state from which to continue in float64."""
        gradient = state.gradient if len(state.gradient) else system.gradient(state.alpha)
        before, iterations = self._restart(system, state, gradient)
        while (outcome := self._outcome(system, state)) is None:
            number = state.position + 1
            try:
                iteration = next(iterations, None)
            except NotPositiveDefinite as error:
                if system.mixed:
                    return _in_float64(state, number)
                if system.y.dtype == torch.float64:
                    raise
                raise NotPositiveDefinite(error.name, error.size, error.jitter, way_out(system.y.dtype)) from error
            if iteration is None:
                return self._solved_in_precision(system, state)

            check = check_step(system, before, Point(iteration.alpha, iteration.gradient))
            descends = self.channels[0].monotone
            unreliable = check.unreliable or (check.rises and descends)
            if unreliable and _repaired_recently(state, iteration, number):  # a gradient from scratch did not help
                return _in_float64(state, number) if system.mixed else used_up(check, number, system)
            exact = system.gradient(iteration.alpha) if unreliable else None
            if exact is not None and descends and check_step(system, before, Point(iteration.alpha, exact)).rises:
                # reject the step, and repeat it from a gradient from scratch
                state = state._replace(repaired=number, memory=())
                before, iterations = self._restart(system, state, system.gradient(state.alpha))
                continue
            state, step, exact = self._accepted(system, state, iteration, exact, check)
            yield step
            if system.mixed and state.float64_from:
                return state
            if exact is not None:
                before, iterations = self._restart(system, state, exact)
            else:
                before = Point(state.alpha, iteration.gradient.clone())
        return outcome

    def _restart(self, system: System, state: SolverState, gradient: Tensor) -> tuple[Point, Iterator[Iteration]]:
        """The current point, and a new generator of iterations that starts from it with this gradient."""
        system.carry_gradient(state.alpha, gradient)
        return Point(state.alpha, gradient), self.iterations(system, state)

    def _accepted(
        self, system: System, state: SolverState, iteration: Iteration, exact: Tensor | None, check: StepCheck
    ) -> tuple[SolverState, Step, Tensor | None]:
        """The next state, the step to yield, and the gradient from scratch, if there is one.

        `exact` is that gradient if rounding made it necessary. Otherwise it is computed if a refresh is due or if the
        run may stop. The solver's memory is dropped then, because it belongs to the gradient that has drifted.
        """
        number, drift, repaired = state.position + 1, math.nan, exact is not None
        may_stop = self._may_end(system, check)
        if exact is None and (may_stop or (self.refresh and number % self.refresh == 0)):
            exact = system.gradient(iteration.alpha)
        if exact is not None:
            drift = float((exact - iteration.gradient).abs().max())
            iteration = iteration._replace(gradient=exact, memory=self.kept_memory(iteration.memory))
            after = Point(iteration.alpha, exact)
            check = check_step(system, after, after)
        failed = may_stop and not self._may_end(system, check)
        stalled = failed and check.largest > 0.5 * state.checked  # iterating has not even halved it
        state = state._replace(
            step=state.step + 1,
            position=number,
            alpha=iteration.alpha.clone(),
            memory=_copies(iteration.memory),
            largest=check.largest,
            gradient=iteration.gradient.clone() if system.mixed else state.gradient[:0],
            repaired=number if repaired else state.repaired,
            checked=check.largest if failed else state.checked,
            stalled=stalled and not system.mixed,
            float64_from=number + 1 if stalled and system.mixed else state.float64_from,
            norm=check.norm,
        )
        return state, Step(state, _info(system, iteration, check, drift)), exact

    def _may_end(self, system: System, reached: StepCheck | SolverState) -> bool:
        """Whether a gradient, if it is exact, is within the tolerances that are set."""
        demands = [reached.largest <= self.tolerance] if self.tolerance else []
        if self.mean_tolerance:
            bounds = error_bounds(system.prior_variance, system.s2, reached.norm)
            demands.append(bounds.within(self.mean_tolerance))
        return bool(demands) and all(demands)

    def _has_converged(self, bounds: ErrorBounds) -> bool:
        """Whether the answer is a solution: within what was asked for, or within what "converged" means."""
        return bounds.within(max(self.mean_tolerance, CONVERGED))

    def _outcome(self, system: System, state: SolverState) -> Outcome | None:
        """Why the run ends after this state; None if it continues."""
        if not state.position:
            return None
        if not math.isfinite(state.largest):
            return Outcome("diverged", f"The gradient is not finite after {state.position} iterations.")
        bounds = error_bounds(system.prior_variance, system.s2, state.norm)
        may_end = self._may_end(system, state)
        if may_end and not self._has_converged(bounds):
            return Outcome(
                "budget",
                f"The largest gradient entry is {state.largest:.2g}, within the tolerance {self.tolerance:g}, but a "
                f"predictive mean may still err by {bounds.mean:.2g} noise standard deviations. Lower tolerance, or "
                f"set mean_tolerance to {CONVERGED:g}, to continue.",
            )
        if may_end:
            precision = f" Kernel columns are float64 from iteration {state.float64_from} on, because float32 was too "
            note = precision + "inaccurate for this noise." if state.float64_from else ""
            return Outcome(
                "converged",
                f"The largest gradient entry is {state.largest:.2g}. No predictive mean errs by more than "
                f"{bounds.mean:.2g} noise standard deviations, and the objective is at most {bounds.gap:.2g} above its "
                f"minimum.{note}",
            )
        if state.stalled:
            return Outcome(
                "budget",
                f"The largest gradient entry stays at {state.largest:.2g}, so that a predictive mean may err by "
                f"{bounds.mean:.2g} noise standard deviations: {name_of(state.alpha.dtype)} is not accurate enough. "
                f"{BANDS} {way_out(state.alpha.dtype)}",
            )
        if state.position >= self.max_iterations:
            return Outcome(
                "budget", f"All {self.max_iterations} iterations are done. Raise max_iterations to continue."
            )
        return None

    def _solved_in_precision(self, system: System, state: SolverState) -> Outcome:
        """The outcome of a method that has no further iterations: rounding may have left an error."""
        bounds, largest = error_bounds(system.prior_variance, system.s2, state.norm), f"{state.largest:.2g}"
        if self._has_converged(bounds):
            return Outcome("converged", f"The system is solved; the largest gradient entry is {largest}.")
        return Outcome(
            "budget",
            f"The system is solved as far as {name_of(state.alpha.dtype)} allows. The largest gradient entry is "
            f"{largest}, so that a predictive mean may err by {bounds.mean:.2g} noise standard deviations. "
            f"{BANDS} {way_out(state.alpha.dtype)}",
        )

    def theta_gradient(self, problem: Problem, state: SolverState) -> Callable[[Tensor], Tensor]:
        """Return the gradient of the likelihood of the subset on which theta is learned."""
        rows = problem.train.rows(self._learned_on(problem))
        return lambda theta: evidence(problem.kernel, theta, rows)[1]

    def posterior(self, problem: Problem, state: SolverState) -> Posterior:
        """Predictive mean and variance of f at this state; see `exact_posterior`.

        While hyperparameters are learned, alpha is zero: the posterior is then that of the rows learned on alone.
        """
        if _is_learning(state):
            return posterior_of_subset(problem, state.theta, self._learned_on(problem))
        solved = self._solved(problem, state)
        rows = 0 if solved and self._has_exact_bands(len(problem.train)) else self.variance_rows
        tolerance, cache = self.band_tolerance, self.cache * settings.GIGABYTE
        return exact_posterior(problem, state, rows, self.seed, tolerance=tolerance, cache=cache, solved=solved)

    def posterior_of_some_rows(self, problem: Problem, state: SolverState) -> tuple[Posterior, int]:
        """The same mean with variances from a quarter of the rows, at most `variance_rows`, and their number.

        It shows beside the posterior how much wider such bands are.
        """
        if _is_learning(state):
            learned_on = self._learned_on(problem)
            rows = max(len(learned_on) // 4, 1)
            return posterior_of_subset(problem, state.theta, learned_on, rows), rows
        rows = min(self.variance_rows or ROWS_UNSOLVED, max(len(problem.train) // 4, 1))
        return exact_posterior(problem, state, rows, self.seed), rows

    def variance_note(self, problem: Problem, state: SolverState | None = None) -> str:
        """What the predictive variances of a state are; empty if they are exact. Without a state, of the solution."""
        n, rows = len(problem.train), self.variance_rows or ROWS_UNSOLVED
        if state is not None and _is_learning(state):
            learned_on = self.rows_to_learn_on(n)
            return "" if learned_on == n else f"from the {learned_on:,} rows learned on"
        if state is not None and not self._solved(problem, state):
            return f"estimated from {min(rows, n):,} rows: the solver has not converged"
        return "" if self._has_exact_bands(len(problem.train)) or n <= rows else f"upper bound from {rows:,} rows"

    def _learned_on(self, problem: Problem) -> Tensor:
        """The rows on which theta is learned."""
        return subset_rows(problem, self.seed, self.rows_to_learn_on(len(problem.train)))

    def _has_exact_bands(self, n: int) -> bool:
        """Whether the variances of the solution use all n rows."""
        is_small = self.bands == "auto" and n <= FACTOR_ROWS
        return is_small or self.bands == "exact" or not self.variance_rows

    def _solved(self, problem: Problem, state: SolverState) -> bool:
        """Whether a state is the solution."""
        if state.phase != "solve" or not math.isfinite(state.largest):
            return False
        prior_variance = float(problem.kernel.diag(state.theta, problem.train.X).max())
        bounds = error_bounds(prior_variance, noise_variance(state.theta), state.norm)
        return self._has_converged(bounds)

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


def _is_learning(state: SolverState) -> bool:
    """Whether hyperparameters have been learned on a subset so far, and nothing is solved."""
    return state.phase == "learn" and state.position > 0


def _copies(vectors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Copies of these vectors; on a GPU by one kernel if they have the same length."""
    if len({vector.shape for vector in vectors}) == 1:
        return torch.stack(vectors).unbind()
    return tuple(vector.clone() for vector in vectors)


def _repaired_recently(state: SolverState, iteration: Iteration, number: int) -> bool:
    """Whether the last gradient from scratch was so recent that iterations in float64 take less time than another.

    A gradient from scratch takes as long as n / (2 rows) iterations, and float64 doubles the time of an iteration.
    """
    n = len(iteration.alpha)
    rows = n if iteration.active is None else max(len(iteration.active), 1)
    return bool(state.repaired) and number - state.repaired <= n / rows


def _in_float64(state: SolverState, number: int) -> SolverState:
    """The state from which iteration `number` is repeated in float64, with a gradient from scratch."""
    return state._replace(float64_from=number, memory=(), gradient=state.gradient[:0], repaired=0, checked=math.inf)


def _info(system: System, iteration: Iteration, check: StepCheck, drift: float) -> SolverInfo:
    """What the step reports about this iteration."""
    active = torch.zeros(0, dtype=torch.int64) if iteration.active is None else iteration.active.clone()
    gains = iteration.gradient.new_zeros(0) if iteration.gains is None else iteration.gains.clone()
    bounds = error_bounds(system.prior_variance, system.s2, check.norm)
    return SolverInfo(
        phase="solve",
        objective=check.objective,
        largest=check.largest,
        norm=check.norm,
        drift=drift,
        active=active,
        gains=gains,
        gap_bound=bounds.gap,
        mean_bound=bounds.mean,
    )
