"""The stories and the questions as cards with small pictures, each of which opens in the laboratory.

Apart because it is a screen of its own, without a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import numpy as np
import panel as pn
import param

from ...methods.base import registry
from ...views.drawing.palette import DOTS, ON_DARK
from ...views.screens.lesson_page import SHELL
from ...views.screens.side_by_side_page import STYLE
from ..address import GALLERY
from ..inputs.presets import PRESETS
from ..stories import STORIES
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

WAY_STYLE = """
a { display: grid; grid-template-columns: 64px 1fr; gap: 0 12px; align-items: center; padding: 3px 10px; color: inherit;
    border: 1px solid rgba(127, 140, 153, .5); border-radius: 8px; text-decoration: none; }
a:hover, a:focus-visible { border-color: var(--mui-palette-primary-main, #0b6e99); }
a:focus-visible { outline: 3px solid var(--mui-palette-primary-main, #0b6e99); outline-offset: 2px; }
svg { grid-row: 1 / 3; width: 64px; height: 30px; fill: none; stroke: currentColor; stroke-width: 2.4; }
b { font-size: 14px; line-height: 17px; } span { font-size: 12.5px; line-height: 16px; opacity: .8; }
"""
WAY_PICTURE = "M4 58C24 58 26 10 46 10S70 44 84 44S102 22 116 18M20 50l5 9h-10zM60 50l5 9h-10zM100 50l5 9h-10z"


def way_to_gallery() -> pn.pane.HTML:
    """Return a card for the sidebar that leads to the page of all cards."""
    count = f"{len(STORIES) + len(PRESETS)} cards to begin with"
    picture = f'<svg viewBox="0 0 120 64" aria-hidden="true"><path d="{WAY_PICTURE}"></path></svg>'
    link = f'<a href="?page={GALLERY}" target="_self">{picture}<b>Stories and questions</b><span>{count}</span></a>'
    return pn.pane.HTML(link, margin=(4, 12, 2, 12), sizing_mode="stretch_width", stylesheets=[WAY_STYLE])


class Gallery(Screen):
    """The page of one session."""

    groups = param.List(doc="Title and cards of each group.")

    _esm = SHELL + beside(__file__, "gallery.js")
    _stylesheets: ClassVar[list[str]] = [STYLE, beside(__file__, "gallery.css"), DARK_STYLE, ":host { width: 100%; }"]

    def __init__(self, **params: Any) -> None:
        stories = [
            _card(story.title, f"{len(story.parts)} parts: {story.parts[0].title}, …", f"story={key}")
            for key, story in STORIES.items()
        ]
        questions = [
            _card(preset.question, registry[parse_qs(preset.link)["method"][0]].title, f"ask={key}")
            for key, preset in PRESETS.items()
        ]
        super().__init__(groups=[["Stories", stories], ["Questions", questions]], **params)

    async def answer(self, request: Mapping[str, Any]) -> None:
        """Nothing can be asked for."""


def _card(title: str, line: str, query: str) -> dict[str, str]:
    """A card; one without a picture has its words only."""
    return {"title": title, "line": line, "address": f"?{query}", "picture": PICTURES.get(query, "")}
