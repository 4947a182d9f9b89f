"""Where the marks, words and colours of a figure lie in its SVG, in pixels, and what a legend says of its marks."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from bokeh.models import LinearColorMapper, LogScale, Span
from bokeh.plotting import figure as new_figure
from bokeh.transform import linear_cmap

from gpexplorer.views.drawing import static_svg
from gpexplorer.views.drawing.legend import Entry, entries, toggle
from gpexplorer.views.drawing.static_svg import figure_svg

WIDTH, HEIGHT = 478, 296  # a frame of 400 by 200 pixels, from (64, 50) on: 50 per unit of x and 100 per unit of y


def unit_figure(**options: Any) -> Any:
    """A figure whose pixels are easy to count."""
    return new_figure(**{"x_range": (0, 8), "y_range": (-1, 1)} | options)


def parts(figure: Any, kind: str, width: int = WIDTH, height: int = HEIGHT) -> list[ElementTree.Element]:
    """The elements of a kind, such as "path": those of the layers, except for words."""
    root = ElementTree.fromstring(figure_svg(figure, width, height))
    if kind != "text":
        root = next(part for part in root if part.get("clip-path"))
    return [part for part in root.iter() if part.tag.endswith(kind)]


def words(figure: Any, width: int = WIDTH) -> list[tuple[str, float, float]]:
    """The texts with their places."""
    found = [part for part in parts(figure, "text", width) if part.get("x")]
    return [("".join(part.itertext()), float(part.get("x", 0)), float(part.get("y", 0))) for part in found]


def test_numbers_stand_below_and_left_of_the_frame_and_the_names_of_the_axes_in_the_middle_beyond_them():
    svg = figure_svg(unit_figure(x_axis_label="a < b", y_axis_label="up"), WIDTH, HEIGHT)
    root = ElementTree.fromstring(svg)

    found = words(unit_figure(x_axis_label="a < b", y_axis_label="up"))

    below, beside, name = found[:9], found[9:14], found[14]
    assert below == [(f"{x}", 64.0 + 50.0 * x, 265.0) for x in range(9)]
    upward = [("−1", 1.0), ("−0.5", 0.75), ("0", 0.5), ("0.5", 0.25), ("1", 0.0)]
    assert beside == [(text, 58.0, 54.0 + 200.0 * share) for text, share in upward]
    assert name == ("a < b", 264.0, 284.0)
    assert '<text transform="translate(14 150) rotate(-90)" text-anchor="middle" font-size="12">up</text>' in svg
    assert [root.get(side) for side in ("width", "height", "viewBox")] == ["478", "296", "0 0 478 296"]
    [frame] = [part for part in root.iter() if part.get("d", "").startswith("M64 50V250H464")]
    grid = [part.get("d") for part in root.iter() if part.get("d") and part is not frame]
    assert grid == [f"M{64.0 + 50.0 * x:.1f} 50V250" for x in range(9)] + [
        f"M64 {50.0 + 200.0 * share:.1f}H464" for _, share in upward
    ]


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors_and_leaves_out_what_is_not_positive():
    figure = unit_figure(x_range=(1, 1e4), x_axis_type="log", y_range=(0, 5))
    figure.line([1, 10, 0, 1e4], [0, 5, 5, 0])

    [path] = parts(figure, "path")

    assert isinstance(figure.x_scale, LogScale)
    assert path.get("d") == "M64.0 250.0L164.0 50.0M464.0 250.0"
    assert [text for text, _, y in words(figure) if y == 265.0] == ["1", "10", "100", "1,000", "10,000"]


@pytest.mark.parametrize(
    ("ends", "log", "most", "ticks"),
    [
        ((0.0, 8.0), False, 8, range(9)),
        ((0.0, 8.1), False, 8, range(0, 9, 2)),
        ((-0.1, 0.35), False, 6, [-0.1, 0.0, 0.1, 0.2, 0.3]),
        ((3.0, 103.0), False, 6, [20, 40, 60, 80, 100]),
        ((0.0, 50.0), False, 5, [0, 10, 20, 30, 40, 50]),
        ((0.0, 2.4), True, 6, [1, 2, 5, 10, 20, 50, 100, 200]),
        ((0.0, 2.5), True, 6, [1, 10, 100]),
        ((-12.0, 12.0), True, 5, [1e-10, 1e-5, 1.0, 1e5, 1e10]),
        ((1.0, 1.0), False, 5, []),
        ((math.nan, 1.0), False, 5, []),
    ],
)
def test_ticks_are_round_numbers_and_no_more_than_there_is_room_for(ends: Any, log: bool, most: int, ticks: Any):
    assert static_svg._ticks(np.array(ends), log, most) == pytest.approx(list(ticks))


def test_an_axis_has_at_most_eight_steps_across_and_six_upwards():
    found = words(unit_figure(x_range=(0, 9), y_range=(0, 7)))

    assert [text for text, _, y in found if y == 265.0] == ["0", "2", "4", "6", "8"]
    assert [text for text, x, _ in found if x == 58.0] == ["0", "2", "4", "6"]


def test_lines_areas_and_segments_go_through_their_points_with_gaps():
    figure = unit_figure()
    figure.line([0, 2, 4, 6, 8], [-1, 0, math.nan, 0.5, 1], line_color="#123456", line_width=2.5, line_dash=[6, 3])
    figure.patch([0, 4, 4], [0, 0, 1], fill_color="#abcdef", fill_alpha=0.25)
    figure.segment([0, 2, math.nan], [0, 0, 0], [4, 8, 1], [1, -1, 1])
    figure.vspan([1, math.nan, 7])
    figure.line([0, 1e9], [0, 0])

    line, area, segments, spans, far = parts(figure, "path")

    assert line.get("d") == "M64.0 250.0L164.0 150.0M364.0 100.0L464.0 50.0"
    style = [line.get(f"stroke{part}") for part in ("", "-width", "-dasharray", "-opacity")]
    assert style == ["#123456", "2.5", "6 3", "1"]
    assert area.get("d") == "M64.0 150.0L264.0 150.0L264.0 50.0Z"
    assert (area.get("fill"), area.get("fill-opacity")) == ("#abcdef", "0.25")
    assert segments.get("d") == "M64.0 150.0L264.0 50.0M164.0 150.0L464.0 250.0"
    assert spans.get("d") == "M114.0 50v200M414.0 50v200"
    assert far.get("d") == "M64.0 150.0L100000.0 150.0"


def test_spans_cross_the_whole_frame():
    figure = unit_figure()
    figure.renderers = [
        Span(location=2, dimension="height"), Span(location=0.5, dimension="width"), Span(location=math.nan),
    ]  # fmt: skip

    assert [part.get("d") for part in parts(figure, "path")] == ["M164.0 50v200", "M64 100.0h400"]


def test_marks_have_their_places_shapes_and_colours_by_value():
    figure = unit_figure()
    palette = ["#000000", "#111111", "#222222"]
    values = [2.0, 3.0, 4.0, 3.0, 9.0, math.nan, -math.inf]
    data = {"x": [0, 4, 8, math.nan, 2, 1, 3], "y": [0, 0, 1, 0, -1, 0, 0], "value": values}
    colour = linear_cmap("value", palette, 2.0, 4.0)
    figure.scatter("x", "y", source=data, size=8, marker="square", fill_color=colour, line_color="red", fill_alpha=0.5)
    figure.scatter([4], [0], size=6, marker="x", fill_color="blue", line_color="green")
    figure.scatter([4], [0], size=20, marker="star", line_color="gold")

    groups = [part for part in parts(figure, "g") if part.get("stroke") == "red"]

    shown = {group.get("fill"): [path.get("transform") for path in group] for group in groups}
    assert shown == {
        "#000000": ["translate(64.0 150.0)", "translate(214.0 150.0)"],
        "#111111": ["translate(264.0 150.0)"],
        "#222222": ["translate(464.0 50.0)", "translate(164.0 250.0)"],
        "none": ["translate(114.0 150.0)"],  # where a value is missing
    }
    assert [group.get("stroke") for group in groups] == ["red"] * 4
    [cross] = [part for part in parts(figure, "g") if part.get("stroke") == "green"]
    assert (cross.get("fill"), cross[0].get("transform")) == ("none", "translate(264.0 150.0)")
    assert [(group.get("fill-opacity"), group.get("stroke-opacity")) for group in groups[:1]] == [("0.5", "1")]
    assert groups[0][0].get("d") == "M-4.0 -4.0H4.0V4.0H-4.0Z"
    assert cross[0].get("d") == "M-3.0 -3.0L3.0 3.0M-3.0 3.0L3.0 -3.0"
    [star] = [part for part in parts(figure, "g") if part.get("stroke") == "gold"]
    corners = np.array([point.split() for point in star[0].get("d").strip("MZ").split("L")], float)
    np.testing.assert_allclose(np.hypot(*corners.T), [10.0, 3.8] * 5, atol=0.05)
    np.testing.assert_allclose(corners[[0, 5]], [[0.0, -10.0], [0.0, 3.8]], atol=0.05)  # one point is on top


@pytest.mark.parametrize(("count", "drawn"), [(1200, 1200), (1201, 601), (3600, 1200), (3601, 901)])
def test_of_many_marks_evenly_spaced_ones_are_drawn_and_a_gap_of_a_line_stays(count: int, drawn: int):
    figure = unit_figure(x_range=(0, count))
    y = np.zeros(count)
    figure.scatter(np.arange(count), y)
    figure.line(np.arange(count), np.where(np.arange(count) == 7, math.nan, 0.0))

    *marks, line = parts(figure, "path")

    assert len(marks) == drawn
    assert line.get("d", "").count("M") == 2


def pixels_of(image: ElementTree.Element, opacity: bool = False) -> np.ndarray:
    """The colours [rows, columns, 3 or 4] of an image, from its PNG."""
    content = base64.b64decode(image.get("href", "").partition(",")[2])
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(content):
        (size,) = struct.unpack(">I", content[place : place + 4])
        kind, data = content[place + 4 : place + 8], content[place + 8 : place + 8 + size]
        assert struct.unpack(">I", content[place + 8 + size : place + 12 + size]) == (zlib.crc32(kind + data),)
        chunks[kind], place = data, place + 12 + size
    columns, rows, bits, kind_of_colour, *plain = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert [bits, kind_of_colour, *plain] == [8, 6 if opacity else 2, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(rows, -1)
    assert not lines[:, 0].any()  # no filter
    return lines[:, 1:].reshape(rows, columns, -1)


@pytest.mark.parametrize("missing", [False, True])
def test_an_image_covers_its_part_of_the_frame_with_the_first_row_at_the_bottom(missing: bool):
    figure = unit_figure()
    grid = np.array([[0.0, 1.0, 2.0], [3.0, 9.0, -9.0]])
    if missing:
        grid[0, 1] = math.nan
    mapper = LinearColorMapper(palette=["#000000", "#0a0b0c", "#141618", "#ffffff"], low=0.0, high=3.0)
    figure.image([grid], x=2, y=-1, dw=6, dh=1.5, color_mapper=mapper)

    [image] = parts(figure, "image")

    assert [image.get(name) for name in ("x", "y", "width", "height")] == ["164.0", "100.0", "300.0", "150.0"]
    pixels = pixels_of(image, missing)
    assert pixels[..., :3].tolist() == [
        [[255, 255, 255], [255, 255, 255], [0, 0, 0]],
        [[0, 0, 0], [0, 0, 0] if missing else [10, 11, 12], [20, 22, 24]],
    ]
    if missing:
        assert pixels[..., 3].tolist() == [[255, 255, 255], [255, 0, 255]]


def test_words_of_a_layer_are_centred_on_their_places():
    figure = unit_figure()
    figure.axis.visible = False
    aligned = {"text_align": "center", "text_baseline": "middle"}
    figure.text(x=[4, math.nan], y=[0, 0], text=["one\ntwo\nthree", "lost"], **aligned)

    assert words(figure)[:3] == [("one", 264.0, 141.0), ("two", 264.0, 154.0), ("three", 264.0, 167.0)]


def test_a_legend_continues_in_a_second_line_and_says_no_more_than_there_is_room_for():
    names = ["abcdefghij" * 2, "klmnopqrst" * 2, "uvwxyzabcd" * 2, "efgh", "l" * 60, "never"]
    figure = unit_figure(title="Title")
    figure.axis.visible = False
    for name in names:
        figure.line([0, 1], [0, 1], legend_label=name)

    title, *legend = words(figure)

    step = 6.4 * 23  # pixels of twenty letters, the sign and the gaps
    assert title == ("Title", 64.0, 16.0)
    assert legend == [
        (f"━ {names[0]}", 64.0, 31.0), (f"━ {names[1]}", float(round(64 + step)), 31.0),
        (f"━ {names[2]}", 64.0, 44.0), (f"━ {names[3]}", float(round(64 + step)), 44.0),
    ]  # fmt: skip


def test_a_title_of_two_lines_leaves_the_legend_one():
    figure = unit_figure(title=" ".join(["word"] * 14))
    figure.axis.visible = False
    for name in ("a" * 50, "b" * 50):
        figure.line([0, 1], [0, 1], legend_label=name)

    first, second, legend = words(figure)

    assert [len(first[0]), first[1:], second[1:]] == [12 * 5 - 1, (64.0, 16.0), (64.0, 30.0)]
    assert legend == ("━ " + "a" * 50, 64.0, 45.0)


def test_long_numbers_beside_an_axis_move_the_frame_to_the_right():
    figure = unit_figure(y_range=(0, 1_500_000))

    beside = [x for _, x, y in words(figure) if y < 260.0]

    assert beside[0] + 6 == 26 + 6 + math.ceil(6.4 * len("1,500,000")) > 64


@pytest.mark.parametrize(
    ("ticks", "texts"),
    [
        ([999.5, 1000.0, 1000.5], ["999.5", "1,000.0", "1,000.5"]),
        ([-2000.0, 0.0, 2000.0], ["−2,000", "0", "2,000"]),
        ([9e6, 1e7], ["9,000,000", "1e+07"]),
        ([0.0001, 0.0002], ["0.0001", "0.0002"]),
        ([1.0001, 1.0002], ["1.0001", "1.0002"]),
        ([5.0], ["5"]),
    ],
)
def test_numbers_beside_ticks_have_as_many_digits_as_tell_them_apart(ticks: list[float], texts: list[str]):
    assert static_svg._in_words(ticks) == texts


def test_the_entries_of_a_legend_look_like_their_marks_and_can_be_hidden():
    figure = unit_figure()
    figure.line([0, 1], [0, 1], legend_label="line", line_color="#111111")
    figure.line([0, 1], [0, 1], legend_label="dashed", line_dash="dashed", line_color="#222222", line_alpha=0.1)
    figure.varea([0, 1], [0, 0], [1, 1], legend_label="area", fill_color="#333333", fill_alpha=0.5)
    figure.scatter([0], [0], marker="star", legend_label="full", fill_color="#444444")
    hollow = {"fill_alpha": 0.0, "line_color": "#555555", "line_alpha": 0.7}
    figure.scatter([0], [0], marker="diamond", legend_label="hollow", **hollow)
    figure.scatter([0], [0], marker="x", legend_label="cross", line_color="#666666", fill_color="#000000")
    figure.scatter([math.nan], [math.nan], legend_label="empty", fill_color="#777777")
    figure.scatter([0, math.nan], [0, 0], legend_label="none", fill_color=None, line_color="#888888")
    by_column = {"fill_color": linear_cmap("x", ["#999999", "#aaaaaa"], 0, 1), "fill_alpha": "part"}
    figure.scatter("x", "y", source={"x": [0, 1], "y": [0, 1], "part": [0.1, 0.2]}, legend_label="columns", **by_column)

    found = entries(figure)

    assert found == [
        Entry("line", "━", "#111111", 1.0, True), Entry("dashed", "╍", "#222222", 0.35, True),
        Entry("area", "■", "#333333", 0.5, True), Entry("full", "★", "#444444", 1.0, True),
        Entry("hollow", "◇", "#555555", 0.7, True), Entry("cross", "×", "#666666", 1.0, True),
        Entry("none", "○", "#888888", 1.0, True), Entry("columns", "●", "currentColor", 1.0, True),
    ]  # fmt: skip
    assert [entry.label for entry in entries(figure, with_empty=True)][6] == "empty"
    patterns, lines = ("solid", "dashed", "dotted", "dotdash", "dashdot", [3, 3]), unit_figure()
    for pattern in patterns:
        lines.line([0, 1], [0, 1], line_dash=pattern, legend_label=str(pattern))
    assert [entry.sign for entry in entries(lines)] == ["━", "╍", "⋯", "━·", "━·", "╍"]
    for number in (0, 6, 8, -1):
        toggle(figure, number)
    assert [entry.label for entry in entries(figure) if not entry.visible] == ["line", "none"]
    toggle(figure, 0)
    assert entries(figure)[0].visible
    assert re.search("opacity", figure_svg(figure))
