"""Every way to choose m inducing points, on the same rows and at the same hyperparameters: seconds against quality.

theta is learned once, by an exact GP on a thousand rows, and then fixed. F / n is the variational free energy per row;
smaller is better. All entrants run in one process with the same number of threads. The load of the machine is printed,
since a busy machine slows the entrants down, and not all to the same degree. Subset of data and CSI minimise other
objectives: compare their scores; their F is the free energy of the points they chose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import torch
import typer

from gpexplorer import data, kernels
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import registry
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.objectives import nystrom
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs.run import Run

from .timing.limits import measure

FORMER_NAMES = ("rivals",)  # the command was called so, and still answers to it
FIXED: dict[str, Any] = {"learn": False}
LEARN_ROWS, EVALUATIONS = 1_000, 40


class Entrant(NamedTuple):
    """A method, its settings other than m, and the number of its steps (0: until it ends)."""

    method: str
    settings: dict[str, Any]
    steps: int = 0


def entrants(m: int) -> dict[str, Entrant]:
    """Return all entrants by name, for m inducing points."""
    paper = CholQR.published | {"swaps_per_epoch": m, "tolerance": 0.0, "max_epochs": 2}
    moving = {"evaluations": 100, "max_epochs": 1}
    tries = {"max_epochs": 1, "tolerance": 0.0}
    return {
        "random": Entrant("random", FIXED),
        "greedy-variance": Entrant("greedy-variance", FIXED),
        "ivm": Entrant("ivm", FIXED),
        "kmeans": Entrant("kmeans", {**FIXED, "iterations": 50}),
        "titsias-16": Entrant("titsias", {**FIXED, "num_candidates": 16}),
        "titsias-512": Entrant("titsias", {**FIXED, "num_candidates": 512}),
        "cholqr-paper": Entrant("cholqr", {**FIXED, **paper}),
        "cholqr": Entrant("cholqr", {**FIXED, **tries, "swaps_per_epoch": 4 * m}),
        "cholqr-polished": Entrant("cholqr", {**FIXED, **tries, "swaps_per_epoch": 3 * m, "polish": 100}),
        "sgpr": Entrant("sgpr", {**FIXED, **moving}),
        "sgpr-gpytorch": Entrant("sgpr", {**FIXED, **moving, "engine": "gpytorch"}),
        "subset-of-data": Entrant("subset-of-data", {**FIXED, "num_rows": 8 * m}),
        "csi": Entrant("csi", {"grid_size": 1}),
    }


def command(
    data: Annotated[str, typer.Option(help="A registry set or generator.")] = "kin40k",
    m: Annotated[int, typer.Option(help="Inducing points.", min=1)] = 128,
    rows: Annotated[int, typer.Option(help="Training rows, at most.", min=10)] = 10_000,
    only: Annotated[str, typer.Option(help="Entrants to run, joined by commas; all of them if empty.")] = "",
    seconds: Annotated[float, typer.Option(help="Seconds per entrant, at most.", min=0.1)] = 60.0,
) -> None:
    """Print seconds, F / n and scores of every way to choose m points."""
    all_entrants = entrants(m)
    chosen = [name.strip() for name in only.split(",") if name.strip()] or list(all_entrants)
    unknown = [name for name in chosen if name not in all_entrants]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not an entrant; choose from {', '.join(all_entrants)}.")
    for line in report(data, {name: all_entrants[name] for name in chosen}, m, rows, seconds):
        typer.echo(line)


def report(name: str, race: dict[str, Entrant], m: int, rows: int, seconds: float) -> Iterator[str]:
    """Yield the lines of the report, each as soon as it is measured."""
    split = data.load(name).scaled()
    order = torch.randperm(len(split.train), generator=generator(0, "bench"))
    split = replace(split, train=split.train.rows(order[:rows]))
    train, kernel = split.train, kernels.make("se-ard", split.train.d)
    problem = Problem(train, kernel, learned(train, kernel))
    yield (
        f"{name}: n = {len(train)}, d = {train.d}, m = {m}, {torch.get_num_threads()} threads, "
        f"load {measure(train.y, len(train), m).load:.2f}"
    )
    heads = ("points", "steps", "seconds", "ms/step", "F / n", "SMSE", "SNLP")
    yield f"{'entrant':<16}" + "".join(f"{head:>10}" for head in heads)
    for entrant, (method, settings, steps) in race.items():
        size = {} if "num_rows" in settings else {"num_inducing": m}
        run = Run(registry[method](**size, **settings), problem, split)
        run.finish(steps=steps or None, seconds=seconds)
        yield _line(entrant, run, problem)


def learned(train: Dataset, kernel: kernels.Covariance) -> torch.Tensor:
    """Learn theta [p] by the marginal likelihood of an exact GP on the first LEARN_ROWS rows."""
    rows = train.rows(torch.arange(min(LEARN_ROWS, len(train))))
    method = registry["subset-of-data"](num_rows=len(rows), optimiser="L-BFGS-B", evaluations=EVALUATIONS, max_epochs=1)
    *_, last = method.steps(Problem(rows, kernel, kernel.start(rows)))
    return last.state.theta


def _line(entrant: str, run: Run, problem: Problem) -> str:
    state, seconds, scores = run.trace[-1].step.state, run.trace[-1].seconds, run.scores()
    Z = problem.train.rows(state.inducing).X if getattr(state, "Z", None) is None else state.Z
    F = nystrom(problem.kernel, problem.theta, problem.train, Z).terms.total("vfe")
    return (
        f"{entrant:<16}{len(Z):>10}{run.done:>10}{seconds:>10.2f}{1e3 * seconds / max(run.done, 1):>10.1f}"
        f"{F / len(problem.train):>10.4f}{scores['smse']:>10.4f}{scores['snlp']:>10.4f}"
    )
