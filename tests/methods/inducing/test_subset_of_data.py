"""Subset of data: an exact GP on as many rows as were asked for, alike or not, against dense algebra."""

from __future__ import annotations

import pytest
import torch

from baseline_problems import SHIFTS, problem, trajectory
from gpexplorer import Spec, methods
from whole_run import whole_run


@pytest.mark.parametrize("start", ["random", "greedy-variance", "kmeans"])
@pytest.mark.parametrize("num_rows", [1, 40, 500])
def test_it_uses_as_many_rows_as_were_asked_for(num_rows: int, start: str):
    task = problem(repeats=10)

    state = trajectory("subset-of-data", task, num_rows=num_rows, start=start, max_epochs=1)[-1].state

    assert len(state.inducing) == min(num_rows, len(task.train))
    assert len(state.inducing.unique()) == len(state.inducing)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("repeats", [0, 10])
def test_objective_and_posterior_are_those_of_the_dense_gp_on_its_rows(shift: float, repeats: int):
    task = problem(shift, repeats=repeats)
    method = methods["subset-of-data"](num_rows=45, max_epochs=2)

    step = list(method.steps(task))[-1]
    theta, rows = step.state.theta, task.train.rows(step.state.inducing)
    X = task.train.X[:7] + 0.3
    A = task.kernel(theta, rows.X, rows.X) + torch.exp(2 * theta[-1]) * torch.eye(len(rows), dtype=torch.float64)
    k = task.kernel(theta, X, rows.X)
    mean, var = method.posterior(task, step.state)(X)

    nlml = 0.5 * (rows.y @ torch.linalg.solve(A, rows.y) + torch.logdet(A))
    assert step.info.objective == pytest.approx(float(nlml), rel=1e-9)
    torch.testing.assert_close(mean, k @ torch.linalg.solve(A, rows.y), rtol=1e-7, atol=1e-9)
    wanted = task.kernel.diag(theta, X) - (k * torch.linalg.solve(A, k.T).T).sum(1)
    torch.testing.assert_close(var, wanted, rtol=1e-6, atol=1e-9)


def test_at_its_defaults_it_is_the_exact_gp_where_rows_are_few():
    scores = {}
    for key in ("subset-of-data", "ml"):
        run = Spec(key, data="snelson-like", kernel="se").open()
        run.finish()
        scores[key] = run.scores()

    assert scores["subset-of-data"]["nlpd"] == pytest.approx(scores["ml"]["nlpd"], abs=0.02)
    assert scores["subset-of-data"]["coverage95"] > 0.85


@pytest.mark.parametrize("begin", [0, 1, 2, 5, -4, -1])
def test_epochs_of_learning_are_counted_and_a_resumed_run_repeats_them(begin: int):
    task = problem()
    method = methods["subset-of-data"](num_rows=20, evaluations=4, tolerance=0.0, max_epochs=3)
    steps, outcome = whole_run(method.steps(task))
    assert [step.info.phase for step in steps[:2]] == ["start", "choose"]
    assert [step.state.step for step in steps] == list(range(len(steps)))
    epochs = [[step for step in steps[2:] if step.state.epoch == epoch] for epoch in range(3)]
    assert all([step.state.position for step in epoch] == list(range(1, len(epoch) + 1)) for epoch in epochs)
    for before, epoch in zip([steps[1], epochs[0][-1], epochs[1][-1]], epochs, strict=True):
        for step in epoch:
            assert step.state.epoch_begin == before.info.objective
            assert torch.equal(step.state.theta_begin, before.state.theta)
    assert outcome.message == "All 3 epochs are done; raise max_epochs to continue."
    rest, same = whole_run(method.steps(task, steps[begin].state))
    assert same == outcome
    assert len(rest) == len(steps) - 1 - (begin if begin >= 0 else len(steps) + begin)
    for resumed_step, expected in zip(rest, steps[len(steps) - len(rest) :], strict=True):
        assert resumed_step.info.objective == pytest.approx(expected.info.objective, rel=1e-8, nan_ok=True)


def test_it_ends_where_an_epoch_decreases_too_little_or_where_nothing_is_learned():
    task = problem()
    _, outcome = whole_run(methods["subset-of-data"](num_rows=20, evaluations=4, tolerance=1.0).steps(task))
    assert outcome.reason == "budget"
    assert "improved the objective by" in outcome.message
    assert "lower tolerance" in outcome.message
    steps, outcome = whole_run(methods["subset-of-data"](num_rows=20, learn=False).steps(task))
    assert len(steps) == 2
    assert outcome.message == "The 20 rows are chosen; the hyperparameters stay fixed."
    prior = methods["subset-of-data"](num_rows=20).posterior(task, steps[0].state)(task.train.X[:3])
    assert not prior.mean.any()
