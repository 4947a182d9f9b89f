"""Where rounding in float64 decides the means of a method, its run ends with a sentence; where they are right, none.

The exact GP of the same rows, in 50 digits, says which means are right.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from gpexplorer import Spec
from gpexplorer.runs import Run
from gpexplorer.runs.rounding import mean_rounding

ROWS, SD = 40, 1.3
SAYS = "float64 cannot hold this problem"
SETTINGS: dict[str, dict[str, Any]] = {
    "states": {},
    "ml": {},
    "loo": {},
    "vecchia": {"num_neighbours": ROWS - 1, "num_nearest": ROWS},
    **{key: {"num_inducing": ROWS} for key in ("random", "titsias", "greedy-variance", "cholqr", "sgpr")},
}


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(0, 10, ROWS))[:, None]
    return x, np.sin(3.0 * x[:, 0]) + 0.1 * rng.normal(size=ROWS), np.r_[rng.uniform(-1, 11, 6)[:, None], x[:4]]


def covariances(A: np.ndarray, B: np.ndarray, lengthscale: float) -> Any:
    """Matern-5/2 in 50 digits."""
    r = [[mp.sqrt(5) * abs(mp.mpf(a) - mp.mpf(b)) / lengthscale for b in B[:, 0]] for a in A[:, 0]]
    return mp.matrix([[mp.mpf(SD) ** 2 * (1 + a + a * a / 3) * mp.exp(-a) for a in row] for row in r])


@cache
def exact(lengthscale: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of f at the new rows, by 50 digits."""
    with mp.workdps(50):
        x, y, new = rows()
        K, k, shift = covariances(x, x, lengthscale), covariances(x, new, lengthscale), mp.fsum(y) / ROWS
        A_inv = (K + mp.mpf(noise) ** 2 * mp.eye(ROWS)) ** -1
        mean = k.T * (A_inv * mp.matrix([mp.mpf(value) - shift for value in y]))
        explained = [(k[:, j].T * A_inv * k[:, j])[0] for j in range(len(new))]
        variance = [float(mp.mpf(SD) ** 2 - part) for part in explained]
        return np.array([float(value + shift) for value in mean]), np.array(variance)


def finished(key: str, lengthscale: float, noise: float, **settings: Any) -> tuple[Run, float, np.ndarray]:
    """The run, the largest error of a mean in predictive standard deviations, and variances over the exact ones."""
    values = {"sd": SD, "lengthscale": lengthscale, "noise": noise}
    kernel = {"name": "matern52", "values": values, "fixed": list(values)}
    x, y, new = rows()
    run = Spec(key, settings=settings, kernel=kernel, split="all").open(data=(x, y))
    run.finish()
    (mean, var), (exact_mean, exact_var) = (
        (part.numpy() for part in run.posterior(of="f")(new)),
        exact(lengthscale, noise),
    )
    error = np.abs(mean - exact_mean) / np.sqrt(exact_var + noise**2)
    return run, float(error.max()), (var + noise**2) / (exact_var + noise**2)


@pytest.mark.parametrize("noise", [1e-3, 1e-6])
@pytest.mark.parametrize("lengthscale", [2.0, 20.0])
@pytest.mark.parametrize("key", SETTINGS)
def test_a_run_says_where_rounding_decides_its_means(key: str, lengthscale: float, noise: float) -> None:
    run, error, _ = finished(key, lengthscale, noise, **SETTINGS[key])
    assert run.outcome is not None
    says = SAYS in run.outcome.message
    assert not says or error > 0.02
    assert says or error < 0.5
    assert says == (noise < 1e-5 and key != "states" and (lengthscale > 2.0 or error > 0.2))


def test_the_error_by_rounding_is_estimated() -> None:
    for noise in (1e-3, 1e-4, 1e-5, 1e-6):
        run, error, _ = finished("ml", 20.0, noise)
        estimate = mean_rounding(run.method, run.problem, run.trace[-1].step.state, run.problem.train) / noise
        assert 0.1 * error < estimate * float(run.problem.train.y.std()) < 100.0 * error


@pytest.mark.parametrize("key", ["cholesky", "gbcd"])
def test_the_bands_of_a_solver_contain_the_error_by_rounding_and_the_outcome_says_so(key: str) -> None:
    run, error, ratios = finished(key, 20.0, 1e-6)
    assert run.outcome is not None
    assert "Bands contain an estimate of the error of the mean." in run.outcome.message
    assert error > 5.0
    assert error < 3.0 * ratios.max() ** 0.5
    run, error, ratios = finished(key, 20.0, 1e-3)
    assert run.outcome is not None
    assert "Bands contain" not in run.outcome.message
    assert error < 1e-4
    assert ratios == pytest.approx(1.0, abs=1e-6)
