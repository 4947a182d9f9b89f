"""A verdict: one statement of a paper, the number that this package gives for it, and how the two compare.

    better, same, worse   a number beside a published one
    holds, fails          a statement about an order or a shape
    no basis              what was computed is no evidence for or against it, such as the quick version for a number
                          that was published for more rows or epochs
    not computed          the same, and it is known how long the pieces of work that decide it take

A number is the same as the published one if they differ by at most the largest of: the published standard deviation,
`CLOSE` of the published number, and two standard errors of ours. Two of our own numbers are the same if they differ by
at most two standard errors of their paired differences. A verdict without a basis says what it would take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

BETTER, SAME, WORSE, HOLDS, FAILS = "better", "same", "worse", "holds", "fails"
NO_BASIS, NOT_COMPUTED = "no basis", "not computed"
CLOSE = 0.05  # of the published number
TAKES = "it takes the full version, with the rows and repeats of the paper"  # to have a basis


@dataclass(frozen=True)
class Verdict:
    """One line of the report.

    Attributes
    ----------
    about : str
        What is compared.
    published, ours : str
        Both as text, with their spread where there is one.
    verdict : str
        One of the words above.
    why : str
        The reason, where the verdict needs one.
    pieces : mapping
        The pieces of work of the full version that decide it: the values that their parameters have.
    """

    about: str
    published: str
    ours: str
    verdict: str
    why: str = ""
    pieces: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def takes(self, unit: Mapping[str, Any]) -> bool:
        """Whether a piece of work is one of those that decide the statement."""
        return all(unit.get(name) in values for name, values in self.pieces.items())


def number(
    about: str,
    published: float,
    values: Iterable[float],
    *,
    sd: float = 0.0,
    comparable: bool = True,
    why: str = "",
    **pieces: Sequence[Any],
) -> Verdict:
    """Compare our numbers, of which smaller ones are better, with a published mean.

    Parameters
    ----------
    about : str
        What is compared.
    published : float
        The published mean.
    values : iterable of float
        Ours, one per repeat.
    sd : float
        The published standard deviation, 0 if there is none.
    comparable : bool
        Whether ours were computed under the published conditions.
    why : str
        A reason to show beside the verdict.
    **pieces : sequence
        Values of the parameters of the pieces that decide it.
    """
    ours = np.array([value for value in values if math.isfinite(value)])
    printed = f"{published:.3g}" + (f" ± {sd:.2g}" if sd else "")
    if not len(ours):
        needs = _with_needs(why or "no repeat gave a finite number")
        return Verdict(about, printed, "no number", NO_BASIS, needs, pieces)
    mean, spread = float(ours.mean()), float(ours.std(ddof=1)) if len(ours) > 1 else 0.0
    ours_text = f"{mean:.3g}" + (f" ± {spread:.2g} ({len(ours)})" if len(ours) > 1 else "")
    if not comparable or not math.isfinite(published):
        return Verdict(about, printed, ours_text, NO_BASIS, _with_needs(why), pieces)
    margin = max(sd, CLOSE * abs(published), 2.0 * spread / math.sqrt(len(ours)))
    verdict = SAME if abs(mean - published) <= margin else BETTER if mean < published else WORSE
    return Verdict(about, printed, ours_text, verdict, why)


def statement(
    about: str, published: str, ours: str, holds: bool | None, why: str = "", **pieces: Sequence[Any]
) -> Verdict:
    """Say whether a published statement holds for our numbers; None where they say nothing about it.

    Then `pieces` are values of the parameters of the pieces that decide it.
    """
    if holds is None:
        return Verdict(about, published, ours, NO_BASIS, _with_needs(why), pieces)
    return Verdict(about, published, ours, HOLDS if holds else FAILS, why)


def lower(about: str, published: str, ours: Iterable[float], others: Iterable[float], why: str = "") -> Verdict:
    """Say whether our numbers are lower than others of ours, repeat by repeat; "same" within the spread of differences.

    Parameters
    ----------
    about, published, why : str
        What is compared, what the paper prints, and a reason to show beside the difference.
    ours, others : iterable of float
        One per repeat, in the same order.
    """
    a, b = np.array(list(ours)), np.array(list(others))
    both = np.isfinite(a) & np.isfinite(b)
    differences = (a - b)[both]
    text = f"{a[both].mean():.3g} against {b[both].mean():.3g}" if both.any() else "no number"
    if len(differences) < 2:
        needs = "it takes two repeats or more with both numbers to tell the difference from chance"
        return Verdict(about, published, text, NO_BASIS, needs)
    mean, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(len(differences))
    verdict = SAME if abs(mean) <= 2.0 * error else HOLDS if mean < 0.0 else FAILS
    reason = f"difference {mean:.2g}, standard error {error:.2g} ({len(differences)} repeats)"
    return Verdict(about, published, text, verdict, "; ".join(filter(None, [reason, why])))


def _with_needs(why: str) -> str:
    """The reason why there is no basis, with what it would take."""
    return why if "it takes" in why else "; ".join(filter(None, [why, TAKES]))


def of_repeats(rows: pd.DataFrame, name: str, total: int) -> str:
    """Say "1 of 5 splits" where fewer repeats were computed than the paper has, and nothing otherwise."""
    count = rows[name].nunique()
    return f"{count} of {total} {name}s" if count < total else ""


def listed(values: "Mapping[Any, Any] | pd.Series[Any]", form: str = "{:.3g}") -> str:
    """Names with their numbers, as text."""
    return ", ".join(f"{name} {form.format(float(value))}" for name, value in values.items())
