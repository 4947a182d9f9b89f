"""Calibration: nominal against observed coverage of the predictive intervals on the test rows."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...data.standardising import targets
from ...posteriors.table_posterior import marginals_of_part
from ...runs.run import Run
from ..base import Layers, View, band, dots, line, named, overlay
from ..drawing import run_rows
from ..drawing.palette import ROLES

LEVELS = np.linspace(0.02, 0.98, 25)
MAX_ROWS = 2000  # above this many test rows, a random sample of this size is used


class Calibration(View):
    """The fraction of test targets inside each central predictive interval, against its nominal probability.

    The band is where the curve lies at one level with a probability of 95 % if the intervals are right: the number of
    t test rows inside an interval of level p is then binomial, with t and p.
    """

    key: ClassVar[str] = "calibration"
    title: ClassVar[str] = "Calibration"
    help: ClassVar[str] = (
        "Below the band the predictive intervals are too narrow, above it they are too wide. Inside it, this number of "
        "test rows cannot tell."
    )
    order: ClassVar[int] = 60

    def applies(self, run: Run) -> bool:
        """Return whether the run has test rows and numeric inputs."""
        return run.split is not None and len(run.split.test) > 0 and run_rows.numeric(run)

    def data(self, run: Run, at: int) -> Layers:
        """Return the coverage of 25 central intervals of y."""
        assert run.split is not None
        test = run.split.test
        part = test.rows(run_rows.sampled(len(test), MAX_ROWS).to(test.y.device))
        marginals = marginals_of_part(run.posterior(at, of="y"), part)
        frame = coverage(marginals.cdf(targets(part.y, part)).cpu().numpy())
        rows = "1 test row" if len(part) == 1 else f"{len(part):,} test rows"
        title = f"{rows}, {_outside(frame, len(part))} of {len(frame)} levels outside the band"
        named(frame, "nominal coverage", "observed coverage of test rows", title)
        ideal = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
        return {"chance": by_chance(len(part)), "observed": frame, "dots": frame, "ideal": ideal}

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the observed coverage beside the diagonal, over the band of chance."""
        parts = [
            band(layers, "chance", "95 % by chance", color=ROLES["band"], fill_alpha=0.25, line_alpha=0),
            line(layers, "ideal", "calibrated", color=ROLES["reference"], line_dash="dashed"),
            line(layers, "observed", "observed", color=ROLES["mean"], line_width=2.5),
            dots(layers, "dots", color=ROLES["mean"], size=6),
        ]
        return overlay(parts, layers["observed"], 3)


def coverage(probabilities: np.ndarray) -> pd.DataFrame:
    """Return the coverage of central predictive intervals, of any distribution.

    Parameters
    ----------
    probabilities : ndarray
        Predicted probability of a value of at most the target, for each row [t].

    Returns
    -------
    DataFrame with the nominal coverage in column x and the fraction of targets inside the interval in column y.
    """
    distance = np.abs(probabilities - 0.5)  # [t] a central interval of level p contains the target if it is <= p/2
    return pd.DataFrame({"x": LEVELS, "y": [(distance <= p / 2).mean() for p in LEVELS]})


def by_chance(rows: int) -> pd.DataFrame:
    """Return the band of the coverage of right intervals on this many test rows.

    Parameters
    ----------
    rows : int
        Number of test rows t.

    Returns
    -------
    DataFrame
        Nominal coverage p in column x; in lower and upper the quantiles .025 and .975 of Binomial(t, p) / t.
    """
    from scipy.special import bdtr

    levels = np.concatenate([[0.0], LEVELS, [1.0]])
    cumulative = bdtr(np.arange(rows + 1.0)[:, None], rows, levels)  # [t + 1, levels] of at most k rows inside
    lower, upper = ((cumulative >= q).argmax(0) / rows for q in (0.025, 0.975))
    return pd.DataFrame({"x": levels, "lower": lower, "upper": upper})


def _outside(observed: pd.DataFrame, rows: int) -> int:
    """How many levels have a coverage outside the band of chance."""
    chance = by_chance(rows)
    lower, upper = (np.interp(observed["x"], chance["x"], chance[name]) for name in ("lower", "upper"))
    return int(((observed["y"] < lower - 1e-9) | (observed["y"] > upper + 1e-9)).sum())
