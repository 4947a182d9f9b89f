"""An average of the models that were tried, with weights from the held-out rows: stacking.

    maximise  sum_i log sum_k w_k p_k(y_i | x_i)   over w_k >= 0, sum_k w_k = 1

Row i was held out when model k was fitted. The objective is concave, and EM increases it at every iteration. Where the
best models differ in their errors, their average has a lower NLPD than each of them; where one is best everywhere, it
gets all of the weight.

Few blocks of time, or few groups, say little about the next one: a model that is the best of two winters may fail in
spring. Stacking would trust them as if rows were independent. Their weights are those of pseudo-BMA+: each model's
probability of being the best, over the Bayesian bootstrap of the blocks, where a block counts as one observation.

    w_k = mean over a ~ Dirichlet(1, .., 1) of softmax_k( G sum_g a_g e_gk ),   e_gk the mean log density of block g

The weights are learned from the rows that the models are compared on. The expected scores of the average therefore use
other weights for each tenth of the rows, learned from the other nine tenths.

References
----------
Yao, Y., Vehtari, A., Simpson, D. and Gelman, A. (2018). Using stacking to average Bayesian predictive distributions.
Bayesian Analysis 13, sections 3 and 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.special import logsumexp, softmax

from ..errors import GPExplorerError
from ..posteriors import AveragePosterior, InUnits, Widening
from .final_fit import FinalModel, least_seconds, refit_to_all_rows
from .held_out import Array, Interval, RowScores
from .lanes import Lane, comparable
from .relevance_pursuit import models_of
from .simple_members import Member
from .stages import TimedSearch

ITERATIONS, CERTAIN = 200, 1e-4  # of EM, which ends where no weights are better by more than so many nats
RESAMPLES = 1000  # of the Bayesian bootstrap
LEAST_WEIGHT = 0.03  # a model with a smaller weight is left out
FEWEST_ROWS = 50  # held-out rows from which weights are learned
LOST = 0.1  # nats by which a simple model has to be better to be the answer where no average is
PREFERENCES = ("nlpd", "rmse", "gp")
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
        "rmse", "smse" and "nlpd" on held-out rows, with weights that were learned from other rows.
    gain : tuple of float
        See `gain_of_average`.
    scores : RowScores
        Those behind `expected`, of every held-out row.
    widenings : tuple of Widening or None
        By how much the variances of each model are wider after the last row.
    """

    weights: dict[str, float]
    posterior: AveragePosterior
    expected: dict[str, Interval]
    gain: tuple[float, float]
    scores: RowScores = field(repr=False)
    widenings: tuple[Widening | None, ...] = field(default=(), repr=False)


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
        gradient = (densities / (densities @ weights)[:, None]).mean(0)
        weights = weights * gradient
        if gradient.max() <= 1.0 + CERTAIN:  # the objective is concave: a bound on what is left to gain
            break
    return weights


def weights_of_blocks(log_densities: Array, block: Array) -> Array:
    """The weights [k] of models by few blocks of rows: pseudo-BMA+.

    Parameters
    ----------
    log_densities : array [t, k]
        Of each held-out row under each model.
    block : array [t]
        The block of each row.
    """
    _, place = np.unique(block, return_inverse=True)
    sums = np.zeros((place.max() + 1, log_densities.shape[1]))  # [G, k]
    np.add.at(sums, place, log_densities)
    means = sums / np.bincount(place)[:, None]
    shares = np.random.default_rng(0).dirichlet(np.ones(len(means)), RESAMPLES)
    return np.asarray(softmax(len(means) * shares @ means, axis=1).mean(0))


def has_few_blocks(scores: RowScores) -> bool:
    """Whether the rows are so few blocks of time or groups that each counts as one observation."""
    return scores.is_clustered and len(np.unique(scores.cluster)) < TENTHS


def large_weights(scores: Sequence[RowScores]) -> Array:
    """The weights [k] of these models, with 0 for those of which a small share would be used."""
    log_densities = np.column_stack([-own.density for own in scores])  # [t, k]
    block = scores[0].cluster
    weigh = partial(weights_of_blocks, block=block) if has_few_blocks(scores[0]) else stacking_weights
    weights = weigh(log_densities)
    used = weights >= min(LEAST_WEIGHT, float(weights.max()))
    result = np.zeros(len(weights))
    result[used] = weigh(log_densities[:, used])
    return result


def weights_of_means(scores: Sequence[RowScores]) -> Array:
    """The weights [k] with which the mean of these models has the smallest squared error, by least squares."""
    means = np.column_stack([own.mean for own in scores])  # [t, k]
    targets = scores[0].targets
    centre = targets.mean()
    found = nnls(means - centre, targets - centre)[0]
    if found.sum() <= 0.0:
        return np.eye(len(scores))[int(np.argmin([own.smse for own in scores]))]
    found = np.where(found >= LEAST_WEIGHT * found.sum(), found, 0.0)
    return np.asarray(found / found.sum())


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

    Of two that hardly differ, the average is preferred: it depends less on which rows happen to be held out. Few blocks
    of time or groups are never enough to say that one model is the best in the next one.
    """
    if len(scores) < 2 or len(scores[0].targets) < FEWEST_ROWS:
        return False
    if has_few_blocks(scores[0]):
        return True
    lower, error = gain_of_average(scores)
    return lower >= -error


def weighed(models: Mapping[Any, RowScores], prefer: str) -> dict[Any, float]:
    """The weights of these models that are above 0, the largest first; none if the best of them had better be alone.

    Parameters
    ----------
    models : mapping of Lane or Member to RowScores
        On the same held-out rows, the chosen lane first.
    prefer : {"nlpd", "rmse", "gp"}
        Whether the density or the squared error decides.
    """
    scores = list(models.values())
    is_enough = len(scores) >= 2 and len(scores[0].targets) >= FEWEST_ROWS
    if not is_enough or (prefer != "rmse" and not is_worthwhile(scores)):
        return {}
    weights = (weights_of_means if prefer == "rmse" else large_weights)(scores).tolist()
    pairs = sorted(zip(models, weights, strict=True), key=lambda pair: -pair[1])
    return {model: weight for model, weight in pairs if weight > 0.0}


def better_member(winner: RowScores, members: Sequence[Member], prefer: str) -> Member | None:
    """The simple model that is clearly better than the chosen one: by more than 0.1 nat and a standard error."""
    same = [own for own in members if len(own.scores.targets) == len(winner.targets)]
    if not same or prefer == "gp":
        return None
    best = min(same, key=lambda own: own.scores.rmse if prefer == "rmse" else own.scores.nlpd)
    if prefer == "rmse":
        return best if best.scores.rmse < winner.rmse else None
    lower, error = best.scores.better_by(winner)
    return best if lower > max(LOST, error) else None


def used_models(
    search: TimedSearch, winner: Lane, lanes: Sequence[Lane], members: Sequence[Member], prefer: str
) -> tuple[list[Member], list[Lane]]:
    """The simple models and the other lanes that an answer of this lane would use, so that they are fitted again."""
    if search.should_stop():
        return [], []
    models = weighed(_candidates(winner, lanes, () if prefer == "gp" else members), prefer)
    used = [model for model in models if isinstance(model, Member)]
    better = better_member(winner.known_scores, members, prefer)
    others = [model for model in models if isinstance(model, Lane) and model is not winner]
    return used or ([] if better is None else [better]), others


def average_of_lanes(
    search: TimedSearch,
    final: FinalModel,
    lanes: Sequence[Lane],
    members: Sequence[Member] = (),
    whole: Mapping[str, InUnits] | None = None,
    prefer: str = "nlpd",
) -> Average | None:
    """The average of the chosen model, of other lanes and of simple models; None if it is worse than the best model.

    After a stop nothing is weighed, but a simple model that is clearly better is the answer.

    Parameters
    ----------
    final : FinalModel
        The chosen model. If it was fitted to all rows, the others are then too, as long as there is time.
    lanes : sequence of Lane
        Those that were fitted to as many rows as the chosen one, and scored on the same held-out rows, are averaged.
    members : sequence of Member
        Simple models.
    whole : mapping of str to InUnits, optional
        Those of them that were fitted to all rows.
    prefer : {"nlpd", "rmse", "gp"}
        Whether the density or the squared error decides, or whether simple models are left out.
    """
    models = _candidates(final.lane, lanes, () if prefer == "gp" else members)
    parts, chosen = dict[Any, list[tuple[InUnits, float]]](), {} if search.should_stop() else weighed(models, prefer)
    to_fit = [model for model in chosen if isinstance(model, Lane) and model is not final.lane]
    for model in chosen:
        if isinstance(model, Member):
            parts[model] = _models_of_member(search, model, whole)
            continue
        needed = sum(least_seconds(lane) for lane in to_fit[to_fit.index(model) :]) if model in to_fit else 0.0
        share = least_seconds(model) / needed if needed > 0.0 else 1.0
        if own := _models_of(search, model, final, search.clock() + share * (search.end - search.clock())):
            parts[model] = own
    weights = dict.fromkeys(parts, 1.0)
    if len(parts) > 1:
        weights = weighed({model: models[model] for model in parts}, prefer)
    if not weights or (len(weights) == 1 and final.lane in weights):
        better = better_member(final.lane.known_scores, members, prefer)
        if better is None:
            return None
        weights = {better: 1.0}
        parts[better] = _models_of_member(search, better, whole)
    if len(weights) == 1 and not isinstance(next(iter(weights)), Member):
        return None
    models |= {own: own.scores for own in weights}
    return _averaged(weights, parts, models, final.lane.known_scores, prefer)


def _averaged(
    weights: Mapping[Any, float], parts: Mapping[Any, list[tuple[InUnits, float]]], models: Mapping[Any, RowScores],
    winner: RowScores, prefer: str,
) -> Average:  # fmt: skip
    """The average with these weights, and what to expect of it."""
    scores = [models[model] for model in weights]
    weigh = weights_of_means if prefer == "rmse" else large_weights
    average = _scores_by_tenths(scores, weigh) if len(scores) > 1 else scores[0]
    shared = [(model, weight * part) for own, weight in weights.items() for model, part in parts[own]]
    return Average(
        weights={model.name: weight for model, weight in weights.items()},
        posterior=AveragePosterior(*map(list, zip(*shared, strict=True))),
        expected=average.intervals,
        gain=average.better_by(best_scores(scores) if len(scores) > 1 else winner),
        scores=average,
        widenings=tuple(model.widening for model in weights),
    )


def _candidates(winner: Lane, lanes: Sequence[Lane], members: Sequence[Member]) -> dict[Any, RowScores]:
    """The lanes and simple models that have scores on the held-out rows of the chosen lane."""
    rows = len(winner.known_scores.targets)
    scored = (lane for lane in lanes if lane.scores is not None)
    models: dict[Any, RowScores] = {lane: lane.known_scores for lane in scored if comparable(lane, winner)}
    return models | {own: own.scores for own in members if len(own.scores.targets) == rows}


def _scores_by_tenths(scores: Sequence[RowScores], weigh: Callable[[list[RowScores]], Array]) -> RowScores:
    """The scores of an average, where each tenth of the rows has the weights [k] that `weigh` finds for the others."""
    targets, t = scores[0].targets, len(scores[0].targets)
    tenth = np.random.default_rng(0).permutation(t) % TENTHS  # [t]
    if scores[0].is_clustered:
        _, place = np.unique(scores[0].cluster, return_inverse=True)
        tenth = np.random.default_rng(0).permutation(place.max() + 1)[place] % TENTHS
    weights = np.empty((t, len(scores)))
    for number in range(TENTHS):
        others = tenth != number
        weights[~others] = weigh([RowScores(*(values[others] for values in own)) for own in scores])
    means, variances, densities, probabilities = (
        np.column_stack([getattr(own, name) for own in scores]) for name in ("mean", "var", "density", "probability")
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


def _models_of_member(
    search: TimedSearch, member: Member, whole: Mapping[str, InUnits] | None
) -> list[tuple[InUnits, float]]:
    """The distributions of y by a simple model, fitted to all rows or to each part, with their shares of its weight."""
    own = [whole[member.name]] if whole and member.name in whole else member.models[: search.most_models]
    return [(model, 1.0 / len(own)) for model in own]


def _models_of(search: TimedSearch, lane: Lane, final: FinalModel, end: float) -> list[tuple[InUnits, float]]:
    """The distributions of y by a lane, with their shares of its weight; none if they cannot be computed.

    One that is fitted to all rows if there is time; otherwise those of the search, one for each held-out part, or the
    latest where rows follow each other in time.
    """
    runs = list(lane.runs.values())[: search.most_models]
    seconds_left = end - search.clock()
    if lane is final.lane and final.refitted:
        runs = [final.run]
    elif final.refitted and seconds_left >= least_seconds(lane):
        run, note = refit_to_all_rows(search, lane, end)
        runs = runs if note else [run]
    with suppress(GPExplorerError):
        mixtures = [models_of(run, lane.candidate.pursues, lane.widening) for run in runs]
        return [(model, weight / len(runs)) for mixture in mixtures for model, weight in mixture]
    return []
