"""What happens when a visitor's connection ends: computing stops at once, and the session a little later.

A connection also ends where a network fails for a moment. The browser then connects to the same session again, so the
session lives for a while, and only its work is paused.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

from bokeh.document import Document
from bokeh.events import ConnectionLost

PAUSE_AFTER = 1.0  # seconds without a connection
END_AFTER = 8.0  # seconds
UNUSED_LIFETIME = 60.0  # seconds that a session waits for its first connection: a busy server is slow to accept it


def follow_connection(document: Document, pause: Callable[[], None]) -> None:
    """Call `pause` when the last connection of a document has been lost for a second, and end its session later.

    Parameters
    ----------
    document
        The document of a page that is served.
    pause
        A method of an object; the object is not kept alive.
    """
    reference = weakref.WeakMethod(pause)
    document_reference = weakref.ref(document)

    def lost(_: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(PAUSE_AFTER, _unless_connected, document_reference, lambda _: _call(reference))
        loop.call_later(END_AFTER, _unless_connected, document_reference, lambda session: session.request_expiration())

    document.on_event(ConnectionLost, lost)


def _unless_connected(reference: weakref.ref[Document], action: Callable[[Any], None]) -> None:
    document = reference()
    context = document.session_context if document is not None else None
    session = context.session if context is not None else None
    if session is not None and not session.destroyed and session.connection_count == 0:
        action(session)


def _call(reference: weakref.WeakMethod[Callable[[], None]]) -> None:
    method = reference()
    if method is not None:
        method()
