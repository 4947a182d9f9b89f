"""The question a page answers, above its pictures."""

from __future__ import annotations

from ...methods.base import registry
from ...runs import Spec
from ..text.escape import text
from .presets import PRESETS

BY_FAMILY = {
    "inducing": "Which rows can stand for the rest?",
    "exact": "How little of the kernel matrix is enough?",
    "eigenfunctions": "How many eigenfunctions does this function need?",
    "cross_validation": "Which hyperparameters predict rows they have not seen?",
    "minibatches": "What can a few rows at a time learn about all of them?",
}


def question(spec: Spec, rows: int | None, ask: str = "") -> str:
    """Markup of the question, and of what to do or look for; `rows` of the open data, None before they are read.

    `ask` is the key of a preset.
    """
    if ask in PRESETS:
        return _markup(PRESETS[ask].question, text(PRESETS[ask].look))
    method, m = registry[spec.method], spec.settings.get("num_inducing")
    n = f"{rows:,}" if rows else "all"
    asked = f"Which {m} of {n} rows can stand for the rest?" if m else BY_FAMILY.get(method.family, method.title)
    doc = " ".join((method.__doc__ or "").strip().splitlines()[:1])
    watch = "the points move and the objective fall" if m else "the objective fall"
    line = f"<b>{text(method.title)}.</b> {text(doc)} Press <b>Play</b> and watch {watch}."
    return _markup(asked, line)


def _markup(asked: str, line: str) -> str:
    return (
        f'<div style="font-size:24px;font-weight:650;line-height:1.25">{text(asked)}</div>'
        f'<div style="font-size:14px;opacity:.78">{line}</div>'
    )
