"""The commands `serve` and `compile`, and `bench` and `reproduce`, which say where benchmarks and papers are.

Apart because they start or prepare other programs and compute nothing.
"""

from __future__ import annotations

import errno
import os
import shlex
import socket
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import GPExplorerError, SettingError

ALL_ARGUMENTS: dict[str, Any] = {  # for a command that takes every argument as it is, --help included
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
    max_sessions_per_address: Annotated[
        int, typer.Option(min=0, help="Pages of one address at the same time; 0 is as many as --max-sessions: a class.")
    ] = 0,
    max_memory: Annotated[
        float | None,
        typer.Option(help="GB for all runs together, by formula; by default three quarters of this machine."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Cores for the steps of all runs; by default all but one.")
    ] = None,
    ready_pages: Annotated[
        int, typer.Option(min=0, help="Pages that are built in advance, so that a class can open them at once.")
    ] = 30,
) -> None:
    """Serve the page until interrupted."""
    _require_free_port(address, port)  # before the page is imported, which takes seconds
    from ..runs import Store

    if store is not None:
        Store(store).require_writable()  # before the page is prepared, and not when a person keeps the first run
    from ..ui import server
    from ..ui.shared_limits import Limits

    memory = None if max_memory is None else 1e9 * max_memory
    limits = Limits(max_sessions, memory, threads, ready_pages, max_sessions_per_address)
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


def compile_code() -> None:
    """Compile what the extra `fast` makes faster, once per machine and version: the tries of cholqr (half a minute)."""
    from ..methods.inducing.swapping.compiled_swapper import write_compiled_code

    begin = time.perf_counter()
    folder = write_compiled_code()
    typer.echo(f"Compiled in {time.perf_counter() - begin:.0f} s; the code is in {folder}")


def bench(context: typer.Context) -> None:
    """Say where the benchmarks are: they are part of the repository, and not of the installed package."""
    raise _in_the_repository("benchmarks", "cholqr --data kin40k --m 512", context.args)


def reproduce(context: typer.Context) -> None:
    """Say where the figures and tables of the papers are: in the repository, and not in the installed package."""
    raise _in_the_repository("papers", "all", context.args)


def _in_the_repository(name: str, example: str, arguments: list[str]) -> SettingError:
    command = " ".join(["python -m", name, shlex.join(arguments) or example])
    return SettingError(f"The {name} are not part of the installed package; in a checkout of the repository: {command}")
