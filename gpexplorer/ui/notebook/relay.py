"""The widget that puts a page of the kernel into a cell, and passes its files and messages on through the comm.

Bytes are sent as base64: the gateway of Jupyter Server, which connects to kernels elsewhere, ends the connection at the
first message of a comm that has buffers (ipywidgets issue 3798).
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError

from ..text import sentence
from .kernel_server import file, kernel_server

GATHER = 0.004  # seconds in which the fragments of a message are gathered: one message of the comm for all of them
SILENCE = 150.0  # seconds; the browser says that it is there every 20 s, or every minute in a tab in the background


class Connection:
    """The websocket of one view of a page.

    Parameters
    ----------
    send : callable
        Sends a message to this view.

    Attributes
    ----------
    heard : float
        `time.monotonic()` when the browser last sent something.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send, self.heard = send, time.monotonic()
        self._fragments: list[str | bytes] = []
        self._socket: WebSocketClientConnection | None = None

    async def open(self, token: str) -> None:
        """Connect to the session that the page with this token belongs to."""
        self._socket = await kernel_server().connect(token, self._receive)
        self._look()

    async def send(self, fragments: list[str | dict[str, str]]) -> None:
        """Pass on what the browser sent."""
        self.heard = time.monotonic()
        if self._socket is None:
            return
        try:
            written = [  # all at once: another message must not come between two fragments
                self._socket.write_message(part)
                if isinstance(part, str)
                else self._socket.write_message(b64decode(part["base64"]), binary=True)
                for part in fragments
            ]
            for future in written:
                await future
        except WebSocketClosedError:
            return

    def close(self) -> None:
        """Close the websocket; the page's session ends a few seconds later."""
        if self._socket is not None:
            self._socket.close()

    def _look(self) -> None:
        """Close the websocket of a browser that has been silent for long: it was closed, or its machine sleeps."""
        if time.monotonic() - self.heard > SILENCE:
            self.close()
        elif self._socket is not None and self._socket.close_code is None:
            asyncio.get_running_loop().call_later(SILENCE / 4, self._look)

    def _receive(self, fragment: str | bytes | None) -> None:
        if fragment is None:
            self._send({"ended": True})
            return
        if not self._fragments:
            asyncio.get_running_loop().call_later(GATHER, self._flush)
        self._fragments.append(fragment)

    def _flush(self) -> None:
        parts = [part if isinstance(part, str) else _as_text(part) for part in self._fragments]
        self._fragments.clear()
        self._send({"fragments": parts})


class Relay(anywidget.AnyWidget):
    """A page in a cell.

    Parameters
    ----------
    page : callable
        A bound method that builds the page, called once for every view of it.
    title : str
        Name of the page for readers of the screen.
    height : int, default 0
        Pixels; 0 for the height of what the page holds.
    """

    _esm = Path(__file__).with_name("relay.js")
    title = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(0).tag(sync=True)

    def __init__(self, page: Callable[[], Any], title: str, height: int = 0) -> None:
        super().__init__(title=title, height=height)
        self._page = kernel_server().add(page)
        self._connections: dict[str, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_msg(self._receive)

    def end(self, notice: str) -> None:
        """Close all views, which say why."""
        for view, connection in list(self._connections.items()):
            connection.close()
            self.send({"view": view, "notice": notice})
        self._connections.clear()

    def _receive(self, _: Any, message: Any, __: list[Any]) -> None:
        task = asyncio.ensure_future(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: dict[str, Any]) -> None:
        view, reply = str(message["view"]), {"view": message["view"], "id": message.get("id")}
        try:
            action = _ACTIONS[message["ask"]]
            fields = await action(self, view, message)
            if message.get("id"):
                self.send({**reply, **fields})
        except Exception as error:
            self.send({**reply, "notice": sentence(error, "the page of this cell was being sent")})

    async def _send_page(self, view: str, message: dict[str, Any]) -> dict[str, Any]:
        return {"page": await kernel_server().page(self._page, bool(message["dark"]))}

    async def _send_file(self, view: str, message: dict[str, Any]) -> dict[str, Any]:
        page_file = file(message["path"])
        return {"type": page_file.type, **_as_text(page_file.content)}

    async def _connect(self, view: str, message: dict[str, Any]) -> dict[str, Any]:
        await self._disconnect(view, message)
        connection = Connection(lambda fields: self.send({"view": view, **fields}))
        await connection.open(message["token"])
        self._connections[view] = connection
        return {}

    async def _pass_on(self, view: str, message: dict[str, Any]) -> dict[str, Any]:
        if view in self._connections:
            await self._connections[view].send(message["fragments"])
        return {}

    async def _disconnect(self, view: str, message: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections.pop(view, None)
        if connection is not None:
            connection.close()
        return {}

    async def _beat(self, view: str, message: dict[str, Any]) -> dict[str, Any]:
        if view in self._connections:
            self._connections[view].heard = time.monotonic()
        return {}


def _as_text(content: bytes) -> dict[str, str]:
    return {"base64": b64encode(content).decode("ascii")}


_ACTIONS: dict[str, Callable[[Relay, str, dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]] = {
    "page": Relay._send_page,
    "file": Relay._send_file,
    "connect": Relay._connect,
    "send": Relay._pass_on,
    "disconnect": Relay._disconnect,
    "beat": Relay._beat,
}
