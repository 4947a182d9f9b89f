"""What a run says at its end is true: a minimum of the dense error where it says converged, the same on any machine."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize

from gpexplorer import kernels
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation.folds import split
from gpexplorer.problem import Dataset, Outcome, Problem
from oracles_admm import held_out


def rows(seed: int, n: int, d: int, noise: float, shift: float = 0.0) -> Problem:
    """A function of d inputs with noise, standardised, `shift` away from the origin."""
    rng = torch.Generator().manual_seed(seed)
    X = 3.0 * torch.rand(n, d, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) * X[:, -1] + 0.5 * torch.cos(3 * X[:, d // 2])
    y = y + noise * torch.randn(n, generator=rng, dtype=torch.float64)
    kernel = kernels.make("se-ard", d)
    train = Dataset((X - X.mean(0)) / X.std(0) + shift, (y - y.mean()) / y.std())
    return Problem(train, kernel, kernel.start(train))


def last(method: Any, task: Problem) -> tuple[Any, Outcome]:
    """The last state and the outcome."""
    steps, state = method.steps(task), None
    while True:
        try:
            state = next(steps).state
        except StopIteration as end:
            return state, end.value


def dense_error(method: Any, task: Problem, theta: torch.Tensor) -> float:
    """The cross-validated squared error per row, by dense solutions."""
    loss = 0.0
    for fold in split(task, method.validation(len(task.train)), method.seed, 1.0):
        T, V = torch.arange(fold.trained), torch.arange(fold.trained, len(fold.y))
        same = Problem(Dataset(fold.X, fold.y), task.kernel, theta)
        loss += float(held_out(same, theta, T, V)[0].square().sum())
    return loss / len(task.train)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize(("seed", "n", "d", "noise"), [(0, 80, 3, 0.3), (0, 60, 2, 0.2), (3, 60, 2, 0.2)])
def test_where_it_says_converged_no_descent_lowers_the_dense_error(
    seed: int, n: int, d: int, noise: float, shift: float
):
    """The criterion without the gradient said so 0.3 % above the minimum on the first task, and never on the others."""
    task, method = rows(seed, n, d, noise, shift), registry["gpcv-admm"]()

    state, outcome = last(method, task)
    descent = optimize.minimize(
        lambda at: dense_error(method, task, torch.as_tensor(at)), state.mean.numpy(), options={"maxiter": 15}
    )

    assert outcome.reason == "converged"
    assert "derivative" in outcome.message
    assert "theta is accurate to about" in outcome.message
    assert dense_error(method, task, state.mean) == pytest.approx(state.best, rel=1e-4)
    assert float(descent.fun) > 0.999 * state.best


def test_a_gradient_that_does_not_vanish_is_never_called_converged(monkeypatch: pytest.MonkeyPatch):
    """Hessians a thousand times too large stop theta: the folds are prepared again, and the run goes on."""
    from gpexplorer.methods.cross_validation import fold_steps

    first = fold_steps.initial_hessian
    calls = []

    def stiff(*arguments: Any) -> torch.Tensor:
        calls.append(1)
        return (1e4 if len(calls) == 1 else 1.0) * first(*arguments)

    monkeypatch.setattr(fold_steps, "initial_hessian", stiff)
    state, outcome = last(registry["gpcv-admm"](), rows(2, 60, 2, 0.2))

    assert state.resets >= 1
    assert outcome.reason == "converged"
    assert state.gradient <= 5e-3


def rough(n: int, noise: float) -> Problem:
    """Many wiggles and little noise: tens of iterations of conjugate gradients behind a small preconditioner."""
    rng = generator(3, "rough")
    X = torch.rand(n, 5, generator=rng, dtype=torch.float64)
    y = torch.sin(6 * X[:, 0]) * X[:, 1] + torch.cos(4 * X[:, 2] * X[:, 3])
    y = y + noise * torch.randn(n, generator=rng, dtype=torch.float64)
    kernel = kernels.make("se-ard", 5)
    train = Dataset(X, (y - y.mean()) / y.std())
    theta = kernel.start(train)
    theta[-1] += math.log(0.2)
    return Problem(train, kernel, theta)


@pytest.mark.parametrize(
    ("n", "noise", "rank", "most", "key"),
    [
        (200, 0.05, 300, 1e-8, "gpcv-admm"),
        (300, 0.01, 300, 1e-8, "gpcv-admm-holdout"),
        (300, 0.01, 30, 1e-6, "gpcv-admm"),
        (200, 0.01, 10, 1e-4, "gpcv-admm-holdout"),
    ],
)
def test_rounding_of_the_inputs_hardly_changes_theta(n: int, noise: float, rank: int, most: float, key: str):
    """Inputs moved to the next float: as another order of summation does, for example with more threads.

    Before, conjugate gradients lost their orthogonality and stopped elsewhere, and theta differed by up to 0.3. A
    solution with a small preconditioner takes up to a hundred iterations, each of which amplifies rounding a little.
    """
    task = rough(n, noise)
    X = task.train.X
    other = torch.from_numpy(np.nextafter(X.numpy(), np.inf)) * 1.0
    moved = torch.rand(X.shape, generator=generator(1, "rough"), dtype=X.dtype) < 0.5
    twin = Problem(Dataset(torch.where(moved, other, X), task.train.y), task.kernel, task.theta)
    method = registry[key](rank=rank)

    steps, twin_steps = (list(islice(method.steps(each), 18)) for each in (task, twin))

    assert len(steps) == len(twin_steps)
    for step, same in zip(steps[1:], twin_steps[1:], strict=True):
        torch.testing.assert_close(same.state.mean, step.state.mean, rtol=0.0, atol=most)


@pytest.mark.parametrize("key", ["gpcv-admm", "gpcv-admm-holdout"])
def test_the_number_of_threads_hardly_changes_theta(key: str):
    """Sums over rows may be rounded differently. Before, theta differed by 5e-5 after 16 iterations.

    Torch divides operations among threads from 32,768 entries on, which matrices of 190 rows have.
    """
    task, before, means = rough(190, 0.05), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            means.append(torch.stack([step.state.mean for step in islice(registry[key]().steps(task), 1, 17)]))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(means[0], means[1], rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_one_theta_and_copies_that_agree_reach_the_same_error(shift: float):
    task = rows(2, 60, 2, 0.2, shift)
    fold, outcome = last(registry["gpcv-admm"](folds=2), task)
    copies, _ = last(registry["gpcv-admm"](folds=2, copies=True, max_iterations=60), task)

    assert outcome.reason == "converged"
    assert copies.best == pytest.approx(fold.best, rel=5e-3)
    assert len({id(local.theta) for local in fold.folds}) == 1
    assert not fold.folds[0].nu.any()


def test_folds_of_one_theta_compute_one_kernel_matrix_per_trial():
    from gpexplorer.runs.counting import Counted, Counter

    task, counter, n = rows(1, 80, 3, 0.3), Counter(), 80
    counted = Problem(task.train, Counted(task.kernel, counter), task.theta)
    steps = registry["gpcv-admm"](folds=4).steps(counted)
    list(islice(steps, 2))
    before, entries = counter.entries, []
    for _ in range(6):
        next(steps)
        entries.append(counter.entries - before)
        before = counter.entries

    assert min(entries) == n * n  # the first trial accepted: four folds of their own would compute 2 * 3 n^2
    assert all(count % (n * n) == 0 for count in entries)


def test_the_tolerance_of_the_z_step_follows_the_gradient():
    task = rows(1, 80, 3, 0.3)
    follows = [step.state.folds[0].tolerance for step in islice(registry["gpcv-admm"]().steps(task), 2, 20)]
    fixed = [step.state.folds[0].tolerance for step in islice(registry["gpcv-admm"](forcing=0.0).steps(task), 2, 20)]

    assert follows == sorted(follows, reverse=True)
    assert follows[-1] < 0.1 * follows[0]
    assert set(fixed) == {3e-4}


def test_a_state_written_with_copies_continues_with_one_theta():
    """Stored runs of earlier versions have no field `shared`."""
    task = rows(2, 60, 2, 0.2)
    old = next(islice(registry["gpcv-admm"](folds=2, copies=True).steps(task), 5, None)).state
    assert not old.shared

    [first, *_] = islice(registry["gpcv-admm"](folds=2).steps(task, resume=old), 3)

    assert first.state.shared
    assert first.state.step == old.step + 1
    assert first.state.best <= old.best
