"""The first screen as a file: small, alone, and whole."""

from __future__ import annotations

import json
import math
import re
from html import unescape

import numpy as np
import pytest
from bokeh.models import Range1d

from gpexplorer.errors import SettingError
from gpexplorer.views.screens.lesson_page import (
    PLAYER,
    document_json,
    lesson_figures,
    lesson_of,
    lesson_spec,
    save_lesson,
    screen_page,
)


@pytest.fixture(scope="module")
def run():
    run = lesson_spec(6).open()
    run.finish()
    return run


def test_the_file_is_small_and_loads_nothing(run, tmp_path):
    content = save_lesson(run, tmp_path / "lesson.html").read_text("utf-8")

    assert len(content.encode()) < 800_000
    assert "default-src 'none'" in unescape(content)
    assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", content) == []


def test_a_number_that_no_browser_reads_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        screen_page({"x": math.nan}, [], "")


def test_axes_begin_with_the_short_labels_of_a_phone(run):
    """Bokeh does not wipe away the part of a long label that a narrow figure has no room for."""
    figures = lesson_figures(lesson_of(run))
    for name in ("landscape", "curve"):
        label = getattr(figures, name).yaxis.axis_label
        assert re.search(rf'\["{name}", "[^"]+", "{re.escape(label)}"\]', PLAYER)


def test_the_axes_hold_the_rows_the_first_band_and_all_swaps(run):
    lesson = lesson_of(run)
    first, y = lesson["frames"][0], lesson["rows"]["y"]
    mean, sd = np.array(first["mean"]), np.array(first["sd"])

    figures = lesson_figures(lesson)

    def ends(axis: Range1d) -> tuple[float, float]:
        return axis.start, axis.end

    for of_column in figures[:3]:
        assert ends(of_column.x_range) == (lesson["x"][0], lesson["x"][-1])
    low, high = min(*y, *(mean - 2 * sd)), max(*y, *(mean + 2 * sd))
    room = 0.12 * (high - low)
    assert ends(figures.data.y_range) == pytest.approx((low - room, high + room))
    narrow = lesson | {"rows": {"y": [0.0]}, "frames": [{"mean": [1.0], "sd": [3.0]}]}
    assert ends(lesson_figures(narrow).data.y_range) == pytest.approx((-5.0 - 1.44, 7.0 + 1.44))
    assert ends(figures.landscape.y_range) == ends(figures.curve.y_range) == (0, 1)
    assert -2.0 < figures.points.y_range.start < -1.0 < 0.0 < figures.points.y_range.end < 1.5  # two lines of marks
    assert -0.5 < figures.curve.x_range.start < 0 < 12 < figures.curve.x_range.end < 12.2
    assert figures.curve.xaxis[0].ticker.ticks == [0, 3, 6, 9, 12]
    for plot in (figures.landscape, figures.curve):
        assert plot.yaxis[0].ticker.desired_num_ticks == 4


def test_only_data_and_landscape_have_axes_for_their_numbers(run):
    figures = lesson_figures(lesson_of(run))

    visible = [(plot.xaxis[0].visible, plot.yaxis[0].visible, plot.xgrid[0].visible) for plot in figures]
    assert visible == [(False, True, True), (False, False, False), (True, True, True), (True, True, True)]
    assert all(plot.toolbar.autohide for plot in figures)
    sources = [{renderer.data_source.name for renderer in plot.renderers} for plot in figures]
    assert sources[0] == {"band", "exact", "before", "mean", "rows", "labels"}
    content = document_json(lesson_of(run))
    assert len(content["roots"]) == 4
    json.dumps(content, allow_nan=False)


def test_a_folder_that_is_not_there_is_named(run, tmp_path):
    with pytest.raises(SettingError, match=r"Cannot write .*nowhere"):
        save_lesson(run, tmp_path / "nowhere" / "lesson.html")
