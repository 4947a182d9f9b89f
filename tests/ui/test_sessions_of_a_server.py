"""Sessions of a server in this process: how many there may be, who may begin one, and when one is over."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import panel as pn
import pytest
from bokeh.core.serialization import Buffer, Serialized
from bokeh.document import Document
from bokeh.models import ColumnDataSource
from bokeh.protocol.message import Message
from bokeh.server.connection import ServerConnection
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClosedError

from gpexplorer.ui import connections
from gpexplorer.ui.browser.protocol_repairs import LARGE
from gpexplorer.ui.gate import request_guard, visitors
from gpexplorer.ui.gate.visitors import Budget
from gpexplorer.ui.ready_sessions import ReadySessions
from gpexplorer.ui.shared_limits import Shares
from visited import Visited, message, visit

__all__ = ["visit"]  # a fixture


async def soon(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("not within 10 s")


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


def test_a_page_of_the_stock_is_given_once_and_only_to_the_plain_address(visit: Callable[..., None]):
    async def story(visited: Visited) -> None:
        ready = ReadySessions(visited.application, "/explorer", 1, Shares())
        ready.install()
        await ready.build()
        assert (len(ready), visited.built) == (1, 1)

        first = await visited.get(Cookie="a=1")
        assert (first.code, len(ready), visited.built) == (200, 0, 1)
        assert (await visited.get()).code == 200
        assert visited.built == 2
        socket = await visited.connect(first)  # its token is of today and signed
        session = next(session for session in visited.application.get_sessions("/explorer") if session.connection_count)
        assert session.document.session_context.request.cookies == {"a": "1"}
        assert not session.expiration_blocked
        socket.close()

        await ready.build()
        link = HTTPRequest(f"http://localhost:{visited.server.port}/explorer?seed=3")
        assert (await AsyncHTTPClient().fetch(link)).code == 200
        assert (len(ready), visited.built) == (1, 4)

    visit(story)


def test_a_link_that_was_asked_for_is_answered_from_the_stock_and_old_links_leave_it(visit: Callable[..., None]):
    async def story(visited: Visited) -> None:
        ready = ReadySessions(visited.application, "/explorer", 2, Shares())
        ready.install()
        address = f"http://localhost:{visited.server.port}/explorer?"

        async def opened(query: str) -> int:
            return (await AsyncHTTPClient().fetch(HTTPRequest(address + query))).code

        assert await opened("seed=1") == 200
        for _ in range(2):
            await ready.build("seed=1")
        assert visited.built == 3
        assert [await opened("seed=1") for _ in range(2)] == [200, 200]
        assert (len(ready), visited.built) == (0, 3)

        await ready.build("seed=1")
        for seed in (2, 3):
            await opened(f"seed={seed}")
        assert (len(ready), visited.built) == (0, 6)  # the page of the oldest link is gone
        await ready.build("seed=1")
        assert len(ready) == 0
        await opened("seed=" + "9" * 3000)
        await ready.build("seed=3")
        assert len(ready) == 1

    visit(story)


def test_the_parts_of_a_page_wait_while_others_arrive_but_not_for_ever(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "NEXT_LOOK", 20)
    monkeypatch.setattr(connections, "LONGEST_ARRIVAL", 60.0)

    async def story(visited: Visited) -> None:
        shares, completed = Shares(), list[str]()
        ReadySessions(visited.application, "/explorer", 0, shares).install()
        for _ in range(2):
            await visited.get()
        assert shares.arrivals.pending == 2
        first, second = (session.document for session in visited.application.get_sessions("/explorer"))

        shares.arrivals.complete(first, lambda: completed.append("first"))
        await asyncio.sleep(0.1)
        assert completed == []
        shares.arrivals.complete(second, lambda: completed.append("second"))
        assert completed == ["second"]
        await soon(lambda: completed == ["second", "first"])

        shares.arrivals.begin(second)  # its browser never comes
        monkeypatch.setattr(connections, "LONGEST_WAIT", 0.1)
        shares.arrivals.complete(first, lambda: completed.append("after a while"))
        assert len(completed) == 2
        await soon(lambda: completed[2:] == ["after a while"])
        monkeypatch.setattr(connections, "LONGEST_ARRIVAL", 0.0)
        assert shares.arrivals.pending == 0

    visit(story)


def test_what_can_wait_is_built_with_a_page_of_the_stock_and_sent_after_its_first_picture(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    place = pn.Column("a control")

    def page(visited: Visited) -> pn.Column:
        withheld = connections.Withheld(pn.state.curdoc, [place])
        pn.state.onload(withheld.show)
        assert connections.BUILT_AHEAD.get()
        return pn.Column("a picture", place)

    monkeypatch.setattr(Visited, "page", page)

    async def story(visited: Visited) -> None:
        ready = ReadySessions(visited.application, "/explorer", 1, Shares())
        ready.install()
        await ready.build()
        [session] = visited.application.get_sessions("/explorer")
        [(layout, _)] = place._models.values()
        [control] = layout.children
        await soon(lambda: not layout.children)
        assert (layout.document, control.document) == (session.document, None)

        socket = await visited.connect(await visited.get())
        for _ in range(2):  # metadata and content of the acknowledgement
            await socket.read_message()
        event = {"type": "event", "name": "document_ready", "values": {"type": "map", "entries": []}}
        sent = {"kind": "MessageSent", "msg_type": "bokeh_event", "msg_data": event}
        for part in ({"msgid": "1", "msgtype": "PATCH-DOC"}, {}, {"events": [sent]}):
            await socket.write_message(json.dumps(part))
        [change] = (await message(socket))[1]["events"]
        assert (change["attr"], [child["id"] for child in change["new"]]) == ("children", [control.id])
        assert control.document is session.document
        assert not connections.BUILT_AHEAD.get()
        await visited.leave(socket)

    visit(story)


def test_pages_of_the_stock_are_no_visitors(visit: Callable[..., None]):
    async def story(visited: Visited) -> None:
        ready = ReadySessions(visited.application, "/explorer", 3, Shares())
        ready.install()
        for _ in range(3):
            await ready.build()
        sockets = [await visited.connect(await visited.get()) for _ in range(2)]
        assert (await visited.get()).code == 503
        for opened in sockets:
            await visited.leave(opened)

    visit(story, max_sessions=2)
