"""Figure 1 of Cao et al. (2013): does the approximate score of a candidate rank it as the exact one would?"""

from __future__ import annotations

import holoviews as hv
import pandas as pd
import torch

from .. import data, kernels
from ..linalg.ranks import ranks
from ..methods.inducing.subset_of_data import SubsetOfData
from ..methods.inducing.swapping.cholqr import CholQR
from ..methods.inducing.swapping.swap_landscape import landscape
from ..problem import Dataset, Problem
from ..views.drawing.palette import ROLES
from .base import Figure, Rows, Unit

PIVOTS, POINTS, SIZE = 10, 8, 320


def snelson() -> Dataset:
    """All 200 rows of Snelson's one-dimensional set, scaled."""
    split = data.load("snelson1d", split={"test": 0.005}).scaled()
    train, test = split.train, split.test
    return Dataset(torch.cat([train.X, test.X]), torch.cat([train.y, test.y]), train.names, train.target, train.scale)


def learned(train: Dataset, kernel: kernels.Covariance) -> torch.Tensor:
    """theta of an exact GP on all rows."""
    method = SubsetOfData(num_rows=len(train), optimiser="L-BFGS-B", evaluations=60, max_epochs=1)
    *_, last = method.steps(Problem(train, kernel, kernel.start(train)))
    return last.state.theta


def units(full: bool) -> list[dict[str, int]]:
    """Tries after which the candidates are looked at, for each start."""
    return [{"seed": seed, "tries": tries} for seed in range(10 if full else 1) for tries in (1, 10, 30)]


def work(unit: Unit) -> Rows:
    """One landscape: for every candidate the fall of F / n in nat, approximate and exact, and both ranks."""
    train = snelson()
    kernel = kernels.make("se", 1)
    problem = Problem(train, kernel, learned(train, kernel))
    settings = CholQR.published | {"num_inducing": POINTS, "num_pivots": PIVOTS, "seed": unit["seed"]}
    method = CholQR(**settings, learn=False, max_epochs=1000, tolerance=0.0)
    steps = method.steps(problem)
    state = next(steps).state
    while state.step < unit["tries"]:
        state = next(steps).state
    steps.close()
    found = landscape(method, problem, state)
    known = torch.isfinite(found.approx) & torch.isfinite(found.exact)
    approx, exact = (values[known].numpy() / len(train) for values in (found.approx, found.exact))
    return [
        {
            "seed": unit["seed"],
            "tries": unit["tries"],
            "approx": a,
            "exact": e,
            "rank of approx": ra,
            "rank of exact": re,
        }
        for a, e, ra, re in zip(approx, exact, ranks(approx), ranks(exact), strict=True)
    ]


def plot(frame: pd.DataFrame) -> hv.Layout:
    """Falls against falls and ranks against ranks, one row a moment of the run."""
    parts = []
    for tries, found in frame[frame["seed"] == frame["seed"].min()].groupby("tries"):
        correlation = found["rank of approx"].corr(found["rank of exact"])
        falls = hv.Scatter(found, "exact", "approx", label=f"after {tries} tries").opts(
            xlabel="exact fall of F / n [nat]", ylabel="approximate fall of F / n [nat]"
        )
        ranks = hv.Scatter(found, "rank of exact", "rank of approx", label=f"rank correlation {correlation:.3f}")
        parts += [
            (hv.Slope(1, 0).opts(color="gray", line_width=1) * part.opts(color=ROLES["mean"], size=4)).opts(
                width=SIZE, height=SIZE, title=part.label, show_legend=False
            )
            for part in (falls, ranks)
        ]
    return hv.Layout(parts).opts(shared_axes=False).cols(2)


FIGURES = (
    Figure(
        name="cholqr-fig1",
        title="CholQR: exact against approximate reductions",
        paper="The paper: with z = 10 pivots on 200 rows, falls and ranks lie close to the diagonal.",
        units=units,
        work=work,
        plot=plot,
    ),
)
