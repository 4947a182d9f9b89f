"""Clients that send what no browser would: any Host, any Origin, any websocket message."""

from __future__ import annotations

import asyncio
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

Answer = tuple[int, dict[str, str], str]  # status, headers, text


def get(
    port: int, path: str, host: str = "", origin: str = "", address: str = "localhost", method: str = "GET"
) -> Answer:
    """One request; `host` is the Host header, by default the server's own name."""
    connection = http.client.HTTPConnection(address, port, timeout=60)
    headers = {"Host": host or f"localhost:{port}", **({"Origin": origin} if origin else {})}
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read().decode("utf-8", "replace")
    finally:
        connection.close()


def token_of(port: int, path: str = "/explorer") -> str:
    """The token of a new session, as the page has it."""
    text = get(port, path)[2]
    start = text.index('"token":"') + len('"token":"')
    return text[start : text.index('"', start)]


def talk(port: int, token: str, messages: list[str], host: str = "", origin: str = "") -> list[str]:
    """Open a websocket, send these fragments, and return what comes back within two seconds of the last one.

    The list is ["status N"] where the server refuses the websocket.
    """
    headers = {"Host": host or f"localhost:{port}", **({"Origin": origin} if origin else {})}

    async def conversation() -> list[str]:
        request = HTTPRequest(f"ws://localhost:{port}/explorer/ws", headers=headers)
        try:
            socket = await websocket_connect(request, subprotocols=["bokeh", token])
        except HTTPClientError as error:
            return [f"status {error.code}"]
        answers: list[str] = []
        for message in messages:
            await socket.write_message(message)
        while True:
            try:
                answer: Any = await asyncio.wait_for(socket.read_message(), timeout=2)
            except TimeoutError:
                break
            if answer is None:
                break
            answers.append(answer if isinstance(answer, str) else repr(answer))
        socket.close()
        await asyncio.sleep(0.2)  # the stream is closed by then
        return answers

    with ThreadPoolExecutor(1) as thread:  # a thread without an event loop; a browser test may have left one here
        return thread.submit(asyncio.run, conversation()).result()


def fragments(kind: str, content: Any) -> list[str]:
    """The parts of one message of Bokeh's protocol."""
    return [json.dumps({"msgid": "1", "msgtype": kind}), "{}", json.dumps(content)]
