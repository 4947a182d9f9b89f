"""CSI as a search over a grid: its values, the rows held out, the error of each point, and the last step."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import registry
from gpexplorer.methods.inducing.selection.csi import Lookahead, _without
from gpexplorer.methods.inducing.selection.streamed_gp import GrowingGP
from gpexplorer.methods.inducing.selection.titsias import BestCandidate, _other_rows
from gpexplorer.methods.inducing.selection.unsupervised import InOrder, LargestVariance, argmax_of_ties
from gpexplorer.objectives import nystrom
from gpexplorer.problem import Problem, RowGroups
from swap_problems import SHIFTS, problem
from whole_run import whole_run


def csi(**settings: Any) -> Any:
    return registry["csi"](**{"num_inducing": 6, "num_ahead": 8, "grid_size": 3, **settings})


@pytest.mark.parametrize(
    ("size", "factor", "values"),
    [(1, 2.0, [1.0]), (3, 2.0, [0.5, 1.0, 2.0]), (4, 3.0, [1 / 9, 1 / 3, 1.0, 3.0])],
)
def test_the_grid_has_one_in_the_middle_and_pairs_of_all_values(size: int, factor: float, values: list[float]):
    grid = csi(grid_size=size, grid_factor=factor)._grid(problem())
    assert grid == pytest.approx(list(itertools.product(values, values)))
    linear = Problem(problem().train, kernels.make("linear", 2), torch.zeros(3, dtype=torch.float64))
    assert csi(grid_size=size, grid_factor=factor)._grid(linear) == pytest.approx([(1.0, value) for value in values])


def test_lengthscales_and_noise_are_multiplied():
    task = problem()
    theta = csi()._theta(task, 2.0, 0.25)
    wanted = task.theta + torch.tensor([0.0, math.log(2.0), math.log(2.0), math.log(0.25)], dtype=torch.float64)
    torch.testing.assert_close(theta, wanted)


@pytest.mark.parametrize("shift", SHIFTS)
def test_each_point_of_the_grid_is_a_step_with_its_error_on_held_out_rows(shift: float):
    task, method = problem(shift), csi()
    steps, outcome = whole_run(method.steps(task))
    assert [step.info.phase for step in steps] == ["start", *["grid"] * 9, "fit"]
    assert [step.state.step for step in steps] == list(range(11))
    assert [step.state.tried for step in steps] == [*range(10), 9]
    test, fitting = method._held_out(task.train)
    errors = []
    for (scale, noise), step in zip(method._grid(task), steps[1:10], strict=True):
        theta = method._theta(task, scale, noise)
        rows = method._choose(task, theta, fitting)
        Z, on = task.train.X[rows], task.train.rows(fitting)
        K_mm, K_mn = task.kernel(theta, Z, Z), task.kernel(theta, Z, on.X)
        s2 = torch.exp(2.0 * theta[-1])
        weights = torch.linalg.solve(s2 * K_mm + K_mn @ K_mn.T, K_mn @ on.y)
        residual = task.train.y[test] - task.kernel(theta, task.train.X[test], Z) @ weights
        variance = (task.train.y[test] - on.y.mean()).square().mean()
        errors.append(float(residual.square().mean() / variance))
        assert step.info.tried == pytest.approx(errors[-1], rel=1e-5)
        assert (step.info.scale, step.info.noise) == (scale, noise)
        assert step.state.error == step.info.objective == pytest.approx(min(errors), rel=1e-5)
        if errors[-1] == min(errors):
            assert torch.equal(step.state.inducing, rows)
            torch.testing.assert_close(step.state.theta, theta)
    last, before = steps[-1].state, steps[-2].state
    rows = method._choose(task, before.theta, torch.arange(90))
    assert torch.equal(last.inducing, rows)
    K_hat = nystrom(task.kernel, before.theta, task.train, task.train.X[rows])
    change = 0.5 * math.log(K_hat.terms.fit / 90)
    whole_covariance = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(
        last.theta - before.theta,
        change * whole_covariance,
        rtol=1e-5,
        atol=1e-7,
    )
    assert outcome.message.startswith("All 9 grid points were evaluated.")
    assert f"SMSE {min(errors):.4g} on held-out rows" in outcome.message
    plain, _ = whole_run(csi(calibrate=False).steps(task))
    assert torch.equal(plain[-1].state.theta, before.theta)


@pytest.mark.parametrize("begin", [0, 1, 5, 9, 10])
def test_a_resumed_run_repeats_every_step(begin: int):
    task, method = problem(), csi()
    steps, told = whole_run(method.steps(task))
    rest, same = whole_run(method.steps(task, steps[begin].state))
    assert told == same
    assert len(rest) == 10 - begin
    if rest:
        assert torch.equal(rest[-1].state.inducing, steps[-1].state.inducing)
        torch.testing.assert_close(rest[-1].state.theta, steps[-1].state.theta)


def test_a_part_of_the_rows_is_held_out_or_whole_groups():
    task, method = problem(), csi(seed=2)
    test, fitting = method._held_out(task.train)
    order = torch.randperm(90, generator=generator(2, "held out"))
    assert torch.equal(torch.cat([test, fitting]), order)
    assert len(test) == 18
    assert len(method._held_out(task.train.rows(torch.arange(3)))[0]) == 1
    number = torch.arange(90) // 9
    grouped = replace(task.train, groups=RowGroups(number, are_folds=False))
    test, fitting = method._held_out(grouped)
    assert sorted([*test.tolist(), *fitting.tolist()]) == list(range(90))
    assert not set(number[test].tolist()) & set(number[fitting].tolist())


def test_before_any_point_predictions_are_the_prior():
    task, method = problem(), csi()
    state = next(method.steps(task)).state
    found = method.posterior(task, state)(task.train.X[:4])
    assert not found.mean.any()
    torch.testing.assert_close(found.var, task.kernel.diag(task.theta, task.train.X[:4]))


# -- the factor that looks ahead ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_gain_with_all_rows_ahead_is_that_of_dense_projections(shift: float):
    task = problem(shift, n=24)
    factor = Lookahead(task.kernel, task.theta, task.train, 6, ahead=24)
    K, y = task.kernel(task.theta, task.train.X, task.train.X), task.train.y
    for row in (3, 17, 9, 20):
        gains = factor.gains(0.7)
        chosen = factor.rows.tolist()
        R = K - K[:, chosen] @ torch.linalg.solve(K[chosen][:, chosen], K[chosen]) if chosen else K
        Q = torch.linalg.qr(torch.linalg.cholesky(K + 1e-12 * torch.eye(24))[:, :0] if not chosen else K[:, chosen]).Q
        for j in (5, 11, 14):
            beyond = R[:, j] - Q @ (Q.T @ R[:, j])
            fit = float((beyond @ y) ** 2 / beyond.square().sum())
            explained = float(R[:, j].square().sum() / R[j, j])
            wanted = 0.7 * fit / float(y @ y) + 0.3 * explained / float(K.trace())
            assert float(gains[j]) == pytest.approx(wanted, rel=1e-3)
        assert all(gains[i] == -math.inf for i in chosen)
        factor.add(row)
    assert factor.rows.tolist() == [3, 17, 9, 20]
    chosen = factor.rows.tolist()
    S = K[:, chosen]
    left = K.diagonal() - (S * torch.linalg.solve(K[chosen][:, chosen], S.T).T).sum(1)
    torch.testing.assert_close(factor.D, left.clamp_min(0.0), rtol=1e-6, atol=1e-8)
    Q = factor.Q[:4]
    torch.testing.assert_close(Q @ Q.T, torch.eye(4, dtype=torch.float64))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_direction_of_the_look_ahead_is_removed_and_the_others_keep_their_products(sign: float):
    draw = torch.Generator().manual_seed(0)
    W = torch.randn(4, 9, generator=draw, dtype=torch.float64)
    W[:, 2] *= sign
    w = W[:, 2] / W[:, 2].norm()
    rest = _without(W, 2)
    assert rest.shape == (3, 9)
    torch.testing.assert_close(rest.T @ rest, W.T @ W - torch.outer(w @ W, w @ W))
    W[:, 5] = 0.0
    assert torch.equal(_without(W, 5), W)


# -- rules that choose the next row ------------------------------------------------------------------------------------


def growing(n: int = 40, rows: tuple[int, ...] = ()) -> GrowingGP:
    task = problem(n=n, repeats=5)
    model = GrowingGP(task.kernel, task.theta, task.train, "vfe", 20)
    for row in rows:
        model.add(row)
    return model


@pytest.mark.parametrize("count", [0, 7, 1000])
def test_the_best_of_some_random_candidates_is_chosen(count: int):
    model = growing(rows=(1, 20))
    row = BestCandidate(count, 3).choose(model, epoch=2)
    pool = model.is_eligible.nonzero()[:, 0]
    assert 0 not in pool.tolist()  # row 0 equals row 1
    if count == 7:
        order = torch.randperm(len(pool), generator=generator(3, "candidates", 2, 2))
        pool = pool[order[:7]]
    assert row == int(pool[model.reductions(pool).argmax()])


def test_without_candidates_there_is_no_row():
    model = growing(n=12)
    while bool(model.is_eligible.any()):
        model.add(int(model.D.where(model.is_eligible, 0.0).argmax()))
    assert BestCandidate(0, 0).choose(model, 0) == -1
    assert LargestVariance(0).choose(model, 0) == -1
    assert InOrder(torch.arange(12)).choose(model, 0) == -1


def test_rows_in_order_skip_those_that_are_explained():
    model = growing(rows=(1,))
    assert InOrder(torch.tensor([0, 1, 30, 12])).choose(model, 0) == 30


def test_places_among_the_other_rows():
    assert _other_rows(torch.tensor([4, 0, 5]), torch.arange(5)).tolist() == [1, 2, 3, 6, 7]
    assert _other_rows(torch.tensor([], dtype=torch.int64), torch.tensor([3, 1])).tolist() == [3, 1]


def test_equal_values_are_drawn_among_and_a_single_largest_one_is_taken():
    values = torch.tensor([1.0, 3.0, 3.0, 2.0, 3.0], dtype=torch.float64)
    seen = {argmax_of_ties(values, seed, 0) for seed in range(40)}
    assert seen == {1, 2, 4}
    assert argmax_of_ties(values, 5, 1) == argmax_of_ties(values, 5, 1)
    values[3] = 4.0
    assert {argmax_of_ties(values, seed, 0) for seed in range(5)} == {3}
    negative = torch.tensor([-5.0, -3.0, -4.0], dtype=torch.float64)
    assert argmax_of_ties(negative, 0, 0) == 1
