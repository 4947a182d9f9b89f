"""A server of small pages in this process, and visits to it on a loop of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import panel as pn
import pytest
from bokeh.core.serialization import Buffer
from bokeh.protocol.messages.error import error as ErrorMessage
from bokeh.protocol.messages.patch_doc import patch_doc
from bokeh.server.session import ServerSession
from bokeh.server.tornado import BokehTornado
from bokeh.server.views.ws import WSHandler
from panel.io import document as panel_document
from panel.io import server as panel_server
from panel.io.server import DocHandler
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.websocket import WebSocketClientConnection, websocket_connect

from gpexplorer.ui.browser.callbacks import repeat
from gpexplorer.ui.browser.protocol_repairs import repair_protocol, send_patches_together
from gpexplorer.ui.connections import follow_connection
from gpexplorer.ui.gate.request_guard import protect

PATCHED = (
    (WSHandler, "on_close"),
    (WSHandler, "open"),
    (WSHandler, "_handle"),
    (BokehTornado, "client_lost"),
    (ServerSession, "_document_patched"),
    (patch_doc, "create"),
    (panel_document, "write_events"),
    (panel_document, "schedule_write_events"),
    (panel_server, "server_html_page_for_session"),
    (ErrorMessage, "create"),
)


class Visited:
    """A server of small pages, and requests to it."""

    def __init__(self, **limits: int) -> None:
        self.built = 0
        self.pauses: list[int] = []
        self.calls: list[Any] = []  # the documents for which what a page repeats was called
        self.ended: list[None] = []  # one entry for each page that has ended
        repair_protocol()
        send_patches_together()
        self.server = pn.serve(
            {"explorer": self.page}, port=0, start=False, show=False, sign_sessions=True, secret_key="k" * 40,
            generate_session_ids=True, use_xheaders=True, check_unused_sessions_milliseconds=200, verbose=False,
        )  # fmt: skip
        self.application: BokehTornado = self.server._tornado
        self.application._websocket_origins = {f"localhost:{self.server.port}"}
        protect(self.server, **limits)
        self.server.start()

    def page(self) -> pn.pane.HTML:
        self.built += 1
        self.follower = Follower(self.pauses, self.built)
        follow_connection(pn.state.curdoc, self.follower.pause)
        stop = repeat(lambda: self.calls.append(pn.state.curdoc), 20)
        pn.state.on_session_destroyed(lambda _: self.ended.append(stop()))
        return pn.pane.HTML(f"page {self.built}")

    async def get(self, query: str = "", path: str = "/explorer", **headers: str) -> HTTPResponse:
        url = f"http://localhost:{self.server.port}{path}?{query}"
        return await AsyncHTTPClient().fetch(HTTPRequest(url, headers=headers), raise_error=False)

    async def connect(self, answer: HTTPResponse) -> WebSocketClientConnection:
        token = re.search(r'"token":"([^"]+)"', answer.body.decode())[1]
        request = HTTPRequest(f"ws://localhost:{self.server.port}/explorer/ws")
        socket = await websocket_connect(request, subprotocols=["bokeh", token])
        await socket.read_message()  # ACK
        return socket

    @staticmethod
    async def leave(socket: WebSocketClientConnection) -> None:
        """Close a connection, and wait until it is closed."""
        socket.close()
        while await socket.read_message() is not None:
            pass

    @property
    def sessions(self) -> int:
        return len(self.application.get_sessions("/explorer"))


class Follower:
    """Something that can be paused."""

    def __init__(self, pauses: list[int], number: int) -> None:
        self._pauses, self._number = pauses, number

    def pause(self) -> None:
        self._pauses.append(self._number)


async def message(socket: WebSocketClientConnection) -> tuple[dict[str, Any], dict[str, Any], list[Buffer]]:
    """Header, content and buffers of the next message."""
    header, _, content = [json.loads(await socket.read_message()) for _ in range(3)]
    buffers = []
    for _ in range(header.get("num_buffers", 0)):
        buffers.append(Buffer(json.loads(await socket.read_message())["id"], await socket.read_message()))
    return header, content, buffers


async def soon(holds: Callable[[], bool]) -> None:
    """Wait until this holds, at most 10 s."""
    for _ in range(200):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("not within 10 s")


@pytest.fixture
def visit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that runs a visit on a loop of its own, and what the server has patched is restored afterwards."""
    for name in ("get_session", "get"):
        monkeypatch.setattr(DocHandler, name, getattr(DocHandler, name))
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, owner.__dict__[name])
    before = logging.getLogRecordFactory()

    def run(story: Callable[[Visited], Awaitable[None]], max_sessions: int = 0, **limits: int) -> None:
        async def told() -> None:
            visited = Visited(max_sessions=max_sessions, **limits)
            try:
                await asyncio.wait_for(story(visited), 30)
            finally:
                visited.server.stop()

        with ThreadPoolExecutor(1) as thread:  # without an event loop; a browser test may have left one here
            thread.submit(asyncio.run, told()).result()

    yield run
    logging.setLogRecordFactory(before)
