"""A client that opens a page as a browser does, over HTTP and a websocket, but draws nothing.

It knows Bokeh's protocol as far as the explorer needs it: it reads the document, says that the document is ready,
presses buttons, and acknowledges each frame as `Pulse` in the browser does.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

PATIENCE = 120.0  # seconds to wait for any answer
LARGEST = 2**28  # bytes of a message


class PageClient:
    """One open page.

    Parameters
    ----------
    address : str
        Host and port, such as "localhost:5006".
    query : str
        The part of the address after "?".

    Attributes
    ----------
    models : dict
        Id of each model -> its JSON, as first sent.
    step : int
        The step shown.
    frames : int
        Number of frames received.
    received : int
        Bytes received over the websocket.
    """

    def __init__(self, address: str, query: str = "") -> None:
        self._address, self._query = address, query
        self.models: dict[str, dict[str, Any]] = {}
        self.step, self.frames, self.received = 0, 0, 0
        self._socket: WebSocketClientConnection | None = None
        self._changed = asyncio.Condition()
        self._reader: asyncio.Task[None] | None = None
        self._pulse, self._count = "", 0

    async def open(self) -> None:
        """Load the page, connect, read the document, and say that it is ready."""
        AsyncHTTPClient.configure(None, max_clients=1000)
        url = f"http://{self._address}/explorer" + f"?{self._query or 'page=laboratory'}"
        answer = await AsyncHTTPClient().fetch(_request(url))
        token = re.search(r'"token":"([^"]+)"', answer.body.decode())
        if token is None:
            raise RuntimeError(f"The page {url} holds no token.")
        request = _request(f"ws://{self._address}/explorer/ws", {"Origin": f"http://{self._address}"})
        self._socket = await websocket_connect(request, max_message_size=LARGEST, subprotocols=["bokeh", token[1]])
        await self._message()  # ACK
        self._send("PULL-DOC-REQ", {})
        document = {}
        while "doc" not in document:
            document = await self._message()
        self._learn(document)
        self._pulse = self.model("beat")
        self._reader = asyncio.create_task(self._read())
        self._event("document_ready")

    async def until(self, holds: Callable[[], bool], seconds: float = PATIENCE) -> float:
        """Wait until this holds, looking after each message, and return the seconds that it took."""
        begin = time.perf_counter()
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(holds), seconds)
        return time.perf_counter() - begin

    async def until_ready(self) -> float:
        """Wait until the page has its buttons and has been sent its first frame; returns the seconds."""
        return await self.until(lambda: self.frames > 0)

    async def until_step(self, step: int) -> float:
        """Wait until this step or a later one is shown, and return the seconds."""
        return await self.until(lambda: self.step >= step)

    def press(self, description: str) -> None:
        """Click the button whose tooltip begins with this text."""
        button = self.model("description", description)
        self._event("dom_event", model={"id": button}, node="click", data={"type": "map", "entries": []})

    def model(self, name: str, beginning: str = "") -> str:
        """The id of the first component that has an attribute of this name whose text begins with `beginning`."""
        for key, model in self.models.items():
            data = model["attributes"].get("data")
            attributes = data.get("attributes", {}) if isinstance(data, dict) else {}
            if name in attributes and str(attributes[name]).startswith(beginning):
                return key
        raise LookupError(f"The page has no component with {name}={beginning!r}.")

    def close(self) -> None:
        """Close the tab."""
        if self._reader is not None:
            self._reader.cancel()
        if self._socket is not None:
            self._socket.close()

    async def _read(self) -> None:
        """Follow the page: learn new models, and acknowledge each frame."""
        while True:
            content = await self._message()
            async with self._changed:
                self._learn(content)
                for event in content.get("events", []):
                    self._follow(event)
                self._changed.notify_all()

    def _follow(self, event: dict[str, Any]) -> None:
        if event.get("attr") == "at" and isinstance(event.get("new"), int):
            self.step = event["new"]
        if event.get("attr") == "beat":
            self.frames += 1
            self._event("data_event", model={"id": self._pulse}, data=event["new"])

    def _learn(self, content: Any) -> None:
        for part in _objects(content):
            self.models[part["id"]] = part

    def _event(self, name: str, **values: Any) -> None:
        entries = [[key, value] for key, value in values.items()]
        data = {"type": "event", "name": name, "values": {"type": "map", "entries": entries}}
        event = {"kind": "MessageSent", "msg_type": "bokeh_event", "msg_data": data}
        self._send("PATCH-DOC", {"events": [event]})

    def _send(self, kind: str, content: Any) -> None:
        if self._socket is None:
            raise RuntimeError("The page is not open.")
        self._count += 1
        for part in ({"msgid": str(self._count), "msgtype": kind}, {}, content):
            self._socket.write_message(json.dumps(part))

    async def _message(self) -> dict[str, Any]:
        """The content of the next message; its buffers are skipped."""
        header = json.loads(await self._fragment())
        await self._fragment()
        content = json.loads(await self._fragment())
        for _ in range(2 * header.get("num_buffers", 0)):
            await self._fragment()
        if header["msgtype"] == "ERROR":
            raise RuntimeError(f"The server answered: {content}")
        return dict(content)

    async def _fragment(self) -> Any:
        assert self._socket is not None
        fragment = await self._socket.read_message()
        if fragment is None:
            raise ConnectionError("The server closed the page.")
        self.received += len(fragment)
        return fragment


def _request(url: str, headers: dict[str, str] | None = None) -> HTTPRequest:
    return HTTPRequest(url, headers=headers, request_timeout=PATIENCE, connect_timeout=PATIENCE)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object with attributes inside this JSON."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            if part.get("type") == "object" and "id" in part and "attributes" in part:
                yield part
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)
