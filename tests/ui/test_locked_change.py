"""Changes after work in a thread wait for the lock of the document, and are dropped when the page is closed."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import panel as pn
import pytest
from bokeh.document import Document
from bokeh.events import DocumentReady
from bokeh.server.views.ws import WSHandler
from panel.io.state import set_curdoc

from gpexplorer.ui.browser.callbacks import change, once_settled
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


def test_the_first_event_acts_at_once_and_of_later_ones_the_last():
    document, acts = served(destroyed=False), []
    watch = once_settled(lambda: acts.append(len(acts)), 300)
    with set_curdoc(document):
        watch(None)
        assert acts == [0]
        for _ in range(3):
            watch(None)
        assert acts == [0]
        assert [callback.timeout for callback in document.session_callbacks] == [300] * 3
        for callback in document.session_callbacks:
            callback.callback()
        assert acts == [0, 1]
    watch(None)  # without a server
    assert acts == [0, 1, 2]


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
