"""What a story is: short parts, each of which moves the page and says in a sentence or two what to see there."""

from __future__ import annotations

from typing import NamedTuple


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
    """

    order: int
    key: str
    title: str
    parts: tuple[Part, ...]
    page: tuple[str, str] | tuple[()] = ()
