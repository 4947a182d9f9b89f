"""The commands `methods`, `kernels`, `costs`, `schema` and `data`: lists of what can be run and on which data sets."""

from __future__ import annotations

import sys
import textwrap
from typing import Annotated

import typer

from ..errors import SettingError, closest
from .catalogue import catalogue, is_here, keys
from .output import AsJson, print_json, print_table

WIDTH = 110  # characters per line of the lists

data_app = typer.Typer(help="List the data sets, or fetch one of them.", invoke_without_command=True)


def complete_method(typed: str) -> list[str]:
    """The keys of methods that begin with what was typed, for the shell."""
    return [key for key in keys("methods") if key.startswith(typed)]


def complete_data(typed: str) -> list[str]:
    """The names of data sets that begin with what was typed, for the shell."""
    return [name for name in keys("data") if name.startswith(typed)]


def methods(
    key: Annotated[
        str, typer.Argument(help="The key of one method. Without it, all are listed.", autocompletion=complete_method)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the methods: title, family, paper, and every setting with its bounds."""
    entries = catalogue()["methods"]
    method_keys = [entry["key"] for entry in entries]
    if key and key not in method_keys:
        raise SettingError(f"Method {key!r} is not known{closest(key, method_keys)}")
    chosen = [entry for entry in entries if key in ("", entry["key"])]
    if as_json:
        return print_json(chosen)
    for entry in chosen:
        typer.echo(f"{entry['key']}: {entry['title']} ({entry['family']})")
        typer.echo(textwrap.indent(textwrap.fill(entry["paper"], WIDTH - 2), "  "))
        for setting in entry["settings"]:
            typer.echo(f"  {setting['name']} = {setting['default']!r}: {setting['takes']}.")
            typer.echo(textwrap.indent(textwrap.fill(setting["meaning"], WIDTH - 6), "      "))
        typer.echo()
    return None


def kernels(as_json: AsJson = False) -> None:
    """List the kernels: key, title, what the inputs must be, and the hyperparameters for two inputs."""
    entries = catalogue()["kernels"]
    if as_json:
        return print_json(entries)
    rows = [(entry["key"], entry["title"], entry["inputs"], ", ".join(entry["hyperparameters"])) for entry in entries]
    print_table(("key", "title", "inputs", "hyperparameters of two inputs"), rows)
    typer.echo("Kernels are joined by + and *, with parentheses: se-ard * (periodic + linear).")
    return None


def costs(
    rows: Annotated[int, typer.Option(help="Number of training rows.", min=2)] = 1_000_000,
    inputs: Annotated[int, typer.Option(help="Number of inputs.", min=1)] = 8,
    as_json: AsJson = False,
) -> None:
    """List what a step of every method costs at its defaults, by formula: memory, operations, largest array.

    Nothing is computed, so that any number of rows can be asked for. The rows themselves, which may lie on the disk,
    do not count.
    """
    from ..runs.studies.memory_need import default_costs
    from ..runs.studies.scaling_study import size

    entries = default_costs(rows, inputs)
    if as_json:
        return print_json(entries)
    table = [
        (entry["key"], size(entry["memory"]), f"{entry['flops']:.1e}", entry["largest array"]) for entry in entries
    ]
    print_table(("method", "memory", "operations per step", "largest array"), table)
    return None


def schema() -> None:
    """Print the JSON Schema of a Spec, by which an editor completes and checks SPEC.json."""
    from ..runs.schema import spec_schema

    print_json(spec_schema())


@data_app.callback()
def data(context: typer.Context, as_json: AsJson = False) -> None:
    """List every data set by name, with its size, its licence and whether it is on this machine."""
    if context.invoked_subcommand is None:
        list_data(as_json)


@data_app.command("list")
def list_data(as_json: AsJson = False) -> None:
    """List every data set by name, with its size, its licence and whether it is on this machine."""
    entries = catalogue()["data"]
    if as_json:
        return print_json(
            [{**{k: v for k, v in entry.items() if k != "files"}, "cached": is_here(entry)} for entry in entries]
        )
    rows = [
        (
            entry["name"],
            str(entry["n"]),
            "molecules" if entry["d"] is None else str(entry["d"]),
            entry["task"],
            textwrap.shorten(entry["licence"], 40, placeholder=" ..."),
            entry["source"],
            "here" if is_here(entry) else "to fetch",
        )
        for entry in entries
    ]
    print_table(("name", "n", "d", "task", "licence", "source", "cached"), rows)
    return None


@data_app.command()
def fetch(name: Annotated[str, typer.Argument(help="A name from the list.", autocompletion=complete_data)]) -> None:
    """Download a public data set into the cache, and check it."""
    from ..data import fetch as download

    terminal = sys.stderr.isatty()
    paths = download(name, progress=_report_download if terminal else None)
    typer.echo("\n" if terminal and paths else "", err=True, nl=False)
    typer.echo("".join(f"{path}\n" for path in paths), nl=False)
    if not paths:
        typer.echo(f"{name} is generated: there is nothing to fetch.")


def _report_download(done: int, total: int) -> None:
    typer.echo(f"\r{done / 1e6:.1f} of {total / 1e6:.1f} MB", err=True, nl=False)
