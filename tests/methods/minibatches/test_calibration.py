"""Default settings on few and noisy rows: bands that hold, and magnitude and noise refitted on the rows set aside."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.methods.base import registry
from gpexplorer.methods.minibatches.exact_likelihood import exact_likelihood
from gpexplorer.methods.minibatches.held_out_refit import refit_magnitude_and_noise
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs.run import Run
from gpexplorer.runs.scores import coverage, nlpd, smse
from oracles_minibatches import dense_prediction, method, problem


def noisy(n: int = 600, d: int = 10, noise: float = 1.0, seed: int = 3) -> tuple[Problem, Dataset]:
    """A line in one of d inputs with heavy noise, standardised, and 1000 test rows."""
    draw = torch.Generator().manual_seed(seed)
    X = torch.randn(n + 1000, d, generator=draw, dtype=torch.float64)
    y = 0.7 * X[:, 0] + noise * torch.randn(len(X), generator=draw, dtype=torch.float64)
    y = (y - y[:n].mean()) / y[:n].std()
    kernel = kernels.make("se-ard", d)
    train = Dataset(X[:n], y[:n])
    return Problem(train, kernel, kernel.start(train)), Dataset(X[n:], y[n:])


def finished(key: str, at: Problem, **settings: Any) -> Run:
    run = Run(registry[key](**settings), at)
    run.finish()
    return run


def predicted(run: Run, test: Dataset) -> tuple[Tensor, Tensor]:
    mean, var = run.posterior(of="y")(test.X)
    return mean, var


@pytest.mark.parametrize("key", ["scgd", "minimax"])
def test_defaults_do_not_overfit_few_noisy_rows(key: str):
    at, test = noisy()
    mean, var = predicted(finished(key, at), test)

    constant = 0.5 * (1.0 + math.log(2.0 * math.pi * float(test.y.var())))
    assert 0.90 <= coverage(test.y, mean, var, 0.95) <= 0.98
    assert nlpd(test.y, mean, var) < constant
    assert smse(test.y, mean) < 0.9


def test_without_rows_set_aside_the_bands_are_too_narrow():
    at, test = noisy()
    mean, var = predicted(finished("scgd", at, validation=0.0, patience=0), test)

    assert coverage(test.y, mean, var, 0.95) < 0.7


def test_the_refit_has_the_lowest_density_and_is_that_of_the_n_by_n_matrix():
    at = problem(n=120, noise=1.0, shift=0.7)
    small = method("scgd", validation=0.3)
    model = Model(small, at, 0.3)
    theta = model.start()
    theta[-1] = -3.0  # much less noise than there is
    refit = refit_magnitude_and_noise(model, theta, exact_likelihood(model, theta), 1e-3, 1e3)
    assert refit is not None
    X, y = model.validation()

    def dense_nlpd(magnitude: float, log_sd: float) -> float:
        at = refit.theta.clone()
        at[-2], at[-1] = magnitude, log_sd
        mean, var = dense_prediction(model, at, X)
        return nlpd(y, mean, var + math.exp(2.0 * log_sd))

    m, log_sd = float(refit.theta[-2]), float(refit.theta[-1])
    assert dense_nlpd(m, log_sd) == pytest.approx(refit.nlpd_after, abs=1e-8)
    assert dense_nlpd(float(theta[-2]), -3.0) == pytest.approx(refit.nlpd_before, abs=1e-6)
    around = [dense_nlpd(m + a, log_sd + b) for a in (-0.3, 0.0, 0.3) for b in (-0.3, 0.0, 0.3)]
    assert refit.nlpd_after <= min(around) + 3e-3  # s2 is divided by v - 2 rather than v
    assert refit.is_significant
    torch.testing.assert_close(refit.theta[:-2], theta[:-2], rtol=0, atol=0)


def test_a_second_refit_changes_nothing_and_few_rows_set_aside_allow_none():
    at = problem(n=120, noise=1.0)
    model = Model(method("scgd"), at, 0.3)
    theta = model.start()
    theta[-1] = -3.0
    refit = refit_magnitude_and_noise(model, theta, exact_likelihood(model, theta), 1e-3, 1e3)
    assert refit is not None
    again = refit_magnitude_and_noise(model, refit.theta, exact_likelihood(model, refit.theta), 1e-3, 1e3)

    few = Model(method("scgd"), at, 0.1)
    assert again is not None
    assert not again.is_significant
    assert again.nlpd_after == pytest.approx(refit.nlpd_after, abs=2e-3)  # the grid of rho moved with the magnitude
    assert refit_magnitude_and_noise(few, theta, exact_likelihood(few, theta), 1e-3, 1e3) is None


def test_the_outcome_says_where_likelihood_and_rows_set_aside_disagree():
    at, _ = noisy()
    run = finished("scgd", at, rate=0.02, patience=3)
    last = run.trace[-1].step

    assert run.outcome is not None
    assert "rows set aside" in run.outcome.message
    assert "overfitting" in run.outcome.message or "contradict" in run.outcome.message
    exact = exact_likelihood(Model(run.method, at, run.method.validation), last.state.theta)
    assert last.info.objective == pytest.approx(exact.value)
