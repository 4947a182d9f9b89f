"""What the commands share: options for programs, tables, JSON, durations and lines of progress."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]


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
    lines = [list(columns), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


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
