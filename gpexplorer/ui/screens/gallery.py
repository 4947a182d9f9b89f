"""The stories and the questions as cards with small pictures, each of which opens in the laboratory.

Apart because it is a screen of its own, without a run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import numpy as np
import param

from ...methods.base import registry
from ...views.drawing.palette import DOTS, ON_DARK
from ...views.screens.lesson_page import SHELL
from ...views.screens.side_by_side_page import STYLE
from ..inputs.presets import PRESETS
from ..stories import STORIES, Story
from ..styles import beside
from .screen import Screen

PICTURES_FILE = Path(__file__).with_name("card_pictures.json")
PICTURES: dict[str, str] = json.loads(PICTURES_FILE.read_text("utf-8"))  # query of a card -> its picture as SVG


def some_colours(palette: Sequence[str]) -> list[str]:
    """Return the few colours that a small picture uses of a palette; their odd number keeps the middle of it."""
    return [palette[k] for k in np.linspace(0, len(palette) - 1, 17).round().astype(int)]


DARK = ON_DARK | dict(zip(*(some_colours(DOTS[theme]) for theme in ("light", "dark")), strict=True))
DARK_STYLE = "\n".join(
    f'.gallery[data-theme="dark"] .card [{ink}="{light}"] {{ {ink}: {dark}; }}'
    for light, dark in DARK.items()
    for ink in ("fill", "stroke")
)  # the pictures are stored in the colours of the light theme


class Gallery(Screen):
    """The page of one session."""

    groups = param.List(doc="Title and cards of each group.")

    _esm = SHELL + beside(__file__, "gallery.js")
    _stylesheets: ClassVar[list[str]] = [STYLE, beside(__file__, "gallery.css"), DARK_STYLE, ":host { width: 100%; }"]

    def __init__(self, **params: Any) -> None:
        stories = [_card(story.title, _what_is_in_it(story), f"story={key}") for key, story in STORIES.items()]
        questions = [
            _card(preset.question, registry[parse_qs(preset.link)["method"][0]].title, f"ask={key}")
            for key, preset in PRESETS.items()
        ]
        super().__init__(groups=[["Stories", stories], ["Questions", questions]], **params)


def _what_is_in_it(story: Story) -> str:
    """The number of parts, and the one that sets a trap, else the last one."""
    titles = [part.title for part in story.parts]
    return f"{len(titles)} parts. {next((title for title in titles if title.startswith('A trap:')), titles[-1])}"


def _card(title: str, line: str, query: str) -> dict[str, str]:
    """A card; one without a picture has its words only."""
    return {"title": title, "line": line, "address": f"?{query}", "picture": PICTURES.get(query, "")}
