"""Callbacks that keep nothing alive: a figure may outlive its page."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


def weakly(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """This bound method as a callback that does nothing once its object is gone."""
    held = weakref.WeakMethod(method)

    def call(event: Any) -> None:
        alive = held()
        if alive is not None:
            alive(event)

    return call
