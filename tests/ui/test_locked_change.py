"""Changes after work in a thread wait for the lock of the document, and are dropped when the page is closed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import panel as pn
import pytest
from bokeh.document import Document
from bokeh.events import DocumentReady
from bokeh.protocol.messages.patch_doc import patch_doc
from bokeh.server.session import ServerSession
from bokeh.server.views.ws import WSHandler
from panel.io import document as panel_document
from panel.io.state import set_curdoc

from gpexplorer.ui.browser import patch_messages
from gpexplorer.ui.browser.callbacks import change
from gpexplorer.ui.browser.protocol_repairs import repair_connections


def served(destroyed):
    document = Document()
    document._session_context = lambda: SimpleNamespace(destroyed=destroyed, request=None, session=None)
    return document


def test_a_change_waits_for_the_next_tick_of_its_document():
    document, changes = served(destroyed=False), []
    change(document, lambda: changes.append(1))
    assert changes == []
    [callback] = document.session_callbacks
    callback.callback()
    assert changes == [1]


def test_a_page_that_is_closed_is_left_alone():
    document, changes = served(destroyed=True), []
    change(document, lambda: changes.append(1))
    assert changes == []
    assert document.session_callbacks == []


def test_without_a_server_a_change_is_made_at_once():
    for document in (None, Document()):
        changes = []
        change(document, lambda changes=changes: changes.append(1))
        assert changes == [1]


def test_an_event_that_waits_for_an_earlier_change_is_handled_under_the_lock():
    repair_connections()
    document = served(destroyed=False)

    async def earlier() -> None:
        pass

    pn.state._change_callbacks[document] = {"earlier": earlier}
    button = pn.widgets.Button()
    try:
        with set_curdoc(document):
            button._server_event(document, DocumentReady())
    finally:
        del pn.state._change_callbacks[document]

    [callback] = document.session_callbacks
    assert not getattr(callback.callback, "nolock", False)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_message_of_a_page_that_is_closed_is_dropped(is_open: bool):
    repair_connections()
    handled: list[Any] = []

    async def handle(message: Any, connection: Any) -> None:
        handled.append(message)

    connection = SimpleNamespace(_session="a session" if is_open else None)
    socket = SimpleNamespace(connection=connection, handler=SimpleNamespace(handle=handle))
    with ThreadPoolExecutor(1) as thread:  # a browser test may have left a running loop in the main thread
        assert thread.submit(asyncio.run, WSHandler._handle(socket, "a message")).result() is None

    assert handled == ["a message"] * is_open


@pytest.mark.parametrize("waiting", [[], ["an earlier change"]])
def test_a_change_of_panel_does_not_overtake_one_that_waits(waiting: list[str], monkeypatch: pytest.MonkeyPatch):
    for owner, name in (
        (ServerSession, "_document_patched"), (patch_doc, "create"),
        (panel_document, "write_events"), (panel_document, "schedule_write_events"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, owner.__dict__[name])  # to be restored
    written: list[Any] = []
    monkeypatch.setattr(patch_messages, "ORIGINAL_WRITE", lambda *arguments: written.append(arguments[-1]))
    patch_messages.send_patches_together()
    document, collected = Document(), []
    session = SimpleNamespace(_pending_writes=waiting, _subscribed_connections=[])
    document._session_context = lambda: SimpleNamespace(destroyed=False, request=None, session=session)
    model = pn.widgets.TextInput().get_root(document)
    document.add_root(model)
    document.on_change(collected.append)
    monkeypatch.setattr(type(pn.state), "loaded", True)
    monkeypatch.setitem(pn.state._thread_id_, document, threading.get_ident())

    with set_curdoc(document), panel_document.unlocked():
        model.width = 321

    assert len(written) == (not waiting)
    assert [event.attr for event in collected] == ["width"] * len(waiting)
