"""Pictures as SVG, as saved notebooks keep them, and what cells show of runs, specs and studies."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from xml.etree import ElementTree

import numpy as np
import pytest
from bokeh.plotting import figure as new_figure

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.runs import Run
from gpexplorer.views import for_run
from gpexplorer.views.drawing import static_svg
from gpexplorer.views.drawing.static_svg import BOTTOM, LEFT, RIGHT, TOP, figure_svg

SPEC = gpx.Spec("cholqr", {"num_inducing": 5}, data="snelson-like", kernel="se", seed=1)


@pytest.fixture(scope="module")
def run() -> Run:
    run = SPEC.open()
    run.finish(steps=6)
    return run


def paths(svg: str) -> list[str]:
    """The paths of all layers, without axes and grid."""
    layers = [part for part in ElementTree.fromstring(svg) if part.get("clip-path")]
    return [path.get("d", "") for path in layers[0].iter() if path.tag.endswith("path")]


def test_the_curve_of_the_objective_has_its_numbers_at_the_right_pixels(run: Run):
    picture = run.plot("convergence", width=600, height=300)
    frame = next(frame for frame in picture.layers.values() if len(frame) > 3)
    curve = next(path for path in paths(picture.svg()) if path.count("L") > 3)
    pixels = np.array([point.split() for point in curve[1:].split("L")], float)
    finite = frame.dropna(subset=["x", "y"])

    on_axis = finite["y"].between(*frame.attrs.get("extent", (-np.inf, np.inf))).to_numpy()
    assert on_axis.sum() > 2  # a first value that would flatten the others is off the axis
    slope = np.polyfit(finite["x"], pixels[:, 0], 1)[0]
    correlation = np.corrcoef(finite["y"][on_axis], pixels[on_axis, 1])
    assert slope > 0
    assert correlation[0, 1] == pytest.approx(
        -1, abs=1e-4
    )  # larger numbers lie higher, as far from the top as they should
    assert pixels[:, 0].min() >= LEFT
    assert pixels[:, 0].max() <= 600 - RIGHT
    assert pixels[on_axis, 1].min() >= TOP
    assert pixels[:, 1].max() <= 300 - BOTTOM


def test_every_picture_of_a_run_is_drawn_small_and_the_same_twice(run: Run):
    for view in for_run(run):
        once = run.plot(view.key).svg()
        assert paths(once), view.key
        assert len(once) < 120_000, view.key
    assert run.plot("fit").svg() == run.plot("fit").svg()


def test_logarithmic_axes_below_one_have_ticks():
    run = gpx.Spec("cg", {"learn": False}, data={"name": "sin-product", "n": 50, "d": 2}).open()
    run.finish(steps=8)

    svg = gpx.Compare([run]).curves("largest", log=True).svg()

    assert {">0.2<", ">0.5<", ">2<"} <= {f">{part.text}<" for part in ElementTree.fromstring(svg).iter()}


def test_a_short_logarithmic_axis_has_ticks():
    assert static_svg._ticks(np.log10([0.176, 0.183]), True, 5) == pytest.approx([0.176, 0.178, 0.18, 0.182])
    assert static_svg._ticks(np.log10([0.5, 30.0]), True, 5) == pytest.approx([0.5, 1, 2, 5, 10, 20])


@pytest.mark.parametrize(
    "ends", [(516.076695, 516.076701), (1000.2, 1001.4), (100.03, 100.21), (-0.00035, 0.0), (1e-7, 3e-7), (-4e4, 2e5)]
)
def test_numbers_beside_an_axis_differ_and_leave_room_for_its_name(ends: tuple[float, float]):
    figure = new_figure(x_range=(0, 1), y_range=ends, y_axis_label="objective F [nat]")

    texts = [part for part in ElementTree.fromstring(figure_svg(figure, 400, 400)).iter() if part.tag.endswith("text")]
    numbers = [part for part in texts if part.get("text-anchor") == "end"]
    name = next(part for part in texts if part.text == "objective F [nat]")

    assert len({part.text for part in numbers}) == len(numbers) > 2
    written = [float(str(part.text).replace(",", "").replace("−", "-")) for part in numbers]
    assert written == sorted(written)
    assert np.diff(written) == pytest.approx(np.diff(written).mean(), rel=1e-6)
    right_of_name = float(str(name.get("transform"))[len("translate(") :].split()[0]) + 6
    longest = max(len(str(part.text)) for part in numbers)
    assert right_of_name < float(numbers[0].get("x", 0)) - 6.0 * longest


def test_a_long_title_takes_two_lines_and_says_where_it_is_cut():
    title = "at step 1: at most 0.386 nat from the exact model; steps up to 2 off the axis, at 516.1 in a long sentence"
    figure = new_figure(x_range=(0, 1), y_range=(0, 1), title=title)
    figure.line([0, 1], [0, 1], legend_label="mean")

    for width, is_cut in ((400, True), (720, False)):
        texts = [part for part in ElementTree.fromstring(figure_svg(figure, width, 400)).iter() if part.get("y")]
        lines = [part for part in texts if part.get("font-size") == "12.5"]
        assert len(lines) == 2
        assert max(len(str(part.text)) for part in lines) * 6 < width - LEFT
        assert " ".join(str(part.text) for part in lines).endswith(" …") == is_cut
        legend = next(part for part in texts if "mean" in "".join(part.itertext()))
        assert float(lines[1].get("y", 0)) < float(legend.get("y", 0)) < TOP


def test_words_stand_in_lines_around_their_place_and_a_picture_without_axes_has_no_ticks():
    figure = new_figure(x_range=(0, 1), y_range=(0, 1))
    figure.axis.visible = False
    figure.text(x=[0.25], y=[0.5], text=["one\n<b>"])

    words = [part for part in ElementTree.fromstring(figure_svg(figure, 600, 300)).iter() if part.text]

    assert [part.text for part in words] == ["one", "<b>"]
    assert {float(part.get("x", 0)) for part in words} == {LEFT + (600 - LEFT - RIGHT) / 4}
    middle = TOP + (300 - TOP - BOTTOM) / 2
    assert float(words[0].get("y", 0)) < middle < float(words[1].get("y", 0))


def test_a_map_with_a_grid_of_values_is_drawn():
    run = gpx.Spec("random", {"num_inducing": 5}, data={"name": "sin-product", "n": 60, "d": 2}).open()
    run.finish(steps=1)

    svg = run.plot("fit").svg()

    assert "data:image/png;base64," in svg
    assert "nan" not in svg


def test_a_long_name_of_the_vertical_axis_is_not_cut_in_a_low_picture():
    name = "decrease of the objective by a swap [nat]"
    figure = new_figure(x_range=(0, 1), y_range=(0, 1), y_axis_label=name)
    low, high = (figure_svg(figure, 560, height) for height in (150, 400))
    sizes = [
        (float(size), len(name))
        for svg in (low, high)
        for size, name in re.findall(r'rotate\(-90\)" text-anchor="middle" font-size="([\d.]+)">([^<]+)<', svg)
    ]

    assert [size for size, _ in sizes] == [pytest.approx(8.3, abs=2.5), 12.0]
    assert sizes[0][0] / 12.0 * 6.9 * sizes[0][1] <= 150


def test_unknown_pictures_and_options_are_refused_with_the_closest_ones(run: Run):
    with pytest.raises(SettingError, match="did you mean 'convergence'"):
        run.plot("convergance")
    with pytest.raises(SettingError, match="has no option 'drws'"):
        run.plot("fit", drws=3)


def test_a_cell_shows_a_run_and_a_spec_without_letting_text_become_html(run: Run):
    spec = gpx.Spec("cholqr", data="<b>mine</b>")

    assert "&lt;b&gt;mine" in spec._repr_html_()
    assert "<b>" not in spec._repr_html_()
    assert "image/svg+xml" in run._repr_html_()
    assert ">6<" in run._repr_html_()


def test_a_spec_shows_each_field_that_another_spec_has_otherwise():
    other = {
        "method": "random", "settings": {}, "data": "friedman1", "split": 2, "kernel": "matern32",
        "seed": 5, "device": "cuda", "dtype": "float32", "budget": {"steps": 9}, "target_transform": "yeo-johnson",
        "input_transform": "log",
    }  # fmt: skip
    assert set(other) == {field.name for field in fields(SPEC)}

    def shown(spec: gpx.Spec) -> str:
        return spec._repr_html_().replace(spec.key(), "")

    for name, value in other.items():
        if name != "settings":
            settings = {} if name == "method" else SPEC.settings
            assert shown(replace(SPEC, **{name: value, "settings": settings})) != shown(SPEC), name
    assert "target_transform" not in shown(SPEC)


def test_cells_show_comparisons_races_and_scaling_studies(run: Run):
    other = gpx.Spec("random", {"num_inducing": 5}, data="snelson-like", kernel="se", seed=1).open()
    other.finish(steps=2)
    compared = gpx.Compare([run, other])
    race = gpx.Race({"<i>": SPEC, "random": other.spec}, turn_seconds=0.01)
    race.finish(0.02)

    assert list(compared.table().index.sort_values()) == ["1 cholqr", "2 random"]
    assert "svg+xml" in compared._repr_html_()
    assert race._repr_html_().count("svg+xml") == 2
    assert "<i>" not in race._repr_html_()
    assert len(paths(race.curves("snlp").svg())) >= 2
    with pytest.raises(SettingError, match=r"no score 'smsee'.*smse"):
        race.curves("smsee")


def test_cells_say_how_a_study_that_has_not_begun_is_run():
    race = gpx.Race({"<i>": SPEC, "random": gpx.Spec("random", data="snelson-like", kernel="se", seed=1)})
    study = gpx.Scaling(SPEC, "n", [50, 1000])

    assert "race.finish(seconds=10)" in race._repr_html_()
    assert "&lt;i&gt;" in race._repr_html_()
    assert "has not begun" in race._repr_html_()
    assert "50, 1,000" in study._repr_html_()
    assert "list(study)" in study._repr_html_()
    assert "no runs to compare" in gpx.Compare({})._repr_html_()
    waiting = gpx.Compare([SPEC.open()])._repr_html_()
    assert "run.finish(steps=10)" in waiting
    assert "NaN" not in waiting
    assert "svg+xml" not in waiting
