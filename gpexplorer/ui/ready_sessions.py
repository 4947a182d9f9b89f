"""Sessions whose pages are built before anyone asks for them, or while their visitors look at a waiting page.

Building a page takes seconds of the only thread that answers pages. A page from the stock takes a fifth of it. The
plain address is answered from the stock, and so are the links that were asked for last: a class opens one link. Where
the stock has no page of the laboratory, a browser is sent a waiting page at once, and the pages are built one after the
other. Whoever does not ask for a text to show, as a browser does, gets the page itself when it is built.

Without a picture of the address, a waiting page is sent only if others wait as well: it would show nothing but words
for two seconds, and then move everything.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

import panel as pn
from bokeh.server.contexts import ApplicationContext
from bokeh.server.session import ServerSession
from bokeh.server.tornado import BokehTornado
from bokeh.util.token import generate_jwt_token, generate_session_id
from panel.io import server as panel_server
from panel.io.location import Location
from panel.io.server import DocHandler, RequestProxy
from panel.io.state import set_curdoc
from panel.util import edit_readonly
from tornado.httputil import HTTPServerRequest, RequestStartLine

from .address import LABORATORY, asked_page
from .connections import BUILT_AHEAD, WrittenPage
from .gate.request_guard import known_names
from .gate.waiting_line import PlaceHandler, WaitingLine, lines
from .shared_limits import Shares
from .text import record

QUIET = 4.0  # seconds without a visit and without a step of any run, after which a page is built
GAP = 1.0  # seconds between two looks whether it is quiet
NAP, LATE = 0.1, 0.02  # seconds between two pages for waiting visitors; again while naps end late: others are served
LONGEST_NAPS = 2.0  # seconds
RECENT_LINKS = 2  # of the links asked for last, pages are kept ready as of the plain address
LONGEST_LINK = 2000  # characters; a longer one gets pages of its own
NO_COOKIES = "bokeh-wait"  # an argument by which a browser without cookies, which could show no ticket, does not wait
PLAIN = ""  # the query of the plain address


class ReadySessions:
    """The stock of sessions of one server.

    Parameters
    ----------
    application : BokehTornado
        The server.
    path : str
        The path of the page.
    count : int
        Number of sessions to keep ready of each address; with 0 every page is built when it is asked for.
    shares : Shares
        The steps of all runs. While people work, a page is built only if the stock is empty, because building one
        delays their pictures. Every page that is asked for is added to its `arrivals`.
    """

    def __init__(self, application: BokehTornado, path: str, count: int, shares: Shares) -> None:
        self._application, self._path, self._count = application, path, count
        self._turns, self._arrivals, self._pictures = shares.turns, shares.arrivals, shares.first_pictures
        self._line = WaitingLine()
        self._stock: dict[str, deque[WrittenPage]] = {PLAIN: deque()}  # query -> pages; links oldest first
        self._taken: WeakValueDictionary[str, WrittenPage] = WeakValueDictionary()  # id of the session -> its page
        self._last_visit = float("-inf")

    def __len__(self) -> int:
        return sum(len(pages) for pages in self._stock.values())

    def install(self) -> None:
        """Answer the addresses of the stock from it from now on, and those of the laboratory with a waiting page."""
        build: Callable[[DocHandler], Awaitable[ServerSession]] = DocHandler.get_session
        answer: Callable[..., Awaitable[None]] = DocHandler.get
        html: Callable[..., str] = panel_server.server_html_page_for_session
        self._build = build
        context = self._application._applications[self._path]

        async def get_session(handler: DocHandler) -> ServerSession:
            self._last_visit = time.monotonic()
            is_ours = handler.application_context is context
            session = (self._line.take(handler.request) or self._take(handler)) if is_ours else None
            session = session or await build(handler)
            self._arrivals.begin(session.document)
            return session

        async def get(handler: DocHandler, *args: Any, **kwargs: Any) -> None:
            if handler.application_context is context and self._must_wait(handler):
                self._send_waiting_page(handler)
            else:
                await answer(handler, *args, **kwargs)

        def written_html(session: ServerSession, *, token: str, **options: Any) -> str:
            page = self._taken.get(session.id)
            return (page.html(token) if page is not None else None) or html(session, token=token, **options)

        DocHandler.get_session, DocHandler.get = get_session, get
        panel_server.server_html_page_for_session = written_html
        lines.setdefault(self._application, []).append(self._line)
        place = f"{self._application.prefix}{self._path.rstrip('/')}/place"
        self._application.add_handlers(".*", [(place, PlaceHandler, {"line": self._line})])

    async def keep_serving(self) -> None:
        """Build the pages of those who wait, for as long as the server runs; between two pages, others are answered."""
        while True:
            begun = time.monotonic()
            await asyncio.sleep(NAP)
            while len(self._line) and time.monotonic() - begun < LONGEST_NAPS and await _nap_ends_late():
                pass
            visitor = self._line.next()
            if visitor is None:
                continue
            session = None
            try:
                session = await self._build(visitor.handler)
            except Exception as error:
                record(error, "a page was being built for a visitor who waits")
            self._line.finish(visitor, session)

    async def keep_filled(self) -> None:
        """Build one session after another, in quiet moments, for as long as the server runs."""
        while self._count:
            await asyncio.sleep(GAP)
            idle = min(time.monotonic() - self._last_visit, self._turns.idle_seconds)
            query, pages = min(self._stock.items(), key=lambda item: len(item[1]))
            if len(self._line) or self._depends_on_visitor:
                continue  # pages are built for those who wait first
            try:
                if idle > QUIET:
                    await self.write()
                if len(pages) < self._count and (idle > QUIET or not self._stock[PLAIN]):
                    await self.build(query if idle > QUIET else PLAIN)
            except Exception as error:
                record(error, "a page was being built in advance")

    async def build(self, query: str = PLAIN) -> None:
        """Build one session of this address. It does not expire before a visitor has taken it."""
        context: ApplicationContext = self._application._applications[self._path]
        name = generate_session_id(secret_key=self._application.secret_key, signed=self._application.sign_sessions)
        request = HTTPServerRequest(start_line=RequestStartLine("GET", f"{self._path}?{query}", "HTTP/1.0"))
        request.passed_guard, request.known_names = True, " ".join(known_names(self._application))  # as of a visitor
        token = BUILT_AHEAD.set(True)
        try:
            session = await context.create_session_if_needed(name, request)
        finally:
            BUILT_AHEAD.reset(token)
        session.block_expiration()
        if query in self._stock:
            self._stock[query].append(WrittenPage(session, self._application.resources))
        else:  # other links were asked for in the meantime
            _discard(session)

    async def write(self) -> None:
        """Write the texts of one page of the stock that has none, or none any more."""
        page = next((page for pages in self._stock.values() for page in pages if page.is_due), None)
        if page is not None:
            session: Any = page.session
            await session.with_document_locked(page.write)

    def remember(self, query: str) -> None:
        """Keep pages of this link ready from now on, in the place of the link that was asked for longest ago."""
        if not self._count or query == PLAIN or len(query) > LONGEST_LINK:
            return
        self._stock[query] = self._stock.pop(query, deque())
        for oldest in list(self._stock)[1:-RECENT_LINKS]:
            for page in self._stock.pop(oldest):
                _discard(page.session)

    @property
    def _depends_on_visitor(self) -> bool:
        """Whether a page depends on more than its address: on a login, on an earlier visit, or on a changed program."""
        login = self._application.auth_provider
        has_login = login.get_user is not None or login.get_user_async is not None
        return has_login or bool(pn.config.authorize_callback or pn.config.reuse_sessions or pn.config.autoreload)

    def _must_wait(self, handler: DocHandler) -> bool:
        """Whether the visitor of this request gets a waiting page."""
        request = handler.request
        can_wait = "text/html" in request.headers.get("Accept", "") and NO_COOKIES not in request.arguments
        is_ready = self._line.is_over(request) or self._stock.get(request.query)
        if self._depends_on_visitor or not can_wait or is_ready or asked_page(request.arguments) != LABORATORY:
            return False
        return request.query in self._pictures or len(self._line) > 0

    def _send_waiting_page(self, handler: DocHandler) -> None:
        self._last_visit = time.monotonic()
        query = handler.request.query
        self.remember(query)
        ticket = self._line.enter(handler)
        handler.set_header("Content-Type", "text/html; charset=utf-8")
        handler.set_header("Cache-Control", "no-store")
        handler.finish(self._pictures.page(query, ticket, *(self._line.place(ticket) or (0, 0.0))))

    def _take(self, handler: DocHandler) -> ServerSession | None:
        """A session of the stock that belongs to the visitor of this request from now on."""
        query = handler.request.query
        self.remember(query)
        pages = self._stock.get(query)
        if not pages or self._depends_on_visitor:
            return None
        page = pages.popleft()
        session, application, payload = page.session, self._application, handler._generate_token_payload()
        self._taken[session.id] = page
        session._token = generate_jwt_token(
            session.id,
            secret_key=application.secret_key,
            signed=application.sign_sessions,
            expiration=application.session_token_expiration,
            extra_payload=payload,
        )
        context: Any = session.document.session_context
        plain = {name: payload.get(name) for name in ("arguments", "cookies", "headers")}
        context._token, context._request = session._token, RequestProxy(handler.request, **plain)
        _move(session, context.request)
        session.unsubscribe(None)  # its lifetime without a connection begins now
        session.unblock_expiration()
        return session


async def _nap_ends_late() -> bool:
    """Take a nap, and return whether the loop had other work when it was to end."""
    end = time.monotonic() + NAP
    await asyncio.sleep(NAP)
    return time.monotonic() - end > LATE


def _discard(session: ServerSession) -> None:
    """End a session that no visitor will get."""
    session.unblock_expiration()
    session.request_expiration()


def _move(session: ServerSession, request: RequestProxy) -> None:
    """Tell the page the address under which its visitor opened it."""
    location = pn.state._locations.get(session.document)
    if location is not None:
        with set_curdoc(session.document), edit_readonly(location):
            address = Location.from_request(request).param.values()
            location.param.update(**{name: address[name] for name in ("hostname", "port", "protocol", "href")})
