"""Repairs of Bokeh's websocket protocol.

Browsers receive no tracebacks, no visitor can forge a line of the log, and every closed page is noticed once.
"""

from __future__ import annotations

import logging
import secrets
import traceback
from typing import Any

from bokeh.protocol.messages.error import error as ErrorMessage
from bokeh.server.connection import ServerConnection
from bokeh.server.tornado import BokehTornado
from bokeh.server.views.ws import WSHandler

log = logging.getLogger("gpexplorer.ui")
ORIGINAL_OPEN = WSHandler.open
CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) != "\t"} | {10: "\\n"}


class OneLineRecord(logging.LogRecord):
    """A log record in which no text from a visitor can look like a second record.

    Line breaks in the message are escaped. A traceback keeps its lines, each of which begins with a bar.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info and self.exc_info[0] is not None:
            trace = "".join(traceback.format_exception(*self.exc_info)).rstrip()
            self.exc_text = "\n".join(f"  | {line}" for line in trace.splitlines())  # formatters take it from here

    def getMessage(self) -> str:
        """Return the message with control characters escaped."""
        return super().getMessage().translate(CONTROL_CHARACTERS)


def _is_worth_logging(entry: logging.LogRecord) -> bool:
    """Whether a record says more than that a visitor has closed a tab."""
    return entry.msg != "Failed sending message as connection was closed"


def repair_protocol() -> None:
    """Send numbers in place of tracebacks to browsers, escape line breaks in the log, and notice every closed page."""
    logging.getLogger("bokeh.server.views.ws").addFilter(_is_worth_logging)
    ErrorMessage.create = classmethod(_create)  # type: ignore[method-assign, assignment]
    logging.setLogRecordFactory(OneLineRecord)
    repair_connections()


def repair_connections() -> None:
    """Tell each session once that its page was closed, in whichever way Bokeh learns it first; send without delay."""
    WSHandler.on_close = _on_close  # type: ignore[method-assign]
    BokehTornado.client_lost = _client_lost  # type: ignore[method-assign]
    WSHandler.open = _open  # type: ignore[method-assign]


def _open(handler: WSHandler) -> None:
    """Open a connection. TCP would hold a message's later fragments back until the first is acknowledged, for 40 ms."""
    handler.set_nodelay(True)
    ORIGINAL_OPEN(handler)


def _on_close(handler: WSHandler) -> None:
    """The browser has closed the connection, or the network has."""
    if handler.connection is not None:
        handler.application.client_lost(handler.connection)


def _client_lost(application: BokehTornado, connection: ServerConnection) -> None:
    """Tell the session that a connection is lost, once.

    Bokeh's regular ping may notice a closed page before `on_close` is called. It then detaches the connection from its
    session without notifying the session: the session's run would continue, and `on_close` would fail on the missing
    session.
    """
    session = connection._session
    if session is None:
        return
    try:
        session.notify_connection_lost()
    finally:
        application._clients.discard(connection)
        connection.detach_session()


def _create(cls: type[ErrorMessage], request_id: Any, text: str, **metadata: Any) -> ErrorMessage:
    """An error message with the number under which the log has the reason, without paths and program text."""
    number = secrets.token_hex(3)
    log.error("%s: a message from a browser could not be handled: %s", number, text)
    answer = f"The server could not handle this message. The reason is in its log under {number}."
    return cls(cls.create_header(request_id=request_id), metadata, {"text": answer, "traceback": None})
