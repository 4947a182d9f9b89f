"""The commands `methods` and `data`: what there is to run, and what to run it on."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SettingError, closest

if TYPE_CHECKING:
    import param

WIDTH = 110

data_app = typer.Typer(help="List the data sets, or fetch one of them.", invoke_without_command=True)


def methods(
    key: Annotated[str, typer.Argument(help="The key of one method. Without it, all are listed.")] = "",
) -> None:
    """List the methods: title, family, paper, and every setting with its bounds."""
    from ..methods.base import registry

    if key and key not in registry:
        raise SettingError(f"Method {key!r} is not known{closest(key, registry)}")
    for name in [key] if key else sorted(registry):
        method = registry[name]
        typer.echo(f"{name}: {method.title} ({method.family})")
        typer.echo(textwrap.indent(textwrap.fill(method.paper, WIDTH - 2), "  "))
        for setting in method.param.objects().values():
            if setting.name != "name":
                typer.echo(_described(setting))
        typer.echo()


@data_app.callback()
def data(context: typer.Context) -> None:
    """List every data set by name, with its size, its licence and whether it is on this machine."""
    if context.invoked_subcommand is None:
        list_data()


@data_app.command("list")
def list_data() -> None:
    """List every data set by name, with its size, its licence and whether it is on this machine."""
    from ..data import available

    table = available().drop(columns="notes")
    table["licence"] = [textwrap.shorten(text, 40, placeholder=" ...") for text in table["licence"]]
    table["d"] = table["d"].astype("Int64").astype("string").fillna("molecules")
    table["cached"] = table["cached"].map({True: "here", False: "to fetch"})
    rows = [["name", *table.columns], *table.reset_index().astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@data_app.command()
def fetch(name: Annotated[str, typer.Argument(help="A name from the list.")]) -> None:
    """Download a public data set into the cache, and check it."""
    from ..data import fetch as download

    terminal = sys.stderr.isatty()
    paths = download(name, progress=_report_download if terminal else None)
    typer.echo("\n" if terminal and paths else "", err=True, nl=False)
    typer.echo("".join(f"{path}\n" for path in paths), nl=False)
    if not paths:
        typer.echo(f"{name} is generated: there is nothing to fetch.")


def _described(setting: param.Parameter) -> str:
    """A setting with its default, what it takes, and its explanation."""
    from ..runs.setting_checks import wanted

    head = f"  {setting.name} = {setting.default!r}: {wanted(setting)}."
    return "\n".join([head, textwrap.indent(textwrap.fill(setting.doc or "", WIDTH - 6), "      ")])


def _report_download(done: int, total: int) -> None:
    typer.echo(f"\r{done / 1e6:.1f} of {total / 1e6:.1f} MB", err=True, nl=False)
