"""Tables 2 to 5 of Shoham and Avron: likelihood and test error for several batch sizes.

Published settings (`--full`): five splits, 100 epochs, Adadelta, b_t = 0.9, mu = 1, 1000 random features. The learning
rate is chosen from a grid by two rules. By that of the paper, each rate has its 100 epochs, one piece of work each, and
the one that ends with the least NLML of the training rows is taken. By that of this package, it is the rate with the
least error on a tenth of the training rows, which are set aside, after five epochs. Test rows are not used for either.
The quick version uses one split, 4000 of its training rows, Adam with one rate and a cosine schedule, and the default
b_t and metric of this package. Its rate was chosen once, on training rows of kin40k that were set aside. Numbers are in
the units of the files, as in the paper.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import torch

from benchmarks.timing.rate_search import EPOCHS as TRIAL_EPOCHS
from benchmarks.timing.rate_search import RATES, best_validation_rate
from gpexplorer import data, kernels
from gpexplorer.data import Split
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import registry
from gpexplorer.problem import Problem
from gpexplorer.runs.run import Run
from gpexplorer.views.drawing.palette import CYCLE

from .base import Figure, Rows, Unit, panels, ticks
from .stochastic_published import METHODS, printed

ALL_ROWS: dict[str, Any] = {"validation": 0.0, "patience": 0}  # the paper chooses the best theta by the likelihood
FULL: dict[str, Any] = {**ALL_ROWS, "optimiser": "adadelta", "rate": 1.0, "minibatches": 500, "evaluate_every": 2}
OWN: dict[str, dict[str, Any]] = {
    "scgd": {"averaging": 0.9, "head": "descend"},
    "minimax": {"metric": "flat", "mu": 1.0, "rate_ascent": 1e-2},
}
QUICK: dict[str, Any] = {
    **ALL_ROWS,
    "minibatches": 100,
    "evaluate_every": 4,
    "num_features": 200,
    "rate": 1e-2,
    "schedule": "cosine",
}
FEW, MEASURED = 10, 4.0  # minibatches between two looks at the clock, and seconds of them, for an estimate
ROWS, EPOCHS, SECONDS = 4000, {"linear": 12, "gaussian": 4}, 40.0
SIZES = {"linear": (32, 64, 128), "gaussian": (16, 32, 64)}
BY_LIKELIHOOD, BY_ROWS = "least NLML", "rows set aside"  # the rules by which a rate is chosen
GRID = tuple(10.0 ** (k / 2) for k in range(-(RATES // 2), RATES // 2 + 1))  # the same rates by both rules
COLOURS = dict(zip(METHODS, CYCLE, strict=False))


def units(kernel: str, full: bool) -> list[dict[str, Any]]:
    """Return one piece of work per data set, split, batch size and method; in full also per rate of the grid."""
    sets, splits = (("elevators", "kin40k", "protein"), range(5)) if full else (("kin40k",), range(1))
    sizes = SIZES[kernel] if full else (SIZES[kernel][0], SIZES[kernel][-1])
    pieces: list[dict[str, Any]] = [
        {"kernel": kernel, "data": name, "split": split, "batch": size, "method": method, "full": full}
        for name in sets
        for split in splits
        for size in sizes
        for method in METHODS
    ]
    return [*pieces, *({**piece, "rate": rate} for piece in pieces for rate in GRID if full)]


def work(unit: Unit) -> Rows:
    """Return one row: the best NLML per row and the test error at that epoch, in the units of the file."""
    method, problem, split = _prepared(unit)
    key, full = unit["method"], unit["full"]
    if "rate" in unit:
        method.rate = unit["rate"]
    elif full:
        method.rate = best_validation_rate(method, problem)
    run = Run(method, problem, split)
    outcome = run.finish(seconds=math.inf if full else SECONDS)
    n, scale = len(split.train), split.train.scale
    assert scale is not None
    constant = 0.5 * math.log(2.0 * math.pi) + math.log(scale.y_sd)
    table = run.table()
    values = table["objective"].to_numpy(float)
    best = int(np.nanargmin(values)) if np.isfinite(values).any() else len(values) - 1
    paper = printed(unit["kernel"], unit["data"], unit["batch"], key)
    return [
        {
            **{name: unit[name] for name in ("data", "split", "batch", "method")},
            "rows": n,
            "rule": BY_LIKELIHOOD if "rate" in unit else BY_ROWS,
            "rate": float(method.rate),
            "epochs": float(table["epoch"].max()),
            "ended": outcome.reason,
            "nlml": values[best] / n + constant,
            "nlml_paper": paper["nlml"][0],
            "rmse": run.scores(best)["rmse"],
            "rmse_paper": paper["rmse"][0],
        }
    ]


def by_rule(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of a table by the rule that chose their rates, where all rates of the grid that it takes were tried."""
    rule = frame["rule"].fillna(BY_ROWS) if "rule" in frame else pd.Series(BY_ROWS, frame.index)
    tried = frame[rule == BY_LIKELIHOOD].groupby(["data", "batch", "method", "split"], sort=False)
    complete = [rows for _, rows in tried if set(GRID) <= set(rows["rate"]) and rows["nlml"].notna().any()]
    best = [rows["nlml"].idxmin() for rows in complete]
    return {BY_LIKELIHOOD: frame.loc[best], BY_ROWS: frame[rule == BY_ROWS]}


def estimate(unit: Unit) -> float:
    """Return the processor seconds of a whole piece, by the pace of at most `MEASURED` seconds of minibatches.

    The search for a rate on rows that are set aside costs 25 epochs, and evaluations of the likelihood are left out.
    """
    method, problem, split = _prepared(unit)
    method.param.update(minibatches=FEW, evaluate_every=method.epochs)
    steps = method.steps(problem)
    next(steps)
    next(steps)  # the first minibatches also evaluate the likelihood
    begin, minibatches = time.process_time(), 0
    while time.process_time() - begin < MEASURED:
        next(steps)
        minibatches += FEW
    pace = (time.process_time() - begin) / minibatches
    epochs = method.epochs + (RATES * TRIAL_EPOCHS if unit["full"] and "rate" not in unit else 0)
    return pace * epochs * (len(split.train) // unit["batch"])


def _prepared(unit: Unit) -> tuple[Any, Problem, Split]:
    """The method with its settings, its problem, and the rows, of which the quick version has fewer."""
    key, full = unit["method"], unit["full"]
    settings = {**FULL, **OWN.get(key, {}), "epochs": 100} if full else {**QUICK, "epochs": EPOCHS[unit["kernel"]]}
    settings |= {name: unit[name] for name in ("optimiser", "schedule") if name in unit}
    split = data.load(unit["data"], split=unit["split"])
    if not full:
        order = torch.randperm(len(split.train), generator=generator(0, "reproduce"))
        split = replace(split, train=split.train.rows(order[:ROWS]))
    split = split.scaled()
    kernel = kernels.make("se-ard", split.train.d)
    problem = Problem(split.train, kernel, kernel.start(split.train))
    if key == "svgp":  # the paper's: the same network, as many inducing inputs as rows per minibatch
        settings |= {"layers": 2, "num_inducing": unit["batch"], "variational": "optimiser"}
    return registry[key](kernel=unit["kernel"], batch_size=unit["batch"], **settings), problem, split


def plot(value: str, label: str, frame: pd.DataFrame) -> hv.Layout:
    """Draw one panel per data set: means over the splits against the batch size.

    Lines are the results of this package; crosses are the numbers of the paper. Rates are those of the paper's rule for
    each batch size and method of which all were tried.
    """
    rules, place = by_rule(frame), ["data", "batch", "method"]
    tried = pd.MultiIndex.from_frame(rules[BY_LIKELIHOOD][place])
    others = rules[BY_ROWS][~pd.MultiIndex.from_frame(rules[BY_ROWS][place]).isin(tried)]
    shown = pd.concat([rules[BY_LIKELIHOOD], others]).sort_index()
    return panels([_panel(value, label, str(name), rows) for name, rows in shown.groupby("data", sort=False)], 3)


def _panel(value: str, label: str, name: str, frame: pd.DataFrame) -> hv.Overlay:
    parts: list[hv.Element] = []
    for method, rows in frame.groupby("method", sort=False):
        means = rows.groupby("batch")[[value, f"{value}_paper"]].mean().reset_index()
        ours, published = means[["batch", value]].dropna(), means[["batch", f"{value}_paper"]].dropna()
        colour, title = COLOURS[str(method)], registry[str(method)].title
        parts.append(hv.Curve(ours, "batch", value, label=title).opts(color=colour, line_width=2))
        parts.append(hv.Scatter(ours, "batch", value).opts(color=colour, size=6))
        parts.append(hv.Scatter(published.set_axis(["batch", value], axis=1)).opts(color=colour, marker="x", size=10))
    n, epochs = int(frame["rows"].max()), float(frame["epochs"].max())
    return hv.Overlay(parts).opts(
        logx=True, xticks=ticks(frame["batch"]), padding=0.1, show_grid=True, xlabel="rows per minibatch",
        ylabel=label, title=f"{name}, {n} rows, {epochs:.0f} epochs",
    )  # fmt: skip


def _figure(number: int, kernel: str, value: str, label: str, paper: str) -> Figure:
    title = f"Shoham and Avron, table {number}: {label}, {kernel} kernel of a network"
    paper += " Lines are the results of this package; crosses are those of the paper, after 100 epochs on all rows."
    cells = f"stochastic-table{2 if kernel == 'linear' else 3}"  # tables 4 and 5 show other columns of the same rows
    drawn = partial(plot, value, label)
    pace = f"by the pace of {MEASURED:.0f} s of minibatches"
    return Figure(f"stochastic-table{number}", title, paper, partial(units, kernel), work, drawn, cells, estimate, pace)


FIGURES = (
    _figure(
        2,
        "linear",
        "nlml",
        "NLML per row",
        "Printed for kin40k, b = 32: -1.71 MINIMAX, -1.76 SCGD, 0.79 SVGP, -0.68 BSGD.",
    ),
    _figure(
        3,
        "gaussian",
        "nlml",
        "NLML per row",
        "Printed for kin40k, b = 16: -1.56 MINIMAX, -1.61 SCGD, -0.70 SVGP, -0.52 BSGD.",
    ),
    _figure(
        4,
        "linear",
        "rmse",
        "test RMSE",
        "Printed for kin40k, b = 32: .061 MINIMAX, .056 SCGD, .651 SVGP, .126 BSGD.",
    ),
    _figure(
        5,
        "gaussian",
        "rmse",
        "test RMSE",
        "Printed for kin40k, b = 16: .039 MINIMAX, .040 SCGD, .110 SVGP, .147 BSGD.",
    ),
)
