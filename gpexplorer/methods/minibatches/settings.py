"""Settings that several minibatch methods share. Each function returns a new parameter for one method class."""

from __future__ import annotations

from typing import Any

from ..setting_kinds import choice, count, positive


def batch_size(default: int = 64) -> Any:
    """Return the number of rows per minibatch."""
    return count(default, (16, 512), doc="Rows per minibatch b; all rows if there are fewer.")


def rate(default: float = 3e-3) -> Any:
    """Return the learning rate a_0."""
    return positive(default, (1e-4, 1.0), doc="Learning rate; for adadelta it is a factor close to 1.")


def minibatches() -> Any:
    """Return the number of minibatches per step."""
    return count(100, (1, 1000), doc="Minibatches per step; at most one epoch.")


def refresh() -> Any:
    """Return the number of minibatches after which the Gram matrix is recomputed from all rows."""
    return count(
        0,
        (0, 5000),
        least=0,
        doc="Minibatches after which the Gram matrix is recomputed from all rows; 0 computes it only at the start.",
    )


def head(doc: str) -> Any:
    """Return whether the weights of the features are solved for."""
    return choice(["solve", "descend"], doc=doc)
