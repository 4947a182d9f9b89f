"""The gate for `panel serve`, in place before the first visitor.

`panel serve app.py` runs an app only when its first visitor comes, so the app cannot protect the server that serves it.
But Panel loads the entry points of the group "panel.io.rest" when its command line is imported. This module is one of
them. It changes nothing except that the command `serve`, once it has made a server and before the server answers,
protects it if one of its apps mentions this package. A server of other apps stays as it is.

It is loaded in every process that imports Panel's command line, so it imports nothing that takes time.
"""

from __future__ import annotations

import importlib
import logging
import secrets
import sys
from typing import Any

PACKAGE = "gpexplorer"
COMMAND = "bokeh.command.subcommands.serve"  # of which Panel's `serve` is made
SECRET_KEY = secrets.token_urlsafe(48)  # the same in all processes of --num-procs, which are forked later
log = logging.getLogger("gpexplorer.ui")


def rest_routes(files: list[str], endpoint: str) -> list[Any]:
    """Return no routes. Panel asks an entry point of this group for routes where `--rest-provider` names it."""
    return []


def install() -> None:
    """Protect each server that the command `serve` makes for an app of this package from now on."""
    command = getattr(sys.modules.get(COMMAND), "Serve", None)
    if command is None or hasattr(command, "before_gpexplorer"):
        return
    command.before_gpexplorer = command.customize_server

    def customize_server(self: Any, server: Any) -> Any:
        server = command.before_gpexplorer(self, server)
        if serves_this_package(server):
            _protect(server)
        return server

    command.customize_server = customize_server


def serves_this_package(server: Any) -> bool:
    """Return whether the program text of one of the apps of a server mentions this package."""
    return any(map(_mentions_this_package, server._tornado.applications.values()))


def _mentions_this_package(context: Any) -> bool:
    runners = [getattr(handler, "_runner", None) or _main(handler) for handler in context.application.handlers]
    return any(PACKAGE in (getattr(runner, "source", "") or "") for runner in runners)


def _main(handler: Any) -> Any:
    """The program of an app that is a directory; None for other apps."""
    return getattr(getattr(handler, "_main_handler", None), "_runner", None)


def _protect(server: Any) -> None:
    """Protect a server, and write to the log whom it answers.

    The page is imported first: of several processes (`--num-procs`), one answers for files of components that only
    another one has imported.
    """
    importlib.import_module("..", __package__).__getattr__("app")  # which leaves the design of the process as it is
    from tornado.process import task_id

    from ..browser.protocol_repairs import repair_protocol
    from .request_guard import is_local_name, known_names, protect

    protect(server, local_only=True, secret_key=SECRET_KEY)
    repair_protocol()
    if task_id() is not None:
        log.warning(
            "Of several processes, one may build a page again that another one has sent, and then without some of its "
            "styles: give each process a port of its own, behind a proxy that keeps a visitor on one of them."
        )
    else:  # of several processes, one would be asked for a place in the line of another one
        paths = [path for path, context in server._tornado.applications.items() if _mentions_this_package(context)]
        importlib.import_module("..server", __package__).let_visitors_wait(server, paths)
    names = known_names(server._tornado)
    if all(map(is_local_name, names)):
        log.warning(
            "gpexplorer answers this machine only. `python -m gpexplorer serve --help` says how to open the page to "
            "others; with `panel serve`, name its host: --allow-websocket-origin HOST:%s",
            server.port,
        )


install()
