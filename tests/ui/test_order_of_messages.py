"""Changes reach the browser in the order in which they were made, whether Panel or Bokeh sends them."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import panel as pn
import pytest
from bokeh.document import Document
from bokeh.models import Column, Div, TextInput
from bokeh.protocol import Protocol
from bokeh.server.connection import ServerConnection
from bokeh.server.session import ServerSession
from panel.io import document as panel_document
from panel.io.state import set_curdoc
from tornado.ioloop import IOLoop
from tornado.locks import Lock
from tornado.websocket import WebSocketHandler

from gpexplorer.ui.browser import protocol_repairs
from gpexplorer.ui.browser.protocol_repairs import send_patches_together
from visited import PATCHED


class Socket(WebSocketHandler):
    """A connection that notes the content of the messages that are written to it."""

    ws_connection = SimpleNamespace(is_closing=lambda: False)

    def __init__(self) -> None:
        self.write_lock, self.written = Lock(), list[str]()

    async def send_message(self, message: Any) -> None:
        with await self.write_lock.acquire():
            self.written.append(message.content_json)

    def write_message(self, message: Any, binary: bool = False) -> Any:
        self.written.append(message)
        result = asyncio.get_running_loop().create_future()
        result.set_result(None)
        return result


class Connection:
    """As much of a connection as a session needs."""

    protocol = Protocol()
    send_patch_document = ServerConnection.send_patch_document

    def __init__(self) -> None:
        self._socket = Socket()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool, Callable[..., None]], list[str]]:
    """A function that makes changes of a page under its lock, and returns the contents of the messages it sent."""
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, owner.__dict__[name])  # to be restored
    monkeypatch.setattr(WebSocketHandler, "write_message", Socket.write_message)
    monkeypatch.setattr(type(pn.state), "loaded", True)
    monkeypatch.setattr(protocol_repairs, "sent_together", protocol_repairs.SentTogether())
    ours = Document()
    send_patches_together(ours)

    async def told(is_busy: bool, story: Callable[..., None], is_ours: bool) -> list[str]:
        document = ours if is_ours else Document()
        document.add_root(Column(children=[TextInput(name="field")]))
        session = ServerSession("page", document, io_loop=IOLoop.current())
        document._session_context = lambda: SimpleNamespace(destroyed=False, request=None, session=session)
        monkeypatch.setitem(pn.state._thread_id_, document, threading.get_ident())
        connection = Connection()
        session.subscribe(connection)  # type: ignore[arg-type]
        socket = connection._socket
        ticket = socket.write_lock.acquire() if is_busy else None

        def changes() -> None:
            with set_curdoc(document):
                story(document.roots[0])

        work = asyncio.ensure_future(session.with_document_locked(changes))  # type: ignore[arg-type]
        await asyncio.sleep(0.02)
        if ticket is not None:
            with await ticket:
                pass
        await work
        await asyncio.sleep(0.05)
        return [text for text in socket.written if "events" in text]

    def run(is_busy: bool, story: Callable[..., None], is_ours: bool = True) -> list[str]:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, told(is_busy, story, is_ours)).result()

    return run


def first_panel_then_bokeh(root: Column) -> None:
    with panel_document.unlocked():
        root.children = [*root.children, Div(name="made by Panel")]
    root.children[1].width = 321


def first_bokeh_then_panel(root: Column) -> None:
    root.children = [*root.children, Div(name="made by Bokeh")]
    with panel_document.unlocked():
        root.children[1].width = 321


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("story", [first_panel_then_bokeh, first_bokeh_then_panel])
def test_a_model_is_known_before_it_changes(sent: Any, story: Callable[..., None], is_busy: bool):
    known, widths = set[str](), []
    for message in sent(is_busy, story):
        known |= set(re.findall(r'"type":"object","name":"Div","id":"(\w+)"', message))
        for event in json.loads(message)["events"]:
            if event["attr"] == "width":
                assert event["model"]["id"] in known
                widths.append(event["new"])
    assert widths == [321]


def test_only_the_pages_that_show_something_of_ours_are_sent_as_one_message(sent: Any):
    def two_changes(root: Column) -> None:
        root.children[0].value = "first"
        root.children[0].title = "second"

    def events(is_ours: bool) -> list[int]:
        return [len(json.loads(message)["events"]) for message in sent(False, two_changes, is_ours)]

    assert events(is_ours=True) == [2]
    assert events(is_ours=False) == [1, 1]
