"""Guided stories: one or two per family and one across them.

A story consists of short parts, each of which moves the page and says in a sentence or two what to see there. Each
part is a link, so that it can be shared. A story is added as one YAML file, with the fields of `Story` and of each
`Part`; its key is the name of the file, and all links begin with what the file says under `begin`. The tests take every
part's steps and check what its texts claim. `python docs/card_pictures.py` draws the small picture of its card.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..text import texts_beside


class Part(NamedTuple):
    """One part of a story.

    Attributes
    ----------
    title : str
        Its heading.
    text : str
        A sentence or two on what to do or to look for.
    link : str
        The query of the address that opens its run, with the step and the picture to see.
    predict : str
        A question to answer before looking; empty where there is none.
    answer : str
        Its answer, which is shown on request.
    shown : str
        The query of the address that opens what the answer speaks of; empty where the page shows it already.
    beside : tuple of str
        Queries of other methods whose time per step is measured beside that of `link`; empty where none is.
    sizes : tuple of int
        The numbers of training rows of these measurements.
    """

    title: str
    text: str
    link: str
    predict: str = ""
    answer: str = ""
    shown: str = ""
    beside: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()


class Story(NamedTuple):
    """Several parts in their order.

    Attributes
    ----------
    order : int
        Place in the list of stories.
    key : str
        Its name in links.
    title : str
        What it is about.
    parts : tuple of Part
        Five to eight.
    page : tuple of str
        Words and query of another page that shows the same at once; empty where there is none.
    axes : mapping of str to tuple of float
        Key of a picture -> two numbers that its vertical axis contains in every part, so that parts can be compared.
    """

    order: int
    key: str
    title: str
    parts: tuple[Part, ...]
    page: tuple[str, str] | tuple[()] = ()
    axes: Mapping[str, tuple[float, float]] = {}


def _read(file: Path) -> Story:
    """The story in a file."""
    fields: dict[str, Any] = texts_beside(__file__, file.name)
    begin, parts = fields.pop("begin"), fields.pop("parts")
    page = tuple(fields.pop("page", ()))
    return Story(key=file.stem, parts=tuple(_part(part, begin) for part in parts), page=page, **fields)


def _part(fields: Mapping[str, Any], begin: str) -> Part:
    """One part of it."""
    links = {name: begin + fields[name] for name in ("link", "shown") if name in fields}
    beside = tuple(begin + query for query in fields.get("beside", ()))
    return Part(**{**fields, **links, "beside": beside, "sizes": tuple(fields.get("sizes", ()))})


STORIES = {
    story.key: story
    for story in sorted(map(_read, Path(__file__).parent.glob("*.yaml")), key=lambda story: story.order)
}
