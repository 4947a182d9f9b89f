"""The websocket of a page, with limits on what a browser may send.

A message of Bokeh's protocol comes in parts: a header, metadata, the content, and as many buffers as the header says.
Each part is a message of the websocket, whose size the server limits; here their sum, their number and their time have
limits, too, and a header that is not one ends the connection at once. It is apart from the guard of requests, which
does not see what comes through an open websocket.

Apart because it guards a connection that is open, and `request_guard` what comes before one.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from bokeh.protocol.message import Message
from panel.io.server import WSHandler

from .host_names import is_known, known_names
from .visitors import connected

log = logging.getLogger("gpexplorer.ui")
MORE_THAN_LARGEST_PART = 4 << 20  # bytes of a whole message beyond those that its largest part may have
MOST_PARTS = 4000  # of one message
LONGEST_HEADER = 4096  # characters
PATIENCE = 45.0  # seconds between two parts of a message
LONGEST_REASON = 100  # bytes of the reason for which a websocket is closed; its protocol allows 123
TOO_LARGE, TOO_SLOW = 1009, 1008  # codes of closing


class GuardedSocket(WSHandler):
    """The websocket of one page."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._size, self._parts, self._refused = 0, 0, False
        self._deadline: object | None = None

    def check_origin(self, origin: str) -> bool:
        """Compare names as the guard of HTTP requests does; Bokeh knows neither [::1] nor other loopback addresses."""
        return is_known(origin.rpartition("://")[2], known_names(self.application))

    async def _async_open(self, token: str) -> None:
        await super()._async_open(token)
        session = self.connection._session if self.connection is not None else None  # None: closed in the meantime
        if session is not None:
            connected.add(session)

    async def _receive(self, fragment: str | bytes) -> Message[Any] | None:
        """Take one part; returns the message that it completes."""
        if self._refused or self.receiver is None:
            return None
        self._size += len(fragment)
        self._parts += 1
        if self._size > self.max_message_size + MORE_THAN_LARGEST_PART or self._parts > MOST_PARTS:
            self._refuse(TOO_LARGE, f"a message of more than {self._size} bytes in {self._parts} parts")
            return None
        if self._parts == 1 and not _is_header(fragment):
            kind, shown = type(fragment).__name__, repr(fragment[:LONGEST_REASON])
            self._protocol_error(f"{kind} of length {len(fragment)} is no header of a message: {shown}")
            return None
        message = await super()._receive(fragment)
        self._forget_deadline()
        if message is None:
            self._deadline = self.application.io_loop.call_later(PATIENCE, self._too_slow)
        else:
            self._size = self._parts = 0
        return message

    def on_close(self) -> None:
        """The connection is closed: nothing is waited for."""
        self._forget_deadline()
        super().on_close()

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close the connection, with a reason that fits; what has come is freed, and what comes later is not read."""
        self._refused, self.receiver = True, None
        super().close(code, None if reason is None else reason.encode()[:LONGEST_REASON].decode("utf-8", "ignore"))

    def _too_slow(self) -> None:
        self._refuse(TOO_SLOW, f"the rest of a message did not come within {PATIENCE:.0f} s")

    def _refuse(self, code: int, reason: str) -> None:
        log.warning("A websocket is closed: %s", reason)
        self.close(code, reason)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self.application.io_loop.remove_timeout(self._deadline)
            self._deadline = None


def _is_header(fragment: str | bytes) -> bool:
    """Whether this is the header of a message: a JSON object that names its type."""
    if not isinstance(fragment, str) or len(fragment) > LONGEST_HEADER:
        return False
    try:
        header = json.loads(fragment)
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and isinstance(header.get("msgtype"), str)
