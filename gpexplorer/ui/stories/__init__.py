"""Guided stories: one or two per family and one across them. Each part is a link, so that it can be shared.

A story is added as one file, which assigns a `Story`. The tests take every part's steps and check what its texts claim.
`python docs/card_pictures.py` draws the small picture of its card.
"""

from __future__ import annotations

import importlib
import pkgutil

from .story import Part, Story

__all__ = ["STORIES", "Part", "Story"]

_modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_stories = [story for module in _modules for story in vars(module).values() if isinstance(story, Story)]
STORIES: dict[str, Story] = {story.key: story for story in sorted(_stories, key=lambda story: story.order)}
