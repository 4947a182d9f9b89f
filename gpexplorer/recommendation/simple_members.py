"""Simple models that may be part of an average: fitted to scaled rows, and held as numbers that a file can keep.

    mean, ridge, nearest neighbours   a function, and a noise
    boosted trees                     trees of all rows; the noise is that of rows that the trees were not fitted to
    trees and GP                      and a GP on the residuals of these rows

The residuals come from trees that were fitted to other rows (cross-fitting), to other groups where there are groups,
and to earlier stretches of time where rows follow each other in time. Residuals of rows that the trees have seen would
be too small, and the bands too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from torch import Tensor

from ..data.given_folds import drawn_folds
from ..data.standardising import fit_scale, scale
from ..errors import GPExplorerError
from ..kernels import make
from ..methods.base import registry
from ..posteriors import (
    InUnits,
    LinearMean,
    Marginals,
    NeighboursMean,
    Posterior,
    ShiftedPosterior,
    TreesMean,
    Widening,
    widened,
)
from ..posteriors.in_units import in_units_of
from ..posteriors.shifted import numbers_of
from ..problem import Dataset, MixedRows, Problem
from .held_out import Array, RowScores
from .horizon_widening import after_rows, scores_of_parts
from .skewness import Transforms
from .stages import TimedSearch

PENALTIES = tuple(10.0**k for k in range(-3, 6))
NEIGHBOURS = (1, 2, 4, 8, 16, 32)
SMALLEST = 1e-12
FOLDS, FEWEST_RESIDUALS = 3, 20  # of cross-fitting; from which alone the noise is estimated
ITERATIONS, FEW_ITERATIONS, SHORT = 100, 40, 5.0  # trees of a sum; fewer in less than so many seconds
STOP_FROM = 500  # rows from which rows set aside decide the number of trees
MOST_TREE_ROWS, MOST_NEIGHBOUR_ROWS, MOST_GP_ROWS = 20_000, 5000, 600
LARGEST_INPUT = 1e99  # a threshold of trees that is infinite in memory, and has to be finite in a file
GP_KERNEL, GP_INPUTS, GP_SHARE = "matern32-ard", 60, 0.05  # of the residuals; its share of the time
LONGEST = 0.25  # share of the time after which no further model is fitted
QUICK = ("mean", "ridge", "nearest neighbours")
TREES, TREES_AND_GP = "boosted trees", "boosted trees and a GP on their residuals"


@dataclass(eq=False)
class Member:
    """A simple model, fitted to each part of the search.

    Attributes
    ----------
    name : str
    models : list of InUnits
        One per part.
    scores : RowScores
        On all held-out rows.
    widening : Widening or None
        By how much its variances after the last row have to be wider.
    """

    name: str
    models: list[InUnits]
    scores: RowScores
    widening: Widening | None = None


def fitted_members(search: TimedSearch, transforms: Transforms, time_name: str) -> tuple[list[Member], float]:
    """The simple models with scores on the held-out rows, and the seconds that fitting them to all rows will take.

    Parameters
    ----------
    transforms : Transforms
        Of target and inputs.
    time_name : str
        The input that is the time of the rows, if they are in such an order.
    """
    models: dict[str, list[InUnits]] = {}
    marginals: dict[str, list[Marginals]] = {}
    begin, names = search.clock(), tuple[str, ...]()
    for k, part in enumerate(search.parts):
        if search.should_stop():
            return [], 0.0
        search.report("Fitting simple models and trees.")
        if k and (search.clock() - begin) * len(search.parts) / k > 2.0 * LONGEST * search.seconds:
            names = QUICK
        for name, posterior in simple_posteriors(search, part.train, transforms, time_name, names).items():
            with suppress(GPExplorerError):
                marginals.setdefault(name, []).append(posterior.marginals(part.test.X))
                models.setdefault(name, []).append(posterior)
    members = list[Member]()
    for name in (name for name, own in models.items() if len(own) == len(search.parts)):
        scores, widening = scores_of_parts(search.parts, marginals[name], time_name)
        if scores.usable:
            own = [
                widened(model, after_rows(widening, part.train))
                for model, part in zip(models[name], search.parts, strict=True)
            ]
            members.append(Member(name, own, scores, widening))
    return members, (search.clock() - begin) / len(search.parts)


def refitted_members(
    search: TimedSearch, members: Sequence[Member], transforms: Transforms, time_name: str
) -> dict[str, InUnits]:
    """These members, fitted to all training rows."""
    names = [member.name for member in members]
    search.report("Fitting simple models and trees to all rows.")
    rows = search.split.train
    fitted = simple_posteriors(search, rows, transforms, time_name, names)
    return {
        own.name: widened(fitted[own.name], after_rows(own.widening, rows)) for own in members if own.name in fitted
    }


def simple_posteriors(
    search: TimedSearch, rows: Dataset, transforms: Transforms, time_name: str, names: Sequence[str] = ()
) -> dict[str, InUnits]:
    """The distributions of y by the simple models with these names, or by all of them."""
    if rows.noise is not None:
        return {}
    begin, result = search.clock(), dict[str, Posterior]()
    rows = scale(rows, fit_scale(rows, target_transform=transforms.target, input_transform=transforms.inputs))
    X, y = numbers_of(rows.X, rows.y).double().cpu().numpy(), rows.y.double().cpu().numpy()
    ending = " (numbers only)" if isinstance(rows.X, MixedRows) else ""

    def wanted(name: str) -> bool:
        return (X.shape[1] > 0 or name == "mean") and (not names or name in names or name + ending in names)

    if wanted("mean"):
        result["mean"] = _shifted(LinearMean(*_tensors(np.zeros(X.shape[1]), [y.mean()])), float(y.var()), rows)
    if wanted("ridge"):
        ridge = RidgeCV(PENALTIES, scoring="neg_mean_squared_error").fit(X, y)
        linear = LinearMean(*_tensors(ridge.coef_, [ridge.intercept_]))
        result["ridge"] = _shifted(linear, -float(ridge.best_score_), rows)
    if wanted("nearest neighbours"):
        result["nearest neighbours"] = _nearest(X, y, rows)
    has_time = bool(names) or search.clock() - begin < LONGEST * search.seconds / len(search.parts)
    if has_time and (wanted(TREES) or wanted(TREES_AND_GP)):
        folds = cross_fitting_folds(rows, X, time_name)
        trees, residuals = cross_fitted_trees(X, y, folds, search, forward=time_name in rows.names)
        known = np.isfinite(residuals)
        result[TREES] = _shifted(trees, float(np.square(residuals[known]).mean()), rows)
        with suppress(GPExplorerError):
            if wanted(TREES_AND_GP) and isinstance(rows.X, Tensor) and X.shape[1] <= GP_INPUTS:
                # Trees, and an exact GP on the residuals of some rows
                kept = np.random.default_rng(1).permutation(np.flatnonzero(np.isfinite(residuals)))[:MOST_GP_ROWS]
                part = rows.rows(torch.from_numpy(kept))
                part = Dataset(part.X, torch.from_numpy(residuals[kept]).to(rows.y), part.names)
                kernel = make(GP_KERNEL, part.X.shape[1])
                problem = Problem(part, kernel, kernel.start(part))
                method = registry["ml"]()
                end = search.clock() + GP_SHARE * search.seconds / len(search.parts)
                state = None
                for step in method.steps(problem):
                    state = step.state
                    if search.clock() > end:
                        break
                inner = method.posterior(problem, state)
                result[TREES_AND_GP] = ShiftedPosterior(trees, inner, rows.y, inner.noise_variance)
    return {
        name if name == "mean" else name + ending: in_units_of(posterior, rows).asked_for("y")
        for name, posterior in result.items()
    }


def cross_fitting_folds(rows: Dataset, X: Array, time_name: str) -> NDArray[np.int64]:
    """The fold [n] of each row: whole groups, stretches of time from 0 on, or a random draw; -1 for rows of no fold.

    Of a single group, rows are drawn.
    """
    if rows.groups is not None and (count := rows.groups.distinct) > 1:
        return drawn_folds(rows.groups.number, min(FOLDS, count), 0).cpu().numpy().astype(np.int64)
    n = len(X)
    if time_name in rows.names[: X.shape[1]]:
        time = X[:, rows.names.index(time_name)]
        return np.minimum(np.searchsorted(np.sort(time), time) * (FOLDS + 1) // n, FOLDS).astype(np.int64)
    return np.asarray(np.random.default_rng(0).permutation(n) % FOLDS)


def cross_fitted_trees(
    X: Array, y: Array, fold: NDArray[np.int64], search: TimedSearch, forward: bool = False
) -> tuple[TreesMean, Array]:
    """Trees of all rows, and what trees of the other folds leave of each row [n]; NaN for rows of no fold.

    Forward in time, the trees are those of earlier folds, so that the rows of the first fold have no residuals. If the
    first trees have taken too long, they are the answer, with the residuals of their rows; in time, only these. Too few
    residuals say nothing of the noise: then all folds are fitted, which are small.
    """
    begin, most = search.clock(), LONGEST * search.seconds / len(search.parts)
    iterations = ITERATIONS if search.seconds >= SHORT else FEW_ITERATIONS
    residuals = np.full(len(y), np.nan)
    used = np.random.default_rng(0).permutation(len(y))[:MOST_TREE_ROWS]
    numbers = np.unique(fold[fold >= 0])
    numbers = numbers[1:] if forward else numbers  # the first stretch of time has no earlier rows
    for number in numbers:
        out = np.flatnonzero(fold == number)
        kept = used[fold[used] < number] if forward else used[fold[used] != number]
        if not len(kept):
            continue
        model = HistGradientBoostingRegressor(
            max_iter=iterations, early_stopping=len(kept) > STOP_FROM and number == numbers[0], random_state=0
        ).fit(X[kept], y[kept])
        iterations = model.n_iter_
        residuals[out] = y[out] - model.predict(X[out])
        may_end = number == numbers[0] and np.isfinite(residuals).sum() >= FEWEST_RESIDUALS
        if may_end and (search.clock() - begin) * (FOLDS + 1) > most:
            if forward:
                break  # the first trees know the oldest rows only
            return as_trees(model), residuals
    whole = HistGradientBoostingRegressor(max_iter=iterations, early_stopping=False, random_state=0)
    return as_trees(whole.fit(X[used], y[used])), residuals


def as_trees(model: HistGradientBoostingRegressor) -> TreesMean:
    """The nodes of fitted trees as numbers."""
    trees = [predictor.nodes for (predictor,) in model._predictors]
    nodes = np.concatenate(trees)
    first = np.cumsum([0, *map(len, trees)])
    leaf, own = nodes["is_leaf"].astype(bool), np.arange(first[-1])
    start = np.repeat(first[:-1], np.diff(first))
    left, right = (nodes[side].astype(np.int64) + start for side in ("left", "right"))
    feature, threshold, value = nodes["feature_idx"], nodes["num_threshold"], nodes["value"]
    return TreesMean(
        torch.from_numpy(np.where(leaf, 0, feature).astype(np.int64)),
        torch.from_numpy(np.where(leaf, 0.0, np.minimum(threshold, LARGEST_INPUT))),
        torch.from_numpy(np.where(leaf, own, left)),
        torch.from_numpy(np.where(leaf, own, right)),
        torch.from_numpy(np.where(leaf, value, 0.0)),
        torch.from_numpy(first[:-1].astype(np.int64)),
        torch.from_numpy(np.asarray(model._baseline_prediction, dtype=np.float64).reshape(1)),
    )


def _nearest(X: Array, y: Array, rows: Dataset) -> Posterior:
    """The mean of the k nearest rows, where the rows left out one by one choose k and give the noise."""
    kept = np.random.default_rng(0).permutation(len(X))[:MOST_NEIGHBOUR_ROWS]
    Z, targets = torch.from_numpy(X[kept]), torch.from_numpy(y[kept])
    most = min(max(NEIGHBOURS), len(kept) - 1)
    # without the row itself
    nearest = [torch.cdist(block, Z).topk(most + 1, largest=False).indices[:, 1:] for block in Z.split(1000)]
    means = targets[torch.cat(nearest)].cumsum(1) / torch.arange(1, most + 1)
    errors = (means - targets[:, None]).square().mean(0)
    count = min((k for k in NEIGHBOURS if k <= most), key=lambda k: float(errors[k - 1]))
    return _shifted(NeighboursMean(Z, targets, torch.tensor([count])), float(errors[count - 1]), rows)


def _shifted(mean_function: Any, noise: float, rows: Dataset) -> Posterior:
    return ShiftedPosterior(mean_function, None, rows.y, max(noise, SMALLEST))


def _tensors(*values: Any) -> list[Tensor]:
    return [torch.as_tensor(np.asarray(value, dtype=np.float64)) for value in values]
