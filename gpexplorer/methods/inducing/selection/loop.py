"""What the choosing rivals share: choose one more point, and one more, then learn the hyperparameters; again.

A rival is the rule that names the next row, given the sparse GP grown so far. An epoch chooses m points, then spends
evaluations on the hyperparameters with the points fixed (Cao et al. 2013, section 4.1). Where a rival chooses anew
after learning, the model keeps its old points until the new set is whole, and for good unless the new set is better:
without that, restarts can raise the objective, as the paper notes of Titsias' greedy selection (section 1.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....linalg.blocks import BLOCK_BYTES
from ....linalg.randomness import generator
from ....objectives import Terms, nystrom
from ....posteriors import nystrom_posterior
from ....problem import Channel, Cost, Outcome, Posterior, Prediction, Problem, Step, channel
from ...base import Steps
from ..learning import descend
from .growing_gp import Growing

Chooser = Callable[[Growing, int], int]  # the model grown so far, the epoch -> the next row, -1 where none is left
Beginning = Callable[[Problem, Tensor], Chooser]  # a rule made ready for these rows and this theta

ENTRY = 150.0  # flops of a product that take as long as a kernel entry's exponential and its passes over memory
CHOICE, TRIALS = 85.0, 60.0  # calls: a point joins two factors; a block of candidates is tried before
EVALUATION = 230.0  # calls: a sparse objective with its gradient
CHANNELS: tuple[Channel, ...] = (
    channel("objective", "objective F", "nat"),
    channel("fit", "data fit, E_D / 2", "nat"),
    channel("logdet", "complexity, E_C / 2", "nat"),
    channel("trace", "trace, E_V / 2", "nat"),
    channel("exact", "exact reduction", "nat"),
    channel("growing", "objective of the set being chosen", "nat"),
    channel("jitter", "jitter on K_mm", log=True),
)


class State(NamedTuple):
    """All that the trajectory depends on: O(m) numbers."""

    step: int
    epoch: int
    phase: str  # "choose" | "learn": what the step was part of
    position: int  # evaluations done in this learning phase
    inducing: Tensor  # [k] rows of the training data: the model's inducing points
    growing: Tensor  # [k] rows chosen so far in this epoch; the model's own while it has no others
    theta: Tensor  # [p]
    theta_begin: Tensor  # [p] where this epoch's learning began
    terms: Terms  # of the model
    epoch_begin: float  # F when the epoch began


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: float
    fit: float
    logdet: float
    trace: float
    exact: float = math.nan
    growing: float = math.nan
    jitter: float = 0.0
    proposed: int = -1


class Plan(NamedTuple):
    """The settings that the common loop reads."""

    num_inducing: int
    objective: str
    learn: bool
    optimiser: str
    evaluations: int
    max_epochs: int
    tolerance: float
    again: bool


def plan(method: Any) -> Plan:
    """The plan in a method's settings; a method without `again` keeps its first points."""
    held = {name: getattr(method, name) for name in Plan._fields if name != "again"}
    return Plan(**held, again=getattr(method, "again", False))


def choose_and_learn(problem: Problem, resume: State | None, settings: Plan, begin: Beginning) -> Steps:
    """Steps of a rival: each chooses one point, or evaluates the objective once to learn."""
    state = resume
    if state is None:
        none, theta = torch.zeros(0, dtype=torch.int64, device=problem.train.y.device), problem.theta.clone()
        unknown = Terms(math.nan, math.nan, math.nan)
        state = State(0, 0, "choose", 0, none, none.clone(), theta, theta.clone(), unknown, math.inf)
        yield Step(state, Info("start", *(math.nan,) * 4))

    while state.epoch < settings.max_epochs:
        if state.phase == "choose":
            state = yield from _choosing(problem, state, settings, begin)
        if not settings.learn:
            return Outcome("converged", f"All {len(state.inducing)} points are chosen; the hyperparameters stay fixed.")
        state = yield from _learning(problem, state, settings)

        objective = state.terms.total(settings.objective)
        gain = state.epoch_begin - objective
        if gain <= settings.tolerance * max(abs(objective), 1.0):
            return Outcome("converged", converged(state.epoch, gain, objective, settings.tolerance))
        state = state._replace(
            epoch=state.epoch + 1,
            phase="choose" if settings.again else "learn",
            position=0,
            growing=state.growing[:0].clone(),
            theta_begin=state.theta.clone(),
            epoch_begin=objective,
        )
    return Outcome("budget", f"All {settings.max_epochs} epochs are done; raise max_epochs to go on.")


def _choosing(problem: Problem, state: State, settings: Plan, begin: Beginning) -> Generator[Step, None, State]:
    """The discrete phase, point by point; taken up by growing the points again that were chosen before."""
    m, first = min(settings.num_inducing, len(problem.train)), state.epoch == 0
    model = Growing(problem.kernel, state.theta, problem.train, settings.objective, m)
    choose = begin(problem, state.theta)
    for row in state.growing.tolist():
        model.add(row)

    while len(model.rows) < m and (row := choose(model, state.epoch)) >= 0:
        fall = model.add(row)
        state = state._replace(step=state.step + 1, growing=model.rows.clone())
        if first:
            state = state._replace(inducing=model.rows.clone(), terms=model.terms)
        yield Step(
            state, _info("choose", state.terms, settings)._replace(exact=fall, growing=model.total, proposed=row)
        )

    if first or model.total < state.terms.total(settings.objective):
        state = state._replace(inducing=model.rows.clone(), terms=model.terms)
    begin_at = model.total if first else state.epoch_begin
    return state._replace(phase="learn", position=0, theta_begin=state.theta.clone(), epoch_begin=begin_at)


def _learning(problem: Problem, state: State, settings: Plan) -> Generator[Step, None, State]:
    """The continuous phase; resumed by replaying its evaluations, since SciPy's memory is not part of the state."""
    Z = problem.train.rows(state.inducing).X
    limit = settings.evaluations or min(20, max(15, 2 * len(state.theta)))
    found = descend(problem.kernel, state.theta_begin, problem.train, Z, settings.objective, settings.optimiser, limit)
    done = state.position
    for k, (theta, terms, jitter) in enumerate(found):
        if k < done:
            continue
        state = state._replace(step=state.step + 1, phase="learn", position=k + 1, theta=theta, terms=terms)
        yield Step(state, _info("learn", terms, settings)._replace(jitter=jitter))
    return state


def _info(phase: str, terms: Terms, settings: Plan) -> Info:
    halves = (terms.fit / 2, terms.complexity / 2, terms.trace / 2)
    return Info(phase, terms.total(settings.objective), *halves)


def converged(epoch: int, gain: float, objective: float, tolerance: float) -> str:
    """Why an epoch was the last, as a sentence."""
    return (
        f"Epoch {epoch + 1} improved the objective by {max(gain, 0.0):.2g}, less than the tolerance "
        f"{tolerance:g} of {abs(objective):.4g}."
    )


def set_posterior(problem: Problem, state: State) -> Posterior:
    """The posterior of f given the inducing rows of a state: the prior while there are none."""
    kernel, theta, train = problem.kernel, state.theta, problem.train
    if len(state.inducing) == 0:
        return lambda X: Prediction(train.y.new_zeros(len(X)), kernel.diag(theta, X))
    Z = train.rows(state.inducing).X
    return nystrom_posterior(kernel, theta, Z, nystrom(kernel, theta, train, Z))


def choosing_cost(problem: Problem, m: int, tests: float) -> Cost:
    """The mean cost of choosing one of m points when `tests` candidates are tried exactly for it."""
    n, s = len(problem.train), problem.train.y.element_size()
    m = min(m, n)
    flops = (tests + 1.0) * n * (2.0 * m + entry_flops(problem)) + (tests + 1.0) * m * m / 3
    moved = s * n * (m + 8.0 * (tests + 1.0)) + 12.0 * s * n
    tried = 3.0 * min(s * n * tests, 1.0 * BLOCK_BYTES)
    arrays = {"factor L": s * n * m, "m x m factor": s * m * m, "columns": 3.0 * s * n, "candidates' columns": tried}
    return Cost(flops, moved, arrays, CHOICE + (TRIALS * (1.0 + s * n * tests / BLOCK_BYTES) if tests else 0.0))


def entry_flops(problem: Problem) -> float:
    """What a kernel entry takes beside a product's flops: 2 d, an exponential, and passes that no product makes."""
    return ENTRY + 2.0 * problem.train.d


def random_order(problem: Problem, seed: int) -> Tensor:
    """Every row in the random order that CholQR starts from too, so that runs of one seed share their start."""
    order = torch.randperm(len(problem.train), generator=generator(seed, "start"))
    return order.to(problem.train.y.device)


def grown(problem: Problem, m: int, objective: str, choose: Chooser) -> Tensor:
    """Up to m rows, chosen by one rule at the problem's theta: an inducing set for another method to start from."""
    model = Growing(problem.kernel, problem.theta, problem.train, objective, min(m, len(problem.train)))
    while len(model.rows) < len(model.Lt) and (row := choose(model, 0)) >= 0:
        model.add(row)
    return model.rows
