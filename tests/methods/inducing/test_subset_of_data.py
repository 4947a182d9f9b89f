"""Subset of data: an exact GP on as many rows as were asked for, alike or not, against dense algebra."""

from __future__ import annotations

import pytest
import torch

from baseline_problems import SHIFTS, problem, trajectory
from gpexplorer import Spec, methods


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
