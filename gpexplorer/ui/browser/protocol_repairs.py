"""Repairs of Bokeh's websocket protocol.

Browsers receive no tracebacks, no visitor can forge a line of the log, every closed page is noticed once, what it had
sent last is dropped, and so is what it was being sent; every event is handled under the lock of its document.

All changes of a page that are made together travel as one message: on every page of our own servers, and on the pages
of a host that show an explorer, a player or a picture. The other pages of a host are sent as before. Bokeh sends one
message per change, and each array in two more fragments: 200 websocket frames for one picture of a run. Here the
changes that are made while the document is locked are collected for each connection. They become one message when the
lock is released, and arrays stand in its JSON.

Panel writes its own changes past Bokeh: at once, or a little later where the connection is busy. One message could then
overtake another and speak of a model that the browser did not know yet: a fold that was opened on a busy machine stayed
empty. So messages travel in the order in which their changes were made. What Panel keeps for later goes first, before
changes that were made after it; and before Panel writes, changes that wait become messages as well.
"""

from __future__ import annotations

import json
import logging
import secrets
import traceback
import weakref
from asyncio import Future
from collections.abc import Generator, Sequence
from typing import Any

from bokeh.core.serialization import Buffer, BytesRep, Serializer
from bokeh.document import Document
from bokeh.document.events import DocumentPatchedEvent
from bokeh.protocol.message import Message
from bokeh.protocol.messages.error import error as ErrorMessage
from bokeh.protocol.messages.patch_doc import PatchJson, patch_doc
from bokeh.server.connection import ServerConnection
from bokeh.server.session import ServerSession
from bokeh.server.tornado import BokehTornado
from bokeh.server.views.ws import WSHandler
from bokeh.util.serialization import make_id
from panel.io import document as panel_document
from panel.reactive import Syncable
from tornado.websocket import WebSocketClosedError, WebSocketHandler

ORIGINAL_WRITE, ORIGINAL_SCHEDULE = panel_document.write_events, panel_document.schedule_write_events
ORIGINAL_PATCHED, ORIGINAL_CREATE = ServerSession._document_patched, patch_doc.create.__func__  # type: ignore[attr-defined]
LARGE = 65_536  # bytes of an array that is sent beside the JSON, as base64 adds a third


class Patch:
    """The changes of one document that wait to be sent to one connection; awaiting it sends them.

    Messages of Panel that were made before are sent before them.

    Parameters
    ----------
    connection : ServerConnection
        Where to send them.
    document : Document
        What they change.

    Attributes
    ----------
    events : list of DocumentPatchedEvent
        The changes, in the order in which they were made.
    """

    def __init__(self, connection: ServerConnection, document: Document) -> None:
        self.connection, self.document = connection, document
        self.events: list[DocumentPatchedEvent] = []

    def message(self) -> Any:
        """The message of the changes that have come until now, which no longer wait."""
        events, self.events = self.events, []
        return self.connection.protocol.create("PATCH-DOC", events)

    def __await__(self) -> Generator[Any, Any, None]:
        messages = panel_document._WRITE_MSGS.get(self.document, {}).pop(self.connection, [])
        if self.events:
            messages.append(self.message())
        for message in messages:
            yield from self.connection._socket.send_message(message).__await__()


class SentTogether(weakref.WeakSet[Document]):
    """The documents whose changes travel together."""

    is_every = False  # whether these are all documents of this process

    def __contains__(self, document: object) -> bool:
        return self.is_every or super().__contains__(document)


sent_together = SentTogether()


def send_patches_together(document: Document | None = None) -> None:
    """Send the changes of this document, or else those of every server in this process, as said above."""
    if document is None:
        sent_together.is_every = True
    else:
        sent_together.add(document)
    ServerSession._document_patched = _collect  # type: ignore[method-assign]
    patch_doc.create = classmethod(_message)  # type: ignore[method-assign, assignment]
    panel_document.write_events = _write_in_order
    panel_document.schedule_write_events = _schedule_in_order


def _waiting(document: Document) -> list[Patch]:
    """The changes that were made under the lock which is held now."""
    session = document.session_context.session if document.session_context else None
    return [
        write for write in getattr(session, "_pending_writes", None) or () if isinstance(write, Patch) and write.events
    ]


def _write_in_order(document: Document, connections: Sequence[ServerConnection], events: Sequence[Any]) -> None:
    """Write changes of Panel at once, or later if others wait."""
    write = _schedule_in_order if _waiting(document) else ORIGINAL_WRITE
    write(document, connections, events)


def _schedule_in_order(document: Document, connections: Sequence[ServerConnection], events: Sequence[Any]) -> None:
    """Keep changes of Panel for later, after those that wait."""
    kept = panel_document._WRITE_MSGS.setdefault(document, {})
    for patch in _waiting(document):
        kept.setdefault(patch.connection, []).append(patch.message())
    ORIGINAL_SCHEDULE(document, connections, events)


def _dispatch(connection: ServerConnection, events: Sequence[Any] | None = None, msg: Any = None) -> list[Any]:
    """Write a message of Panel, as Panel does, until the page is closed.

    Panel writes all fragments before it awaits any. Where the browser goes in between, the next fragment raises, and
    what became of the first is never asked: both stood in the log as errors.
    """
    socket: Any = connection._socket
    is_open = socket.ws_connection is not None and not socket.ws_connection.is_closing()
    if not is_open or not (msg or events):
        return []
    message: Any = msg or connection.protocol.create("PATCH-DOC", events)  # type: ignore[call-overload]
    fragments = [(content, False) for content in (message.header_json, message.metadata_json, message.content_json)]
    for buffer in message._buffers:
        fragments += [(json.dumps(buffer.ref), False), (buffer.to_bytes(), True)]
    writes = []
    for content, is_binary in fragments:
        try:
            write = WebSocketHandler.write_message(socket, content, is_binary)
        except WebSocketClosedError:
            break
        write.add_done_callback(_log_failure)
        writes.append(write)
    return writes


def _log_failure(write: Future[None]) -> None:
    """Ask what became of a fragment, which Panel may not do, and write other failures than a closed page to the log."""
    error = None if write.cancelled() else write.exception()
    if error is not None and not isinstance(error, WebSocketClosedError):
        log.error("A message could not be sent: %s", error)


def _collect(session: ServerSession, event: DocumentPatchedEvent) -> None:
    """Add a change to what waits for each connection, except the one from which the change came."""
    if event.document not in sent_together:
        ORIGINAL_PATCHED(session, event)
        return
    writes: list[Any] | None = session._pending_writes
    if writes is None:
        raise RuntimeError("A document changed while its session was not locked.")
    for connection in session._subscribed_connections:
        if event.setter is session and connection is session._current_patch_connection:
            continue
        patch = next((write for write in writes if isinstance(write, Patch) and write.connection is connection), None)
        if patch is None:
            patch = Patch(connection, event.document)
            writes.append(patch)
        patch.events.append(event)


def _message(cls: type[patch_doc], events: Sequence[DocumentPatchedEvent], **metadata: Any) -> patch_doc:
    """A message with these changes of one document."""
    documents = {event.document for event in events}
    if any(document not in sent_together for document in documents):
        return ORIGINAL_CREATE(cls, events, **metadata)
    [document] = documents
    serializer = ArraysInside(references=document.models.synced_references)
    content = PatchJson(events=serializer.encode(list(events)))
    document.models.flush_synced(lambda model: not serializer.has_ref(model))
    message = cls(cls.create_header(), metadata, content)
    for buffer in serializer.buffers:  # one by one: `add_buffers` is newer than Bokeh 3.8
        message.add_buffer(buffer)
    return message


class ArraysInside(Serializer):
    """A serializer that puts all but large arrays into the JSON, compressed, as documents in files have them."""

    def _encode_bytes(self, obj: bytes | memoryview) -> BytesRep:
        if memoryview(obj).nbytes >= LARGE:
            return super()._encode_bytes(obj)
        return BytesRep(type="bytes", data=Buffer(make_id(), obj).to_base64())


log = logging.getLogger("gpexplorer.ui")
ORIGINAL_OPEN, ORIGINAL_HANDLE = WSHandler.open, WSHandler._handle
LONGEST_TEXT = 200  # characters of one argument of a log record, or of a line of a traceback
LONGEST_RECORD, MOST_LINES = 1000, 60  # characters of a log record, and lines of its traceback
CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) != "\t"} | {10: "\\n"}


class ShortText(str):
    """A text that is logged as it is, also by %r."""

    def __repr__(self) -> str:
        return str(self)


class OneLineRecord(logging.LogRecord):
    """A log record in which no text from a visitor can look like a second record, and none is kept whole.

    Line breaks in the message are escaped. A traceback keeps its lines, each of which begins with a bar. Of a message
    of a browser the log has type and size; of any other text it has `LONGEST_TEXT` characters.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _shorten(self)
        if self.exc_info and self.exc_info[0] is not None:
            lines = "".join(traceback.format_exception(*self.exc_info)).rstrip().splitlines()[-MOST_LINES:]
            self.exc_text = "\n".join(f"  | {_cut(line)}" for line in lines)  # formatters take it from here

    def getMessage(self) -> str:
        """Return the message with control characters escaped."""
        return _cut(super().getMessage(), LONGEST_RECORD).translate(CONTROL_CHARACTERS)


def _cut(text: str, longest: int = LONGEST_TEXT) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def _shortened(value: Any) -> Any:
    """An argument of a log record: a number as it is, anything else as a text that is not too long."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Message):
        size = sum(map(len, (value.header_json, value.metadata_json, value.content_json)))
        size += sum(len(buffer.to_bytes()) for buffer in value.buffers)
        return ShortText(f"a message {_cut(str(value.msgtype))} of {size} bytes")
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
    return ShortText(_cut(text)) if len(text) > LONGEST_TEXT else value


def _shorten(entry: logging.LogRecord) -> bool:
    """Cut the arguments of a record, such as an address that was refused; returns True to keep the record."""
    if isinstance(entry.args, tuple):
        entry.args = tuple(map(_shortened, entry.args))
    return True


def _is_of_open_page(entry: logging.LogRecord) -> bool:
    """Whether a record says anything else than that a visitor has closed a tab."""
    return entry.msg != "Failed sending message as connection was closed"


def repair_protocol() -> None:
    """Send numbers in place of tracebacks to browsers, escape line breaks in the log, and notice every closed page."""
    ErrorMessage.create = classmethod(_create)  # type: ignore[method-assign, assignment]
    logging.setLogRecordFactory(OneLineRecord)
    repair_connections()


def repair_connections() -> None:
    """Tell each session once that its page was closed, in whichever way Bokeh learns it first; send without delay.

    And handle every event under the document's lock. Panel makes an event wait for changes that the browser sent just
    before it, and then handled it without the lock: a panel that was opened at such a moment stayed empty.
    """
    for name in ("bokeh.server.views.ws", "panel.io.document"):
        logging.getLogger(name).addFilter(_is_of_open_page)
    logging.getLogger("tornado.access").addFilter(_shorten)  # in a notebook, other records are not ours to change
    Syncable._event_coroutine.lock = True  # type: ignore[attr-defined]
    panel_document.dispatch_tornado = _dispatch
    WSHandler.on_close = _on_close  # type: ignore[method-assign]
    BokehTornado.client_lost = _client_lost  # type: ignore[method-assign]
    WSHandler.open = _open  # type: ignore[method-assign]
    WSHandler._handle = _handle  # type: ignore[method-assign]


def _open(handler: WSHandler) -> None:
    """Open a connection. TCP would hold a message's later fragments back until the first is acknowledged, for 40 ms."""
    handler.set_nodelay(True)
    ORIGINAL_OPEN(handler)


async def _handle(handler: WSHandler, message: Message[Any]) -> Any:
    """Handle a message. One that was on its way when its page was closed has no session, and Bokeh logs an error."""
    if handler.connection is None or handler.connection._session is None:
        return None
    return await ORIGINAL_HANDLE(handler, message)


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
