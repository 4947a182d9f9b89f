"""Does it hold? Hostile input, kills, hard data and load, as experiments that anyone can repeat.

Each module of this package that has a function `measure` is an experiment, named for its file. Its measurements are
rows of one table, which stands in SECURITY.md. Rows of earlier experiments are kept in a file beside the table, so
that experiments can be repeated one at a time. The command ends with exit code 1 if a goal was not met.
"""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
from pathlib import Path
from typing import Annotated, cast

import typer

from gpexplorer.errors import SettingError, closest

from .measurement import Experiment, Report, markdown, read_rows, write_rows


def command(
    only: Annotated[str, typer.Option(help="Names of experiments, joined by commas; all without it.")] = "",
    share: Annotated[float, typer.Option(help="Share of the full number of cases.", min=1e-4, max=10.0)] = 1.0,
    out: Annotated[Path, typer.Option(help="The directory for the rows and for hammer.md.")] = Path("hammer"),
) -> None:
    """Hostile input, kills, hard data and load: what was tried, what was measured, and whether the goal was met."""
    modules = experiments()
    chosen = [name.strip() for name in only.split(",") if name.strip()] or sorted(modules)
    for name in chosen:
        if name not in modules:
            raise SettingError(f"Experiment {name!r} is not known{closest(name, modules)}")
    goals_met = [run_experiment(name, share, out, lambda line: typer.echo(line, err=True)) for name in chosen]
    typer.echo((out / "hammer.md").read_text("utf-8"))
    if not all(goals_met):
        raise typer.Exit(1)


def experiments() -> dict[str, str]:
    """The names of all experiments, and the modules that have a function `measure`."""
    modules = {}
    for module in pkgutil.iter_modules(__path__):
        if hasattr(importlib.import_module(f"{__name__}.{module.name}"), "measure"):
            modules[module.name.replace("_", "-")] = f"{__name__}.{module.name}"
    return modules


def run_experiment(name: str, share: float, out: Path, report: Report) -> bool:
    """Do one experiment, write the table again with its rows, and return whether every goal was met."""
    experiment = _imported(experiments()[name])
    report(f"{name}: {(experiment.__doc__ or '').strip().splitlines()[0]}")
    with tempfile.TemporaryDirectory(prefix=f"hammer-{name}-") as folder:
        measured = experiment.measure(share, Path(folder), report)
    rows = {**read_rows(out / "rows.json"), name: measured}
    write_rows(out / "rows.json", rows)
    (out / "hammer.md").write_text(markdown(rows), "utf-8")
    return all(row.held for row in measured)


def _imported(module: str) -> Experiment:
    return cast(Experiment, importlib.import_module(module))
