"""Pictures of methods of near neighbours."""

from __future__ import annotations

import itertools
import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import holoviews as hv
import numpy as np
import pytest
import torch

from gpexplorer import Spec, views
from gpexplorer.methods.capabilities import NearRows
from gpexplorer.posteriors import exact_gp_posterior
from gpexplorer.runs.run import Run
from steps_of import small_views

hv.extension("bokeh")


def run_of(d: int = 2, n: int = 200, **settings: Any) -> Run:
    data = {"name": "hypercube", "n": n, "d": d, "noise": 0.2}
    run = Spec("vecchia", {"evaluations": 4, **settings}, data=data, kernel="matern32-ard").open()
    run.finish(steps=5)
    return run


def view_of(run: Run, key: str) -> Any:
    (view,) = [view for view in views.for_run(run) if view.key == key]
    return view


@pytest.mark.parametrize(("d", "neighbours"), [(1, 5), (2, 5), (4, 5), (2, 500)])
def test_every_picture_can_be_drawn(d: int, neighbours: int):
    run = run_of(d, n=60, num_neighbours=neighbours)

    for view, at in itertools.product(small_views(run), (0, 1, len(run.trace) - 1)):
        layers = view.data(run, at)
        assert all(np.isfinite(frame.select_dtypes("number").to_numpy()).all() for frame in layers.values())
        assert view.plot(layers) is not None
    if neighbours > len(run.problem.train):
        layers = view_of(run, "near-rows").data(run, 0)
        assert layers["rows"].attrs["title"] == "Each row depends on all before it: an exact GP"
        assert all(layers[name].empty for name in ("chosen", "neighbours", "lines"))


def test_lines_lead_from_the_row_to_its_nearest_earlier_rows_and_become_shorter_along_the_order():
    run = run_of(num_neighbours=6)
    view, lengths = view_of(run, "near-rows"), []

    for view.place in (0.0, 0.5, 1.0):
        layers = view.data(run, len(run.trace) - 1)
        lines = layers["lines"].to_numpy()
        assert len(lines) == len(layers["neighbours"]) == 6
        assert (lines[:, :2] == layers["chosen"].to_numpy()).all()
        assert (lines[:, 2:] == layers["neighbours"].to_numpy()).all()
        lengths.append(np.linalg.norm(lines[:, 2:] - lines[:, :2], axis=1).mean())

    assert lengths[0] > 2.0 * lengths[2]
    assert layers["rows"].attrs["title"] == "row 180 of 180, 6 neighbours"


@pytest.mark.parametrize("d", [1, 2])
def test_the_factor_has_the_entries_of_its_rows_so_far_and_the_newest_row_is_on_the_map_in_the_corner(d: int):
    run = run_of(d, num_neighbours=6)
    view, map_view, n = view_of(run, "near-rows-factor"), view_of(run, "near-rows"), 180

    for view.place in (0.3, 1.0):
        map_view.place = view.place
        layers, on_map = view.data(run, len(run.trace) - 1), map_view.data(run, len(run.trace) - 1)
        entries, (at_corner, newest) = layers["entries"], layers["chosen"].to_numpy()
        i = int(newest[1])
        assert newest.tolist() == [i, i]
        assert (entries["x"] <= entries["y"]).all()
        assert entries["y"].max() == i
        assert set(entries.value_counts("y")[lambda each: each.index > 7]) == {7}  # six neighbours, and itself
        assert 60 * (0.3 if view.place < 1.0 else 1.0) < entries["y"].nunique() <= 120 + 7
        assert f"; {21 + 6 * (i - 7):,} of {i * (i - 1) // 2:,} entries so far" in layers["rows"].attrs["title"]
        neighbours = layers["neighbours"].to_numpy()
        assert set(map(tuple, neighbours[6:])) == set(map(tuple, entries[entries["y"] == i].to_numpy()[:6]))
        assert (layers["rows"]["x"] > layers["rows"]["y"]).all()  # in the empty half
        assert np.argsort(layers["rows"]["x"]).tolist() == np.argsort(on_map["rows"]["x"]).tolist()
        assert at_corner.tolist() == layers["lines"][["x0", "y0"]].to_numpy()[0].tolist()
        low, high = on_map["rows"].min().to_numpy(), on_map["rows"].max().to_numpy()
        for name in ("rows", "lines", "neighbours", "chosen"):
            points = on_map[name].to_numpy().reshape(-1, 2)
            corner = n * (np.array([0.56, 0.03]) + 0.41 * (points - low) / (high - low))
            np.testing.assert_allclose(layers[name].to_numpy().reshape(-1, 2)[: len(points)], corner)
        place = round(view.place * (n - 8))  # of the rows that do not depend on all before them
        assert entries["y"].nunique() == 7 + len({*range(0, place, 2), place})  # every second, so that one sees gaps
        triangle = {(j, k) for k in range(1, 8) for j in range(1, k + 1)}
        assert set(map(tuple, entries[entries["y"] <= 7].to_numpy())) == triangle
        assert layers["diagonal"].to_numpy().tolist() == [[1, 1], [n, n]]
    assert i == n


def test_the_factor_has_as_many_entries_as_the_story_says():
    data = {"name": "sin-product", "n": 600}
    run = Spec("vecchia", {"num_neighbours": 10}, data=data, kernel="matern32").open()
    run.finish(steps=1)
    view = view_of(run, "near-rows-factor")
    view.place = 1.0
    assert "5,345 of 145,530 entries" in view.data(run, 1)["rows"].attrs["title"]


def test_what_is_unexplained_falls_from_the_prior_to_above_the_noise():
    run = run_of(1, num_neighbours=8)
    theta = run.trace[-1].step.state.theta

    layers = view_of(run, "near-rows-sd").data(run, len(run.trace) - 1)

    sd = 10.0 ** layers["rows"]["y"].to_numpy()
    noise = math.exp(float(theta[-1]))
    assert (sd > noise).all()
    assert (sd**2 < math.exp(2.0 * float(theta[0])) + noise**2 + 1e-12).all()
    median = layers["median"]["y"].to_numpy()
    assert median[0] > median[-1]
    assert layers["noise"]["y"].tolist() == pytest.approx([math.log10(noise)] * 2)


@cache
def one_input() -> Run:
    return run_of(1, n=60, num_neighbours=5)


def with_near_rows(places: list[int], neighbours: list[list[int]], sd: list[float]) -> Any:
    """What a picture reads of a run whose rows depend on each other like this, in the reverse order of the file."""
    run = one_input()
    near = NearRows(torch.arange(len(run.problem.train)).flip(0), *map(torch.tensor, (places, neighbours, sd)))
    return SimpleNamespace(method=SimpleNamespace(near_rows=lambda *_: near), problem=run.problem, trace=run.trace[-1:])


@pytest.mark.parametrize(("place", "chosen"), [(0.0, 0), (0.24, 0), (0.26, 1), (0.74, 1), (0.76, 2), (1.0, 2)])
def test_the_row_at_a_place_and_its_one_neighbour_are_where_their_targets_are(place: float, chosen: int):
    run, view = with_near_rows([2, 5, 7], [[1], [3], [4]], [1.0] * 3), view_of(one_input(), "near-rows")
    train, n = run.problem.train, len(run.problem.train)
    view.place = place

    layers = view.data(run, 0)

    x, y = train.X[:, 0] * train.scale.x_sd + train.scale.x_mean, train.y * train.scale.y_sd + train.scale.y_mean
    row, neighbour = (n - 1 - each[chosen] for each in ([2, 5, 7], [1, 3, 4]))
    ends = [float(values[k]) for k in (row, neighbour) for values in (x, y)]
    np.testing.assert_allclose(layers["lines"].to_numpy(), [ends])
    assert layers["rows"].attrs["title"] == f"row {[3, 6, 8][chosen]} of {n}, 1 neighbour"
    assert not layers["rows"].attrs["map"]


@pytest.mark.parametrize("count", [1, 12, 29])
def test_the_median_of_what_is_unexplained_is_that_of_twelve_groups_by_place(count: int):
    sd = np.random.default_rng(0).uniform(0.3, 2.0, count + 1)
    sd[count // 2] = np.nan  # where no number is known
    places = np.arange(5, 6 + count)
    run = with_near_rows(places.tolist(), [[0]] * len(places), sd.tolist())

    layers = view_of(one_input(), "near-rows-sd").data(run, 0)

    x, y = np.log10(places[np.isfinite(sd)] + 1), np.log10(sd[np.isfinite(sd)])
    np.testing.assert_allclose(layers["rows"], np.column_stack([x, y]), rtol=1e-6)
    groups = np.array_split(np.arange(count), min(count, 12))
    medians = [[np.median(x[group]), np.median(y[group])] for group in groups]
    np.testing.assert_allclose(layers["median"], medians, rtol=1e-6)
    assert layers["noise"]["x"].tolist() == [x[0], x[-1]]


def filter_of(place: float, n: int = 50, gap: float = 4.0) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(100.0, 110.0, n))
    x[n // 2 :] += gap
    y = 50.0 + np.sin(x) + 0.1 * random.normal(size=n)
    run = Spec("states", {"learn": False}, kernel="matern32").open(data=(x[:, None], y))
    run.finish()
    view = view_of(run, "filter")
    view.place = place
    return run, view.data(run, len(run.trace) - 1), x, y


def test_the_band_of_a_filter_is_that_of_a_gp_on_the_rows_so_far():
    run, layers, _, _ = filter_of(0.5)
    band, theta, scale = layers["filter"], run.problem.theta, run.problem.train.scale
    X, targets = run.problem.train.X, run.problem.train.y
    order = X[:, 0].argsort()

    for row in (3, 11, 20):
        at = X[order[row]][None]
        train = run.problem.train.rows(order[: row + 1])
        mean, var = exact_gp_posterior(run.problem.kernel, theta, train)(at)[:2]
        ends = [float(mean + k * var.sqrt()) * scale.y_sd + scale.y_mean for k in (-2, 2)]
        nearest = band.iloc[(band["x"] - float(at * scale.x_sd + scale.x_mean)).abs().argmin()]
        assert [nearest["lower"], nearest["upper"]] == pytest.approx(ends, abs=1e-4)
    assert len(targets) == len(layers["seen"]) + len(layers["ahead"])
    x = np.sort(X[:, 0] * scale.x_sd + scale.x_mean)
    room = 0.04 * (x[-1] - x[0])
    assert [band["x"].iloc[0], layers["forecast"]["x"].iloc[-1]] == pytest.approx([x[0] - room, x[-1] + room])
    later = layers["forecast"].iloc[-1]  # what the rows until now say about the last place that is drawn
    place = torch.tensor([[(later["x"] - scale.x_mean) / scale.x_sd]])
    mean, var = exact_gp_posterior(run.problem.kernel, theta, run.problem.train.rows(order[:23]))(place)[:2]
    ends = [float(mean + k * var.sqrt()) * scale.y_sd + scale.y_mean for k in (-2, 0, 2)]
    assert [later["lower"], layers["mean"]["y"].iloc[-1], later["upper"]] == pytest.approx(ends, rel=1e-5)
    assert layers["mean"].attrs["title"] == "23 of 45 rows seen"
    assert layers["seen"]["x"].max() <= band["x"].max() < layers["forecast"]["x"].min()


def test_the_band_opens_in_a_gap_and_ahead():
    _, layers, x, _ = filter_of(0.9)
    band = layers["filter"].assign(width=lambda each: each["upper"] - each["lower"])
    in_gap = band[band["x"].between(x[24] + 1.5, x[25] - 0.1)]

    last = layers["seen"]["x"].max()
    right_before = band[band["x"] < last - 1e-8].iloc[-1]
    assert last - right_before["x"] < 1e-5  # where the band closes at once
    assert right_before["width"] > 1.05 * band["width"].iloc[-1]
    assert in_gap["width"].min() > 2.0 * band[band["x"].between(x[15], x[24])]["width"].median()
    assert in_gap["width"].is_monotonic_increasing
    ahead = layers["forecast"]["upper"] - layers["forecast"]["lower"]
    assert ahead.is_monotonic_increasing


def test_bands_and_rows_share_an_axis_where_the_input_is_a_logarithm():
    x = np.geomspace(0.01, 5000.0, 60)
    spec = Spec("states", {"learn": False}, kernel="matern32", input_transform="log")
    run = spec.open(data=(x[:, None], np.log(x)))
    run.finish()
    layers = view_of(run, "filter").data(run, len(run.trace) - 1)

    assert run.problem.train.scale.x_log is not None
    rows = np.concatenate([layers["seen"]["x"], layers["ahead"]["x"]])
    places = np.concatenate([layers["filter"]["x"], layers["forecast"]["x"]])
    assert all(np.abs(places / row - 1.0).min() < 1e-6 for row in rows)
    seen = layers["seen"]
    on_rows = np.interp(seen["x"], layers["all"]["x"], layers["all"]["y"])
    np.testing.assert_allclose(on_rows, seen["y"], atol=1.5)  # of targets from -4.6 to 8.5


@pytest.mark.parametrize("place", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n", [8, 300])
def test_the_filter_can_be_drawn_at_any_place(place: float, n: int):
    run, layers, _, _ = filter_of(place, n)

    assert all(np.isfinite(frame.to_numpy()).all() for frame in layers.values())
    rows = len(run.problem.train)
    now = round(place * (rows - 1))
    assert [len(layers["seen"]), len(layers["ahead"])] == [min(now, 60) + 1, min(rows - 1 - now, 25)]
    assert layers["mean"].attrs["title"] == f"{now + 1:,} of {rows:,} rows seen"
    assert view_of(run, "filter").plot(layers) is not None
    assert views.for_run(run)[0].key in ("filter", "fit")
