"""Points that lie between the rows: k-means and its steps, epochs of a descent, and what a step holds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.cluster import KMeans as Lloyd

from gpexplorer.errors import SettingError
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import registry
from gpexplorer.methods.inducing import initial_sets
from gpexplorer.methods.inducing.distinct_rows import check_precision, distinct_rows, random_order
from gpexplorer.methods.inducing.initial_sets import (
    kmeans_centres,
    lloyd,
    spread_rows,
    start_inputs,
    start_rows,
)
from gpexplorer.methods.inducing.moving import loop
from gpexplorer.methods.inducing.moving.loop import sparse_gradient
from gpexplorer.methods.inducing.moving.state import initial_state
from gpexplorer.methods.own_points import nearest, rows_near
from gpexplorer.noise_floor import NoiseFloor
from gpexplorer.objectives import least_noise, nystrom, rounding
from gpexplorer.problem import Problem
from swap_problems import SHIFTS, problem
from whole_run import whole_run


def blobs(shift: float = 0.0, n: int = 60) -> torch.Tensor:
    draw = torch.Generator().manual_seed(2)
    places = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 6.0], [7.0, 8.0]], dtype=torch.float64)
    return shift + places.repeat(n // 4, 1) + 0.3 * torch.randn(n, 2, generator=draw, dtype=torch.float64)


# -- Lloyd's iterations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_the_nearest_centre_and_its_distance_are_those_of_exact_differences(shift: float):
    X, Z = blobs(shift), blobs(shift)[[3, 17, 30, 41, 2]] + 0.1
    result = nearest(X, Z)
    exact = (X[:, None] - Z[None]).square().sum(2)
    assert torch.equal(result.indices, exact.argmin(1))
    torch.testing.assert_close(result.values, exact.min(1).values, rtol=1e-8, atol=1e-8)
    assert bool((nearest(Z, Z).values < 1e-9).all())


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_an_iteration_moves_each_centre_to_the_mean_of_its_rows(shift: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(initial_sets, "row_blocks", lambda n, *_: (slice(k, min(k + 7, n)) for k in range(0, n, 7)))
    X = blobs(shift)
    far = torch.full((1, 2), shift + 1e3, dtype=torch.float64)  # no row is nearest to it
    Z = torch.cat([X[[0, 1, 2, 5]] + 0.2, far])
    exact = (X[:, None] - Z[None]).square().sum(2)
    label = exact.argmin(1)
    centres, spread = lloyd(X, Z)
    for j in range(4):
        torch.testing.assert_close(centres[j], X[label == j].mean(0))
    assert torch.equal(centres[4], Z[4])
    assert spread == pytest.approx(float(exact.min(1).values.mean()), rel=1e-8)


def test_the_centres_are_those_of_scikit_learn_from_the_same_start():
    X = blobs()
    start = X[spread_rows(X, 6, 3)]
    peer = Lloyd(6, init=start.numpy(), n_init=1, max_iter=20, tol=0.0, algorithm="lloyd").fit(X.numpy())
    torch.testing.assert_close(kmeans_centres(X, 6, 3), torch.from_numpy(peer.cluster_centers_))
    assert len(kmeans_centres(X[:3], 8, 0)) == 3


def test_of_many_rows_a_sample_has_centres_as_good_as_all_and_rare_rows_are_not_lost(monkeypatch: pytest.MonkeyPatch):
    X = blobs().repeat(40, 1)
    X += 0.05 * torch.randn(X.shape, generator=torch.Generator().manual_seed(0), dtype=X.dtype)
    rare = torch.zeros(4000, 1, dtype=torch.float64)
    rare[:3] = torch.tensor([[1.0], [2.0], [3.0]])
    of_all = kmeans_centres(X, 6, 0)
    monkeypatch.setattr(initial_sets, "CLUSTERED_ROWS", 600)

    of_sample = kmeans_centres(X, 6, 0)

    assert not torch.equal(of_sample, of_all)
    assert lloyd(X, of_sample)[1] == pytest.approx(lloyd(X, of_all)[1], rel=0.05)
    assert sorted(kmeans_centres(rare, 4, 0)[:, 0].tolist()) == [0.0, 1.0, 2.0, 3.0]


def test_the_first_centres_are_drawn_in_proportion_to_the_squared_distance():
    X = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    counts = torch.zeros(3, 3)
    for seed in range(3000):
        first, second = spread_rows(X, 2, seed).tolist()
        counts[first, second] += 1
    shares = counts / counts.sum(1, keepdim=True)
    expected = torch.tensor([[0.0, 0.1, 0.9], [0.2, 0.0, 0.8], [9 / 13, 4 / 13, 0.0]])
    torch.testing.assert_close(shares, expected, rtol=0.0, atol=0.05)
    torch.testing.assert_close(counts.sum(1) / 3000, torch.full((3,), 1 / 3), rtol=0.0, atol=0.04)


def test_every_row_is_drawn_once_and_no_more_than_there_are_different_ones():
    X = blobs(n=8)
    assert sorted(spread_rows(X, 8, 0).tolist()) == list(range(8))
    twice = torch.cat([X, X])
    rows = spread_rows(twice, 12, 1).tolist()
    assert len(rows) == 8
    assert sorted(row % 8 for row in rows) == list(range(8))
    assert len(spread_rows(torch.ones(5, 2, dtype=torch.float64), 4, 0)) == 1


def test_rows_near_the_centres_are_distinct():
    X = blobs()
    Z = torch.stack([X[4] + 0.01, X[9] + 0.01, X[4] - 0.01])
    assert rows_near(X, Z).tolist() == [4, 9]


# -- k-means as a method -----------------------------------------------------------------------------------------------

SMALL = {"num_inducing": 6, "evaluations": 4, "tolerance": 0.0, "max_epochs": 3}


def walked(key: str, task: Problem, resume: Any = None, **settings: Any) -> tuple[list[Any], Any]:
    return whole_run(registry[key](**{**SMALL, **settings}).steps(task, resume))


@pytest.mark.parametrize("shift", SHIFTS)
def test_k_means_iterates_until_no_centre_moves_and_then_learns(shift: float):
    task = problem(shift)
    steps, outcome = walked("kmeans", task)
    phases = [step.info.phase for step in steps]
    moves = phases.count("move")
    epochs = [[step for step in steps[moves + 2 :] if step.state.epoch == epoch] for epoch in range(3)]
    assert phases == ["start", *["move"] * moves, *["learn"] * (1 + sum(map(len, epochs)))]
    assert [step.state.step for step in steps] == list(range(len(steps)))
    assert [step.state.position for step in steps[: moves + 2]] == [*range(moves + 1), 0]
    assert all(step.state.epoch == 0 for step in steps[: moves + 2])
    assert all([step.state.position for step in epoch] == list(range(1, len(epoch) + 1)) for epoch in epochs)
    assert all(1 < len(epoch) <= 4 for epoch in epochs)  # an evaluation without a value is no step
    Z = task.train.X[spread_rows(task.train.X, 6, 0)]
    for step in steps[1 : moves + 1]:
        before, Z = Z, lloyd(task.train.X, Z)[0]
        torch.testing.assert_close(step.state.Z, Z)
        assert step.info.moved == pytest.approx(float((Z - before).square().sum(1).mean().sqrt()))
    assert torch.equal(lloyd(task.train.X, Z)[0], Z)
    reported = [not math.isnan(step.info.objective) for step in steps[1:]]
    assert reported == [True, *[False] * (moves - 1), *[True] * (len(steps) - moves - 1)]
    for step in (steps[1], *steps[moves + 1 :]):
        terms = nystrom(task.kernel, step.state.theta, task.train, step.state.Z).terms
        assert step.info.objective == pytest.approx(terms.total("vfe"), rel=1e-8)
        assert step.info.fit + step.info.logdet + step.info.trace == pytest.approx(step.info.objective)
    for begin, epoch in zip([steps[moves + 1], epochs[0][-1], epochs[1][-1]], epochs, strict=True):
        for step in epoch:
            assert step.state.epoch_begin == begin.info.objective
            assert torch.equal(step.state.theta_begin, begin.state.theta)
    assert steps[-1].info.objective < steps[moves + 1].info.objective
    assert (outcome.reason, outcome.message) == ("budget", "All 3 epochs are done; raise max_epochs to continue.")


def test_k_means_ends_after_its_iterations_and_may_learn_nothing():
    task = problem()
    steps, outcome = walked("kmeans", task, iterations=2, learn=False)
    assert [step.info.phase for step in steps] == ["start", "move", "move", "learn"]
    assert (outcome.reason, outcome.message) == ("converged", "The 6 centres are fixed, and learn is off.")
    method = registry["kmeans"](**SMALL, learn=False)
    prior = method.posterior(task, steps[0].state)(task.train.X[:3])
    assert float(prior.mean.abs().max()) == 0.0
    Z = steps[-1].state.Z
    terms = nystrom(task.kernel, task.theta, task.train, Z).terms
    assert tuple(method.bound_terms(task, steps[-1].state)) == pytest.approx(tuple(terms))
    assert bool(method.posterior(task, steps[1].state)(task.train.X[:3]).mean.any())


@pytest.mark.parametrize("key", ["kmeans", "sgpr", "fitc"])
@pytest.mark.parametrize("begin", [0, 1, 2, 5, -6, -4, -1])
def test_a_resumed_run_repeats_every_step(key: str, begin: int):
    task = problem()
    steps, outcome = walked(key, task)
    rest, same = walked(key, task, steps[begin].state)
    assert outcome == same
    assert len(rest) == len(steps) - 1 - (begin if begin >= 0 else len(steps) + begin)
    for resumed_step, step in zip(rest, steps[len(steps) - len(rest) :], strict=True):
        torch.testing.assert_close(resumed_step.state.Z, step.state.Z, rtol=1e-6, atol=1e-7)
        assert resumed_step.state.step == step.state.step
        assert resumed_step.info.objective == pytest.approx(step.info.objective, rel=1e-7, nan_ok=True)


@pytest.mark.parametrize("key", ["sgpr", "fitc"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_descent_that_fails_where_the_objective_could_be_lower_has_not_converged(
    key: str, shift: float, monkeypatch: pytest.MonkeyPatch
):
    """As where rounding decides the derivatives in points that nearly coincide."""

    def uphill(*arguments: Any, **likelihood: Any) -> Any:
        model, gradient = sparse_gradient(*arguments, **likelihood)
        return model, loop.Gradient(-gradient.theta, -gradient.Z)

    task = problem(shift)
    monkeypatch.setattr(loop, "sparse_gradient", uphill)
    steps, outcome = walked(key, task, evaluations=40, tolerance=1e-9)

    slope = registry[key](**SMALL).theta_gradient(task, steps[-1].state)(steps[-1].state.theta).abs().max()

    assert steps[-1].info.objective == pytest.approx(steps[1].info.objective, rel=1e-9)
    assert outcome.reason == "budget"
    assert f"finds no lower value after {steps[-1].state.position} evaluations" in outcome.message
    assert f"the largest derivative is {float(slope):.2g}" in outcome.message
    _, outcome = walked(key, task, evaluations=40, tolerance=1e-9, learn=False)
    assert outcome.reason == "converged"


# -- descents ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["sgpr", "fitc"])
def test_epochs_of_a_descent_have_the_given_number_of_evaluations_and_begin_where_the_last_one_ended(key: str):
    task = problem()
    steps, outcome = walked(key, task)
    assert [step.info.phase for step in steps] == ["start", *["move"] * 12]
    assert [step.state.position for step in steps] == [0, *[1, 2, 3, 4] * 3]
    assert [step.state.epoch for step in steps] == [0, *[0] * 4, *[1] * 4, *[2] * 4]
    values = [step.info.objective for step in steps[1:]]
    assert values == sorted(values, reverse=True)
    assert steps[1].state.epoch_begin == values[0]
    for epoch in (1, 2):
        last = steps[4 * epoch]
        for step in steps[4 * epoch + 1 : 4 * epoch + 5]:
            assert torch.equal(step.state.Z_begin, last.state.Z)
            assert torch.equal(step.state.theta_begin, last.state.theta)
            assert step.state.epoch_begin == last.info.objective
    for before, step in itertools.pairwise(steps[1:]):
        moved = (step.state.Z - before.state.Z).square().sum(1).mean().sqrt()
        assert step.info.moved == pytest.approx(float(moved))
    assert outcome.reason == "budget"
    _, outcome = walked(key, task, tolerance=1.0)
    assert outcome.reason == "budget"
    assert "improved the objective by" in outcome.message


def test_without_learning_the_points_move_and_theta_stays():
    task = problem()
    steps, _ = walked("sgpr", task, learn=False)
    assert all(torch.equal(step.state.theta, task.theta) for step in steps)
    assert not torch.equal(steps[-1].state.Z, steps[1].state.Z)


@pytest.mark.parametrize("key", ["sgpr", "fitc"])
def test_an_epoch_has_forty_evaluations_unless_it_is_set(key: str):
    task = problem(n=30)
    assert registry[key]().descent(task).limit == loop.PER_EPOCH == 40
    assert registry[key](evaluations=7).descent(task).limit == 7


@pytest.mark.parametrize(("key", "likelihood"), [("sgpr", "vfe"), ("fitc", "fitc"), ("fitc", "pp")])
def test_predictions_are_those_of_the_likelihood_and_a_lower_limit_belongs_to_bounds_alone(key: str, likelihood: str):
    task = problem()
    settings = {"likelihood": likelihood} if key == "fitc" else {}
    method, (steps, _) = registry[key](**SMALL, **settings), walked(key, task, **settings)
    state, X = steps[-1].state, task.train.X[:5] + 0.1
    Z, s2, y = state.Z, float((2.0 * state.theta[-1]).exp()), task.train.y
    K_nm, K_mm, K_sm = (task.kernel(state.theta, rows, Z) for rows in (task.train.X, Z, X))
    K_hat = K_nm @ torch.linalg.solve(K_mm, K_nm.T)
    noise = torch.full_like(y, s2)
    if likelihood == "fitc":
        noise += task.kernel.diag(state.theta, task.train.X) - K_hat.diagonal()
    cross = K_sm @ torch.linalg.solve(K_mm, K_nm.T)
    mean = cross @ torch.linalg.solve(K_hat + noise.diag(), y)
    prior = task.kernel.diag(state.theta, X)
    variance = prior - (cross * torch.linalg.solve(K_hat + noise.diag(), cross.T).T).sum(1)
    posterior = method.posterior(task, state)
    assert posterior.row_noise == (likelihood == "fitc")  # the noise of a row has what the points leave unexplained
    result = posterior(X)
    torch.testing.assert_close(result.mean, mean, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(result.var, variance, rtol=1e-4, atol=1e-7)
    reported = [step.info.exact_least for step in steps[1:]]
    assert all(math.isnan(value) == (likelihood not in ("vfe", "tight-vfe")) for value in reported)


def test_the_noise_stays_above_what_the_precision_resolves():
    task = problem(n=40)
    smooth = replace(task.train, y=torch.sin(task.train.X[:, 0]))
    clean = Problem(smooth, task.kernel, task.theta)
    seen, floor = [], NoiseFloor(clean)

    def watched(kernel: Any, theta: torch.Tensor, train: Any, Z: torch.Tensor) -> Any:
        seen.append((float(theta[-1]), floor.least(theta)[0]))
        return sparse_gradient(kernel, theta, train, Z, likelihood="vfe")

    begin = initial_state(clean, 20, 0, "sgpr")
    descent = loop.Descent(watched, "vfe", True, "L-BFGS-B", 120)
    steps = list(loop.descent_steps(clean, begin._replace(phase="move"), descent))
    noises, limits = zip(*seen, strict=True)
    assert min(noises) < math.log(1e-2)
    assert all(noise >= limit - 1e-5 for noise, limit in seen)
    assert len(steps) == len(seen)
    assert max(limits) < math.log(1e-3)


def test_a_dragged_point_begins_a_new_descent_from_where_it_was_put():
    task = problem()
    method = registry["sgpr"](**SMALL)
    state = walked("sgpr", task)[0][6].state
    step = method.move_point(task, state, 2, torch.tensor([0.5, 0.25]))
    Z = state.Z.clone()
    Z[2] = torch.tensor([0.5, 0.25])
    assert torch.equal(step.state.Z, Z)
    assert torch.equal(step.state.Z_begin, Z)
    assert (step.info.phase, step.state.phase, step.state.position, step.state.step) == ("forced", "move", 0, 7)
    wanted = nystrom(task.kernel, state.theta, task.train, Z).terms.total("vfe")
    assert step.info.objective == step.state.epoch_begin == pytest.approx(wanted, rel=1e-8)
    assert step.info.moved == pytest.approx(float((Z - state.Z).square().sum(1).mean().sqrt()))


# -- rows that are distinct, and noise that can be resolved ------------------------------------------------------------


@pytest.mark.parametrize("m", [5, 8, 20])
def test_the_first_rows_that_those_before_do_not_explain_are_taken(m: int):
    task = problem(n=30, repeats=8)  # eight pairs of equal rows, 22 different ones
    order = random_order(task, 3)
    assert torch.equal(order, torch.randperm(30, generator=generator(3, "start")))
    rows = distinct_rows(task.kernel, task.theta, task.train, order, m).tolist()
    expected, seen = [], set()
    for row in order.tolist():
        place = tuple(task.train.X[row].tolist())
        if place not in seen:
            expected.append(row)
            seen.add(place)
    assert rows == expected[:m]
    assert len(distinct_rows(task.kernel, task.theta, task.train, order, 30)) == 22


def test_rounding_and_the_least_noise_depend_on_the_precision():
    assert rounding(torch.float64) == pytest.approx(1e5 * 2.0**-52)
    assert rounding(torch.float32) == pytest.approx(1e3 * 2.0**-23)
    task = problem(n=30)
    theta = task.theta.clone()
    theta[0] = math.log(3.0)
    assert least_noise(task.kernel, theta, task.train) == pytest.approx(9.0 * rounding(torch.float64))
    single = type(task.train)(task.train.X.float(), task.train.y.float())
    assert least_noise(task.kernel, theta.float(), single) == pytest.approx(9.0 * rounding(torch.float32), rel=1e-5)


@pytest.mark.parametrize("single", [True, False])
def test_a_noise_just_below_what_is_resolved_is_refused_and_one_just_above_is_not(single: bool):
    task = problem(n=30)
    theta = task.theta.float() if single else task.theta.clone()
    train = type(task.train)(task.train.X.to(theta), task.train.y.to(theta))
    least = least_noise(task.kernel, theta, train)
    theta[-1] = 0.5 * math.log(1.02 * least)
    check_precision(Problem(train, task.kernel, theta), theta)
    theta[-1] = 0.5 * math.log(0.98 * least)
    with pytest.raises(SettingError, match="use dtype float64, or raise" if single else "rounding: raise the noise"):
        check_precision(Problem(train, task.kernel, theta), theta)


def test_rows_near_the_centres_come_first_and_random_rows_take_the_places_of_those_that_are_explained():
    task = problem(n=40, repeats=6)
    X = task.train.X
    centres = kmeans_centres(X, 9, 2)
    near = rows_near(X, centres).tolist()
    rows = start_rows("kmeans", task, 9, 2).tolist()
    assert len(set(rows)) == len(rows) == 9
    kept = [row for row in rows if row in near]
    assert kept == [row for row in near if row in kept]
    others = [row for row in random_order(task, 2).tolist() if row not in near]
    filled = [row for row in rows if row not in near]
    assert filled == others[: len(filled)]
    assert torch.equal(start_inputs("kmeans", task, 9, 2), centres)
    assert torch.equal(start_inputs("random", task, 9, 2), X[start_rows("random", task, 9, 2)])
