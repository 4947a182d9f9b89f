"""Presets: prepared runs with a question and a sentence that says what to look for.

A preset is an entry of the file `presets.yaml`, and a link, so everything it opens can be shared. Some presets show a
wrong conclusion that looks right at first. The tests run every preset and check that its sentence is true.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...methods.base import registry
from ...methods.capabilities import HasInducingPoints
from ...runs import Spec
from ..text import LONGEST_MESSAGE, cut, text, texts_beside


class Preset(NamedTuple):
    """One prepared run.

    Attributes
    ----------
    question : str
        The question that the run answers.
    look : str
        What to look for while it plays.
    link : str
        The query of the address that opens it.
    """

    question: str
    look: str
    link: str


PRESETS = {key: Preset(**fields) for key, fields in texts_beside(__file__, "presets.yaml").items()}
BEFORE = "The numbers and pictures are those of the run before."
OPENING = "stand-for"  # what the laboratory shows where an address asks for nothing else: the run of the first screen

BY_FAMILY = {
    "inducing": "Which rows can represent all the others?",
    "exact": "How little of the kernel matrix is enough?",
    "eigenfunctions": "How many eigenfunctions does this function need?",
    "cross_validation": "Which hyperparameters predict rows they have not seen?",
    "minibatches": "What can a few rows at a time learn about all of them?",
    "neighbours": "How much do the rows near a row say about it?",
}


def says_what_happened(preset: str) -> bool:
    """Whether the words of this preset are on the steps with which it begins, which hold for its own spec alone."""
    return preset in PRESETS and "&at=" in PRESETS[preset].link


def question(
    spec: Spec, rows: int | None, preset: str = "", target: str = "", answer: str = "", still: bool = False
) -> str:
    """Return the heading of the page as HTML: a question, and a line that says what to do or to look for.

    Parameters
    ----------
    rows : int or None
        Number of training rows, None before they are read.
    preset : str, default ""
        Key of the preset that the spec came from, or "".
    target : str, default ""
        The column to predict in rows of one's own, or "".
    answer : str, default ""
        What is said of a trained model that is shown, or "".
    still : bool, default False
        Whether there is nothing to press, as in a file of pictures.
    """
    if preset in PRESETS:
        return _heading(PRESETS[preset].question, text(PRESETS[preset].look))
    method, m = registry[spec.method], spec.settings.get("num_inducing")
    if m == 0 and rows:  # the method chooses from the number of rows
        opened = method(**spec.settings)
        m = opened.num_points(rows) if isinstance(opened, HasInducingPoints) else None
    title = BY_FAMILY.get(method.family, method.title)
    all_rows = f"{rows:,} rows" if rows else "all rows"
    if m and m < (rows or math.inf):
        title = f"Which {m:,} of {all_rows} can represent the others?"
    watch = "how the points move" if m else "how the objective decreases"
    line = f"<b>{text(method.title)}.</b>" + ("" if still else f" Press <b>Play</b> and watch {watch}.")
    if target:
        title, line = what_predicts(target), ("" if still else "Press <b>Find out</b> to try the methods. ") + line
    return _heading(title, text(answer, 600) if answer else line)


def what_predicts(target: str) -> str:
    """Return the question about rows of one's own, with at most 60 letters of the name of the target."""
    return f"What predicts {cut(target, 60)}?"


def _heading(title: str, line: str) -> str:
    return f"<h1>{text(title)}</h1><p>{line}</p>"


def not_opened(reason: str, is_before: bool) -> str:
    """Return the heading, as HTML, where the newest run could not be opened.

    Parameters
    ----------
    reason : str
        Why not; empty where a message says it.
    is_before : bool
        Whether there are pictures, which are those of the run before then.
    """
    lines = [f"<p>{text(reason, LONGEST_MESSAGE)}</p>"] * bool(reason) + [f"<p>{BEFORE}</p>"] * is_before
    return f"<h1>This run could not be opened</h1>{''.join(lines)}"
