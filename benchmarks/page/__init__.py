"""The page in Chromium: how soon it is there, how soon it answers, what it sends, and what it leaves behind.

Each number stands beside its goal, with the load of the machine: times on a busy machine are those of its other work,
too. What many people do on one server is measured by raw clients (`benchmarks hammer --only page-load`), and printed
here as well with `--people`.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from ..hammer import page_load
from ..hammer.measurement import Measurement, markdown
from ..hammer.served_page import served_page
from . import in_notebook
from .chromium import chromium
from .first_view import measured_screens
from .in_chromium import Repeats, measured


def command(
    changes: Annotated[int, typer.Option(help="Changes of a setting while a run plays.", min=2)] = 20,
    sessions: Annotated[int, typer.Option(help="Pages opened and closed; the first five warm up.", min=6)] = 20,
    people: Annotated[bool, typer.Option(help="Also 20 people at once, by raw clients.")] = False,
    view: Annotated[bool, typer.Option(help="Only what the first screen shows before a click.")] = False,
    notebook: Annotated[bool, typer.Option(help="Only the page in a cell of JupyterLab, beside the page.")] = False,
) -> None:
    """First picture, answers, messages, memory and log of the page, each beside its goal."""

    def report(line: str) -> None:
        typer.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)

    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        if notebook:
            with (
                in_notebook.lab(Path(folder) / "lab") as lab,
                served_page(Path(folder)) as served,
                chromium() as browser,
            ):
                rows = {"page": in_notebook.measured(served, lab, browser, changes, report)}
            typer.echo(markdown(rows))
            return
        if view:
            with served_page(Path(folder)) as served, chromium() as browser:
                _print({"page": measured_screens(browser, f"http://{served.address}/explorer")})
            return
        with served_page(Path(folder)) as served, chromium() as browser:
            rows = {"page": measured(served, browser, Repeats(changes=changes, sessions=sessions), report)}
        if people:
            rows["people"] = page_load.measure(sessions / page_load.CYCLES, Path(folder), report)
    _print(rows)


def _print(rows: dict[str, list[Measurement]]) -> None:
    """Print the table; the command fails where a goal was missed."""
    typer.echo(markdown(rows))
    if not all_held(rows["page"]):
        raise typer.Exit(1)


def all_held(rows: list[Measurement]) -> bool:
    """Whether every goal was met."""
    return all(row.held for row in rows)
