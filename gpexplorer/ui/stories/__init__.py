"""Guided stories: one or two per family and one across them. Each part is a link, so that it can be shared.

The tests take every part's steps and check what its texts claim.
"""

from __future__ import annotations

from .across_families import SIX_WAYS
from .of_cross_validation import FOLDS
from .of_eigenfunctions import EIGENFUNCTIONS
from .of_exact import BLOCKS
from .of_inducing import SWAPPING
from .of_minibatches import MINIBATCHES
from .story import Part, Story

__all__ = ["STORIES", "Part", "Story"]

STORIES: dict[str, Story] = {
    "swaps": SWAPPING,
    "blocks": BLOCKS,
    "eigenfunctions": EIGENFUNCTIONS,
    "folds": FOLDS,
    "minibatches": MINIBATCHES,
    "six-ways": SIX_WAYS,
}
