"""An average of the models that were tried, with weights from the held-out rows: stacking.

    maximise  sum_i log sum_k w_k p_k(y_i | x_i)   over w_k >= 0, sum_k w_k = 1

Row i was held out when model k was fitted. The objective is concave, and EM increases it at every iteration. Where the
best models differ in their errors, their average has a lower NLPD than each of them; where one is best everywhere, it
gets all of the weight.

The weights are learned from the rows that the models are compared on. The expected scores of the average therefore use
other weights for each tenth of the rows, learned from the other nine tenths.

References
----------
Yao, Y., Vehtari, A., Simpson, D. and Gelman, A. (2018). Using stacking to average Bayesian predictive distributions.
Bayesian Analysis 13, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from scipy.special import logsumexp

from ..errors import GPExplorerError
from ..posteriors import AveragePosterior, InUnits
from .final_fit import REFIT_TIMES, FinalModel, refit_to_all_rows
from .held_out import Array, Interval, RowScores
from .lanes import Lane, comparable
from .stages import TimedSearch

ITERATIONS = 200  # of EM
LEAST_WEIGHT = 0.03  # a model with a smaller weight is left out
FEWEST_ROWS = 50  # held-out rows from which weights are learned
TENTHS = 10  # parts of the held-out rows, for the expected scores


@dataclass(frozen=True, eq=False)
class Average:
    """The average of several models of a recommendation.

    Attributes
    ----------
    weights : dict of str to float
        The weight of each model by its name, the largest first.
    posterior : AveragePosterior
        The predictive distribution of y, in the units of the file; `posterior.save` writes it.
    expected : dict of str to Interval
        "smse" and "nlpd" on held-out rows, with weights that were learned from other rows.
    gain : tuple of float
        See `gain_of_average`.
    scores : RowScores
        Those behind `expected`, of every held-out row.
    """

    weights: dict[str, float]
    posterior: AveragePosterior
    expected: dict[str, Interval]
    gain: tuple[float, float]
    scores: RowScores = field(repr=False)


def stacking_weights(log_densities: Array) -> Array:
    """The weights [k] that maximise the mean log density of the average, by EM.

    Parameters
    ----------
    log_densities : array [t, k]
        Of each held-out row under each model.
    """
    densities = np.exp(log_densities - log_densities.max(1, keepdims=True))  # [t, k], the largest of a row is 1
    weights = np.full(densities.shape[1], 1.0 / densities.shape[1])
    for _ in range(ITERATIONS):
        shares = weights * densities
        weights = (shares / shares.sum(1, keepdims=True)).mean(0)
    return weights


def large_weights(scores: Sequence[RowScores]) -> Array:
    """The weights [k] of these models, with 0 for those of which a small share would be used."""
    log_densities = np.column_stack([-own.density for own in scores])  # [t, k]
    weights = stacking_weights(log_densities)
    used = weights >= min(LEAST_WEIGHT, float(weights.max()))
    result = np.zeros(len(weights))
    result[used] = stacking_weights(log_densities[:, used])
    return result


def averaged_scores(scores: Sequence[RowScores]) -> RowScores:
    """The scores of the average, each row with weights that were learned from the rows of other tenths."""
    return _scores_by_tenths(scores, large_weights)


def best_scores(scores: Sequence[RowScores]) -> RowScores:
    """The scores of the best model, each row with the model that is the best on the rows of other tenths."""
    return _scores_by_tenths(scores, lambda others: np.eye(len(others))[np.argmin([own.nlpd for own in others])])


def gain_of_average(scores: Sequence[RowScores]) -> tuple[float, float]:
    """How much lower the NLPD of the average is than that of the best model, and the standard error of that.

    Both the weights and the best model come from other rows than those that are scored. The NLPD of a model that was
    chosen by the same rows would be too low for a fair comparison.
    """
    return averaged_scores(scores).better_by(best_scores(scores))


def is_worthwhile(scores: Sequence[RowScores]) -> bool:
    """Whether there are enough models and rows, and the average is not worse by more than a standard error.

    Of two that hardly differ, the average is preferred: it depends less on which rows happen to be held out.
    """
    if len(scores) < 2 or len(scores[0].targets) < FEWEST_ROWS:
        return False
    lower, error = gain_of_average(scores)
    return lower >= -error


def average_of_lanes(search: TimedSearch, final: FinalModel, lanes: Sequence[Lane]) -> Average | None:
    """The average of the chosen model and of other lanes; None if it is worse than the best model.

    Parameters
    ----------
    final : FinalModel
        The chosen model. If it was fitted to all rows, the others are then too, as long as there is time.
    lanes : sequence of Lane
        Those that were fitted to as many rows as the chosen one, and scored on the same held-out rows, are averaged.
    """
    members = {lane: lane.scores for lane in lanes if lane.scores is not None and comparable(lane, final.lane)}
    if not is_worthwhile(list(members.values())):
        return None
    by_weight = sorted(zip(large_weights(list(members.values())), members, strict=True), key=lambda pair: -pair[0])
    models = {lane: _models_of(search, lane, final) for weight, lane in by_weight if weight > 0.0}
    scores = [members[lane] for lane, own in models.items() if own]
    if len(scores) < len(members) and not is_worthwhile(scores):
        return None
    weights = dict(zip((lane for lane, own in models.items() if own), large_weights(scores).tolist(), strict=True))
    weights = {lane: weight for lane, weight in sorted(weights.items(), key=lambda pair: -pair[1]) if weight > 0.0}
    if len(weights) < 2:
        return None
    average = averaged_scores(scores)
    shared = [(model, weight / len(models[lane])) for lane, weight in weights.items() for model in models[lane]]
    return Average(
        weights={lane.name: weight for lane, weight in weights.items()},
        posterior=AveragePosterior(*map(list, zip(*shared, strict=True))),
        expected={metric: average.interval(metric) for metric in ("smse", "nlpd")},
        gain=average.better_by(best_scores(scores)),
        scores=average,
    )


def _scores_by_tenths(scores: Sequence[RowScores], weigh: Callable[[list[RowScores]], Array]) -> RowScores:
    """The scores of an average, where each tenth of the rows has the weights [k] that `weigh` finds for the others."""
    targets, t = scores[0].targets, len(scores[0].targets)
    tenth = np.random.default_rng(0).permutation(t) % TENTHS  # [t]
    if scores[0].is_clustered:
        _, place = np.unique(scores[0].cluster, return_inverse=True)
        tenth = np.random.default_rng(0).permutation(place.max() + 1)[place] % TENTHS
    weights = np.empty((t, len(scores)))
    for number in range(TENTHS):
        weights[tenth == number] = weigh([_rows(own, tenth != number) for own in scores])
    names = ("mean", "var", "density", "probability")
    means, variances, densities, probabilities = (
        np.column_stack([getattr(own, name) for own in scores]) for name in names
    )  # [t, k] each
    mean = (weights * means).sum(1)
    return RowScores(
        squared=np.square(targets - mean),
        density=-logsumexp(-densities, axis=1, b=weights),
        targets=targets,
        mean=mean,
        var=(weights * (variances + np.square(means - mean[:, None]))).sum(1),
        probability=(weights * probabilities).sum(1),
        cluster=scores[0].cluster,
    )


def _rows(scores: RowScores, rows: Array) -> RowScores:
    return RowScores(*(getattr(scores, name)[rows] for name in scores.__dataclass_fields__))


def _models_of(search: TimedSearch, lane: Lane, final: FinalModel) -> list[InUnits]:
    """The distributions of y by a lane that is averaged, which share its weight; none if they cannot be computed.

    One that is fitted to all rows if there is time; otherwise those of the search, one for each held-out part.
    """
    runs = list(lane.runs.values())
    seconds_left = search.end - search.clock()
    if lane is final.lane and final.refitted:
        runs = [final.run]
    elif final.refitted and seconds_left >= REFIT_TIMES[lane.is_factored] * lane.seconds_of_a_run:
        run, note = refit_to_all_rows(search, lane)
        runs = runs if note else [run]
    with suppress(GPExplorerError):
        return [run.posterior(of="y") for run in runs]
    return []
