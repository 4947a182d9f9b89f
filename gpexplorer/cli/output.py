"""What the commands share: their call, options for programs, tables, JSON, durations, progress, and what a signal does.

At SIGINT and SIGTERM while `run`, `sweep` or `recommend` computes, the step in progress ends, or is given up if it is
long; all steps before it are kept, and the exit code says so. Any other command ends at once, without a file that is
half written.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer

from ..display import text_table
from ..errors import DISK_FULL, GPExplorerError, not_written

MISTAKE = 2  # exit code

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]


def call(commands: typer.Typer, arguments: list[str] | None = None, name: str | None = None) -> None:
    """Run a command line. An error of this package is printed as its sentence, with exit code 2 and no traceback.

    Parameters
    ----------
    commands : Typer
        The commands.
    arguments : list of str, optional
        The words after the name of the program. By default they are those of this process.
    name : str, optional
        How the program is called, for its help.
    """
    try:
        commands(arguments, prog_name=name)
    except GPExplorerError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(MISTAKE)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise  # files are guarded where they are written, so it is standard output
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left to print would fail again at the end
        typer.echo(f"Error: Cannot print {not_written(error, 'print to another place')}", err=True)
        sys.exit(MISTAKE)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: drawn by rich on a terminal, and one line per row elsewhere, for other programs."""
    if sys.stdout.isatty():
        from rich.box import SIMPLE
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*columns, box=SIMPLE)
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)
        return
    typer.echo(text_table([columns, *rows]))


def print_json(value: Any) -> None:
    """Print a value as JSON that people can read as well."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))


def to_stderr(text: str) -> None:
    """Print a line of progress."""
    typer.echo(text, err=True)


def on_one_line(text: str) -> None:
    """Print a line of progress over the one before it, on a terminal."""
    typer.echo(f"\r\033[K{text}", err=True, nl=False)


def to_nowhere(text: str) -> None:
    """Discard a line of progress."""


def format_duration(seconds: float) -> str:
    """A duration as 1:02:03, or as 2:03 if it is shorter than an hour."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


SIGNALS = (signal.SIGINT, signal.SIGTERM)
BASE = 128  # the exit code of a command that signal n has ended is 128 + n
NOTICE = b"\nStopping after the step in progress. A second signal ends the command at once.\n"


class Stopping:
    """What a signal does at present, and which one has come.

    Attributes
    ----------
    signal : int
        The number of the signal that has come; 0 for none.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._stop: Callable[[], object] | None = None

    def __bool__(self) -> bool:
        return bool(self.signal)

    def stop_by(self, stop: Callable[[], object]) -> None:
        """Call `stop` when a signal comes; it asks for the end and returns. Before, a signal ends the command."""
        self._stop = stop
        if self.signal:
            stop()

    def exit(self) -> None:
        """End the command with the exit code of the signal, if one has come."""
        if self.signal:
            raise typer.Exit(BASE + self.signal)

    def receive(self, number: int, _: FrameType | None) -> None:
        """Handle a signal. A second one has the effect that it has in other programs: the process ends at once."""
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        self.signal = number
        if self._stop is None:
            raise SystemExit(BASE + number)  # nothing has been computed yet
        os.write(2, NOTICE)
        self._stop()


@contextmanager
def stopping() -> Iterator[Stopping]:
    """Handle SIGINT and SIGTERM inside a `with` block, in the main thread; elsewhere signals do not arrive."""
    state = Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return
    previous = {number: signal.signal(number, state.receive) for number in SIGNALS}
    try:
        yield state
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
