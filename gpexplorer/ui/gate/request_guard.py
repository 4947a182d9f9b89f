"""The guard that every request to the server passes before any handler of Bokeh or Panel sees it.

It answers only requests that name the server as its owner does (the Host and, if there is one, the Origin header), so
that a web page on another name cannot read the explorer through a visitor's browser. It closes routes that the page
does not need and that do harm, and it adds security headers to every answer.

The guard sits in `find_handler` of the server's application, which tornado calls when the headers of a request have
come and before the body is read: for pages, static files, websockets and unknown addresses. `RequestHandler.prepare` is
no such place, because Bokeh's own handlers override it. `protect` puts it there before the server answers anyone; other
servers in the same process stay as they are.

The guard does not see what comes through an open websocket, so the websocket has limits of its own. A message of
Bokeh's protocol comes in parts: a header, metadata, the content, and as many buffers as the header says. Each part is a
message of the websocket, whose size the server limits; here their sum, their number, their lists and their time have
limits, too, and a header that is not one ends the connection at once. Both compare names of hosts by one function.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import secrets
from collections.abc import Iterable
from typing import Any

from bokeh.protocol.message import Message
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.server.util import check_allowlist
from bokeh.server.views.autoload_js_handler import AutoloadJsHandler
from bokeh.server.views.session_handler import SessionHandler
from bokeh.server.views.ws import WSHandler
from bokeh.settings import settings
from bokeh.util.token import check_token_signature, get_session_id
from panel.io.server import ComponentResourceHandler, RootHandler
from panel.io.server import WSHandler as PanelSocket
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform, RequestHandler, stream_request_body
from tornado.websocket import WebSocketProtocol13

from .visitors import LONGEST_ADDRESS, MAX_SESSIONS, MOST_ARGUMENTS, Connections, Visitors, connected, websockets

LOCAL_NAME = "localhost"


def known_names(application: BokehTornado) -> set[str]:
    """Return the names of a server: its allowed websocket origins and those of BOKEH_ALLOW_WS_ORIGIN."""
    return {one_spelling(name) for name in (*application.websocket_origins, *(settings.allowed_ws_origin() or ()))}


def is_known(host: str, names: Iterable[str]) -> bool:
    """Return whether a Host header, or the host of an Origin header, is among these names or fits one with "*"."""
    try:
        return bool(check_allowlist(one_spelling(host), list(names)))
    except ValueError:  # not a host
        return False


def one_spelling(host: str) -> str:
    """Return a host with its port, by default 80, in lower case; every loopback address becomes "localhost".

    A web site can make its own name resolve to this machine, but not a loopback address: those are no names.
    """
    host = host.lower()
    if "*" in host:
        return host
    name, _, port = host.rpartition(":")
    if not port.isdigit():
        name, port = host, "80"
    return f"{LOCAL_NAME if is_loopback(name.removeprefix('[').removesuffix(']')) else name}:{port}"


def host_of(origin: str) -> str:
    """Return the host of an Origin header, with its port if it has one."""
    return origin.partition("://")[2]


def is_local_name(host: str) -> bool:
    """Return whether a host, with or without a port, always means this machine."""
    return one_spelling(host).rpartition(":")[0] == LOCAL_NAME


def is_loopback(address: str) -> bool:
    """Return whether an IP address belongs to this machine alone."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


log = logging.getLogger("gpexplorer.ui")
MORE_THAN_LARGEST_PART = 4 << 20  # bytes of a whole message beyond those that its largest part may have
MOST_PARTS = 4000  # of one message
MOST_LISTS = 100_000  # and objects, in the JSON of a part; six million took 6 s of the only loop and a gigabyte
LONGEST_HEADER = 4096  # characters
PATIENCE = 45.0  # seconds between two parts of a message
LONGEST_REASON = 100  # bytes of the reason for which a websocket is closed; its protocol allows 123
TOO_LARGE, TOO_SLOW = 1009, 1008  # codes of closing


class GuardedSocket(PanelSocket):
    """The websocket of one page."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._size, self._parts, self._refused = 0, 0, False
        self._deadline: object | None = None

    def check_origin(self, origin: str) -> bool:
        """Compare names as the guard of HTTP requests does; Bokeh knows neither [::1] nor other loopback addresses."""
        return is_known(host_of(origin), known_names(self.application))

    async def _async_open(self, token: str) -> None:
        await super()._async_open(token)
        session = self.connection._session if self.connection is not None else None  # None: closed in the meantime
        if session is not None and isinstance(self.ws_connection, WebSocketProtocol13):
            connected.add(session)
            websockets.add(self.ws_connection.stream)

    async def _receive(self, fragment: str | bytes) -> Message[Any] | None:
        """Take one part; returns the message that it completes."""
        if self._refused or self.receiver is None:
            return None
        self._size += len(fragment)
        self._parts += 1
        if self._size > self.max_message_size + MORE_THAN_LARGEST_PART or self._parts > MOST_PARTS:
            self._refuse(TOO_LARGE, f"a message of more than {self._size} bytes in {self._parts} parts")
            return None
        if isinstance(fragment, str) and sum(map(fragment.count, "[{")) > MOST_LISTS:
            self._refuse(TOO_LARGE, f"a message of more than {MOST_LISTS} lists")
            return None
        if self._parts == 1 and not _is_header(fragment):
            kind, shown = type(fragment).__name__, repr(fragment[:LONGEST_REASON])
            self._protocol_error(f"{kind} of length {len(fragment)} is no header of a message: {shown}")
            return None
        message = await super()._receive(fragment)
        self._forget_deadline()
        if message is None:
            late = f"the rest of a message did not come within {PATIENCE:.0f} s"
            self._deadline = self.application.io_loop.call_later(PATIENCE, self._refuse, TOO_SLOW, late)
        else:
            self._size = self._parts = 0
        return message

    def on_close(self) -> None:
        """The connection is closed: nothing is waited for."""
        self._forget_deadline()
        super().on_close()

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close the connection, with a reason that fits; what has come is freed, and what comes later is not read."""
        self._refused, self.receiver = True, None
        super().close(code, None if reason is None else reason.encode()[:LONGEST_REASON].decode("utf-8", "ignore"))

    def _refuse(self, code: int, reason: str) -> None:
        log.warning("A websocket is closed: %s", reason)
        self.close(code, reason)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self.application.io_loop.remove_timeout(self._deadline)
            self._deadline = None


def _is_header(fragment: str | bytes) -> bool:
    """Whether this is the header of a message: a JSON object that names its type."""
    if not isinstance(fragment, str) or len(fragment) > LONGEST_HEADER:
        return False
    try:
        header = json.loads(fragment)
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and isinstance(header.get("msgtype"), str)


CONTENT_POLICY = "; ".join((
    "default-src 'self'",
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:",  # Bokeh compiles callbacks and imports blobs
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "connect-src 'self' data: blob:",
    "worker-src 'self' blob:",
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'self'",
))  # fmt: skip
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
REMOVED_HEADERS = (  # autoload.js sends the first three to every web site
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Credentials",
    "Server",
)
CLOSED = (AutoloadJsHandler, ComponentResourceHandler)  # the second imports any module that the address names
CHOSEN_SESSION = ("bokeh-token", "bokeh-session-id")  # arguments by which a visitor would choose the session
METHODS = ("GET", "HEAD")  # a page needs no other one
HEADER_SECONDS = 20.0  # for the headers of a request, and between two requests of one connection
BODY_SECONDS = 10.0
LARGEST_BODY = 64 << 10  # bytes; what people upload comes through the websocket
LARGEST_BUFFER = 32 << 20  # bytes that are read of a connection before they are used
LOOK_FOR_UNUSED_SESSIONS = 2000.0  # milliseconds between two looks


class SecurityHeaders(OutputTransform):
    """Adds `HEADERS` to every answer, also to errors, static files and websockets."""

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Change the headers; the content stays."""
        for name in REMOVED_HEADERS:
            headers.pop(name, None)
        headers.update(HEADERS)
        return status_code, headers, chunk


@stream_request_body
class Refusal(RequestHandler):
    """Answers with a status and a sentence, for any method of the request, and before its body has come."""

    def initialize(self, status: int, reason: str) -> None:
        """Take the answer."""
        self.answer = (status, reason)

    def prepare(self) -> None:
        """Send the answer; no method of the handler is called after this."""
        status, reason = self.answer
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(reason)

    def data_received(self, chunk: bytes) -> None:
        """Drop a part of the body."""


class Entrance(RootHandler):
    """Sends who asks for the bare address on to the page, with the link's own query, which Bokeh's handler drops."""

    def redirect(self, url: str, permanent: bool = False, status: int | None = None) -> None:
        """Redirect to the page; a login's address has its own query."""
        query = "" if "?" in url else self.request.query
        super().redirect(f"{url}?{query}" if query else url, permanent, status)


class RequestGuard:
    """The guard of one server.

    The names that are answered are the server's allowed websocket origins. Session ids are signed, if the server does
    not do so already, with the key in BOKEH_SECRET_KEY or else with a random one.

    Parameters
    ----------
    application : BokehTornado
        The server.
    local_only : bool, default False
        Whether to refuse visitors from other machines for as long as all allowed names mean this machine.
    max_sessions : int, default 60
        Number of sessions that there may be; 0 for no limit.
    max_per_address : int, default 0
        Number of sessions that one address may have; 0 for as many as the server.
    secret_key : str, optional
        Signs session ids, if BOKEH_SECRET_KEY does not; by default a random key. Processes that share a port need one.
    """

    def __init__(
        self, application: BokehTornado, *, local_only: bool = False, max_sessions: int = MAX_SESSIONS,
        max_per_address: int = 0, secret_key: str = "",
    ) -> None:  # fmt: skip
        self._application, self._local_only = application, local_only
        self._visitors = Visitors(application, max_sessions, max_per_address)
        self._find_handler = application.find_handler
        application.transforms.append(SecurityHeaders)
        application._cleanup_job.callback_time = LOOK_FOR_UNUSED_SESSIONS
        if not application.sign_sessions:
            application._sign_sessions = True
            application._generate_session_ids = True
            key = os.environ.get("BOKEH_SECRET_KEY") or secret_key or secrets.token_urlsafe(48)
            application._secret_key = key.encode()

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """Return what handles a request: the handler of its address, or a refusal."""
        delegate = self._find_handler(request, **kwargs)
        kind = delegate.handler_class
        refusal = self._foreign(request) or _unusual(request)
        if refusal is None and issubclass(kind, CLOSED):
            refusal = (404, "This address is closed.")
        if refusal is None and issubclass(kind, SessionHandler | WSHandler):
            session_id = self._session_id(request)
            if issubclass(kind, WSHandler) and not session_id:
                refusal = 400, "This websocket names no session of this server. Load its page again."
            else:
                refusal = _embedded(request) or self._visitors.refusal(request, session_id)
        if refusal is not None:
            status, reason = refusal
            return self._application.get_handler_delegate(request, Refusal, {"status": status, "reason": reason})
        request.passed_guard = True  # the app of `panel serve` asks for it
        request.known_names = " ".join(known_names(self._application))
        if issubclass(kind, WSHandler):
            delegate.handler_class = GuardedSocket
        elif issubclass(kind, RootHandler):
            delegate.handler_class = Entrance
        return delegate

    def _foreign(self, request: HTTPServerRequest) -> tuple[int, str] | None:
        """Status and sentence for a request under another name, from another site, or from another machine."""
        names = known_names(self._application)
        if not is_known(request.host, names):
            return 421, "This server is not known under that name. Its owner can add names, see `serve --help`."
        origin = request.headers.get("Origin")
        if origin is not None and not is_known(host_of(origin), names):
            return 403, "Another web site may not use this server."
        if self._local_only and all(map(is_local_name, names)) and not is_loopback(request.remote_ip or ""):
            return 403, "This server answers its own machine only; `python -m gpexplorer serve` can open it to others."
        return None

    def _session_id(self, request: HTTPServerRequest) -> str:
        """The session that a websocket names; nothing where it names none, or this server has not signed the token."""
        protocols = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
        try:
            is_ours = len(protocols) == 2 and check_token_signature(
                protocols[1], self._application.secret_key, self._application.sign_sessions
            )
            return str(get_session_id(protocols[1])) if is_ours else ""
        except (KeyError, TypeError, ValueError, RecursionError):  # no base64, no JSON, or no session in it
            return ""


def protect(server: BaseServer, **limits: Any) -> None:
    """Put the guard in front of a server, and limit what its connections may send.

    Call it before the server's loop answers the first request.

    Parameters
    ----------
    server : Server
        A server of Bokeh or Panel. One that is protected already is left as it is.
    **limits : object
        The further arguments of `RequestGuard`.
    """
    parameters = server._http.conn_params
    parameters.header_timeout, parameters.body_timeout = HEADER_SECONDS, BODY_SECONDS
    parameters.max_body_size = LARGEST_BODY
    server._http.max_buffer_size = LARGEST_BUFFER
    if SecurityHeaders not in server._tornado.transforms:
        Connections(server._http)
    protect_application(server._tornado, **limits)


def protect_application(application: BokehTornado, **limits: Any) -> None:
    """Put the guard in front of the application of a server; `limits` are the further arguments of `RequestGuard`."""
    if SecurityHeaders not in application.transforms:
        application.find_handler = RequestGuard(application, **limits).find_handler


def _unusual(request: HTTPServerRequest) -> tuple[int, str] | None:
    """Status and sentence for a request that no page sends."""
    if request.method not in METHODS:
        return 405, "This server answers GET and HEAD."
    if "%00" in request.path or "\0" in request.path:
        return 400, "No address has the character 0."
    if len(request.uri or "") > LONGEST_ADDRESS:
        return 414, f"The address has more than {LONGEST_ADDRESS} characters. Send the Spec's JSON instead."
    if sum(map(len, request.arguments.values())) > MOST_ARGUMENTS:
        return 400, f"The address has more than {MOST_ARGUMENTS} arguments, which no link has."
    if "Bokeh-Session-Id" in request.headers or any(name in request.arguments for name in CHOSEN_SESSION):
        return 400, "A session cannot be chosen. Open the page without bokeh-token and bokeh-session-id."
    return None


def _embedded(request: HTTPServerRequest) -> tuple[int, str] | None:
    """Status and sentence for a request that would begin a session for another site."""
    site, use = (request.headers.get(f"Sec-Fetch-{name}", "none") for name in ("Site", "Dest"))
    if site not in ("none", "same-origin") and use not in ("none", "document"):
        return 403, "Another web site may not begin a session. Open the page in a tab of its own."
    return None
