"""Bands after the last row: factors from forward errors, scores of a fold by the others, and coverage of new rows."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data import Split
from gpexplorer.posteriors import MarginalPosterior, NormalMarginals, WidenedPosterior, Widening
from gpexplorer.problem import Dataset, Prediction
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.horizon_widening import (
    FoldErrors,
    learned_widening,
    scores_of_parts,
    widening_in_words,
)
from gpexplorer.recommendation.lanes import logs_of
from gpexplorer.recommendation.row_order import origins

HORIZON = np.arange(1.0, 81.0)


def folds(sd: np.ndarray, count: int, rho: float = 0.0, seed: int = 0) -> list[FoldErrors]:
    """Residuals with these standard deviations, correlated from one row to the next."""
    random = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        z = random.normal(size=len(sd))
        for i in range(1, len(z)):
            z[i] = rho * z[i - 1] + np.sqrt(1.0 - rho**2) * z[i]
        result.append(FoldErrors(HORIZON, z * sd))
    return result


def test_right_variances_of_many_independent_rows_hardly_change() -> None:
    _, factors = learned_widening(folds(np.ones(80), 8))
    assert max(factors) < 1.15
    _, smaller = learned_widening(folds(np.full(80, 0.2), 8))
    assert smaller == (1.0, 1.0, 1.0, 1.0, 1.0)  # never narrower


def test_errors_that_grow_with_the_horizon_widen_by_their_mean_square() -> None:
    horizons, factors = learned_widening(folds(1.0 + HORIZON / 20.0, 12))
    expected = [np.square(1.0 + HORIZON[(HORIZON > a) & (HORIZON <= b)] / 20.0).mean() for a, b in
                ((0, 10), (10, 20), (20, 40), (40, 80))]  # fmt: skip
    np.testing.assert_allclose(factors[:4], expected, rtol=0.3)
    np.testing.assert_allclose(horizons, (5.5, 15.5, 30.5, 60.5, 80.0))  # the last one is the largest of all
    assert factors[4] == pytest.approx(factors[3] + (factors[3] - factors[0]) * (80.0 - 60.5) / (60.5 - 5.5))
    assert all(np.diff(factors) >= 0.0)


def test_few_dependent_folds_are_trusted_less_than_independent_rows() -> None:
    alike = [FoldErrors(HORIZON, np.full(80, sign)) for sign in (1.0, -1.0, 1.0)]  # each fold is one error
    assert alike[0].independent_share == pytest.approx(1 / 80, rel=0.5)
    _, of_folds = learned_widening(alike)
    assert 1.2 < max(of_folds) < 1.8  # a t distribution of some degrees of freedom
    assert max(learned_widening(folds(np.ones(80), 3))[1]) < max(of_folds)


def part(last: int, rows: int, size: int) -> Split:
    """Days before and after one moment."""
    day = torch.arange(float(last + size), dtype=torch.float64)[:, None]
    whole = Dataset(day, torch.zeros(last + size, dtype=torch.float64), ("day",), "y")
    return Split(whole.rows(torch.arange(last - rows, last)), whole.rows(torch.arange(last, last + size)), "days")


def test_a_fold_is_scored_by_the_factors_of_the_others() -> None:
    parts = [part(60, 50, 20), part(40, 30, 20)]
    zero, one = torch.zeros(20, dtype=torch.float64), torch.ones(20, dtype=torch.float64)
    good, bad = NormalMarginals(zero, one), NormalMarginals(zero + 5.0, one)
    scores, widening = scores_of_parts(parts, [good, bad], "day")
    assert widening is not None
    assert widening.last == 59.0
    assert scores.var[:20].min() > 2.0  # the good fold has the factors of the bad one
    np.testing.assert_allclose(scores.var[20:], 1.0)  # and the bad one those of the good one
    assert 1.0 < widening.factors[0] < scores.var[:20].max()
    plain, none = scores_of_parts(parts, [good, bad], "")
    assert none is None
    np.testing.assert_allclose(plain.var, 1.0)


def test_the_sentence_has_the_horizons_and_is_left_out_where_nothing_is_wider() -> None:
    wide = Widening("day", 3.0, (10.0, 400.0), (1.44, 6.25))
    (sentence,) = widening_in_words([wide])
    assert 'multiplied by 1.2 at 10 and 2.5 at 400 units of "day" ahead' in sentence
    assert "No held-out row is further ahead than 400: " in sentence
    assert "by up to 1.2" in widening_in_words([wide, None, wide])[0]
    assert widening_in_words([None, Widening("day", 3.0, (10.0,), (1.0,))]) == ()


def test_forecasts_from_the_past_hold_out_two_blocks_and_begin_with_the_latest() -> None:
    pairs = origins(np.repeat(np.arange(100.0), 2), 6)
    assert [len(pair.train) for pair in pairs] == [180, 160, 140, 120, 100, 80]
    assert [len(pair.test) for pair in pairs] == [20, 40, 40, 40, 40, 40]
    assert all(pair.train.max() < pair.test.min() for pair in pairs)


def test_a_period_is_the_same_number_of_days_on_other_rows() -> None:
    day = np.arange(200.0)
    y = np.sin(2.0 * np.pi * day / 12.0) + 0.05 * np.random.default_rng(0).normal(size=200)
    candidate = Candidate("ml, periodic", "exact", "ml", "periodic")
    logs = [0.0, 0.0, np.log(12.0), np.log(0.05)]
    for rows in (200, 90):
        split = gpx.data.load((day[:rows, None], y[:rows]), split="all")
        run = candidate.opened(split, 0, logs)
        assert run.hyperparameters["period"].value == pytest.approx(12.0)
        assert run.hyperparameters["noise"].value == pytest.approx(0.05)
        run.close()


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("seed", [3, 5])
def test_bands_of_a_season_with_a_random_level_cover_the_rows_that_follow(seed: int, tmp_path) -> None:
    random = np.random.default_rng(seed)
    day = np.arange(300)
    level = np.cumsum(random.normal(0.0, 0.1, 300))
    table = pd.DataFrame({"day": day, "y": level + np.sin(2.0 * np.pi * day / 12.0) + random.normal(0.0, 0.1, 300)})
    straight = [Candidate("ml, linear + periodic", "exact", "ml", "linear + periodic")]  # it knows no change of level
    answer = gpx.recommend(table[:240], target="y", seconds=2.0, among=straight, prefer="gp", clock=time.process_time)
    posterior = answer.posterior
    assert isinstance(posterior.inner, WidenedPosterior)
    X, y = torch.from_numpy(day[240:, None].astype(float)), table.y[240:].to_numpy()
    low, high = posterior.quantile(X, (0.025, 0.975)).numpy()
    assert ((y >= low) & (y <= high)).mean() >= 0.85
    wider = posterior.sd(X) / answer.run.posterior(of="y").sd(X)
    assert wider[-1] > 1.1  # how much depends on the time that learning has
    assert bool((wider.diff() >= -1e-9).all())
    assert "After the last row, standard deviations are multiplied by" in str(answer)
    posterior.save(tmp_path / "model")
    torch.testing.assert_close(gpx.load_posterior(tmp_path / "model").sd(X), posterior.sd(X))


@pytest.mark.usefixtures("few_trees")
def test_a_forecast_keeps_the_hyperparameters_that_have_forecast_rows_that_they_had_not_seen() -> None:
    random, day = np.random.default_rng(2), np.arange(200.0)
    y = 0.02 * day + np.sin(2.0 * np.pi * day / 12.0) + 0.1 * random.normal(size=200)
    found: list[tuple[list[float], float]] = []

    class Followed(Candidate):
        def opened(self, split, seed, logs=None, anew=False):
            if not split.key.startswith("given") and not len(split.test):
                found.append((list(logs or []), len(split.train)))
            return super().opened(split, seed, logs, anew)

    kernel = "linear + periodic + se"
    answer = gpx.recommend(
        pd.DataFrame({"day": day, "y": y}), target="y", seconds=4.0, among=[Followed("ml", "exact", "ml", kernel)]
    )
    ((logs, rows),) = found
    assert (answer.held_out_by, rows) == ("time", 200)
    theta = answer.run.trace[-1].step.state.theta
    assert logs_of(theta.tolist(), answer.run.problem) == pytest.approx(logs)
    assert answer.run.done == 1


def posterior_of(variance) -> MarginalPosterior:
    """A posterior with the mean 0, whose variance is this function of the horizon and includes the noise."""

    def moments(X: torch.Tensor) -> Prediction:
        return Prediction(torch.zeros_like(X[:, 0]), torch.from_numpy(variance(X[:, 0].numpy())))

    return MarginalPosterior(moments, torch.ones(1, dtype=torch.float64))


def residuals_of(kind: str, random: np.random.Generator, count: int) -> np.ndarray:
    """Errors at the horizons 1, 2, ... of a series that a model forecasts, with a noise of standard deviation 1."""
    steps, noise = random.normal(size=count), random.normal(size=count)
    ahead = np.arange(1.0, count + 1.0)
    if kind == "walk":
        return np.cumsum(0.4 * steps) + noise
    if kind == "trend":
        return 0.1 * ahead * random.normal() + noise
    level = np.zeros(count)
    for i in range(count):
        level[i] = 0.95 * (level[i - 1] if i else 0.0) + np.sqrt(1.0 - 0.95**2) * steps[i]
    return level + noise


@pytest.mark.parametrize(("kind", "model"), [
    ("walk", np.ones_like),  # it knows no walk
    ("walk", lambda h: 1.0 + 0.06 * h),  # its walk has too small steps
    ("walk", lambda h: 1.0 + 0.16 * h),  # right
    ("stationary", lambda h: 2.0 - 0.95 ** (2.0 * h)),  # right
    ("stationary", np.ones_like),
    ("trend", lambda h: 1.0 + 0.01 * h**2),  # right
])  # fmt: skip
def test_bands_beyond_the_measured_horizons_cover_walks_stationary_series_and_trends(kind: str, model) -> None:
    random, ahead, inside, widths = np.random.default_rng(7), np.arange(1.0, 161.0), [], []
    variance = model(ahead)
    inner = posterior_of(model)
    for _ in range(120):
        folds = [FoldErrors(ahead[:40], residuals_of(kind, random, 40) / np.sqrt(variance[:40])) for _ in range(6)]
        knots, factors = Widening("day", 0.0, *learned_widening(folds)).points
        wide = WidenedPosterior(inner, 0, knots, factors).moments(torch.from_numpy(ahead[:, None]))[1].numpy()
        assert np.all(np.diff(wide) >= -1e-9)
        inside.append(np.abs(residuals_of(kind, random, 160))[40:] <= 1.96 * np.sqrt(wide)[40:])
        widths.append(np.sqrt(wide[-1] / variance[-1]))
    assert 0.9 <= np.mean(inside) <= 0.995
    assert np.median(widths) <= {"trend": 1.2, "stationary": 2.5, "walk": 6.0}[kind]


def test_a_large_prior_variance_far_ahead_is_added_to_and_not_multiplied() -> None:
    def prior(h: np.ndarray) -> np.ndarray:
        return 1.0 + 400.0 * (1.0 - np.exp(-np.square(h / 120.0)))  # of a smooth kernel with a long lengthscale

    ahead, random = np.arange(1.0, 401.0), np.random.default_rng(1)
    near = [FoldErrors(ahead[:40], 1.6 * random.normal(size=40)) for _ in range(6)]  # errors are larger than it says
    horizons, factors = learned_widening(near)
    inner = posterior_of(prior)
    knots, scales = Widening("day", 0.0, horizons, factors).points
    wide = WidenedPosterior(inner, 0, knots, scales).moments(torch.from_numpy(ahead[:, None]))[1].numpy()
    np.testing.assert_allclose(wide[39], factors[-1] * prior(ahead)[39])
    assert wide[39] > 2.0 * prior(ahead)[39]
    added = (factors[-1] - 1.0) * prior(ahead)[39] * 10.0
    assert wide[-1] == pytest.approx(401.0 + added, rel=1e-4)
