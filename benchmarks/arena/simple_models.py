"""The simple models of the arena, by scikit-learn. Each predicts a Gaussian for y.

    mean                the mean and variance of the training targets
    ridge               linear regression; leave-one-out error chooses the penalty and gives the variance
    nearest neighbours  the mean of the k nearest rows; rows set aside choose k and give the variance
    boosted trees       histogram gradient boosting; rows set aside give the variance

The variance is one number per model, the mean squared error on rows that the model was not fitted to.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Array = NDArray[np.float64]
Gaussian = tuple[Array, Array]  # mean and variance of y, [t] each

PENALTIES = tuple(10.0**k for k in range(-3, 6))
NEIGHBOURS = (1, 2, 4, 8, 16, 32)
NEIGHBOUR_ROWS = 20_000  # nearest neighbours are sought among at most this many rows
ASIDE = 0.15  # the share of the rows that gives the variance
SMALLEST = 1e-12


def mean(X: Array, y: Array, X_new: Array) -> Gaussian:
    """The training mean and variance at every row."""
    return np.full(len(X_new), y.mean()), np.full(len(X_new), max(float(y.var()), SMALLEST))


def ridge(X: Array, y: Array, X_new: Array) -> Gaussian:
    """Ridge regression on standardised inputs."""
    model = make_pipeline(StandardScaler(), RidgeCV(PENALTIES, scoring="neg_mean_squared_error")).fit(X, y)
    return _with_variance(model.predict(X_new), -float(model[-1].best_score_))


def nearest_neighbours(X: Array, y: Array, X_new: Array) -> Gaussian:
    """The mean of the nearest rows in standardised inputs."""
    rows = np.random.default_rng(0).permutation(len(X))[:NEIGHBOUR_ROWS]
    aside, kept = _parts(rows)
    scaler = StandardScaler().fit(X[kept])
    Z, Z_aside, Z_new = (scaler.transform(part) for part in (X[kept], X[aside], X_new))
    errors = {}
    for k in (k for k in NEIGHBOURS if k <= len(kept)):
        model = KNeighborsRegressor(k).fit(Z, y[kept])
        errors[k] = float(np.square(model.predict(Z_aside) - y[aside]).mean())
    k = min(errors, key=lambda count: errors[count])
    return _with_variance(KNeighborsRegressor(k).fit(Z, y[kept]).predict(Z_new), errors[k])


def boosted_trees(X: Array, y: Array, X_new: Array) -> Gaussian:
    """Histogram gradient boosting, stopped early; fitted again to all rows after the variance is known."""
    aside, kept = _parts(np.random.default_rng(0).permutation(len(X)))
    trial = HistGradientBoostingRegressor(early_stopping=len(kept) > 500, random_state=0).fit(X[kept], y[kept])
    error = float(np.square(trial.predict(X[aside]) - y[aside]).mean())
    whole = HistGradientBoostingRegressor(early_stopping=False, max_iter=trial.n_iter_, random_state=0).fit(X, y)
    return _with_variance(whole.predict(X_new), error)


SIMPLE: dict[str, Callable[[Array, Array, Array], Gaussian]] = {
    "mean": mean,
    "ridge": ridge,
    "nearest neighbours": nearest_neighbours,
    "boosted trees": boosted_trees,
}


def _parts(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows set aside and the others."""
    count = max(1, round(ASIDE * len(rows)))
    return rows[:count], rows[count:]


def _with_variance(predicted: Array, error: float) -> Gaussian:
    return predicted, np.full(len(predicted), max(error, SMALLEST))
