"""Hyperparameters of a finite basis by marginal likelihood: up to four phases, from cheap to exact.

Both likelihoods have many optima. If inputs depend on each other, an exact GP may ignore one that it needs, and p
functions cannot represent the short lengthscales that suit the exact GP: a descent that begins at longer lengthscales
ends better. The likelihood selects among several initial values:

    subset    exact GP on random rows, from lengthscales 1, 2, 4, ... times those of the problem
    trial     basis functions on the same rows, from lengthscales 1, 2, 4, ... times the best of the subset, and up to
              lengthscales that the functions can represent; for each spacing of the grid
    search    only if the functions fit the subset less well than the exact GP did: the same from two further values,
              with a quarter of the lengthscale of one input. A descent hardly finds a shorter lengthscale, because
              the functions that it needs are not among those chosen for a longer one
    learn     basis functions on all rows, in rounds: each round is a descent with a fixed choice of functions

After a round, the functions are chosen again at the best theta. The new choice is used only if it makes the rows more
likely at this theta than the old one, because the largest eigenfunctions at one theta may be a poor basis at another.
The number of functions stays the same, so that objectives can be compared.

The trial uses the largest eigenvalues. On all rows the functions may be chosen by evidence instead, each choice
beginning with the one before, on the grid that the trial selected; such a choice depends on the rows, so that it is
part of the state.

The phase "weights" is a last step of `Grief`, which optimises the weights of the functions.

A descent does not change the choice of functions. It can make a lengthscale longer, but hardly shorter, because the
functions that a shorter one needs are not among those chosen for a longer one. Initial values are therefore judged with
the functions that are chosen for them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...features.basis_choices import Choice, Leading
from ...kernels.theta.restrictions import log_prior, projected
from ...linalg.blocks import BLOCK_BYTES
from ...linalg.replayed_descent import Evaluated, Replayed, Watched, replayed_descent
from ...noise_floor import descent_limits, noise_floor
from ...objectives import noise_variance
from ...posteriors import Posterior
from ...problem import CONVERGED, Cost, Dataset, Kernel, Outcome, Problem, Step, channel
from .. import fixed_subset
from ..base import Method
from .evidence import AXIS_NUMBERS, evidence_gradient, regress
from .kept_variance import outcome_at, share_kept
from .posteriors import refitted_posterior, regression_posterior

PATIENCE = 6  # a descent stops when this many evaluations together gain too little
SHORTER = 4.0  # a shorter lengthscale is divided by this


def longer_lengthscales(kernel: Kernel, theta: Tensor, count: int) -> list[Tensor]:
    """Return `count` copies of theta with lengthscales times 1, 2, 4, ...; one copy if the kernel has none."""
    entries = _lengthscales(kernel)
    copies = [theta.clone() for _ in range(count if entries else 1)]
    for k, copy in enumerate(copies):
        copy[entries] += k * math.log(2.0)
    return [projected(kernel, copy) for copy in copies]


def shorter_starts(method: BasisMethod, problem: Problem, choose: Callable[[Tensor], Choice]) -> list[Tensor]:
    """Return copies of theta in which one lengthscale is a quarter of what it was, the most likely copy first.

    Parameters
    ----------
    problem : Problem
        The rows on which the copies are judged, and theta [P].
    choose : callable
        Chooses basis functions at a theta.

    Notes
    -----
    The cost is one evaluation of the likelihood per lengthscale, without gradient: n p^2 flops.
    """
    copies, values = [], []
    for entry in _lengthscales(problem.kernel):
        copy = problem.theta.clone()
        copy[entry] -= math.log(SHORTER)
        copy = projected(problem.kernel, copy)
        try:
            values.append(regress(choose(copy), copy, problem.train, method.map).value)
        except (NotPositiveDefinite, IndexError):  # as in a descent
            continue
        copies.append(copy)
    return [copies[k] for k in sorted(range(len(copies)), key=lambda k: values[k])]


def _lengthscales(kernel: Kernel) -> list[int]:
    """Where the logarithms of the lengthscales are in theta."""
    return [i for i, name in enumerate(kernel.names) if "lengthscale" in name]


EVALUATION_CALLS = 100.0  # tensor operations of an evaluation: factors, and the matrices of the gradient
LOST = 1e4  # nat per row: the rows lie over a hundred noise sds from the functions
LEAST_GAIN = 0.005  # nat; a smaller gain counts as none
ENOUGH_SHARE, MAX_DOUBLINGS = 0.5, 12  # the trial reaches lengthscales at which the functions represent this share
WORSE_PER_ROW = 0.02  # nat; other initial values are tried if the NLML exceeds that of the exact GP by more than this
SEARCHES, SEARCH_DESCENTS = 3, 2  # largest number of searches, and the number of descents of each
BLOCK_CALLS = 30.0  # tensor operations of a block of Phi, forward and backward


class BasisState(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    phase: str  # "subset" | "trial" | "search" | "learn" | "weights": the phase to which the step belongs
    round: int  # which initial value; in the phase "learn", how often the eigenfunctions were chosen
    position: int  # evaluations done in this round
    theta: Tensor  # [P] the best of this phase
    theta_begin: Tensor  # [P] the theta from which this phase's initial values, or this round, began
    objective: float  # best NLML of this phase
    chosen: Tensor  # [P] the theta at which the basis functions of `theta` were chosen
    spacing: str  # of their grid
    functions: Tensor | None = None  # [p, d] the functions, where they were chosen by evidence
    exact: float = math.nan  # best NLML of the exact GP on the subset
    is_cut: bool = False  # whether learning ended before it converged; known in the phases after it


class BasisInfo(NamedTuple):
    """What a step reports. A channel is nan if it does not apply."""

    phase: str
    objective: Annotated[float, channel("NLML, while learning that of the subset", "nat")] = math.nan
    evidence: Annotated[float, channel("NLML on the subset", "nat")] = math.nan
    fit: Annotated[float, channel("data fit", "nat")] = math.nan
    kept: Annotated[float, channel("share of the prior variance kept")] = math.nan


class BasisMethod(Method):
    """A method that regresses on p basis functions, and learns theta by their marginal likelihood.

    A subclass says which functions these are. Functions of the largest eigenvalues are the same at any state; where the
    evidence chooses them, a state has them in its `fields`.
    """

    family: ClassVar[str] = "eigenfunctions"
    State: ClassVar[type] = BasisState
    Info: ClassVar[type] = BasisInfo
    row_noise: ClassVar[tuple[str, ...]] = ("relative",)  # the noise contains what the functions leave out

    # settings, which each method declares
    learn: Any  # bool
    subset: Any  # int, rows
    starts: Any  # int, initial values
    evaluations: Any  # int, per descent
    max_rounds: Any  # int
    tolerance: Any  # float, a fraction of the NLML

    @abstractmethod
    def choose(self, problem: Problem, theta: Tensor, spacing: str = "") -> Choice:
        """Return the functions of the largest eigenvalues at this theta."""

    def select(self, problem: Problem, theta: Tensor, spacing: str = "", previous: Any = None) -> Choice:
        """Return the functions for all rows, chosen with the previous ones to begin with."""
        return self.choose(problem, theta, spacing)

    def spacings(self) -> tuple[str, ...]:
        """Return the spacings of a grid among which the likelihood may choose."""
        return ("",)

    def functions_of(self, problem: Problem, state: Any) -> Choice:
        """Return the functions of a state."""
        return self.choose(problem, state.theta)

    def fields(self, choice: Any) -> dict[str, Any]:
        """Return the fields of a state that `functions_of` needs for these functions, beside theta and the spacing."""
        return {}

    def needs_refit(self, state: Any) -> bool:
        """Whether the noise of a state must be fitted again before it is used for predictions.

        In the phases "subset", "trial" and "search" the hyperparameters are learned on a subset of the rows, in part
        without the basis functions, so that their noise does not contain what the functions leave out. A run may be
        stopped there.
        """
        return bool(self.learn) and state.phase in ("subset", "trial", "search")

    def posterior(self, problem: Problem, state: Any) -> Posterior:
        choice = self.functions_of(problem, state)
        if self.needs_refit(state):
            return refitted_posterior(problem, choice, state.theta, self.map)[0]
        return regression_posterior(problem, choice, state.theta, regress(choice, state.theta, problem.train, self.map))

    def noise_variance(self, problem: Problem, state: Any) -> float:
        """Return the noise variance of predictions of y at this state."""
        if self.needs_refit(state):
            return refitted_posterior(problem, self.functions_of(problem, state), state.theta, self.map)[1]
        return noise_variance(state.theta)


class Rest(NamedTuple):
    """How a descent ended: what it gained, in nat, says whether it may go on."""

    last: float = 0.0  # of the last evaluations, where they gained too little
    whole: float = 0.0  # of all, unless the optimiser converged
    is_cut: bool = False  # whether all evaluations are used, of which the last ones gained
    value: float = math.inf  # the best one


Descent = Generator[Replayed, None, bool | None]  # `extra` is the data fit, if the descent computes it
Phase = Generator[Step, None, BasisState]
Followed = Generator[Step, None, tuple[BasisState, Rest]]
Learned = Generator[Step, None, tuple[BasisState, Outcome]]


def initial_state(problem: Problem, spacing: str = "") -> BasisState:
    """Return the state before any work."""
    theta = problem.theta.clone()
    return BasisState(
        step=0, phase="subset", round=0, position=0, theta=theta, theta_begin=theta, objective=math.inf, chosen=theta,
        spacing=spacing,
    )  # fmt: skip


def basis_descent(method: BasisMethod, problem: Problem, choice: Choice, rows: Dataset, initial: Tensor) -> Descent:
    """Minimise the NLML of regression on a fixed choice of functions. 3 n p^2 flops per evaluation.

    A theta has no value where no factor exists, or a chosen eigenvalue is below rounding error.
    """

    def likelihood(theta: Tensor) -> Evaluated:
        regression = regress(choice, theta, rows, method.map)
        gradient = evidence_gradient(choice, theta, rows, regression, method.map)
        return Evaluated(regression.value, gradient, regression.fit)

    limit, undefined = method.evaluations if method.learn else 1, (NotPositiveDefinite, IndexError)
    limits = descent_limits(problem, method.learn)
    return replayed_descent(likelihood, initial, "L-BFGS-B", limit, undefined=undefined, **limits)


def subset_rows(method: BasisMethod, problem: Problem) -> Dataset:
    """Return the random rows on which initial values are tried."""
    return problem.train.rows(fixed_subset.subset_rows(problem, method.seed, method.subset))


def last_gain(values: Sequence[float]) -> float:
    """Return by how much the last PATIENCE evaluations lowered the NLML; infinite if there are fewer."""
    return values[-1 - PATIENCE] - values[-1] if len(values) > PATIENCE else math.inf


def initial_hyperparameters(method: BasisMethod, problem: Problem, state: BasisState) -> Phase:
    """Do the phases on the subset, and return the state with which learning on all rows begins.

    The parameters are those of `learn_hyperparameters`.
    """
    if state.phase == "subset":
        state = yield from _subset_phase(method, problem, state)
    if state.phase == "trial":
        state = yield from _trial_phase(method, problem, state)
    if state.phase == "search":
        state = yield from _search_phase(method, problem, state)
    return state


def learn_hyperparameters(method: BasisMethod, problem: Problem, state: BasisState) -> Learned:
    """Do the phases, beginning in that of `state`, then rounds until a new choice of functions gains too little.

    A round whose descent gained something, and did not converge, is followed by one with the same functions.

    Parameters
    ----------
    state : BasisState
        A state of any phase; its descent is resumed by repeating its evaluations.

    Returns
    -------
    BasisState, Outcome
    """
    state = yield from initial_hyperparameters(method, problem, state)
    while True:
        if state.functions is None:
            choice = method.select(problem, state.chosen, state.spacing, None)
            state = state._replace(**method.fields(choice))
        else:
            choice = method.functions_of(problem, state)
        state, rest = yield from learning_round(method, problem, state, choice)
        if not math.isfinite(state.objective):
            message = "With these basis functions the likelihood of all rows has no number or no gradient."
            return state, outcome_at("failed", message, problem, state, choice)
        if not method.learn:
            message = "The weights are computed. The hyperparameters keep their initial values."
            return state, outcome_at("converged", message, problem, state, choice)
        if state.round + 1 >= method.max_rounds:
            message = f"All {method.max_rounds} rounds are done. Raise max_rounds to continue."
            return state, outcome_at("budget", message, problem, state, choice)
        choices = {
            spacing: method.select(problem, state.theta, spacing, choice if spacing == state.spacing else None)
            for spacing in (method.spacings() if state.functions is None else (state.spacing,))
        }
        values = {spacing: _objective(method, problem, state, choice) for spacing, choice in choices.items()}
        spacing = min(values, key=lambda name: values[name])
        gain = state.objective - values[spacing]
        if gain > method.tolerance * max(abs(state.objective), 1.0):
            state = state._replace(chosen=state.theta, spacing=spacing)
            state = state._replace(**method.fields(choices[spacing]))
        elif rest.last > LEAST_GAIN or rest.whole <= LEAST_GAIN:
            lower = f"would lower the NLML by only {gain:.2g} nat" if gain > LEAST_GAIN else "would not lower the NLML"
            message = f"Choosing new basis functions {lower}."
            if rest.last > LEAST_GAIN:
                message = f"{message} The last {PATIENCE} evaluations still lowered it by {rest.last:.2g} nat."
            if gain > CONVERGED or rest.last > LEAST_GAIN:
                return state, outcome_at("budget", f"{message} Lower tolerance to go on.", problem, state, choice)
            return state, outcome_at("converged", message, problem, state, choice)
        state = state._replace(round=state.round + 1, position=0, theta_begin=state.theta)


def _subset_phase(method: BasisMethod, problem: Problem, state: BasisState) -> Phase:
    """Learn theta by an exact GP on the subset, from each initial value."""
    initial_values = longer_lengthscales(problem.kernel, problem.theta, method.starts) if method.learn else []
    while state.round < len(initial_values):
        begin = Problem(problem.train, problem.kernel, initial_values[state.round])
        descent = fixed_subset.learn_on_subset(
            begin, method.seed, method.subset, method.evaluations
        )  # O(subset^3) per evaluation
        chosen, report = (lambda theta: {"chosen": theta}), partial(_report, problem)
        state, _ = yield from _follow(state, descent, method.tolerance, chosen, report)
        state = state._replace(round=state.round + 1, position=0)
    exact = state.objective
    return _begin(state, "trial" if method.learn else "learn", state.theta)._replace(exact=exact)


def _trial_phase(method: BasisMethod, problem: Problem, state: BasisState) -> Phase:
    """Select the functions, the spacing and the theta with which learning on all rows begins."""
    initial_values = _trial_values(method, problem, state.theta_begin)
    candidates = [(theta, spacing) for spacing in method.spacings() for theta in initial_values]
    rows = subset_rows(method, problem)
    while state.round < len(candidates):
        theta, spacing = candidates[state.round]
        state = yield from _try(method, problem, state, rows, theta, spacing)
    is_worse = state.objective > state.exact + WORSE_PER_ROW * len(rows)
    if is_worse and isinstance(method.choose(problem, state.chosen, state.spacing), Leading):
        return state._replace(phase="search", round=0, position=0, theta_begin=state.theta)
    return _begin(state, "learn", state.chosen)


def _search_phase(method: BasisMethod, problem: Problem, state: BasisState) -> Phase:
    """Try to leave an optimum at which the functions do not suit some input; two descents, and again from the best."""
    rows, spacing = subset_rows(method, problem), state.spacing
    enough = state.exact + WORSE_PER_ROW * len(rows)
    while state.round < SEARCHES * SEARCH_DESCENTS:
        search, first = divmod(state.round, SEARCH_DESCENTS)
        begin = Problem(rows, problem.kernel, state.theta_begin)
        starts = shorter_starts(method, begin, lambda theta: method.choose(problem, theta, spacing))
        for theta in starts[first:SEARCH_DESCENTS]:
            state = yield from _try(method, problem, state, rows, theta, spacing)
        if state.objective <= enough or torch.equal(state.theta, state.theta_begin):
            break
        state = state._replace(round=(search + 1) * SEARCH_DESCENTS, theta_begin=state.theta)
    return _begin(state, "learn", state.chosen)


def _try(method: BasisMethod, problem: Problem, state: BasisState, rows: Dataset, theta: Tensor, spacing: str) -> Phase:
    """One descent on the subset from an initial value, whose functions stay the same; the next round follows."""
    choice, origin = method.choose(problem, theta, spacing), {"chosen": theta, "spacing": spacing}
    descent = basis_descent(method, problem, choice, rows, theta)
    state, rest = yield from _follow(state, descent, method.tolerance, lambda _: origin, partial(_report, problem))
    is_cut = rest.is_cut if rest.value == state.objective else state.is_cut
    return state._replace(round=state.round + 1, position=0, is_cut=is_cut)


def _trial_values(method: BasisMethod, problem: Problem, theta: Tensor) -> list[Tensor]:
    """Initial values of the trial: theta with lengthscales times 1, 2, 4, ..., as many as the setting `starts` says.

    If the functions represent too little of the kernel at all of these, lengthscales are doubled until they do: at
    lengthscales that are far too short the functions vanish on the rows, and so does the gradient.
    """
    values = longer_lengthscales(problem.kernel, theta, method.starts)
    while len(values) < MAX_DOUBLINGS:
        if share_kept(problem, values[-1], method.choose(problem, values[-1], method.spacings()[0])) >= ENOUGH_SHARE:
            break
        longer = longer_lengthscales(problem.kernel, values[-1], 2)
        if len(longer) == 1:  # the kernel has no lengthscales
            break
        values.append(longer[1])
    return values


def _begin(state: BasisState, phase: str, chosen: Tensor) -> BasisState:
    """The state before the first evaluation of a phase."""
    return state._replace(phase=phase, round=0, position=0, theta_begin=state.theta, chosen=chosen, objective=math.inf)


def of_the_data(problem: Problem, state: BasisState) -> float:
    """The best NLML of this phase; the objective of the state contains minus the log prior density."""
    return state.objective + log_prior(problem.kernel, state.theta)


def _report(problem: Problem, state: BasisState, best: Replayed) -> BasisInfo:
    value = of_the_data(problem, state)
    return BasisInfo(state.phase, value, evidence=value)


def _follow(
    state: BasisState,
    descent: Descent,
    tolerance: float,
    origin: Callable[[Tensor], dict[str, Any]],
    report: Callable[[BasisState, Replayed], BasisInfo],
) -> Followed:
    """Yield the state after each evaluation of a descent; evaluations before `state.position` are only repeated.

    A point that lowers the objective of the phase is recorded, together with the fields that `origin` gives for it. The
    descent is left when PATIENCE evaluations lower the NLML by no more than the fraction `tolerance` of it.
    """
    values: list[float] = []
    with closing(Watched(descent)) as steps:
        for best in steps:
            values.append(best.value)
            if best.position > state.position:
                state = state._replace(step=state.step + 1, position=best.position)
                if best.value < state.objective:
                    state = state._replace(objective=best.value, theta=best.theta, **origin(best.theta))
                yield Step(state, report(state, best))
            if last_gain(values) <= tolerance * max(abs(best.value), 1.0):
                return state, Rest(last_gain(values), values[0] - values[-1], value=values[-1])
    rest = Rest(whole=values[0] - values[-1]) if values and not steps.result else Rest()
    return state, rest._replace(is_cut=steps.result is None, value=values[-1] if values else math.inf)


def learning_round(method: BasisMethod, problem: Problem, state: BasisState, choice: Choice) -> Followed:
    """Do one descent on all rows with a fixed choice of functions; it is resumed by repeating its evaluations.

    The noise of a subset may be far too small for all rows, as where few targets differ from the others and the subset
    has none of them. The first descent then begins at the most likely noise, from which it would be many evaluations
    away.
    """
    share = share_kept(problem, state.theta_begin, choice)

    def report(state: BasisState, best: Replayed) -> BasisInfo:
        fit = math.nan if best.extra is None else best.extra
        return BasisInfo("learn", of_the_data(problem, state), fit=fit, kept=share)

    descent = basis_descent(method, problem, choice, problem.train, state.theta_begin)
    if method.learn and state.round == state.position == 0 and noise_floor(problem).is_movable:
        best = next(descent, None)
        if best is not None and best.value > LOST * len(problem.train):
            descent.close()
            theta = state.theta_begin.clone()
            theta[-1] = 0.5 * math.log(refitted_posterior(problem, choice, theta, method.map)[1])
            state = state._replace(theta_begin=theta)
            descent = basis_descent(method, problem, choice, problem.train, theta)
        elif best is not None:
            descent = _continued(best, descent)
    return (yield from _follow(state, descent, method.tolerance, lambda theta: {}, report))


def _continued(best: Replayed, descent: Descent) -> Descent:
    """A descent whose first evaluation is known."""
    with closing(descent):
        yield best
        return (yield from descent)


def _objective(method: BasisMethod, problem: Problem, state: BasisState, choice: Choice) -> float:
    """NLML of all rows with these functions, with the penalty; infinite if the Gram matrix has no factor."""
    try:
        return regress(choice, state.theta, problem.train, method.map).value - log_prior(problem.kernel, state.theta)
    except NotPositiveDefinite:
        return math.inf


def evaluation_cost(problem: Problem, p: float, calls: float) -> Cost:
    """Return the cost of one evaluation of the likelihood and its gradient.

    Parameters
    ----------
    p : float
        Number of basis functions.
    calls : float
        Tensor operations that evaluate and differentiate the functions.
    """
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    rows = min(n, BLOCK_BYTES / (s * (3.0 * p + AXIS_NUMBERS * d)))  # of a block of the gradient, which is the smaller
    arrays = {"Gram matrix and factors": 4.0 * s * p * p, "block of Phi": 8.0 * s * rows * p}
    calls += EVALUATION_CALLS + BLOCK_CALLS * 4.5 * s * n * p / BLOCK_BYTES
    return Cost(4.0 * n * p * p + 8.0 * n * p * d + p**3, 6.0 * s * n * p, arrays, calls)
