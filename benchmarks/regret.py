"""How good is `recommend`? Its regret against the best method in hindsight, beside fixed choices and other programs.

A cell is one contender on one public set with one seed and one budget of wall-clock time: it learns from the
training rows and is scored once on the test rows. The contenders are

    recommend                 `gpx.recommend` with all of the time
    always X                  one of its candidates alone with all of the time, sizes by the same rule
    GPyTorch SGPR             512 random points moved by Adam, SE-ARD, on all training rows
    GPyTorch SVGP             512 random points, minibatches and natural gradients, SE-ARD
    scikit-learn GP           an exact GP on 1000 random rows, SE-ARD plus noise
    boosted trees             scikit-learn's histogram gradient boosting, as `recommend` runs it

    regret in SMSE   = SMSE / least SMSE - 1      over `recommend` and all "always X" of the same set, seed and seconds
    regret in NLPD   = NLPD - least NLPD          in nats; targets in units of the training standard deviation

The trees and the other programs do not enter the least value; the table says how they stand beside it. Cells are kept
in a file as they are computed, so that the same command continues where it was stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from torch import Tensor

from gpexplorer import data as data_sets
from gpexplorer.data import Split
from gpexplorer.posteriors import Marginals
from gpexplorer.recommendation.candidates import DESCENT_UP_TO, Candidate, candidates, exact_gp
from gpexplorer.recommendation.halving import SIZE_SHARE

from .arena.contenders import normal, recommended, run_alone, simple
from .arena.kept_cells import keep, measured, read
from .arena.other_programs import gpytorch_sgpr, gpytorch_svgp, scikit_gp
from .trust.problems import public_sets

OURS = ("recommend", "always ")
EXACT_KERNELS = ("matern32-ard", "se-ard", "matern52-ard")


def command(
    sets: Annotated[str, typer.Option(help="Names of sets, joined by commas; all on this machine without it.")] = "",
    seconds: Annotated[str, typer.Option(help="Budgets in seconds, joined by commas.")] = "5,30,120",
    seeds: Annotated[int, typer.Option(help="Splits per set.", min=1)] = 1,
    only: Annotated[str, typer.Option(help="Contenders whose name contains this text.")] = "",
    out: Annotated[Path, typer.Option(help="The file that keeps the cells.")] = Path("regret.jsonl"),
) -> None:
    """Regret of `recommend`, of fixed choices and of other programs, on public sets with the same seconds."""
    cells = read(out)
    for budget in map(float, seconds.split(",")):
        for name in public_sets(sets):
            for seed in range(seeds):
                split = data_sets.load(name, split=seed)
                for contender, predict in contenders(split, budget, seed):
                    key = (name, seed, budget, contender)
                    if only not in contender or key in cells:
                        continue
                    cells[key] = measured(split, predict)
                    keep(out, key, cells[key])
                    typer.echo(f"{name} {seed} {budget:g} s {contender}: {cells[key]}", err=True)
    typer.echo(report(cells))


def contenders(split: Split, seconds: float, seed: int) -> Iterator[tuple[str, Callable[[], Marginals]]]:
    """Each contender by name, with a function that learns and predicts at the test rows."""
    yield "recommend", lambda: recommended(split, seconds, seed)
    for name, candidate in fixed_choices(split, seconds).items():
        yield f"always {name}", partial(run_alone, candidate.spec, split, seconds, seed)
    yield "GPyTorch SGPR", lambda: normal(gpytorch_sgpr(split, seconds, seed))
    yield "GPyTorch SVGP", lambda: normal(gpytorch_svgp(split, seconds, seed))
    yield "scikit-learn GP", lambda: normal(scikit_gp(split, seconds, seed))
    yield "boosted trees", lambda: simple("boosted trees", split, seconds, seed)


def fixed_choices(split: Split, seconds: float) -> dict[str, Candidate]:
    """The candidates of `recommend` by method and kernel, and what it tries for other numbers of rows."""
    n, share = len(split.train), seconds * SIZE_SHARE
    listed = list(candidates(split, share))
    if isinstance(split.train.X, Tensor):
        listed += [exact_gp(kernel, n, share) for kernel in EXACT_KERNELS]
    if isinstance(split.train.X, Tensor) and n <= DESCENT_UP_TO:
        listed.append(Candidate(f"gbcd, {EXACT_KERNELS[0]}", "full GP", "gbcd", EXACT_KERNELS[0]))
    by_name: dict[str, Candidate] = {}
    for candidate in listed:
        is_exact = candidate.method in ("ml", "subset-of-data")
        by_name.setdefault(f"exact GP, {candidate.kernel}" if is_exact else candidate.name.split(", m =")[0], candidate)
    return by_name


def report(cells: dict[tuple[str, int, float, str], dict[str, Any]]) -> str:
    """The table in Markdown: regret per contender and budget, over sets and seeds."""
    rows = [
        {"set": name, "seed": seed, "budget": budget, "contender": contender, **cell}
        for (name, seed, budget, contender), cell in cells.items()
    ]
    frame = pd.DataFrame(rows)
    if frame.empty or "smse" not in frame:
        return "No cell is computed yet."
    problem = ["set", "seed", "budget"]
    frame.loc[~np.isfinite(frame["nlpd"].astype(float)), ["smse", "nlpd"]] = math.nan
    judged = frame[frame["contender"].str.startswith(OURS)]
    least = judged.groupby(problem)[["smse", "nlpd"]].min().add_prefix("least_")
    frame = frame.join(least, on=problem)
    frame["error"] = frame["smse"] / frame["least_smse"] - 1.0
    frame["density"] = frame["nlpd"] - frame["least_nlpd"]
    lines = []
    for budget, part in frame.groupby("budget"):
        trials = part[problem].drop_duplicates()
        lines += [
            f"{budget:g} s, {len(trials)} data sets and seeds:",
            "",
            "| contender | sets | median regret, SMSE | median, NLPD | mean, NLPD | coverage95 | no answer | s |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        ranked = sorted(part.groupby("contender"), key=lambda entry: float(entry[1]["density"].median()))
        for contender, table in ranked:
            density = table["density"]
            lines.append(
                f"| {contender} | {table['set'].nunique()} | {table['error'].median():.1%} | "
                f"{density.median():.3f} | {density.mean():.3f} | {table['coverage95'].median():.2f} | "
                f"{int(table['nlpd'].isna().sum())} | {table['seconds'].median():.1f} |"
            )
        lines.append("")
    return "\n".join(lines)
