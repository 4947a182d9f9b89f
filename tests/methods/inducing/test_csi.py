"""CSI against dense algebra: gains seen by looking ahead, the factor, and the grid search."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from baseline_problems import SHIFTS, problem
from gpexplorer import kernels, methods
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.inducing.selection.csi import Lookahead
from gpexplorer.problem import Dataset, Problem
from oracles import projected_prediction
from oracles_baselines import conditional_variances

KAPPA = 0.7


def cost_of(task: Problem, rows: list[int]) -> float:
    """J by dense least squares on the columns of K at these rows, which span those of L."""
    y, X = task.train.y, task.train.X
    if not rows:
        return 1.0
    K = task.kernel(task.theta, X, X[rows])
    fit = y - K @ torch.linalg.lstsq(K, y[:, None], driver="gelsd").solution[:, 0]
    left = conditional_variances(task, rows, noise=False).sum() / task.kernel.diag(task.theta, X).sum()
    return float(KAPPA * fit.square().sum() / y.square().sum() + (1 - KAPPA) * left)


def falls(task: Problem, rows: list[int]) -> Tensor:
    """The exact fall of J by adding each row."""
    n = len(task.train)
    return torch.tensor(
        [cost_of(task, rows) - cost_of(task, [*rows, j]) if j not in rows else -math.inf for j in range(n)]
    )


@pytest.mark.parametrize("shift", SHIFTS)
def test_looking_ahead_at_everything_the_gains_are_exact(shift: float) -> None:
    task = problem(shift, n=35)
    factor = Lookahead(task.kernel, task.theta, task.train, 6, 35)
    for _ in range(6):
        gains, exact = factor.gains(KAPPA), falls(task, factor.rows.tolist()).double()
        known = torch.isfinite(gains) & torch.isfinite(exact)
        assert int(known.sum()) == 35 - len(factor.rows)
        assert torch.allclose(gains[known], exact[known], atol=1e-5)
        factor.add(int(gains.argmax()))


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_factor_its_basis_and_the_look_ahead_stay_what_they_are(shift: float) -> None:
    task = problem(shift)
    X = task.train.X
    K = task.kernel(task.theta, X, X)
    factor = Lookahead(task.kernel, task.theta, task.train, 14, 8)
    for row in (5, 61, 20, 33, 48, 2, 17, 66, 40, 11, 29, 55):
        factor.add(row)
        k, rows = len(factor.rows), factor.rows
        Khat = K[:, rows] @ torch.linalg.solve(K[rows][:, rows], K[rows])
        assert torch.allclose(factor.Lt[:k].T @ factor.Lt[:k], Khat, atol=1e-8)
        assert torch.allclose(factor.Q[:k] @ factor.Q[:k].T, torch.eye(k, dtype=K.dtype), atol=1e-10)
        left = K - Khat - factor.W.T @ factor.W  # the part that neither explains is a covariance matrix too
        assert float(torch.linalg.eigvalsh(left).min()) > -1e-8
        assert len(factor.W) == 8


def test_the_weight_decides_whether_the_targets_influence_the_choice() -> None:
    task = problem(n=60)
    X = torch.cat([task.train.X, 50.0 + 9.0 * torch.rand(60, 2, generator=torch.Generator().manual_seed(1)).double()])
    y = torch.cat(
        [task.train.y, torch.zeros(60, dtype=torch.float64)]
    )  # far rows with different inputs and constant targets
    task = Problem(Dataset(X, y), task.kernel, task.theta)
    near = {
        weight: sum(
            int(row) < 60
            for row in methods["csi"](num_inducing=10, weight=weight)._choose(task, task.theta, torch.arange(120))
        )
        for weight in (0.0, 1.0)
    }
    assert near[1.0] >= 9
    assert near[0.0] <= near[1.0] - 2


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_grid_is_evaluated_on_held_out_rows_and_the_best_point_is_fitted(shift: float) -> None:
    task = problem(shift)
    task = Problem(task.train, task.kernel, task.kernel.start(task.train) + 1.0)
    method = methods["csi"](num_inducing=12, grid_size=3, num_ahead=10)
    steps = list(method.steps(task))
    tried = [step.info.tried for step in steps[1:-1]]
    assert len(tried) == 9
    assert [step.info.objective for step in steps[1:-1]] == list(itertools.accumulate(tried, min))
    best = steps[1 + tried.index(min(tried))].info
    expected = task.theta + torch.tensor([0.0, math.log(best.scale), math.log(best.scale), math.log(best.noise)])
    assert torch.allclose(steps[-2].state.theta, expected.double())
    mean, _ = method.posterior(task, steps[-1].state)(task.train.X)
    assert float((mean - task.train.y).square().mean()) < 0.1 * float(task.train.y.square().mean())


def test_held_out_rows_do_not_influence_the_model_that_is_evaluated_on_them() -> None:
    task = problem()
    method = methods["csi"](num_inducing=12, num_ahead=10)
    order = torch.randperm(len(task.train), generator=generator(method.seed, "held out"))
    held_out, fitting = order[:14], order[14:]
    other = task.train.y.clone()
    other[held_out] += 3.0
    twin = Problem(Dataset(task.train.X, other), task.kernel, task.theta)

    (rows, error), (again, worse) = (method._validate(at, task.theta) for at in (task, twin))

    assert rows.tolist() == again.tolist()
    assert set(rows.tolist()) <= set(fitting.tolist())
    X, y, Z = task.train.X[fitting], task.train.y[fitting], task.train.X[rows]
    mean, _ = projected_prediction(task.kernel, task.theta, X, y, Z, task.train.X[held_out])
    for evaluated, smse in ((task, error), (twin, worse)):
        off, spread = evaluated.train.y[held_out] - mean, evaluated.train.y[held_out] - y.mean()
        assert smse == pytest.approx(float(off.square().mean() / spread.square().mean()), rel=1e-5)


def test_the_basis_stays_orthogonal_when_it_nearly_contains_a_new_column() -> None:
    """With one pass of Gram-Schmidt, only nine of sixteen digits would be right."""
    task = problem()
    factor = Lookahead(task.kernel, task.theta, task.train, 8, 4)
    for row in (3, 40, 17, 60):
        factor.add(row)
    Q, noise = factor.Q[:4], torch.randn(70, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    direction = factor._orthonormal(Q.sum(0) + 1e-7 * noise)

    assert float((Q @ direction).abs().max()) < 1e-14
    assert float(direction.norm()) == pytest.approx(1.0, rel=1e-14)
    assert not bool(factor._orthonormal(Q.sum(0)).any())


def test_strings_have_a_noise_to_search_alone() -> None:
    texts = ["".join(word) for word in itertools.product("abc", repeat=3)]
    y = torch.tensor([word.count("ab") - word.count("c") for word in texts], dtype=torch.float64)
    kernel = kernels.make("spectrum", 1)
    task = Problem(Dataset(texts, y - y.mean()), kernel, kernel.start(Dataset(texts, y)))
    assert len(list(methods["csi"](grid_size=3, num_inducing=8).steps(task))) == 5


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_evidence_determines_the_size_of_the_covariance_and_no_mean(shift: float) -> None:
    task = problem(shift)
    task = Problem(task.train, task.kernel, task.theta + torch.tensor([2.0, 0.0, 0.0, 2.0]))  # 50 times too large
    calibrated, plain = (
        methods["csi"](num_inducing=12, grid_size=2, num_ahead=10, calibrate=calibrate) for calibrate in (True, False)
    )
    ends = [list(method.steps(task))[-1].state for method in (calibrated, plain)]

    step = ends[0].theta - ends[1].theta
    assert torch.allclose(step, step[0] * torch.tensor([1.0, 0.0, 0.0, 1.0]).double())
    train, rows, theta = task.train, ends[1].inducing, ends[1].theta
    K = task.kernel(theta, train.X, train.X[rows])
    C = K @ torch.linalg.solve(K[rows], K.T) + torch.exp(2.0 * theta[-1]) * torch.eye(len(train), dtype=K.dtype)
    scale = float(train.y @ torch.linalg.solve(C, train.y)) / len(train)
    assert float(step[0]) == pytest.approx(0.5 * math.log(scale), rel=1e-5)
    assert torch.equal(ends[0].inducing, ends[1].inducing)
    X = train.X[:9] + 0.1
    (mean, var), (same, wide) = (
        method.posterior(task, state)(X) for method, state in zip((calibrated, plain), ends, strict=True)
    )
    assert torch.allclose(mean, same, atol=1e-6)
    assert torch.allclose(var, wide * torch.exp(2.0 * step[0]), rtol=1e-5)


def test_the_bands_of_data_from_the_model_cover_what_they_say() -> None:
    covered = []
    for seed in range(3):
        rng = torch.Generator().manual_seed(seed)
        X = torch.rand(300, 2, generator=rng, dtype=torch.float64)
        kernel, theta = kernels.make("se-ard", 2), torch.tensor([1.0, 0.3, 0.3, 0.3], dtype=torch.float64).log()
        K = kernel(theta, X, X) + 1e-10 * torch.eye(300, dtype=torch.float64)
        f = torch.linalg.cholesky(K) @ torch.randn(300, generator=rng, dtype=torch.float64)
        y = f + 0.3 * torch.randn(300, generator=rng, dtype=torch.float64)
        start = theta + torch.tensor([1.5, 0.0, 0.0, 1.5])  # standard deviations 4.5 times too large
        task = Problem(Dataset(X[:150], y[:150]), kernel, start)
        method = methods["csi"](num_inducing=30, grid_size=3, num_ahead=10)
        *_, last = method.steps(task)
        mean, var = method.posterior(task, last.state)(X[150:])
        band = 1.96 * (var + torch.exp(2.0 * last.state.theta[-1])).sqrt()
        covered.append(float(((y[150:] - mean).abs() < band).double().mean()))

    assert 0.9 < sum(covered) / 3 < 0.98
