"""Axes, colours and images of a live picture: their ends follow the data, and keep still while the data fit."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import pytest

from gpexplorer.views.base import Line, Series, View, arranged, dots, image, legend_cols, overlay, points
from gpexplorer.views.drawing import live
from gpexplorer.views.drawing.palette import cycled

hv.extension("bokeh")


def frame(attrs: dict[str, Any] | None = None, **columns: list[float]) -> pd.DataFrame:
    result = pd.DataFrame(columns)
    result.attrs |= attrs or {}
    return result


def test_an_axis_holds_all_finite_numbers_of_its_columns_and_what_a_picture_declares():
    layers = {
        "line": frame(x=[1.0, 9.0], y=[3.0, math.nan]),
        "band": frame(x=[2.0, 4.0], lower=[-2.0, 0.0], upper=[5.0, math.inf]),
        "path": frame({"loose": True}, x=[-50.0], y=[50.0]),
    }

    def ends(columns: tuple[str, ...], log: bool = False, **attrs: Any) -> tuple[float, float] | None:
        return live._extent(layers | {"declared": frame(attrs)}, columns, log)

    assert ends(live.X_COLUMNS) == (1.0, 9.0)
    assert ends(live.Y_COLUMNS) == (-2.0, 5.0)
    assert ends(live.Y_COLUMNS, log=True) == (3.0, 5.0)
    assert ends(live.Y_COLUMNS, at_least=(-1.0, 8.0)) == (-2.0, 8.0)
    assert ends(live.X_COLUMNS, at_least=(-1.0, 80.0)) == (1.0, 9.0)
    assert ends(live.Y_COLUMNS, extent=(0.5, 0.75)) == (0.5, 0.75)
    assert ends(live.Y_COLUMNS, log=True, extent=(0.0, 0.75)) == (3.0, 5.0)
    assert ends(live.X_COLUMNS, extent=(0.5, 0.75)) == (1.0, 9.0)
    assert live._extent({"empty": frame(x=[], y=[])}, live.X_COLUMNS, False) is None


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_an_axis_has_a_margin_of_six_hundredths_and_one_of_a_single_number_is_as_wide_as_it(shift: float):
    assert live._with_margin((shift + 1.0, shift + 3.0), False) == pytest.approx((shift + 0.88, shift + 3.12))
    assert live._with_margin((0.01, 100.0), True) == pytest.approx((10**-2.24, 10**2.24))
    assert live._with_margin((-4.0, -4.0), False) == (-6.0, -2.0)
    assert live._with_margin((0.0, 0.0), False) == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("extent", "misfits"),
    [((0.1, 0.9), False), ((0.0, 0.5), True), ((0.5, 1.0), True), ((0.2, 0.54), True), ((0.2, 0.56), False),
     ((0.01, 0.9), True), ((0.1, 0.99), True), ((0.03, 0.97), False)],
)  # fmt: skip
def test_an_axis_moves_where_data_would_be_cut_at_its_end_or_fill_little_of_it(
    extent: tuple[float, float], misfits: bool
):
    assert live._misfits(extent, (0.0, 1.0), False) == misfits
    of_log = tuple(10.0**end for end in extent)
    assert live._misfits(of_log, (1.0, 10.0), True) == misfits


def test_colours_begin_above_the_least_fiftieth_of_the_values_unless_they_are_declared():
    values = frame(value=[*np.arange(101.0), math.nan])
    assert live._colour_limits({"map": values}) == (2.0, 100.0)
    assert live._colour_limits({"map": values, "other": frame(value=[200.0])}) == pytest.approx((2.02, 200.0))
    assert live._colour_limits({"map": frame(value=[5.0, 5.0])}) == (5.0, 6.0)
    assert live._colour_limits({"map": frame({"colours": (-3, 3)}, value=[5.0])}) == (-3.0, 3.0)
    assert live._colour_limits({"map": frame(value=[math.nan])}) is None
    assert live._colour_limits({"line": frame(y=[1.0])}) is None


def test_an_image_begins_half_a_cell_before_its_first_point_and_a_band_returns_to_its_beginning():
    x, y = (axis.ravel() for axis in np.meshgrid([1.0, 3.0, 5.0], [10.0, 11.0]))
    columns = live._image(frame(x=x, y=y, value=np.arange(6.0)), {"kept": 7})
    assert columns["image"][0].tolist() == [[0, 1, 2], [3, 4, 5]]
    expected = {"x": [0.0], "y": [9.5], "dw": [6.0], "dh": [2.0], "kept": 7}
    assert {name: columns[name] for name in expected} == expected
    band = live._band(frame(x=[1.0, 2.0], lower=[3.0, 4.0], upper=[5.0, 6.0]), {})
    assert [band["x"].tolist(), band["y"].tolist()] == [[1, 2, 2, 1], [3, 4, 6, 5]]
    area = live._band(frame(x=[1.0, 2.0], y=[5.0, 6.0]), {})
    assert area["y"].tolist() == [0, 0, 6, 5]


@pytest.mark.parametrize(
    ("ends", "labels"),
    [((0, 8), 4), ((0, 350_000), 2), ((0.0, 8000.0), 4), ((0.0, 0.8), 4), ((0.0, 12_345.0), 3), ((0.0, 0.0012), 2),
     ((3.0, 3.0), 4), ((None, 1.0), 4), ((0.0, math.inf), 4)],
)  # fmt: skip
def test_long_labels_below_a_picture_are_fewer(ends: tuple[Any, Any], labels: int):
    assert live._labels_below(*ends) == labels


def test_a_long_column_is_rounded_to_what_is_seen_and_one_that_is_read_less():
    values = np.linspace(0.0, 1.0, 64)
    assert live._short(values[:63], "y").dtype == np.float64
    for name, unit in (("y", 2.0**-14), ("lower", 2.0**-14), ("observed", 2.0**-16)):
        short = live._short(values, name)
        assert short.dtype == np.float32
        assert 0.25 * unit < np.abs(short - values).max() <= 0.5 * unit
        np.testing.assert_array_equal(short % unit, 0.0)
    assert live._short(1e9 + values, "y").dtype == np.float64  # float32 is too coarse there
    assert live._short(np.full(64, 3.0), "y").dtype == np.float64


def test_the_hero_of_a_family_stands_between_the_first_two_pictures() -> None:
    pictures = [SimpleNamespace(key=key, hero=key in "de") for key in "abcde"]

    def order(chosen: str = "", count: int = 5) -> str:
        return "".join(picture.key for picture in arranged(pictures[:count], chosen))

    assert [order(), order("e"), order("c"), order("b"), order(count=3), order(count=2)] == [
        "adbce", "aebcd", "acbde", "adbce", "acb", "ab",
    ]  # fmt: skip


def test_a_logarithmic_axis_of_one_value_reaches_to_half_and_twice_of_it() -> None:
    def asked(y: list[float], **options: Any) -> dict[str, Any]:
        rows = frame(x=[1.0, 5.0], y=y)
        return overlay([dots({"rows": rows}, "rows")], rows, **options).opts.get("plot").kwargs

    assert asked([8.0, 8.0], logy=True)["ylim"] == (4.0, 16.0)
    assert "ylim" not in asked([8.0, 8.0])
    assert "ylim" not in asked([8.0, 9.0], logy=True)
    assert "ylim" not in asked([-8.0, -8.0], logy=True)
    assert "xlim" not in asked([8.0, 8.0], logx=True, logy=True)
    assert asked([1.0, 2.0], columns=0)["show_legend"] is False
    assert asked([1.0, 2.0], columns=3)["legend_cols"] == 3
    assert asked([1.0, 2.0])["responsive"]


def test_a_picture_is_for_the_family_and_the_abilities_that_it_names_and_waits_for_nothing() -> None:
    class Simple(View):
        def data(self, run: Any, at: int) -> Any: ...

        def plot(self, layers: Any) -> Any: ...

    run: Any = SimpleNamespace(method=SimpleNamespace(family="inducing"))
    picture = Simple()
    assert picture.applies(run)
    assert not picture.unfinished(run, 0)
    assert picture.clicked(run, 0, 1.0, 2.0) is None
    Simple.family = "exact"
    assert not picture.applies(run)
    Simple.family, Simple.needs = "inducing", int
    assert not picture.applies(run)


def test_lines_over_the_steps_are_named_coloured_and_cut_at_the_record_that_is_shown() -> None:
    class Two(Series):
        lines: ClassVar[dict[str, Line]] = {
            "own": Line("its name", "#123456"),
            "cost": Line("cost", "#654321", column="seconds"),
        }
        axes: ClassVar[tuple[str, str]] = ("step", "value")

        def caption(self, run: Any, at: int, layers: Any) -> str | None:
            return f"{len(layers['own'])} points"

    table = pd.DataFrame({"index": [0, 1, 2, 3], "own": [math.nan, 5.0, 6.0, 7.0], "seconds": [1.0, 2.0, 3.0, 4.0]})
    run: Any = SimpleNamespace(table=lambda: table)
    series = Two()
    layers = series.data(run, 2)
    assert layers["own"].to_numpy().tolist() == [[1, 5], [2, 6]]
    assert layers["cost"].to_numpy().tolist() == [[0, 1], [1, 2], [2, 3]]
    assert layers["own"].attrs == {"xlabel": "step", "ylabel": "value", "title": "2 points"}
    assert {name: len(part) for name, part in series.data(run, 0).items()} == {"own": 0, "cost": 0}
    curves = series.curves({**layers, "more": layers["own"]})
    assert [curve.label for curve in curves] == ["its name", "cost", "more"]
    colours = [curve.opts.get("style").kwargs["color"] for curve in curves]
    assert colours == ["#123456", "#654321", cycled(2)["color"]]
    assert series.plot(layers).opts.get("plot").kwargs["legend_cols"] == 3


def test_an_image_has_its_first_row_at_the_lowest_place() -> None:
    x, y = (axis.ravel() for axis in np.meshgrid([1.0, 3.0, 5.0], [10.0, 11.0]))
    rows = frame(x=x, y=y, value=np.arange(6.0)).sample(frac=1.0, random_state=0)

    element = image({"map": rows}, "map")

    assert element.dimension_values("value", flat=False).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert element.opts.get("plot").kwargs["colorbar"] is True


def test_names_of_eighteen_letters_fit_beside_each_other_and_longer_ones_do_not() -> None:
    assert [legend_cols(names) for names in (["a" * 18, "b"], ["a" * 19, "b"], [])] == [2, 1, 2]


def test_points_are_finite_and_on_a_logarithmic_axis_positive() -> None:
    x, y = [1, 2, 3, 4, 5], [10.0, math.nan, 0.0, -1.0, math.inf]

    assert points(x, y).to_numpy().tolist() == [[1, 10], [3, 0], [4, -1]]
    assert points(x, y, log10=True).to_numpy().tolist() == [[1, 1]]
