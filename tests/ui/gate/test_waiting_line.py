"""Visitors who look at a waiting page while theirs is built: their places, their limits, and what they see."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from tornado.httpclient import HTTPResponse

from gpexplorer.runs import Spec
from gpexplorer.ui import waiting_page
from gpexplorer.ui.explorer import START, Explorer
from gpexplorer.ui.gate import waiting_line
from gpexplorer.ui.gate.waiting_line import WaitingLine, place_in_words
from gpexplorer.ui.ready_sessions import ReadySessions
from gpexplorer.ui.shared_limits import Shares
from gpexplorer.ui.waiting_page import FirstPictures
from visited import Visited, visit

__all__ = ["visit"]  # a fixture

LINK = "story=swaps"
BROWSER = {"Accept": "text/html,application/xhtml+xml"}


def waiting(visited: Visited) -> ReadySessions:
    """A stock without pages, for an address whose pictures are known."""
    shares = Shares()
    shares.first_pictures._kept[LINK] = "<main><h1>Ten random rows</h1>", "<div><div>"
    ready = ReadySessions(visited.application, "/explorer", 0, shares)
    ready.install()
    return ready


async def ask(visited: Visited, query: str = LINK, ticket: str = "") -> HTTPResponse:
    cookie = {"Cookie": f"gpexplorer-place={ticket}"} if ticket else {}
    return await visited.get(query, **BROWSER, **cookie)


def ticket_of(answer: HTTPResponse) -> str:
    return re.search(r'const ticket = "([^"]+)"', answer.body.decode())[1]


async def place(visited: Visited, ticket: str) -> dict[str, object]:
    return json.loads((await visited.get(f"ticket={ticket}", "/explorer/place")).body)


def test_a_browser_waits_at_its_place_and_then_gets_its_page(visit: Callable[..., None]):
    async def story(visited: Visited) -> None:
        ready = waiting(visited)
        answers = [await ask(visited) for _ in range(3)]
        first, second, third = map(ticket_of, answers)
        assert b"Ten random rows" in answers[0].body
        assert answers[0].headers["Cache-Control"] == "no-store"
        assert "frame-ancestors" in answers[0].headers["Content-Security-Policy"]
        assert (len({first, second, third}), visited.built) == (3, 0)
        assert ticket_of(await ask(visited, ticket=second)) == second  # loading the page again keeps the place
        assert ticket_of(await ask(visited, "story=blocks", first)) != first  # it is the place of another address
        assert await place(visited, third) == {
            "words": "Your page is being set up: 2 before you, about 9 s.", "reload": False, "again": 1000
        }  # fmt: skip
        assert (await place(visited, "guessed"))["reload"]

        serving = asyncio.create_task(ready.keep_serving())
        while not (await place(visited, first))["reload"]:
            await asyncio.sleep(0.02)
        page = await ask(visited, ticket=first)
        assert visited.built >= 1
        socket = await visited.connect(page)
        assert b"const ticket" in (await ask(visited, ticket=first)).body  # a ticket is for one page
        serving.cancel()
        await visited.leave(socket)

    visit(story)


def test_the_page_itself_is_sent_to_programs_and_for_pages_that_are_quick(visit: Callable[..., None]):
    async def story(visited: Visited) -> None:
        waiting(visited)
        assert b"token" in (await visited.get(LINK)).body
        for query in ("", "page=first", "page=side-by-side", "story=blocks"):  # nobody waits, and no picture is known
            assert b"token" in (await ask(visited, query)).body
        assert b"token" in (await ask(visited, f"{LINK}&bokeh-wait=no")).body  # a browser without cookies
        assert visited.built == 6

    visit(story)


def test_who_waits_counts_as_a_page_and_who_has_left_gets_none(
    visit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    async def story(visited: Visited) -> None:
        ready = waiting(visited)
        tickets = [ticket_of(await ask(visited)) for _ in range(2)]
        assert (await ask(visited)).code == 503
        assert (await ask(visited, ticket=tickets[1])).code == 200

        monkeypatch.setattr(waiting_line, "PATIENCE", 0.0)
        serving = asyncio.create_task(ready.keep_serving())
        while not (await place(visited, tickets[0]))["reload"]:
            await asyncio.sleep(0.02)
        assert visited.built == 0
        serving.cancel()

    visit(story, max_sessions=2)


def request_from(address: str) -> SimpleNamespace:
    return SimpleNamespace(request=SimpleNamespace(query=LINK, cookies={}, remote_ip=address))


def test_addresses_take_turns():
    """An address that asks for one page after another made everyone else wait for all of them."""
    line = WaitingLine()
    many = [line.enter(request_from("192.0.2.1")) for _ in range(3)]
    other = line.enter(request_from("192.0.2.2"))

    assert [line.place(ticket)[0] for ticket in (*many, other)] == [0, 2, 3, 1]
    line.finish(line.next(), None)
    assert [line.place(ticket)[0] for ticket in (*many, other)] == [-1, 1, 2, 0]
    line.finish(line.next(), None)
    assert [line.place(ticket)[0] for ticket in (*many, other)] == [-1, 0, 1, -1]


def test_a_page_that_cannot_be_built_is_not_waited_for():
    line, handler = WaitingLine(), request_from("192.0.2.1")
    ticket, request = line.enter(handler), handler.request
    line.finish(line.next(), None)
    request.cookies["gpexplorer-place"] = SimpleNamespace(value=ticket)
    assert (line.place(ticket), line.is_over(request), line.take(request)) == ((-1, 0.0), True, None)
    assert line.place(ticket) is None


def test_places_in_words():
    assert place_in_words(0, 2.4) == "Your page is being set up: you are next, about 3 s."
    assert place_in_words(12, 37.0) == "Your page is being set up: 12 before you, about 40 s."


def test_the_pictures_of_an_address_are_made_once_and_hold_nothing_that_it_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiting_page, "PATIENCE", 30.0)
    pictures, query = FirstPictures(), "v=1&m=<script>x</script>"
    explorer = Explorer(Spec(**START))
    pictures.draw(query, explorer, 0, has_controls=True)
    page = pictures.page(query, "a-ticket", 3, 9.0)
    assert "Which 10 of 180 rows can represent the others?" in page
    assert "3 before you, about 9 s" in page
    assert page.count('src="data:image/svg+xml') == 3  # the convergence begins with the objective of the start
    assert "<script>x" not in page
    explorer.close()
    kept = pictures._kept[query]
    pictures.draw(query, explorer, 0, has_controls=False)
    assert pictures._kept[query] is kept
