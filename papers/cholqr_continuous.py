"""Figures 4 and 5 of Cao et al. (2013): continuous inputs, where points can also move instead of being swapped."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import holoviews as hv
import pandas as pd
import torch
from torch import Tensor

from gpexplorer import data, kernels
from gpexplorer.data.splits import Split
from gpexplorer.methods.base import Method, registry
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.problem import Dataset, Problem, Step
from gpexplorer.runs.run import Run
from gpexplorer.views.drawing.palette import CYCLE, ROLES

from .base import Figure, Rows, Unit, panels, ticks
from .cholqr_fig1 import snelson

EVERY, POINTS = 10, {200: 15, 20: 10}  # every tenth of 200 rows; number of inducing points for each number of rows
QUICK_ROWS, QUICK_EPOCHS, SECONDS = 2000, 6, 36_000.0
FEW, EVALUATIONS = 2, 20  # evaluations of the gradient in an epoch, for an estimate and by default
PAPER = CholQR.published  # the settings of the paper, not the defaults
SNELSON: dict[str, tuple[str, dict[str, Any]]] = {
    "CholQR-MLE": ("cholqr", PAPER | {"objective": "pp"}),
    "CholQR-VAR": ("cholqr", PAPER | {"objective": "vfe"}),
    "SPGP": ("fitc", {"likelihood": "fitc"}),
}
KIN40K: dict[str, tuple[str, dict[str, Any]]] = {
    "CholQR-MLE": ("cholqr", PAPER | {"objective": "pp"}),
    "CholQR-VAR": ("cholqr", PAPER | {"objective": "vfe"}),
    "SPGP": ("fitc", {"likelihood": "fitc"}),
    "IVM-MLE": ("ivm", {"objective": "pp"}),
    "IVM-VAR": ("ivm", {"objective": "vfe"}),
}

COLOURS = dict(zip(KIN40K, CYCLE, strict=False))


def units4(full: bool) -> list[dict[str, Any]]:
    """Return the six panels of the paper: all points start at the left, or (in one panel) evenly spread."""
    from_the_left = [(name, n, "left") for n in (200, 20) for name in SNELSON if (name, n) != ("SPGP", 200)]
    return [
        {"method": name, "rows": n, "start": start, "steps": 3000 if full else 300}
        for name, n, start in [*from_the_left, ("SPGP", 200, "left"), ("SPGP", 20, "even")]
    ]


def work4(unit: Unit) -> Rows:
    """Return the band of y after learning, the first and last points, and the negative log likelihood in file units."""
    train = snelson()
    order = train.X[:, 0].argsort()
    if unit["rows"] == 20:
        train, order = train.rows(order[::EVERY]), torch.arange(20)
    m = POINTS[unit["rows"]]
    chosen = order[:m] if unit["start"] == "left" else order[torch.linspace(0, len(order) - 1, m).round().long()]
    kernel = kernels.make("se", 1)
    problem = Problem(train, kernel, kernel.start(train))
    name, settings = SNELSON[unit["method"]]
    method = registry[name](num_inducing=m, max_epochs=1000, tolerance=1e-6, **settings)
    last = _from(method, problem, chosen, unit["steps"])
    assert train.scale is not None
    constants = 0.5 * len(train) * math.log(2 * math.pi) + len(train) * math.log(train.scale.y_sd)
    fields = {name: unit[name] for name in ("method", "rows", "start")} | {"nll": last.info.objective + constants}
    final_points = train.X[last.state.inducing] if getattr(last.state, "Z", None) is None else last.state.Z
    parts = [
        *_band(problem, method, last.state),
        *_points("begin", train.X[chosen], train),
        *_points("end", final_points, train),
        *_points("row", train.X, train, train.y),
    ]
    return [{**fields, **part} for part in parts]


def _from(method: Method, problem: Problem, chosen: Tensor, steps: int) -> Step:
    """Return the step that a run from these rows reaches after `steps` steps."""
    state = next(method.steps(problem)).state._replace(step=1)  # as if a first step had chosen these points
    Z = problem.train.X[chosen]
    points = {"inducing": chosen} if hasattr(state, "inducing") else {"phase": "move", "Z": Z, "Z_begin": Z.clone()}
    running = method.steps(problem, resume=state._replace(**points))
    *_, last = islice(running, steps)
    running.close()
    return last


def _band(problem: Problem, method: Method, state: Any) -> Rows:
    """Return mean and sd of y on a grid, in the units of the file."""
    X, file_units = problem.train.X, problem.train.scale
    assert file_units is not None
    x = torch.linspace(float(X.min()) - 0.2, float(X.max()) + 0.2, 120, dtype=X.dtype)[:, None]
    mean, var = method.posterior(problem, state)(x)
    sd = (var + torch.exp(2.0 * state.theta[-1])).sqrt()
    rows = _points("band", x, problem.train, mean)
    return [{**row, "sd": file_units.y_sd * value} for row, value in zip(rows, sd.tolist(), strict=True)]


def _points(kind: str, X: Tensor, train: Dataset, y: Tensor | None = None) -> Rows:
    """Return the inputs X [k, 1], with targets where given, in the units of the file."""
    file_units = train.scale
    assert file_units is not None
    x = X[:, 0] * file_units.x_sd[0] + file_units.x_mean[0]
    heights = [math.nan] * len(X) if y is None else (y * file_units.y_sd + file_units.y_mean).tolist()
    return [{"kind": kind, "x": a, "y": b, "sd": math.nan} for a, b in zip(x.tolist(), heights, strict=True)]


def plot4(frame: pd.DataFrame) -> hv.Layout:
    """Draw one panel per method and start: rows, mean and one sd of y, first points (top) and last points (bottom)."""
    return hv.Layout([_panel(panel) for _, panel in frame.groupby(["rows", "method", "start"], sort=False)]).cols(3)


def _panel(panel: pd.DataFrame) -> hv.Overlay:
    first, kinds = panel.iloc[0], dict(list(panel.groupby("kind")))
    band, top, bottom = kinds["band"], panel["y"].max() + 0.8, panel["y"].min() - 0.8
    parts = [
        hv.Area(band.assign(low=band["y"] - band["sd"], high=band["y"] + band["sd"]), "x", ["low", "high"]).opts(
            color=ROLES["band"], alpha=0.3, line_alpha=0
        ),
        hv.Scatter(kinds["row"], "x", "y").opts(color=ROLES["data"], size=3),
        hv.Curve(band, "x", "y").opts(color=ROLES["mean"]),
        hv.Scatter(kinds["begin"].assign(y=top), "x", "y").opts(color="black", marker="x", size=6),
        hv.Scatter(kinds["end"].assign(y=bottom), "x", "y").opts(color=ROLES["inducing"], marker="triangle", size=6),
    ]
    title = f"{first['method']}, {first['rows']} rows, start {first['start']}: NLL {first['nll']:.2f}"
    rows = kinds["row"]["x"]
    limits = (rows.min() - 1.0, rows.max() + 1.0)  # a point that moved further is outside of the picture
    return hv.Overlay(parts).opts(title=title, xlabel="x", ylabel="y, with one sd", width=400, height=300, xlim=limits)


def units5(full: bool) -> list[dict[str, Any]]:
    """Return every method at every m. The quick version has 2000 rows, small m, one seed, and few epochs."""
    sizes, seeds = ((128, 256, 512, 1024, 2048), 10) if full else ((16, 32, 64), 1)
    return [
        {"method": name, "m": m, "seed": seed, "full": full}
        for seed in range(seeds) for m in sizes for name in KIN40K
    ]  # fmt: skip


def work5(unit: Unit) -> Rows:
    """Return the scores at the end of a run. The quick version has a limit of QUICK_EPOCHS."""
    split = kin40k(unit["full"])
    run = _run5(unit, split, {} if unit["full"] else {"max_epochs": QUICK_EPOCHS})
    outcome = run.finish(seconds=SECONDS)
    last, scores = run.trace[-1], run.scores()
    fields = {name: unit[name] for name in ("method", "m", "seed")}
    return [
        {**fields, "rows": len(split.train), "SMSE": scores["smse"], "SNLP": scores["snlp"],
         "objective": last.step.info.objective, "seconds": last.seconds, "ended": outcome.reason}
    ]  # fmt: skip


def estimate5(unit: Unit) -> float:
    """Return the processor seconds of `QUICK_EPOCHS` epochs, from one with few evaluations of the gradient."""
    run = _run5(unit, kin40k(unit["full"]), {"max_epochs": 1, "evaluations": FEW}, clock=time.process_time)
    run.finish(seconds=math.inf)
    swaps = max((record.seconds for record in run.trace if record.step.info.phase == "swap"), default=0.0)
    return QUICK_EPOCHS * (swaps + (run.trace[-1].seconds - swaps) * EVALUATIONS / FEW)


def _run5(unit: Unit, split: Split, changes: dict[str, Any], **options: Any) -> Run:
    kernel = kernels.make("se-ard", split.train.d)
    name, settings = KIN40K[unit["method"]]
    method = registry[name](num_inducing=unit["m"], seed=unit["seed"], **{**settings, **changes})
    return Run(method, Problem(split.train, kernel, kernel.start(split.train)), split, **options)


@cache
def kin40k(full: bool) -> Split:
    """Return 10000 training and 30000 test rows, scaled, without their linear trend; the quick version has 2000."""
    split = data.load("kin40k", split={"test": 0.75, "seed": 0})
    train, test = split.train, split.test
    if not full:
        train, test = train.rows(torch.arange(QUICK_ROWS)), test.rows(torch.arange(2 * QUICK_ROWS))
    coefficients = torch.linalg.lstsq(_with_one(train.X), train.y[:, None]).solution[:, 0]
    train, test = (replace(part, y=part.y - _with_one(part.X) @ coefficients) for part in (train, test))
    return replace(split, train=train, test=test, key=f"{split.key}/detrended").scaled()


def _with_one(X: Tensor) -> Tensor:
    return torch.cat([X, torch.ones_like(X[:, :1])], 1)


def plot5(frame: pd.DataFrame) -> hv.Layout:
    """Draw SMSE and SNLP over m."""
    mean = frame.groupby(["method", "m"], as_index=False)[["SMSE", "SNLP"]].mean()
    sizes = ticks(mean["m"].tolist())
    return panels([
        hv.Overlay([
            hv.Curve(points, "m", column, label=name).opts(color=COLOURS[str(name)], line_width=2)
            * hv.Scatter(points, "m", column, label=name).opts(color=COLOURS[str(name)], size=6)
            for name, points in mean.groupby("method")
        ]).opts(
            xlabel="inducing points m", logx=True, padding=0.1, show_grid=True, xticks=sizes
        )
        for column in ("SMSE", "SNLP")
    ], 2)  # fmt: skip


FIGURES = (
    Figure(
        name="cholqr-fig4",
        title="CholQR: Snelson's set from a poor start, and on 20 rows",
        paper=(
            "The paper: CholQR reaches a good fit although all points start at the left; on 20 rows SPGP ends at a "
            "negative log likelihood of 14.54 from that start and of 11.34 from evenly spread points."
        ),
        units=units4,
        work=work4,
        plot=plot4,
    ),
    Figure(
        name="cholqr-fig5",
        title="CholQR: KIN40K over the number of inducing points",
        paper=(
            "The paper, read from the figure (10000 training rows): the SMSE of CholQR-VAR decreases from about 0.2 at "
            "m = 128 to under 0.08 at 2048, below IVM at every m and below SPGP where m is large; SPGP has the better "
            "SNLP."
        ),
        units=units5,
        work=work5,
        plot=plot5,
        estimate=estimate5,
        pace=f"by the pace of {FEW} evaluations of the gradient, if {QUICK_EPOCHS} epochs are enough",
    ),
)
