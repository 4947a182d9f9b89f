"""Serving the explorer, by `python -m gpexplorer serve` or by `panel serve apps/explorer.py`.

Both have signed session ids, the guard of `gate` before every request, and no tracebacks for strangers. There are no
accounts: everyone who can open the page can do everything that it offers.

Closed pages are collected when nobody waits for a picture. The objects of a page refer to each other in cycles, so
Python frees them only by garbage collection. By itself, Python would collect after some hundred pages, at any moment
and for seconds, because a collection visits the objects of all open pages.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import panel as pn
import torch
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.util.warnings import BokehUserWarning

from ..errors import SettingError
from ..runs import Store
from .address import session_http_request
from .browser.protocol_repairs import repair_protocol, send_patches_together
from .connections import UNUSED_LIFETIME, Arrivals
from .gate.request_guard import LOCAL_NAME, protect, protect_application
from .ready_sessions import ReadySessions
from .session_page import app, speed_up, warm
from .shared_limits import Limits, Shares, Turns

QUIET = 2.0  # seconds without a step of any run, after which a collection disturbs nobody
MOST = 10  # closed pages, of about 8 MB each, that are kept at most while it is not quiet
GAP = 0.5  # seconds between two looks


class ClosedPages:
    """The closed pages of a server whose memory is not free yet.

    Parameters
    ----------
    turns : Turns
        The steps of all runs.
    arrivals : Arrivals
        The pages that are on their way to a browser.

    Attributes
    ----------
    count : int
        Number of pages.
    """

    def __init__(self, turns: Turns, arrivals: Arrivals) -> None:
        self._turns, self._arrivals = turns, arrivals
        self.count = 0

    def add(self) -> None:
        """A page was closed."""
        self.count += 1

    @property
    def due(self) -> bool:
        """Whether to free them now."""
        quiet = self._turns.idle_seconds > QUIET and not self._arrivals.pending
        return self.count >= MOST or (self.count > 0 and quiet)

    async def keep_freeing(self) -> None:
        """Free closed pages for as long as the server runs."""
        while True:
            await asyncio.sleep(GAP)
            if self.due:
                self.count = 0
                gc.collect()


COMPRESSION = 1  # of what travels to the browser, by deflate: half the bytes, in a third of a millisecond per picture
ALL_INTERFACES = ("", "0.0.0.0", "::", "*")
RELOAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>gpexplorer</title>
<meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body><p>Loading …</p><script>setTimeout(() => location.reload(), 50)</script></body></html>
"""  # without Bokeh, whose websocket the guard would refuse: the session of this page is not signed
NO_ENTRY_POINT = (
    "This server had no guard until its first visitor came: the installed metadata of gpexplorer are older than its "
    "program. Install gpexplorer again (pip install -e . in its folder) and restart, or use python -m gpexplorer serve."
)
ANY_NAME = (
    "This server answers under any name (--allow-websocket-origin=*), so any web site that you visit can read this "
    "page. Name the host instead, or use python -m gpexplorer serve."
)


def serve(
    port: int = 5006, address: str = "localhost", show: bool = False, origins: tuple[str, ...] = (),
    store: str | os.PathLike[str] | None = None, limits: Limits | None = None,
) -> None:  # fmt: skip
    """Serve the page at http://address:port/explorer until interrupted.

    Parameters
    ----------
    port : int, default 5006
        Port to listen on.
    address : str, default "localhost"
        Address to listen on. With "0.0.0.0" or "::" (every network of this machine), `origins` must name the host.
    show : bool, default False
        Whether to open the page in a browser.
    origins : tuple of str, optional
        Names, each as "host:port", by which people may also open the page, for example behind a proxy.
    store : str or PathLike, optional
        A directory. The runs and notes that anyone keeps stay there, and everyone can read them.
    limits : Limits, optional
        Sessions, memory and threads that all visitors together may use.

    Raises
    ------
    SettingError
        Where the address is open to all networks and no origin is named, or an origin is not a host with a port.
    OSError
        Where the address cannot be listened on.
    """
    allowed = hosts(address, port, origins)
    shares = Shares(limits)
    repair_protocol()
    send_patches_together()
    torch.set_num_threads(shares.threads_per_turn)
    closed = ClosedPages(shares.turns, shares.arrivals)
    shared_store = None if store is None else Store(store)
    # The browser renames a table's style sheets when it sends them back, which is harmless.
    warnings.filterwarnings("ignore", "reference already known", BokehUserWarning)
    server = pn.serve(
        {"explorer": lambda: app(shared_store, shares=shares, on_close=closed.add)},
        port=port,
        address=address,
        show=show,
        start=False,
        title="gpexplorer",
        websocket_origin=[name for name in allowed if "[" not in name] or [f"{LOCAL_NAME}:{port}"],
        num_procs=1,
        websocket_compression_level=COMPRESSION,
        sign_sessions=True,
        secret_key=os.environ.get("BOKEH_SECRET_KEY") or secrets.token_urlsafe(48),
        generate_session_ids=True,
        unused_session_lifetime_milliseconds=round(1000 * UNUSED_LIFETIME),
        check_unused_sessions_milliseconds=2000,
        verbose=False,
    )  # listens from here on, and answers nobody yet: OSError was raised if the port is taken
    server._tornado._websocket_origins.update(allowed)  # Bokeh cannot read [::1] among its options
    protect(server, max_sessions=shares.limits.max_sessions, max_per_address=shares.limits.max_per_address)
    warm()
    _let_wait(server, "/explorer", shares.limits.ready_pages, shares)
    server.io_loop.add_callback(closed.keep_freeing)
    print(f"Explorer: http://{allowed[0]}/explorer", flush=True)
    server.start()
    server.io_loop.start()


def hosts(address: str, port: int, origins: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the values of the Host and Origin headers that are answered.

    Parameters
    ----------
    address, port, origins : str, int, tuple of str, optional
        As for `serve`.

    Raises
    ------
    SettingError
        As for `serve`.
    """
    for origin in origins:
        if "*" in origin or "/" in origin or not origin.rpartition(":")[2].isdigit():
            raise SettingError(f"The origin {origin!r} is not a host with a port; give one such as lab.example.org:80.")
    if address in ALL_INTERFACES and not origins:
        raise SettingError(
            f"The address {address!r} is open to every network of this machine. Name the host by which people open "
            f"the page, for example --origin lab.example.org:{port}, or listen on --address localhost."
        )
    name = LOCAL_NAME if address in ALL_INTERFACES else f"[{address}]" if ":" in address else address
    local_hosts = [f"{name}:{port}"]  # for a loopback address, the guard knows the others as well
    named_hosts = [origin.lower() for origin in origins]
    # Bokeh takes a name without a port for port 80, also where the browser means https and its port 443.
    implicit = [f"{origin.removesuffix(':443')}:80" for origin in named_hosts if origin.endswith(":443")]
    return (*local_hosts, *named_hosts, *implicit)


def panel_serve_app() -> Any:
    """Build the page for `panel serve apps/explorer.py`.

    The server is guarded from its start on, by the entry point `gate.panel_serve`. Where the installed metadata of this
    package do not name it, the guard is put in place now: the first visitor gets a page that loads itself again, and
    the log and every page say what to do.
    """
    request = session_http_request()
    repair_protocol()
    send_patches_together()
    if request is not None and not getattr(request, "passed_guard", False):
        pn.state.cache["gpexplorer_had_no_guard"] = True
        logging.getLogger("gpexplorer.ui").error(NO_ENTRY_POINT)
        _protect_next()
        return pn.Template(RELOAD)
    notices = [NO_ENTRY_POINT] if "gpexplorer_had_no_guard" in pn.state.cache else []
    notices += [ANY_NAME] if "*" in getattr(request, "known_names", "") else []
    return app(notice=" ".join(notices), shares=_panel_serve_shares())


def let_visitors_wait(server: BaseServer, ready_pages: Mapping[str, int]) -> None:
    """Give visitors of `panel serve` a page that is ready, or a waiting page while theirs is built.

    Parameters
    ----------
    server : Server
        The server, before its loop runs.
    ready_pages : mapping of str to int
        The paths of the apps that show the explorer -> number of pages to keep ready of each address.
    """
    if any(ready_pages.values()):  # this process has no other app
        speed_up()
    for path, count in ready_pages.items():
        _let_wait(server, path, count, _panel_serve_shares())


def _let_wait(server: BaseServer, path: str, ready_pages: int, shares: Shares) -> None:
    """Give visitors of one app a page that is ready, or a waiting page while theirs is built."""
    ready = ReadySessions(server._tornado, path, ready_pages, shares)
    ready.install()
    server.io_loop.add_callback(ready.keep_filled)
    server.io_loop.add_callback(ready.keep_serving)


def _protect_next() -> None:
    """Protect the server that gets the next request."""
    find_handler = BokehTornado.find_handler

    def protected(application: BokehTornado, request: Any, **kwargs: Any) -> Any:
        BokehTornado.find_handler = find_handler
        protect_application(application, local_only=True)
        return application.find_handler(request, **kwargs)

    BokehTornado.find_handler = protected


@cache
def _panel_serve_shares() -> Shares:
    """What the sessions of this process share; `panel serve` has no options for its limits."""
    return Shares()
