"""The arena: our methods at their defaults beside Gaussian processes of other programs, trees and ridge.

Every contender gets the same training rows and the same seconds of wall-clock time, and is scored once on the test
rows. NLPD and SMSE are those of targets in units of the training standard deviation. Cells are kept in a file as they
are computed, so that the same command continues where it was stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from gpexplorer.methods import gpytorch_parts

from ..trust.problems import public_sets
from .contenders import CONTENDERS
from .kept_cells import Scores, in_own_process, keep, measured, megabytes, read
from .shapes import CONTENDERS_OF_SHAPES, SHAPES, is_here, load
from .verdicts import markdown


def command(
    sets: Annotated[str, typer.Option(help="Names of sets, joined by commas; all on this machine without it.")] = "",
    seconds: Annotated[str, typer.Option(help="Budgets in seconds, joined by commas.")] = "5,30,120",
    seeds: Annotated[int, typer.Option(help="Splits per set.", min=1)] = 3,
    shape: Annotated[str, typer.Option(help="Sets of few inputs of this shape in place of public ones.")] = "",
    only: Annotated[str, typer.Option(help="Contenders whose name contains this text.")] = "",
    out: Annotated[Path, typer.Option(help="The directory for the cells and for arena.md.")] = Path("arena"),
) -> None:
    """Our methods against Gaussian processes of other programs, trees and ridge, with the same seconds."""
    if shape and shape not in SHAPES:
        raise typer.BadParameter(f"There is no shape {shape!r}; choose one of {', '.join(SHAPES)}.")
    names = [name for name in SHAPES[shape] if is_here(name)] if shape else public_sets(sets)
    contenders = [CONTENDERS[name] for name in (CONTENDERS_OF_SHAPES if shape else CONTENDERS)]
    out.mkdir(parents=True, exist_ok=True)
    cells = read(out / "cells.jsonl")
    for budget in map(float, seconds.split(",")):
        for name in names:
            train = load(name, 0).train
            for seed in range(seeds):
                for contender in contenders:
                    key = (name, seed, budget, contender.name)
                    if only not in contender.name or key in cells or not contender.is_tried(train):
                        continue
                    cells[key] = in_own_process(cell, *key, torch.get_num_threads(), seconds=budget)
                    keep(out / "cells.jsonl", key, cells[key])
                    typer.echo(f"{name} {seed} {budget:g} s {contender.name}: {cells[key]}", err=True)
    table = markdown({key: cell for key, cell in cells.items() if key[0] in names} if shape else cells)
    (out / "arena.md").write_text(table, "utf-8")
    typer.echo(table)


def cell(name: str, seed: int, seconds: float, contender: str, threads: int) -> Scores:
    """One contender on one set, in the process that calls this."""
    torch.set_num_threads(threads)
    gpytorch_parts.package()  # so that its import does not count as a contender's time
    split = load(name, seed)
    megabytes_before = megabytes()
    scores = measured(split, lambda: CONTENDERS[contender].predict(split, seconds, seed))
    return {**scores, "megabytes": max(megabytes() - megabytes_before, 0.0)}
