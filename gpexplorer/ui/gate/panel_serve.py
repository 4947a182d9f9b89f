"""The gate for `panel serve` and for `pn.serve` in a program of one's own, in place before the first visitor.

`panel serve app.py` runs an app only when its first visitor comes, and `pn.serve` calls its functions then, so an app
cannot protect the server that serves it. But Panel loads the entry points of the group "panel.io.rest" before it makes
a server. This module is one of them. It changes nothing except that a server, when it starts and before it answers,
is protected if one of its apps mentions this package. A server of other apps stays as it is, and so does one that is
protected already.

It is loaded in every process in which Panel makes a server, so it imports nothing that takes time.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import logging
import secrets
import sys
from contextlib import suppress
from functools import partial
from typing import Any

PACKAGE = "gpexplorer"
SERVERS = "bokeh.server.server"  # the module of Bokeh's servers; Panel's are made of them
OUR_PAGE = "panel_serve_app().servable()"  # what `apps/explorer.py` does
READY_PAGES = 2  # that are kept ready of each address: for a person, not for a class
SECRET_KEY = secrets.token_urlsafe(48)  # the same in all processes of --num-procs, which are forked later
log = logging.getLogger("gpexplorer.ui")


def rest_routes(files: list[str], endpoint: str) -> list[Any]:
    """Return no routes. Panel asks an entry point of this group for routes where `--rest-provider` names it."""
    return []


def install() -> None:
    """Protect each server for an app of this package that starts from now on."""
    kind = getattr(sys.modules.get(SERVERS), "BaseServer", None)
    if kind is None or hasattr(kind, "before_gpexplorer"):
        return
    kind.before_gpexplorer = kind.start

    def start(self: Any) -> None:
        if "find_handler" not in vars(self._tornado) and serves_this_package(self):  # else it is protected already
            _protect(self)
        kind.before_gpexplorer(self)

    kind.start = start


def serves_this_package(server: Any) -> bool:
    """Return whether the program text of one of the apps of a server mentions this package."""
    applications = server._tornado.applications.values()
    return any(_mentions_this_package(context) or _shows_this_package(context) for context in applications)


def _mentions_this_package(context: Any) -> bool:
    """Whether the script of an app mentions this package."""
    return any(PACKAGE in source for source in _sources(context))


def _is_our_page(context: Any) -> bool:
    """Whether the script of an app only shows our page. One that does more may ask who its visitor is."""
    with suppress(SyntaxError, ValueError):  # of which Bokeh tells the visitor; the second where there is no script
        [source] = _sources(context)
        tree = ast.parse(source)
        done = [ast.unparse(line) for line in tree.body if not isinstance(line, ast.Import | ast.ImportFrom)]
        return done[ast.get_docstring(tree) is not None :] == [OUR_PAGE]
    return False


def _sources(context: Any) -> list[str]:
    """The program texts of an app."""
    mains = [getattr(handler, "_main_handler", handler) for handler in context.application.handlers]  # of directories
    runners = [getattr(main, "_runner", None) for main in mains]
    return [source for runner in runners if (source := getattr(runner, "source", None))]


def _shows_this_package(context: Any) -> bool:
    """Whether what `pn.serve` was given, a function, class or object, is of this package or may show it."""
    functions = [getattr(handler, "_func", None) for handler in context.application.handlers]
    apps = [function.args[0] if isinstance(function, partial) else function for function in functions]
    return any(_may_show_this_package(app) for app in apps if app is not None)


def _may_show_this_package(app: Any) -> bool:
    """Whether the module of a function or class mentions this package; of other objects, whether it has pictures."""
    if inspect.isroutine(app) or inspect.isclass(app):
        with suppress(OSError, TypeError):  # typed into a notebook or a console
            return PACKAGE in inspect.getsource(inspect.getmodule(app))
    return f"{PACKAGE}.views" in sys.modules


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
        contexts = server._tornado.applications
        ready = READY_PAGES if all(map(_is_our_page, contexts.values())) else 0  # building one delays other apps
        counts = {path: ready for path, context in contexts.items() if _mentions_this_package(context)}
        importlib.import_module("..server", __package__).let_visitors_wait(server, counts)
    names = known_names(server._tornado)
    if all(map(is_local_name, names)):
        log.warning(
            "gpexplorer answers this machine only. `python -m gpexplorer serve --help` says how to open the page to "
            "others; with `panel serve`, name its host: --allow-websocket-origin HOST:%s, and with `pn.serve`: "
            "websocket_origin",
            server.port,
        )


install()
