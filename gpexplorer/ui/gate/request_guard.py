"""The guard that every request to the server passes before any handler of Bokeh or Panel sees it.

It answers only requests that name the server as its owner does (the Host and, if there is one, the Origin header), so
that a web page on another name cannot read the explorer through a visitor's browser. It closes routes that the page
does not need and that do harm, and it adds security headers to every answer.

The guard sits in `find_handler` of the server's application, which tornado calls when the headers of a request have
come and before the body is read: for pages, static files, websockets and unknown addresses. `RequestHandler.prepare` is
no such place, because Bokeh's own handlers override it. `protect` puts it there before the server answers anyone; other
servers in the same process stay as they are.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.server.views.autoload_js_handler import AutoloadJsHandler
from bokeh.server.views.session_handler import SessionHandler
from bokeh.server.views.ws import WSHandler
from bokeh.util.token import get_session_id
from panel.io.server import ComponentResourceHandler
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform, RequestHandler, stream_request_body

from .guarded_socket import GuardedSocket
from .host_names import is_known, is_local_name, is_loopback, known_names
from .visitors import LONGEST_ADDRESS, MAX_SESSIONS, MOST_ARGUMENTS, Visitors

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
        for name, value in HEADERS.items():
            headers[name] = value
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


class RequestGuard:
    """The guard of one server.

    The names that are answered are the server's allowed websocket origins. Session ids are signed, if the server does
    not do so already, with the key in BOKEH_SECRET_KEY or else with a random one.

    Parameters
    ----------
    application : BokehTornado
        The server.
    local_only : bool
        Whether to refuse visitors from other machines for as long as all allowed names mean this machine.
    max_sessions : int
        Number of sessions that there may be; 0 for no limit.
    secret_key : str
        Signs session ids, if BOKEH_SECRET_KEY does not; by default a random key.
    """

    def __init__(self, application: BokehTornado, local_only: bool, max_sessions: int, secret_key: str = "") -> None:
        self._application, self._local_only = application, local_only
        self._visitors = Visitors(application, max_sessions)
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
            refusal = _embedded(request) or self._visitors.refusal(request, _session_id(request))
        if refusal is not None:
            status, reason = refusal
            return self._application.get_handler_delegate(request, Refusal, {"status": status, "reason": reason})
        request.passed_guard = True  # the app of `panel serve` asks for it
        request.known_names = " ".join(known_names(self._application))
        if issubclass(kind, WSHandler):
            delegate.handler_class = GuardedSocket
        return delegate

    def _foreign(self, request: HTTPServerRequest) -> tuple[int, str] | None:
        """Status and sentence for a request under another name, from another site, or from another machine."""
        names = known_names(self._application)
        if not is_known(request.host, names):
            return 421, "This server is not known under that name. Its owner can add names, see `serve --help`."
        origin = request.headers.get("Origin")
        if origin is not None and not is_known(origin.rpartition("://")[2], names):
            return 403, "Another web site may not use this server."
        if self._local_only and all(map(is_local_name, names)) and not is_loopback(request.remote_ip or ""):
            return 403, "This server answers its own machine only; `python -m gpexplorer serve` can open it to others."
        return None


def protect(
    server: BaseServer, *, local_only: bool = False, max_sessions: int = MAX_SESSIONS, secret_key: str = ""
) -> None:
    """Put the guard in front of a server, and limit what its connections may send.

    Call it before the server's loop answers the first request.

    Parameters
    ----------
    server : Server
        A server of Bokeh or Panel. One that is protected already is left as it is.
    local_only : bool, default False
        Whether to refuse visitors from other machines for as long as all allowed names mean this machine.
    max_sessions : int, default 60
        Number of sessions that there may be; 0 for no limit.
    secret_key : str, optional
        Signs session ids, if BOKEH_SECRET_KEY does not; by default a random key. Processes that share a port need one.
    """
    parameters = server._http.conn_params
    parameters.header_timeout, parameters.body_timeout = HEADER_SECONDS, BODY_SECONDS
    parameters.max_body_size = LARGEST_BODY
    server._http.max_buffer_size = LARGEST_BUFFER
    protect_application(server._tornado, local_only, max_sessions, secret_key)


def protect_application(application: BokehTornado, local_only: bool, max_sessions: int, secret_key: str = "") -> None:
    """Put the guard in front of the application of a server; see `protect`."""
    if SecurityHeaders not in application.transforms:
        application.find_handler = RequestGuard(application, local_only, max_sessions, secret_key).find_handler


def _unusual(request: HTTPServerRequest) -> tuple[int, str] | None:
    """Status and sentence for a request that no page sends."""
    if request.method not in METHODS:
        return 405, "This server answers GET and HEAD."
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


def _session_id(request: HTTPServerRequest) -> str:
    """The session that a websocket names, or nothing. The signature of its token is checked by the server."""
    protocols = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
    try:
        return str(get_session_id(protocols[1])) if len(protocols) == 2 else ""
    except (KeyError, TypeError, ValueError):  # no base64, no JSON, or no session in it
        return ""
