"""The prediction and the data: where marks and lines lie for odd inputs, and what is said of the rows shown."""

from __future__ import annotations

from types import SimpleNamespace

import holoviews as hv
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binom

import gpexplorer as gpx
from gpexplorer.errors import PosteriorError
from gpexplorer.problem import Dataset
from gpexplorer.runs import Run
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.drawing.run_rows import sampled
from gpexplorer.views.runs import calibration
from gpexplorer.views.runs.prediction import Fit

hv.extension("bokeh")


def opened(X: np.ndarray, y: np.ndarray, method: str = "cholesky", steps: int = 1, **settings: object) -> Run:
    """A run whose training and test rows are these rows."""
    rows = Dataset(torch.as_tensor(X), torch.as_tensor(y))
    split = gpx.data.Split(rows, rows, name="rows")
    run = gpx.Spec(method, settings or {"learn": False}, kernel="se", dtype="float64").open(data=split)
    run.finish(steps=steps)
    return run


@pytest.mark.parametrize("place", [0.0, 7000.0])
def test_a_single_place_and_a_single_target_have_room_of_one_unit_around_them(place: float):
    run = opened(np.full((5, 1), place), np.full(5, place))

    mean = Fit().data(run, 1)["mean"]

    np.testing.assert_allclose(mean["x"].iloc[[0, -1]], [place - 0.06, place + 0.06])
    np.testing.assert_allclose(mean.attrs["extent"], [place - 0.25, place + 0.25])


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_title_says_how_many_points_there_are_where_the_kernel_tells_fewer_rows_apart_than_asked_for(d: int):
    rng = np.random.default_rng(2)
    rows = Dataset(torch.tensor(rng.random((60, d)) + 7.0), torch.tensor(rng.standard_normal(60)))
    for lengthscale, is_said in ((200.0, True), (0.02, False)):
        kernel = {"name": "se", "values": {"lengthscale": lengthscale}, "fixed": ["*"]}
        run = gpx.Spec("cholqr", {"num_inducing": 25}, kernel=kernel).open(data=gpx.data.Split(rows, rows, name="rows"))
        run.finish(steps=2)

        layers = Fit().data(run, 2)

        used = len(run.trace[2].step.state.inducing)
        said = f"{used} inducing points, not 25: other rows differ from them by rounding only"
        title = layers[{1: "mean", 2: "map", 3: "points"}[d]].attrs.get("title", "")
        assert title.endswith(said) == is_said == (used < 25)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_curve_goes_on_as_far_as_test_rows_do_but_not_beyond_one_range_of_training_rows(sign: float):
    """As for rows in the order of time, whose errors are about what comes after the training rows."""
    x = sign * np.linspace(100.0, 110.0, 50)
    for last, ends in ((116.0, (99.4, 116.6)), (1000.0, (99.4, 120.6)), (105.0, (99.4, 110.6))):
        later = sign * np.linspace(104.0, last, 9)
        rows = [Dataset(torch.tensor(x_[:, None]), torch.tensor(0.2 * abs(x_))) for x_ in (x, later)]
        run = gpx.Spec("cholesky", {"learn": False}, kernel="se").open(data=gpx.data.Split(*rows, name="rows"))
        run.finish(steps=1)

        layers = Fit().data(run, 1)

        grid, mean = layers["mean"]["x"], layers["mean"]
        np.testing.assert_allclose(sorted(abs(grid.iloc[[0, -1]])), ends)
        assert np.diff(grid) == pytest.approx(11.2 / 239, rel=0.01)
        assert len(layers["band_y"]) == len(grid)
        shown = layers["test"]["y"][layers["test"]["x"].between(grid.min(), grid.max())]
        assert mean.attrs["extent"][1] == pytest.approx(max(22.5, shown.max(), mean["y"].max()))


@pytest.mark.parametrize("place", [0.0, 7000.0])
def test_a_map_of_a_single_place_has_room_of_one_unit_and_a_colour_scale(place: float):
    run = opened(np.full((5, 2), [place, 3.0]), np.full(5, place))
    fit = Fit()

    for fit.show, colours in (("mean", (place, place + 1.0)), ("sd", (0.0, 1.0))):
        frame = fit.data(run, 1)["map"]
        assert frame.attrs["colours"] == colours
        np.testing.assert_allclose(frame[["x", "y"]].agg(["min", "max"]), [[place - 1, 2.0], [place + 1, 4.0]])


def test_the_colours_of_a_map_span_the_targets_but_for_one_percent_at_each_end():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(60) ** 3
    run, fit = opened(rng.random((60, 2)), y), Fit()

    attrs = fit.data(run, 1)["map"].attrs
    fit.show = "sd"

    assert attrs["colours"] == pytest.approx(tuple(np.quantile(y, [0.01, 0.99])))
    assert [attrs[axis] for axis in ("xlabel", "ylabel")] == ["x1", "x2"]
    assert fit.data(run, 1)["map"].attrs["colours"] == pytest.approx((0.0, y.std()))


@pytest.mark.parametrize("d", [1, 2])
def test_the_row_under_the_pointer_shows_its_target_its_prediction_and_the_nearest_inducing_row(d: int):
    rng = np.random.default_rng(1)
    X, y = 5.0 * rng.random((40, d)) + 20.0, rng.standard_normal(40)
    run = opened(X, y, "cholqr", steps=4, num_inducing=4, learn=False)

    layers = Fit().data(run, 4)

    inducing = run.trace[4].step.state.inducing.numpy()
    train = layers["train"]
    np.testing.assert_array_equal(train["row"], np.arange(40))
    np.testing.assert_allclose(train["observed"], y)
    np.testing.assert_allclose(train["predicted"], run.posterior(4).mean(torch.tensor(X)), atol=1e-3)
    np.testing.assert_allclose(train["residual"], y - train["predicted"])
    unit = 1.0 if d == 1 else np.ptp(X, axis=0)
    distances = np.sqrt(np.square((X[:, None] - X[inducing]) / unit).sum(-1))
    np.testing.assert_array_equal(train["nearest"][inducing], inducing)
    to_nearest = distances[np.arange(40), [list(inducing).index(k) for k in train["nearest"]]]
    np.testing.assert_allclose(train["away" if d == 1 else "apart"], to_nearest)
    np.testing.assert_allclose(np.sort(layers["inducing"]["x"]), np.sort(X[inducing, 0]))


def test_a_swap_is_shown_by_the_row_that_is_taken_out_and_the_one_that_is_proposed():
    rng = np.random.default_rng(1)
    X, y = rng.random((40, 1)), rng.standard_normal(40)
    run = opened(X, y, "cholqr", steps=30, num_inducing=4, learn=False)

    for at, record in enumerate(run.trace):
        layers, info = Fit().data(run, at), record.step.info
        for name in ("removed", "proposed"):
            row = getattr(info, name)
            assert layers[name]["x"].tolist() == ([] if row < 0 else [X[row, 0]])
            np.testing.assert_allclose(layers[name]["y"], y.min() - 0.12 * np.ptp(y))
        swap = ("★ has replaced ▼" if info.accepted else "★ was tried in place of ▼, and rejected") * (
            info.removed >= 0
        )
        live = Live(Fit(), layers)
        assert live.caption == swap  # in place of entries of the legend
        assert [entry.label for entry in live.legend][-1] == "inducing"
    assert {record.step.info.accepted for record in run.trace if record.step.info.removed >= 0} == {True, False}


def test_a_posterior_without_functions_has_no_sample_paths(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(1)
    run = opened(rng.random((9, 1)), rng.standard_normal(9))
    fit = Fit(paths=2)
    assert len(fit.data(run, 1)["paths"]) == 2 * 241  # a gap after each

    def fail(*_: object) -> None:
        raise PosteriorError("It has means and variances only.")

    monkeypatch.setattr(type(run.posterior(1)), "paths", fail)
    assert fit.data(run, 1)["paths"].empty


def test_points_that_are_no_rows_are_numbered_from_one():
    rng = np.random.default_rng(1)
    run = opened(rng.random((30, 1)), rng.standard_normal(30), "sgpr", num_inducing=3)

    nearest = Fit().data(run, 1)["train"]["nearest"]

    assert set(nearest) == {1, 2, 3}


def test_without_test_rows_the_targets_are_those_of_the_training_rows():
    rng = np.random.default_rng(2)
    X, y = rng.random((30, 3)), rng.standard_normal(30)
    rows, none = Dataset(torch.tensor(X), torch.tensor(y)), Dataset(torch.empty(0, 3), torch.empty(0))
    for test, words, label in ((none, "", "training rows"), (rows, ", observed on test rows", "test rows")):
        spec = gpx.Spec("cholesky", {"learn": False}, kernel="se", dtype="float64")
        run = spec.open(data=gpx.data.Split(rows, test, name="rows"))
        run.advance()

        points = Fit().data(run, 0)["points"]

        np.testing.assert_allclose(points["x"], y)
        assert points.attrs["label"] == label
        assert points.attrs["xlabel"] == rows.target + words
    curve = opened(X[:, :1], y)
    assert len(Fit().data(curve, 1)["test"]) == 30


@pytest.mark.parametrize(("d", "shown"), [(1, 900), (3, 400)])
def test_the_title_counts_the_test_rows_outside_the_grid_among_those_that_are_shown(d: int, shown: int):
    rng = np.random.default_rng(3)
    X, y = rng.random((50, d)), rng.standard_normal(50)
    far = rng.random((900, d))
    far[::3, -1] += 40.0
    train = Dataset(torch.tensor(X), torch.tensor(y))
    test = Dataset(torch.tensor(far), torch.zeros(900, dtype=torch.float64))
    kernel = "se" if d == 1 else "se-ard"
    run = gpx.Spec("grief", {"num_eigenfunctions": 9}, kernel=kernel).open(data=gpx.data.Split(train, test, name="far"))
    run.advance()

    layers = Fit().data(run, 0)

    count = int((far[sampled(900, shown).numpy(), -1] > 20.0).sum())
    title = layers["mean" if d == 1 else "points"].attrs["title"]
    assert title == f"{count} of {shown} test rows lie outside the grid, where predictions go over to the prior"
    assert (len(layers["test"]) if d == 1 else len(layers["points"])) == shown


@pytest.mark.parametrize("rows", [7, 40])
def test_a_level_at_the_edge_of_the_band_of_chance_is_inside_it(rows: int):
    band = calibration.by_chance(rows)[1:-1]
    for end, sign in (("lower", -1), ("upper", 1)):
        at_edge = pd.DataFrame({"x": band["x"], "y": band[end]})
        assert calibration._outside(at_edge, rows) == 0
        assert calibration._outside(at_edge.assign(y=band[end] + sign / rows), rows) == len(band)
    counts = np.arange(rows + 1) / rows
    for level, lower, upper in band.to_numpy()[[0, 12, 24]]:
        below = binom.cdf(np.arange(rows + 1), rows, level)
        assert (lower, upper) == (counts[below >= 0.025].min(), counts[below >= 0.975].min())


def test_calibration_is_for_runs_with_test_rows_and_numbers_and_has_the_diagonal():
    rng = np.random.default_rng(2)
    run = opened(rng.random((30, 3)), rng.standard_normal(30))
    view = calibration.Calibration()
    assert view.applies(run)
    assert view.data(run, 1)["ideal"].to_numpy().tolist() == [[0, 0], [1, 1]]
    run.split = None
    assert not view.applies(run)
    for rows, applies in (([], False), ([1], True)):
        run.split = SimpleNamespace(test=rows)
        assert view.applies(run) == applies
    words = gpx.Spec("cholesky", data="words", kernel="spectrum").open(data=(["ab", "ba", "b"] * 3, torch.arange(9.0)))
    words.split = SimpleNamespace(test=[1])
    assert not view.applies(words)


def test_words_have_predicted_and_observed_targets():
    words = ["ab", "abc", "ba", "cab", "bca", "aab"] * 3
    y = torch.tensor([float(len(word)) for word in words], dtype=torch.float64)
    run = gpx.Spec("cholesky", {"learn": False}, data="words", kernel="spectrum").open(data=(words, y))
    run.advance()

    points = Fit().data(run, 0)["points"]

    assert set(points["x"]) == {2.0, 3.0}
    assert isinstance(points, pd.DataFrame)
