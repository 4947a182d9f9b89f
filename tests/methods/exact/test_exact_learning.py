"""While hyperparameters are learned alpha is zero, and the objective is that of alpha = 0."""

from __future__ import annotations

from itertools import islice
from typing import NoReturn

import pytest
import torch

from gpexplorer.methods.exact import settings
from gpexplorer.methods.fixed_subset import subset_rows
from oracles_gbcd import SHIFTS, quick, wavy

SETTINGS = {"learn": True, "evaluations": 4, "subset": 30}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", ["gbcd", "cg", "cholesky"])
def test_the_objective_is_zero_until_the_first_iteration_on_alpha(key: str, shift: float):
    steps = [step.info for step in islice(quick(key, **SETTINGS).steps(wavy(shift)), 8)]

    before = [info for info in steps if info.phase != "solve"]
    assert [info.phase for info in before] == ["start", *["learn"] * (len(before) - 1)]
    assert [info.objective for info in before] == [0.0] * len(before)
    assert len({info.evidence for info in before[1:]}) > 1
    assert steps[len(before)].objective < 0.0


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", ["subset-of-regressors", "matching-pursuit"])
def test_without_regressors_the_objective_is_half_the_sum_of_squared_targets(key: str, shift: float):
    task = wavy(shift)
    steps = [step.info for step in islice(quick(key, **SETTINGS, num_regressors=8, growth=4).steps(task), 8)]

    before = [info.objective for info in steps if info.phase != "grow"]
    assert len(before) > 2
    assert before == pytest.approx([0.5 * float(task.train.y.square().sum())] * len(before), rel=1e-12)
    assert before[-1] > steps[len(before)].objective > 0.0


@pytest.mark.parametrize("key", ["gbcd", "pcg", "matching-pursuit"])
@pytest.mark.parametrize(
    ("n", "setting", "rows"), [(90, 0, 90), (4008, 0, 501), (9600, 0, 1200), (17_000, 0, 2000), (9600, 70, 70)]
)
def test_hyperparameters_are_learned_on_an_eighth_of_the_rows_by_default(
    key: str, n: int, setting: int, rows: int, monkeypatch: pytest.MonkeyPatch
):
    def learn(problem: object, seed: int, size: int, evaluations: int, done: int) -> NoReturn:
        raise InterruptedError(size)

    monkeypatch.setattr(settings, "learn_on_subset", learn)
    steps = quick(key, learn=True, subset=setting).steps(wavy(n=n))
    next(steps)
    with pytest.raises(InterruptedError, match=f"^{rows}$"):
        next(steps)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", ["gbcd", "pcg"])
def test_a_run_that_is_stopped_while_it_learns_predicts_from_the_rows_it_learns_on(key: str, shift: float):
    task, method = wavy(shift), quick(key, **SETTINGS)
    start, _, learned = (step.state for step in islice(method.steps(task), 3))
    chosen, X = subset_rows(task, method.seed, 30), task.train.X[:7] + 0.1

    mean, variance = method.posterior(task, learned)(X)

    kernel, theta, (Z, y) = task.kernel, learned.theta, (task.train.X[chosen], task.train.y[chosen])
    A = kernel(theta, Z, Z) + (2 * theta[-1]).exp() * torch.eye(30, dtype=torch.float64)
    K = kernel(theta, Z, X)
    assert len(chosen.unique()) == 30
    torch.testing.assert_close(mean, K.T @ torch.linalg.solve(A, y), rtol=1e-7, atol=1e-9)
    reduction = (K * torch.linalg.solve(A, K)).sum(0)
    torch.testing.assert_close(variance, kernel.diag(theta, X) - reduction, rtol=1e-6, atol=1e-9)
    fewer, count = method.posterior_of_some_rows(task, learned)
    torch.testing.assert_close(fewer(X)[0], mean)  # the same mean, with variances of fewer rows
    few = chosen[:count]
    B = kernel(theta, task.train.X[few], task.train.X[few]) + (2 * theta[-1]).exp() * torch.eye(count).double()
    K = kernel(theta, task.train.X[few], X)
    reduction = (K * torch.linalg.solve(B, K)).sum(0)
    torch.testing.assert_close(fewer(X)[1], kernel.diag(theta, X) - reduction, rtol=1e-6, atol=1e-9)
    assert count == 7
    assert method.variance_note(task, learned) == "from the 30 rows learned on"
    assert float(method.posterior(task, start)(X)[0].abs().max()) == 0.0  # nothing is learned yet
