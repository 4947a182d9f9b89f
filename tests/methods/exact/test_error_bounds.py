"""Error bounds that every step reports, a run that stops on them, and bands of a run that was stopped early."""

from __future__ import annotations

import math
from itertools import islice

import pytest
import torch

from gpexplorer import Spec, kernels
from gpexplorer.methods.base import registry
from gpexplorer.problem import Dataset, Problem
from whole_run import finished

KEYS = ["gbcd", "cg", "sdd", "smo", "block-nystrom"]
TASKS = {  # shift of the inputs, log noise
    "origin": (0.0, -1.2),
    "far away": (1000.0, -1.2),
    "high signal": (0.0, -5.0),
}


def problem(name: str, n: int = 120) -> Problem:
    """Rows drawn from a GP with these hyperparameters."""
    shift, noise = TASKS[name]
    rng = torch.Generator().manual_seed(3)
    X = 3.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    kernel, theta = kernels.make("se-ard", 2), torch.tensor([0.2, -0.6, -0.3, noise], dtype=torch.float64)
    K = kernel(theta, X, X) + math.exp(2 * noise) * torch.eye(n, dtype=torch.float64)
    y = torch.linalg.cholesky(K) @ torch.randn(n, generator=rng, dtype=torch.float64)
    return Problem(Dataset(X + shift, y), kernel, theta)


def dense(task: Problem) -> torch.Tensor:
    K = task.kernel(task.theta, task.train.X, task.train.X)
    return K + float((2 * task.theta[-1]).exp()) * torch.eye(len(K), dtype=K.dtype)


def method(key: str, **changes: object):
    kind = registry[key]
    wanted = {"learn": False, "block": 12, "chunk": 3, "coarse": 6, "pairs": 8, "mean_tolerance": 0.0, **changes}
    return kind(**{name: value for name, value in wanted.items() if name in kind.param})


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("key", KEYS)
def test_the_reported_bounds_hold_against_a_dense_gp_at_every_step(key: str, name: str):
    task = problem(name)
    A, y = dense(task), task.train.y
    alpha, s2 = torch.linalg.solve(A, y), float((2 * task.theta[-1]).exp())
    X = torch.cat([task.train.X, task.train.X + 0.05, task.train.X + 3.0])
    k = task.kernel(task.theta, X, task.train.X)
    minimum = -0.5 * float(y @ alpha)

    for step in islice(method(key).steps(task), 1, 12):
        gradient = A @ step.state.alpha - y
        gap = step.info.objective - minimum
        error = float((k @ (step.state.alpha - alpha)).abs().max())
        assert step.info.gap_bound == pytest.approx(float(gradient @ gradient) / (2 * s2), rel=1e-5)
        assert gap <= step.info.gap_bound
        assert error <= step.info.mean_bound * math.sqrt(s2)
        prior_sd = math.exp(0.2)
        assert step.info.mean_bound == pytest.approx(prior_sd * float(gradient.norm()) / (2 * s2), rel=1e-5)


def test_the_bounds_are_attained_up_to_a_small_factor_in_the_worst_direction():
    """With one row the eigenvalue of K can be s2, where the bound on the mean is an equality."""
    kernel, theta = kernels.make("se", 1), torch.tensor([-1.0, 0.0, -1.0], dtype=torch.float64)
    task = Problem(Dataset(torch.zeros(1, 1).double(), torch.tensor([2.0]).double()), kernel, theta)

    step = next(islice(method("sdd", rate=0.01).steps(task), 1, None))

    error = abs(
        float(kernel(theta, task.train.X, task.train.X)[0, 0]) * (float(step.state.alpha[0]) - 2.0 / (2 * math.exp(-2)))
    )
    assert error == pytest.approx(step.info.mean_bound * math.exp(-1.0), rel=1e-9)


def test_a_run_may_stop_on_the_error_of_the_mean_and_says_so():
    task = problem("origin")
    tight = list(method("gbcd", tolerance=1e-9).steps(task))
    steps = method("gbcd", mean_tolerance=0.5).steps(task)
    states = []
    while True:
        try:
            states.append(next(steps))
        except StopIteration as end:
            outcome = end.value
            break

    assert len(states) < len(tight)
    assert states[-1].info.mean_bound <= 0.5 < states[-2].info.mean_bound
    assert states[-1].info.largest > 1e-9
    assert outcome.reason == "converged"
    assert f"{states[-1].info.mean_bound:.2g} noise standard deviations" in outcome.message
    assert f"{states[-1].info.gap_bound:.2g} above its minimum" in outcome.message


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("key", ["sdd", "smo", "cg"])
def test_bands_of_a_solver_that_was_stopped_early_cover_the_targets(key: str, name: str):
    """Bands of the exact GP around a mean that is far from the exact one covered 16 to 70 % here."""
    task = problem(name, n=400)
    rows = torch.randperm(400, generator=torch.Generator().manual_seed(1))
    train, test = task.train.rows(rows[:300]), task.train.rows(rows[300:])
    part = Problem(train, task.kernel, task.theta)
    s2 = float((2 * task.theta[-1]).exp())

    for position, step in enumerate(islice(method(key, variance_rows=150).steps(part), 4)):
        mean, var = method(key, variance_rows=150).posterior(part, step.state)(test.X)
        inside = (test.y - mean).abs() <= 1.96 * (var + s2).sqrt()
        assert float(inside.double().mean()) >= 0.88, position


def rough(n: int, ratio: float, shift: float = 0.0) -> Problem:
    """Rows of a GP with this ratio of the variances of signal and noise."""
    rng = torch.Generator().manual_seed(n)
    X = 3.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    kernel = kernels.make("se-ard", 2)
    theta = torch.tensor([0.4, -0.2, 0.1, 0.4 - 0.5 * math.log(ratio)], dtype=torch.float64)
    A = kernel(theta, X, X) + float((2 * theta[-1]).exp()) * torch.eye(n, dtype=torch.float64)
    y = torch.linalg.cholesky(A) @ torch.randn(n, generator=rng, dtype=torch.float64)
    return Problem(Dataset(X + shift, y), kernel, theta)


SOLVERS = [
    "cg",
    "pcg",
    "gbcd",
    "cholesky",
    "bcd-cyclic",
    "bcd-gradient",
    "alternating-projections",
    "block-nystrom",
    "sdd",
    "smo",
]


@pytest.mark.parametrize(
    ("n", "ratio", "shift"), [(120, 1e6, 0.0), (90, 1e6, 1000.0), (150, 1e4, 0.0), (120, 10.0, 0.0), (80, 0.01, 0.0)]
)
@pytest.mark.parametrize("key", SOLVERS)
def test_converged_means_a_small_error_in_units_of_the_noise(key: str, n: int, ratio: float, shift: float):
    """With 1e6 and 120 rows, cg "converged" with means that erred by 1 to 2 noise standard deviations."""
    task = rough(n, ratio, shift)
    A, y = dense(task), task.train.y
    alpha, s2 = torch.linalg.solve(A, y), float((2 * task.theta[-1]).exp())
    own = registry[key](learn=False, max_iterations={"cg": 2000, "smo": 5}.get(key, 300))
    steps, outcome = finished(own, task)
    X = torch.cat([task.train.X, task.train.X + 0.05])
    k = task.kernel(task.theta, X, task.train.X)
    if key in ("cg", "pcg", "gbcd", "cholesky"):
        assert outcome.reason == "converged"
    if outcome.reason != "converged":
        assert steps[-1].info.mean_bound > 0.05
        return
    mean, var = own.posterior(task, steps[-1].state).moments(X)
    exact = task.kernel.diag(task.theta, X) - (k * torch.linalg.solve(A, k.T).T).sum(1)
    assert float((mean - k @ alpha).abs().max()) <= 0.05 * s2**0.5
    assert float((var - exact).abs().max()) <= 0.05 * s2
    assert steps[-1].info.objective + 0.5 * float(y @ alpha) <= 0.05
    assert steps[-1].info.mean_bound <= 0.05
    assert steps[-1].info.gap_bound <= 0.05


def test_if_both_tolerances_are_set_both_hold():
    task = problem("origin")
    for tolerance, mean_tolerance in ((1e-9, 0.5), (10.0, 0.01)):
        steps, outcome = finished(method("cg", tolerance=tolerance, mean_tolerance=mean_tolerance), task)
        assert outcome.reason == "converged"
        assert steps[-1].info.largest <= tolerance
        assert steps[-1].info.mean_bound <= mean_tolerance
        assert steps[-2].info.largest > tolerance or steps[-2].info.mean_bound > mean_tolerance


@pytest.mark.parametrize("tolerance", [1.0, 1e-2, 1e-4])
def test_a_gradient_that_is_small_alone_is_no_convergence(tolerance: float):
    steps, outcome = finished(registry["cg"](learn=False, tolerance=tolerance, mean_tolerance=0.0), rough(120, 1e6))
    assert steps[-1].info.largest <= tolerance
    assert outcome.reason == "budget"
    assert f"err by {steps[-1].info.mean_bound:.2g} noise standard deviations" in outcome.message


def test_a_spec_written_before_stops_on_the_gradient_as_it_did():
    settings = dict(Spec("cg").settings)
    del settings["mean_tolerance"], settings["bands"], settings["band_tolerance"]
    assert Spec("cg", {**settings, "tolerance": 1e-4}).settings["mean_tolerance"] == 0.0
