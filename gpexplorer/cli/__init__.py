"""The command line: `python -m gpexplorer run`, `sweep`, `recommend`, `data`, `methods`, `serve` and others.

The commands are functions of the modules beside this one, and this module names them. A command imports the packages
that it needs when it is called, so that `--help` appears at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from . import launchers, listings, recommend_command, run_commands
from .output import call, stopping

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(run_commands.run)
app.command()(run_commands.sweep)
app.command()(run_commands.predict)
app.command()(run_commands.export)
app.command()(recommend_command.recommend)
app.command()(listings.methods)
app.command()(listings.kernels)
app.command()(listings.costs)
app.command()(listings.schema)
app.add_typer(listings.data_app, name="data")
app.command()(launchers.serve)
app.command("compile")(launchers.compile_code)
app.command(**launchers.ALL_ARGUMENTS, hidden=True)(launchers.bench)
app.command(**launchers.ALL_ARGUMENTS, hidden=True)(launchers.reproduce)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line with the words after the name of the program, by default those of this process."""
    with stopping():  # without a handler, SIGTERM would leave files that are half written
        call(app, arguments)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"gpexplorer {__version__}")
        raise typer.Exit


@app.callback(no_args_is_help=True)
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Sparse and scalable Gaussian processes, one step at a time."""
