"""The loop of the minibatch methods: when it evaluates, which rate and theta it keeps, and what it does at the end."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from gpexplorer.errors import NotPositiveDefinite, SettingError
from gpexplorer.methods.minibatches import loop
from gpexplorer.methods.minibatches.exact_likelihood import exact_likelihood, exact_posterior
from gpexplorer.methods.minibatches.held_out_refit import band_factor, validation_error
from gpexplorer.methods.minibatches.learner import Learner
from gpexplorer.methods.minibatches.model import Model
from oracles_minibatches import begun, dense, dense_prediction, method, model, problem
from whole_run import finished


def small(**settings: Any) -> Any:
    return method("scgd", **{"batch_size": 8, "rate": 0.03, "minibatches": 2, "epochs": 4, "refit": "none", **settings})


# -- the schedule ------------------------------------------------------------------------------------------------------


def test_steps_have_the_set_number_of_minibatches_but_never_more_than_an_epoch():
    at = problem(n=44)  # five minibatches per epoch, and four rows that are left out
    steps, outcome = finished(small(), at)
    learned = [step for step in steps if step.info.phase == "learn"]
    assert [step.state.batches for step in learned] == list(range(2, 21, 2))
    assert [step.info.epoch for step in learned] == pytest.approx([k / 5 for k in range(2, 21, 2)])
    assert [step.state.step for step in steps] == list(range(len(steps)))
    assert [step.info.phase for step in steps] == ["start", *["learn"] * 10, "best"]
    assert (outcome.reason, outcome.message) == (
        "budget",
        "All 4 epochs are done. The theta with the lowest NLML is returned.",
    )
    whole_epochs, _ = finished(small(minibatches=1000), at)
    assert [step.state.batches for step in whole_epochs if step.info.phase == "learn"] == [5, 10, 15, 20]
    odd, _ = finished(small(minibatches=3), at)
    assert [step.state.batches for step in odd if step.info.phase == "learn"] == [3, 6, 9, 12, 15, 18, 20]


@pytest.mark.parametrize(("every", "due"), [(1, [2, 6, 10, 16, 20]), (2, [2, 10, 20]), (3, [2, 16, 20]), (50, [2, 20])])
def test_the_likelihood_is_evaluated_at_first_then_every_few_epochs_and_at_last(every: int, due: list[int]):
    steps, _ = finished(small(evaluate_every=every), problem())
    learned = [step for step in steps if step.info.phase == "learn"]
    evaluated = [step.state.batches for step in learned if not math.isnan(step.info.objective)]
    assert evaluated == due
    assert [step.state.batches for step in learned if not math.isnan(step.info.gap)] == due


def test_an_evaluation_is_the_likelihood_of_all_rows_at_the_theta_of_the_state():
    at = problem()
    feature_map = model(at=at)
    steps, _ = finished(small(), at)
    for step in steps:
        if step.info.phase == "learn":
            assert step.info.noise == pytest.approx(math.exp(float(step.state.theta[-1])))
            assert step.info.rate == 0.03
            assert not math.isnan(step.info.estimate)
            if not math.isnan(step.info.objective):
                assert step.info.objective == pytest.approx(float(dense(feature_map, step.state.theta)), rel=1e-8)
                assert math.isnan(step.info.error)


def test_the_best_theta_is_that_of_the_lowest_score_and_remembers_when_it_was():
    at = problem(n=60)
    steps, _ = finished(small(validation=0.3, epochs=12, rate=0.2), at)
    evaluated = [step for step in steps if step.info.phase == "learn" and not math.isnan(step.info.error)]
    best = min(evaluated, key=lambda step: step.info.error)
    last = evaluated[-1].state
    assert last.best_value == best.info.error
    assert last.best_batches == best.state.batches
    assert torch.equal(last.best_theta, best.state.theta)
    assert last.waited == len(evaluated) - 1 - evaluated.index(best)
    assert steps[-1].info.phase == "best"
    assert steps[-1].info.error == pytest.approx(best.info.error)
    assert steps[-1].info.noise == pytest.approx(math.exp(float(best.state.theta[-1])))
    assert torch.equal(steps[-1].state.theta, best.state.theta)
    assert torch.equal(steps[-1].state.w, best.state.w)


@pytest.mark.parametrize("patience", [1, 3])
def test_patience_counts_evaluations_without_improvement(patience: int):
    steps, outcome = finished(small(validation=0.3, epochs=300, rate=0.3, patience=patience), problem(n=60, noise=1.0))
    last = [step for step in steps if step.info.phase == "learn"][-1]
    assert last.state.waited == patience
    assert outcome.reason == "budget"  # the rows are too few for a standard error of the gradient
    assert outcome.message.startswith(f"The error on the rows set aside did not improve in {patience} evaluations.")
    assert outcome.message.endswith("The best theta is returned; raise patience.")


def test_without_rows_set_aside_the_end_reports_the_best_likelihood_and_no_error():
    at = problem()
    steps, _ = finished(small(), at)
    last = steps[-1]
    values = [step.info.objective for step in steps if step.info.phase == "learn"]
    assert last.info.objective == min(value for value in values if not math.isnan(value))
    assert last.info.noise == pytest.approx(math.exp(float(last.state.theta[-1])))
    assert math.isnan(last.info.error)
    assert last.state.band_factor == 1.0


@pytest.mark.parametrize("begin", [0, 1, 4, 9])
def test_a_resumed_run_repeats_every_step(begin: int):
    at, algorithm = problem(n=60), small(validation=0.3, search=2, trial=4, rate=0.1)
    steps, outcome = finished(algorithm, at)
    rest, same = finished(algorithm, at, steps[begin].state)
    assert outcome == same
    assert len(rest) == len(steps) - begin - 1
    for a, b in zip(rest, steps[begin + 1 :], strict=True):
        assert torch.equal(a.state.theta, b.state.theta)
        assert (a.state.batches, a.state.waited, a.state.trial) == (b.state.batches, b.state.waited, b.state.trial)


# -- learning rates that are tried -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4])
def test_rates_are_half_a_decade_apart_around_the_one_that_is_set(count: int):
    steps, _ = finished(small(search=count, trial=6), problem())
    searched = [step for step in steps if step.info.phase == "search"]
    rates = [step.info.rate for step in searched]
    assert len(rates) == count
    assert math.prod(rates) ** (1.0 / count) == pytest.approx(0.03)
    assert all(b / a == pytest.approx(10.0**0.5) for a, b in itertools.pairwise(rates))
    assert [step.state.trial for step in searched] == list(range(1, count + 1))
    assert [step.state.batches for step in searched] == [6] * count
    assert [step.state.step for step in steps] == list(range(len(steps)))
    best = min(searched, key=lambda step: step.info.objective)
    assert steps[count + 1].state.rate == best.info.rate
    assert searched[-1].state.best_rate == best.info.rate
    assert searched[-1].state.best_value == best.info.objective


def test_each_rate_is_tried_from_the_beginning_and_scored_by_all_rows():
    at = problem()
    feature_map = model(at=at)
    steps, _ = finished(small(search=2, trial=6), at)
    searched = [step for step in steps if step.info.phase == "search"]
    for step in searched:
        assert step.info.objective == pytest.approx(float(dense(feature_map, step.state.theta)), rel=1e-8)
    _, learner = begun(small(rate=searched[1].info.rate), at)
    for t in range(6):
        learner.move(t)
    assert torch.equal(learner.parameters.theta, searched[1].state.theta)
    assert torch.equal(learner.parameters.w, searched[1].state.w)


@pytest.mark.parametrize("search", [0, 1])
def test_with_one_rate_or_none_nothing_is_tried(search: int):
    steps, _ = finished(small(search=search), problem())
    assert [step.info.phase for step in steps[:2]] == ["start", "learn"]
    assert steps[0].state.rate == steps[1].state.rate == 0.03
    assert steps[1].state.best_value < math.inf
    assert steps[1].state.trial == 0


def test_a_rate_that_diverges_is_worse_than_any_other_even_where_it_is_the_first():
    wild = small(optimiser="sgd", rate=1e9, search=2, trial=6)
    steps, _ = finished(wild, problem())
    searched = [step for step in steps if step.info.phase == "search"]
    values = [step.info.objective for step in searched]
    print("VALUES", values)
    assert all(math.isnan(value) for value in values)
    assert searched[-1].state.best_rate == searched[0].info.rate
    assert searched[-1].state.best_value == math.inf
    assert searched[0].state.batches == 0


def test_an_inverse_that_fails_during_a_trial_counts_as_infinite(monkeypatch: pytest.MonkeyPatch):
    at, algorithm = problem(), small(search=3, trial=6)
    real, calls = loop.Minibatches.evaluate, []

    def fails_once(self: Any, *inputs: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise NotPositiveDefinite("F", 3, 0.0)
        return real(self, *inputs)

    monkeypatch.setattr(loop.Minibatches, "evaluate", fails_once)
    steps, _ = finished(algorithm, at)
    searched = [step for step in steps if step.info.phase == "search"]
    assert math.isnan(searched[0].info.objective)
    assert searched[0].state.best_value == math.inf
    assert searched[-1].state.best_rate == min(searched[1:], key=lambda step: step.info.objective).info.rate


# -- the end: rows set aside in turn, the refit, and the bands on the way ----------------------------------------------


@pytest.mark.parametrize(
    ("num_validation", "settings", "parts"),
    [
        (30, {"folds": 5}, 4),  # 4 * 30 >= 100
        (25, {"folds": 5}, 4),
        (24, {"folds": 5}, 5),
        (10, {"folds": 5}, 5),
        (10, {"folds": 3}, 3),
        (100, {"folds": 5}, 1),
        (0, {"folds": 5}, 1),
        (10, {"folds": 5, "refit": "none"}, 1),
    ],
)
def test_parts_are_set_aside_in_turn_until_they_have_a_hundred_rows(num_validation: int, settings: dict, parts: int):
    algorithm = small(**{"refit": "held-out", **settings})
    feature_map = model()
    feature_map.validation_rows, feature_map.num_parts = torch.arange(num_validation), 10
    assert algorithm.num_folds(feature_map) == parts
    feature_map.num_parts = 2
    assert algorithm.num_folds(feature_map) == min(parts, 2)


def test_each_part_is_learned_from_the_start_with_as_many_minibatches_as_the_best_theta_took():
    at = problem(n=60)
    algorithm = small(validation=0.3, refit="held-out", folds=3, epochs=6, rate=0.05)
    steps, _ = finished(algorithm, at)
    folds = [step for step in steps if step.info.phase == "fold"]
    learned = [step for step in steps if step.info.phase == "learn"][-1].state
    assert len(folds) == 2
    assert [len(step.state.fold_thetas) for step in folds] == [1, 2]
    assert [step.info.rate for step in folds] == [learned.rate] * 2
    for fold, theta in enumerate(folds[-1].state.fold_thetas, 1):
        other = Model(algorithm, at, 0.3, fold)
        start = other.start()
        state = next(algorithm.steps(at)).state._replace(theta=start, rate=learned.rate)
        learner = algorithm.learner(other, state)
        for t in range(learned.best_batches):
            learner.move(t)
        torch.testing.assert_close(learner.parameters.theta, theta)
    assert [step.state.step for step in steps] == list(range(len(steps)))


def test_the_refit_moves_magnitude_and_noise_only_and_reports_both_objectives_there():
    at = problem(n=60, noise=0.6)
    algorithm = small(validation=0.34, refit="held-out", folds=3, epochs=20, rate=0.05)
    steps, outcome = finished(algorithm, at)
    last, before = steps[-1], [step for step in steps if step.info.phase == "learn"][-1].state
    feature_map = Model(algorithm, at, 0.34)
    assert torch.equal(last.state.theta[:-2], before.best_theta[:-2])
    assert not torch.equal(last.state.theta[-2:], before.best_theta[-2:])
    assert last.state.band_factor == 1.0
    exact = exact_likelihood(feature_map, last.state.theta)
    assert last.info.objective == pytest.approx(exact.value)
    assert last.info.objective == pytest.approx(float(dense(feature_map, last.state.theta)), rel=1e-8)
    assert last.info.error == pytest.approx(validation_error(feature_map, last.state.theta, exact))
    assert last.info.noise == pytest.approx(math.exp(float(last.state.theta[-1])))
    assert outcome.message.endswith("is returned.")


def test_the_remark_on_overfitting_gives_the_further_decrease_of_the_nlml():
    at = problem(n=80, noise=1.5)
    algorithm = small(validation=0.3, epochs=60, rate=0.1, width=20)
    steps, outcome = finished(algorithm, at)
    learned = [step for step in steps if step.info.phase == "learn"][-1].state
    feature_map = Model(algorithm, at, 0.3)
    decrease = float(dense(feature_map, learned.best_theta)) - float(dense(feature_map, learned.theta))
    assert decrease > loop.OVERFIT_NATS * feature_map.n
    assert f"decreased by another {decrease:.0f} nat after the best theta" in outcome.message
    assert f"decreased by another {decrease:.0f} nat after the best theta" in steps[-1].state.remark


@pytest.mark.parametrize(("waited", "share"), [(0, 1.2), (3, 0.8), (3, 1.2)])
def test_overfitting_is_reported_only_after_waiting_and_beyond_a_number_of_nats_per_row(waited: int, share: float):
    at = problem(n=60)
    algorithm = small(validation=0.3)
    feature_map = Model(algorithm, at, 0.3)
    best = feature_map.start()
    last, value = best.clone(), float(dense(feature_map, best))
    allowed = loop.OVERFIT_NATS * feature_map.n
    lengths = torch.linspace(0.0, 1.0, 400, dtype=torch.float64)
    worse = feature_map.start()
    worse[-1] += 1.0
    for length in lengths:  # from a theta with too much noise towards one whose likelihood is so much higher
        last = best.lerp(worse, float(length))
        if float(dense(feature_map, last)) - value > share * allowed:
            break
    state = next(algorithm.steps(at)).state._replace(
        phase="learn", theta=best, best_theta=last, best_w=best.new_zeros(feature_map.D), waited=waited
    )
    ended, info = algorithm._finish(at, feature_map, state)
    assert ("overfitting" in ended.remark) == (waited > 0 and share > 1.0)
    assert torch.equal(ended.theta, last)
    assert (info.phase, ended.phase, ended.step) == ("best", "best", state.step + 1)


@pytest.mark.parametrize("refit", ["held-out", "none"])
def test_on_the_way_the_bands_are_fitted_to_the_rows_set_aside_where_a_refit_follows(refit: str):
    at = problem(n=60)
    algorithm = small(validation=0.3, refit=refit)
    feature_map = Model(algorithm, at, 0.3)
    step = next(step for step in algorithm.steps(at) if step.info.phase == "learn")
    exact = exact_likelihood(feature_map, step.state.theta)
    wanted = band_factor(feature_map, step.state.theta, exact) if refit == "held-out" else 1.0
    assert step.state.band_factor == pytest.approx(wanted)
    assert (wanted != 1.0) == (refit == "held-out")


def test_a_matrix_without_a_factor_is_an_error_unless_the_parameters_have_diverged(monkeypatch: pytest.MonkeyPatch):
    def fails(self: Any, first: int, end: int) -> None:
        raise NotPositiveDefinite("F", 3, 0.0)

    at, algorithm = problem(), small()
    monkeypatch.setattr(Learner, "take", fails)
    with pytest.raises(NotPositiveDefinite):
        finished(algorithm, at)

    def fails_far_away(self: Any, first: int, end: int) -> None:
        self.parameters.theta[0] = 1e9
        raise NotPositiveDefinite("F", 3, 0.0)

    monkeypatch.setattr(Learner, "take", fails_far_away)
    steps, outcome = finished(algorithm, at)
    assert outcome.reason == "diverged"
    assert "Lower the rate" in outcome.message
    assert len(steps) == 1


def test_a_part_whose_features_diverge_is_left_out(monkeypatch: pytest.MonkeyPatch):
    at = problem(n=60)
    algorithm = small(validation=0.3, refit="held-out", folds=3)
    state = next(algorithm.steps(at)).state._replace(phase="learn", best_batches=4)
    learned = algorithm._learn_fold(at, state)
    assert len(learned.fold_thetas[0]) == len(state.theta)
    assert (learned.phase, learned.step) == ("fold", state.step + 1)

    def fails(self: Any, first: int, end: int) -> None:
        raise NotPositiveDefinite("F", 3, 0.0)

    monkeypatch.setattr(Learner, "take", fails)
    assert len(algorithm._learn_fold(at, learned).fold_thetas[1]) == 0
    monkeypatch.setattr(Learner, "take", lambda self, first, end: self.parameters.theta.fill_(1e9))
    assert len(algorithm._learn_fold(at, learned).fold_thetas[1]) == 0


def test_the_error_is_that_of_the_mean_at_the_rows_set_aside():
    at = problem(n=60, shift=2.0)
    feature_map = Model(small(), at, 0.3)
    theta = feature_map.start()
    X, y = feature_map.validation()
    mean, _ = dense_prediction(feature_map, theta, X)
    wanted = float((mean - y).square().mean().sqrt())
    assert validation_error(feature_map, theta, exact_likelihood(feature_map, theta)) == pytest.approx(wanted)
    assert math.isnan(validation_error(model(at=at), theta, exact_likelihood(model(at=at), theta)))


def test_before_the_refit_predictions_have_the_magnitude_and_noise_of_the_band_factor():
    at = problem(n=60)
    algorithm = small(validation=0.3, refit="held-out")
    state = next(algorithm.steps(at)).state._replace(band_factor=2.5)
    theta = state.theta.clone()
    theta[-2] += 0.5 * math.log(2.5)
    theta[-1] += 0.5 * math.log(2.5)
    wanted, got = (
        answer(at.train.X[:6])
        for answer in (exact_posterior(Model(algorithm, at), theta), algorithm.posterior(at, state))
    )
    torch.testing.assert_close(got.mean, wanted.mean)
    torch.testing.assert_close(got.var, wanted.var)
    mean, variance = dense_prediction(Model(algorithm, at), theta, at.train.X[:6])  # all rows take part
    torch.testing.assert_close(got.mean, mean)
    torch.testing.assert_close(got.var, variance)
    state.theta[-1] = -0.7
    assert algorithm.noise_variance(at, state) == pytest.approx(2.5 * math.exp(-1.4))


def test_sampling_is_refused_before_any_work_where_there_are_no_weights_of_features():
    with pytest.raises(SettingError, match="no weights of features that could be sampled; set samples to 0"):
        next(method("svgp", samples=5).steps(problem()))
    assert next(method("svgp").steps(problem())).info.phase == "start"
