"""The posterior of an iterate: the mean of its coefficients, and the estimated error of the mean, by dense algebra."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer.methods.exact.posteriors import variance_rows
from gpexplorer.problem import Problem
from oracles_gbcd import SHIFTS, quick, system, wavy


def after(task: Problem, iterations: int, **settings: object):
    """A method and its state after so many iterations."""
    method = quick("gbcd", **settings)
    states = [step.state for step in method.steps(task)]
    return method, states[min(iterations, len(states) - 1)]


def moments(task: Problem, alpha: torch.Tensor, rows: torch.Tensor, X: torch.Tensor):
    """Mean, variance of the GP of these rows, and error of the mean that these rows show."""
    kernel, theta, train = task.kernel, task.theta, task.train
    A = system(task)
    inside, across = A[rows][:, rows], kernel(theta, train.X[rows], X)
    solved = torch.linalg.solve(inside, across)
    residual = (train.y - A @ alpha)[rows]
    mean = kernel(theta, X, train.X) @ alpha
    return mean, kernel.diag(theta, X) - (across * solved).sum(0), solved.T @ residual


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("count", [0, 30])
def test_the_estimated_error_of_the_mean_is_that_of_dense_algebra(count: int, shift: float):
    task = wavy(shift)
    method, state = after(task, 2, variance_rows=count)
    X = task.train.X[:7] + 0.3
    rows = variance_rows(task, count, method.seed)
    assert len(rows) == (count or len(task.train))
    assert 0 < int((state.alpha != 0).sum()) < len(task.train)

    mean, variance = method.posterior(task, state).moments(X)

    expected, of_rows, error = moments(task, state.alpha, rows, X)
    assert float(error.abs().max()) > 1e-3
    torch.testing.assert_close(mean, expected, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(variance, of_rows + error.square(), rtol=1e-7, atol=1e-8)


def test_the_rows_of_the_variance_are_drawn_once_each_from_all_rows():
    task = wavy()
    n = len(task.train)

    assert variance_rows(task, 0, 5).tolist() == list(range(n))
    assert variance_rows(task, n, 5).tolist() == list(range(n))
    chosen = variance_rows(task, 1, 5)
    most = variance_rows(task, n - 1, 5)
    assert len(chosen) == 1
    assert len(most) == len(set(most.tolist())) == n - 1
    assert math.isclose(float(most.double().mean()), (n - 1) / 2, rel_tol=0.05)
