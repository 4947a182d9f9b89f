"""The tooltip of a row: its numbers belong to that row, also after the picture was updated."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from bokeh.models import ColumnDataSource, HoverTool
from bokeh.plotting import figure

from gpexplorer import Spec, views
from gpexplorer.views.drawing import run_rows
from gpexplorer.views.drawing.brushing import brush, nearest_points
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.drawing.palette import ROLES


@pytest.mark.parametrize(("method", "data"), [("cholqr", "snelson-like"), ("sgpr", "sin-product")])
def test_the_tooltip_shows_the_row_its_prediction_and_the_nearest_inducing_point(method: str, data: str):
    run = Spec(method, {"num_inducing": 5}, data, kernel="se").open()
    for _ in range(3):
        run.advance()
    view = views.for_run(run)[0]

    live = Live(view, view.data(run, 0))
    live.update(view.data(run, 2))

    [source] = [s for s in live.figure.select({"type": ColumnDataSource}) if s.name == "train"]
    columns, train = source.data, run.split.train
    X = train.X.numpy() * train.scale.x_sd.numpy() + train.scale.x_mean.numpy()
    near = run_rows.inducing_inputs(run, run.trace[2].step.state)
    d = X.shape[1]
    far = np.sqrt(np.square((X[:, None] - near[None]) / (1.0 if d == 1 else np.ptp(X, axis=0))).sum(-1))
    assert columns["row"].tolist() == list(range(len(train)))
    assert columns["away" if d == 1 else "apart"] == pytest.approx(far.min(1), rel=0.05)
    y = train.y.numpy() * train.scale.y_sd + train.scale.y_mean
    mean = run.posterior(2)(np.asarray(X)).mean.numpy()
    assert columns["observed"] == pytest.approx(y, abs=np.ptp(y) / 2**16)  # long columns are rounded when sent
    assert columns["predicted"] == pytest.approx(mean, abs=0.02)
    assert columns["residual"] == pytest.approx(y - mean, abs=0.02)
    [tool] = [t for t in live.figure.select({"type": HoverTool}) if t.renderers[0].data_source is source]
    assert (train.target, "@observed{%.5g}") in tool.tooltips
    assert not tool.visible


@pytest.mark.parametrize(
    ("data", "show"), [("snelson-like", "over the data"), ("sin-product", "over the data"), ("sin-product", "ranks")]
)
def test_the_tooltip_of_a_swap_shows_both_decreases(data: str, show: str):
    run = Spec("cholqr", {"num_inducing": 5}, data, kernel="se").open()
    run.finish(steps=2)
    [view] = [view for view in views.for_run(run) if view.key == "landscape"]
    view.show = show

    live = Live(view, view.data(run, 1))
    live.update(layers := view.data(run, 2))

    for name in ("exact", "pivots"):
        [source] = [s for s in live.figure.select({"type": ColumnDataSource}) if s.name == name]
        [tool] = [t for t in live.figure.select({"type": HoverTool}) if t.renderers[0].data_source is source]
        assert ("exact decrease [nat]", "@exact{%.5g}") in tool.tooltips
        assert ("predicted decrease [nat]", "@approx{%.5g}") in tool.tooltips
        assert {tool.formatters[f"@{name}"] for name in ("exact", "approx")} == {"printf"}
        for column in ("exact", "approx"):  # long columns are rounded when sent
            values = layers[name][column].to_numpy()
            assert source.data[column] == pytest.approx(values, abs=np.ptp(values) / 2**15)


def test_only_marks_of_rows_have_a_tooltip_and_a_highlight():
    rows = pd.DataFrame({"x": [0.0, 1.0], "y": [2.0, 3.0], "row": [4, 7], "observed": [5.0, 6.0]})
    layers = {"rows": rows, "others": rows[["x", "y", "observed"]], "line": rows}
    picture = figure(tools="")
    for name in ("rows", "others", "of no layer"):
        picture.scatter("x", "y", source=ColumnDataSource({"x": [0.0, 1.0], "y": [2.0, 3.0]}, name=name))
    picture.line("x", "y", source=ColumnDataSource({"x": [0.0], "y": [2.0]}, name="line"))

    brush(picture, layers)

    [tool] = picture.select({"type": HoverTool})
    assert tool.renderers == picture.renderers[:1]
    assert [words for words, _ in tool.tooltips] == ["training row", "value"]
    assert not tool.visible
    highlighted = picture.renderers[0].hover_glyph
    assert [highlighted.fill_color, highlighted.fill_alpha] == [ROLES["proposed"], 1.0]
    assert [renderer.hover_glyph for renderer in picture.renderers[1:]] == [None, None, None]
    assert picture.renderers[0].data_source.data["row"].tolist() == [4, 7]


def test_the_nearest_point_and_its_distance_are_those_by_the_ranges_of_the_rows():
    X, points = np.array([[0.0, 0.0], [100.0, 1.0], [50.0, 0.5]]), np.array([[60.0, 0.0], [0.0, 1.0]])

    found = nearest_points(X, points, np.array([7, 9]))

    assert found["nearest"].tolist() == [7, 9, 7]  # in the units of the file, 9 is nearest to the first row
    assert found["apart"] == pytest.approx([0.6, 1.0, np.hypot(0.1, 0.5)])  # no distance adds two units
    assert nearest_points(X[:, :1], points[:, :1], np.array([7, 9]))["away"].tolist() == [0.0, 40.0, 10.0]
    level = nearest_points(X * [1.0, 0.0], points, np.array([7, 9]))  # an input without a range has that of one unit
    assert level["nearest"].tolist() == [7, 7, 7]
    assert nearest_points(X, points[:0], np.array([])) == {}
