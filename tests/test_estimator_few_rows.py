"""A fit of very few rows says little about hyperparameters, so rows that are added to it are learned from."""

from __future__ import annotations

import numpy as np
import pytest

import gpexplorer as gpx
from gpexplorer.methods.base import registry


def curve(x: np.ndarray) -> np.ndarray:
    return 100.0 - 3.0 * np.abs(x - 8.4) ** 1.5


@pytest.mark.parametrize("method", ["cholqr", "ml"])
def test_a_search_that_begins_with_two_rows_finds_the_maximum(method: str):
    model = gpx.Estimator(method, kernel="matern52-ard", budget={"steps": 20})
    model.fit([[6.0], [10.5]], curve(np.array([6.0, 10.5])))
    grid = np.linspace(6.0, 10.5, 61)[:, None]
    for _ in range(12):
        mean, sd = model.predict(grid, return_std=True)
        asked = grid[[int(np.argmax(mean + 2.0 * sd))]]
        model.partial_fit(asked, curve(asked[:, 0]))
    assert abs(float(asked[0, 0]) - 8.4) < 0.3


def test_the_model_is_that_of_a_fit_to_all_rows_once_it_is_learned_anew():
    random = np.random.default_rng(0)
    X = random.uniform(0.0, 3.0, (12, 1))
    y = np.sin(X[:, 0]) + 50.0
    model = gpx.Estimator("ml", budget={"steps": 15}).fit(X[:8], y[:8])
    first = np.array(model.theta_)
    model.partial_fit(X[8:9], y[8:9])
    np.testing.assert_array_equal(model.theta_, first)
    model.partial_fit(X[9:], y[9:])
    whole = gpx.Estimator("ml", budget={"steps": 15}).fit(X, y)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-6)
    np.testing.assert_allclose(model.theta_, whole.theta_, atol=1e-6)


def test_a_fit_of_more_rows_keeps_its_hyperparameters():
    random = np.random.default_rng(1)
    X = random.uniform(0.0, 3.0, (50, 1))
    y = np.sin(X[:, 0]) + 0.1 * random.normal(size=50)
    model = gpx.Estimator("cholqr", budget={"steps": 5}).fit(X[:25], y[:25])
    first = np.array(model.theta_)
    model.partial_fit(X[25:], y[25:])
    np.testing.assert_array_equal(model.theta_, first)


@pytest.mark.parametrize(("key", "steps"), [*((key, 4) for key in sorted(registry)), ("grief", 200)])
def test_targets_that_are_all_equal_are_predicted(key: str, steps: int):
    """Some methods divided by their spread, or took its logarithm, some only where learning had lowered the noise."""
    X = np.random.default_rng(2).normal(size=(20, 1))
    kernel = "matern32" if key == "states" else "se-ard"
    model = gpx.Estimator(key, kernel=kernel, budget={"steps": steps}).fit(X, np.full(20, -7.25))
    mean, sd = model.predict(X[:3] + 0.01, return_std=True)
    np.testing.assert_allclose(mean, -7.25, atol=1e-9)
    assert (np.isfinite(sd) & (sd >= 0.0)).all()
