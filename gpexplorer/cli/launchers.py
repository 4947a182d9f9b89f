"""The commands `serve`, `bench` and `reproduce`, which start the page, the benchmarks and the papers' figures."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import GPExplorerError, SettingError

ALL_ARGUMENTS: dict[str, Any] = {  # for a command that passes every argument on, --help included
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    "add_help_option": False,
}


def serve(  # noqa: PLR0913 - the options of a command
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 5006,
    address: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 is every network of this machine and needs --origin.")
    ] = "localhost",
    show: Annotated[bool, typer.Option(help="Open a browser.")] = False,
    origin: Annotated[list[str] | None, typer.Option(help="A host:port by which people may open the page.")] = None,
    store: Annotated[
        Path | None, typer.Option(help="Keep runs and notes in this directory, for everyone who opens the page.")
    ] = None,
    max_sessions: Annotated[int, typer.Option(min=1, help="Pages that are open at the same time.")] = 60,
    max_memory: Annotated[
        float | None,
        typer.Option(help="GB for all runs together, by formula; by default three quarters of this machine."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Cores for the steps of all runs; by default all but one.")
    ] = None,
    ready_pages: Annotated[
        int, typer.Option(min=0, help="Pages that are built in advance, so that a class can open them at once.")
    ] = 20,
) -> None:
    """Serve the page until interrupted."""
    _require_free_port(address, port)  # before the page is imported, which takes seconds
    from ..runs import Store

    if store is not None:
        Store(store).require_writable()  # before the page is prepared, and not when a person keeps the first run
    from ..ui import server
    from ..ui.shared_limits import Limits

    limits = Limits(max_sessions, None if max_memory is None else 1e9 * max_memory, threads, ready_pages)
    try:
        server.serve(port=port, address=address, show=show, origins=tuple(origin or ()), store=store, limits=limits)
    except GPExplorerError:  # a StoreError is an OSError, too
        raise
    except OSError as error:
        raise _cannot_listen(address, port, error) from None


def _require_free_port(address: str, port: int) -> None:
    """Raise a SettingError if another program listens there, or if listening is not allowed."""
    try:
        places = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return  # the server says what is wrong with the address
    for family, kind, protocol, _, place in places:
        try:
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":  # as the server does: a port that was closed a moment ago is free
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(place)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise _cannot_listen(address, port, error) from None


def _cannot_listen(address: str, port: int, error: OSError) -> SettingError:
    return SettingError(f"Cannot listen on {address}:{port} ({error.strerror}): choose another --port or --address.")


def bench(context: typer.Context) -> None:
    """Run a benchmark: `bench cholqr --data kin40k --m 512`. `bench --help` lists all benchmarks."""
    from ..bench.__main__ import app

    app(context.args, prog_name="python -m gpexplorer bench")


def reproduce(
    name: Annotated[
        str,
        typer.Argument(help='A figure or table, several joined by commas, or "all". Without it, the names are listed.'),
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="Use as many repeats and rows as the paper.")] = False,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, help="At most this many draws, splits, folds or seeds, to have the paper's sizes sooner."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The directory for the table (Parquet) and the picture (HTML).")] = Path(
        "reproduced"
    ),
) -> None:
    """Compute a figure or table of a paper again, beside the published one. The command continues a stopped run.

    all computes every one, and writes report.html and report.md with a verdict on each statement of the papers; several
    joined by commas are computed and judged in the same way.
    """
    from .. import reproduce as figures
    from ..reproduce.verdict_report import run_all
    from .files import writable

    if not name:
        for figure_name in figures.names():
            typer.echo(f"{figure_name}: {figures.find(figure_name).title}")
        return
    folder = out / ("full" if full else "quick")
    chosen = [figures.find(part.strip()) for part in (figures.names() if name == "all" else name.split(","))]
    chosen = chosen if repeats is None else [figure.limited(repeats) for figure in chosen]
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for line in run_all(chosen, folder, full) if len(chosen) > 1 else chosen[0].run(folder, full):
        typer.echo(line)
