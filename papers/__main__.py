"""`python -m papers`: the names of the figures and tables; `python -m papers NAME`, or `all`: computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpexplorer.cli.files import writable
from gpexplorer.cli.output import call
from gpexplorer.errors import SettingError

from . import find, names
from .verdict_report import run_all

app = typer.Typer(pretty_exceptions_enable=False)
CELLS = Path(__file__).parent / "cells"  # kept with the source: the reports are made from them


@app.command()
def reproduce(  # noqa: PLR0913 - the options of the command
    name: Annotated[
        str,
        typer.Argument(help='A figure or table, several joined by commas, or "all". Without it, the names are listed.'),
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="Use as many repeats and rows as the paper.")] = False,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, help="At most this many draws, splits, folds or seeds, to have the paper's sizes sooner."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only pieces with this value of a parameter, such as kin40k; repeated: all values."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1.0, help="Stop a run of a solver after so many seconds of the processor.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure how long the missing pieces take, by a part of each.")
    ] = False,
    judge: Annotated[
        bool, typer.Option("--judge", help="Compute nothing: judge the pieces that are there, as far as they go.")
    ] = False,
    out: Annotated[
        Path,
        typer.Option(help="The directory for the table (Parquet) and the picture (HTML), the kept cells by default."),
    ] = CELLS,
) -> None:
    """Compute a figure or table of a paper again, beside the published one. The command continues a stopped run.

    all computes every one, and writes report.html and report.md with a verdict on each statement of the papers; several
    joined by commas are computed and judged in the same way.
    """
    if not name:
        for figure_name in names():
            typer.echo(f"{figure_name}: {find(figure_name).title}")
        return
    folder = out / ("full" if full else "quick")
    chosen = [find(part.strip()) for part in (names() if name == "all" else name.split(","))]
    chosen = chosen if repeats is None else [figure.limited(repeats) for figure in chosen]
    chosen = chosen if seconds is None else [figure.within(seconds) for figure in chosen]
    chosen = [part for part in (figure.only(only or ()) for figure in chosen) if part.units(full)]
    if not chosen:
        raise SettingError(f"No piece of {name} has the values {', '.join(only or ())}.")
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if measure:
        for figure in chosen:
            for line in figure.measure(folder, full):
                typer.echo(f"{figure.name}: {line}")
        return
    together = judge or len(chosen) > 1
    for line in run_all(chosen, folder, full, not judge) if together else chosen[0].run(folder, full):
        typer.echo(line)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; an error of gpexplorer is printed as its sentence, with exit code 2."""
    call(app, arguments, "python -m papers")


if __name__ == "__main__":
    main()
