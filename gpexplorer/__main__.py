"""The command line: `python -m gpexplorer run | sweep | data | methods | serve | reproduce | bench`."""

from __future__ import annotations

import shlex
import signal
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import __version__
from .errors import GPExplorerError, SettingError, closest

if TYPE_CHECKING:
    import param

    from .runs import Run

WIDTH = 110
FAILED, MISTAKEN, INTERRUPTED = 1, 2, 130  # exit codes

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
data_app = typer.Typer(help="The data sets: list them, or fetch one.", invoke_without_command=True)
app.add_typer(data_app, name="data")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; an error of ours becomes its sentence and exit code 2, never a traceback."""
    try:
        app(arguments)
    except GPExplorerError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(MISTAKEN)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"gpexplorer {__version__}")
        raise typer.Exit


@app.callback(no_args_is_help=True)
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Sparse and scalable Gaussian processes, one step at a time."""


@app.command()
def run(
    spec: Annotated[str, typer.Argument(help="A file of Spec JSON, or - for standard input.")],
    out: Annotated[Path, typer.Option(help="The store: a directory of runs.")] = Path("runs-store"),
    change: Annotated[
        list[str] | None, typer.Option("--set", help="key=value: seed=3, num_inducing=64, budget.seconds=10 ...")
    ] = None,
    scheduler: Annotated[str, typer.Option(help="A Dask scheduler's address: folds and row blocks go there.")] = "",
) -> None:
    """Run a Spec to its end or its budget, keeping every step; the same command goes on where it was stopped."""
    from .cli.changed import changed
    from .runs import Store, working

    chosen = changed(spec, change or [])
    opened, there = Store(out).open(chosen), ["--scheduler", scheduler] if scheduler else []
    again = shlex.join(["python", "-m", "gpexplorer", "run", spec, "--out", str(out), *_repeat(change or []), *there])
    with closing(opened), working(opened, scheduler):
        _finish(opened, again)
    _print_result(opened, out / chosen.key())
    if opened.outcome and opened.outcome.reason == "failed":
        raise typer.Exit(FAILED)


@app.command()
def sweep(
    source: Annotated[str, typer.Argument(metavar="GRID", help='{"spec": {...}, "over": {"num_inducing": [8, 32]}}')],
    scheduler: Annotated[str, typer.Option(help="A Dask scheduler's address; here, one by one, without.")] = "",
    out: Annotated[Path, typer.Option(help="The table of all runs.")] = Path("sweep.parquet"),
) -> None:
    """Run a Spec at every combination of some values, here or on a cluster, and keep the best first."""
    from .cli.changed import sweep_of
    from .cli.output_file import kept_table
    from .runs.studies.sweep import sweep as swept

    specs = sweep_of(source)
    typer.echo(kept_table(swept(specs, scheduler), len(specs), out, _say).to_string())


@app.command()
def methods(key: Annotated[str, typer.Argument(help="One method; all of them if left out.")] = "") -> None:
    """List the methods: title, family, paper, and every setting with its bounds."""
    from .methods.base import registry

    if key and key not in registry:
        raise SettingError(f"Method {key!r} is not known{closest(key, registry)}")
    for name in [key] if key else sorted(registry):
        kind = registry[name]
        typer.echo(f"{name}: {kind.title} ({kind.family})")
        typer.echo(textwrap.indent(textwrap.fill(kind.paper, WIDTH - 2), "  "))
        for setting in kind.param.objects().values():
            if setting.name != "name":
                typer.echo(_described(setting))
        typer.echo()


@data_app.callback()
def data(context: typer.Context) -> None:
    """List every data set by name, with its size, licence and whether it is on this machine."""
    if context.invoked_subcommand is None:
        list_data()


@data_app.command("list")
def list_data() -> None:
    """List every data set by name, with its size, licence and whether it is on this machine."""
    from .data import available

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
    from .data import fetch as download

    shown = sys.stderr.isatty()
    paths = download(name, progress=_downloaded if shown else None)
    typer.echo("\n" if shown and paths else "", err=True, nl=False)
    typer.echo("".join(f"{path}\n" for path in paths), nl=False)
    if not paths:
        typer.echo(f"{name} is generated: there is nothing to fetch.")


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 5006,
    address: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every one.")] = "localhost",
    show: Annotated[bool, typer.Option(help="Open a browser.")] = False,
    origin: Annotated[list[str] | None, typer.Option(help="host:port under which others may reach the page.")] = None,
    store: Annotated[Path | None, typer.Option(help="Keep runs and notes here, for all who open the page.")] = None,
) -> None:
    """Serve the page until interrupted."""
    from .ui import server

    try:
        server.serve(port=port, address=address, show=show, origins=tuple(origin or ()), store=store)
    except OSError as error:
        raise SettingError(
            f"Cannot listen on {address}:{port} ({error.strerror}): choose another --port or --address."
        ) from None


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def bench(context: typer.Context) -> None:
    """Run a benchmark: `bench cholqr --data kin40k --m 512`; `bench --help` lists them."""
    from .bench.__main__ import app as benchmarks

    benchmarks(context.args, prog_name="python -m gpexplorer bench")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="A figure or table; all their names if left out.")] = "",
    full: Annotated[bool, typer.Option("--full", help="As many repeats and rows as the paper.")] = False,
    out: Annotated[Path, typer.Option(help="Where table (Parquet) and picture (HTML) go.")] = Path("reproduced"),
) -> None:
    """Compute a figure or table of a paper anew, ours beside theirs; the same command goes on where it was stopped."""
    from . import reproduce as figures
    from .cli.output_file import writable

    if not name:
        for known in figures.names():
            typer.echo(f"{known}: {figures.find(known).title}")
        return
    figure, folder = figures.find(name), out / ("full" if full else "quick")
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for line in figure.run(folder, full):
        typer.echo(line)


def _finish(opened: Run, again: str) -> None:
    """Step to the end with progress on stderr; an interrupt keeps what was done and says how to go on."""
    from .cli.progress_line import watching

    if opened.done:
        typer.echo(f"Going on from step {opened.done}.", err=True)
    live = sys.stderr.isatty()
    show = (lambda text: typer.echo(f"\r\033[K{text}", err=True, nl=False)) if live else _say
    before = signal.signal(signal.SIGINT, lambda *_: opened.stop())  # after the step under way, which is kept too
    try:
        with watching(opened, show, 0.2 if live else 10.0):
            opened.finish()
    finally:
        signal.signal(signal.SIGINT, before)
    if opened.outcome and opened.outcome.reason == "stopped":
        typer.echo(f"\nInterrupted at step {opened.done}; every step is kept. Go on with:\n  {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    typer.echo("\r\033[K" if live else "", err=True, nl=False)


def _print_result(opened: Run, where: Path) -> None:
    from .runs.jitters import told

    outcome = opened.outcome
    assert outcome is not None
    typer.echo(f"{outcome.reason}: {outcome.message} {told(opened.jitters)}".rstrip(), err=outcome.reason == "failed")
    if len(opened.trace):
        last = opened.trace[-1]
        typer.echo(f"{opened.done} steps, {last.seconds:.3g} s, {last.cost.entries} kernel entries")
        for name, value in (last.scores or {}).items():
            typer.echo(f"{name:12} {value:.6g}")
    typer.echo(f"kept in {where}")


def _described(setting: param.Parameter) -> str:
    from .runs.setting_checks import wanted

    head = f"  {setting.name} = {setting.default!r}: {wanted(setting)}."
    return "\n".join([head, textwrap.indent(textwrap.fill(setting.doc or "", WIDTH - 6), "      ")])


def _downloaded(done: int, total: int) -> None:
    typer.echo(f"\r{done / 1e6:.1f} of {total / 1e6:.1f} MB", err=True, nl=False)


def _repeat(changes: list[str]) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def _say(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    main()
