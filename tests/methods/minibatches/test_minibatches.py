"""Minibatch methods: gradients without bias, schedules, rates tried, early stopping, and where the bias leads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.timing.rate_search import best_validation_rate
from gpexplorer.errors import SettingError
from gpexplorer.methods.minibatches import optimisers
from gpexplorer.methods.minibatches.exact_likelihood import exact_gradient, exact_likelihood
from gpexplorer.methods.minibatches.learner import MinibatchRows
from gpexplorer.methods.minibatches.optimisers import OPTIMISERS
from gpexplorer.methods.minibatches.scgd import running_inverse
from gpexplorer.problem import Problem
from oracles_minibatches import begun, dense, method, mixed, problem


def walked(method: Any, at: Problem) -> list[Any]:
    """All steps, and the outcome at the end."""
    steps, result = method.steps(at), []
    while True:
        try:
            result.append(next(steps))
        except StopIteration as end:
            return [*result, end.value]


def test_minibatches_of_an_epoch_share_no_row():
    rows = MinibatchRows(seed=3, n=50, size=16, stream="rows")

    seen = torch.cat([rows(t) for t in range(3)])

    assert rows.per_epoch == 3
    assert len(seen.unique()) == 48
    assert not torch.equal(rows(0), rows(3))
    assert torch.equal(rows(1), MinibatchRows(3, 50, 16, "rows")(1))


@pytest.mark.parametrize("settings", [{}, {"kernel": "gaussian"}, {"layers": 0}, {"head": "descend"}])
@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_scgd_with_all_rows_and_no_memory_is_steepest_descent_on_the_likelihood(settings: dict, shift: float):
    at = problem(shift=shift)
    model, learner = begun(method("scgd", batch_size=40, averaging=1.0, gram_update="before", **settings), at)
    theta = learner.parameters.theta.clone()

    value = learner.gradient(torch.arange(40), 0)

    want = exact_gradient(model, theta, exact_likelihood(model, theta))
    D = model.D
    torch.testing.assert_close(learner.parameters.g[D : D + model.size] * 40, want, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(learner.parameters.g[:D], torch.zeros(D, dtype=torch.float64), rtol=0, atol=1e-10)
    assert float(value) * 20 == pytest.approx(float(dense(model, theta)))


def test_the_mean_gradient_of_minibatches_is_that_of_all_rows():
    at = problem(shift=0.7)
    model, learner = begun(method("scgd", head="descend"), at)
    point = learner.parameters
    point.w += 0.3
    M = running_inverse(learner.S, model.n, point.s2())[0]  # type: ignore[attr-defined]

    def gradient(index: Tensor) -> Tensor:
        X, y = model.rows(index)
        point.write_gradient(model.features(point.parts, X), y, M)
        return point.g.clone()

    order = torch.randperm(40, generator=torch.Generator().manual_seed(1)).view(5, 8)
    torch.testing.assert_close(torch.stack([gradient(rows) for rows in order]).mean(0), gradient(torch.arange(40)))


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_are_those_of_torch(name: str):
    kinds = {"adam": torch.optim.Adam, "adadelta": torch.optim.Adadelta, "sgd": torch.optim.SGD}
    x = torch.linspace(-1.0, 2.0, 5, dtype=torch.float64)
    theirs = x.clone().requires_grad_()
    peer = kinds[name]([theirs], lr=0.05, **({"momentum": 0.9} if name == "sgd" else {}))
    averages = tuple(torch.zeros_like(x) for _ in range(OPTIMISERS[name].averages))

    for t in range(30):
        OPTIMISERS[name].move(x, 4.0 * x.pow(3) - 1.0, averages, t, 0.05)
        peer.zero_grad()
        (theirs.pow(4) - theirs).sum().backward()
        peer.step()

    torch.testing.assert_close(x, theirs.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_adam_is_the_same_where_torch_has_no_pass_of_its_own(shift: float, monkeypatch: pytest.MonkeyPatch):
    ends = []
    for _ in range(2):
        x = torch.linspace(-1.0, 2.0, 5, dtype=torch.float64) + shift
        averages = (torch.zeros_like(x), torch.zeros_like(x))
        for t in range(30):
            OPTIMISERS["adam"].move(x, 4.0 * (x - shift).pow(3) - 1.0, averages, t, 0.05)
        ends.append((x, *averages))
        monkeypatch.setattr(optimisers, "FUSED_ADAM", None)

    torch.testing.assert_close(*ends, rtol=0, atol=0)


def test_constraints_on_theta_hold_after_every_minibatch():
    at = problem(noise=0.0)
    _, learner = begun(method("scgd", batch_size=8, optimiser="sgd", noise_floor=0.3, largest=1.2), at)

    learner.rate = 0.5
    for t in range(40):
        learner.move(t)
        assert float(learner.parameters.theta[-1].exp()) >= 0.3 - 1e-12
        assert float(learner.parameters.x.abs().max()) <= 1.2049  # log 0.3 is the one entry that the floor may push out


def test_a_refresh_makes_the_gram_matrix_exact():
    at = problem()
    model, learner = begun(method("scgd", batch_size=8, refresh=5, rate=0.05, averaging=0.3), at)
    for t in range(5):
        learner.move(t)
    assert learner.gap(exact_likelihood(model, learner.parameters.theta))[0] > 1e-3

    before = learner.parameters.theta.clone()
    learner.b_0 = 1e-12
    learner.move(5)

    assert learner.gap(exact_likelihood(model, before))[0] < 1e-9


@pytest.mark.parametrize("head", ["solve", "descend"])
def test_the_weights_are_solved_for_or_follow_their_gradient(head: str):
    model, learner = begun(method("scgd", batch_size=8, head=head), problem())
    exact, point = exact_likelihood(model, learner.parameters.theta), learner.parameters
    point.w += 0.3

    learner.gradient(torch.arange(8), 0)

    torch.testing.assert_close(point.w, exact.w + 0.3 * (head == "descend"))
    assert bool(point.g_w.any()) == (head == "descend")
    learner.S.copy_(1.1 * exact.gram / model.n)
    assert learner.gap(exact)[0] == pytest.approx(0.1)


def test_the_answer_is_the_best_theta_seen_and_rates_are_tried_first():
    small = method("scgd", batch_size=8, search=3, trial=10, rate=0.03, epochs=6, minibatches=5, evaluate_every=2)

    *steps, outcome = walked(small, problem())

    phases = [step.info.phase for step in steps]
    values = [step.info.objective for step in steps if step.info.phase == "learn"]
    assert phases[:4] == ["start", "search", "search", "search"]
    tried = [step.info.objective for step in steps[1:4]]
    rates = [step.info.rate for step in steps[1:4]]
    assert steps[4].info.rate == rates[tried.index(min(tried))]
    assert rates == pytest.approx([0.03 / 10**0.5, 0.03, 0.03 * 10**0.5])
    assert (phases[-1], outcome.reason) == ("best", "budget")
    assert steps[-1].info.objective == min(value for value in values if value == value)


def test_the_best_theta_is_kept_and_waiting_begins_anew_with_a_better_one():
    begin = next(method("scgd").steps(problem())).state

    first = begin._replace(theta=begin.theta + 1.0).with_score(3.0)
    worse = first._replace(theta=begin.theta + 2.0).with_score(4.0).with_score(3.5)

    assert (first.waited, worse.waited, worse.with_score(2.9).waited) == (0, 2, 0)
    assert worse.best_value == 3.0
    torch.testing.assert_close(worse.at_best_theta().theta, begin.theta + 1.0)


def test_a_full_batch_moves_theta_and_solves_for_the_weights():
    model, learner = begun(method("full-batch"), problem())
    theta = learner.parameters.theta.clone()

    learner.move(0)

    torch.testing.assert_close(learner.parameters.w, exact_likelihood(model, theta).w)
    assert not torch.equal(learner.parameters.theta, theta)


def test_a_rate_chosen_on_rows_set_aside_is_one_of_the_grid_and_leaves_the_method_alone():
    at, small = problem(n=60), method("scgd", batch_size=8, rate=0.03, width=4)

    result = best_validation_rate(small, at)

    trying = method("scgd", batch_size=8, rate=0.03, width=4, validation=0.1, search=5, trial=5 * 6, epochs=5)
    tried = {step.info.rate: step.info.objective for step in islice(trying.steps(at), 1, 6)}
    assert result == min(tried, key=lambda rate: tried[rate])
    assert len(tried) == 5
    assert (small.rate, small.validation, small.search) == (0.03, 0.0, 0)
    with pytest.raises(SettingError, match=r"diverges with each of 5 learning rates around 0\.03"):
        best_validation_rate(method("scgd", batch_size=8, rate=0.03, width=4, largest=1.0), at)


def test_it_stops_early_by_the_rows_set_aside():
    small = method("scgd", batch_size=8, rate=0.3, validation=0.3, patience=2, minibatches=3, evaluate_every=1)

    *steps, outcome = walked(small, problem(n=60, noise=1.0))

    judged = [step.info.error for step in steps if step.info.phase == "learn"]
    errors = [error for error in judged if error == error]
    assert outcome.message.startswith("The error on the rows set aside did not improve in 2 evaluations.")
    assert len(errors) < 700
    assert min(errors) == errors[-3]


def test_a_rate_that_is_too_large_is_reported_as_divergence():
    wild = method("scgd", batch_size=8, optimiser="sgd", rate=1e4, minibatches=3)

    *_, outcome = walked(wild, problem())

    assert outcome.reason == "diverged"
    assert "Lower the rate" in outcome.message


def ending(key: str, at: Problem, minibatches: int = 1200, **settings: Any) -> float:
    """The likelihood where a method ends."""
    model, learner = begun(method(key, layers=0, **settings), at)
    for t in range(minibatches):
        learner.move(t)
    return exact_likelihood(model, learner.parameters.theta).value


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Matrices of 2 x 2, thousands of times: a second thread only waits for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_sixteen_rows_at_a_time_reach_the_optimum_where_bias_does_not():
    at, schedule = mixed(), {"batch_size": 16, "rate": 0.1, "rate_decay": 0.5}
    best = ending("full-batch", at, 500, rate=0.05)

    far = {key: ending(key, at, **schedule) - best for key in ("scgd", "minimax", "bsgd")}

    assert 0.0 <= far["scgd"] < 0.35
    assert 0.0 <= far["minimax"] < 0.35
    assert far["bsgd"] > 1.2


def test_the_bias_of_a_minibatch_vanishes_as_it_grows_to_all_rows():
    at = problem(shift=0.4)
    model, learner = begun(method("bsgd", batch_size=40), at)
    theta = learner.parameters.theta.clone()

    value = learner.gradient(torch.arange(40), 0)

    assert 20 * value == pytest.approx(float(dense(model, theta)))
    want = exact_gradient(model, theta, exact_likelihood(model, theta)) / 40
    torch.testing.assert_close(learner.parameters.g[model.D :], want, rtol=1e-6, atol=1e-8)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1)).view(5, 8)
    mean = torch.stack([learner.gradient(rows, 0) * 0 + learner.parameters.g for rows in order]).mean(0)[model.D :]
    assert float((mean - want).norm()) > 0.1 * float(want.norm())
