"""The answer of `recommend`: what to use, what to expect of it, what came second and why, and the fitted model."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ..problem import Prediction
from ..runs.run import Run
from ..runs.spec import Spec
from .held_out import Interval, RowScores
from .lanes import Lane

ENDS = ("nlpd_low", "nlpd_high")


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
        The whole choice. `spec.open(data=rows)` with the same rows gives the same steps.
    run : Run
        The run of the chosen method, which took further steps after the choice until the time was used.
    expected : dict of str to Interval
        "smse" and "nlpd" on held-out rows with their 95 % intervals. If the model was fitted again to all rows
        (`refitted`), they are those of the same candidate on fewer rows.
    table : DataFrame
        One row per candidate and simple model, the best first: rows fitted to, seconds, smse, nlpd, the ends of the
        95 % interval of nlpd (nlpd_low, nlpd_high), and a sentence.
    runner_up : str
        The second best candidate; empty if there was only one.
    better_simple_model : str
        A simple model whose NLPD or SMSE on the held-out rows is lower; empty if there is none.
    refitted : bool
        Whether the chosen method was fitted again to all training rows.
    sentences : tuple of str
        The answer in words.
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
    sentences: tuple[str, ...] = field(default=())

    def predict(self, X: Any) -> Prediction:
        """Mean and variance of y [t] at inputs [t, d], in the units of the file."""
        return self.run.posterior(of="y")(X)

    def __str__(self) -> str:
        """The answer in words, one sentence per line."""
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return f"<Recommendation: {self.method} with {self.kernel}, held-out NLPD {self.expected['nlpd'].value:.3g}>"

    def _repr_html_(self) -> str:
        """The answer and the table, for notebooks."""
        text = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)
        return text + self.table.to_html(index=False, escape=True, float_format=lambda value: f"{value:.4g}")


def described(interval: Interval) -> str:
    """A score with its interval, such as "0.011 (95 % interval 0.0098 to 0.012)"."""
    return f"{interval.value:.3g} (95 % interval {interval.low:.3g} to {interval.high:.3g})"


def sentences(
    winner: Lane,
    others: list[Lane],
    simple: Mapping[str, RowScores],
    refitted: bool,
    seconds: tuple[float, float],
    note: str = "",
) -> tuple[str, ...]:
    """The answer in words.

    Parameters
    ----------
    winner, others : Lane
        The chosen lane, and the other finalists, the best first.
    simple : mapping of str to RowScores
        The simple models.
    refitted : bool
        Whether the winner was fitted again to all rows.
    seconds : tuple of float
        The seconds used and the seconds allowed.
    note : str
        What went wrong after the choice, if something did.
    """
    assert winner.scores is not None
    scores, count = winner.scores, len(winner.scores.targets)
    words = [
        f"Use {winner.name}.",
        f"Expected on new rows: SMSE {described(scores.interval('smse'))} and NLPD "
        f"{described(scores.interval('nlpd'))}, from {count:,} held-out rows.",
    ]
    if others:
        words.append(f"The runner-up is {others[0].name}. {others[0].sentence}")
    best = min(simple, key=lambda name: simple[name].nlpd, default="")
    if better := better_simple_model(scores, simple):
        words.append(
            f"A simple model is better here: {better} has SMSE {simple[better].smse:.3g} and NLPD "
            f"{simple[better].nlpd:.3g} on the same rows."
        )
    elif best:
        words.append(
            f"The best simple model is {best}, with SMSE {simple[best].smse:.3g} and NLPD {simple[best].nlpd:.3g}."
        )
    if refitted:
        words.append("The model was then fitted to all training rows.")
    if note:
        words.append(note)
    return (*words, f"The recommendation took {seconds[0]:.1f} s of {seconds[1]:g} s.")


def better_simple_model(scores: RowScores, simple: Mapping[str, RowScores]) -> str:
    """The simple model with the lowest NLPD if that is lower than the winner's; otherwise one with a lower SMSE."""
    by_density = sorted((model_scores.nlpd, name) for name, model_scores in simple.items())
    by_error = sorted((model_scores.smse, name) for name, model_scores in simple.items())
    for ranked, own in ((by_density, scores.nlpd), (by_error, scores.smse)):
        if ranked and ranked[0][0] < own:
            return ranked[0][1]
    return ""


def why_not(lane: Lane, winner: Lane) -> str:
    """Why a finalist was not chosen, with the difference and its standard error."""
    assert lane.scores is not None and winner.scores is not None
    lower, error = winner.scores.better_by(lane.scores)
    if lower <= error:
        return (
            f"Its NLPD, {lane.scores.nlpd:.3g}, is within a standard error of the winner's, {winner.scores.nlpd:.3g}, "
            "and the winner suits more data sets."
        )
    return f"Its NLPD is higher by {lower:.2g} nats, with a standard error of {error:.1g}."


def table(lanes: list[Lane], winner: Lane, simple: Mapping[str, RowScores]) -> pd.DataFrame:
    """One row per candidate and simple model, the best first."""
    rows = [
        {
            "model": lane.name,
            "rows": lane.rows or np.nan,
            "seconds": lane.seconds,
            "smse": lane.scores.smse if lane.scores else np.nan,
            "nlpd": lane.scores.nlpd if lane.scores else np.nan,
            **_ends(lane.scores),
            "sentence": "Chosen." if lane is winner else lane.sentence,
        }
        for lane in lanes
    ]
    rows += [
        {"model": name, "smse": scores.smse, "nlpd": scores.nlpd, **_ends(scores), "sentence": "A simple model."}
        for name, scores in simple.items()
    ]
    columns = ["model", "rows", "seconds", "smse", "nlpd", *ENDS, "sentence"]
    return pd.DataFrame(rows, columns=columns).sort_values("nlpd", na_position="last").reset_index(drop=True)


def _ends(scores: RowScores | None) -> dict[str, float]:
    """The ends of the interval of the NLPD, as columns of the table."""
    interval = None if scores is None else scores.interval("nlpd")
    return {} if interval is None else dict(zip(ENDS, interval[1:], strict=True))
