"""Default settings on few and noisy rows: bands that hold, and magnitude and noise refitted on the rows set aside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.methods.base import registry
from gpexplorer.methods.minibatches.exact_likelihood import exact_likelihood
from gpexplorer.methods.minibatches.held_out_refit import (
    Refit,
    SetAside,
    band_factor,
    refit_magnitude_and_noise,
    rows_set_aside,
)
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


def curve(n: int, seed: int) -> tuple[Problem, Dataset]:
    """A draw of a smooth function of two inputs with noise, standardised far from the origin, and 300 test rows."""
    draw = torch.Generator().manual_seed(seed)
    X = torch.rand(n + 300, 2, generator=draw, dtype=torch.float64)
    K = torch.exp(-0.5 * torch.cdist(X, X).square() / 0.3**2)
    K.diagonal().add_(1e-8)
    f = torch.linalg.cholesky(K) @ torch.randn(len(X), generator=draw, dtype=torch.float64)
    y = f + 0.3 * torch.randn(len(X), generator=draw, dtype=torch.float64)
    X = (X - 0.5) * 12.0**0.5 + 0.2
    y = (y - y[:n].mean()) / y[:n].std() + 0.2
    kernel, train = kernels.make("se-ard", 2), Dataset(X[:n], y[:n])
    return Problem(train, kernel, kernel.start(train)), Dataset(X[n:], y[n:])


def mean_coverage(key: str, n: int, draws: int, steps: int | None = None) -> float:
    """Mean coverage of 95 % bands over some draws."""
    shares = []
    for seed in range(draws):
        at, test = curve(n, seed)
        run = Run(registry[key](seed=seed), at)
        run.finish(steps=steps)
        mean, var = predicted(run, test)
        shares.append(coverage(test.y, mean, var, 0.95))
    return sum(shares) / len(shares)


@pytest.mark.parametrize(("key", "draws"), [("bsgd", 6), ("scgd", 6)])
def test_bands_learned_from_80_rows_cover_what_they_say(key: str, draws: int):
    assert 0.90 <= mean_coverage(key, 80, draws) <= 0.98


def test_bands_cover_what_they_say_in_the_middle_of_a_run():
    assert 0.90 <= mean_coverage("scgd", 80, 6, steps=15) <= 0.98


def small_noise(at: Problem, validation: float = 0.3, fold: int = 0) -> tuple[Model, Tensor]:
    """A model and a theta with much less noise than there is."""
    model = Model(method("scgd", folds=1), at, validation, fold)
    theta = model.start()
    theta[-1] = -3.0 - 0.2 * fold
    return model, theta


def set_aside(model: Model, theta: Tensor) -> SetAside:
    return rows_set_aside(model, theta, exact_likelihood(model, theta))


def refitted(models: list[tuple[Model, Tensor]]) -> Refit:
    refit = refit_magnitude_and_noise([set_aside(*each) for each in models], models[0][1], 1e-3, 1e3)
    assert refit is not None
    return refit


@pytest.mark.parametrize("folds", [1, 3])
def test_the_refit_has_the_lowest_density_and_is_that_of_the_n_by_n_matrix(folds: int):
    at = problem(n=120, noise=1.0, shift=0.7)
    models = [small_noise(at, fold=fold) for fold in range(folds)]
    (_, theta), refit = models[0], refitted(models)

    def dense(magnitude: float, log_sd: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """y, mean and variance of each part, whose magnitude and noise move by as much as those of the first."""
        for model, learned in models:
            X, y = model.validation()
            moved = learned.clone()
            moved[-2] += magnitude - float(theta[-2]) + float(theta[-1] - learned[-1])  # s2 / e^2m = g s2_k
            moved[-1] = log_sd
            mean, var = dense_prediction(model, moved, X)
            yield y, mean, var + math.exp(2.0 * log_sd)

    def dense_nlpd(magnitude: float, log_sd: float) -> float:
        return sum(nlpd(y, mean, var) * len(y) for y, mean, var in dense(magnitude, log_sd)) / refit.rows

    m, log_sd = float(refit.theta[-2]), float(refit.theta[-1])
    assert refit.rows == 36 * folds
    assert dense_nlpd(m, log_sd) == pytest.approx(refit.nlpd_after, abs=1e-8)
    assert dense_nlpd(float(theta[-2]), -3.0) == pytest.approx(refit.nlpd_before, rel=1e-6)
    around = [dense_nlpd(m + a, log_sd + b) for a in (-0.3, 0.0, 0.3) for b in (-0.3, 0.0, 0.3)]
    assert refit.nlpd_after <= min(around) + 6e-3  # s2 is divided by v - 4 rather than v
    squares = sum(float(((y - mean).square() / var).sum()) for y, mean, var in dense(m, log_sd))
    assert squares == pytest.approx(refit.rows - 4, rel=1e-8)
    assert f"(noise sd 0.0498 becomes {math.exp(log_sd):.3g})" in refit.sentence(math.exp(-6.0))
    assert refit.is_significant
    torch.testing.assert_close(refit.theta[:-2], theta[:-2], rtol=0, atol=0)


def test_a_second_refit_changes_nothing_and_few_rows_set_aside_allow_none():
    at = problem(n=120, noise=1.0)
    model, theta = small_noise(at)
    refit = refitted([(model, theta)])
    repeated = refitted([(model, refit.theta)])
    few = small_noise(at, validation=0.07)

    assert not repeated.is_significant
    assert repeated.nlpd_after == pytest.approx(refit.nlpd_after, abs=2e-3)  # the grid of rho moved with the magnitude
    assert len(few[0].validation_rows) == 9
    assert refit_magnitude_and_noise([set_aside(*few)], few[1], 1e-3, 1e3) is None
    assert band_factor(*few, exact_likelihood(*few)) == 1.0


@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_the_band_factor_is_the_variance_of_standardised_residuals_of_the_rows_set_aside(shift: float):
    model, theta = small_noise(problem(n=120, noise=1.0, shift=shift))
    X, y = model.validation()
    mean, var = dense_prediction(model, theta, X)
    standardised = (y - mean) / (var + math.exp(2.0 * float(theta[-1]))).sqrt()

    factor = band_factor(model, theta, exact_likelihood(model, theta))

    assert factor == pytest.approx(float(standardised.square().sum()) / (len(y) - 3), rel=1e-8)


def test_before_the_refit_predictions_use_the_band_factor_and_afterwards_they_do_not():
    at, test = curve(80, 9)
    run = Run(registry["scgd"](), at)
    run.finish()
    states = [record.step.state for record in run.trace]
    middle = next(k for k, state in enumerate(states) if state.band_factor != 1.0)
    (mean, var), state, model = run.posterior(middle, of="y")(test.X), states[middle], Model(run.method, at)
    plain, plain_var = dense_prediction(model, state.theta, test.X)

    torch.testing.assert_close(mean, plain, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        var, state.band_factor * (plain_var + math.exp(2.0 * float(state.theta[-1]))), rtol=1e-5, atol=1e-9
    )
    assert states[-1].band_factor == 1.0
    assert [state.phase for state in states[-5:]] == ["fold"] * 4 + ["best"]


def test_the_parts_are_disjoint_and_no_part_teaches_the_features_that_are_judged_by_it():
    at, _ = curve(47, 3)
    scgd = registry["scgd"](width=8, batch_size=8, folds=3, validation=0.34)
    model = Model(scgd, at, 0.34)
    state = next(scgd.steps(at)).state._replace(phase="learn", best_batches=20)
    parts = [Model(scgd, at, 0.34, fold).validation_rows for fold in range(2)]
    spoiled = at.train.y.clone()
    spoiled[parts[1]] += 100.0

    first = scgd._learn_fold(at, state)
    second = scgd._learn_fold(Problem(Dataset(at.train.X, spoiled), at.kernel, at.theta), state)

    assert scgd.num_folds(model) == 2  # three parts of 16 rows do not fit into 47
    assert not set(parts[0].tolist()) & set(parts[1].tolist())
    assert torch.equal(first.fold_thetas[0], second.fold_thetas[0])
    assert not torch.equal(first.fold_thetas[0], Model(scgd, at).start())


def test_the_end_refits_on_all_parts_but_those_whose_features_diverged():
    at, _ = curve(80, 4)
    run = Run(registry["scgd"](), at)
    run.finish()
    state, best = (run.trace[k].step.state for k in (-2, -1))
    models = [
        (Model(run.method, at, 0.1, fold), theta) for fold, theta in enumerate((state.best_theta, *state.fold_thetas))
    ]
    lost = state._replace(fold_thetas=(state.theta[:0], *state.fold_thetas[1:]))

    assert [len(model.validation_rows) for model, _ in models] == [16] * 5
    torch.testing.assert_close(best.theta, refitted(models).theta)
    torch.testing.assert_close(
        [step.state for step in run.method.steps(at, lost)][-1].theta, refitted([models[0], *models[2:]]).theta
    )


def test_the_outcome_says_where_likelihood_and_rows_set_aside_disagree():
    at, _ = noisy()
    run = finished("scgd", at, rate=0.02, patience=3)
    last = run.trace[-1].step

    assert run.outcome is not None
    assert "rows set aside" in run.outcome.message
    assert "overfitting" in run.outcome.message or "contradict" in run.outcome.message
    exact = exact_likelihood(Model(run.method, at, run.method.validation), last.state.theta)
    assert last.info.objective == pytest.approx(exact.value)
