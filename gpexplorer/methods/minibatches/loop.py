"""The loop that the minibatch methods share: try learning rates, take minibatches, return the best theta found.

A step of a run is several minibatches, at most one epoch. Every few epochs a pass over all rows computes the exact
likelihood. The best theta is the one with the lowest NLML, or with the lowest error on the validation rows if there are
any, as in the experiments of Shoham and Avron (2025).

If few rows are set aside, the features are learned again without each other part of the rows, with as many minibatches
as the best theta took, so that magnitude and noise are chosen on 100 rows or on all of them (held_out_refit.py).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from ...errors import NotPositiveDefinite, SettingError
from ...kernels.theta.restrictions import noise_limits
from ...posteriors import Posterior
from ...problem import Outcome, Problem, Step
from ..base import Steps, begun
from .exact_likelihood import (
    WITHIN_SAMPLING,
    ExactLikelihood,
    exact_likelihood,
    exact_posterior,
    gradient_in_standard_errors,
)
from .held_out_refit import band_factor, refit_magnitude_and_noise, ridge_error, rows_set_aside, validation_error
from .learner import Learner
from .model import Model
from .settings import MinibatchSettings
from .state import MinibatchInfo, MinibatchState
from .weight_chains import mean_noise, refuse_few_rows, sample_weights, sampled_posterior

ADDED_SETTINGS: dict[str, Any] = {"refit": "none", "folds": 1, "samples": 0}
ENOUGH_ROWS = 100  # set aside in all parts together, if the setting `folds` allows it
OVERFIT_NATS = 0.05  # decrease of the NLML per row, after the best theta, that is reported as overfitting
RATE_SPACING = 10.0**0.5  # ratio of the learning rates that the search tries


class Evaluation(NamedTuple):
    """The quality of the parameters, by a pass over all rows."""

    objective: float  # NLML, or an upper bound of it, in nat
    error: float  # RMSE on the rows set aside; nan if there are none
    gap: float = math.nan  # relative error of the matrix that approximates F
    penalty: float = math.nan
    diverged: bool = False
    band_factor: float = 1.0  # factor of magnitude and noise variance that fits the bands to the rows set aside

    @property
    def score(self) -> float:
        """The value that chooses the best theta: the error if rows are set aside, else the objective."""
        return self.objective if math.isnan(self.error) else self.error


class Minibatches(MinibatchSettings):
    """Base class of the minibatch methods: their steps. A subclass defines one minibatch."""

    family: ClassVar[str] = "minibatches"
    row_noise: ClassVar[tuple[str, ...]] = ()
    own_kernel: ClassVar[bool] = True
    uses_groups: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Shoham and Avron (2025). Unbiased stochastic optimization for Gaussian processes on finite dimensional RKHS."
    )
    State: ClassVar[type] = MinibatchState
    Info: ClassVar[type] = MinibatchInfo
    equations: ClassVar[dict[str, str]] = {
        "kernel": r"k(x,x') = \phi(x)^\top\phi(x')",
        "epochs": r"l = \textstyle\sum_i g_i + \log|\sum_i F_i|,\quad F_i = \phi_i\phi_i^\top + \sigma^2 I/n",
        "schedule": r"a_t = a_0\,(1 + t/e)^{-p} \quad\text{or}\quad a_t = \tfrac{a_0}{2}\,(1 + \cos(\pi t/T))",
    }
    added_settings: ClassVar[Mapping[str, Any]] = ADDED_SETTINGS

    objective_name: ClassVar[str] = "NLML"
    refits: ClassVar[bool] = True  # whether magnitude and noise can be chosen on rows set aside

    def on_same_features(self, other: type[Minibatches], **settings: Any) -> Minibatches:
        """Return a method of class `other` with these settings, on the feature map that was given to this one."""
        method = other(**settings)
        method.features = self.features
        return method

    @abstractmethod
    def learner(self, model: Model, state: MinibatchState) -> Learner:
        """Return a learner that continues from this state."""

    def steps(self, problem: Problem, resume: MinibatchState | None = None) -> Steps:
        model = Model(self, problem, self.validation)
        if self.samples and not self.refits:
            raise SettingError(f"{self.title} has no weights of features that could be sampled; set samples to 0.")
        limits = noise_limits(problem.kernel, problem.theta)
        if self.samples and limits is not None:
            raise SettingError(f"{self.title} samples the noise, and cannot keep it where it is; set samples to 0.")
        if self.samples:
            refuse_few_rows(self.title, len(model.validation_rows))
        first = first_state(model, "start", float(self.rate))
        state = yield from begun(resume, first, MinibatchInfo("start"))
        if state.phase in ("start", "search"):
            state = yield from self._search(model, state)

        learner = self.learner(model, state)
        last = self.epochs * learner.rows.per_epoch
        while state.phase == "learn" and state.batches < last and not (self.patience and state.waited >= self.patience):
            until = min(state.batches + min(self.minibatches, learner.rows.per_epoch), last)
            state = yield from self._step(model, learner, state, until, until == last)
            if state.phase == "diverged":
                return Outcome("diverged", _divergence(learner, model))
        while state.phase in ("learn", "fold") and len(state.fold_thetas) < self.num_folds(model) - 1:
            state = self._learn_fold(problem, state)
            yield Step(state, MinibatchInfo("fold", rate=state.rate))
        if state.phase in ("learn", "fold"):
            state, info = self._finish(problem, model, state)
            yield Step(state, info)
        if self.samples:
            state = yield from sample_weights(model, state, self.seed, self.samples)
        criterion = "error on the rows set aside" if len(model.validation_rows) else self.objective_name
        if state.batches < last:
            ending = f"The {criterion} did not improve in {self.patience} evaluations."
            is_stationary = state.gradient <= WITHIN_SAMPLING
            final = "The best theta is returned." if is_stationary else "The best theta is returned; raise patience."
            message = " ".join(filter(None, [ending, state.remark, final]))
            return Outcome("converged" if is_stationary else "budget", message)
        ending = f"All {self.epochs} epochs are done."
        final = f"The theta with the lowest {criterion} is returned."
        return Outcome("budget", " ".join(filter(None, [ending, state.remark, final])))

    def evaluate(self, model: Model, learner: Learner) -> Evaluation:
        """Compute the objective of all rows, and the error on the rows set aside, at the learner's parameters."""
        theta = learner.parameters.theta
        exact = exact_likelihood(model, theta)
        gap, penalty = learner.gap(exact)
        error, diverged = validation_error(model, theta, exact), bool(learner.divergence(exact))
        factor = band_factor(model, theta, exact) if self._may_refit(model.problem) else 1.0
        return Evaluation(exact.value, error, gap=gap, penalty=penalty, diverged=diverged, band_factor=factor)

    def num_folds(self, model: Model) -> int:
        """Return the number of parts of the rows that are set aside in turn."""
        count = len(model.validation_rows)
        if not (self.refits and count) or not self._may_refit(model.problem):
            return 1
        return min(self.folds, math.ceil(ENOUGH_ROWS / count), model.num_parts)

    def _may_refit(self, problem: Problem) -> bool:
        """Whether the rows set aside choose the noise: not where it is fixed, bounded or has a prior."""
        return bool(self.refit == "held-out") and noise_limits(problem.kernel, problem.theta) is None

    def _learn_fold(self, problem: Problem, state: MinibatchState) -> MinibatchState:
        """Learn the features without the next part of the rows, with as many minibatches as the best theta took."""
        model = Model(self, problem, self.validation, len(state.fold_thetas) + 1)
        first = first_state(model, "learn", state.rate)
        learner = self.learner(model, first)
        try:
            learner.take(0, state.best_batches)
            diverged = bool(learner.divergence())
        except NotPositiveDefinite:
            diverged = True
        theta = first.theta[:0] if diverged else learner.parameters.theta.clone()
        return state._replace(step=state.step + 1, phase="fold", fold_thetas=(*state.fold_thetas, theta))

    def _finish(self, problem: Problem, model: Model, state: MinibatchState) -> tuple[MinibatchState, MinibatchInfo]:
        """Return to the best theta and refit magnitude and noise; say how good this theta is, for the outcome.

        It may not be stationary, likelihood and rows set aside may disagree, and a straight line may do as well.
        """
        last_theta, sentences = state.theta, [state.remark] if state.remark else []
        state = state.at_best_theta()._replace(step=state.step + 1, phase="best", band_factor=1.0)
        exact = exact_likelihood(model, state.theta)
        state = state._replace(gradient=gradient_in_standard_errors(model, state.theta, exact))
        if not math.isnan(state.gradient):
            verdict = "stationary" if state.gradient <= WITHIN_SAMPLING else "not stationary"
            sentences.append(f"The gradient of the NLML is {state.gradient:.2g} of its standard error: {verdict}.")
        if not len(model.validation_rows):
            state = state._replace(remark=" ".join(sentences))
            return state, MinibatchInfo("best", state.best_value, noise=math.exp(float(state.theta[-1])))
        fits = [(model, state.theta, exact)]
        for fold, theta in enumerate(state.fold_thetas, 1):
            if len(theta):
                fold_model = Model(self, problem, self.validation, fold)
                fits.append((fold_model, theta, exact_likelihood(fold_model, theta)))
        rows = [len(each.validation_rows) for each, *_ in fits]
        ridge = _pooled([ridge_error(each) for each, *_ in fits], rows)
        learned = _pooled([validation_error(*fit) for fit in fits], rows)
        if ridge < learned:
            sentences.append(
                f"On the {sum(rows):,} rows set aside, ridge regression errs by {ridge:.4g} and these features by "
                f"{learned:.4g}: they explain no more than a straight line."
            )
        decrease = exact.value - exact_likelihood(model, last_theta).value
        if decrease > OVERFIT_NATS * model.n and state.waited:
            sentences.append(
                f"The NLML decreased by another {decrease:.0f} nat after the best theta, which is overfitting."
            )
        if self._may_refit(problem):
            parts = [rows_set_aside(*fit) for fit in fits]
            refit = refit_magnitude_and_noise(parts, state.theta, self.noise_floor, self.largest)
            if refit:
                if refit.is_significant:
                    sentences.append(refit.sentence(exact.s2))
                state = state._replace(theta=refit.theta)
                exact = exact_likelihood(model, refit.theta)
        error, noise_sd = validation_error(model, state.theta, exact), math.exp(float(state.theta[-1]))
        info = MinibatchInfo("best", exact.value, noise=noise_sd, error=error)
        return state._replace(remark=" ".join(sentences)), info

    def _step(
        self, model: Model, learner: Learner, state: MinibatchState, until: int, last: bool
    ) -> Generator[Step, None, MinibatchState]:
        """Take minibatches up to `until`; compute the exact likelihood after the first ones and every few epochs."""
        try:
            learner.take(state.batches, until)
        except NotPositiveDefinite:
            if not _divergence(learner, model):
                raise
            return state._replace(phase="diverged")
        if learner.divergence():
            return state._replace(phase="diverged")
        period = self.evaluate_every * learner.rows.per_epoch
        is_due = last or state.batches == 0 or until // period > state.batches // period
        state = learner.state(state)._replace(step=state.step + 1, phase="learn", batches=until)
        info = MinibatchInfo(
            "learn",
            estimate=learner.estimate(),
            noise=math.exp(float(state.theta[-1])),
            rate=state.rate,
            epoch=until / learner.rows.per_epoch,
        )
        if is_due:
            evaluation = self.evaluate(model, learner)
            if evaluation.diverged:
                return state._replace(phase="diverged")
            state = state.with_score(evaluation.score + learner.penalty())
            state = state._replace(band_factor=evaluation.band_factor, remark=learner.remark(evaluation.gap))
            info = info._replace(
                objective=evaluation.objective, error=evaluation.error, gap=evaluation.gap, penalty=evaluation.penalty
            )
        yield Step(state, info)
        return state

    def _search(self, model: Model, state: MinibatchState) -> Generator[Step, None, MinibatchState]:
        """Try learning rates, each from the initial theta; return the initial state with the best rate."""
        while 1 < self.search and state.trial < self.search:
            rate = self.rate * RATE_SPACING ** (state.trial - (self.search - 1) / 2)
            value, tried = self._try_rate(model, first_state(model, "search", rate))
            is_better = value < state.best_value or state.trial == 0
            state = tried._replace(
                step=state.step + 1,
                trial=state.trial + 1,
                best_value=value if is_better else state.best_value,
                best_rate=rate if is_better else state.best_rate,
            )
            yield Step(state, MinibatchInfo("search", value if math.isfinite(value) else math.nan, rate=rate))
        rate = state.best_rate if self.search > 1 else float(self.rate)
        return first_state(model, "learn", rate)._replace(step=state.step, trial=state.trial)

    def _try_rate(self, model: Model, state: MinibatchState) -> tuple[float, MinibatchState]:
        """The score after `trial` minibatches at the rate of this state, infinite if they diverge, and the state."""
        try:
            learner = self.learner(model, state)
            learner.take(0, self.trial)
            theta, value = learner.parameters.theta.clone(), self.evaluate(model, learner).score
        except NotPositiveDefinite:
            return math.inf, state
        if not math.isfinite(value):
            return math.inf, state
        return value, state._replace(theta=theta, w=learner.parameters.w.clone(), batches=self.trial)

    def posterior(self, problem: Problem, state: MinibatchState) -> Posterior:
        """Return the posterior of f; before the refit, with the magnitude and noise that fit the rows set aside."""
        if state.chains and len(state.chains.draws):
            return sampled_posterior(Model(self, problem, self.validation), state.theta, state.chains)
        theta = state.theta.clone()
        theta[-2:] += 0.5 * math.log(state.band_factor)
        return exact_posterior(Model(self, problem), theta)

    def noise_variance(self, problem: Problem, state: MinibatchState) -> float:
        """Return the noise variance of predictions of y."""
        if state.chains and len(state.chains.draws):
            return mean_noise(state.chains)
        return state.band_factor * math.exp(2.0 * float(state.theta[-1]))


class LikelihoodGradient(Minibatches):
    """Base class of the methods whose minibatches estimate the gradient of the exact marginal likelihood."""

    def stationary_matrices(self, model: Model, exact: ExactLikelihood) -> tuple[Tensor, ...]:
        """Return the matrices at which the method would stay if theta did not move; most methods keep none."""
        return ()


def _pooled(errors: Sequence[float], rows: Sequence[int]) -> float:
    """The root mean squared error of all rows, from those of parts with so many rows."""
    return math.sqrt(sum(count * error**2 for error, count in zip(errors, rows, strict=True)) / sum(rows))


def _divergence(learner: Learner, model: Model) -> str:
    """What has diverged, in a sentence; the exact likelihood is computed only if all parameters are within bounds."""
    return learner.divergence() or learner.divergence(exact_likelihood(model, learner.parameters.theta))


def first_state(model: Model, phase: str, rate: float) -> MinibatchState:
    """Return the state before the first minibatch."""
    theta = model.start()
    return MinibatchState(0, phase, 0, theta, theta.new_zeros(model.D), (), (), rate)
