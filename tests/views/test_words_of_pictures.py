"""What people read on and around the pictures: no code, no raw number, no unit left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gpexplorer import Spec
from gpexplorer.methods.base import registry as methods
from steps_of import small_views

ROWS = {"name": "hypercube", "n": 60, "d": 2}
OF_A_FAMILY = ("cholqr", "gbcd", "grief", "grief-mcmc", "gpcv-admm", "scgd")
WRONG = {
    "a raw dictionary or list": r"[{\[]['\"]|'\w+':",
    "a name from the code": r"\w\w_\w|[a-z]_\w|\w\(\)|\b[a-z]+\.[a-z]+\b",
    "a long number without groups": r"(?<![\d.])\d{5,}(?!\.)",
    "a hyphen for a minus": r"(?:^|[\s(=])-\d",
    "a value that is none": r"\b(?:nan|None|inf|True|False)\b",
    "an exponent": r"\d[eE]\+?\d",
}


def faults(text: str) -> list[str]:
    return [f"{text!r} has {what}" for what, pattern in WRONG.items() if re.search(pattern, text)]


def words(key: str) -> Iterator[str]:
    """The texts of all pictures of a short run."""
    run = Spec(key, data=ROWS).open()
    run.finish(steps=3)
    for view in small_views(run):
        yield from (view.title, view.help, view.click)
        for name in view.param.values():
            setting = view.param.objects("existing")[name]
            if name != "name" and (setting.precedence is None or setting.precedence >= 0):
                yield str(setting.label)
        for frame in view.data(run, len(run.trace) - 1).values():
            yield from (value for value in frame.attrs.values() if isinstance(value, str))
            for column in (frame[name] for name in frame if frame[name].dtype.kind == "O"):
                yield from (value for value in column.unique()[:5] if isinstance(value, str))


@pytest.mark.parametrize("key", OF_A_FAMILY)
def test_the_texts_of_pictures_are_words(key: str):
    texts = set(words(key))

    assert len(texts) > 20
    assert [fault for text in texts for fault in faults(text)] == []


def test_the_names_of_channels_and_methods_are_words():
    stated = {
        label for method in methods.values() for label in [method.title, *(each.label for each in method.channels)]
    }

    assert len(stated) > 60
    assert [fault for text in stated for fault in faults(text)] == []
