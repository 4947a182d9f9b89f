"""Data and prediction: a curve with bands for one input, a map for two, predicted against observed targets for more."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch

from ...data.sets.generators import truth
from ...errors import PosteriorError
from ...kernels.row_scaled import plain_rows
from ...methods.capabilities import HasBandsOfSomeRows, HasInducingPoints, HasSwapLandscape, LimitedToGrid
from ...posteriors import Marginals, Posterior, in_units, joint_band
from ...posteriors.table_posterior import marginals_of_part
from ...runs.run import Run
from ..base import Layers, View, band, dots, image, labels, line, named, on_plane, overlay, segments
from ..drawing import run_rows
from ..drawing.brushing import nearest_points
from ..drawing.palette import ROLES

CURVE_POINTS, MAP_SIDE = 240, 48  # grid points along the range of the training rows, and per side in 2-D
MAX_TEST_ROWS = 400  # with more than two inputs
BEYOND = 1.0  # in ranges of the training rows: the farthest that test rows on either side widen a curve
AROUND = 0.25  # of the range of the targets that stays free above and below them
LEGEND = {"click_policy": "hide", "padding": 0, "spacing": 8, "margin": 2, "glyph_width": 16}
SECOND_BAND = (
    "joint: a band that contains a whole function with a probability of 95 %. some rows: the band of f of an exact GP "
    "whose variances use a quarter of the rows."
)
PATHS = "Number of functions drawn from the posterior, from the same random numbers at every step."
BAND_LEVELS = torch.special.ndtr(torch.tensor([-2.0, 2.0], dtype=torch.float64))  # probabilities of mean -+ 2 sd


class Fit(View):
    """The prediction at one step of a run, together with the data."""

    key: ClassVar[str] = "fit"
    title: ClassVar[str] = "Data and prediction"
    help: ClassVar[str] = "Does the prediction follow the rows, and what does it say where there are few?"
    order: ClassVar[int] = 0
    editable: ClassVar[bool] = True

    show = param.Selector(
        default="mean", objects=["mean", "sd"], label="Colour (2-D)", doc="The quantity that is shown by colour."
    )
    paths = param.Integer(0, bounds=(0, 10), label="Sample paths (1-D)", doc=PATHS)
    band = param.Selector(
        default="none", objects=["none", "joint", "some rows"], label="Second band (1-D)", doc=SECOND_BAND
    )

    def data(self, run: Run, at: int) -> Layers:
        """Return the layers for data with one, two or more inputs.

        Bands lie between the quantiles that are the mean ± 2 standard deviations of a normal distribution.
        """
        d = run.problem.train.d if run_rows.numeric(run) else 0
        if d == 2:
            layers, main = _map(run, at, self.show), "map"
        elif d == 1:
            layers, main = _curve(run, at, self.paths, self.band), "mean"
        else:
            layers, main = _predicted_and_observed(run, at), "points"
        if run not in self.computed:
            self.computed[run] = _rows_outside_grid(run, run_rows.SHOWN if d == 1 else MAX_TEST_ROWS) if d != 2 else {}
        attrs, fewer = layers[main].attrs | self.computed[run], _fewer_points(run, at)
        if fewer:
            attrs["title"] = f"{attrs['title']}; {fewer}" if attrs.get("title") else fewer
        layers[main].attrs = attrs
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the picture that belongs to these layers."""
        if "map" in layers:
            return _plot_map(layers, self.show)
        return _plot_curve(layers) if "mean" in layers else _plot_predicted_and_observed(layers)


def _curve(run: Run, at: int, paths: int, second: str) -> Layers:
    train, state = run.problem.train, run.trace[at].step.state
    x, y = run_rows.inputs_of(train)[:, 0], run_rows.targets_of(train)
    test, grid = _test(run), _grid(x, run)
    posterior, X = run.posterior(at), torch.from_numpy(grid)[:, None]
    of_f = posterior.marginals(X, noise=False)
    mean = of_f.moments[0].cpu().numpy()
    bands = {}
    for of, marginals in (("y", posterior.observed(of_f)), ("f", of_f)):
        lower, upper = _band(marginals)
        bands[f"band_{of}"] = pd.DataFrame({"x": grid, "lower": lower, "upper": upper})
        bands[f"band_{of}"].attrs["label"] = f"{_band_name(run)} of y and f"
    chosen = run_rows.sampled(len(x)).numpy()
    marker_height = float(y.min() - 0.12 * (y.max() - y.min()))
    layers = bands | {
        "mean": pd.DataFrame({"x": grid, "y": mean}),
        "train": pd.DataFrame(
            {"x": x[chosen], "y": y[chosen]} | _hover_columns(run, state, chosen, np.interp(x[chosen], grid, mean))
        ),
        "test": test,
        **{name: _at_height(x[row], marker_height) for name, row in _swapped(run.trace[at].step.info).items()},
    }
    if paths:
        layers["paths"] = _sample_paths(posterior, grid, paths)
    if second != "none":
        layers["second"] = _second_band(run, at, grid, second)
    if hasattr(state, "inducing") or hasattr(state, "Z"):
        layers["inducing"] = _at_height(run_rows.inducing_inputs(run, state)[:, 0], marker_height)
    true_function = truth(run.spec.data) if run.spec is not None else None
    if true_function is not None:
        layers["truth"] = pd.DataFrame({"x": grid, "y": true_function(torch.from_numpy(grid)[:, None]).numpy()})
    # Rows and mean decide the axis, so that it is the same at all steps and for all methods; bands may leave it.
    room, shown = AROUND * float(np.ptp(y) or 1.0), test["y"][test["x"].between(grid[0], grid[-1])]
    extent = (min(y.min() - room, mean.min(), *shown), max(y.max() + room, mean.max(), *shown))
    title = _swap_in_words(run.trace[at].step.info) if "removed" in layers else None
    layers["train"].attrs["target"] = train.target
    named(layers["mean"], run_rows.input_name(run, 0), train.target, title, extent=extent)
    return layers


def _grid(x: np.ndarray, run: Run) -> np.ndarray:
    """Where a curve is drawn: over the training rows x [n], and as far beyond as test rows go, up to `BEYOND`."""
    low, high, span = x.min(), x.max(), float(np.ptp(x)) or 1.0
    if run.split is not None and len(run.split.test):
        of_test = run_rows.inputs_of(run.split.test)[:, 0]
        low = min(low, max(of_test.min(), low - BEYOND * span))
        high = max(high, min(of_test.max(), high + BEYOND * span))
    low, high = low - 0.06 * span, high + 0.06 * span
    return np.linspace(low, high, round(CURVE_POINTS * (high - low) / (1.12 * span)))


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


def _second_band(run: Run, at: int, grid: np.ndarray, kind: str) -> pd.DataFrame:
    """The lower and the upper line of a band, its name in `attrs`; no rows where the run has no such band."""
    X, ends = torch.from_numpy(grid)[:, None], np.empty((0, len(grid)))
    try:
        if kind == "joint":
            ends = np.array([end.cpu().numpy() for end in joint_band(run.posterior(at), X)[:2]])
        elif isinstance(run.method, HasBandsOfSomeRows):
            inner, _ = run.method.posterior_of_some_rows(run.problem, run.trace[at].step.state)
            ends = np.array(_band(in_units(inner, run.problem).marginals(X, noise=False)))
    except PosteriorError:
        pass  # a posterior of means and variances has no joint distribution
    frame = _lines(grid, ends)
    frame.attrs["label"] = "95 % of functions" if kind == "joint" else f"{_band_name(run)} of f, some rows"
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


def _map(run: Run, at: int, show: str) -> Layers:
    train, state = run.problem.train, run.trace[at].step.state
    X = run_rows.inputs_of(train)
    sides = [np.linspace(*_padded(X[:, q]), MAP_SIDE) for q in (0, 1)]
    x, y = (g.ravel() for g in np.meshgrid(*sides))
    chosen, inducing = run_rows.sampled(len(X)).numpy(), run_rows.inducing_inputs(run, state)
    prediction = run.posterior(at)(torch.from_numpy(np.vstack([np.column_stack([x, y]), X[chosen]])))
    mean, sd = prediction.mean.cpu().numpy(), prediction.var.sqrt().cpu().numpy()
    grid = {"x": x, "y": y, "mean": mean[: len(x)], "sd": sd[: len(x)]}
    hover = _hover_columns(run, state, chosen, mean[len(x) :])
    y = run_rows.targets_of(train)  # one scale for all steps and methods: a flat surface has one colour
    low, high = np.quantile(y, [0.01, 0.99]) if show == "mean" else (0.0, y.std())
    colours = (float(low), float(high if low < high else low + 1.0))
    names = (run_rows.input_name(run, q) for q in (0, 1))
    rows = pd.DataFrame({"x": X[chosen, 0], "y": X[chosen, 1]} | hover)
    rows.attrs["target"] = train.target
    return {
        "map": named(pd.DataFrame(grid | {"value": grid[show]}), *names, map=True, colours=colours),
        "train": rows,
        "inducing": on_plane(inducing),
    }


def _predicted_and_observed(run: Run, at: int) -> Layers:
    split = run.split
    train = plain_rows(run.problem)
    data = split.test if split is not None and len(split.test) else train
    chosen = run_rows.sampled(len(data), MAX_TEST_ROWS)
    part = data.rows(chosen.to(data.y.device))
    marginals = marginals_of_part(run.posterior(at, of="y"), part)
    observed = run_rows.targets_of(part)
    ends = [float(observed.min()), float(observed.max())]
    predicted = "predicted mean and" if run_rows.transforms_target(run) else "predicted"
    xlabel = f"{data.target}, observed on test rows" if data is not train else data.target
    ylabel = f"{data.target}, {predicted} {_band_name(run)} of y"
    frame = pd.DataFrame({"x": observed, "y": marginals.moments[0].cpu().numpy()})
    named(frame, xlabel, ylabel, label="training rows" if data is train else "test rows")
    lower, upper = _band(marginals)
    # Axes hold the points and the middle one of all ends of bars; some bars may extend beyond, but not most of them.
    frame.attrs["at_least"] = (float(np.median(lower)), float(np.median(upper)))
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
    title = f"{count} of {len(X):,} test rows lie outside the grid, where predictions go over to the prior"
    return {"title": title} if count else {}


def _fewer_points(run: Run, at: int) -> str:
    """What a title says where swaps have fewer inducing points than were asked for: the kernel tells no more apart."""
    state, method = run.trace[at].step.state, run.method
    if not isinstance(method, HasSwapLandscape) or not isinstance(method, HasInducingPoints):
        return ""
    used, asked = len(run_rows.inducing_inputs(run, state)), method.num_points(len(run.problem.train))
    if not 0 < used < asked:
        return ""
    return f"{used:,} inducing points, not {asked:,}: other rows differ from them by rounding only"


def _plot_curve(layers: Layers) -> hv.Overlay:
    names = {name: frame.attrs.get("label", "") for name, frame in layers.items()}
    bands = {"band_y": 0.18, "band_f": 0.3}  # faint: the mean is what one looks at
    lines = {  # in the order of drawing
        "mean": {"label": "mean", "color": ROLES["mean"], "line_width": 2.5},
        "paths": {"label": "samples", "color": ROLES["mean"], "line_width": 1.0, "alpha": 0.6},
        "second": {"label": names.get("second"), "color": ROLES["reference"], "line_width": 1.5, "line_dash": "dotted"},
        "truth": {"label": "truth", "color": ROLES["truth"], "line_dash": "dashed", "line_width": 1.5},
    }
    marks = {  # the caption explains the two marks of a swap
        "inducing": {"label": "inducing", "marker": "triangle", "size": 11},
        "removed": {"marker": "inverted_triangle", "size": 13},
        "proposed": {"marker": "star", "size": 14},
    }
    parts = [
        *(band(layers, k, names[k], color=ROLES["band"], alpha=alpha, line_alpha=0) for k, alpha in bands.items()),
        dots(layers, "train", "training", marker="o", size=4, color=ROLES["data"], alpha=0.8),
        dots(layers, "test", "test", marker="x", size=6, color=ROLES["test"]),
        *(line(layers, name, **style) for name, style in lines.items() if name in layers),
        *(dots(layers, name, color=ROLES[name], **style) for name, style in marks.items() if name in layers),
    ]
    return overlay(parts, layers["mean"], 4, legend_opts=LEGEND)


def _plot_map(layers: Layers, show: str) -> hv.Overlay:
    diamonds = {"marker": "diamond", "size": 11, "color": ROLES["inducing"], "line_color": "white"}
    parts = [
        image(layers, "map", clabel=show, **labels(layers["map"])),
        dots(layers, "train", "training", marker="o", size=3, color="white", alpha=0.55),
        dots(layers, "inducing", "inducing", **diamonds),
    ]
    return overlay(parts, layers["map"], 0)


def _plot_predicted_and_observed(layers: Layers) -> hv.Overlay:
    parts = [
        segments(layers, "bars", layers["bars"].attrs["label"], color=ROLES["band"], alpha=0.5),
        line(layers, "equal", "predicted = observed", color=ROLES["reference"], line_dash="dashed"),
        dots(layers, "points", layers["points"].attrs["label"], marker="o", size=5, color=ROLES["mean"], alpha=0.75),
    ]
    return overlay(parts, layers["points"], legend_opts=LEGEND)


def _at_height(x: np.ndarray, height: float) -> pd.DataFrame:
    return pd.DataFrame({"x": x, "y": np.full(len(x), height)})


def _swapped(info: Any) -> dict[str, np.ndarray]:
    """The rows that the last step removed and proposed, for methods that report them."""
    return {
        name: np.array([r] if (r := getattr(info, name, -1)) >= 0 else [], dtype=int)
        for name in ("removed", "proposed")
        if hasattr(info, name)
    }


def _swap_in_words(info: Any) -> str:
    """The marks of the rows that the last step removed and proposed, and what became of it; empty without a swap."""
    if min(info.removed, info.proposed) < 0:
        return ""
    return "★ has replaced ▼" if info.accepted else "★ was tried in place of ▼, and rejected"


def _test(run: Run) -> pd.DataFrame:
    if run.split is None or not len(run.split.test):
        return on_plane([])
    chosen = run_rows.sampled(len(run.split.test)).numpy()
    x, y = run_rows.inputs_of(run.split.test)[chosen, 0], run_rows.targets_of(run.split.test)[chosen]
    return pd.DataFrame({"x": x, "y": y})


def _padded(column: np.ndarray) -> tuple[float, float]:
    low, high = float(column.min()), float(column.max())
    margin = 0.04 * (high - low) or 1.0
    return low - margin, high + margin
