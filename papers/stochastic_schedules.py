"""Table 2 of Shoham and Avron once more, with rates that fall: what the optimiser has to do with the likelihood.

The paper names AdaDelta and a grid of rates. With constant rates most of our likelihoods stay above the published ones.
Here the rates of AdaDelta and of Adam fall to zero along a cosine; all else is as there. Each rate has its 100 epochs,
and the one that ends with the least NLML of the training rows is taken, as in the paper.
"""

from __future__ import annotations

from typing import Any

import holoviews as hv
import pandas as pd

from gpexplorer.methods.base import registry
from gpexplorer.views.drawing.palette import CYCLE

from .base import Figure, Rows, Unit, panels, ticks
from .stochastic import estimate, units, work

RATES = {"adadelta": (1.0, 10.0**0.5), "adam": (1e-3, 3e-3, 1e-2)}
OPTIMISERS = {"adadelta": "AdaDelta", "adam": "Adam"}  # with their names in sentences
METHODS = ("scgd", "minimax")


def falling(full: bool) -> list[dict[str, Any]]:
    """Return one piece of work per rate: of the first split, and of SCGD with 32 rows in the quick version."""
    asked = [
        unit for unit in units("linear", full)
        if "rate" not in unit and unit["split"] == 0 and unit["method"] in METHODS[: None if full else 1]
    ]  # fmt: skip
    return [
        {**unit, "optimiser": optimiser, "schedule": "cosine", "rate": rate}
        for unit in asked
        if full or unit["batch"] == min(each["batch"] for each in asked)
        for optimiser, rates in RATES.items()
        for rate in (rates if full else rates[-1:])
    ]


def with_optimiser(unit: Unit) -> Rows:
    """Return the row of a table of the paper, with the optimiser that led to it."""
    return [{**row, "optimiser": unit["optimiser"]} for row in work(unit)]


def plot(frame: pd.DataFrame) -> hv.Layout:
    """Draw one panel per data set: the NLML of each method and optimiser, and crosses for the numbers of the paper."""
    return panels([_panel(str(name), rows) for name, rows in frame.groupby("data", sort=False)], 3)


def _panel(name: str, frame: pd.DataFrame) -> hv.Overlay:
    parts: list[hv.Element] = []
    for k, (method, rows) in enumerate(frame.groupby("method", sort=False)):
        for optimiser, tried in rows.groupby("optimiser", sort=False):
            least = tried.groupby("batch")["nlml"].min().reset_index()
            label, dashes = f"{registry[str(method)].title}, {OPTIMISERS[str(optimiser)]}", optimiser == "adadelta"
            parts += [
                hv.Curve(least, "batch", "nlml", label=label).opts(
                    color=CYCLE[k], line_width=2, line_dash="dashed" if dashes else "solid"
                ),
                hv.Scatter(least, "batch", "nlml").opts(color=CYCLE[k], size=6),
            ]
        printed = rows.groupby("batch")["nlml_paper"].first().dropna().reset_index(name="nlml")
        parts.append(hv.Scatter(printed, "batch", "nlml").opts(color=CYCLE[k], marker="x", size=10))
    return hv.Overlay(parts).opts(
        logx=True, xticks=ticks(frame["batch"]), padding=0.1, show_grid=True, xlabel="rows per minibatch",
        ylabel="NLML per row", title=f"{name}, {int(frame['rows'].max())} rows",
    )  # fmt: skip


FIGURES = (
    Figure(
        "stochastic-schedules",
        "Shoham and Avron, table 2 with rates that fall along a cosine: NLML per row, linear kernel of a network",
        "The paper uses AdaDelta with rates from a grid, and does not say whether they change. Lines are the results of"
        " this package on the first split; crosses are the means of the paper.",
        falling,
        with_optimiser,
        plot,
        estimate=estimate,
        pace="by the pace of the first minibatches",
    ),
)
