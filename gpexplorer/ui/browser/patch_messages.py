"""All changes of a page that are made together travel as one message.

Bokeh sends one message per change, and each array in two more fragments: 200 websocket frames for one picture of a run.
Here the changes that are made while the document is locked are collected for each connection. They become one message
when the lock is released, and arrays stand in its JSON.

Panel writes its own changes past Bokeh: at once, or a little later where the connection is busy. One message could then
overtake another and speak of a model that the browser did not know yet: a fold that was opened on a busy machine stayed
empty. So messages travel in the order in which their changes were made. What Panel keeps for later goes first, before
changes that were made after it; and before Panel writes, changes that wait become messages as well.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from bokeh.core.serialization import Buffer, BytesRep, Serializer
from bokeh.document import Document
from bokeh.document.events import DocumentPatchedEvent
from bokeh.protocol.messages.patch_doc import PatchJson, patch_doc
from bokeh.server.connection import ServerConnection
from bokeh.server.session import ServerSession
from bokeh.util.serialization import make_id
from panel.io import document as panel_document

ORIGINAL_WRITE, ORIGINAL_SCHEDULE = panel_document.write_events, panel_document.schedule_write_events
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


def send_patches_together() -> None:
    """Send the changes of every server in this process as said above."""
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


def _collect(session: ServerSession, event: DocumentPatchedEvent) -> None:
    """Add a change to what waits for each connection, except the one from which the change came."""
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
    [document] = {event.document for event in events}
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
