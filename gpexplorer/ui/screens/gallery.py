"""The stories and the questions as cards with small pictures, each of which opens in the laboratory.

Apart because it is a screen of its own, without a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qs

import param

from ...methods.base import registry
from ...views.lesson.lesson_page import SHELL
from ...views.side_by_side.side_by_side_page import STYLE
from ..inputs.presets import PRESETS
from ..stories import STORIES
from ..styles import beside
from .screen import Screen

KINDS = {"inducing": "swaps", "exact": "blocks", "cross_validation": "folds"}  # family -> picture, where they differ


class Gallery(Screen):
    """The page of one session."""

    groups = param.List(doc="Title and cards of each group.")

    _esm = SHELL + beside(__file__, "gallery.js")
    _stylesheets: ClassVar[list[str]] = [STYLE, beside(__file__, "gallery.css"), ":host { width: 100%; }"]

    def __init__(self, **params: Any) -> None:
        super().__init__(groups=[["Stories", _stories()], ["Questions", _questions()]], **params)

    async def answer(self, request: Mapping[str, Any]) -> None:
        """Nothing can be asked for."""


def _stories() -> list[dict[str, str]]:
    return [
        {
            "title": story.title,
            "line": f"{len(story.parts)} parts: {story.parts[0].title}, …",
            "address": f"?story={key}",
            "kind": key
            if key in ("swaps", "blocks", "eigenfunctions", "folds", "minibatches", "neighbours")
            else "all",
        }
        for key, story in STORIES.items()
    ]


def _questions() -> list[dict[str, str]]:
    cards = []
    for key, preset in PRESETS.items():
        method = registry[parse_qs(preset.link)["method"][0]]
        kind = KINDS.get(method.family, method.family)
        cards.append({"title": preset.question, "line": method.title, "address": f"?ask={key}", "kind": kind})
    return cards
