"""Serve the explorer: signed session ids, named websocket origins, a checked Host, headers that keep others out."""

from __future__ import annotations

import ipaddress
import os
import secrets
import warnings
from typing import Any

import panel as pn
import torch
from bokeh.util.warnings import BokehUserWarning
from tornado.web import RequestHandler

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
LOOPBACK = ("localhost", "127.0.0.1")


def serve(
    port: int = 5006, address: str = "localhost", show: bool = False, origins: tuple[str, ...] = (),
    store: str | os.PathLike[str] | None = None,
) -> None:  # fmt: skip
    """Serve the page at http://address:port/explorer until interrupted; `origins` names more hosts, as "host:port".

    With a `store`, a directory, everybody's kept runs and notes stay there, and everybody may read them.
    """
    from ..runs import Store
    from .page import app, warm

    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    held = None if store is None else Store(store)
    allowed = hosts(address, port, origins)
    guard(allowed)
    warm(held)
    # The browser names a table's style sheets anew when it sends them back, which harms nothing.
    warnings.filterwarnings("ignore", "reference already known", BokehUserWarning)
    server = pn.serve(
        {"explorer": lambda: app(held)},
        port=port,
        address=address,
        show=show,
        start=False,
        title="gpexplorer",
        websocket_origin=list(allowed),
        num_procs=1,
        sign_sessions=True,
        secret_key=os.environ.get("BOKEH_SECRET_KEY") or secrets.token_urlsafe(48),
        generate_session_ids=True,
        unused_session_lifetime_milliseconds=8000,
        check_unused_sessions_milliseconds=2000,
        verbose=False,
    )
    print(f"Explorer: http://{allowed[0]}/explorer", flush=True)  # it listens: OSError was raised if it cannot
    server.start()
    server.io_loop.start()


def hosts(address: str, port: int, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The values of Host (and of a websocket's origin) that are answered."""
    own = LOOPBACK if address in ("", "localhost", "0.0.0.0", "::") or _is_loopback(address) else (address,)
    return (*(f"{name}:{port}" for name in own), *more)


def guard(allowed: tuple[str, ...]) -> None:
    """Send the headers with every answer of this process, and refuse requests whose Host is not named."""
    defaults, prepare = RequestHandler.set_default_headers, RequestHandler.prepare

    def set_default_headers(handler: Any) -> None:
        defaults(handler)
        for name, value in HEADERS.items():
            handler.set_header(name, value)

    def checked(handler: Any) -> Any:
        if handler.request.host.lower() not in allowed:
            handler.set_status(421)
            handler.finish("This server is not known under that name.")
            return None
        return prepare(handler)

    RequestHandler.set_default_headers = set_default_headers  # type: ignore[method-assign]
    RequestHandler.prepare = checked  # type: ignore[method-assign]


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
