"""The visitors for whom a page is being built, and whose turn it is.

Addresses take turns, so that one with many visitors, or with a program that asks for many pages, does not keep others
waiting. Visitors of one address are served in the order in which they came.

Each has a ticket, by which his browser asks for his place in the line, and which it shows in a cookie when it loads the
page again. The page is built for the request that he came with. A visitor who has not asked for a while has left.

Apart because the limits of `visitors.py` count those who wait, and the pages are built above the gate.
"""

from __future__ import annotations

import ipaddress
import math
import secrets
import time
import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

from bokeh.server.session import ServerSession
from bokeh.server.tornado import BokehTornado
from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler

COOKIE = "gpexplorer-place"  # holds the ticket for the moment of a reload
PATIENCE = 15.0  # seconds without a question after which a visitor has left
FIRST_GUESS = 3.0  # seconds per page, before any page was built
SOON, LATER = 300, 1000  # milliseconds between two questions of the first visitor, and of the others


@dataclass
class Waiting:
    """One visitor who waits.

    Attributes
    ----------
    handler : DocHandler
        Of the request that he came with.
    came : float
        When he came, on the monotonic clock.
    asked : float
        When his browser asked last.
    session : ServerSession or None
        His page, once it is built.
    is_over : bool
        Whether there is nothing to wait for: the page is built, or building it failed.
    """

    handler: Any
    came: float
    asked: float
    session: ServerSession | None = None
    is_over: bool = False


class WaitingLine:
    """The line of one page of a server."""

    def __init__(self) -> None:
        self._visitors: dict[str, Waiting] = {}  # ticket -> visitor, in the order of their coming
        self._last_turns: dict[str, float] = {}  # address -> when its last page was built, of those that wait
        self._seconds = FIRST_GUESS  # per page, with what lies between two of them
        self._last_end = 0.0

    def __len__(self) -> int:
        return len(self._queue())

    def count(self, address: str) -> int:
        """Return how many visitors of this address wait."""
        return sum(network_of(visitor.handler.request) == address for visitor in self._queue())

    def enter(self, handler: Any) -> str:
        """Put the visitor of this request at the end, or leave him at his place; returns his ticket."""
        if self.knows(handler.request):
            return _ticket(handler.request)
        ticket, clock = secrets.token_urlsafe(16), time.monotonic()
        self._visitors[ticket] = Waiting(handler, clock, clock)
        return ticket

    def knows(self, request: HTTPServerRequest) -> bool:
        """Whether this request shows a ticket for its address."""
        visitor = self._visitors.get(_ticket(request))
        return visitor is not None and visitor.handler.request.query == request.query

    def is_over(self, request: HTTPServerRequest) -> bool:
        """Whether this request shows a ticket with which nothing is waited for any more."""
        return self.knows(request) and self._visitors[_ticket(request)].is_over

    def take(self, request: HTTPServerRequest) -> ServerSession | None:
        """The session that was built for this visitor; None for none. His ticket is used up."""
        visitor = self._visitors.pop(_ticket(request)) if self.is_over(request) else None
        session = visitor.session if visitor is not None else None
        return None if session is None or session.destroyed or session.expiration_requested else session

    def next(self) -> Waiting | None:
        """The visitor whose page is to be built now; those who have left leave the line."""
        left = [ticket for ticket, visitor in self._visitors.items() if time.monotonic() - visitor.asked > PATIENCE]
        for ticket in left:
            del self._visitors[ticket]
        return next(iter(self._queue()), None)

    def finish(self, visitor: Waiting, session: ServerSession | None) -> None:
        """The page of this visitor is built, or could not be."""
        visitor.session, visitor.is_over = session, True
        clock = time.monotonic()
        self._seconds += 0.5 * (clock - max(self._last_end, visitor.came) - self._seconds)
        self._last_end = clock
        waiting = {network_of(each.handler.request) for each in self._queue()}
        self._last_turns[network_of(visitor.handler.request)] = clock
        self._last_turns = {address: turn for address, turn in self._last_turns.items() if address in waiting}

    def place(self, ticket: str) -> tuple[int, float] | None:
        """How many pages are built before that of this ticket, and the seconds until it is built, about.

        Minus one page once nothing is waited for; None for a ticket that is not known.
        """
        visitor = self._visitors.get(ticket)
        if visitor is None:
            return None
        visitor.asked = time.monotonic()
        if visitor.is_over:
            return -1, 0.0
        before = self._queue().index(visitor)
        return before, (before + 1) * self._seconds

    def _queue(self) -> list[Waiting]:
        """Those who wait: the first visitor of each address, that of the oldest last turn first; then others."""
        before, turns = Counter[str](), list[tuple[tuple[int, float], Waiting]]()
        for visitor in self._visitors.values():
            if not visitor.is_over:
                address = network_of(visitor.handler.request)
                turns.append(((before[address], self._last_turns.get(address, 0.0)), visitor))
                before[address] += 1
        return [visitor for _, visitor in sorted(turns, key=lambda turn: turn[0])]


lines: weakref.WeakKeyDictionary[BokehTornado, list[WaitingLine]] = weakref.WeakKeyDictionary()


class PlaceHandler(RequestHandler):
    """Answers where a visitor stands, as JSON: the sentence, whether to load the page again, and when to ask again."""

    def initialize(self, line: WaitingLine) -> None:
        """Take the line."""
        self._line = line

    def get(self) -> None:
        """Answer the question of a waiting page."""
        place = self._line.place(self.get_query_argument("ticket", ""))
        self.set_header("Cache-Control", "no-store")
        before, seconds = place or (-1, 0.0)
        self.write(
            {"words": place_in_words(before, seconds), "reload": before < 0, "again": SOON if before < 1 else LATER}
        )


def place_in_words(before: int, seconds: float) -> str:
    """Return the sentence on a place in the line.

    Parameters
    ----------
    before : int
        Number of pages that are built before.
    seconds : float
        Seconds until the page is built, about.
    """
    whole = 5 * math.ceil(seconds / 5) if seconds > 10 else max(1, math.ceil(seconds))
    return f"Your page is being set up: {f'{before} before you' if before > 0 else 'you are next'}, about {whole} s."


def network_of(request: HTTPServerRequest) -> str:
    """Return what counts as one address: that of the request, or the /64 network of an IPv6 address."""
    return network(request.remote_ip or "")


def network(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network(f"{address}/64", strict=False)) if ip.version == 6 else address


def _ticket(request: HTTPServerRequest) -> str:
    cookie = request.cookies.get(COOKIE)
    return cookie.value if cookie is not None else ""
