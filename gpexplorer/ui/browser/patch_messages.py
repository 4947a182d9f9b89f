"""All changes of a page that are made together travel as one message.

Bokeh sends one message per change, and each array in two more fragments: 200 websocket frames for one picture of a run.
Here the changes that are made while the document is locked are collected for each connection. They become one message
when the lock is released, and arrays stand in its JSON.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from bokeh.core.serialization import Buffer, BytesRep, Serializer
from bokeh.document.events import DocumentPatchedEvent
from bokeh.protocol.messages.patch_doc import PatchJson, patch_doc
from bokeh.server.connection import ServerConnection
from bokeh.server.session import ServerSession
from bokeh.util.serialization import make_id

LARGE = 65_536  # bytes of an array that is sent beside the JSON, as base64 adds a third


class Patch:
    """The changes of one document that wait to be sent to one connection; awaiting it sends them.

    Parameters
    ----------
    connection : ServerConnection
        Where to send them.

    Attributes
    ----------
    events : list of DocumentPatchedEvent
        The changes, in the order in which they were made.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.events: list[DocumentPatchedEvent] = []

    def __await__(self) -> Generator[Any, Any, None]:
        message = self.connection.protocol.create("PATCH-DOC", self.events)
        yield from self.connection._socket.send_message(message).__await__()


def send_patches_together() -> None:
    """Send the changes of every server in this process as said above."""
    ServerSession._document_patched = _collect  # type: ignore[method-assign]
    patch_doc.create = classmethod(_message)  # type: ignore[method-assign, assignment]


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
            patch = Patch(connection)
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
