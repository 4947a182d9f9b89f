"""The answer of `recommend`: what to use, what to expect of it, what came second and why, and the fitted model.

One of its sentences says whether the 95 % intervals of the model fit the rows that were held out. One noise variance
for all rows cannot fit a target whose errors grow with its size, such as a price: the intervals are then too wide where
predictions are low and too narrow where they are high, although the right share of all rows lies in them. Such a target
is often fitted better as its logarithm.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from ..data import Split
from ..data.quoting import about, count, listing, quote
from ..kernels import available
from ..methods.base import registry
from ..posteriors import AveragePosterior, InUnits, Widening
from ..problem import Dataset, Prediction
from ..runs.run import Run
from ..runs.spec import Spec
from ..target_transforms import transform_in_words
from .arguments import repeated_rows, whole
from .averaging import Average
from .candidates import Candidate
from .held_out import Array, Interval, RowScores
from .horizon_widening import widening_in_words
from .lanes import Lane, by_density, comparable
from .promises import promise
from .relevance_pursuit import models_of, pursuit
from .row_order import Plan
from .row_questions import findings

ENDS = ("nlpd_low", "nlpd_high")
REPEATED = 0.01  # share of copies from which they are mentioned
REFITTED = "The model was then fitted to all training rows."
MOST_NAMES = 8  # inputs that are named in a sentence
MOST_MODELS = 4  # of an average that are named in a sentence
ANSWER, SIMPLE_MODEL = "The answer", "A simple model."  # sentences of the table, of which the first goes on
BEST, CHOSEN = "best Gaussian process", "chosen Gaussian process"
PREFERRED = "preferred Gaussian process (within one standard error of the best)"
STANDINGS = (BEST, PREFERRED, CHOSEN)  # of the chosen lane, see `standing_of`
PROMISED = 0.95  # the level of the intervals
LEAST_THIRD = 40  # rows in a third of the predictions, below which the thirds are not compared
UNEQUAL = 1.6  # ratio of the errors in standard deviations of two thirds, from which the widths do not fit
GROWING = 2.0  # ratio of the errors of two thirds, from which they are said to grow
SMALLEST = 1e-12  # probability, so that its normal quantile is finite
TOO_FEW = 3.0  # standard errors by which the share of rows in their interval is too low


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What to use for these rows.

    Attributes
    ----------
    method, kernel : str
        Keys of the chosen method and kernel.
    settings : dict
        All settings of the method.
    spec : Spec
        The whole choice. It names the rows as they were given: a file, with the options by which it was read and its
        SHA-256, or a data set, so that `spec.open()` reads them; rows in memory are passed again,
        `spec.open(data=rows)`. These are all rows, from which a model that was `refitted` has the same steps; another
        one has learned from some of them.
    run : Run
        The run of the chosen method, which took further steps after the choice until the time was used.
    expected : dict of str to Interval
        "rmse" in the units of the file, "smse" and "nlpd" of what predicts, on held-out rows, with their 95 %
        intervals: of the average if there is one.
        If the model was fitted again to all rows (`refitted`), they are those of the same models on fewer rows.
    table : DataFrame
        One row per candidate and simple model: rows fitted to, held-out rows of the scores, seconds, smse, nlpd, the
        ends of the 95 % interval of nlpd (nlpd_low, nlpd_high), and a sentence, which begins with "The answer" for what
        predicts. Models with scores on all held-out rows
        come first, the best of them on top: scores on other rows cannot be compared with theirs.
    runner_up : str
        The best of the other candidates; empty if there was only one. Its NLPD may be lower than that of the chosen
        one, which is preferred among those within one standard error of the lowest.
    better_simple_model : str
        A simple model whose NLPD or SMSE on the held-out rows is lower than that of the chosen method by more than a
        standard error; empty if there is none. It may be part of the answer, see `average`.
    refitted : bool
        Whether the chosen method was fitted again to all training rows.
    average : Average or None
        What predicts, if it is not the chosen method alone: an average of several models, trees and other simple ones
        included, or one simple model that is clearly better on the held-out rows.
    sentences : tuple of str
        The answer in words.
    held_out_by : {"random", "time", "groups"}
        Whether single rows, the last rows or whole groups were held out for `expected`.
    between : dict of str to Interval, optional
        "rmse", "smse" and "nlpd" on a random draw of rows, where later rows or whole groups were held out for
        `expected`.
    widening : Widening, optional
        By how much the variances of the chosen method are wider after the last row, where later rows were held out.
        Those of an average have their own.
    pursues : bool, default False
        Whether the chosen method gives rows that look far off a noise of their own.
    """

    method: str
    kernel: str
    settings: dict[str, Any]
    spec: Spec
    run: Run
    expected: dict[str, Interval]
    table: pd.DataFrame
    runner_up: str = ""
    better_simple_model: str = ""
    refitted: bool = False
    average: Average | None = None
    sentences: tuple[str, ...] = field(default=())
    held_out_by: str = "random"
    between: dict[str, Interval] | None = None
    widening: Widening | None = None
    pursues: bool = False

    @property
    def posterior(self) -> InUnits | AveragePosterior:
        """The predictive distribution of y: of the average if there is one, otherwise of the chosen model alone."""
        if self.average is not None:
            return self.average.posterior
        models = models_of(self.run, self.pursues, self.widening)
        return models[0][0] if len(models) == 1 else AveragePosterior(*map(list, zip(*models, strict=True)))

    def predict(self, X: Any) -> Prediction:
        """Mean and variance of y [t] at inputs [t, d], in the units of the file; see `posterior`."""
        return self.posterior(X)

    def __str__(self) -> str:
        """The answer in words, one sentence per line."""
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return f"<Recommendation: {self.method} with {self.kernel}, held-out NLPD {self.expected['nlpd'].value:.3g}>"

    def _repr_html_(self) -> str:
        """The answer and the table, for notebooks."""
        text = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)
        return text + self.table.to_html(index=False, escape=True, float_format=lambda value: f"{value:.4g}")


def sentences(  # noqa: PLR0913 - the parts of an answer
    split: Split,
    winner: Lane,
    others: list[Lane],
    simple: Mapping[str, RowScores],
    average: Average | None,
    took: str,
    note: str,
    plan: Plan,
    between: RowScores | None,
    facts: tuple[str, ...],
    standing: str = BEST,
) -> tuple[str, ...]:
    """The answer in words.

    Parameters
    ----------
    split : Split
        The rows, and notes on them.
    winner, others : Lane
        The chosen lane, and the other finalists, the best first.
    simple : mapping of str to RowScores
        The simple models.
    average : Average, optional
        The average of several models.
    took : str
        How long the recommendation took.
    note : str
        What happened after the choice, such as `REFITTED`.
    plan : Plan
        Which rows were held out.
    between : RowScores, optional
        The scores on a random draw of rows, where others were held out.
    facts : tuple of str
        What was found in the rows; see `facts_of_rows`.
    standing : str
        That of the chosen lane; see `standing_of`.
    """
    scores, train = winner.known_scores if average is None else average.scores, split.train
    words = [
        *_heading(winner, average, standing),
        f"It predicts {quote(train.target)} from {listing(train.names, MOST_NAMES)}, and learned from "
        f"{count(len(train), 'row')}{_unused(split)}.",
        *_logarithms(winner, train),
        *split.notes,
        *filter(None, promise(scores, train, plan, between)),
        *facts,
        *_pursued_in_words(split, winner, scores),
        *widening_in_words([winner.widening] if average is None else average.widenings),
        *band_sentences(scores, train.target),
    ]
    if others:
        words.append(f"{_place_of(others[0], winner, average)} is {others[0].name}. {others[0].sentence}")
    if average is not None and len(average.weights) > 1:
        words.append(_gain_in_words(average))
    words.extend(_simple_in_words(scores, simple))
    if note:
        words.append(note)
    return (*words, took)


def _heading(winner: Lane, average: Average | None, standing: str = BEST) -> tuple[str, ...]:
    """What predicts: one model, or an average and its parts."""
    in_words = f"{winner.name}: {_in_words(winner.candidate)}"
    if average is None:
        return (f"Use {in_words}.",)
    names = list(average.weights)
    if len(names) == 1:
        return (
            f"Use {names[0]}: it is better on the held-out rows than the Gaussian processes that were tried, and this "
            "answer and its saved model predict with it.",
            f'The {standing} is {in_words}; prefer="gp" makes it the answer.',
        )
    return (
        f"Use the average of {len(names)} models, with which this answer and its saved model predict: "
        f"{shares(average)}.",
        f"Of single models, the {standing} is {in_words}.",
    )


def _place_of(other: Lane, winner: Lane, average: Average | None) -> str:
    """What the best of the other finalists is beside the chosen lane."""
    if by_density(other) < by_density(winner):
        return "The Gaussian process with the lowest NLPD"
    return "The runner-up" if average is None else "The runner-up among the Gaussian processes"


def _gain_in_words(average: Average) -> str:
    """What the average gains over the best of its models."""
    lower, error = average.gain
    gain = f"lower by {lower:.2g} nats" if lower >= 0.0 else f"higher by {-lower:.2g} nats"
    return (
        f"On rows that decided neither its weights nor the best model, the NLPD of the average is {gain} than that of "
        f"the best model, with a standard error of {error:.1g}."
    )


def _simple_in_words(scores: RowScores, simple: Mapping[str, RowScores]) -> list[str]:
    """The best simple model beside the answer, and which option takes the one with a smaller error."""
    best = min(simple, key=lambda name: simple[name].nlpd, default="")
    better = better_simple_model(scores, simple)
    if better and simple[better].nlpd >= scores.nlpd:
        return [
            f"{better[0].upper()}{better[1:]} alone has the smaller error (RMSE {about(simple[better].rmse)} against "
            f'{about(scores.rmse)}), this answer the better bands: prefer="rmse" takes the smaller error.'
        ]
    if better:
        return [
            f"A simple model is better here: {better} has SMSE {simple[better].smse:.3g} and NLPD "
            f"{simple[better].nlpd:.3g} on the same rows."
        ]
    if not best:
        return []
    return [f"The best simple model is {best}, with SMSE {simple[best].smse:.3g} and NLPD {simple[best].nlpd:.3g}."]


def shares(average: Average) -> str:
    """The weights in words, such as "60 % of ml, se-ard and 40 % of ml, linear"; small ones are added up."""
    named = list(average.weights.items())
    named, others = (named, []) if len(named) <= MOST_MODELS else (named[: MOST_MODELS - 1], named[MOST_MODELS - 1 :])
    parts = [f"{100 * weight:.0f} % of {name}" for name, weight in named]
    if others:
        parts.append(f"{100 * sum(weight for _, weight in others):.0f} % of {len(others)} others")
    return " and ".join(["; ".join(parts[:-1]), parts[-1]])


def _pursued_in_words(split: Split, winner: Lane, scores: RowScores) -> tuple[str, ...]:
    """Which rows have a noise of their own, and the error of what predicts on the rows that are not like them."""
    if not winner.candidate.pursues:
        return ()
    pursued = pursuit(whole(split), winner.candidate.kernel)
    if not len(pursued.rows):
        return ()
    plain = scores.squared < (0.5 * pursued.sd) ** 2
    rmse = float(np.sqrt(scores.squared[plain].mean())) if plain.any() else np.nan
    names = ", ".join(f"{row + 1:,}" for row in pursued.rows[:MOST_NAMES]) + ", ..." * (len(pursued.rows) > MOST_NAMES)
    is_one = len(pursued.rows) == 1
    noise, them = ("has a noise of its own", "it") if is_one else ("have a noise of their own", "them")
    return (
        f"In {winner.name}, {count(len(pursued.rows), 'row')} ({names}) {noise}, with a standard deviation of "
        f"{pursued.sd:.3g}, and so hardly any influence on the mean; the bands allow for new rows like {them}. On the "
        f"{int(plain.sum()):,} held-out rows that are not like {them} the error (RMSE) of this answer is {rmse:.3g}.",
    )


def _logarithms(winner: Lane, train: Dataset) -> tuple[str, ...]:
    """Which inputs were taken as logarithms."""
    scale = winner.first_run.problem.train.scale if winner.candidate.input_transform else None
    if scale is None or scale.x_log is None:
        return ()
    names = [name for name, c in zip(train.names, scale.x_log.tolist(), strict=False) if c > 0.0]
    verb = "has a long tail and is taken as its logarithm" if len(names) == 1 else "have long tails and are logarithms"
    return (f"{listing(names, MOST_NAMES)} {verb} in the model.",)


def facts_of_rows(train: Dataset) -> tuple[str, ...]:
    """The findings, and a warning where copies of rows to fit may be held out, so that the expected error is low."""
    found, copies = findings(train), repeated_rows(train)
    if copies < REPEATED * len(train):
        return tuple(found)
    verb = "repeats" if copies == 1 else "repeat"
    return (
        *found,
        f"{count(copies, 'row')} of {len(train):,} {verb} an earlier one in every column. Copies of rows to fit may be "
        "held out, which makes the expected error too low: remove copies, unless they are measurements of their own.",
    )


def _unused(split: Split) -> str:
    """The number of test rows, which a recommendation does not use, for the end of a sentence."""
    rows = len(split.test)
    return f"; {count(rows, 'test row')} {'was' if rows == 1 else 'were'} not used" if rows else ""


def _in_words(candidate: Candidate) -> str:
    """The titles of the method and of its kernel, as the page and the documentation have them, and a transform."""
    method = registry[candidate.method]
    of = f", of {transform_in_words(candidate.target_transform)}" if candidate.target_transform else ""
    if method.own_kernel:
        return method.title + of
    priors = ", and priors for few rows" if candidate.has_priors else ""
    return f"{method.title} with the kernel {available().get(candidate.kernel, candidate.kernel)}{of}{priors}"


def better_simple_model(scores: RowScores, simple: Mapping[str, RowScores]) -> str:
    """The simple model with the lowest NLPD if that is clearly lower than the winner's; otherwise by the SMSE.

    Clearly is by more than a standard error, on the same rows.
    """
    same = {name: own for name, own in simple.items() if len(own.targets) == len(scores.targets)}
    for metric, terms in (("nlpd", "density"), ("smse", "squared")):
        best = min(same, key=lambda name: getattr(same[name], metric), default="")
        lower, error = same[best].better_by(scores, terms) if best else (0.0, 0.0)
        if lower > error:
            return best
    return ""


def hardly_differs(lane: Lane, winner: Lane) -> bool:
    """Whether a lane that was given up has the winner's NLPD within a standard error, on the same rows."""
    if lane is winner or not comparable(lane, winner):
        return False
    lower, error = winner.known_scores.better_by(lane.known_scores)
    return abs(lower) <= error


def standing_of(winner: Lane, lanes: list[Lane]) -> str:
    """Whether the chosen lane is the best one on its held-out rows, or preferred because it is hardly worse.

    Returns
    -------
    str
        `BEST`, `PREFERRED`, or, where it is neither, `CHOSEN`.
    """
    scores = winner.known_scores
    lowest = min((own for lane in lanes if (own := lane.scores) and len(own.targets) == len(scores.targets)),
                 key=lambda own: own.nlpd, default=scores)  # fmt: skip
    if scores.nlpd <= lowest.nlpd:
        return BEST
    lower, error = lowest.better_by(scores)
    return PREFERRED if lower <= error else CHOSEN


def why_not(lane: Lane, winner: Lane) -> str:
    """Why a finalist was not chosen, with the difference and its standard error."""
    own, chosen = lane.known_scores, winner.known_scores
    lower, error = chosen.better_by(own)
    side = "higher" if lower >= 0.0 else "lower"
    difference = f"is {side} by {abs(lower):.2g} nats than that of {winner.name}, with a standard error of {error:.1g}"
    if abs(lower) > error:
        return f"Its NLPD, {own.nlpd:.3g}, {difference}."
    return (
        f"Its NLPD, {own.nlpd:.3g}, {difference}: these rows cannot tell the two apart, and {winner.name} is "
        "preferred, because it suits more data sets."
    )


def table(
    lanes: list[Lane], winner: Lane, simple: Mapping[str, RowScores], average: Average | None = None
) -> pd.DataFrame:
    """One row per model: those with scores on all held-out rows first, the best of them on top.

    The sentence of what predicts begins with `ANSWER`, and has the standing of a single Gaussian process.
    """
    names = [] if average is None else list(average.weights)
    standing = standing_of(winner, lanes)
    of_winner = f"The {standing}." if names else f"{ANSWER}." if standing == BEST else f"{ANSWER}, the {standing}."
    rows = [
        {
            "model": lane.name,
            "rows": lane.rows or np.nan,
            "seconds": lane.seconds,
            **_scores(lane.scores),
            "sentence": of_winner if lane is winner else lane.sentence,
        }
        for lane in lanes
    ]
    for name, scores in simple.items():
        sentence = f"{ANSWER}, a simple model." if names == [name] else SIMPLE_MODEL
        rows.append({"model": name, **_scores(scores), "sentence": sentence})
    if average is not None and len(names) > 1:
        name = f"average of {len(names)} models"
        rows.append({"model": name, **_scores(average.scores), "sentence": f"{ANSWER}: {shares(average)}."})
    columns = ["model", "rows", "held_out", "seconds", "smse", "nlpd", *ENDS, "sentence"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.sort_values(["held_out", "nlpd"], ascending=[False, True], na_position="last", ignore_index=True)


def _scores(scores: RowScores | None) -> dict[str, float]:
    """The columns of the table that come from scores; a candidate without scores has none of them."""
    if scores is None:
        return {}
    ends = dict(zip(ENDS, scores.interval("nlpd")[1:], strict=True))
    return {"held_out": len(scores.targets), "smse": scores.smse, "nlpd": scores.nlpd, **ends}


def band_sentences(scores: RowScores, target: str) -> tuple[str, ...]:
    """Say how many held-out rows lie in their 95 % interval, and where the intervals have the wrong width.

    Parameters
    ----------
    scores : RowScores
        Predictions of the held-out rows, in the units of the file.
    target : str
        The name of the target.
    """
    errors = scores.targets - scores.mean  # [t]
    in_sd = ndtri(np.clip(scores.probability, SMALLEST, 1.0 - SMALLEST))  # of a normal distribution
    share = scores.inside(PROMISED)
    sentence = f"{100 * share:.0f} % of these rows lie in their 95 % interval"
    is_too_few = scores.falls_short(PROMISED, TOO_FEW)
    alone = f"{sentence}{', which is too few: the intervals are too narrow' if is_too_few else ''}."
    third = len(errors) // 3
    if third < LEAST_THIRD:
        return (alone,)
    order = np.argsort(scores.mean, kind="stable")
    low, high = order[:third], order[-third:]
    ratio = _rms(in_sd[high]) / max(_rms(in_sd[low]), np.finfo(float).tiny)
    if 1 / UNEQUAL < ratio < UNEQUAL:
        return (alone,)
    also = "which is too few, and" if is_too_few else "but"
    widths = ("too wide", "too narrow") if ratio > 1 else ("too narrow", "too wide")
    first = (
        f"{sentence}, {also} the intervals have the wrong widths: they are {widths[0]} for the third with the lowest "
        f"predictions, where the error (RMSE) is {_rms(errors[low]):.3g}, and {widths[1]} for the third with the "
        f"highest, where it is {_rms(errors[high]):.3g}."
    )
    if ratio > 1 and scores.targets.min() > 0 and _rms(errors[high]) >= GROWING * _rms(errors[low]):
        return first, (
            f"All values of {quote(target)} are positive and errors grow with them: try target_transform='log', which "
            f"models the logarithm of {quote(target)}."
        )
    return (first,)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.square(values).mean()))
