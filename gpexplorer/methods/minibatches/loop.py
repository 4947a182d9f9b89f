"""The loop that these methods share: rates are tried, minibatches taken, and the best theta found is the answer.

A step is several minibatches, an epoch at most. Every so many epochs one is followed by a pass over all rows for the
exact likelihood, by which (or by the error on rows set aside) the best theta is known, as in the paper's experiments.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Generator
from typing import ClassVar

from torch import Tensor
from torch.nn import Module

from ...errors import NotPositiveDefinite
from ...features.pretrained import Pretrained
from ...problem import Channel, Outcome, Posterior, Problem, Step
from ..base import Method, Steps
from . import settings
from .exact_likelihood import Exact, exact, exact_posterior
from .learner import Learner
from .model import Model
from .state import CHANNELS
from .state import Info as Report
from .state import State as At

SPACING = 10.0**0.5  # of the learning rates tried


class Minibatches(Method):
    """Settings and steps; a subclass says what one minibatch does."""

    family: ClassVar[str] = "minibatches"
    own_kernel: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Shoham and Avron (2025). Unbiased stochastic optimization for Gaussian processes on finite dimensional RKHS."
    )
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "kernel": r"k(x,x') = \phi(x)^\top\phi(x')",
        "epochs": r"l = \textstyle\sum_i g_i + \log|\sum_i F_i|,\quad F_i = \phi_i\phi_i^\top + \sigma^2 I/n",
        "schedule": r"a_t = a_0\,(1 + t/e)^{-p} \quad\text{or}\quad a_t = \tfrac{a_0}{2}\,(1 + \cos(\pi t/T))",
    }
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    features: Pretrained | Module | None = None  # in the place of layers, width and activation; given in Python alone

    kernel = settings.kernel()
    layers = settings.layers()
    width = settings.width()
    activation = settings.activation()
    num_features = settings.num_features()
    frequencies = settings.frequencies()
    optimiser = settings.optimiser()
    rate = settings.rate()
    schedule = settings.schedule()
    rate_decay = settings.rate_decay()
    epochs = settings.epochs()
    minibatches = settings.minibatches()
    evaluate_every = settings.evaluate_every()
    validation = settings.validation()
    patience = settings.patience()
    search = settings.search()
    trial = settings.trial()
    noise_floor = settings.noise_floor()
    largest = settings.largest()

    @abstractmethod
    def learner(self, model: Model, state: At) -> Learner:
        """What takes minibatches from this state on."""

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        model, state = Model(self, problem, self.validation), resume
        if state is None:
            theta = model.start()
            state = At(0, "start", 0, theta, theta.new_zeros(model.D), (), (), float(self.rate))
            yield Step(state, Report("start"))
        if state.phase in ("start", "search"):
            state = yield from self._search(model, state)

        learner = self.learner(model, state)
        last = self.epochs * learner.rows.per_epoch
        while state.phase != "best" and state.batches < last and not (self.patience and state.waited >= self.patience):
            until = min(state.batches + min(self.minibatches, learner.rows.per_epoch), last)
            state = yield from self._step(model, learner, state, until, until == last)
            if state.phase == "diverged":
                return Outcome("diverged", f"Parameters left the box; lower the rate {state.rate:.2g}.")
        if state.phase != "best":
            state = _best(state)._replace(step=state.step + 1, phase="best")
            yield Step(state, Report("best", state.best_value, noise=math.exp(float(state.theta[-1]))))
        if state.batches < last:
            return Outcome("converged", f"No better theta in {self.patience} evaluations; the best one is the answer.")
        return Outcome("budget", f"All {self.epochs} epochs are done; the best theta of them is the answer.")

    def _step(self, model: Model, learner: Learner, state: At, until: int, last: bool) -> Generator[Step, None, At]:
        """Minibatches up to `until`, and the exact likelihood where it is due."""
        try:
            for t in range(state.batches, until):
                learner.move(t)
        except NotPositiveDefinite:
            if learner.inside():
                raise
        if not learner.inside():
            return state._replace(phase="diverged")
        due = last or self._passed(state.batches, until, learner.rows.per_epoch)
        state = learner.state(state)._replace(step=state.step + 1, phase="learn", batches=until)
        info = Report(
            "learn",
            estimate=learner.estimate(),
            noise=math.exp(float(state.theta[-1])),
            rate=state.rate,
            epoch=until / learner.rows.per_epoch,
        )
        if due:
            now = exact(model, state.theta)
            error = validation_error(model, state.theta, now)
            gap, penalty = learner.gap(now)
            state = _judged(state, error if len(model.held) else now.value)
            info = info._replace(objective=now.value, error=error, gap=gap, penalty=penalty)
        yield Step(state, info)
        return state

    def _passed(self, before: int, until: int, per_epoch: int) -> bool:
        """Whether these minibatches were the first, or came to the end of the epochs between two evaluations."""
        period = self.evaluate_every * per_epoch
        return before == 0 or until // period > before // period

    def _search(self, model: Model, state: At) -> Generator[Step, None, At]:
        """Try learning rates, each from the start; the best is left in a state as before any minibatch."""
        while 1 < self.search and state.trial < self.search:
            rate = self.rate * SPACING ** (state.trial - (self.search - 1) / 2)
            fresh = At(state.step, "search", 0, model.start(), model.start().new_zeros(model.D), (), (), rate)
            value, tried = self._tried(model, fresh)
            better = value < state.best_value or state.trial == 0
            state = tried._replace(
                step=state.step + 1,
                trial=state.trial + 1,
                best_value=value if better else state.best_value,
                best_rate=rate if better else state.best_rate,
            )
            yield Step(state, Report("search", value if math.isfinite(value) else math.nan, rate=rate))
        theta, rate = model.start(), state.best_rate if self.search > 1 else float(self.rate)
        return At(state.step, "learn", 0, theta, theta.new_zeros(model.D), (), (), rate, state.trial)

    def _tried(self, model: Model, state: At) -> tuple[float, At]:
        """What `trial` minibatches at this rate lead to; infinite where they diverge."""
        try:
            learner = self.learner(model, state)
            for t in range(self.trial):
                learner.move(t)
            theta = learner.point.theta.clone()
            now = exact(model, theta)
        except NotPositiveDefinite:
            return math.inf, state
        value = validation_error(model, theta, now) if len(model.held) else now.value
        if not math.isfinite(value):
            return math.inf, state
        return value, state._replace(theta=theta, w=learner.point.w.clone(), batches=self.trial)

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return exact_posterior(Model(self, problem), state.theta)


def validation_error(model: Model, theta: Tensor, now: Exact) -> float:
    """Root mean squared error of the posterior mean on the rows set aside; nan where there are none."""
    if not len(model.held):
        return math.nan
    X, y = model.validation()
    r = model.features(model.parts(theta), X).Phi @ now.w - y
    return float(r.square().mean().sqrt())


def _judged(state: At, score: float) -> At:
    """The state with the best theta so far brought up to date."""
    if score < state.best_value or state.best_theta is None:
        return state._replace(best_value=score, best_theta=state.theta, best_w=state.w, waited=0)
    return state._replace(waited=state.waited + 1)


def _best(state: At) -> At:
    """The state at the best theta it knows of."""
    if state.best_theta is None or state.best_w is None:
        return state
    return state._replace(theta=state.best_theta, w=state.best_w)
