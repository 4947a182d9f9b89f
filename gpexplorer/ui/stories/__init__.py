"""Guided stories: one or two per family and one across them. Each part is a link, so that it can be shared.

The tests take every part's steps and check what its texts claim.
"""

from __future__ import annotations

from .block_story import BLOCKS
from .eigenfunction_story import EIGENFUNCTIONS
from .fold_story import FOLDS
from .minibatch_story import MINIBATCHES
from .six_ways_story import SIX_WAYS
from .story import Part, Story
from .swap_story import SWAPPING

__all__ = ["STORIES", "Part", "Story"]

STORIES: dict[str, Story] = {
    "swaps": SWAPPING,
    "blocks": BLOCKS,
    "eigenfunctions": EIGENFUNCTIONS,
    "folds": FOLDS,
    "minibatches": MINIBATCHES,
    "six-ways": SIX_WAYS,
}
