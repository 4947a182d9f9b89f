"""The widget that puts a page of the kernel into a cell, and passes its files and messages on through the comm.

Bytes are sent as base64: the gateway of Jupyter Server, which connects to kernels elsewhere, ends the connection at the
first message of a comm that has buffers (ipywidgets issue 3798).

The server of these pages listens on this machine only, under a path that nobody else knows: the browser never talks to
it, as the kernel passes its answers on. So a cell has the very page that `gpexplorer serve` serves.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
import secrets
import signal
import threading
import time
import warnings
import weakref
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import panel as pn
import traitlets
from bokeh.embed.bundle import extension_dirs
from bokeh.util.paths import bokehjs_path
from bokeh.util.warnings import BokehUserWarning
from panel.io.server import get_server
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from ...errors import SettingError
from ..browser.protocol_repairs import repair_connections, send_patches_together
from ..gate.request_guard import protect
from ..text import sentence

ADDRESS = "127.0.0.1"
UNUSED_LIFETIME = 60_000  # milliseconds that a page waits for its connection
MOST_VIEWS = 200  # views of pages that are open at the same time
OLD_FONTS = (".woff", ".ttf", ".eot")
LARGEST_MESSAGE = 1 << 30  # bytes of one message of a page
STYLE_URL = re.compile(r"""url\((["']?)(?!data:|https?:|#)([^)"']+)\1\)""")


class File(NamedTuple):
    """A file that a page needs.

    Attributes
    ----------
    type : str
        Its media type.
    content : bytes
        Its bytes.
    """

    type: str
    content: bytes


class KernelServer:
    """The pages of one kernel.

    Notes
    -----
    The path begins with 192 random bits and is told only to the notebook that runs in this kernel, so other users of
    the machine cannot open the pages.
    """

    def __init__(self) -> None:
        self.prefix = secrets.token_urlsafe(24)
        self._pages: dict[str, Callable[[], Any]] = {}
        main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGINT)
        send_patches_together()
        repair_connections()
        # The browser renames a table's style sheets when it sends them back. A cell would print the warning.
        warnings.filterwarnings("ignore", "reference already known", BokehUserWarning)
        server = get_server(
            {"view": self._build},
            port=0,
            address=ADDRESS,
            prefix=self.prefix,
            show=False,
            start=False,
            verbose=False,
            title="gpexplorer",
            unused_session_lifetime_milliseconds=UNUSED_LIFETIME,
            check_unused_sessions_milliseconds=2000,
        )
        protect(server, local_only=True, max_sessions=MOST_VIEWS)
        if main:
            signal.signal(signal.SIGINT, handler)  # get_server made an interrupt end the loop, here that of the kernel
        server.start()
        self._root = f"{ADDRESS}:{server.port}/{self.prefix}/"
        self._origin = f"http://localhost:{server.port}"
        self._client = AsyncHTTPClient(force_instance=True)

    def add(self, page: Callable[[], Any]) -> str:
        """Serve what a bound method returns, as long as its object lives.

        Parameters
        ----------
        page : callable
            Builds a page; called once for every view of it.

        Returns
        -------
        str
            The name to give to `page`.
        """
        name = secrets.token_urlsafe(16)
        method = weakref.WeakMethod(page, lambda _: self._pages.pop(name, None))
        self._pages[name] = lambda: build() if (build := method()) is not None else None
        return name

    async def page(self, name: str, dark: bool) -> str:
        """Build the page with this name for the dark theme or the light one, and return its HTML."""
        answer = await self._client.fetch(f"http://{self._root}view?page={name}&dark={int(dark)}", request_timeout=120)
        return answer.body.decode()

    async def connect(self, token: str, receive: Callable[[str | bytes | None], None]) -> WebSocketClientConnection:
        """Open the websocket of a page; `receive` is called with each fragment, and with None when it is closed."""
        request = HTTPRequest(f"ws://{self._root}view/ws", headers={"Origin": self._origin}, request_timeout=60)
        socket = await websocket_connect(
            request, on_message_callback=receive, subprotocols=["bokeh", token], max_message_size=LARGEST_MESSAGE
        )
        if socket.protocol is not None:
            socket.protocol.set_nodelay(True)  # a message's later fragments do not wait until the first is acknowledged
        return socket

    def _build(self) -> Any:
        arguments = pn.state.session_args
        page = self._pages.get(arguments.get("page", [b""])[0].decode())
        built = page() if page is not None else None
        return built if built is not None else pn.pane.HTML("<p>This object is gone. Run the cell again.</p>")


def file(path: str) -> File:
    """Read a file of Bokeh, of Panel or of a package with components, as their pages refer to it.

    Parameters
    ----------
    path : str
        Such as "static/js/bokeh.min.js?v=1".

    Returns
    -------
    File
        A style sheet has its fonts and images inside.

    Raises
    ------
    SettingError
        Where there is no such file among the static files of these packages.
    """
    file_path = _static_file(path.partition("?")[0].lstrip("./"))
    if file_path is None:
        raise SettingError(f"There is no file {path!r} among the static files of Bokeh, Panel and their components.")
    kind = _media_type(file_path)
    return File(kind, _with_fonts(file_path) if kind == "text/css" else file_path.read_bytes())


def _static_file(path: str) -> Path | None:
    """The file at this path of a server; None where there is none."""
    match path.split("/"):
        case ["static", "extensions", package, *rest] if package in extension_dirs:
            root = Path(extension_dirs[package])
        case ["static", *rest]:
            root = bokehjs_path()
        case _:
            return None
    file_path = root.joinpath(*rest).resolve()
    return file_path if file_path.is_relative_to(root.resolve()) and file_path.is_file() else None


def _with_fonts(sheet: Path) -> bytes:
    """A style sheet with its fonts and images inside; fonts in the format woff2 only."""

    def inside(match: re.Match[str]) -> str:
        path = sheet.parent / match[2].partition("?")[0]
        if path.suffix in OLD_FONTS or not path.is_file():
            return 'url("data:,")'
        return f'url("data:{_media_type(path)};base64,{b64encode(path.read_bytes()).decode()}")'

    return STYLE_URL.sub(inside, sheet.read_text(encoding="utf-8")).encode()


def _media_type(path: Path) -> str:
    types = {".js": "text/javascript", ".css": "text/css", ".woff2": "font/woff2"}
    return types.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"


@cache
def kernel_server() -> KernelServer:
    """Return the server of this kernel; the first call starts it."""
    return KernelServer()


GATHER = 0.004  # seconds in which the fragments of a message are gathered: one message of the comm for all of them
SILENCE = 150.0  # seconds; the browser says that it is there every 20 s, or every minute in a tab in the background


class Connection:
    """The websocket of one view of a page.

    Parameters
    ----------
    send : callable
        Sends a message to this view.

    Attributes
    ----------
    heard : float
        `time.monotonic()` when the browser last sent something.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send, self.heard = send, time.monotonic()
        self._fragments: list[str | bytes] = []
        self._socket: WebSocketClientConnection | None = None

    async def open(self, token: str) -> None:
        """Connect to the session that the page with this token belongs to."""
        self._socket = await kernel_server().connect(token, self._receive)
        self._look()

    async def send(self, fragments: list[str | dict[str, str]]) -> None:
        """Pass on what the browser sent."""
        self.heard = time.monotonic()
        if self._socket is None:
            return
        try:
            written = [  # all at once: another message must not come between two fragments
                self._socket.write_message(part)
                if isinstance(part, str)
                else self._socket.write_message(b64decode(part["base64"]), binary=True)
                for part in fragments
            ]
            await asyncio.gather(*written)
        except WebSocketClosedError:
            return

    def close(self) -> None:
        """Close the websocket; the page's session ends a few seconds later."""
        if self._socket is not None:
            self._socket.close()

    def _look(self) -> None:
        """Close the websocket of a browser that has been silent for long: it was closed, or its machine sleeps."""
        if time.monotonic() - self.heard > SILENCE:
            self.close()
        elif self._socket is not None and self._socket.close_code is None:
            asyncio.get_running_loop().call_later(SILENCE / 4, self._look)

    def _receive(self, fragment: str | bytes | None) -> None:
        if fragment is None:
            self._send({"ended": True})
            return
        if not self._fragments:
            asyncio.get_running_loop().call_later(GATHER, self._flush)
        self._fragments.append(fragment)

    def _flush(self) -> None:
        parts = [part if isinstance(part, str) else _as_text(part) for part in self._fragments]
        self._fragments.clear()
        self._send({"fragments": parts})


class Relay(anywidget.AnyWidget):
    """A page in a cell.

    Parameters
    ----------
    page : callable
        A bound method that builds the page, called once for every view of it.
    title : str
        Name of the page for readers of the screen.
    height : int, default 0
        Pixels; 0 for the height of what the page holds.
    """

    _esm = Path(__file__).with_name("relay.js")
    title = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(0).tag(sync=True)

    def __init__(self, page: Callable[[], Any], title: str, height: int = 0) -> None:
        super().__init__(title=title, height=height)
        self._page = kernel_server().add(page)
        self._connections: dict[str, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_msg(self._receive)

    def end(self, notice: str) -> None:
        """Close all views, which say why."""
        for view, connection in list(self._connections.items()):
            connection.close()
            self.send({"view": view, "notice": notice})
        self._connections.clear()

    def _receive(self, _: Any, message: Any, __: list[Any]) -> None:
        task = asyncio.ensure_future(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: dict[str, Any]) -> None:
        reply = {"view": message["view"], "id": message.get("id")}
        try:
            fields = await self._carry_out(str(message["view"]), message)
            if message.get("id"):
                self.send({**reply, **fields})
        except Exception as error:
            self.send({**reply, "notice": sentence(error, "the page of this cell was being sent")})

    async def _carry_out(self, view: str, message: dict[str, Any]) -> dict[str, Any]:
        """Do what a view asks for; returns the fields of the answer."""
        connection = self._connections.get(view)
        match message["ask"]:
            case "page":
                return {"page": await kernel_server().page(self._page, bool(message["dark"]))}
            case "file":
                page_file = file(message["path"])
                return {"type": page_file.type, **_as_text(page_file.content)}
            case "connect":
                self._disconnect(view)
                connection = Connection(lambda fields: self.send({"view": view, **fields}))
                await connection.open(message["token"])
                self._connections[view] = connection
            case "disconnect":
                self._disconnect(view)
            case "send":
                if connection is not None:
                    await connection.send(message["fragments"])
            case "beat":
                if connection is not None:
                    connection.heard = time.monotonic()
            case other:
                raise ValueError(f"no view asks for {other!r}")
        return {}

    def _disconnect(self, view: str) -> None:
        connection = self._connections.pop(view, None)
        if connection is not None:
            connection.close()


def _as_text(content: bytes) -> dict[str, str]:
    return {"base64": b64encode(content).decode("ascii")}
