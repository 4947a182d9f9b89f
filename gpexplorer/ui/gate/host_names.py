"""The names by which a server is known: its hosts and ports, with one spelling for all that mean this machine.

The guard of HTTP requests and that of websockets compare names by these functions.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from bokeh.server.tornado import BokehTornado
from bokeh.server.util import check_allowlist
from bokeh.settings import settings

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


def is_local_name(host: str) -> bool:
    """Return whether a host, with or without a port, always means this machine."""
    return one_spelling(host).rpartition(":")[0] == LOCAL_NAME


def is_loopback(address: str) -> bool:
    """Return whether an IP address belongs to this machine alone."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
