"""The least noise that learning may reach, beside the function, and descents that go on along it."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

import gpexplorer as gpx
from gpexplorer.kernels.theta.restrictions import restricted_problem
from gpexplorer.linalg.replayed_descent import GRADIENT_DESCENT, Evaluated, Restrictions, replayed_descent
from gpexplorer.noise_floor import NoiseFloor, least_share
from gpexplorer.objectives import evidence, rounding
from gpexplorer.problem import Problem
from oracles_admm import problem

OPTIMISERS = ["CG", "L-BFGS-B", GRADIENT_DESCENT]


@pytest.mark.parametrize("key", ["se-ard", "se+matern32", "linear", "se+linear", "matern52-product"])
def test_the_least_noise_is_a_share_of_the_prior_and_its_gradient_that_of_differences(key: str):
    task = problem(n=60)
    kernel = gpx.kernels.make(key, d=task.train.d)
    given = Problem(task.train, kernel, kernel.start(task.train))
    floor, theta = NoiseFloor(given), given.theta + 0.3

    least, gradient = floor.least(theta)

    prior = float(kernel.diag(theta, task.train.X).mean())
    assert math.exp(2.0 * least) == pytest.approx(1e7 * 2.0**-52 * prior, rel=1e-9)
    for entry in range(len(theta)):
        moved = [theta.clone(), theta.clone()]
        moved[0][entry] -= 1e-5
        moved[1][entry] += 1e-5
        low, high = (floor.least(each)[0] for each in moved)
        assert float(gradient[entry]) == pytest.approx((high - low) / 2e-5, abs=1e-8)
    assert gradient[-1] == 0.0
    assert float(gradient[:-1].sum()) > 0.9  # the prior is a sum of squares of sds


def test_float32_resolves_less_noise():
    assert least_share(torch.float64) == pytest.approx(100.0 * rounding(torch.float64))
    assert least_share(torch.float32) == rounding(torch.float32)


def test_noise_that_is_less_at_the_beginning_may_stay_but_not_sink_beside_the_function():
    task = problem()
    theta = task.theta.clone()
    theta[-1] = -15.0
    floor = NoiseFloor(Problem(task.train, task.kernel, theta))

    assert floor.admits(theta)
    lower, larger_function = theta.clone(), theta.clone()
    lower[-1] -= 0.01
    larger_function[0] += 0.01
    assert not floor.admits(lower)
    assert not floor.admits(larger_function)


@pytest.mark.parametrize(
    ("options", "is_learned", "is_movable"),
    [({}, True, True), ({"fixed": ["noise"]}, False, False), ({"bounds": {"noise": [1e-9, 1.0]}}, True, False)],
)
def test_fixed_noise_has_no_least_value_and_bounded_noise_a_wall(options, is_learned, is_movable):
    given = restricted_problem(problem(), options)
    floor, theta = NoiseFloor(given), given.theta.clone()
    theta[-1] = -18.0

    assert floor.is_learned == is_learned
    assert floor.is_movable == is_movable
    assert floor.admits(theta) != is_learned


class Line:
    """A floor t_0 >= t_1 / 2 - 1."""

    entry = 0
    is_movable = True

    def least(self, point: Tensor) -> tuple[float, Tensor]:
        gradient = torch.zeros_like(point)
        gradient[1] = 0.5
        return float(point[1]) / 2.0 - 1.0, gradient

    def admits(self, point: Tensor) -> bool:
        return float(point[0]) >= float(point[1]) / 2.0 - 1.0 - 1e-9


def bowl(point: Tensor) -> Evaluated:
    """|t - (-3, 1, 2)|^2, lowest on the line at (-1, 0, 2)."""
    difference = point - point.new_tensor([-3.0, 1.0, 2.0])
    return Evaluated(float(difference @ difference), 2.0 * difference, point.clone())


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("begin", [[0.0, 0.0, 0.0], [9.0, -3.0, 9.0], [-1.0, 0.0, 2.0]])
def test_a_descent_that_wants_less_goes_on_along_the_floor(optimiser: str, begin: list[float]):
    start = torch.tensor(begin, dtype=torch.float64)

    every = list(replayed_descent(bowl, start, optimiser, 200, floor=Line()))

    # minimise (t0 + 3)^2 + (t1 - 1)^2 with t0 = t1 / 2 - 1: 2 (t1 / 2 + 2) / 2 + 2 (t1 - 1) = 0, so t1 = 0
    wanted = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(every[-1].theta, wanted, atol=1e-4, rtol=0.0)
    assert all(Line().admits(best.theta) for best in every)
    assert all(later.value <= earlier.value for earlier, later in itertools.pairwise(every))
    assert all(best.value == pytest.approx(bowl(best.theta).value) for best in every)
    torch.testing.assert_close(every[-1].extra, every[-1].theta)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_resumed_descent_takes_the_same_path_along_the_floor(optimiser: str):
    start = torch.zeros(3, dtype=torch.float64)
    every = list(replayed_descent(bowl, start, optimiser, 60, floor=Line()))

    for done in (1, 3, len(every) - 1):
        rest = list(replayed_descent(bowl, start, optimiser, 60, done, floor=Line()))
        assert [best.position for best in rest] == [best.position for best in every[done:]]
        assert all(torch.equal(a.theta, b.theta) for a, b in zip(rest, every[done:], strict=True))


def test_a_descent_leaves_the_floor_where_more_is_better():
    """f = (t0 - t1)^2 + (t1 - 4)^2 / 9: the first steps want t0 below the floor, the minimum (4, 4) is above it."""
    start = torch.tensor([2.0, -6.0], dtype=torch.float64)

    def function(point: Tensor) -> Evaluated:
        a, b = float(point[0] - point[1]), float(point[1] - 4.0)
        gradient = point.new_tensor([2.0 * a, -2.0 * a + 2.0 * b / 9.0])
        return Evaluated(a * a + b * b / 9.0, gradient)

    best = list(replayed_descent(function, start, "L-BFGS-B", 100, floor=Line()))[-1]

    torch.testing.assert_close(best.theta, torch.tensor([4.0, 4.0], dtype=torch.float64), atol=1e-3, rtol=0.0)


@pytest.mark.parametrize("options", [{}, {"tied": [["se-ard.lengthscale*"]]}, {"bounds": {"se-ard.sd": [0.5, 4.0]}}])
def test_the_likelihood_of_rows_without_noise_is_stationary_along_the_floor(options):
    X = torch.linspace(-2.0, 2.0, 40, dtype=torch.float64)
    X = torch.stack([X, X.roll(7)], 1)
    data = gpx.load((X.numpy(), (torch.sin(2.0 * X[:, 0]) + X[:, 1] ** 2).numpy()))
    run = gpx.Spec("ml", {"evaluations": 200}, kernel={"name": "se-ard", **options}).open(data=data)

    outcome = run.finish()

    theta, floor = run.trace[-1].step.state.theta, NoiseFloor(run.problem)
    assert outcome.reason == "converged"
    assert floor.is_touched(theta)
    assert "is at its least value beside the function, 4.7e-05 of its standard deviation" in outcome.message
    assert "These rows look free of noise." in outcome.message
    value, gradient = evidence(run.problem.kernel, theta, run.problem.train)
    assert float(gradient[-1]) > 1.0  # less noise would be more likely
    restrictions: Restrictions | None = getattr(run.problem.kernel, "restrictions", None)
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):  # no allowed neighbour is clearly better
        other = theta + 0.02 * torch.randn(len(theta), generator=draw, dtype=theta.dtype)
        other = other if restrictions is None else restrictions.parameters.project(other)
        other[-1] = max(float(other[-1]), floor.least(other)[0])
        assert evidence(run.problem.kernel, other, run.problem.train)[0] > value - 0.05
