"""The readers that `bench hammer fuzz` tries, each with its cases and with what must be true of its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runs import link
from ...runs.spec import Spec
from . import hostile_inputs

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

START = Spec("cholqr", {"num_inducing": 16})
VIEWS = ("fit", "convergence")


class Reader(NamedTuple):
    """A reader, with cases for it.

    Attributes
    ----------
    what : str
        What the cases are, for the table.
    cases : callable
        Gives the strategy of the cases.
    read : callable
        Reads a case, using a directory for files, and raises an AssertionError if the answer is wrong.
    """

    what: str
    cases: Callable[[], SearchStrategy[Any]]
    read: Callable[[Any, Path], None]


def read_spec(text: bytes, _: Path) -> None:
    """Read a spec, which must survive being written and keep its name."""
    spec = Spec.from_json(text)
    again = Spec.from_json(spec.to_json())
    assert again == spec, f"it is read back as {again}"
    assert again.key() == spec.key(), "it has another name when it is read back"


def read_link(query: str, _: Path) -> None:
    """Read a link, which never raises and whose spec must survive being written as a link."""
    try:
        answer = link.read(query, START, VIEWS)
    except Exception as error:
        raise AssertionError(f"a link raised {type(error).__name__}: {error}") from error
    assert len(answer.corrected) <= link.MOST_CORRECTIONS + 1, "too many sentences"
    again = link.read(link.write(answer.spec, answer.view, answer.at), START, VIEWS)
    assert again == replace(answer, corrected=()), f"its link is read back as {again}"


READERS = {
    "spec": Reader("texts as the JSON of a spec", hostile_inputs.spec_texts, read_spec),
    "link": Reader("queries as a link", hostile_inputs.link_queries, read_link),
}
