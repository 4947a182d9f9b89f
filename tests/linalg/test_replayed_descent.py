"""SciPy's optimisers one evaluation at a time: the same points as SciPy, the best one kept, and threads that end."""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize

from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.linalg.replayed_descent import (
    MAX_DISTANCE,
    Evaluated,
    Recorded,
    descend,
    evaluations,
    recorded_gradient,
    replayed_descent,
)
from whole_run import whole_run


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    return float(optimize.rosen(x)), optimize.rosen_der(x)


STARTED: list[threading.Thread] = []  # optimisers of this test: runs that other tests left behind have their own


def optimisers() -> list[threading.Thread]:
    return [thread for thread in STARTED if thread.is_alive()]


@pytest.fixture(autouse=True)
def _threads_of_this_test_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noted(threading.Thread):
        def start(self) -> None:
            super().start()
            if threading.current_thread() is threading.main_thread():
                STARTED.append(self)

    STARTED.clear()
    monkeypatch.setattr(threading, "Thread", Noted)


@pytest.mark.parametrize("method", ["CG", "L-BFGS-B"])
def test_the_points_and_the_result_are_those_of_scipy(method: str):
    visited: list[np.ndarray] = []

    def recorded(x: np.ndarray) -> tuple[float, np.ndarray]:
        visited.append(x.copy())
        return rosenbrock(x)

    start = np.array([-1.2, 1.0, 0.7])
    expected = optimize.minimize(recorded, start, jac=True, method=method)
    requests = evaluations(lambda fun: optimize.minimize(fun, start, jac=True, method=method))
    points, answer = [], None
    while True:
        try:
            points.append(requests.send(answer))
        except StopIteration as end:
            result = end.value
            break
        answer = rosenbrock(points[-1])

    np.testing.assert_array_equal(points, visited)
    np.testing.assert_array_equal(result.x, expected.x)
    assert not optimisers()


def test_an_error_of_the_optimiser_is_raised_and_an_abandoned_one_ends():
    def failing(fun: object) -> None:
        raise ZeroDivisionError("inside")

    with pytest.raises(ZeroDivisionError, match="inside"):
        next(evaluations(failing))
    requests = evaluations(lambda fun: optimize.minimize(fun, np.ones(2), jac=True))
    next(requests)
    assert len(optimisers()) == 1
    requests.close()
    assert not optimisers()


@pytest.mark.parametrize("method", ["CG", "L-BFGS-B"])
def test_a_descent_reaches_the_minimum_and_its_value_never_rises(method: str):
    start = np.array([-1.2, 1.0])

    steps = list(descend(lambda x: Evaluated(*rosenbrock(x), extra=x.copy()), start, method, 300))

    values = [step.value for step in steps]
    assert all(after <= before for before, after in itertools.pairwise(values))
    np.testing.assert_allclose(steps[-1].point, [1.0, 1.0], atol=1e-3)
    assert steps[-1].value == rosenbrock(steps[-1].point)[0]
    np.testing.assert_array_equal(steps[-1].extra, steps[-1].point)
    assert not optimisers()


@pytest.mark.parametrize("limit", [1, 4])
def test_the_number_of_evaluations_is_limited(limit: int):
    points: list[np.ndarray] = []

    def evaluate(x: np.ndarray) -> Evaluated:
        points.append(x)
        return Evaluated(*rosenbrock(x), extra=None)

    assert len(list(descend(evaluate, np.array([-1.2, 1.0]), "L-BFGS-B", limit))) == limit == len(points)
    assert not optimisers()


@pytest.mark.parametrize("method", ["CG", "L-BFGS-B"])
def test_a_point_where_the_function_does_not_exist_is_left_and_is_no_step(method: str):
    """5 x - log x has its minimum at 0.2 and exists for x > 0 only; the first step of the line search is too long."""
    missing: list[float] = []

    def evaluate(x: np.ndarray) -> Evaluated | None:
        if x[0] <= 0.0:
            missing.append(float(x[0]))
            return None
        return Evaluated(float(5.0 * x[0] - np.log(x[0])), 5.0 - 1.0 / x, None)

    steps = list(descend(evaluate, np.array([0.6]), method, 60))

    assert missing
    assert steps[-1].point[0] == pytest.approx(0.2, rel=1e-4)
    assert len(steps) < 60


def test_no_point_farther_than_the_limit_from_the_start_is_evaluated():
    points: list[float] = []

    def evaluate(x: np.ndarray) -> Evaluated:
        points.append(float(x[0]))
        return Evaluated(-float(x[0]), np.array([-1.0]), None)  # it decreases without end

    start = 5.0
    *_, best = descend(evaluate, np.array([start]), "CG", 40)

    assert max(points) <= start + MAX_DISTANCE
    assert start + 1.0 < best.point[0] <= start + MAX_DISTANCE
    assert best.value == -best.point[0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_distance_limit_is_measured_from_the_initial_point(sign: float):
    start, visited = np.array([sign * 20.0, sign * 10.0]), list[np.ndarray]()

    def evaluate(x: np.ndarray) -> Evaluated:
        visited.append(x.copy())
        return Evaluated(-float(x.sum()) * 3.0, np.full(2, -3.0), None)  # decreases for ever

    *_, best = descend(evaluate, start, "L-BFGS-B", 40)

    assert all(np.abs(x - start).max() <= MAX_DISTANCE for x in visited)
    assert np.abs(best.point - start).max() > 1.0
    assert np.all(best.point > start)


@pytest.mark.parametrize("highest", [None, 8.0, 30.0])
def test_a_flat_direction_ends_at_the_distance_limit_or_at_a_nearer_bound(highest: float | None):
    """As of the lengthscale of an input that does not matter; the other parameter still finds its minimum."""
    visited = list[np.ndarray]()

    def evaluate(x: np.ndarray) -> Evaluated:
        visited.append(x.copy())
        valley, gone = (x[0] - 3.0) ** 2, np.exp(-x[1])
        return Evaluated(
            valley + gone * (1.0 + valley), np.array([2.0 * (x[0] - 3.0) * (1.0 + gone), -gone * (1.0 + valley)])
        )

    bounds = None if highest is None else np.array([[-np.inf, -np.inf], [np.inf, highest]])
    *_, best = descend(evaluate, np.zeros(2), "L-BFGS-B", 200, bounds, units=np.array([1.0, 40.0]))

    farthest = MAX_DISTANCE if highest is None else min(highest, MAX_DISTANCE)
    assert best.point == pytest.approx([3.0, farthest], abs=1e-4)
    assert all(x[1] <= farthest + 1e-12 for x in visited)
    assert len(visited) < 40


def test_a_point_where_the_function_does_not_exist_looks_worse_than_the_best_one_and_flat():
    answers: list[tuple[float, np.ndarray]] = []

    def optimiser(fun: object, start: np.ndarray, **_: object) -> optimize.OptimizeResult:
        for x in (start, start + 1.0, start + np.inf):
            answers.append(fun(x))  # type: ignore[operator]
        return optimize.OptimizeResult(success=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimize, "minimize", optimiser)
        list(descend(lambda x: None if x[0] == 1.0 else Evaluated(-500.0, np.ones(1), None), np.zeros(1), "CG", 9))

    assert [value for value, _ in answers] == [-500.0, 6000.0, 6000.0]
    assert [gradient.tolist() for _, gradient in answers] == [[1.0], [0.0], [0.0]]


def test_a_program_that_ends_does_not_wait_for_an_optimiser(monkeypatch: pytest.MonkeyPatch):
    stuck = threading.Event()

    def optimiser(fun: Callable[[np.ndarray], Any]) -> None:
        try:
            fun(np.zeros(1))
        finally:
            stuck.wait(60)  # as threads of Python 3.13 do while it ends

    requests = evaluations(optimiser)
    next(requests)
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)

    begin = time.monotonic()
    requests.close()

    assert time.monotonic() - begin < 10
    stuck.set()


@pytest.mark.parametrize(("optimiser", "limit", "radius", "converged"), [
    ("L-BFGS-B", 100, 9.0, True), ("CG", 100, 9.0, True), ("L-BFGS-B", 3, 9.0, None), ("L-BFGS-B", 100, 0.0, False),
    ("gradient descent", 100, 9.0, None),
])  # fmt: skip
def test_a_descent_returns_whether_its_optimiser_converged(
    optimiser: str, limit: int, radius: float, converged: bool | None
):
    """Beyond the radius around its beginning the function has no value."""
    begin = torch.tensor([1.0, 2.0], dtype=torch.float64)

    def function(x: torch.Tensor) -> Evaluated:
        if float((x - begin).norm()) > radius:
            raise NotPositiveDefinite("K", 2, 0.0)
        return Evaluated(float((x.square() * torch.tensor([1.0, 30.0])).sum()), x * torch.tensor([2.0, 60.0]))

    _, has_converged = whole_run(replayed_descent(function, begin, optimiser, limit))

    assert has_converged is converged


def test_a_recorded_function_is_evaluated_once_at_each_point_and_keeps_points_without_a_value():
    visited = list[float]()

    def function(theta: torch.Tensor) -> tuple[float, float, torch.Tensor]:
        visited.append(float(theta[0]))
        if visited[-1] < 0.0:
            raise NotPositiveDefinite("A", 2, 0.0)
        return float(theta @ theta), 7.0, 2.0 * theta

    first = Recorded(function, torch.zeros(0, 4))
    results = [first(torch.tensor([x, 1.0])) for x in (2.0, -1.0, 3.0, math.inf)]
    assert [(result.value, result.extra) for result in results[::2]] == [(5.0, [7.0]), (10.0, [7.0])]
    assert results[2].gradient.tolist() == [6.0, 2.0]
    assert math.isnan(results[1].value)
    assert torch.stack(first.rows).isfinite().all(1).tolist() == [True, False, True, False]
    assert recorded_gradient(first.rows, 9.0, 2).tolist() == [6.0, 2.0]

    resumed = Recorded(function, torch.stack(first.rows[:3]))
    assert [resumed(torch.tensor([x, 1.0])).value for x in (2.0, -1.0, 3.0, 4.0)][::2] == [5.0, 10.0]
    assert visited == [2.0, -1.0, 3.0, math.inf, 4.0]
    assert len(resumed.rows) == 4
