"""Figure 1 of Cao et al. (2013): does the approximate score rank the candidates as the exact reduction does?"""

from __future__ import annotations

import holoviews as hv
import pandas as pd
import torch

from gpexplorer import data, kernels
from gpexplorer.linalg.ranks import ranks
from gpexplorer.methods.inducing.subset_of_data import SubsetOfData
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.problem import Dataset, Problem
from gpexplorer.views.drawing.palette import ROLES

from .base import Figure, Rows, Unit

PIVOTS, POINTS, SIZE = 10, 8, 320


def snelson() -> Dataset:
    """Return all 200 rows of Snelson's one-dimensional data set, scaled."""
    split = data.load("snelson1d", split={"test": 0.005}).scaled()
    train, test = split.train, split.test
    return Dataset(torch.cat([train.X, test.X]), torch.cat([train.y, test.y]), train.names, train.target, train.scale)


def learned(train: Dataset, kernel: kernels.Covariance) -> torch.Tensor:
    """Learn theta [p] by an exact GP on all rows."""
    method = SubsetOfData(num_rows=len(train), optimiser="L-BFGS-B", evaluations=60, max_epochs=1)
    *_, last = method.steps(Problem(train, kernel, kernel.start(train)))
    return last.state.theta


def units(full: bool) -> list[dict[str, int]]:
    """Return the numbers of tries after which the candidates are scored, for each random start."""
    return [{"seed": seed, "tries": tries} for seed in range(10 if full else 1) for tries in (1, 10, 30)]


def work(unit: Unit) -> Rows:
    """Score every candidate: approximate and exact reduction of F / n in nat, and both ranks."""
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
    scores = method.swap_landscape(problem, state)
    assert scores is not None, "the inducing points are rows, since setting polish is 0"
    finite = torch.isfinite(scores.approx) & torch.isfinite(scores.exact)
    approx, exact = (values[finite].numpy() / len(train) for values in (scores.approx, scores.exact))
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
    """Draw approximate against exact reductions, and their ranks, in one row per number of tries."""
    parts = []
    for tries, candidates in frame[frame["seed"] == frame["seed"].min()].groupby("tries"):
        correlation = candidates["rank of approx"].corr(candidates["rank of exact"])
        reductions = hv.Scatter(candidates, "exact", "approx", label=f"after {tries} tries").opts(
            xlabel="exact reduction of F / n [nat]", ylabel="approximate reduction of F / n [nat]"
        )
        ranks = hv.Scatter(candidates, "rank of exact", "rank of approx", label=f"rank correlation {correlation:.3f}")
        parts += [
            (hv.Slope(1, 0).opts(color="gray", line_width=1) * part.opts(color=ROLES["mean"], size=4)).opts(
                width=SIZE, height=SIZE, title=part.label, show_legend=False
            )
            for part in (reductions, ranks)
        ]
    return hv.Layout(parts).opts(shared_axes=False).cols(2)


FIGURES = (
    Figure(
        name="cholqr-fig1",
        title="CholQR: exact against approximate reductions",
        paper="The paper: with z = 10 pivots on 200 rows, reductions and ranks lie close to the diagonal.",
        units=units,
        work=work,
        plot=plot,
    ),
)
