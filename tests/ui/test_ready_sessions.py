"""Pages that are built before anyone asks for them: who gets them, what is sent later, and that none is out of date."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import panel as pn
import param
import pytest
from bokeh.core.has_props import _default_resolver
from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document
from bokeh.model import Model
from bokeh.models import ColumnDataSource, CustomJS, Div, Plot, Title
from bokeh.server.session import ServerSession
from panel.io import server as panel_server
from panel.io.datamodel import construct_data_model
from panel.io.state import set_curdoc
from panel.models.location import Location
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection

from gpexplorer.ui import connections, server
from gpexplorer.ui.ready_sessions import ReadySessions
from gpexplorer.ui.shared_limits import Shares
from visited import Visited, message, soon, visit

__all__ = ["visit"]  # a fixture


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


def test_panel_serve_has_pages_ready_unless_a_page_depends_on_more_than_its_address(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "speed_up", lambda: None)  # for good, and for all tests of this process

    async def story(visited: Visited) -> None:
        server.let_visitors_wait(visited.server, {"/explorer": 1})
        await soon(lambda: visited.built == 1)
        assert (await visited.get()).code == 200
        assert visited.built == 1  # it was ready

        await soon(lambda: visited.built == 2)
        with set_curdoc(None), pn.config.set(autoreload=True):  # its program may have changed since it was built
            assert (await visited.get()).code == 200
            assert visited.built == 3

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


def held_back(document: Document, source: ColumnDataSource) -> None:
    document.hold()
    source.tags = ["new"]


def held_back_and_sent_to_nobody(document: Document, source: ColumnDataSource) -> None:
    document.hold()
    source.tags = ["new"]
    document.callbacks._held_events, document.callbacks._hold = [], None  # as Panel does with style sheets


def new_class(document: Document, source: ColumnDataSource) -> None:
    """Another page was the first to show a component of a kind that this page may show later."""
    construct_data_model(type("Numbers", (param.Parameterized,), {"number": param.Integer(0)}), name="NewInTest")


def moved(document: Document, source: ColumnDataSource) -> None:
    next(root for root in document.roots if isinstance(root, Location)).hash = "#new"


Change = Callable[[Document, ColumnDataSource], object]
UNCHANGED: dict[str, Change] = {
    "nothing": lambda *_: None,
    "the address": moved,
    "something to do later": lambda document, _: document.add_timeout_callback(print, 60_000),
}
CHANGES: dict[str, Change] = {
    "an attribute": lambda _, source: source.update(tags=["new"]),
    "an attribute of a part that a client set": lambda _, source: source.set_from_json("name", "new", setter=source),
    "an element": lambda _, source: source.tags.append("new"),
    "a column": lambda _, source: source.data.update(new=[4.0]),
    "a row": lambda _, source: source.stream({"x": [1234.5], "y": [None]}),
    "a value": lambda _, source: source.patch({"x": [(0, 1234.5)]}),
    "an attribute that is deleted": lambda _, source: delattr(source, "name"),
    "a function of a part": lambda _, source: source.js_on_change("data", CustomJS(code="new")),
    "events that a part sends": lambda _, source: source.subscribed_events.add("new"),
    "held back": held_back,
    "held back and sent to nobody": held_back_and_sent_to_nobody,
    "a new part": lambda document, _: document.add_root(Div(text="new")),
    "a part less": lambda document, source: document.remove_root(source),
    "the title": lambda document, _: setattr(document, "title", "new"),
    "the theme": lambda document, _: setattr(document, "theme", "dark_minimal"),
    "a setting of the document": lambda document, _: setattr(document.config, "reconnect_session", True),
    "a function of the document": lambda document, _: document.js_on_event("document_ready", CustomJS(code="new")),
    "a class of parts": new_class,
    "a variable of the template": lambda document, _: document.template_variables.update(new=1),
}


def as_json(document: Document) -> Any:
    return json.loads(serialize_json(document.to_json(deferred=False)))


def without_address(content: Any) -> Any:
    """Take the address of a visitor out of a document, and return its attributes."""
    [address] = [root for root in content["roots"] if root["name"] == Location.__qualified_model__]
    content["roots"].remove(address)
    return address["attributes"]


async def pull(socket: WebSocketClientConnection) -> Any:
    """Ask for the document, as a browser does."""
    for part in ({"msgid": "7", "msgtype": "PULL-DOC-REQ"}, {}, {}):
        await socket.write_message(json.dumps(part))
    header, content, _ = await message(socket)
    assert (header["msgtype"], header["reqid"]) == ("PULL-DOC-REPLY", "7")
    return content["doc"]


def test_a_document_that_was_written_in_advance_is_never_out_of_date(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    """A browser gets the text if nothing has changed since it was written, and otherwise the document as it is."""
    sources, made = list[ColumnDataSource](), list[ServerSession]()
    html = panel_server.server_html_page_for_session
    monkeypatch.setattr(
        panel_server, "server_html_page_for_session", lambda page, **options: made.append(page) or html(page, **options)
    )

    def page(visited: Visited) -> pn.Column:
        sources.append(ColumnDataSource({"x": [0.5], "y": [None]}, name="numbers", tags=["old"]))
        pn.state.curdoc.add_root(sources[-1])
        pn.state.curdoc.add_root(Plot(title=Title(text="a title")))
        return pn.Column("a picture")

    monkeypatch.setattr(Visited, "page", page)

    async def story(visited: Visited) -> None:
        ready = ReadySessions(visited.application, "/explorer", 1, Shares())
        ready.install()
        for name, change in (UNCHANGED | CHANGES).items():
            await ready.build()
            await ready.write()
            session, source = ready._stock[""][0].session, sources[-1]
            for tag in {"nothing": "ab", "an attribute": "abcdef"}.get(name, ""):  # it is written again, not for ever
                await session.with_document_locked(setattr, source, "tags", [tag])
                await ready.write()
            assert ready._stock[""][0]._tries <= connections.MOST_TRIES
            before = as_json(session.document)
            await session.with_document_locked(change, session.document, source)
            answer = await visited.get(Cookie="a=1")
            assert (session in made) == (name not in UNCHANGED), name
            assert re.search(rf"<title>\s*{session.document.title}\s*</title>", answer.body.decode()), name
            socket = await visited.connect(answer)
            for _ in range(2):  # metadata and content of the acknowledgement
                await socket.read_message()

            with monkeypatch.context() as changed:
                if name in UNCHANGED:
                    changed.delattr(Document, "to_json")
                content = await pull(socket)
            assert content == as_json(session.document), name
            address, old_address = without_address(content), without_address(before)
            assert address.get("hash", "") == "#new" * (change is moved)
            if change is not held_back:  # that holds the new address back as well
                assert address["port"] == str(visited.server.port) != old_address.get("port")
            assert (content == before) == (name in {*UNCHANGED, "a variable of the template"}), name

            if change is moved:
                await session.with_document_locked(setattr, source, "tags", ["newer"])
                assert (await message(socket))[0]["msgtype"] == "PATCH-DOC"
                assert await pull(socket) == as_json(session.document)
            await visited.leave(socket)

    try:
        visit(story)
    finally:
        for name in [name for name in Model.model_class_reverse_map if name.endswith("NewInTest")]:
            _default_resolver.remove(Model.model_class_reverse_map[name])


def test_arrays_of_a_document_that_was_written_in_advance_stand_in_its_text(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    numbers = np.linspace(0, 1, 20_000)

    def page(visited: Visited) -> str:
        pn.state.curdoc.add_root(ColumnDataSource({"x": numbers}))
        return "a picture"

    monkeypatch.setattr(Visited, "page", page)

    async def story(visited: Visited) -> None:
        ready = ReadySessions(visited.application, "/explorer", 1, Shares())
        ready.install()
        await ready.build()
        await ready.write()
        socket = await visited.connect(await visited.get())
        for _ in range(2):
            await socket.read_message()
        content = Document.from_json(await pull(socket))
        [source] = content.select({"type": ColumnDataSource})
        assert np.array_equal(source.data["x"], numbers)
        await visited.leave(socket)

    visit(story)
