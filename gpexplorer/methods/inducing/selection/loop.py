"""What the methods share that choose rows one after another: choose m points, then learn hyperparameters, and repeat.

A method is a rule that names the next row, given the sparse GP grown so far. An epoch chooses m points, and then spends
evaluations on the hyperparameters with the points fixed (Cao et al. 2013, section 4.1). Where points are chosen again
after learning, the model keeps its old points until the new set is complete, and for good unless the new set is better.
Without that, choosing again can increase the objective, as the paper notes of Titsias' greedy selection (section 1.1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ....linalg.blocks import BLOCK_BYTES
from ....objectives import BLOCK, Terms, is_kept, nystrom
from ....posteriors import Posterior, PriorPosterior, nystrom_posterior
from ....problem import Cost, Outcome, Problem, Step, channel
from ...base import Steps, begun
from ...own_points import own_rows, own_start
from .. import settings
from ..learning import learn_hyperparameters, learning_steps
from ..reporting import UNKNOWN_TERMS, Complexity, ExactReduction, Fit, Jitter, Objective, Trace, entry_flops, halves
from .streamed_gp import TOGETHER, GrowingModel, StreamedGP, growing_model

CHOICE_CALLS = 85.0  # tensor operations when a point joins the factors
SHORTLIST = 2**14  # rows on which several points are chosen between two passes over more rows than fit
TRIAL_CALLS = 60.0  # further ones per block of candidates that are evaluated before


class SelectionState(NamedTuple):
    """All that the trajectory depends on: O(m) numbers."""

    inducing: Tensor  # [k] rows of the training data: the model's inducing points
    growing: Tensor  # [k] rows chosen so far in this epoch; in the first epoch they are the model's own
    theta: Tensor  # [p]
    theta_begin: Tensor  # [p] at the beginning of this epoch's learning
    terms: Terms = UNKNOWN_TERMS  # of the model
    step: int = 0
    epoch: int = 0
    phase: str = "choose"  # "choose" | "learn": what the step was part of
    position: int = 0  # evaluations done in this learning phase
    epoch_begin: float = math.inf  # F at the beginning of the epoch


class SelectionInfo(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: Objective = math.nan
    fit: Fit = math.nan
    logdet: Complexity = math.nan
    trace: Trace = math.nan
    exact: ExactReduction = math.nan
    growing: Annotated[float, channel("objective of the set being chosen", "nat")] = math.nan
    jitter: Jitter = 0.0
    proposed: int = -1


START = SelectionInfo("start")


class RowRule(ABC):
    """Names the next inducing point. A rule is made for one round of choosing, at one theta.

    A resumed run makes a new rule and calls `joined` for the rows that were chosen before. The rule then has to
    continue as if it had not stopped. So `choose` must not change the rule: what it returns depends on its arguments
    and on what `joined` has received. `chosen_rows` checks this at every choice and raises TypeError. Random numbers
    come from `generator(seed, name, epoch, len(model.rows))`.
    """

    @abstractmethod
    def choose(self, model: GrowingModel, epoch: int) -> int:
        """Return the next row of the data; -1 where no row is left."""

    def choose_several(self, model: StreamedGP, epoch: int) -> list[int]:
        """Return the next row and those that will follow it for certain, for a model to which each pass is costly.

        They have to be the rows that `choose` would return one after another. Empty or [-1] where no row is left.
        """
        return [self.choose(model, epoch)]

    def joined(self, row: int) -> None:  # noqa: B027 (most rules depend on the model alone)
        """Take note of a row that has joined the model; called once per row, in their order."""


class InOrder(RowRule):
    """Takes rows in a given order [n], except those that the rows before them explain."""

    def __init__(self, order: Tensor) -> None:
        self.order = order

    def choose(self, model: GrowingModel, epoch: int) -> int:
        eligible = self.order[model.is_eligible[self.order]]
        return int(eligible[0]) if len(eligible) else -1

    def choose_several(self, model: StreamedGP, epoch: int) -> list[int]:
        """Return all rows that are to come: they follow from the order and from the covariances between them."""
        chosen: list[int] = []
        begin, size = 0, 2 * model.most
        while begin < len(self.order) and len(model.rows) + len(chosen) < model.most:
            rows = self.order[begin : begin + size]
            some, index = model.among(chosen, rows)
            places = torch.searchsorted(index, rows)
            while len(some.rows) < model.most:
                eligible = places[some.is_eligible[places]]
                if not len(eligible):
                    break
                some.add(int(eligible[0]))
                chosen.append(int(index[eligible[0]]))
            begin, size = begin + size, max(size, min(2 * size, SHORTLIST))
        return chosen


def chosen_rows(rule: RowRule, model: GrowingModel, epoch: int) -> Iterator[int]:
    """Yield the next row again and again; the caller adds it to the model before it asks for another one.

    Raises
    ------
    TypeError
        The rule changed while it chose, so that a resumed run would not continue as this one does.
    """
    noted = 0
    while len(model.rows) < model.most:
        for row in model.rows[noted:].tolist():
            rule.joined(row)
        noted = len(model.rows)
        before = _snapshot(rule)
        rows = rule.choose_several(model, epoch) if isinstance(model, StreamedGP) else [rule.choose(model, epoch)]
        changed = [name for name, value in _snapshot(rule).items() if before.get(name) != value]
        if changed:
            raise TypeError(
                f"{type(rule).__name__}.choose changed {', '.join(changed)} of the rule. A resumed run starts with a "
                "new rule and would choose other rows: change the rule in `joined`, which is called again on resuming."
            )
        if not rows or rows[0] < 0:
            return
        if isinstance(model, StreamedGP) and len(rows) > 1:
            model.expect(rows)
        yield from rows


def _snapshot(rule: RowRule) -> dict[str, tuple[Any, ...]]:
    """Identify every attribute of a rule, with the version of tensors, the size of containers, and random states."""
    return {name: (id(value), _version(value)) for name, value in getattr(rule, "__dict__", {}).items()}


def _version(value: Any) -> Any:
    if isinstance(value, Tensor):
        return 0 if value.is_inference() else value._version
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    return len(value) if isinstance(value, list | dict | set) else 0


def grow(problem: Problem, m: int, objective: str, rule: RowRule) -> Tensor:
    """Choose up to m rows by one rule at the problem's theta: an inducing set that another method starts from."""
    model = growing_model(problem.kernel, problem.theta, problem.train, objective, min(m, len(problem.train)))
    for row in chosen_rows(rule, model, 0):
        model.add(row)
    return model.rows


class RowSelection(settings.SparseMethod):
    """Settings and steps of a method that chooses rows one after another; a subclass says which row comes next.

    A subclass may declare the setting `again` of settings.py: then points are chosen again after each learning phase.
    Points of one's own (`start`) are those of the first epoch; the rule replaces those that others explain.
    """

    State: ClassVar[type] = SelectionState
    Info: ClassVar[type] = SelectionInfo

    added_settings: ClassVar[Mapping[str, Any]] = {"start": "none"}

    again: Any = False

    objective = settings.objective()
    start = own_start("none", "Points of the first epoch, in place of those that the method would choose.")

    @abstractmethod
    def rule(self, problem: Problem, theta: Tensor) -> RowRule:
        """Make the rule of one round of choosing, at this theta."""

    def steps(self, problem: Problem, resume: SelectionState | None = None) -> Steps:
        """Yield one step per chosen point and per evaluation of the objective."""
        state = yield from begun(resume, initial_state(problem), START)
        if not self.learn:
            if state.phase == "choose":
                state = yield from self._choosing_phase(problem, state)
            return Outcome(
                "converged", f"All {len(state.inducing):,} points are chosen; the hyperparameters stay fixed."
            )
        return (yield from self.epochs(problem, state, partial(self._epoch, problem)))

    def epoch_fields(self, state: SelectionState) -> dict[str, Any]:
        return {"phase": "choose" if self.again else "learn", "growing": state.growing[:0].clone()}

    def _epoch(self, problem: Problem, state: SelectionState) -> Generator[Step, None, SelectionState]:
        if state.phase == "choose":
            state = yield from self._choosing_phase(problem, state)
        Z = problem.train.rows(state.inducing).X
        evaluations = learn_hyperparameters(problem, Z, self, state.theta_begin, state.position)

        def report(state: SelectionState, jitter: float) -> SelectionInfo:
            return self._info("learn", state.terms, jitter=jitter)

        return (yield from learning_steps(state, evaluations, report))

    def _choosing_phase(self, problem: Problem, state: SelectionState) -> Generator[Step, None, SelectionState]:
        """The discrete phase, point by point. It is resumed by adding the points that were chosen before."""
        m, is_first = self.num_points(len(problem.train)), state.epoch == 0
        model = growing_model(problem.kernel, state.theta, problem.train, self.objective, m)
        rule = self.rule(problem, state.theta)
        if isinstance(model, StreamedGP):
            model.expect(state.growing.tolist())
        for row in state.growing.tolist():
            model.add(row)

        first = InOrder(own_rows(self.start if is_first else "none", problem))
        rounds = (chosen_rows(each, model, state.epoch) for each in (first, rule))
        for row in chain.from_iterable(rounds):
            reduction = model.add(row)
            state = state._replace(step=state.step + 1, growing=model.rows.clone())
            if is_first:
                state = state._replace(inducing=model.rows.clone(), terms=model.terms)
            yield Step(state, self._info("choose", state.terms, exact=reduction, growing=model.total, proposed=row))

        if is_first or model.total < state.terms.total(self.objective):
            state = state._replace(inducing=model.rows.clone(), terms=model.terms)
        epoch_begin = model.total if is_first else state.epoch_begin
        return state._replace(phase="learn", position=0, theta_begin=state.theta.clone(), epoch_begin=epoch_begin)

    def set_by_hand(self, problem: Problem, state: SelectionState) -> Step:
        """Keep the points, if any are chosen; their number grows no further, and theta is learned from here on."""
        if not len(state.inducing):
            return super().set_by_hand(problem, state)
        Z, theta = problem.train.rows(state.inducing).X, problem.theta
        model = nystrom(problem.kernel, theta, problem.train, Z, self.objective)
        state = state._replace(step=state.step + 1, phase="learn", position=0, growing=state.growing[:0].clone())
        state = state._replace(theta=theta.clone(), theta_begin=theta.clone())
        state = state._replace(terms=model.terms, epoch_begin=model.terms.total(self.objective))
        return Step(state, self._info("forced", model.terms, jitter=model.jitter))

    def _info(self, phase: str, terms: Terms, **others: Any) -> SelectionInfo:
        return SelectionInfo(phase, terms.total(self.objective), *halves(terms), **others)

    def posterior(self, problem: Problem, state: SelectionState) -> Posterior:
        return subset_posterior(problem, state)

    def cost(self, problem: Problem) -> Cost:
        return choosing_cost(problem, self.num_points(len(problem.train)), 0)


def initial_state(problem: Problem) -> SelectionState:
    """Return the state before any work: no inducing points, F unknown."""
    no_rows, theta = torch.zeros(0, dtype=torch.int64, device=problem.train.y.device), problem.theta.clone()
    return SelectionState(inducing=no_rows, growing=no_rows.clone(), theta=theta, theta_begin=theta.clone())


def subset_posterior(problem: Problem, state: Any) -> Posterior:
    """Return the posterior of f given the inducing rows of a state; it is the prior while there are none."""
    kernel, theta, train = problem.kernel, state.theta, problem.train
    if len(state.inducing) == 0:
        return PriorPosterior(kernel, theta)
    Z = train.rows(state.inducing).X
    return nystrom_posterior(kernel, theta, Z, nystrom(kernel, theta, train, Z))


def choosing_cost(problem: Problem, m: int, trials: float, passes: float = 1.0) -> Cost:
    """Predict the mean cost of choosing one of m points, if `trials` candidates are evaluated exactly for it.

    With more rows than fit it takes `passes` passes over them.
    """
    n, s = len(problem.train), problem.train.y.element_size()
    m = min(m, n)
    if not is_kept(n, m, s):
        return _streamed_cost(problem, m, min(trials, TOGETHER), passes * max(trials / TOGETHER, 1.0))
    flops = (trials + 1.0) * n * (2.0 * m + entry_flops(problem)) + (trials + 1.0) * m * m / 3
    moved = s * n * (m + 8.0 * (trials + 1.0)) + 12.0 * s * n
    candidates = 3.0 * min(s * n * trials, 1.0 * BLOCK_BYTES)
    arrays = {"factor L": s * n * m, "m x m factor": s * m * m, "columns": 3.0 * s * n}
    arrays["candidates' columns"] = candidates
    blocks = 1.0 + s * n * trials / BLOCK_BYTES
    return Cost(flops, moved, arrays, CHOICE_CALLS + (TRIAL_CALLS * blocks if trials else 0.0))


def _streamed_cost(problem: Problem, m: int, trials: float, passes: float) -> Cost:
    """Predict the mean cost of a point that takes `passes` passes over the rows, which compute its columns again."""
    n, s = len(problem.train), problem.train.y.element_size()
    columns = m if passes < 1.0 else m / 2  # all points in one pass, or half of them on the mean
    flops = n * (columns + trials) * entry_flops(problem) + n * columns * (2.0 * columns + 4.0 * trials)
    moved = 6.0 * s * n * (columns + trials)
    blocks = 2.0 * s * n * (columns + trials) / BLOCK
    arrays = {"vectors of n numbers": 3.0 * s * n, "a block": 3.0 * BLOCK_BYTES, "m x m factors": 4.0 * s * m * m}
    return Cost(passes * flops, passes * moved, arrays, CHOICE_CALLS + passes * TRIAL_CALLS * blocks)
