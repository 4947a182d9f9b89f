"""Who may connect and begin a session: how many there are, and how many one address may ask for.

A session begins with a GET and lives on once its websocket is open. Sessions without a websocket cost a visitor
nothing, so they give way: where a server is full, the oldest session that has never been connected is ended, of the
address that has most of them. So do connections that are no websocket: a process may open only so
many files, and without a free one a server answers nobody, and each try is a traceback in its log.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from bokeh.server.session import ServerSession
from bokeh.server.tornado import BokehTornado
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream

from .waiting_line import lines, network, network_of

MAX_SESSIONS = 60  # pages that are open at the same time, by default
MOST_ARGUMENTS = 100  # of an address: the longest link has fewer than 60
LONGEST_ADDRESS = 8000  # characters of path and query: twice the longest link
MOST_ADDRESSES = 10_000  # whose budgets are remembered
MOST_CONNECTIONS = 3000
FILES_OF_A_CONNECTION = 3  # which a process may open per connection: a download has two, and runs need some
MOST_SOCKETS = 4  # of one session: a page has one, and for a moment two after its network has failed

connected: weakref.WeakSet[ServerSession] = weakref.WeakSet()  # sessions whose websocket was open at least once
websockets: weakref.WeakSet[IOStream] = weakref.WeakSet()  # the connections that are websockets of a session


@dataclass
class Budget:
    """What one address may still ask for: a number of pages that grows back with time.

    Parameters
    ----------
    largest : float
        Number of pages at the beginning, and at most.
    per_second : float
        Pages that grow back per second.
    """

    largest: float
    per_second: float

    def __post_init__(self) -> None:
        self._left, self._updated = self.largest, time.monotonic()

    def spend(self) -> float:
        """Take one page; returns 0, or the seconds after which there will be one."""
        clock = time.monotonic()
        self._left = min(self.largest, self._left + (clock - self._updated) * self.per_second)
        self._updated = clock
        if self._left < 1.0:
            return (1.0 - self._left) / self.per_second
        self._left -= 1.0
        return 0.0


class Visitors:
    """The sessions of one server.

    Parameters
    ----------
    application : BokehTornado
        The server.
    max_sessions : int
        Sessions at the same time; 0 for no limit.
    max_per_address : int
        Sessions of one address at the same time; 0 for all.

    Notes
    -----
    A class behind one router has one address, and so have all visitors behind a proxy that the server does not believe.
    The budgets are twice the sessions of the server for the plain address, and as many as its sessions for links, which
    take seconds of the only thread that answers.
    """

    def __init__(self, application: BokehTornado, max_sessions: int, max_per_address: int = 0) -> None:
        self._application, self._max_sessions = application, max_sessions
        self._max_per_address = max_per_address or max_sessions
        self._budgets: dict[tuple[str, bool], Budget] = {}

    def refusal(self, request: HTTPServerRequest, session_id: str) -> tuple[int, str] | None:
        """Status and sentence for a request that may not begin a session; None for one that may.

        Parameters
        ----------
        request : HTTPServerRequest
            A request for a page or for its websocket.
        session_id : str
            The session that the websocket names; empty for none.
        """
        sessions, own_lines = self._sessions(), lines.get(self._application, [])
        known = [session for session in sessions if session.id == session_id]
        if known and known[0].connection_count >= MOST_SOCKETS:
            return 429, f"This page is open {MOST_SOCKETS} times. Load it again."
        if not self._max_sessions or known or any(line.knows(request) for line in own_lines):
            return None
        seconds = self._budget(request).spend()
        if seconds:
            return 429, f"Too many pages were asked for from this address. Load this page again in {seconds:.0f} s."
        sessions = [session for session in sessions if session.connection_count or not session.expiration_requested]
        if self._max_per_address < self._max_sessions:
            address = network_of(request)
            own = [session for session in sessions if _address(session) == address]
            count = len(own) + sum(line.count(address) for line in own_lines)
            if count >= self._max_per_address and not self._make_room(own):
                return 429, (
                    f"{count} pages are open at this address, which is its limit (--max-sessions-per-address). Close "
                    "a tab, or load this page again in a minute."
                )
        count = len(sessions) + sum(map(len, own_lines))
        if count < self._max_sessions or self._make_room(sessions):
            return None
        return 503, (
            f"{count} pages are open, which is the limit of this server (--max-sessions). Close a tab, or load "
            "this page again in a minute."
        )

    def _sessions(self) -> list[ServerSession]:
        """The sessions of visitors; those without a token wait in stock for a visitor."""
        application = self._application
        every = [session for path in application.app_paths for session in application.get_sessions(path)]
        return [session for session in every if session._token is not None]

    def _budget(self, request: HTTPServerRequest) -> Budget:
        key = network_of(request), bool(request.query)
        if key not in self._budgets:
            if len(self._budgets) >= MOST_ADDRESSES:
                self._budgets.pop(next(iter(self._budgets)))  # the oldest one, which has most likely grown back
            is_link = key[1]
            largest = self._max_sessions if is_link else 2 * self._max_sessions
            self._budgets[key] = Budget(max(largest, 60), 0.2 if is_link else 2.0)
        return self._budgets[key]

    def _make_room(self, sessions: list[ServerSession]) -> bool:
        """End a session that was never connected; False where there is none."""
        waiting = [session for session in sessions if not session.connection_count and session not in connected]
        if not waiting:
            return False
        of_address = Counter(map(_address, waiting))
        oldest = max(
            waiting, key=lambda session: (of_address[_address(session)], session.milliseconds_since_last_unsubscribe)
        )
        oldest.request_expiration()  # the server's regular look at its sessions frees it
        return True


class Connections:
    """The open connections of one server.

    Where there are too many, the oldest one that is no websocket is closed, of the address that has most of them.

    Parameters
    ----------
    server : HTTPServer
        The server.
    """

    def __init__(self, server: HTTPServer) -> None:
        self._most = most_connections()
        self._open: dict[IOStream, str] = {}  # connection -> address, in the order in which they came
        self._handle = server.handle_stream
        server.handle_stream = self.handle_stream  # type: ignore[method-assign]

    def handle_stream(self, stream: IOStream, address: tuple[str, int]) -> None:
        """Take a new connection, in the place of another one if there are too many."""
        self._open = {stream: of for stream, of in self._open.items() if not stream.closed()}
        if len(self._open) >= self._most:
            waiting = {stream: of for stream, of in self._open.items() if stream not in websockets}
            if not waiting:
                stream.close()
                return
            of_address = Counter(waiting.values())
            max(waiting, key=lambda stream: of_address[waiting[stream]]).close()  # the first of several
        self._open[stream] = network(address[0]) if address else ""
        self._handle(stream, address)


def most_connections() -> int:
    """Let this process open more files, where it may do so, and return how many connections there may be then."""
    try:
        import resource
    except ImportError:  # Windows
        return MOST_CONNECTIONS
    files, most = (sys.maxsize if limit < 0 else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    wanted = min(FILES_OF_A_CONNECTION * MOST_CONNECTIONS, most)
    if files < wanted:
        with suppress(OSError, ValueError):  # macOS has a second limit, which is not told
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            files = wanted
    return min(MOST_CONNECTIONS, files // FILES_OF_A_CONNECTION)


def _address(session: ServerSession) -> str:
    context = session.document.session_context
    request = context.request if context is not None else None
    return network(getattr(request, "remote_ip", "") or "")
