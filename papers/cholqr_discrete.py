"""Figures 2 and 3 of Cao et al. (2013): discrete inputs, where points cannot move and must be chosen.

The thrombin set of the paper is not public. The most similar one is ChEMBL's (2754 molecules instead of 3852), with
fourteen fingerprint kernels instead of fourteen graph kernels. A generator of poses (`data.poses`) replaces HumanEva's
images. Therefore compare the order of the methods, and not the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import holoviews as hv
import pandas as pd
import torch

from gpexplorer import data, kernels
from gpexplorer.data.sets.poses import poses
from gpexplorer.data.splits import Split
from gpexplorer.methods.base import registry
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.problem import Problem
from gpexplorer.runs.run import Run
from gpexplorer.views.drawing.palette import CYCLE

from .base import Figure, Rows, Unit, panels, ticks

# The quick version is limited by epochs, so that a busy machine changes no score.
QUICK_ROWS, QUICK_EPOCHS, SECONDS = 600, 4, 3600.0
PAPER = CholQR.published  # the settings of the paper, not the defaults
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "CholQR-z16": ("cholqr", PAPER | {"num_pivots": 16}),
    "IVM": ("ivm", {}),
    "Random": ("random", {}),
    "Titsias-16": ("titsias", {"num_candidates": 16}),
    "Titsias-512": ("titsias", {"num_candidates": 512}),
}
VARIANTS = METHODS | {
    "CholQR-z8": ("cholqr", PAPER | {"num_pivots": 8}),
    "CholQR-OI-z16": ("cholqr", PAPER | {"num_pivots": 16, "pivot_policy": "optimised"}),
    "CholQR-z64": ("cholqr", PAPER | {"num_pivots": 64}),
    "CholQR-OI-z64": ("cholqr", PAPER | {"num_pivots": 64, "pivot_policy": "optimised"}),
    "CholQR-AA-z128": ("cholqr", PAPER | {"num_pivots": 128, "pivot_policy": "adaptive"}),
    "CSI": ("csi", {"grid_size": 5}),
}

COLOURS = dict(zip(VARIANTS, (*CYCLE, "black"), strict=True))


@cache
def thrombin(seed: int, full: bool) -> Split:
    """Return the molecules with 95 % of them for training, as in the paper; the quick version has 80 %."""
    return data.load("mol_thrombin_ki", split={"test": 0.05 if full else 0.2, "seed": seed}).scaled()


@cache
def figures(seed: int, full: bool) -> Split:
    """Return the poses: 4819 training rows and 4811 test rows; fewer in the quick version."""
    return poses(seed=seed) if full else poses(train=QUICK_ROWS, test=QUICK_ROWS, seed=seed)


TASKS: dict[str, tuple[Callable[[int, bool], Split], str]] = {
    "thrombin": (thrombin, "molecules"),
    "poses": (figures, "histogram-3"),
}


@cache
def _kernel(key: str, d: int) -> kernels.Covariance:
    """Return one kernel per process, since it caches the fingerprints."""
    return kernels.make(key, d)


def opened(unit: Unit) -> Run:
    """Return the run of one unit: a task, a method, m and a seed."""
    load, key = TASKS[unit["task"]]
    split = load(unit["seed"], unit["full"])
    if not unit["full"]:
        split = replace(split, train=split.train.rows(torch.arange(min(QUICK_ROWS, len(split.train)))))
    kernel = _kernel(key, split.train.d)
    name, settings = VARIANTS[unit["method"]]
    if not unit["full"] and "max_epochs" in registry[name].param:
        settings = {**settings, "max_epochs": QUICK_EPOCHS}
    method = registry[name](num_inducing=unit["m"], seed=unit["seed"], **settings)
    return Run(method, Problem(split.train, kernel, kernel.start(split.train)), split)


def units2(full: bool) -> list[dict[str, Any]]:
    """Return every method at every m. The quick version has two sizes, one seed, and not Titsias-512."""
    sizes, seeds = ((16, 32, 64, 128, 256, 512), 10) if full else ((8, 32), 1)
    names = [name for name in METHODS if full or name != "Titsias-512"]
    return [
        {"task": task, "method": name, "m": m, "seed": seed, "full": full}
        for task in TASKS for seed in range(seeds) for m in sizes for name in names
    ]  # fmt: skip


def work2(unit: Unit) -> Rows:
    """Return scores, seconds and objective at the end of a run. The quick version has a limit of QUICK_EPOCHS."""
    run = opened(unit)
    outcome = run.finish(seconds=SECONDS)
    last, scores = run.trace[-1], run.scores()
    fields = {name: unit[name] for name in ("task", "method", "m", "seed")}
    return [
        {**fields, "SMSE": scores["smse"], "SNLP": scores["snlp"], "objective": last.step.info.objective,
         "seconds": last.seconds, "ended": outcome.reason}
    ]  # fmt: skip


def units3(full: bool) -> list[dict[str, Any]]:
    """Return every variant at m = 32, with one seed."""
    names = [name for name in VARIANTS if full or not name.endswith(("512", "z64", "z128"))]
    return [{"task": task, "method": name, "m": 32, "seed": 0, "full": full} for task in TASKS for name in names]


def work3(unit: Unit) -> Rows:
    """Return the scores after 1, 2, 5, 10, 20, 50, ... steps and at the end."""
    run = opened(unit)
    run.finish(seconds=SECONDS)
    table = run.table()
    scored = table[table["smse"].notna() & (table["index"] > 0)]
    return [
        {"task": unit["task"], "method": unit["method"], "seconds": row["seconds"], "SMSE": row["smse"],
         "SNLP": row["snlp"], "objective": row["objective"]}
        for _, row in scored.iterrows()
    ]  # fmt: skip


def plot2(frame: pd.DataFrame) -> hv.Layout:
    """Draw SNLP, SMSE, seconds and objective over m, for each task."""
    mean = frame.groupby(["task", "method", "m"], as_index=False)[["SMSE", "SNLP", "seconds", "objective"]].mean()
    return _panels(mean, "m", ("SNLP", "SMSE", "seconds", "objective"), "inducing points m")


def plot3(frame: pd.DataFrame) -> hv.Layout:
    """Draw the scores over training seconds."""
    return _panels(frame, "seconds", ("SNLP", "SMSE"), "training time [s]")


def _panels(frame: pd.DataFrame, x: str, columns: tuple[str, ...], xlabel: str) -> hv.Layout:
    parts, marks = [], {"xticks": ticks(frame["m"].tolist())} if x == "m" else {}
    for task, of_task in frame.groupby("task"):
        for column in columns:
            lines = [
                hv.Curve(points, x, column, label=name).opts(color=COLOURS[str(name)], line_width=2)
                * hv.Scatter(points, x, column, label=name).opts(color=COLOURS[str(name)], size=6)
                for name, points in of_task.groupby("method")
            ]
            parts.append(
                hv.Overlay(lines).opts(
                    title=f"{task}", padding=0.1, xlabel=xlabel, ylabel=column, logx=True, logy=column == "seconds",
                    show_grid=True, **marks,
                )
            )  # fmt: skip
    return panels(parts, 2)


FIGURES = (
    Figure(
        name="cholqr-fig2",
        title="CholQR: scores on discrete inputs over the number of inducing points",
        paper=(
            "The paper, read off the figure: at m = 512 CholQR-z16's SMSE is about 0.3 on BindingDB and 0.11 on HoG; "
            "Titsias is close, IVM and Random are behind, and all are apart most where m is small."
        ),
        units=units2,
        work=work2,
        plot=plot2,
    ),
    Figure(
        name="cholqr-fig3",
        title="CholQR: training time against scores on discrete inputs, m = 32",
        paper=(
            "The paper: Titsias reaches CholQR's scores two to four orders of magnitude later; CholQR takes about as "
            "long as IVM and Random and scores better; CSI is slow and scores worse."
        ),
        units=units3,
        work=work3,
        plot=plot3,
    ),
)
