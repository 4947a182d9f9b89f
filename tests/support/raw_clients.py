"""Clients that send what no browser would: any Host, any Origin, any websocket message."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

Answer = tuple[int, dict[str, str], str]  # status, headers, text
PATIENCE = 30  # seconds to wait for an answer: a busy server may be building a page
BUILDING = 150  # seconds to wait for a page, which the first visitor of a server on a busy machine needs


def get(
    port: int, path: str, *, host: str = "", origin: str = "", visitor: str = "", method: str = "GET",
    address: str = "localhost",
) -> Answer:  # fmt: skip
    """One request; `host` is the Host header, by default the server's own name, and `visitor` the address that a proxy
    names."""
    connection = http.client.HTTPConnection(address, port, timeout=BUILDING)
    headers = {"Host": host or f"localhost:{port}", **({"Origin": origin} if origin else {})}
    headers |= {"X-Real-Ip": visitor} if visitor else {}
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


def half_open(port: int, text: str) -> socket.socket:
    """A connection on which only this has been sent."""
    connection = socket.create_connection(("localhost", port), timeout=PATIENCE)
    connection.sendall(text.encode())
    return connection


def talk(
    port: int, token: str, messages: Sequence[str | bytes], *, host: str = "", origin: str = "", until: str = "",
    path: str = "/explorer",
) -> list[str]:  # fmt: skip
    """Open a websocket, send these fragments, and return what comes back up to a fragment with the text `until`.

    The list is ["status N"] where the server refuses the websocket, and ends where the server closes it.
    """
    headers = _upgrade(token) | {"Host": host or f"localhost:{port}"} | ({"Origin": origin} if origin else {})
    head = f"GET {path}/ws HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("localhost", port), timeout=PATIENCE) as connection:
        connection.sendall(f"{head}\r\n".encode())
        with connection.makefile("rb") as stream:
            status = int(stream.readline().split()[1])
            if status != 101:
                return [f"status {status}"]
            while stream.readline().strip():
                pass
            answers = _fragments_until(stream, "ACK")  # what is sent before it is lost
            if messages:
                with contextlib.suppress(OSError):  # the server may close before it has read all
                    connection.sendall(b"".join(map(_frame, messages)))
                answers += _fragments_until(stream, until)
            return answers


def compression(port: int, token: str) -> str:
    """What the server answers to a websocket that offers to be compressed."""
    connection = http.client.HTTPConnection("localhost", port, timeout=BUILDING)
    try:
        offer = {"Origin": f"http://localhost:{port}", "Sec-WebSocket-Extensions": "permessage-deflate"}
        connection.request("GET", "/explorer/ws", headers=_upgrade(token) | offer)
        return connection.getresponse().headers.get("Sec-WebSocket-Extensions", "")
    finally:
        connection.close()


def _upgrade(token: str) -> dict[str, str]:
    """The headers of a request for a websocket."""
    return {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": f"bokeh, {token}",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(), "Sec-WebSocket-Version": "13",
    }  # fmt: skip


def fragments(kind: str, content: Any) -> list[str]:
    """The parts of one message of Bokeh's protocol."""
    return [json.dumps({"msgid": "1", "msgtype": kind}), "{}", json.dumps(content)]


def _frame(part: str | bytes) -> bytes:
    """A frame of a client, of text or of bytes; the mask of zeros leaves the content as it is."""
    data = part if isinstance(part, bytes) else part.encode()
    size = len(data)
    short, long = (126, "!H") if size < 1 << 16 else (127, "!Q")
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | short]) + struct.pack(long, size)
    return (b"\x82" if isinstance(part, bytes) else b"\x81") + length + bytes(4) + data


def _fragments_until(stream: BinaryIO, until: str) -> list[str]:
    answers: list[str] = []
    while until not in "".join(answers[-1:]):
        try:
            head = stream.read(2)
            if len(head) < 2 or head[0] & 0x0F == 8:  # the server has closed the connection
                break
            length = head[1]
            if length >= 126:
                size = 2 if length == 126 else 8
                length = int.from_bytes(stream.read(size))
            answers.append(stream.read(length).decode("utf-8", "replace"))
        except OSError:
            break
    return answers
