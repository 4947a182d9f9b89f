"""Predictions of the solvers: which rows their variances use, and what is said about them."""

from __future__ import annotations

import math
from itertools import islice

import pytest
import torch

from gpexplorer.methods.exact import posteriors
from gpexplorer.methods.exact.posteriors import JointPosterior, exact_posterior, variance_rows
from oracles_gbcd import gram, noise, quick, system, wavy
from whole_run import finished


@pytest.mark.parametrize(
    ("settings", "solved", "rows"),
    [
        ({"bands": "auto"}, True, 80),
        ({"bands": "rows", "variance_rows": 25}, True, 25),
        ({"bands": "rows", "variance_rows": 0}, True, 80),
        ({"bands": "exact", "variance_rows": 25}, True, 80),
        ({"bands": "exact", "variance_rows": 25}, False, 25),
        ({"bands": "auto", "variance_rows": 25}, False, 25),
    ],
)
def test_variances_use_the_rows_that_the_settings_name(settings: dict, solved: bool, rows: int):
    task = wavy()
    method = quick("gbcd", **settings)
    steps, _ = finished(method, task)
    state = steps[-1].state if solved else steps[2].state
    S = variance_rows(task, rows if rows < 80 else 0, method.seed)
    X = task.train.X[:6] + 0.2
    A, across = system(task)[S][:, S], task.kernel(task.theta, task.train.X[S], X)
    variance = task.kernel.diag(task.theta, X) - (across * torch.linalg.solve(A, across)).sum(0)
    if not solved:
        residual = (task.train.y - system(task) @ state.alpha)[S]
        variance = variance + (torch.linalg.solve(A, across).T @ residual).square()
    mean, got = method.posterior(task, state).moments(X)
    torch.testing.assert_close(got, variance, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(mean, task.kernel(task.theta, X, task.train.X) @ state.alpha, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("room", "cache", "settings", "joint"),
    [
        (8 * 80 * 80, 0.0, {}, False),
        (8 * 80 * 80 - 1, 0.0, {}, True),
        (0, 8 * 80 * 80, {}, False),
        (0, 8 * 80 * 80 - 1, {}, True),
        (0, 0.0, {"rows": 25}, False),
        (0, 0.0, {"solved": False}, False),
    ],
)
def test_variances_of_all_rows_come_from_iterations_where_a_factor_has_no_room(
    room: float, cache: float, settings: dict, joint: bool, monkeypatch: pytest.MonkeyPatch
):
    task = wavy()
    state = finished(quick("gbcd"), task)[0][-1].state
    monkeypatch.setattr(posteriors, "FACTOR_BYTES", room)
    result = exact_posterior(
        task, state, **{"rows": 0, "seed": 0, "cache": float(cache), "tolerance": 1e-8, **settings}
    )
    assert isinstance(result, JointPosterior) == joint
    if settings.get("rows"):
        return
    X = task.train.X[:4] + 0.1
    A, across = system(task), task.kernel(task.theta, task.train.X, X)
    variance = task.kernel.diag(task.theta, X) - (across * torch.linalg.solve(A, across)).sum(0)
    torch.testing.assert_close(result.moments(X)[1], variance, rtol=1e-5, atol=1e-7)


def test_the_note_beside_a_variance_says_how_many_rows_it_uses():
    task = wavy()
    steps, _ = finished(quick("gbcd"), task)
    begun, solved = steps[2].state, steps[-1].state
    few = quick("gbcd", bands="rows", variance_rows=25)
    assert few.variance_note(task, begun) == "estimated from 25 rows: the solver has not converged"
    assert few.variance_note(task, solved) == few.variance_note(task) == "upper bound from 25 rows"
    assert quick("gbcd", bands="rows", variance_rows=100).variance_note(task, solved) == ""
    assert quick("gbcd", bands="rows", variance_rows=80).variance_note(task, solved) == ""
    assert quick("gbcd", variance_rows=0).variance_note(task, begun) == (
        "estimated from 80 rows: the solver has not converged"
    )
    assert quick("gbcd", bands="exact", variance_rows=25).variance_note(task, solved) == ""
    assert quick("gbcd", bands="auto", variance_rows=25).variance_note(task, solved) == ""


def test_a_state_is_solved_where_means_hardly_err_and_in_the_last_phase_only():
    task = wavy()
    method = quick("gbcd", tolerance=1e-3)
    steps, _ = finished(method, task)
    last = steps[-1].state
    assert method._solved(task, last)
    assert not method._solved(task, last._replace(phase="learn"))
    assert not method._solved(task, last._replace(largest=math.inf))
    loose = quick("gbcd", tolerance=0.0, mean_tolerance=0.2)
    s2, prior = noise(task), float(gram(task).diagonal().max())
    allowed = 0.2 / (0.5 / s2 * math.sqrt(prior))
    assert method._solved(task, last._replace(norm=0.249 * allowed))
    assert not method._solved(task, last._replace(norm=0.251 * allowed, largest=1e-4))
    assert loose._solved(task, last._replace(norm=0.999 * allowed))
    assert not loose._solved(task, last._replace(norm=1.001 * allowed))


@pytest.mark.parametrize(("rows", "wanted"), [(0, 20), (8, 8), (25, 20)])
def test_bands_of_some_rows_are_shown_beside_and_never_narrower(rows: int, wanted: int):
    task = wavy()
    method = quick("gbcd", variance_rows=rows)
    steps, _ = finished(method, task)
    posterior_of_some, count = method.posterior_of_some_rows(task, steps[-1].state)
    assert count == wanted
    X = task.train.X[:6] + 0.2
    everything = method.posterior(task, steps[-1].state)
    torch.testing.assert_close(posterior_of_some.moments(X)[0], everything.moments(X)[0])
    assert bool((posterior_of_some.moments(X)[1] >= everything.moments(X)[1] - 1e-12).all())


def test_coefficients_of_zero_need_no_kernel_entry_and_change_nothing():
    task = wavy()
    state = list(islice(quick("gbcd").steps(task), 3))[-1].state
    assert 0 < int((state.alpha == 0).sum()) < 80
    X = task.train.X[:5] + 0.1
    mean = exact_posterior(task, state, rows=10, seed=0).moments(X)[0]
    torch.testing.assert_close(mean, task.kernel(task.theta, X, task.train.X) @ state.alpha)


def test_correlations_use_the_iterates_of_the_last_phase():
    task = wavy()
    method = quick("gbcd", learn=True, evaluations=3, subset=30, max_iterations=9, tolerance=0.0)
    states = [step.state for step in method.steps(task)]
    solved = [state for state in states if state.phase == "solve"]
    result = method.gradient_correlations(task, states, 10, 4)
    alone = method.gradient_correlations(task, solved, 10, 4)
    assert result.iterations == alone.iterations == 9
    torch.testing.assert_close(result.near, alone.near)
    assert method.gradient_correlations(task, states[:3], 10, 4).iterations == 0
    rows = torch.tensor([3, 50])
    A = system(task)
    last = states[-1]._replace(theta=task.theta)
    wanted = (A @ last.alpha - task.train.y)[rows]
    torch.testing.assert_close(method.gradient_entries(task, last, rows), wanted)
