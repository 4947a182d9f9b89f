"""Hyperparameters of a finite basis by marginal likelihood: three phases, from cheap to exact.

Both likelihoods have many optima. If inputs depend on each other, an exact GP may ignore one that it needs, and p
functions cannot represent the short lengthscales that suit the exact GP: a descent that begins at longer lengthscales
ends better. The likelihood selects among several initial values:

    subset    exact GP on random rows, from lengthscales 1, 2, 4, ... times those of the problem
    trial     basis functions on the same rows, from lengthscales 1, 2, 4, ... times the best of the subset, for each
              spacing of the grid
    learn     basis functions on all rows, in rounds: each round is a descent with a fixed choice of functions

After a round, the functions are chosen again at the best theta. The new choice is used only if it makes the rows more
likely at this theta than the old one, because the largest eigenfunctions at one theta may be a poor basis at another.
The number of functions stays the same, so that objectives can be compared.

State.phase "weights" is a last step of `Grief`, which optimises the weights of the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...features.basis_choices import Choice
from ...linalg.blocks import BLOCK_BYTES
from ...linalg.randomness import generator, random_rows
from ...problem import Channel, Cost, Kernel, Outcome, Problem, Step, channel
from .descents import Best, Descent, Learner, basis_descent, exact_descent, until_no_gain
from .evidence import AXIS_NUMBERS, regress

EVALUATION_CALLS = 100.0  # tensor operations of an evaluation: factors, and the matrices of the gradient
BLOCK_CALLS = 30.0  # tensor operations of a block of Phi, forward and backward

CHANNELS: tuple[Channel, ...] = (
    channel("objective", "NLML, of the subset at first", "nat"),
    channel("evidence", "NLML on the subset", "nat"),
    channel("fit", "data fit", "nat"),
    channel("kept", "share of the prior variance kept"),
)


class State(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    phase: str  # "subset" | "trial" | "learn" | "weights": the phase to which the step belongs
    round: int  # which initial value; in the phase "learn", how often the eigenfunctions were chosen
    position: int  # evaluations done in this round
    theta: Tensor  # [P] the best of this phase
    theta_begin: Tensor  # [P] the theta from which this phase's initial values, or this round, began
    objective: float  # best NLML of this phase
    chosen: Tensor  # [P] the theta at which the basis functions of `theta` were chosen
    spacing: str  # of their grid


class Info(NamedTuple):
    """What a step reports. A channel is nan if it does not apply."""

    phase: str
    objective: float = math.nan
    fit: float = math.nan
    kept: float = math.nan
    evidence: float = math.nan


Choose = Callable[[Tensor, str], Choice]  # theta and spacing -> basis functions
Phase = Generator[Step, None, State]


def initial_state(problem: Problem, spacing: str = "") -> State:
    """Return the state before any work."""
    theta = problem.theta.clone()
    return State(
        step=0, phase="subset", round=0, position=0, theta=theta, theta_begin=theta, objective=math.inf, chosen=theta,
        spacing=spacing,
    )  # fmt: skip


def learn_hyperparameters(
    learner: Learner, problem: Problem, state: State, choose: Choose, spacings: tuple[str, ...]
) -> Generator[Step, None, tuple[State, Outcome]]:
    """Do the three phases, beginning in the phase of `state`.

    Parameters
    ----------
    learner : Learner
        The method, which holds the settings.
    problem : Problem
    state : State
        A state of any phase; its descent is resumed by repeating its evaluations.
    choose : callable
        (theta, spacing) -> p basis functions.
    spacings : tuple of str
        The spacings among which the likelihood may choose.

    Returns
    -------
    State, Outcome
    """
    if state.phase == "subset":
        state = yield from _subset_phase(learner, problem, state)
    if state.phase == "trial":
        state = yield from _trial_phase(learner, problem, state, choose, spacings)
    return (yield from _rounds(learner, problem, state, choose, spacings))


def _subset_phase(learner: Learner, problem: Problem, state: State) -> Phase:
    """Learn theta by an exact GP on the subset, from each initial value."""
    initial_values = longer_lengthscales(problem.kernel, problem.theta, learner.starts) if learner.learn else []
    while state.round < len(initial_values):
        descent = until_no_gain(exact_descent(learner, problem, initial_values[state.round]), learner.tolerance)
        state = yield from _follow(state, descent, lambda theta: {"chosen": theta}, _report)
        state = state._replace(round=state.round + 1, position=0)
    return _begin(state, "trial" if learner.learn else "learn", state.theta)


def _trial_phase(learner: Learner, problem: Problem, state: State, choose: Choose, spacings: tuple[str, ...]) -> Phase:
    """Select the functions, the spacing and the theta with which learning on all rows begins."""
    initial_values = longer_lengthscales(problem.kernel, state.theta_begin, learner.starts)
    candidates = [(theta, spacing) for spacing in spacings for theta in initial_values]
    sample = random_rows(len(problem.train), learner.subset, generator(learner.seed, "subset"))
    rows = problem.train.rows(sample.to(problem.train.y.device))
    while state.round < len(candidates):
        theta, spacing = candidates[state.round]
        origin = {"chosen": theta, "spacing": spacing}
        descent = until_no_gain(basis_descent(learner, choose(theta, spacing), rows, theta), learner.tolerance)
        state = yield from _follow(state, descent, lambda _, origin=origin: origin, _report)  # type: ignore[misc]
        state = state._replace(round=state.round + 1, position=0)
    return _begin(state, "learn", state.chosen)


def longer_lengthscales(kernel: Kernel, theta: Tensor, count: int) -> list[Tensor]:
    """Return `count` copies of theta with lengthscales times 1, 2, 4, ...; one copy if the kernel has none."""
    entries = [i for i, name in enumerate(kernel.names) if "lengthscale" in name]
    copies = [theta.clone() for _ in range(count if entries else 1)]
    for k, copy in enumerate(copies):
        copy[entries] += k * math.log(2.0)
    return copies


def _begin(state: State, phase: str, chosen: Tensor) -> State:
    """The state before the first evaluation of a phase."""
    return state._replace(phase=phase, round=0, position=0, theta_begin=state.theta, chosen=chosen, objective=math.inf)


def _report(state: State, best: Best) -> Info:
    return Info(state.phase, state.objective, evidence=state.objective)


def _follow(
    state: State, descent: Descent, origin: Callable[[Tensor], dict[str, Any]], report: Callable[[State, Best], Info]
) -> Phase:
    """Yield the state after each evaluation of a descent; evaluations before `state.position` are only repeated.

    A point that lowers the objective of the phase is recorded, together with the fields that `origin` gives for it.
    """
    for k, best in enumerate(descent):
        if k < state.position:
            continue
        state = state._replace(step=state.step + 1, position=k + 1)
        if best.value < state.objective:
            state = state._replace(objective=best.value, theta=best.theta, **origin(best.theta))
        yield Step(state, report(state, best))
    return state


def _rounds(
    learner: Learner, problem: Problem, state: State, choose: Choose, spacings: tuple[str, ...]
) -> Generator[Step, None, tuple[State, Outcome]]:
    """Do rounds until a new choice of functions gains too little.

    A round that used all its evaluations while it still gained continues with the same functions.
    """
    while True:
        state = yield from _round(learner, problem, state, choose(state.chosen, state.spacing))
        if not learner.learn:
            return state, Outcome(
                "converged", "The weights are computed. The hyperparameters keep their initial values."
            )
        if state.round + 1 >= learner.max_rounds:
            return state, Outcome("budget", f"All {learner.max_rounds} rounds are done. Raise max_rounds to continue.")
        values = {spacing: _objective(learner, problem, state, choose(state.theta, spacing)) for spacing in spacings}
        spacing = min(values, key=lambda each: values[each])
        gain, incomplete = state.objective - values[spacing], state.position >= learner.evaluations
        if gain > learner.tolerance * max(abs(state.objective), 1.0):
            state = state._replace(chosen=state.theta, spacing=spacing)
        elif not incomplete:
            message = f"Choosing new basis functions would lower the NLML by only {max(gain, 0.0):.2g} nat."
            return state, Outcome("converged", message)
        state = state._replace(round=state.round + 1, position=0, theta_begin=state.theta)


def _round(learner: Learner, problem: Problem, state: State, choice: Choice) -> Phase:
    """One descent on all rows with a fixed choice of functions; it is resumed by repeating its evaluations."""
    kept = share_kept(problem, state.theta_begin, choice)

    def report(state: State, best: Best) -> Info:
        return Info("learn", state.objective, math.nan if best.fit is None else best.fit, kept)

    descent = until_no_gain(basis_descent(learner, choice, problem.train, state.theta_begin), learner.tolerance)
    return (yield from _follow(state, descent, lambda theta: {}, report))


def _objective(learner: Learner, problem: Problem, state: State, choice: Choice) -> float:
    """NLML of all rows with these functions; infinite if the Gram matrix has no factor."""
    try:
        return regress(choice, state.theta, problem.train, learner.map).value
    except NotPositiveDefinite:
        return math.inf


def share_kept(problem: Problem, theta: Tensor, choice: Choice) -> float:
    """Return the share of the prior variance that the basis functions represent, on at most 500 rows."""
    X = problem.train.X[:500]
    with torch.no_grad():
        represented = choice(theta)(X).square().sum()
    return float(represented / problem.kernel.diag(theta, X).sum())


def evaluation_cost(problem: Problem, p: float, calls: float) -> Cost:
    """Return the cost of one evaluation of the likelihood and its gradient.

    Parameters
    ----------
    problem : Problem
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
