"""A figure that is updated in place: what is sent, how its axes and colours follow the data, and what its theme is."""

from __future__ import annotations

import math
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import pytest
from bokeh.models import ColorBar, ColumnDataSource, LinearColorMapper, WheelZoomTool

from gpexplorer.views.base import Layers, band, dots, image, layer, line, overlay, segments
from gpexplorer.views.drawing import live, palette
from gpexplorer.views.drawing.live import Drawing, Live

hv.extension("bokeh")


def frame(attrs: dict[str, Any] | None = None, **columns: Any) -> pd.DataFrame:
    result = pd.DataFrame(columns)
    result.attrs |= {"xlabel": "x", "ylabel": "y"} | (attrs or {})
    return result


def drawn(layers: Layers, theme: str = "light", **options: Any) -> Live:
    """A figure of dots."""
    return Live(Drawing(lambda own: overlay([dots(own, "rows", "rows")], own["rows"], **options)), layers, theme)


def ends(figure: Any) -> list[float]:
    """The ends of both axes."""
    return [figure.x_range.start, figure.x_range.end, figure.y_range.start, figure.y_range.end]


def test_a_zoomed_axis_stays_until_it_is_reset_and_the_other_one_follows():
    own = drawn({"rows": frame(x=[0.0, 10.0], y=[0.0, 100.0])})
    assert ends(own.figure) == pytest.approx([-0.6, 10.6, -6.0, 106.0])
    assert own.figure.x_range.reset_start == pytest.approx(-0.6)
    assert own.figure.y_range.reset_end == pytest.approx(106.0)

    own.figure.x_range.update(start=2.0, end=3.0)  # somebody zooms
    own.update({"rows": frame(x=[0.0, 20.0], y=[0.0, 200.0])})
    assert ends(own.figure) == pytest.approx([2.0, 3.0, -12.0, 212.0])
    own.figure.x_range.update(start=-0.6, end=10.6)  # the reset button
    own.update({"rows": frame(x=[0.0, 20.0], y=[0.0, 150.0])})
    assert ends(own.figure) == pytest.approx([-1.2, 21.2, -12.0, 212.0])  # 150 fills enough of the axis


@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize(("height", "has_proportions"), [(2.6, True), (2.4, False), (39.0, True), (41.0, False)])
def test_both_axes_of_a_map_have_one_unit_unless_its_sides_differ_much(
    shift: float, height: float, has_proportions: bool
):
    rows = frame({"map": True}, x=[shift, shift + 10.0], y=[-shift, height - shift])

    own = drawn({"rows": rows})

    box = [shift - 0.6, shift + 10.6, -0.06 * height - shift, 1.06 * height - shift]
    assert ends(own.figure) == pytest.approx(box)
    assert own.figure.tags == (pytest.approx(box) if has_proportions else [])
    own.update({"rows": rows.assign(x=rows["x"] + 0.1)})
    assert ends(own.figure) == pytest.approx(box)
    own.update({"rows": rows.assign(x=rows["x"] + 1.0)})
    assert ends(own.figure)[:2] == pytest.approx([shift + 0.4, shift + 11.6])
    own.update({"rows": rows.assign(y=rows["y"] - height)})
    assert ends(own.figure)[2:] == pytest.approx([-1.06 * height - shift, 0.06 * height - shift])
    own.update({"rows": rows.iloc[:0]})
    assert ends(own.figure)[2:] == pytest.approx([-1.06 * height - shift, 0.06 * height - shift])


def test_an_empty_figure_has_axes_of_one_unit_or_one_decade():
    rows = frame(x=[], y=[]).astype(float)
    assert ends(drawn({"rows": rows}).figure) == [0.0, 1.0, 0.0, 1.0]
    assert ends(drawn({"rows": rows}, logx=True, logy=True).figure) == [1.0, 10.0, 1.0, 10.0]


def test_an_axis_with_numbers_keeps_its_ends_where_they_are_no_numbers():
    class Axis:
        start, end = 2.0, 5.0

    assert live._ends(Axis, False, False) == (2.0, 5.0)
    assert live._ends(Axis, False, True) == (0.0, 1.0)
    Axis.end = math.inf
    assert (live._ends(Axis, False, False), live._ends(Axis, True, False)) == ((0.0, 1.0), (1.0, 10.0))


def test_columns_are_the_same_where_no_entry_differs():
    values = np.array([1.0, math.nan])
    words = np.array(["a", "b"], object)
    assert live._same(values, values.copy())
    assert live._same([values, 3], [values.copy(), 3])
    assert live._same(words, words.copy())
    for other in (np.array([1.0, 2.0]), values[:1], values.astype(np.float32), [1.0, math.nan], None):
        assert not live._same(values, other)
    for other in ([values], [values, 4], [values, 3, 3], [values + 1.0, 3]):
        assert not live._same([values, 3], other)
    assert live._same("a", "a")
    assert not live._same("a", "b")


def test_long_columns_are_rounded_only_where_their_range_is_usual_and_no_axis_is_logarithmic():
    values = np.linspace(0.0, 1.0, 64)
    assert live.without_unseen_digits(1.5e-30 * values, 2.0**-14).dtype == np.float32
    assert live.without_unseen_digits(0.9e-30 * values, 2.0**-14).dtype == np.float64
    assert live.without_unseen_digits(0.9e30 * values, 2.0**-14).dtype == np.float32
    assert live.without_unseen_digits(1.5e30 * values, 2.0**-14).dtype == np.float64
    assert live.without_unseen_digits(np.full(64, math.nan), 2.0**-14).dtype == np.float64
    for log, kind in ((False, np.float32), (True, np.float64)):
        own = drawn({"rows": frame(x=values + 1.0, y=values + 1.0)}, logy=log)
        own.update({"rows": frame(x=values + 1.0, y=values + 1.5)})
        [source] = own.figure.select({"type": ColumnDataSource})
        assert source.data["y"].dtype == kind


def test_a_map_of_colours_follows_its_values_and_its_bar_lies_beside_it_or_below():
    x, y = (axis.ravel() for axis in np.meshgrid([0.0, 1.0, 2.0], [0.0, 1.0]))
    for is_map, place in ((True, "below"), (False, "right")):
        grid = frame({"map": is_map}, x=x, y=y, value=np.arange(6.0))
        own = Live(Drawing(lambda layers: overlay([image(layers, "grid")], layers["grid"])), {"grid": grid})
        [mapper] = own.figure.select({"type": LinearColorMapper})
        [bar] = own.figure.select({"type": ColorBar})
        assert (mapper.low, mapper.high) == pytest.approx((0.1, 5.0))
        own.update({"grid": grid.assign(value=10.0 * np.arange(6.0))})
        assert (mapper.low, mapper.high) == pytest.approx((1.0, 50.0))
        [source] = own.figure.select({"type": ColumnDataSource})
        assert source.data["image"][0].tolist() == [[0.0, 10.0, 20.0], [30.0, 40.0, 50.0]]
        own.update({"grid": grid.assign(value=math.nan)})
        assert (mapper.low, mapper.high) == pytest.approx((1.0, 50.0))
        assert bar in getattr(own.figure, place)
        assert (bar.orientation == "horizontal") == is_map
        own.set_theme("dark")
        assert bar.major_label_text_color == own.figure.title.text_color == "#dfe6ec"


def test_dots_that_are_coloured_by_a_number_follow_it():
    def picture(layers: Layers) -> hv.Overlay:
        points = hv.Points(layers["rows"], ["x", "y"], "value")
        return overlay([layer(points, "rows", color="value", cmap="Viridis")], layers["rows"])

    own = Live(Drawing(picture), {"rows": frame(x=[0.0, 1.0], y=[0.0, 1.0], value=[3.0, 4.0])})
    own.update({"rows": frame(x=[0.0, 1.0], y=[0.0, 1.0], value=[5.0, 7.0])})

    [source] = own.figure.select({"type": ColumnDataSource})
    assert source.data[own.figure.renderers[0].glyph.fill_color.field].tolist() == [5.0, 7.0]
    [mapper] = own.figure.select({"type": LinearColorMapper})
    assert (mapper.low, mapper.high) == pytest.approx((5.04, 7.0))


def test_bands_lines_and_segments_follow_their_columns_and_an_empty_layer_has_one_missing_row():
    def picture(layers: Layers) -> hv.Overlay:
        parts = [band(layers, "band", "band"), line(layers, "line", "line"), segments(layers, "bars", "bars")]
        return overlay(parts, layers["line"])

    def layers(y: float) -> Layers:
        x = [0.0, 1.0]
        ends_of = {"x0": x, "y0": [y, y], "x1": x, "y1": [y + 1.0, y + 2.0]}
        return {"band": frame(x=x, lower=[y, y], upper=[y + 1.0, y + 3.0]), "line": frame(x=x, y=[y, y]),
                "bars": frame(**ends_of)}  # fmt: skip

    own = Live(Drawing(picture), layers(0.0))
    own.update(layers(5.0))
    data = {source.name: source.data for source in own.figure.select({"type": ColumnDataSource})}
    assert data["band"]["y"].tolist() == [5.0, 5.0, 8.0, 6.0]
    assert data["line"]["y"].tolist() == [5.0, 5.0]
    assert data["bars"]["y1"].tolist() == [6.0, 7.0]
    assert ends(own.figure)[2:] == pytest.approx([5.0 - 0.18, 8.0 + 0.18])
    own.update({name: rows.iloc[:0] for name, rows in layers(0.0).items()})
    data = {source.name: source.data for source in own.figure.select({"type": ColumnDataSource})}
    assert [np.isnan(data[name]["x" if name != "bars" else "x0"]).tolist() for name in data] == [[True]] * 3
    assert not own.legend


def test_titles_and_what_a_figure_is_of_decide_whether_it_is_drawn_again():
    rows = frame({"title": "first"}, x=[0.0, 1.0], y=[0.0, 1.0])
    own = drawn({"rows": rows})
    assert own.caption == "first"
    own.update({"rows": frame({"title": "second"}, x=[0.0, 1.0], y=[0.0, 1.0])})
    assert own.caption == "second"
    own.update({"rows": frame(x=[0.0, 1.0], y=[0.0, 1.0])})
    assert own.caption == "second"

    assert own.can_show({"rows": rows})
    assert not own.can_show({"rows": rows.iloc[:0]})
    assert not own.can_show({"rows": rows, "other": rows})
    for name in ("xlabel", "ylabel", "label"):
        assert not own.can_show({"rows": frame({name: "another"}, x=[0.0], y=[0.0])})


def test_a_figure_scrolls_with_the_page_and_its_words_are_left_to_it():
    own = drawn({"rows": frame(x=[0.0, 1.0], y=[0.0, 1.0])})
    assert own.figure.toolbar.active_drag is None
    assert [tool.modifiers for tool in own.figure.select({"type": WheelZoomTool})] == [{"ctrl": True}]
    assert [entry.label for entry in own.legend] == ["rows"]
    assert own.figure.title.visible
    own.leave_words_to_page()
    assert not own.figure.title.visible
    assert not any(legend.visible for legend in own.figure.legend)
    own.toggle(0)
    assert not own.legend[0].visible


def test_steps_and_ranks_are_counted_in_whole_numbers_and_other_axes_are_not():
    for label, interval in (("step", 1), ("rank", 1), ("seconds", 0)):
        rows = frame({"xlabel": label, "ylabel": label}, x=[0.0, 1.0], y=[0.0, 1.0])
        figure = drawn({"rows": rows}).figure
        assert [axis.ticker.min_interval for axis in (figure.xaxis[0], figure.yaxis[0])] == [interval] * 2


@pytest.mark.parametrize("step", [0.0, 7.0])
def test_an_axis_of_a_single_step_begins_there_and_follows_the_next_one(step: float):
    own = drawn({"rows": frame({"xlabel": "step"}, x=[step], y=[2.0])})
    assert ends(own.figure)[:2] == pytest.approx([step - 0.06, step + 1.0])

    own.update({"rows": frame({"xlabel": "step"}, x=[step, step + 1.0], y=[2.0, 1.0])})
    assert ends(own.figure)[:2] == pytest.approx([step - 0.06, step + 1.06])


def test_a_scale_of_both_signs_has_its_colours_at_the_ends_and_that_of_zero_in_the_middle():
    scale = palette._diverging("#000000", "#ffffff", "#0a141e", 5)

    assert [scale[0], scale[2], scale[4]] == ["#000000", "#ffffff", "#0a141e"]
    share = 0.5**0.8  # of the way from zero to an end
    assert scale[1] == "#" + 3 * f"{round(255 * (1 - share)):02x}"
    assert scale[3] == "#" + "".join(f"{round(255 + (end - 255) * share):02x}" for end in (10, 20, 30))
    assert len(palette.DIVERGING["light"]) == 128


def test_lines_of_a_picture_differ_in_colour_or_dashes_and_begin_again_after_the_last():
    styles = [tuple(palette.cycled(k).values()) for k in range(12)]

    assert len(set(styles[:10])) == 10
    assert styles[10:] == styles[:2]
    assert styles[0] == (palette.CYCLE[0], "solid")
