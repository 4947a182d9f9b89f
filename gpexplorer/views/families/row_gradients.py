"""The gradient over the training rows: its size, the rows that a block changed, what they promised, and neighbours."""

from __future__ import annotations

import math
from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch

from ...methods.capabilities import HasGradient, ReportsGains
from ...runs.run import Run
from ..base import Layers, View, dots, labels, layer, line, named, overlay, points
from ..drawing import run_rows
from ..drawing.palette import ROLES, SEQUENTIAL

DECADES = 3.0  # below the start of a run, for colours and axis; smaller gradients have the first colour: solved
SMALLEST = 1e-12  # smaller gradient entries are drawn as this value
BINS = np.linspace(-1.0, 1.0, 41)
CENTRES = 20  # random rows: a fifth of the paper's number, so that the picture is quick


class Gradient(View):
    """Size of the gradient entries: over the input if there is one, as a colour over two inputs, else by rank."""

    key: ClassVar[str] = "gbcd-gradient"
    title: ClassVar[str] = "Gradient over the data"
    help: ClassVar[str] = (
        "The rings are the rows that the last iteration changed. Does the gradient fall there, and rise beside them?"
    )
    order: ClassVar[int] = 20
    hero: ClassVar[bool] = True
    over_input: ClassVar[bool] = True
    needs: ClassVar[type] = HasGradient  # sparse models have none

    def data(self, run: Run, at: int) -> Layers:
        """|g| at a sample of rows, n kernel entries each, and the changed rows among them."""
        method, step = run.method, run.trace[at].step
        assert isinstance(method, HasGradient)
        sample = run_rows.sampled(len(run.problem.train)).to(run.problem.train.y.device)
        g = method.gradient_entries(run.problem, step.state, sample)
        size = g.abs().clamp_min(SMALLEST).log10().cpu().double().numpy()
        active = torch.isin(sample, step.info.active.to(sample.device)).cpu().numpy()
        frame = self._placed(run, sample, size)
        layers = {"rows": frame, "active": frame[active]}
        largest = step.info.largest  # nan before the first iteration on alpha
        title = f"largest of all rows: {largest:.2g}" if math.isfinite(largest) else "no block solved yet"
        top = math.log10(max(float(run.problem.train.y.abs().max()), SMALLEST))  # where all weights are zero
        ends = (top - DECADES, top)
        frame.attrs |= {"title": title, "colours": ends} | ({} if "map" in frame.attrs else {"at_least": ends})
        return layers

    def _placed(self, run: Run, sample: torch.Tensor, size: np.ndarray) -> pd.DataFrame:
        """The sampled rows with their position in the picture."""
        X = run_rows.inputs_of(run.problem.train)[sample.cpu().numpy()] if run_rows.numeric(run) else None
        if X is not None and X.shape[1] == 2:
            frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "value": size})
            return named(frame, run_rows.input_name(run, 0), run_rows.input_name(run, 1), map=True)
        if X is not None and X.shape[1] == 1:
            x, xlabel = X[:, 0], run_rows.input_name(run, 0)
        else:
            x, xlabel = np.argsort(np.argsort(-size)).astype(float), "rows, the largest gradient first"
        return named(pd.DataFrame({"x": x, "y": size, "value": size}), xlabel, "log10 |gradient|")

    def plot(self, layers: Layers) -> hv.Overlay:
        """Dots coloured by size; rings around the rows that changed."""
        rows = hv.Points(layers["rows"], ["x", "y"], "value", label="rows")
        rings = {"fill_alpha": 0.0, "line_color": ROLES["inducing"], "line_width": 1.5, "size": 10}
        parts = [
            layer(rows, "rows", color="value", cmap=SEQUENTIAL, size=5, colorbar=True, clabel="log10 |gradient|"),
            dots(layers, "active", "changed by this iteration", **rings),
        ]
        return overlay(parts, layers["rows"])


class Gains(View):
    """Promised decrease of f against the position in the block: from which position on do rows hardly pay?"""

    key: ClassVar[str] = "gbcd-gains"
    title: ClassVar[str] = "What each row of the block promised"
    help: ClassVar[str] = (
        "If the curve drops steeply, a smaller block would do. If it stays flat, a larger block would pay."
    )
    order: ClassVar[int] = 50
    needs: ClassVar[type] = ReportsGains

    def data(self, run: Run, at: int) -> Layers:
        """log10 of the promised decreases, by position in the block."""
        method = run.method
        assert isinstance(method, ReportsGains)
        gains = method.promised_gains(run.trace[at].step.info).cpu().double().numpy()
        rows = points(np.arange(1, len(gains) + 1), gains, log10=True)
        title = f"sum if each row moved alone: {gains.sum():.2g}" if len(gains) else "no block yet"
        return {"rows": named(rows, "position in the block", "log10 decrease of f, row alone", title)}

    def plot(self, layers: Layers) -> hv.Scatter:
        """One dot per row."""
        style = {"responsive": True, "show_grid": True, **labels(layers["rows"])}
        return dots(layers, "rows", color=ROLES["mean"], size=4).opts(**style)


class Correlation(View):
    """Figure 1 of Bo and Sminchisescu (2008), at any record of a run."""

    key: ClassVar[str] = "gbcd-correlation"
    title: ClassVar[str] = "Gradients of neighbours"
    help: ClassVar[str] = (
        "If most pairs of neighbours lie on the right, their gradients rise and fall together, and a block of "
        "neighbours holds the same information several times."
    )
    order: ClassVar[int] = 60
    needs: ClassVar[type] = HasGradient

    window = param.Integer(50, bounds=(2, 500), softbounds=(5, 100), doc="Number of iterations to look back.")
    neighbours = param.Integer(50, bounds=(1, 500), softbounds=(5, 100), doc="Number of nearest rows per row.")

    def data(self, run: Run, at: int) -> Layers:
        """Share of the coefficients in each of forty intervals."""
        method = run.method
        assert isinstance(method, HasGradient)
        states = [record.step.state for record in run.trace[max(0, at - self.window + 1) : at + 1]]
        result = method.gradient_correlations(run.problem, states, CENTRES, self.neighbours)
        title = "no iterations to compare yet"
        if len(result.near):
            title = f"median of neighbours {float(result.near.median()):.2f}, over {result.iterations} iterations"
        near = named(_shares(result.near), "correlation of gradients", "share of pairs", title)
        return {"far": _shares(result.far), "near": near}

    def plot(self, layers: Layers) -> hv.Overlay:
        """Two histograms as steps; that of the neighbours is filled."""
        near = hv.Area(layers["near"], "x", "y", label="neighbours")
        parts = [
            layer(near, "near", color=ROLES["mean"], fill_alpha=0.45, line_color=ROLES["mean"]),
            line(layers, "far", "any two rows", color=ROLES["reference"], line_width=2),
        ]
        return overlay(parts, layers["near"])


def _shares(values: torch.Tensor) -> pd.DataFrame:
    """The outline of a histogram whose heights add up to one, two corners per interval."""
    counts = np.histogram(values.cpu().numpy(), BINS)[0]
    return pd.DataFrame({"x": np.repeat(BINS, 2)[1:-1], "y": np.repeat(counts / max(len(values), 1), 2)})
