"""Pictures do not mislead: chance has a band, colours and axes stay the same, and no first value flattens the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bokeh.models import LinearColorMapper

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.runs import Spec
from gpexplorer.runs import link as links
from gpexplorer.ui.explorer import START
from gpexplorer.ui.stories import STORIES
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.drawing.run_rows import targets_of
from gpexplorer.views.runs.calibration import by_chance
from gpexplorer.views.runs.convergence import focused


@pytest.mark.parametrize("rows", [20, 500])
def test_the_band_of_calibration_holds_what_chance_gives_at_each_level(rows: int):
    band = by_chance(rows)
    for row in range(1, len(band) - 1, 5):
        p, low, high = band["x"][row], round(band["lower"][row] * rows), round(band["upper"][row] * rows)
        chance = [math.comb(rows, k) * p**k * (1 - p) ** (rows - k) for k in range(rows + 1)]
        assert sum(chance[low : high + 1]) >= 0.95
        assert sum(chance[:low]) < 0.025 or low == 0
        assert sum(chance[high + 1 :]) <= 0.025
    assert (band["lower"].iloc[0], band["upper"].iloc[-1]) == (0.0, 1.0)


def test_the_caption_of_calibration_counts_rows_and_levels_outside_the_band():
    run = gpx.Spec("subset-of-data", {"num_rows": 15}, data="snelson-like", kernel="se").open()
    run.finish(steps=40)
    view = next(view for view in views.for_run(run) if view.key == "calibration")
    layers = view.data(run, len(run.trace) - 1)
    band = layers["chance"].iloc[1:-1].reset_index(drop=True)
    observed = layers["observed"]["y"]

    outside = int(((observed < band["lower"] - 1e-9) | (observed > band["upper"] + 1e-9)).sum())

    assert layers["observed"].attrs["title"] == f"20 test rows, {outside} of 25 levels outside the band"
    assert "95 % by chance" in [entry.label for entry in Live(view, layers).legend]


def test_the_convergence_does_not_lose_its_scale_to_first_values():
    values = np.array([np.nan, 875.0, 559.5, 12.0, 11.0, 10.5, 10.0, 9.8, 9.7, 9.6, 9.5, 9.4])
    focus = focused(values, 11)
    assert focus["extent"] == (9.4, 12.0)
    assert focus["title"] == "steps up to 2 off the axis, at 559.5"
    assert focused(values, 2) == {}  # a person looks at one of them
    assert focused(values[:7], 6)["extent"] == (10.0, 12.0)
    assert focused(values[:5], 4)["extent"] == (11.0, 12.0)
    assert focused(values[:4], 3) == {}  # of three values each matters
    assert focused(np.linspace(100.0, 0.0, 30), 29) == {}
    assert focused(np.array([5.0, 5.0, 5.0, 5.0]), 3) == {}
    assert focused(-values, 11)["extent"] == (-12.0, -9.4)
    plateau = np.array([*np.full(10, 510.0), 50.0, 49.0, *np.linspace(-10.0, -45.0, 12)])  # swaps, then learning
    assert focused(plateau, 23)["extent"] == (-45.0, 50.0)


def test_the_convergence_does_not_magnify_what_does_not_matter():
    values = np.array([40.0, -24.51, -24.539, -24.5455, -24.546, -24.546, -24.546])
    assert focused(values, 6, 1.0) == {}
    assert focused(values[1:], 5, 1.0) == {"extent": pytest.approx((-25.028, -24.028)), "title": ""}
    assert focused(np.array([900.0, 40.0, 30.0, 20.0, 19.999, 19.998]), 5, 1.0)["extent"] == (19.998, 40.0)
    assert focused(np.array([0.2, 0.100001, 0.100002, 0.100001]), 3) == {}  # a score without a unit
    flat = focused(1e6 + np.array([0.0, 1.0, 2.0, 3.0]), 3)
    assert flat["extent"] == pytest.approx((999_501.5, 1_000_501.5), rel=1e-8)

    rows = {"name": "snelson-like", "n": 60}
    settings = {"num_inducing": 10, "learn": False}
    run = gpx.Spec("cholqr", settings, data=rows, kernel="se", budget={"steps": 12}).open()
    run.finish()
    view = next(view for view in views.for_run(run) if view.key == "convergence")
    layers = view.data(run, len(run.trace) - 1)
    figure = Live(view, layers).figure
    assert 0.0 < np.ptp(layers["series"]["y"]) < 1.0 <= figure.y_range.end - figure.y_range.start


def test_the_axis_of_the_convergence_leaves_out_a_first_value_and_the_caption_says_so():
    run = gpx.Spec("cholqr", {"num_inducing": 8}, data="snelson-like").open()
    run.finish(steps=30)
    view = next(view for view in views.for_run(run) if view.key == "convergence")
    layers = view.data(run, 30)
    layers["series"].attrs["extent"] = (1.0, 2.0)
    live = Live(view, layers)
    assert live.figure.y_range.start == pytest.approx(0.94)
    assert live.figure.y_range.end == pytest.approx(2.06)


@pytest.mark.parametrize("shift", [0.0, 300.0])
def test_the_colours_of_a_surface_are_those_of_the_targets_at_every_step_and_follow_the_option(shift: float):
    rows = gpx.load({"name": "sin-product", "n": 80})
    data = gpx.load((rows.train.X.numpy(), rows.train.y.numpy() + shift), split={"test": 0.25, "seed": 1})
    run = gpx.Spec("cholqr", {"num_inducing": 6}, kernel="se").open(data=data)
    run.finish(steps=8)
    fit = next(view for view in views.for_run(run) if view.key == "fit")
    y = targets_of(run.problem.train)
    live = Live(fit, fit.data(run, 0))
    [mapper] = live.figure.select({"type": LinearColorMapper})

    for at in (0, 4, 8):
        live.update(fit.data(run, at))
        assert (mapper.low, mapper.high) == pytest.approx(tuple(np.quantile(y, [0.01, 0.99])))
    fit.show = "sd"
    live = Live(fit, fit.data(run, 0))
    live.update(fit.data(run, 8))
    [source] = [source for source in live.figure.select({"name": "map"}) if hasattr(source, "data")]
    [mapper] = live.figure.select({"type": LinearColorMapper})

    assert (mapper.low, mapper.high) == pytest.approx((0.0, y.std()))
    assert np.sort(source.data["image"][0].ravel()) == pytest.approx(np.sort(fit.data(run, 8)["map"]["sd"]), rel=1e-3)


def test_the_axes_of_the_prediction_are_the_same_at_every_step_and_for_every_method():
    ends = set()
    for method, settings in (("cholqr", {"num_inducing": 10}), ("subset-of-data", {"num_rows": 15}), ("ml", {})):
        run = gpx.Spec(method, settings, data="snelson-like", kernel="se").open()
        run.finish(steps=3)
        fit = next(view for view in views.for_run(run) if view.key == "fit")
        for at in (0, len(run.trace) - 1):
            axis = Live(fit, fit.data(run, at)).figure.y_range
            ends.add((round(axis.start, 9), round(axis.end, 9)))
    assert len(ends) == 1


@pytest.mark.parametrize(("key", "picture"), [(s.key, picture) for s in STORIES.values() for picture in s.axes])
def test_a_story_declares_an_axis_that_its_parts_fill_and_none_of_them_leaves(key: str, picture: str):
    numbers = []
    queries = [query for part in STORIES[key].parts for query in (part.shown, part.link) if query]
    beside = picture == "convergence"  # it is shown beside every picture that a link names
    for query in (query for query in queries if beside or f"view={picture}" in query):
        link = links.read(query, Spec(**START), views.registry)
        run = link.spec.open()
        run.finish(steps=link.at)
        view = next(view for view in views.for_run(run) if view.key == picture)
        drawn = [number for frame in view.data(run, link.at).values() for number in frame["y"]]
        numbers += [number for number in drawn if math.isfinite(number)]

    low, high = STORIES[key].axes[picture]

    room = 0.1 * (max(numbers) - min(numbers))
    assert min(numbers) - room <= low <= min(numbers)
    assert max(numbers) <= high <= max(numbers) + room
