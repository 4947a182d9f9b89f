"""The loop of the minibatch methods: when it evaluates, which rate and theta it keeps, and what it does at the end."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from gpexplorer.errors import NotPositiveDefinite, SettingError
from gpexplorer.features.deep import Network, Scaled
from gpexplorer.features.pretrained import Pretrained
from gpexplorer.methods.minibatches import loop
from gpexplorer.methods.minibatches.exact_likelihood import exact_likelihood, exact_posterior
from gpexplorer.methods.minibatches.held_out_refit import band_factor
from gpexplorer.methods.minibatches.learner import Learner, MinibatchRows
from gpexplorer.methods.minibatches.loop import validation_error
from gpexplorer.methods.minibatches.model import Model, select_rows, send_rows
from gpexplorer.problem import Problem, RowGroups
from oracles_minibatches import begun, dense, dense_prediction, method, model, problem
from whole_run import whole_run


def walked(method: Any, at: Problem, resume: Any = None) -> tuple[list[Any], Any]:
    return whole_run(method.steps(at, resume))


def small(**settings: Any) -> Any:
    return method("scgd", **{"batch_size": 8, "rate": 0.03, "minibatches": 2, "epochs": 4, "refit": "none", **settings})


# -- the schedule ------------------------------------------------------------------------------------------------------


def test_steps_are_so_many_minibatches_but_never_more_than_an_epoch():
    at = problem(n=44)  # five minibatches per epoch, and four rows that are left out
    steps, outcome = walked(small(), at)
    learned = [step for step in steps if step.info.phase == "learn"]
    assert [step.state.batches for step in learned] == list(range(2, 21, 2))
    assert [step.info.epoch for step in learned] == pytest.approx([k / 5 for k in range(2, 21, 2)])
    assert [step.state.step for step in steps] == list(range(len(steps)))
    assert [step.info.phase for step in steps] == ["start", *["learn"] * 10, "best"]
    assert (outcome.reason, outcome.message) == (
        "budget",
        "All 4 epochs are done. The theta with the lowest NLML is returned.",
    )
    whole_epochs, _ = walked(small(minibatches=1000), at)
    assert [step.state.batches for step in whole_epochs if step.info.phase == "learn"] == [5, 10, 15, 20]
    odd, _ = walked(small(minibatches=3), at)
    assert [step.state.batches for step in odd if step.info.phase == "learn"] == [3, 6, 9, 12, 15, 18, 20]


@pytest.mark.parametrize(("every", "due"), [(1, [2, 6, 10, 16, 20]), (2, [2, 10, 20]), (3, [2, 16, 20]), (50, [2, 20])])
def test_the_likelihood_is_evaluated_at_first_then_every_few_epochs_and_at_last(every: int, due: list[int]):
    steps, _ = walked(small(evaluate_every=every), problem())
    learned = [step for step in steps if step.info.phase == "learn"]
    evaluated = [step.state.batches for step in learned if not math.isnan(step.info.objective)]
    assert evaluated == due
    assert [step.state.batches for step in learned if not math.isnan(step.info.gap)] == due


def test_an_evaluation_is_the_likelihood_of_all_rows_at_the_theta_of_the_state():
    at = problem()
    here = model(at=at)
    steps, _ = walked(small(), at)
    for step in steps:
        if step.info.phase == "learn":
            assert step.info.noise == pytest.approx(math.exp(float(step.state.theta[-1])))
            assert step.info.rate == 0.03
            assert not math.isnan(step.info.estimate)
            if not math.isnan(step.info.objective):
                assert step.info.objective == pytest.approx(float(dense(here, step.state.theta)), rel=1e-8)
                assert math.isnan(step.info.error)


def test_the_best_theta_is_that_of_the_lowest_score_and_remembers_when_it_was():
    at = problem(n=60)
    steps, _ = walked(small(validation=0.3, epochs=12, rate=0.2), at)
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
    steps, outcome = walked(small(validation=0.3, epochs=300, rate=0.3, patience=patience), problem(n=60, noise=1.0))
    last = [step for step in steps if step.info.phase == "learn"][-1]
    assert last.state.waited == patience
    assert outcome.reason == "converged"
    assert outcome.message.startswith(f"The error on the rows set aside did not improve in {patience} evaluations.")
    assert outcome.message.endswith("The best theta is returned.")


def test_without_rows_set_aside_the_end_reports_the_best_likelihood_and_no_error():
    at = problem()
    steps, _ = walked(small(), at)
    last = steps[-1]
    values = [step.info.objective for step in steps if step.info.phase == "learn"]
    assert last.info.objective == min(value for value in values if not math.isnan(value))
    assert last.info.noise == pytest.approx(math.exp(float(last.state.theta[-1])))
    assert math.isnan(last.info.error)
    assert last.state.band_factor == 1.0


@pytest.mark.parametrize("begin", [0, 1, 4, 9])
def test_a_resumed_run_repeats_every_step(begin: int):
    at, ours = problem(n=60), small(validation=0.3, search=2, trial=4, rate=0.1)
    steps, told = walked(ours, at)
    rest, same = walked(ours, at, steps[begin].state)
    assert told == same
    assert len(rest) == len(steps) - begin - 1
    for a, b in zip(rest, steps[begin + 1 :], strict=True):
        assert torch.equal(a.state.theta, b.state.theta)
        assert (a.state.batches, a.state.waited, a.state.trial) == (b.state.batches, b.state.waited, b.state.trial)


# -- learning rates that are tried -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4])
def test_rates_are_half_a_decade_apart_around_the_one_that_is_set(count: int):
    steps, _ = walked(small(search=count, trial=6), problem())
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
    here = model(at=at)
    steps, _ = walked(small(search=2, trial=6), at)
    searched = [step for step in steps if step.info.phase == "search"]
    for step in searched:
        assert step.info.objective == pytest.approx(float(dense(here, step.state.theta)), rel=1e-8)
    _, learner = begun(small(rate=searched[1].info.rate), at)
    for t in range(6):
        learner.move(t)
    assert torch.equal(learner.parameters.theta, searched[1].state.theta)
    assert torch.equal(learner.parameters.w, searched[1].state.w)


@pytest.mark.parametrize("search", [0, 1])
def test_with_one_rate_or_none_nothing_is_tried(search: int):
    steps, _ = walked(small(search=search), problem())
    assert [step.info.phase for step in steps[:2]] == ["start", "learn"]
    assert steps[0].state.rate == steps[1].state.rate == 0.03
    assert steps[1].state.best_value < math.inf
    assert steps[1].state.trial == 0


def test_a_rate_that_diverges_is_worse_than_any_other_even_where_it_is_the_first():
    wild = small(optimiser="sgd", rate=1e9, search=2, trial=6)
    steps, _ = walked(wild, problem())
    searched = [step for step in steps if step.info.phase == "search"]
    values = [step.info.objective for step in searched]
    if all(math.isnan(value) for value in values):
        assert searched[-1].state.best_rate == searched[0].info.rate
        assert searched[-1].state.best_value == math.inf
        assert searched[0].state.batches == 0


def test_an_inverse_that_fails_during_a_trial_counts_as_infinite(monkeypatch: pytest.MonkeyPatch):
    at, ours = problem(), small(search=3, trial=6)
    real, calls = loop.Minibatches.evaluate, []

    def fails_once(self: Any, *inputs: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise NotPositiveDefinite("F", 3, 0.0)
        return real(self, *inputs)

    monkeypatch.setattr(loop.Minibatches, "evaluate", fails_once)
    steps, _ = walked(ours, at)
    searched = [step for step in steps if step.info.phase == "search"]
    assert math.isnan(searched[0].info.objective)
    assert searched[0].state.best_value == math.inf
    assert searched[-1].state.best_rate == min(searched[1:], key=lambda step: step.info.objective).info.rate


# -- the end: rows set aside in turn, the refit, and the bands on the way ---------------------------------------------


@pytest.mark.parametrize(
    ("held", "settings", "parts"),
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
def test_parts_are_set_aside_in_turn_until_they_have_a_hundred_rows(held: int, settings: dict, parts: int):
    ours = small(**{"refit": "held-out", **settings})
    here = model()
    here.held, here.num_parts = torch.arange(held), 10
    assert ours.num_folds(here) == parts
    here.num_parts = 2
    assert ours.num_folds(here) == min(parts, 2)


def test_each_part_is_learned_from_the_start_with_as_many_minibatches_as_the_best_theta_took():
    at = problem(n=60)
    ours = small(validation=0.3, refit="held-out", folds=3, epochs=6, rate=0.05)
    steps, _ = walked(ours, at)
    folds = [step for step in steps if step.info.phase == "fold"]
    learned = [step for step in steps if step.info.phase == "learn"][-1].state
    assert len(folds) == 2
    assert [len(step.state.fold_thetas) for step in folds] == [1, 2]
    assert [step.info.rate for step in folds] == [learned.rate] * 2
    for fold, theta in enumerate(folds[-1].state.fold_thetas, 1):
        other = Model(ours, at, 0.3, fold)
        start = other.start()
        state = next(ours.steps(at)).state._replace(theta=start, rate=learned.rate)
        learner = ours.learner(other, state)
        for t in range(learned.best_batches):
            learner.move(t)
        torch.testing.assert_close(learner.parameters.theta, theta)
    assert [step.state.step for step in steps] == list(range(len(steps)))


def test_the_refit_moves_magnitude_and_noise_only_and_reports_both_objectives_there():
    at = problem(n=60, noise=0.6)
    ours = small(validation=0.34, refit="held-out", folds=3, epochs=20, rate=0.05)
    steps, outcome = walked(ours, at)
    last, before = steps[-1], [step for step in steps if step.info.phase == "learn"][-1].state
    here = Model(ours, at, 0.34)
    assert torch.equal(last.state.theta[:-2], before.best_theta[:-2])
    assert not torch.equal(last.state.theta[-2:], before.best_theta[-2:])
    assert last.state.band_factor == 1.0
    exact = exact_likelihood(here, last.state.theta)
    assert last.info.objective == pytest.approx(exact.value)
    assert last.info.objective == pytest.approx(float(dense(here, last.state.theta)), rel=1e-8)
    assert last.info.error == pytest.approx(validation_error(here, last.state.theta, exact))
    assert last.info.noise == pytest.approx(math.exp(float(last.state.theta[-1])))
    assert outcome.message.endswith("is returned.")


def test_overfitting_is_said_with_the_nats_that_the_likelihood_went_on_to_win():
    at = problem(n=80, noise=1.5)
    ours = small(validation=0.3, epochs=60, rate=0.1, width=20)
    steps, outcome = walked(ours, at)
    learned = [step for step in steps if step.info.phase == "learn"][-1].state
    here = Model(ours, at, 0.3)
    decrease = float(dense(here, learned.best_theta)) - float(dense(here, learned.theta))
    assert decrease > loop.OVERFIT_NATS * here.n
    assert f"decrease by {decrease:.0f} nat after the best theta" in outcome.message
    assert f"decrease by {decrease:.0f} nat after the best theta" in steps[-1].state.remark


@pytest.mark.parametrize(("waited", "share"), [(0, 1.2), (3, 0.8), (3, 1.2)])
def test_overfitting_is_said_only_after_waiting_and_beyond_so_many_nats_per_row(waited: int, share: float):
    at = problem(n=60)
    ours = small(validation=0.3)
    here = Model(ours, at, 0.3)
    best = here.start()
    last, value = best.clone(), float(dense(here, best))
    allowed = loop.OVERFIT_NATS * here.n
    lengths = torch.linspace(0.0, 1.0, 400, dtype=torch.float64)
    worse = here.start()
    worse[-1] += 1.0
    for length in lengths:  # from a theta with too much noise towards one whose likelihood is so much higher
        last = best.lerp(worse, float(length))
        if float(dense(here, last)) - value > share * allowed:
            break
    state = next(ours.steps(at)).state._replace(
        phase="learn", theta=best, best_theta=last, best_w=best.new_zeros(here.D), waited=waited
    )
    ended, info = ours._finish(at, here, state)
    assert ("overfitting" in ended.remark) == (waited > 0 and share > 1.0)
    assert torch.equal(ended.theta, last)
    assert (info.phase, ended.phase, ended.step) == ("best", "best", state.step + 1)


@pytest.mark.parametrize("refit", ["held-out", "none"])
def test_on_the_way_the_bands_are_fitted_to_the_rows_set_aside_where_a_refit_follows(refit: str):
    at = problem(n=60)
    ours = small(validation=0.3, refit=refit)
    here = Model(ours, at, 0.3)
    step = next(step for step in ours.steps(at) if step.info.phase == "learn")
    exact = exact_likelihood(here, step.state.theta)
    wanted = band_factor(here, step.state.theta, exact) if refit == "held-out" else 1.0
    assert step.state.band_factor == pytest.approx(wanted)
    assert (wanted != 1.0) == (refit == "held-out")


def test_a_matrix_without_a_factor_is_an_error_unless_the_parameters_have_diverged(monkeypatch: pytest.MonkeyPatch):
    def fails(self: Any, first: int, end: int) -> None:
        raise NotPositiveDefinite("F", 3, 0.0)

    at, ours = problem(), small()
    monkeypatch.setattr(Learner, "take", fails)
    with pytest.raises(NotPositiveDefinite):
        walked(ours, at)

    def fails_far_away(self: Any, first: int, end: int) -> None:
        self.parameters.theta[0] = 1e9
        raise NotPositiveDefinite("F", 3, 0.0)

    monkeypatch.setattr(Learner, "take", fails_far_away)
    steps, outcome = walked(ours, at)
    assert outcome.reason == "diverged"
    assert "Lower the rate" in outcome.message
    assert len(steps) == 1


def test_a_part_whose_features_diverge_is_left_out(monkeypatch: pytest.MonkeyPatch):
    at = problem(n=60)
    ours = small(validation=0.3, refit="held-out", folds=3)
    state = next(ours.steps(at)).state._replace(phase="learn", best_batches=4)
    learned = ours._learn_fold(at, state)
    assert len(learned.fold_thetas[0]) == len(state.theta)
    assert (learned.phase, learned.step) == ("fold", state.step + 1)

    def fails(self: Any, first: int, end: int) -> None:
        raise NotPositiveDefinite("F", 3, 0.0)

    monkeypatch.setattr(Learner, "take", fails)
    assert len(ours._learn_fold(at, learned).fold_thetas[1]) == 0
    monkeypatch.setattr(Learner, "take", lambda self, first, end: self.parameters.theta.fill_(1e9))
    assert len(ours._learn_fold(at, learned).fold_thetas[1]) == 0


def test_the_error_is_that_of_the_mean_at_the_rows_set_aside():
    at = problem(n=60, shift=2.0)
    here = Model(small(), at, 0.3)
    theta = here.start()
    X, y = here.validation()
    mean, _ = dense_prediction(here, theta, X)
    wanted = float((mean - y).square().mean().sqrt())
    assert validation_error(here, theta, exact_likelihood(here, theta)) == pytest.approx(wanted)
    assert math.isnan(validation_error(model(at=at), theta, exact_likelihood(model(at=at), theta)))


def test_before_the_refit_predictions_have_the_magnitude_and_noise_of_the_band_factor():
    at = problem(n=60)
    ours = small(validation=0.3, refit="held-out")
    state = next(ours.steps(at)).state._replace(band_factor=2.5)
    theta = state.theta.clone()
    theta[-2] += 0.5 * math.log(2.5)
    theta[-1] += 0.5 * math.log(2.5)
    wanted, got = (
        answer(at.train.X[:6]) for answer in (exact_posterior(Model(ours, at), theta), ours.posterior(at, state))
    )
    torch.testing.assert_close(got.mean, wanted.mean)
    torch.testing.assert_close(got.var, wanted.var)
    mean, variance = dense_prediction(Model(ours, at), theta, at.train.X[:6])  # all rows take part
    torch.testing.assert_close(got.mean, mean)
    torch.testing.assert_close(got.var, variance)
    state.theta[-1] = -0.7
    assert ours.noise_variance(at, state) == pytest.approx(2.5 * math.exp(-1.4))


def test_sampling_is_refused_before_any_work_where_there_are_no_weights_of_features():
    with pytest.raises(SettingError, match="no weights of features that could be sampled; set samples to 0"):
        next(method("svgp", samples=5).steps(problem()))
    assert next(method("svgp").steps(problem())).info.phase == "start"


# -- the rows and the features -----------------------------------------------------------------------------------------


def test_rows_set_aside_and_learned_from_are_all_rows_once():
    at = problem(n=50)
    ours = small(folds=1)
    for fraction, held in ((0.3, 15), (0.31, 16), (0.01, 1), (0.0, 0)):
        here = Model(ours, at, fraction)
        assert len(here.held) == held
        assert here.n == 50 - held
        if held:
            assert sorted([*here.held.tolist(), *here.kept.tolist()]) == list(range(50))
            X, y = here.validation()
            assert torch.equal(X, at.train.X[here.held])
            assert torch.equal(y, at.train.y[here.held])
            X, y = here.rows(torch.tensor([0, 3]))
            assert torch.equal(X, at.train.X[here.kept[[0, 3]]])
            assert torch.equal(y, at.train.y[here.kept[[0, 3]]])
            assert here.num_parts == 50 // held


def test_at_least_twenty_rows_are_set_aside_where_parts_follow_in_turn_but_at_most_one_part():
    assert len(Model(small(folds=5), problem(n=300), 0.01).held) == 20
    assert len(Model(small(folds=5), problem(n=50), 0.01).held) == 10
    assert len(Model(small(folds=2), problem(n=50), 0.01).held) == 20
    assert len(Model(small(folds=1), problem(n=300), 0.01).held) == 3
    assert len(Model(small(folds=5), problem(n=300), 0.2).held) == 60
    assert len(Model(small(folds=1), problem(n=2), 0.9).held) == 1


def test_the_parts_follow_each_other_and_share_no_row():
    at, ours = problem(n=50), small(folds=3)
    parts = [Model(ours, at, 0.3, fold).held.tolist() for fold in range(3)]
    assert len({row for part in parts for row in part}) == 45 + 3 * (len(parts[0]) - 15)
    for fold in range(3):
        here = Model(ours, at, 0.3, fold)
        assert sorted([*here.held.tolist(), *here.kept.tolist()]) == list(range(50))
        assert here.n == len(here.kept)


def test_groups_are_set_aside_whole():
    at = problem(n=60)
    number = torch.arange(60) // 6
    grouped = replace(at, train=replace(at.train, groups=RowGroups(number, are_folds=False)))
    ours, seen = small(folds=4), []
    parts = Model(ours, grouped, 0.2).num_parts
    assert parts > 1
    for fold in range(parts):
        here = Model(ours, grouped, 0.2, fold)
        assert len(here.held)
        assert not set(number[here.held].tolist()) & set(number[here.kept].tolist())
        assert len(here.held) + here.n == 60
        seen += here.held.tolist()
    assert sorted(seen) == list(range(60))


def test_features_of_the_linear_kernel_are_the_outputs_times_the_magnitude():
    at = problem()
    here = model(at=at, layers=0)
    theta = here.start()
    theta[-2] = 0.7
    assert isinstance(here.map, Scaled)
    tape = here.features(here.parts(theta), at.train.X)
    torch.testing.assert_close(tape.Phi, math.exp(0.7) * tape.H[-1])
    assert float(tape.scale) == pytest.approx(math.exp(0.7))
    assert tape.waves is None
    assert here.size == len(theta) == sum(math.prod(shape) for shape in here.shapes)
    assert here.D == tape.Phi.shape[1]


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
@pytest.mark.parametrize("layers", [0, 2])
def test_the_gradient_through_the_features_is_that_of_autograd(kernel: str, layers: int):
    at = problem(shift=0.5)
    here = model(at=at, kernel=kernel, layers=layers)
    theta = here.start() + 0.1 * torch.randn(here.size, generator=torch.Generator().manual_seed(1)).double()
    X = at.train.X[:7]
    G = torch.randn(7, here.D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    leaf = theta.clone().requires_grad_()
    (here.features(here.parts(leaf), X).Phi * G).sum().backward()
    into = torch.full_like(theta, 5.0)
    here.pullback(here.parts(theta), here.features(here.parts(theta), X), G.clone(), here.parts(into))
    torch.testing.assert_close(into[:-1], leaf.grad[:-1])
    assert float(into[-1]) == 5.0  # the noise is not touched


def test_the_linear_kernel_on_inputs_has_a_constant_feature_and_the_gaussian_one_does_not():
    assert model(layers=0).map.width == 4
    assert model(layers=0, kernel="gaussian").map.width == 3


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_the_prior_variance_is_matched_at_any_size_of_the_features(size: float):
    at = problem()
    here = model(at=at, layers=0)
    theta = here.start()
    theta[-2] = math.log(size)
    matched = here.matched(theta)
    Phi = here.features(here.parts(matched), at.train.X).Phi
    wanted = float(at.kernel.diag(at.theta, at.train.X).mean())
    assert float(Phi.square().sum(1).mean()) == pytest.approx(wanted)


def test_features_that_are_all_zero_keep_their_magnitude():
    at = problem()
    here = model(at=at, layers=1, activation="relu")
    theta = here.start()
    theta[: here.map.size] = 0.0
    assert torch.equal(here.matched(theta), theta)


def test_weights_of_another_number_of_inputs_are_refused():
    network = Network([4, 5], "relu")
    ours = small()
    ours.features = Pretrained([4, 5], "relu", network.start(0))
    with pytest.raises(SettingError, match="network with 4 inputs, but the data have 3"):
        Model(ours, problem())
    ours.features = Pretrained([3, 5], "relu", Network([3, 5], "relu").start(0))
    assert Model(ours, problem()).map is ours.features


def test_texts_and_foreign_features_are_refused_by_name():
    at = problem()
    ours = small()
    ours.features = "a network"
    with pytest.raises(SettingError, match=r"features are a str; give a torch module"):
        Model(ours, at)
    with pytest.raises(SettingError, match="needs columns of numbers"):
        Model(small(), replace(at, train=replace(at.train, X=["a"] * 40)))


def test_rows_are_selected_by_a_slice_or_by_numbers_and_converted():
    X = torch.arange(12.0).view(6, 2)
    assert torch.equal(select_rows(X, slice(1, 3)), X[1:3])
    assert torch.equal(select_rows(X, torch.tensor([4, 0])), X[[4, 0]])
    sent = send_rows(X, torch.tensor([4, 0]), torch.device("cpu"), torch.float64)
    assert sent.dtype == torch.float64
    assert torch.equal(sent, X[[4, 0]].double())


# -- a learner ---------------------------------------------------------------------------------------------------------


def test_rows_of_minibatches_depend_on_seed_stream_and_epoch_and_fit_the_size():
    rows = MinibatchRows(1, 10, 4, "rows")
    assert (rows.per_epoch, rows.size) == (2, 4)
    assert MinibatchRows(1, 3, 8, "rows").size == 3
    assert MinibatchRows(1, 3, 8, "rows").per_epoch == 1
    first = [rows(t).tolist() for t in range(4)]
    assert len(set(first[0]) | set(first[1])) == 8
    assert first[:2] != first[2:]
    assert rows(0).tolist() == first[0]  # it can go back
    assert MinibatchRows(2, 10, 4, "rows")(0).tolist() != first[0]
    assert MinibatchRows(1, 10, 4, "others")(0).tolist() != first[0]


def test_the_rate_follows_a_power_of_the_epochs():
    _, learner = begun(small(rate_decay=0.75), problem())
    assert learner.rows.per_epoch == 5
    assert learner.scheduled_rate(0) == pytest.approx(0.03)
    assert learner.scheduled_rate(10) == pytest.approx(0.03 * 3.0**-0.75)
    assert learner.last == 4 * 5


def test_a_refresh_is_due_after_so_many_minibatches_but_not_at_first():
    _, learner = begun(small(refresh=3), problem())
    assert [t for t in range(10) if learner.refreshes(t)] == [3, 6, 9]
    _, learner = begun(small(refresh=0), problem())
    assert not any(learner.refreshes(t) for t in range(10))


def test_averages_of_the_optimiser_go_on_from_the_state_and_are_copies():
    at = problem()
    ours = small()
    steps, _ = walked(ours, at)
    state = steps[3].state
    learner = ours.learner(model(at=at), state)
    assert len(learner.averages) == 2
    for mine, theirs in zip(learner.averages, state.averages, strict=True):
        assert torch.equal(mine, theirs)
        assert mine.data_ptr() != theirs.data_ptr()
    before = state.theta.clone()
    learner.move(state.batches)
    assert torch.equal(state.theta, before)
    copied = learner.state(state)
    assert torch.equal(copied.theta, learner.parameters.theta)
    assert copied.theta.data_ptr() != learner.parameters.theta.data_ptr()
    assert copied.w.data_ptr() != learner.parameters.w.data_ptr()
    assert copied.averages[0].data_ptr() != learner.averages[0].data_ptr()


def test_a_parameter_on_its_bound_is_divergence_and_one_below_is_not():
    _, learner = begun(small(largest=5.0), problem())
    learner.parameters.theta[0] = 4.9
    assert learner.within_bounds()
    assert learner.divergence() == ""
    learner.parameters.theta[0] = -5.0
    assert not learner.within_bounds()
    assert learner.divergence() == "A parameter reached its bound 5. Lower the rate 0.03."
    learner.parameters.theta[0] = 0.0
    learner.parameters.w[0] = math.nan
    assert learner.divergence()


def test_several_minibatches_are_taken_one_after_another_and_the_estimate_is_their_mean():
    at = problem()
    _, one = begun(small(), at)
    _, other = begun(small(), at)
    one.take(0, 4)
    values = []
    for t in range(4):
        other.move(t)
        values.append(other.estimate())
    assert torch.equal(one.parameters.x, other.parameters.x)
    assert one.estimate() == pytest.approx(sum(values) / 4)
    assert one.estimate() == 0.0  # nothing since
