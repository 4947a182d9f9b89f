"""Pictures do not mislead: chance has a band, colours and axes stay the same, and no first value flattens the rest."""

from __future__ import annotations

import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bokeh.models import LinearColorMapper
from scipy.special import ndtr

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.problem import Channel
from gpexplorer.runs import Spec
from gpexplorer.runs import link as links
from gpexplorer.runs.studies.comparison import Finished
from gpexplorer.ui.explorer import START
from gpexplorer.ui.stories import STORIES
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.drawing.run_rows import targets_of
from gpexplorer.views.runs.calibration import by_chance, coverage
from gpexplorer.views.runs.convergence import Convergence, focused


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


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (1e4, 50.0)])
def test_calibration_of_a_true_gaussian_is_the_diagonal(shift: float, scale: float) -> None:
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=20_000) * scale + shift, scale * rng.uniform(0.5, 2.0, 20_000)
    y = mean + sd * rng.standard_normal(20_000)
    right, narrow = (coverage(ndtr((y - mean) / width)) for width in (sd, 0.5 * sd))
    assert np.abs(right["y"] - right["x"]).max() < 0.02
    assert (narrow["y"] < narrow["x"]).all()


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
    assert focus["title"] == "steps up to 2 are beyond the axis, step 2 at 559.5"
    assert focused(values - 600.0, 11)["title"] == "steps up to 2 are beyond the axis, step 2 at −40.5"
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


OBJECTIVE = (Channel("objective", "objective F", "nat"),)


def run_of(table: dict[str, list[float]], channels: tuple[Channel, ...] = OBJECTIVE, **fields: Any) -> Any:
    """What the picture of convergence reads of a run with this table."""
    frame = pd.DataFrame({"index": range(len(table["objective"])), **table})
    method = SimpleNamespace(channels=channels, learned_channel="")
    unknown = {"problem": SimpleNamespace(kernel=None, train=range(1001)), "rises": [], "spec": None}
    return SimpleNamespace(table=lambda: frame, method=method, **unknown | fields)


def test_values_after_a_rise_are_dashed_and_the_caption_names_the_step():
    values = [9.0, 6.0, 4.0, 4.5, 3.0]
    rise = SimpleNamespace(index=3, channel=SimpleNamespace(name="objective"))

    layers = views.registry["convergence"]().data(run_of({"objective": values}, rises=[rise]), 4)

    assert layers["series"].to_numpy().tolist() == [[0, 9], [1, 6], [2, 4]]
    assert layers["untrusted"].to_numpy().tolist() == [[3, 4.5], [4, 3]]
    assert layers["series"].attrs["title"] == "objective F: not trustworthy from step 3 on (dashed)"
    assert layers["now"].to_numpy().tolist() == [[4, 3]]
    assert layers["series"].attrs["ylabel"] == "objective F [nat]"


def test_the_distance_from_the_exact_model_is_that_of_the_newest_step_that_knows_it():
    table = {"objective": [math.nan, 9.0, 6.0, 4.0], "exact_least": [math.nan, 3.0, 5.75, math.nan]}
    view = views.registry["convergence"](limits=True)

    titles = [view.data(run_of(table), at)["series"].attrs["title"] for at in range(4)]

    same = "nat from the exact model with the same hyperparameters"
    assert titles == ["", f"at step 1: at most 6 {same}", *[f"at step 2: at most 0.25 {same}"] * 2]
    table["exact_least"][2] = 6.5  # by rounding
    layers = view.data(run_of(table), 3)
    assert "at step 2: at most 0 nat" in layers["series"].attrs["title"]
    np.testing.assert_array_equal(layers["range"][["x", "lower", "upper"]], [[1, 3, 9], [2, 6.5, 6]])


@pytest.mark.parametrize(("gap", "number"), [(0.06, "0.1"), (0.02, ""), (-1e-9, "")])  # the last one by rounding
def test_a_distance_of_nothing_is_no_large_number(gap: float, number: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Convergence, "_exact_objective", lambda *_: 4.0 - gap)
    layers = Convergence().data(run_of({"objective": [9.0, 4.0], "exact_least": [3.0, 3.0]}), 1)
    assert layers["series"].attrs["number"] == number
    said = f"{number or 'less than 0.05'} nat from the exact model with the same hyperparameters"
    assert layers["series"].attrs["title"] == said


@pytest.mark.parametrize("shift", [0.0, -1e3])
def test_the_dot_and_the_words_of_the_exact_model_are_whole_in_every_step(
    shift: float, monkeypatch: pytest.MonkeyPatch
):
    """A dot has a radius of 4.5 pixels and a line of words is 14 high: 2 and 8 % of an axis of 200."""
    values = [shift + 40.0 * 0.97**k for k in range(60)]
    monkeypatch.setattr(Convergence, "_exact_objective", lambda self, run, at: values[at] - 4.0)  # it is learned, too
    view, live, rooms = Convergence(), None, []
    for at in range(1, 60):
        layers = view.data(run_of({"objective": values[: at + 1], "exact_least": [shift] * (at + 1)}), at)
        live = live or Live(view, layers)
        live.update(layers)
        x, y = live.figure.x_range, live.figure.y_range
        step, value = layers["now"].to_numpy()[0]
        shares = [(x.end - step) / (x.end - x.start), (value - y.start) / (y.end - y.start)]
        assert min(shares) >= 0.02, at
        rooms.append((layers["words"]["y"][0] - y.start) / (y.end - y.start))
    assert np.isfinite(rooms).sum() > 50  # at first the axis is the run's own
    assert np.nanmin(rooms) >= 0.08


@pytest.mark.parametrize(("steps", "drawn"), [(7999, 7999), (8000, 4000), (12_001, 4001)])
def test_of_a_long_run_every_kth_point_is_drawn_and_a_logarithmic_axis_has_positive_ones(steps: int, drawn: int):
    values = np.arange(float(steps))
    layers = views.registry["convergence"]().data(run_of({"objective": values.tolist()}), 5)
    assert len(layers["series"]) == drawn
    assert layers["now"].to_numpy().tolist() == [[5, 5]]
    log = views.registry["convergence"](log=True).data(run_of({"objective": [-1.0, 0.0, 0.5, 2.0]}), 3)
    assert log["series"].to_numpy().tolist() == [[2, 0.5], [3, 2.0]]


def test_the_best_earlier_run_on_the_same_rows_lies_behind_with_its_last_value():
    def finished(last: float, **fields: Any) -> Finished:
        spec = Spec("ml", **{"data": "snelson-like", **fields})
        return Finished(spec, pd.DataFrame({"index": [0, 1, 2], "objective": [math.nan, 50.0, last]}))

    view, channels = views.registry["convergence"](), gpx.methods["ml"].channels
    run = run_of({"objective": [60.0, 40.0]}, channels, spec=Spec("ml", data="snelson-like"))
    view.earlier = (finished(30.0, seed=3), finished(-20.5, seed=4), finished(10.0, data="friedman1"))

    layers = view.data(run, 1)

    assert layers["ghost"].to_numpy().tolist() == [[1, 50], [2, -20.5]]
    title = layers["series"].attrs["title"]
    assert title.endswith("with seed = 4, which ended at −20.5")
    view.earlier = view.earlier[2:]
    assert view.data(run, 1)["ghost"].empty


def test_an_axis_spans_one_nat_of_an_objective_and_no_more_of_a_score_than_it_has():
    values = [0.5, 0.4, 0.3, 0.35]
    table = {name: values for name in ("objective", "share", "snlp")}
    channels = (*OBJECTIVE, Channel("share", "share", ""))
    view, extents = views.registry["convergence"](), {}
    view.param.channel.objects = list(table)
    for view.channel in table:
        extents[view.channel] = view.data(run_of(table, channels), 3)["series"].attrs.get("extent")
    assert extents == {"objective": pytest.approx((-0.1, 0.9)), "share": None, "snlp": None}


def test_a_lower_coverage_is_not_better_so_that_no_earlier_run_lies_behind_it():
    view, spec = views.registry["convergence"](), Spec("ml", data="snelson-like")
    steps = {"index": [0, 1], "objective": [2.0, 1.0], "smse": [0.5, 0.25], "coverage95": [0.9, 0.8]}
    view.earlier = (Finished(spec, pd.DataFrame(steps)),)
    view.param.channel.objects = list(steps)
    shown = {}
    for view.channel in ("smse", "coverage95"):
        shown[view.channel] = view.data(run_of(steps, spec=spec), 1)["ghost"]["y"].tolist()
    assert shown == {"smse": [0.5, 0.25], "coverage95": []}


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


@cache
def at_link(query: str) -> tuple[gpx.Run, int]:
    """The run of a link, and the step that it names."""
    link = links.read(query, Spec(**START), views.registry)
    run = link.spec.open()
    run.finish(steps=link.at)
    return run, link.at


@pytest.mark.parametrize(("key", "picture"), [(s.key, picture) for s in STORIES.values() for picture in s.axes])
def test_a_story_declares_an_axis_that_its_parts_fill_and_none_of_them_leaves(key: str, picture: str):
    numbers = []
    queries = [query for part in STORIES[key].parts for query in (part.shown, part.link) if query]
    beside = picture == "convergence"  # it is shown beside every picture that a link names
    for query in (query for query in queries if beside or f"view={picture}" in query):
        run, at = at_link(query)
        view = next(view for view in views.for_run(run) if view.key == picture)
        drawn = [number for frame in view.data(run, at).values() for number in frame["y"]]
        numbers += [number for number in drawn if math.isfinite(number)]

    low, high = STORIES[key].axes[picture]

    room = 0.1 * (max(numbers) - min(numbers))
    assert min(numbers) - room <= low <= min(numbers)
    assert max(numbers) <= high <= max(numbers) + room
