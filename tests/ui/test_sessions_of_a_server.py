"""Sessions of a server in this process: how many there may be, who may begin one, and when one is over."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bokeh.core.serialization import Buffer, Serialized
from bokeh.document import Document
from bokeh.models import ColumnDataSource
from bokeh.protocol.message import Message
from bokeh.server.connection import ServerConnection
from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClosedError

from gpexplorer.ui import connections
from gpexplorer.ui.browser.protocol_repairs import LARGE
from gpexplorer.ui.gate import request_guard, visitors
from gpexplorer.ui.gate.visitors import Budget
from visited import Visited, message, soon, visit

__all__ = ["visit"]  # a fixture


def test_a_session_too_many_is_refused_and_a_known_one_may_connect(visit: Callable[..., None]):
    async def story(visited: Visited) -> None:
        answers = [await visited.get() for _ in range(2)]
        sockets = [await visited.connect(answer) for answer in answers]
        refused = await visited.get()
        assert refused.code == 503
        assert "2 pages are open, which is the limit of this server" in refused.body.decode()
        assert visited.sessions == 2
        sockets[0].close()
        again = await visited.connect(answers[0])  # the network failed for a moment
        for opened in (sockets[1], again):
            await visited.leave(opened)

    visit(story, max_sessions=2)


def test_sessions_that_never_connect_give_way(visit: Callable[..., None]):
    """GETs without a websocket do not lock anyone out, and the pages that people look at stay."""

    async def story(visited: Visited) -> None:
        open_page = await visited.connect(await visited.get())
        [looked_at] = visited.application.get_sessions("/explorer")
        for _ in range(6):
            assert (await visited.get()).code == 200
        second = await visited.connect(await visited.get())
        await soon(lambda: visited.sessions <= 3)
        assert looked_at in visited.application.get_sessions("/explorer")
        for opened in (open_page, second):
            await visited.leave(opened)

    visit(story, max_sessions=3)


def test_the_address_with_most_unconnected_sessions_gives_way_first(visit: Callable[..., None]):
    async def story(visited: Visited) -> None:
        for address in ("192.0.2.1", "192.0.2.2", "192.0.2.2"):
            await visited.get(**{"X-Real-Ip": address})
        first, *others = visited.application.get_sessions("/explorer")
        await visited.get(**{"X-Real-Ip": "192.0.2.3"})
        assert [session.expiration_requested for session in (first, *others)] == [False, True, False]

    visit(story, max_sessions=3)


def test_one_address_may_have_fewer_pages_than_the_server(visit: Callable[..., None]):
    """Its pages that were never connected give way first, and other addresses have places left."""

    async def story(visited: Visited) -> None:
        first, second = {"X-Real-Ip": "192.0.2.1"}, {"X-Real-Ip": "192.0.2.2"}
        sockets = [await visited.connect(await visited.get(**first))]
        assert (await visited.get(**first)).code == 200
        sockets.append(await visited.connect(await visited.get(**first)))  # the page that nobody looks at gives way
        refused = await visited.get(**first)
        assert (refused.code, "2 pages are open at this address" in refused.body.decode()) == (429, True)
        sockets.append(await visited.connect(await visited.get(**second)))
        for opened in sockets:
            await visited.leave(opened)

    visit(story, max_sessions=4, max_per_address=2)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address of their own")
def test_connections_that_are_no_websocket_give_way(visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch):
    """Open files ran out, and then nobody was answered and the log grew by a megabyte per second."""
    monkeypatch.setattr(visitors, "MOST_CONNECTIONS", 8)

    async def story(visited: Visited) -> None:
        answer = await visited.get()
        page = await visited.connect(answer)
        hosts = ["127.0.0.2"] + ["127.0.0.1"] * 30
        streams = [
            await asyncio.open_connection("127.0.0.1", visited.server.port, local_addr=(host, 0)) for host in hosts
        ]
        assert (await visited.get()).code == 200
        ends = [asyncio.create_task(reader.read(1)) for reader, _ in streams]
        await asyncio.wait(ends[1:20])
        assert not ends[0].done()
        assert 5 <= sum(not end.done() for end in ends) <= 7
        sockets = [page, *[await visited.connect(answer) for _ in range(visitors.MOST_SOCKETS - 1)]]
        with pytest.raises(HTTPClientError, match="429"):
            await visited.connect(answer)
        for end, (_, writer) in zip(ends, streams, strict=True):
            writer.close()
            end.cancel()
        for opened in sockets:
            await visited.leave(opened)

    visit(story)


def test_one_address_has_a_budget_of_pages(visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(visitors, "Budget", lambda *_: Budget(2, 1e-3))

    async def story(visited: Visited) -> None:
        codes = [(await visited.get(**{"X-Real-Ip": "192.0.2.1"})).code for _ in range(3)]
        assert codes == [200, 200, 429]
        assert (await visited.get(**{"X-Real-Ip": "192.0.2.2"})).code == 200
        assert (await visited.get(**{"X-Real-Ip": "2001:db8::1"})).code == 200
        assert visitors.network("2001:db8::1") == visitors.network("2001:db8::2:3") != visitors.network("2001:db8:1::")

    visit(story, max_sessions=60)


def test_a_budget_grows_back(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    monkeypatch.setattr(visitors.time, "monotonic", lambda: clock[0])
    budget = Budget(2, 0.5)
    assert [budget.spend() for _ in range(3)] == [0.0, 0.0, 2.0]
    clock[0] = 2.0
    assert [budget.spend() for _ in range(2)] == [0.0, 2.0]
    clock[0] = 1000.0
    assert [budget.spend() for _ in range(3)] == [0.0, 0.0, 2.0]


def test_a_message_whose_rest_does_not_come_ends_the_connection(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(request_guard, "PATIENCE", 0.3)

    async def story(visited: Visited) -> None:
        opened = await visited.connect(await visited.get())
        header = {"msgid": "1", "msgtype": "PATCH-DOC", "num_buffers": 1}
        for part in (header, {}, {"events": []}):
            await opened.write_message(json.dumps(part))
        while await opened.read_message() is not None:
            pass
        await soon(lambda: not visited.application._clients)
        assert opened.close_code == request_guard.TOO_SLOW
        opened.close()

    visit(story)


def test_the_parts_of_a_message_do_not_wait_for_each_other(visit: Callable[..., None]):
    async def story(visited: Visited) -> None:
        opened = await visited.connect(await visited.get())
        [connection] = visited.application._clients
        used = connection._socket.ws_connection.stream.socket
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        opened.close()

    visit(story)


@pytest.mark.parametrize(
    ("site", "use", "status"),
    [
        ("cross-site", "image", 403),
        ("same-site", "iframe", 403),
        ("cross-site", "document", 200),
        ("none", "document", 200),
        ("same-origin", "empty", 200),
    ],
)
def test_another_site_cannot_begin_sessions_by_pictures_or_frames(
    visit: Callable[..., None], site: str, use: str, status: int
):
    async def story(visited: Visited) -> None:
        answer = await visited.get(**{"Sec-Fetch-Site": site, "Sec-Fetch-Dest": use})
        assert answer.code == status
        assert visited.built == (status == 200)

    visit(story)


def test_work_is_paused_and_the_session_ends_once_its_tab_is_closed(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "PAUSE_AFTER", 0.1)
    monkeypatch.setattr(connections, "END_AFTER", 0.6)

    async def story(visited: Visited) -> None:
        answer = await visited.get()
        socket = await visited.connect(answer)
        socket.close()
        await asyncio.sleep(0.03)
        repeated = await visited.connect(answer)  # the network failed for a moment
        await asyncio.sleep(0.8)
        assert (visited.pauses, visited.sessions) == ([], 1)
        repeated.close()
        await soon(lambda: visited.pauses == [1])
        assert visited.sessions == 1
        await soon(lambda: visited.sessions == 0)

    visit(story)


def test_what_a_page_repeats_knows_its_document_and_ends_with_the_page(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "END_AFTER", 0.1)

    async def story(visited: Visited) -> None:
        socket = await visited.connect(await visited.get())
        [session] = visited.application.get_sessions("/explorer")
        document = session.document
        await soon(lambda: len(visited.calls) > 2)
        assert set(visited.calls) == {document}
        socket.close()
        await soon(lambda: visited.ended == [None])  # stopping what has ended already is no error
        count = len(visited.calls)
        await asyncio.sleep(0.1)
        assert len(visited.calls) == count

    visit(story)


@pytest.mark.parametrize("ping_first", [False, True])
def test_a_closed_page_is_noticed_once_whoever_notices_it_first(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ping_first: bool
):
    """Bokeh's ping of all pages may find a closed connection before the connection has said that it is closed."""
    monkeypatch.setattr(connections, "PAUSE_AFTER", 0.05)

    async def story(visited: Visited) -> None:
        socket = await visited.connect(await visited.get())
        if ping_first:
            monkeypatch.setattr(ServerConnection, "send_ping", unreachable)
            visited.application._keep_alive()
        socket.close()
        await soon(lambda: visited.pauses == [1])
        await asyncio.sleep(0.1)
        assert visited.pauses == [1]

    visit(story)
    assert "Traceback" not in caplog.text


def unreachable(_: ServerConnection) -> None:
    raise WebSocketClosedError


def add_buffer_of_bokeh_3_8(message: Any, buffer: Buffer) -> None:
    message._header["num_buffers"] = message._header.get("num_buffers", 0) + 1
    message._header_json = None
    message._buffers.append(buffer)


def test_changes_that_are_made_together_are_one_message_with_their_arrays(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Message, "add_buffer", add_buffer_of_bokeh_3_8)
    monkeypatch.delattr(Message, "add_buffers", raising=False)

    async def story(visited: Visited) -> None:
        socket = await visited.connect(await visited.get())
        for _ in range(2):  # metadata and content of the acknowledgement
            await socket.read_message()
        [session] = visited.application.get_sessions("/explorer")
        numbers, large = np.arange(50) + 1e9 / 3, np.arange(LARGE)
        sources = [ColumnDataSource({"x": [0.0]}) for _ in range(3)]

        def change() -> None:
            session.document.title = "changed"
            session.document.add_root(sources[0])
            sources[0].data = {"x": numbers, "long name": [None, "a"] * 25}
            sources[0].data = {"x": numbers + 1}
            session.document.add_root(sources[1])

        await session.with_document_locked(change)
        header, content, none = await message(socket)
        assert (header["msgtype"], len(content["events"]), none) == ("PATCH-DOC", 5, [])
        page = Document()
        page.apply_json_patch(content)
        assert page.title == "changed"
        assert np.array_equal(page.roots[0].data["x"], numbers + 1)

        await session.with_document_locked(lambda: sources[1].data.update(x=large))
        header, content, buffers = await message(socket)
        page.apply_json_patch(Serialized(content, buffers))
        assert np.array_equal(page.roots[1].data["x"], large)
        socket.close()

    visit(story)
