"""Callbacks that do not keep their object alive, because a figure may outlive its page."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


def weakly(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a bound method as a callback that does nothing once the method's object has been freed."""
    reference = weakref.WeakMethod(method)

    def call(event: Any) -> None:
        live_method = reference()
        if live_method is not None:
            live_method(event)

    return call
