"""The guard that every request to the server passes before any handler of Bokeh or Panel sees it.

It answers only requests that name the server as its owner does (the Host and, if there is one, the Origin header), so
that a web page on another name cannot read the explorer through a visitor's browser. It closes routes that the page
does not need and that do harm, and it adds security headers to every answer.

The guard sits in `BokehTornado.find_handler`, which tornado calls for every request: pages, static files, websockets
and unknown addresses. `RequestHandler.prepare` is no such place, because Bokeh's own handlers override it.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from typing import Any

from bokeh.server.tornado import BokehTornado
from bokeh.server.util import check_allowlist
from bokeh.server.views.autoload_js_handler import AutoloadJsHandler
from bokeh.server.views.session_handler import SessionHandler
from bokeh.server.views.ws import WSHandler
from bokeh.util.token import get_session_id
from panel.io.server import ComponentResourceHandler
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform, RequestHandler

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
LOCAL_NAMES = ("localhost", "127.0.0.1")  # Bokeh cannot read names such as [::1]


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


class Refusal(RequestHandler):
    """Answers with a status and a sentence, for any method of the request."""

    def initialize(self, status: int, reason: str) -> None:
        """Take the answer."""
        self.answer = (status, reason)

    def prepare(self) -> None:
        """Send the answer; no method of the handler is called after this."""
        status, reason = self.answer
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(reason)


class RequestGuard:
    """The guard of all servers in this process.

    The names that are answered are the server's allowed websocket origins. Session ids are signed, if the server does
    not do so already, with the key in BOKEH_SECRET_KEY or else with a random one.

    Attributes
    ----------
    installed : bool
        Whether `install` was called.
    answers_any_name : bool
        Whether a server with a wildcard among its allowed origins has been asked.
    """

    def __init__(self) -> None:
        self.installed, self.answers_any_name = False, False
        self._local_only, self._max_sessions = False, 0

    def install(self, local_only: bool = False, max_sessions: int = 0) -> bool:
        """Put the guard in front of every server.

        Parameters
        ----------
        local_only : bool, default False
            Whether to refuse visitors from other machines for as long as all allowed names mean this machine.
        max_sessions : int, default 0
            Number of sessions of a server from which no further one is begun; 0 for no limit.

        Returns
        -------
        bool
            False where it was installed before.
        """
        if self.installed:
            return False
        self.installed, self._local_only, self._max_sessions = True, local_only, max_sessions
        find_handler = BokehTornado.find_handler

        def guarded(application: BokehTornado, request: HTTPServerRequest, **kwargs: Any) -> Any:
            self._prepare(application)
            delegate = find_handler(application, request, **kwargs)
            refusal = self._refusal(application, request)
            if refusal is None and issubclass(delegate.handler_class, CLOSED):
                refusal = (404, "This address is closed.")
            if refusal is None and issubclass(delegate.handler_class, SessionHandler | WSHandler):
                refusal = self._full(application, request)
            if refusal is None:
                return delegate
            status, reason = refusal
            return application.get_handler_delegate(request, Refusal, {"status": status, "reason": reason})

        BokehTornado.find_handler = guarded  # type: ignore[method-assign]
        return True

    def _prepare(self, application: BokehTornado) -> None:
        """Add headers to all answers of a server, and sign its session ids."""
        if SecurityHeaders in application.transforms:
            return
        application.transforms.append(SecurityHeaders)
        self.answers_any_name = any("*" in name for name in application.websocket_origins)
        if not application.sign_sessions:
            application._sign_sessions = True
            application._generate_session_ids = True
            application._secret_key = (os.environ.get("BOKEH_SECRET_KEY") or secrets.token_urlsafe(48)).encode()

    def _refusal(self, application: BokehTornado, request: HTTPServerRequest) -> tuple[int, str] | None:
        """Status and sentence for a request that must not be answered; None for one that may."""
        allowed = application.websocket_origins
        if not _is_allowed(request.host, allowed):
            return 421, "This server is not known under that name. Its owner can add names, see `serve --help`."
        origin = request.headers.get("Origin")
        if origin is not None and not _is_allowed(origin.rpartition("://")[2], allowed):
            return 403, "Another web site may not use this server."
        if self._local_only and all(map(is_local_name, allowed)) and not is_loopback(request.remote_ip or ""):
            return 403, "This server answers its own machine only; `python -m gpexplorer serve` can open it to others."
        if "Bokeh-Session-Id" in request.headers or any(name in request.arguments for name in CHOSEN_SESSION):
            return 400, "A session cannot be chosen. Open the page without bokeh-token and bokeh-session-id."
        return None

    def _full(self, application: BokehTornado, request: HTTPServerRequest) -> tuple[int, str] | None:
        """Status and sentence for a request that would begin a session too many, or begin it for another site."""
        site, use = (request.headers.get(f"Sec-Fetch-{name}", "none") for name in ("Site", "Dest"))
        if site not in ("none", "same-origin") and use not in ("none", "document"):
            return 403, "Another web site may not begin a session. Open the page in a tab of its own."
        sessions = [session for path in application.app_paths for session in application.get_sessions(path)]
        sessions = [session for session in sessions if session._token is not None]  # others wait for a visitor
        protocols = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
        has_session = len(protocols) == 2 and _session_id(protocols[1]) in {session.id for session in sessions}
        if has_session or not self._max_sessions or len(sessions) < self._max_sessions:
            return None
        return 503, (
            f"{len(sessions)} pages are open, which is the limit of this server (--max-sessions). Close a tab, or load "
            "this page again in a minute."
        )


guard = RequestGuard()


def is_local_name(host: str) -> bool:
    """Return whether a host name, with or without a port, always means this machine."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.lower() in LOCAL_NAMES


def is_loopback(address: str) -> bool:
    """Return whether an IP address belongs to this machine alone."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _session_id(token: str) -> str:
    """The session that a token names, or nothing where it is no token. Its signature is checked by the server."""
    try:
        return str(get_session_id(token))
    except (KeyError, TypeError, ValueError):  # no base64, no JSON, or no session in it
        return ""


def _is_allowed(host: str, allowed: Any) -> bool:
    try:
        return bool(check_allowlist(host.lower(), allowed))
    except ValueError:  # more colons than a host has
        return False
