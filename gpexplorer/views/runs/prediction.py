"""Data and prediction: a curve with bands for one input, a map for two, predicted against observed targets for more."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch

from ...data.sets.generators import truth
from ...errors import PosteriorError
from ...methods.capabilities import HasBandsOfSomeRows, LimitedToGrid
from ...posteriors import Marginals, Posterior, in_units, joint_band
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.brushing import nearest_points
from ..drawing.palette import ROLES, SEQUENTIAL

CURVE_POINTS, MAP_SIDE, MAX_TEST_ROWS = 240, 48, 400  # grid points in 1-D, per side in 2-D; test rows with more inputs
BAND_LEVELS = torch.special.ndtr(torch.tensor([-2.0, 2.0], dtype=torch.float64))  # probabilities of mean -+ 2 sd


class Fit(View):
    """The prediction at one step of a run, together with the data."""

    key: ClassVar[str] = "fit"
    title: ClassVar[str] = "Data and prediction"
    help: ClassVar[str] = "Where is the band wide, and how many rows are there?"
    order: ClassVar[int] = 0
    editable: ClassVar[bool] = True

    show = param.Selector(
        default="mean", objects=["mean", "sd"], label="Colour (2-D)", doc="The quantity that is shown by colour."
    )

    paths = param.Integer(
        0,
        bounds=(0, 10),
        label="Sample paths (1-D)",
        doc="Number of functions drawn from the posterior, from the same random numbers at every step.",
    )

    band = param.Selector(
        default="none",
        objects=["none", "joint", "some rows"],
        label="Second band (1-D)",
        doc="joint: a band that contains a whole function with a probability of 95 %. some rows: the band of f of an "
        "exact GP whose variances use a quarter of the rows.",
    )

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._grid_notes: WeakKeyDictionary[Run, dict[str, str]] = WeakKeyDictionary()

    def data(self, run: Run, at: int) -> Layers:
        """Return the layers for data with one, two or more inputs.

        Bands lie between the quantiles that are the mean ± 2 standard deviations of a normal distribution.
        """
        d = run.problem.train.d if run_rows.numeric(run) else 0
        draw = (
            partial(_curve, paths=self.paths, band=self.band) if d == 1 else _map if d == 2 else _predicted_and_observed
        )
        layers = draw(run, at)
        if d != 2 and run not in self._grid_notes:
            self._grid_notes[run] = _rows_outside_grid(run, run_rows.SHOWN if d == 1 else MAX_TEST_ROWS)
        if d != 2:
            layers["mean" if d == 1 else "points"].attrs |= self._grid_notes[run]
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the picture that belongs to these layers."""
        draw = _plot_curve if "mean" in layers else self._plot_map if "map" in layers else _plot_predicted_and_observed
        return draw(layers)

    def _plot_map(self, layers: Layers) -> hv.Overlay:
        frame = layers["map"].assign(value=layers["map"][self.show])
        layers["map"]["value"] = frame["value"]
        side = len(np.unique(frame["x"]))
        grid = frame.sort_values(["y", "x"])["value"].to_numpy().reshape(-1, side)
        image = hv.Image((np.unique(frame["x"]), np.unique(frame["y"]), grid), ["x", "y"], "value")
        return hv.Overlay([
            layer(image, "map", cmap=SEQUENTIAL, colorbar=True, clabel=self.show, **labels(layers["map"])),
            _points(layers, "train", "o", 3, "white", alpha=0.55, label="training"),
            _points(layers, "inducing", "diamond", 11, ROLES["inducing"], label="inducing", line_color="white"),
        ]).opts(responsive=True, show_grid=True, show_legend=False)  # fmt: skip


def _curve(run: Run, at: int, paths: int, band: str) -> Layers:
    train, state = run.problem.train, run.trace[at].step.state
    x, y = run_rows.inputs_of(train)[:, 0], run_rows.targets_of(train)
    span = float(x.max() - x.min()) or 1.0
    grid = np.linspace(x.min() - 0.06 * span, x.max() + 0.06 * span, CURVE_POINTS)
    posterior, X = run.posterior(at), torch.from_numpy(grid)[:, None]
    of_f = posterior.marginals(X, noise=False)
    mean = of_f.moments[0].cpu().numpy()
    bands = {}
    for of, marginals in (("y", posterior.observed(of_f)), ("f", of_f)):
        lower, upper = _band(marginals)
        bands[f"band_{of}"] = pd.DataFrame({"x": grid, "lower": lower, "upper": upper})
        bands[f"band_{of}"].attrs["label"] = f"{_band_name(run)} of {of}"
    chosen = run_rows.sampled(len(x)).numpy()
    marker_height = float(y.min() - 0.12 * (y.max() - y.min()))
    layers = bands | {
        "mean": pd.DataFrame({"x": grid, "y": mean}),
        "train": pd.DataFrame(
            {"x": x[chosen], "y": y[chosen]} | _hover_columns(run, state, chosen, np.interp(x[chosen], grid, mean))
        ),
        "test": _test(run),
        **{name: _at_height(x[row], marker_height) for name, row in _swapped(run.trace[at].step.info).items()},
    }
    if paths:
        layers["paths"] = _sample_paths(posterior, grid, paths)
    if band != "none":
        layers["second"] = _second_band(run, at, grid, band)
    if hasattr(state, "inducing") or hasattr(state, "Z"):
        layers["inducing"] = _at_height(run_rows.inducing_inputs(run, state)[:, 0], marker_height)
    true_function = truth(run.spec.data) if run.spec is not None else None
    if true_function is not None:
        layers["truth"] = pd.DataFrame({"x": grid, "y": true_function(torch.from_numpy(grid)[:, None]).numpy()})
    layers["mean"].attrs |= {"xlabel": run_rows.input_name(run, 0), "ylabel": train.target}
    return layers


def _band(marginals: Marginals) -> tuple[np.ndarray, np.ndarray]:
    """The ends [t] of the band of each row: mean ± 2 sd of a normal distribution, and the same quantiles of another."""
    lower, upper = marginals.quantile(BAND_LEVELS).cpu().numpy()
    return lower, upper


def _band_name(run: Run) -> str:
    """What `_band` is called in legends."""
    return "95 %" if run_rows.transforms_target(run) else "± 2 sd"


def _sample_paths(posterior: Posterior, grid: np.ndarray, count: int) -> pd.DataFrame:
    """Functions drawn from the posterior, one after another with gaps; no rows for posteriors without functions."""
    try:
        values = posterior.paths(count)(torch.from_numpy(grid)[:, None]).cpu().numpy()
    except PosteriorError:
        values = np.empty((0, len(grid)))
    return _lines(grid, values)


def _second_band(run: Run, at: int, grid: np.ndarray, band: str) -> pd.DataFrame:
    """The lower and the upper line of a band, its name in `attrs`; no rows where the run has no such band."""
    X, ends = torch.from_numpy(grid)[:, None], np.empty((0, len(grid)))
    try:
        if band == "joint":
            ends = np.array([end.cpu().numpy() for end in joint_band(run.posterior(at), X)[:2]])
        elif isinstance(run.method, HasBandsOfSomeRows):
            inner, _ = run.method.posterior_of_some_rows(run.problem, run.trace[at].step.state)
            ends = np.array(_band(in_units(inner, run.problem).marginals(X, noise=False)))
    except PosteriorError:
        pass  # a posterior of means and variances has no joint distribution
    frame = _lines(grid, ends)
    frame.attrs["label"] = "95 % of functions" if band == "joint" else f"{_band_name(run)} of f, some rows"
    return frame


def _lines(grid: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    """Functions [k, t] on one grid [t] as one line with gaps."""
    gap = np.full((len(values), 1), np.nan)
    x = np.hstack([np.tile(grid, (len(values), 1)), gap]).ravel()
    frame = pd.DataFrame({"x": x, "y": np.hstack([values, gap]).ravel()})
    frame.attrs["loose"] = True  # a path may leave the bands
    return frame


def _hover_columns(run: Run, state: Any, chosen: np.ndarray, predicted: np.ndarray) -> dict[str, np.ndarray]:
    """The text shown for a training row under the pointer: target, prediction, residual and nearest inducing point.

    An inducing point is named by its row, or by its position in the list if it is not a row.
    """
    train, points, rows = run.problem.train, run_rows.inducing_inputs(run, state), run_rows.inducing_rows(state)
    names = np.arange(1, len(points) + 1) if rows is None else rows.cpu().numpy()
    observed = run_rows.targets_of(train)[chosen]
    columns = {"row": chosen, "observed": observed, "predicted": predicted, "residual": observed - predicted}
    return columns | nearest_points(run_rows.inputs_of(train)[chosen], points, names)


def _map(run: Run, at: int) -> Layers:
    train, state = run.problem.train, run.trace[at].step.state
    X = run_rows.inputs_of(train)
    sides = [np.linspace(*_padded(X[:, q]), MAP_SIDE) for q in (0, 1)]
    x, y = (g.ravel() for g in np.meshgrid(*sides))
    chosen, inducing = run_rows.sampled(len(X)).numpy(), run_rows.inducing_inputs(run, state)
    prediction = run.posterior(at)(torch.from_numpy(np.vstack([np.column_stack([x, y]), X[chosen]])))
    mean, sd = prediction.mean.cpu().numpy(), prediction.var.sqrt().cpu().numpy()
    grid = {"x": x, "y": y, "mean": mean[: len(x)], "sd": sd[: len(x)]}
    hover = _hover_columns(run, state, chosen, mean[len(x) :])
    layers = {
        "map": pd.DataFrame(grid | {"value": grid["mean"]}),
        "train": pd.DataFrame({"x": X[chosen, 0], "y": X[chosen, 1]} | hover),
        "inducing": pd.DataFrame({"x": inducing[:, 0], "y": inducing[:, 1]}),
    }
    layers["map"].attrs |= {"map": True, "xlabel": run_rows.input_name(run, 0), "ylabel": run_rows.input_name(run, 1)}
    return layers


def _predicted_and_observed(run: Run, at: int) -> Layers:
    split = run.split
    data = split.test if split is not None and len(split.test) else run.problem.train
    chosen = run_rows.sampled(len(data), MAX_TEST_ROWS)
    part = data.rows(chosen.to(data.y.device))
    marginals, observed = run.posterior(at, of="y").marginals_at_scaled(part.X), run_rows.targets_of(part)
    frame = pd.DataFrame({"x": observed, "y": marginals.moments[0].cpu().numpy()})
    ends = [float(observed.min()), float(observed.max())]
    predicted = "predicted mean and" if run_rows.transforms_target(run) else "predicted"
    frame.attrs |= {
        "xlabel": f"{data.target}, observed on test rows" if data is not run.problem.train else data.target,
        "ylabel": f"{data.target}, {predicted} {_band_name(run)} of y",
    }
    # The axes follow the points; the bars may extend beyond them.
    lower, upper = _band(marginals)
    bars = pd.DataFrame({"x0": observed, "y0": lower, "x1": observed, "y1": upper})
    bars.attrs |= {"loose": True, "label": f"{_band_name(run)} of y"}
    return {"bars": bars, "equal": pd.DataFrame({"x": ends, "y": ends}), "points": frame}


def _rows_outside_grid(run: Run, max_rows: int) -> dict[str, str]:
    """A title that says how many of the test rows lie outside the method's grid, for methods with a grid. O(n d)."""
    if not isinstance(run.method, LimitedToGrid) or run.split is None or not len(run.split.test):
        return {}
    test = run.split.test
    X = test.X[run_rows.sampled(len(test), max_rows).to(test.y.device)]
    count = int(run.method.is_outside(run.problem, X).sum())
    return (
        {"title": f"{count} of {len(X)} test rows lie outside the grid, where the prior is returned"} if count else {}
    )


def _plot_curve(layers: Layers) -> hv.Overlay:
    def band(name: str, alpha: float) -> hv.Element:
        area = hv.Area(layers[name], "x", ["lower", "upper"], label=layers[name].attrs["label"])
        return layer(area, name, color=ROLES["band"], alpha=alpha, line_alpha=0)

    def line(name: str, label: str, **style: Any) -> hv.Element:
        return layer(hv.Curve(layers[name], "x", "y", label=label), name, **style)

    parts = [
        band("band_y", 0.22),
        band("band_f", 0.45),
        _points(layers, "train", "o", 4, ROLES["data"], alpha=0.8, label="training"),
        _points(layers, "test", "x", 6, ROLES["test"], label="test"),
        line("mean", "mean", color=ROLES["mean"], line_width=2.5),
    ]
    if "paths" in layers:
        parts.append(line("paths", "samples", color=ROLES["mean"], line_width=1.0, alpha=0.6))
    if "second" in layers:
        parts.append(
            line(
                "second", layers["second"].attrs["label"], color=ROLES["reference"], line_width=1.5, line_dash="dotted"
            )
        )
    if "truth" in layers:
        parts.append(line("truth", "truth", color=ROLES["truth"], line_dash="dashed", line_width=1.5))
    marks = {
        "inducing": ("triangle", 11, "inducing"),
        "removed": ("inverted_triangle", 13, "removed"),
        "proposed": ("star", 14, "proposed"),
    }
    parts += [
        _points(layers, name, marker, size, ROLES[name], label=label)
        for name, (marker, size, label) in marks.items()
        if name in layers
    ]
    return hv.Overlay(parts).opts(**_LEGEND, **labels(layers["mean"]))


def _plot_predicted_and_observed(layers: Layers) -> hv.Overlay:
    bars = hv.Segments(layers["bars"], ["x0", "y0", "x1", "y1"], label=layers["bars"].attrs["label"])
    equal = hv.Curve(layers["equal"], "x", "y", label="predicted = observed")
    return hv.Overlay([
        layer(bars, "bars", color=ROLES["band"], alpha=0.5),
        layer(equal, "equal", color=ROLES["reference"], line_dash="dashed"),
        _points(layers, "points", "o", 5, ROLES["mean"], alpha=0.75, label="test rows"),
    ]).opts(**{**_LEGEND, "legend_cols": 2}, **labels(layers["points"]))  # fmt: skip


def _points(layers: Layers, name: str, marker: str, size: int, color: str, label: str, **style: Any) -> hv.Element:
    points = hv.Scatter(layers[name], "x", "y", label=label)
    return layer(points, name, marker=marker, size=size, color=color, **style)


def _at_height(x: np.ndarray, height: float) -> pd.DataFrame:
    return pd.DataFrame({"x": x, "y": np.full(len(x), height)})


def _swapped(info: Any) -> dict[str, np.ndarray]:
    """The rows that the last step removed and proposed, for methods that report them."""
    return {
        name: np.array([r] if (r := getattr(info, name, -1)) >= 0 else [], dtype=int)
        for name in ("removed", "proposed")
        if hasattr(info, name)
    }


def _test(run: Run) -> pd.DataFrame:
    if run.split is None or not len(run.split.test):
        return pd.DataFrame({"x": [], "y": []}, dtype=float)
    chosen = run_rows.sampled(len(run.split.test)).numpy()
    x, y = run_rows.inputs_of(run.split.test)[chosen, 0], run_rows.targets_of(run.split.test)[chosen]
    return pd.DataFrame({"x": x, "y": y})


def _padded(column: np.ndarray) -> tuple[float, float]:
    low, high = float(column.min()), float(column.max())
    margin = 0.04 * (high - low) or 1.0
    return low - margin, high + margin


_LEGEND = {
    "legend_position": "top",
    "legend_cols": 4,
    "responsive": True,
    "show_grid": True,
    "legend_opts": {"click_policy": "hide", "padding": 0, "spacing": 8, "margin": 2, "glyph_width": 16},
}
