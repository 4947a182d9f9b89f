"""Sessions whose pages are built before anyone asks for them, so that many people can open the page at once.

Building a page takes half a second of the only thread that answers pages. A page from the stock takes a tenth of it.
Only the plain address is answered from the stock; a link asks for a page of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import panel as pn
from bokeh.server.contexts import ApplicationContext
from bokeh.server.session import ServerSession
from bokeh.server.tornado import BokehTornado
from bokeh.util.token import generate_jwt_token, generate_session_id
from panel.io.location import Location
from panel.io.server import DocHandler, RequestProxy
from panel.io.state import set_curdoc
from panel.util import edit_readonly
from tornado.httputil import HTTPServerRequest, RequestStartLine

from .shared_limits import Shares
from .text import record

QUIET = 4.0  # seconds without a visit and without a step of any run, after which a page is built
GAP = 1.0  # seconds between two looks whether it is quiet


class ReadySessions:
    """The stock of sessions of one server.

    Parameters
    ----------
    application : BokehTornado
        The server.
    path : str
        The path of the page.
    count : int
        Number of sessions to keep ready; with 0 every page is built when it is asked for.
    shares : Shares
        The steps of all runs. While people work, a page is built only if the stock is empty, because building one
        delays their pictures. Every page that is asked for is added to its `arrivals`.
    """

    def __init__(self, application: BokehTornado, path: str, count: int, shares: Shares) -> None:
        self._application, self._path, self._count = application, path, count
        self._turns, self._arrivals = shares.turns, shares.arrivals
        self._stock: deque[ServerSession] = deque()
        self._last_visit = float("-inf")

    def __len__(self) -> int:
        return len(self._stock)

    def install(self) -> None:
        """Answer the plain address from the stock from now on."""
        build: Callable[[DocHandler], Awaitable[ServerSession]] = DocHandler.get_session

        async def get_session(handler: DocHandler) -> ServerSession:
            self._last_visit = time.monotonic()
            is_plain_address = handler.application is self._application and not handler.request.query
            session = (self._take(handler) if is_plain_address else None) or await build(handler)
            self._arrivals.begin(session.document)
            return session

        DocHandler.get_session = get_session

    async def keep_filled(self) -> None:
        """Build one session after another, in quiet moments, for as long as the server runs."""
        while self._count:
            await asyncio.sleep(GAP)
            idle = min(time.monotonic() - self._last_visit, self._turns.idle_seconds)
            if len(self) < self._count and (idle > QUIET or not self._stock):
                try:
                    await self.build()
                except Exception as error:
                    record(error, "a page was being built in advance")

    async def build(self) -> None:
        """Build one session. It does not expire before a visitor has taken it."""
        context: ApplicationContext = self._application._applications[self._path]
        name = generate_session_id(secret_key=self._application.secret_key, signed=self._application.sign_sessions)
        request = HTTPServerRequest(start_line=RequestStartLine("GET", self._path, "HTTP/1.0"))
        session = await context.create_session_if_needed(name, request)
        session.block_expiration()
        self._stock.append(session)

    def _take(self, handler: DocHandler) -> ServerSession | None:
        """A session of the stock that belongs to the visitor of this request from now on."""
        if not self._stock:
            return None
        session, application, payload = self._stock.popleft(), self._application, handler._generate_token_payload()
        session._token = generate_jwt_token(
            session.id,
            secret_key=application.secret_key,
            signed=application.sign_sessions,
            expiration=application.session_token_expiration,
            extra_payload=payload,
        )
        context: Any = session.document.session_context
        context._token, context._request = session._token, RequestProxy(handler.request, **_plain(payload))
        _move(session, context.request)
        session.unsubscribe(None)  # its lifetime without a connection begins now
        session.unblock_expiration()
        return session


def _plain(payload: dict[str, object]) -> dict[str, object]:
    return {name: payload.get(name) for name in ("arguments", "cookies", "headers")}


def _move(session: ServerSession, request: RequestProxy) -> None:
    """Tell the page the address under which its visitor opened it."""
    location = pn.state._locations.get(session.document)
    if location is not None:
        with set_curdoc(session.document), edit_readonly(location):
            address = Location.from_request(request).param.values()
            location.param.update(**{name: address[name] for name in ("hostname", "port", "protocol", "href")})
