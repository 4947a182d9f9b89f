"""The sentences of an answer as the page says them: its own names in place of options of Python, and buttons that act.

Apart because it is about words alone, and is tested without a page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..text import cut, text

if TYPE_CHECKING:
    from ...recommendation import Recommendation

HELD_OUT = {
    "as the rows suggest": "", "later rows": "time", "whole groups": "groups", "single rows at random": "random"
}  # fmt: skip
PREFERRED = {"best bands (NLPD)": "nlpd", "smallest error (RMSE)": "rmse", "Gaussian processes only": "gp"}
FROM = "Held out from"
CHOOSE_GROUPS = "choose “Rows that belong together” under “Choose columns”"
WORDS = (  # an option in a sentence, and what the page says
    *((f'folds="{value}"', f"“{label}”") for label, value in HELD_OUT.items() if value),
    *((f'prefer="{value}"', f"“{label}”") for label, value in PREFERRED.items()),
    (r"name it with groups=, or give the group of each row", CHOOSE_GROUPS),
    (r"name it with dates=", "tick it under “Choose columns”"),
    (r"\bbefore=|^before(?= )", f"“{FROM}”"),
    (r" with drop(=\[[^\]]*\])?", ""),
    (r": kinds=\{[^}]*\} reads these cells as gaps", ""),
)
LEFT_OUT = re.compile(r'drop=\[("[^"]+")\]')
COPIES = re.compile(r'^((?:"[^"]+"(?:, )?)+) (?:is a copy|are copies) of ')
GAPS = re.compile(r'kinds=\{"([^"]+)": "(number missing ([^"]+))"\}')


class Way(NamedTuple):
    """What a button beside a sentence does.

    Attributes
    ----------
    label : str
        What is written on it.
    options : mapping of str to str
        Options of `recommend` to ask again with.
    drop : tuple of str
        Inputs to ask again without.
    kinds : mapping of str to str
        How columns are read when it is asked again.
    """

    label: str
    options: Mapping[str, str] = {}
    drop: tuple[str, ...] = ()
    kinds: Mapping[str, str] = {}


OPTIONS = {
    'folds="random"': Way("Hold out single rows", {"folds": "random"}),
    'prefer="rmse"': Way("Take the smaller error", {"prefer": "rmse"}),
    'prefer="gp"': Way("Take the Gaussian process", {"prefer": "gp"}),
}
BACK = {
    "prefer": Way("Take the better bands", {"prefer": "nlpd"}),
    "folds": Way("Hold out as the rows suggest", {"folds": ""}),
}


def reworded(sentence: str) -> str:
    """A sentence of `recommend` with the names that options have on the page."""
    for pattern, words in WORDS:
        sentence = re.sub(pattern, words, sentence)
    return sentence


def ways_of(sentence: str) -> list[Way]:
    """The buttons beside a sentence of `recommend`: each option and each input to leave out that it names."""
    ways = [way for option, way in OPTIONS.items() if option in sentence]
    copies = COPIES.search(sentence)
    named = copies[1] if copies and "with drop" in sentence else "".join(LEFT_OUT.findall(sentence))
    names = tuple(re.findall('"([^"]+)"', named))
    if names:
        ways.append(Way(f"Leave out {cut(', '.join(names), 40)}", drop=names))
    return ways + [Way(f"Read {gap} as a gap", kinds={name: kind}) for name, kind, gap in GAPS.findall(sentence)]


def promised(answer: Recommendation) -> str:
    """The expected error as markup: in large figures, and twice where it depends on which rows are meant."""
    from ...recommendation.promises import about

    where = {"time": ("between your rows", "after the last row"), "groups": ("more rows of your groups", "new groups")}
    between, beyond = where.get(answer.held_out_by, ("", "new rows"))
    errors = [(beyond, answer.expected["rmse"])]
    if answer.between is not None and between:
        errors.insert(0, (between, answer.between["rmse"]))
    cells = "".join(
        f"<div><b>± {text(about(rmse.value))}</b><span>expected error (RMSE), {place}<br>"
        f"95 %: {text(about(rmse.low))} to {text(about(rmse.high))}</span></div>"
        for place, rmse in errors
    )
    return f'<div class="facts">{cells}</div>'


def in_use(answer: Recommendation, target: str) -> str:
    """What the heading says while the trained answer is open: what predicts, and what the pictures show of it."""
    from ...recommendation.result import shares

    average, name, picture = answer.average, cut(target, 60), "“Data and prediction” is of"
    if average is None:
        trained = answer.sentences[0].removeprefix("Use ")
        return f"A trained model predicts {name}: {trained} Predict and Save the model use it."
    names, others = list(average.weights), "the other pictures are of the best Gaussian process"
    if len(names) == 1:
        return (
            f"{names[0][0].upper()}{names[0][1:]} predict {name}. {picture} them, {others}, which was trained beside "
            "them. Predict and Save the model use them."
        )
    return (
        f"The average of {len(names)} trained models predicts {name}: {shares(average)}. {picture} the average, "
        f"{others}. Predict and Save the model use the average."
    )
