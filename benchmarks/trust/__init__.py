"""Can the numbers be trusted? Every method at its defaults on public sets and on hard synthetic ones.

A cell is one method on one set, for one seed and precision, with at most `--seconds` of processor time for the method's
own work. Other programs on the machine therefore change no result; use one thread (OMP_NUM_THREADS=1), because the time
of all threads is added. SMSE, NLPD and coverage on test rows stand beside those of a constant, ridge regression,
nearest neighbours and a dense GP that is fitted to at most 500 of the rows. NLPD is that of targets scaled to unit
variance, so that sets compare.

A result, over all seeds, is red for these reasons:

    coverage    the 95 % bands cover less than 90 % or more than 98 % of the test targets, on data from the model
    constant    NLPD is worse than the constant's, by more than two standard errors of the difference
    ridge       SMSE is worse than that of ridge regression, by more than two standard errors of the difference
    objective   the objective reported differs from the dense one by more than 1e-6 of it (1e-3 in float32)
    failed      the method failed, or its predictions are not finite

The coverage of a baseline is printed and not judged, except the dense GP's: a C becomes a c in the summary where the
dense GP covers too little or too much as well, because then the fault lies in maximum likelihood on these rows.

A method that refuses a set before it starts is not red, because a refusal with a reason is an honest answer. Cells are
kept in a file as they are computed, so that the same command continues where it was stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpexplorer.errors import SettingError, closest
from gpexplorer.methods.base import registry

from .cells import Plan, run_cells
from .problems import problems
from .report import TOLERANCE, markdown


def command(
    methods: Annotated[str, typer.Option(help="Keys of methods, joined by commas; all without it.")] = "",
    sets: Annotated[str, typer.Option(help="Names of sets, joined by commas; all on this machine without it.")] = "",
    seconds: Annotated[float, typer.Option(help="Seconds of processor time per method and set.", min=0.01)] = 10.0,
    seeds: Annotated[int, typer.Option(help="Splits and draws per set.", min=1)] = 3,
    rows: Annotated[int, typer.Option(help="Training rows, at most.", min=10)] = 1000,
    dtypes: Annotated[str, typer.Option(help="Precisions, joined by commas.")] = "float64,float32",
    out: Annotated[Path, typer.Option(help="The directory for the cells and for trust.md.")] = Path("trust"),
) -> None:
    """Every method at its defaults on public and hard synthetic sets: scores, coverage, objectives, and what is red."""
    keys, precisions = listed(methods) or sorted(registry), listed(dtypes)
    for key in keys:
        if key not in registry:
            raise SettingError(f"Method {key!r} is not known{closest(key, registry)}")
    if not set(precisions) <= set(TOLERANCE):
        raise SettingError(f"The precisions are {dtypes!r}; give some of {', '.join(TOLERANCE)}.")
    chosen = problems(listed(sets))
    cells = run_cells(
        chosen, keys, Plan({"seconds": seconds}, precisions, seeds, rows), out / "cells.jsonl",
        lambda line: typer.echo(line, err=True),
    )  # fmt: skip
    table = markdown(cells, chosen)
    (out / "trust.md").write_text(table, "utf-8")
    typer.echo(table)


def listed(text: str) -> list[str]:
    """The entries of a list that is joined by commas."""
    return [entry.strip() for entry in text.split(",") if entry.strip()]
