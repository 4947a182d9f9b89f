"""What the first screen shows, swap by swap, as plain numbers that a browser can draw and interpolate.

A lesson is a run of a method that swaps inducing points at fixed hyperparameters, with one input. A frame belongs to a
record of the run: its prediction, its points, its distance to the exact model, and the landscape that the *next* swap
meets: what every row would bring in the place of the point that is taken out, exactly and as the pivots predict it.
"""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import torch

from ...errors import SettingError
from ...methods.capabilities import HasSwapLandscape, Landscape
from ...objectives import evidence_terms
from ...posteriors import exact_gp_posterior, in_units
from ...runs import Spec
from ...runs.run import Run
from ..drawing import run_rows

GRID = 321  # points of the curves
MARGIN = 0.025  # of the range of x, beside the rows
GAP = 0.03  # of the range of x: wider intervals without candidates interrupt the lines of a landscape
SWAPS = 12  # tried at most
START: dict[str, Any] = {
    "method": "cholqr",
    "data": "snelson-like",
    "split": 0,
    "seed": 38,
    # Fixed by hand between the maximum likelihood of the exact model and what ten points learn: good, not optimal.
    "kernel": {"name": "se", "theta": [0.1, -1.4, -1.0]},
    "settings": {
        "num_inducing": 10, "start": "left", "num_pivots": 5, "num_proposals": 1, "compete": False,
        "pivot_policy": "random", "pivot_refresh": 1, "learn": False, "swaps_per_epoch": 60,
    },
    "budget": {"steps": SWAPS},
}  # fmt: skip


class Lesson(TypedDict):
    """A lesson for the browser: curves have `GRID` numbers, rows are in the order of x."""

    xlabel: str
    ylabel: str
    points: int  # m
    x: list[float]
    exact: dict[str, list[float]]  # mean and sd of the exact model
    rows: dict[str, list[Any]]  # x, y and the number of every training row
    frames: list[dict[str, Any]]
    gap: float  # wider intervals without candidates interrupt the lines of a landscape
    swaps: int  # the end of the axis of swaps
    first: int  # the frame to begin with


def lesson_spec(points: int) -> Spec:
    """Return the spec of the lesson with this many inducing points."""
    return Spec(**{**START, "settings": {**START["settings"], "num_inducing": points}})


def lesson_of(run: Run, first: int = 0) -> Lesson:
    """Compute all frames of a run that has ended.

    Parameters
    ----------
    run : Run
        A run with one numeric input, of a method that swaps inducing points.
    first : int, default 0
        The frame to begin with.

    Returns
    -------
    Lesson
        Numbers in the units of the file, distances and decreases in nat, rounded for the browser.

    Raises
    ------
    SettingError
        If the method swaps no points, or the data do not have one numeric input.

    Notes
    -----
    One exact GP of n rows, n^3 flops, and one landscape per record, about n^2 m flops each.
    """
    train = run.problem.train
    if not isinstance(run.method, HasSwapLandscape) or not run_rows.numeric(run) or train.d != 1:
        raise SettingError(f"A lesson swaps inducing points over one numeric input; this is {run.method.title}.")
    x, y = run_rows.inputs_of(train)[:, 0], run_rows.targets_of(train)
    order, span = np.argsort(x, kind="stable"), float(np.ptp(x)) or 1.0
    grid = np.linspace(x.min() - MARGIN * span, x.max() + MARGIN * span, GRID)
    states = swap_states(run)
    exact = in_units(exact_gp_posterior(run.problem.kernel, run.problem.theta, train), run.problem)
    floor = evidence_terms(run.problem.kernel, run.problem.theta, train)[0].total("vfe")
    frames: list[dict[str, Any]] = []
    for at, state in enumerate(states):
        landscape = run.method.swap_landscape(run.problem, run.trace[at].step.state)
        following = run.trace[at + 1].step.info if at + 1 < len(run.trace) else None
        frames.append({
            **_curve(in_units(run.method.posterior(run.problem, state), run.problem), grid),
            "distance": rounded(float(run.method.bound_terms(run.problem, state).total("vfe")) - floor),
            "points": [int(row) for row in state.inducing],
            "next": _next_swap(landscape, following, order),
        })  # fmt: skip
    return {
        "xlabel": run_rows.input_name(run, 0),
        "ylabel": train.target,
        "points": len(states[0].inducing),
        "x": rounded(grid),
        "exact": _curve(exact, grid),
        "rows": {"x": rounded(x[order]), "y": rounded(y[order]), "row": order.tolist()},
        "frames": frames,
        "gap": rounded(GAP * span),
        "swaps": SWAPS,
        "first": first,
    }


def swap_states(run: Run) -> list[Any]:
    """Return the state of every record.

    The first record precedes all work, so that its points are not chosen yet: those with which the first swap began are
    those after it, with the removed row in its place again.
    """
    states = [record.step.state for record in run.trace]
    if len(states) > 1 and states[0].step == 0:
        info, rows = run.trace[1].step.info, states[1].inducing.clone()
        if info.accepted:
            rows[rows == info.proposed] = info.removed
        states[0] = states[0]._replace(inducing=rows)
    return states


def _curve(posterior: Any, grid: np.ndarray) -> dict[str, list[float]]:
    """Mean and standard deviation of f on the grid."""
    mean, variance = posterior(torch.from_numpy(grid)[:, None])
    return {"mean": rounded(mean.cpu().numpy()), "sd": rounded(np.sqrt(variance.cpu().numpy()))}


def _next_swap(landscape: Landscape | None, following: Any, order: np.ndarray) -> dict[str, Any] | None:
    """The landscape in front of the next swap, and what that swap tries; None where nothing follows."""
    if landscape is None or following is None or following.proposed < 0:
        return None
    exact, approx = (values.cpu().double().numpy()[order] for values in (landscape.exact, landscape.approx))
    shown = np.isfinite(exact) & np.isfinite(approx)
    best = int(order[shown][np.argmax(exact[shown])])
    of_row = {int(row): (exact[k], approx[k]) for k, row in enumerate(order)}
    return {
        "exact": rounded(np.where(shown, exact, np.nan)),
        "approx": rounded(np.where(shown, approx, np.nan)),
        "pivots": [int(row) for row in landscape.pivots if np.isfinite(of_row[int(row)][0])],
        "removed": int(following.removed),
        "tested": int(following.proposed),
        "accepted": bool(following.accepted),
        "best": best,
        "values": {"best": rounded(of_row[best][0]), "tested": rounded(float(following.exact)),
                   "predicted": rounded(float(following.approx)), "predicted_best": rounded(of_row[best][1])},
    }  # fmt: skip


def rounded(values: Any) -> Any:
    """Return numbers with four decimal places, with None for what is not finite: JSON has no NaN."""
    if np.ndim(values):
        return [rounded(float(value)) for value in values]
    return round(float(values), 4) if np.isfinite(values) else None
