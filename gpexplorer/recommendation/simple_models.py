"""The simple models that run along with a recommendation, by scikit-learn. Each predicts a Gaussian for y.

    mean                the mean and variance of the training targets
    ridge               linear regression; leave-one-out error chooses the penalty and gives the variance
    nearest neighbours  the mean of the k nearest rows; rows set aside choose k and give the variance
    boosted trees       histogram gradient boosting; rows set aside give the variance

The variance is one number per model, the mean squared error on rows that the model was not fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from ..data import Split
from ..mixed_rows import MixedRows
from .held_out import RowScores, first_rows
from .stages import TimedSearch

Array = NDArray[np.float64]
Gaussian = tuple[Array, Array]  # mean and variance of y, [t] each

PENALTIES = tuple(10.0**k for k in range(-3, 6))
NEIGHBOURS = (1, 2, 4, 8, 16, 32)
NEIGHBOUR_ROWS = 20_000  # nearest neighbours are sought among at most this many rows
ASIDE = 0.15  # the share of the rows that gives the variance
SMALLEST = 1e-12
ROWS_PER_SECOND = 600  # limit of the rows that they are fitted to, per second of the time of a recommendation


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


def for_inputs(split: Split) -> dict[str, Callable[[Array, Array, Array], Gaussian]]:
    """The simple models that can be fitted to these inputs: all for numbers, and the mean alone for texts.

    Of rows with numbers and texts they read the numbers, which their names say.
    """
    if isinstance(split.train.X, MixedRows) and split.train.X.numbers.shape[1]:
        return {name if name == "mean" else f"{name} (numbers only)": model for name, model in SIMPLE.items()}
    return SIMPLE if isinstance(split.train.X, Tensor) else {"mean": mean}


def plain_inputs(X: Any) -> Array:
    """The inputs that the simple models read: numbers [n, d], or texts [n]."""
    return np.asarray(X.numbers if isinstance(X, MixedRows) else X)


def scored_on_held_out_rows(search: TimedSearch) -> dict[str, RowScores]:
    """Fit the simple models, to a random part of the rows if time is short. One that fails is left out."""
    result: dict[str, RowScores] = {}
    most = max(1000, int(ROWS_PER_SECOND * search.seconds))
    for name, model in for_inputs(search.split).items():
        if search.should_stop():
            break
        search.report(f"Fitting the simple model: {name}.")
        scores: RowScores | None = None
        with suppress(ValueError, FloatingPointError):  # scikit-learn refuses the rows
            for part in (first_rows(part, most) for part in search.parts):
                X, X_new = (plain_inputs(rows.X) for rows in (part.train, part.test))  # [n, d], or texts [n]
                mean, var = model(X, part.train.y.numpy(), X_new)
                of_part = RowScores.of(part.test.y.numpy(), mean, var, part.test.groups)
                scores = of_part if scores is None else scores.joined(of_part)
        if scores is not None and scores.usable:
            result[name] = scores
    return result


def _parts(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows set aside and the others."""
    count = max(1, round(ASIDE * len(rows)))
    return rows[:count], rows[count:]


def _with_variance(predicted: Array, error: float) -> Gaussian:
    return predicted, np.full(len(predicted), max(error, SMALLEST))
