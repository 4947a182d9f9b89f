"""Pictures as data frames in the units of the file, and figures that update without being drawn again."""

from __future__ import annotations

from functools import cache

import holoviews as hv
import numpy as np
import pandas as pd
import pytest
import torch
from bokeh.document import Document
from bokeh.document.events import ColumnDataChangedEvent
from bokeh.models import ColorBar, ColumnDataSource

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.views.base import layer, registry
from gpexplorer.views.drawing.live import Drawing, Live
from gpexplorer.views.runs.comparison_charts import Lanes

DATA = {1: {"name": "snelson-like", "n": 60}, 2: {"name": "sin-product", "n": 60}, 5: {"name": "hypercube", "n": 60}}


@cache
def played(d: int = 1, steps: int = 25):
    """A run that pictures are made of, and that no test changes."""
    run = gpx.Spec(method="cholqr", settings={"num_inducing": 6}, data=DATA[d], kernel="se-ard").open()
    for _ in range(steps + 1):
        run.advance()
    run.scores()
    return run


def view(run, key: str) -> views.View:
    return next(view for view in views.for_run(run) if view.key == key)


@pytest.mark.parametrize(("d", "theme"), [(1, "dark"), (2, "light"), (5, "light")])
def test_every_view_draws_its_start_and_follows_without_redrawing(d: int, theme: str) -> None:
    run = played(d)
    pictures = views.for_run(run)
    assert {"fit", "convergence", "landscape", "terms", "hyperparameters", "calibration"} <= {v.key for v in pictures}
    for picture in pictures:
        live = Live(picture, picture.data(run, 0), theme)
        figure, sources = live.figure, set(live.figure.select({"type": ColumnDataSource}))
        last = picture.data(run, 25)
        live.update(last)
        assert live.figure is figure
        assert set(figure.select({"type": ColumnDataSource})) == sources
        named = {source.name: source for source in sources if source.name}
        assert set(last) <= set(named)
        for name, frame in last.items():
            if len(frame) and {"x", "y"} <= set(frame) and not named[name].data.get("image"):
                for column in "xy":  # long columns are rounded to what can be seen
                    difference = np.abs(named[name].data[column] - frame[column])
                    assert difference.max() <= 3.1e-5 * np.ptp(frame[column])
        assert figure.xaxis[0].axis_label
        assert figure.yaxis[0].axis_label


def test_the_line_and_the_dots_of_one_layer_move_together() -> None:
    run = gpx.Spec("gpcv-admm", {"max_iterations": 6}, {"name": "hypercube", "n": 40, "d": 2}).open()
    run.finish()
    curves = view(run, "admm-curves")
    live = Live(curves, curves.data(run, 2))

    live.update(curves.data(run, run.done))

    shown = [source.data["x"] for source in live.figure.select({"type": ColumnDataSource}) if source.name == "curve"]
    assert len(shown) == 2
    assert (
        len(shown[0]) == len(shown[1]) == len(curves.data(run, run.done)["curve"]) > len(curves.data(run, 2)["curve"])
    )


def test_only_columns_that_changed_are_sent_and_long_ones_are_rounded_where_nobody_sees_it() -> None:
    run = played()
    fit = view(run, "fit")
    live = Live(fit, fit.data(run, 3))
    page = Document()
    page.add_root(live.figure)
    live.update(fit.data(run, 3))
    sent: list[ColumnDataChangedEvent] = []
    page.on_change(lambda event: sent.append(event) if isinstance(event, ColumnDataChangedEvent) else None)

    live.update(fit.data(run, 3))
    assert sent == []
    live.update(fit.data(run, 4))

    columns = {event.model.name: set(event.cols or event.model.data) for event in sent}
    assert columns["mean"] == {"y"}
    assert "x" not in columns["train"]
    assert "test" not in columns
    mean = fit.data(run, 4)["mean"]["y"].to_numpy()
    shown = next(event.model.data["y"] for event in sent if event.model.name == "mean")
    assert shown.dtype == np.float32
    assert 0 < np.abs(shown - mean).max() <= 3.1e-5 * np.ptp(mean)


@pytest.mark.parametrize("offset", [0.0, 3.0, 1e9])
def test_a_rounded_column_is_that_of_its_own_range_also_far_from_the_origin(offset: float) -> None:
    values = offset + np.sin(np.arange(200.0))
    values[[7, 8]] = np.nan, np.inf
    frame = pd.DataFrame({"x": np.arange(200.0), "y": values})
    frame.attrs |= {"xlabel": "x", "ylabel": "y"}
    lanes = Lanes(["line"], "snlp")
    live = Live(lanes, {"line": frame.assign(y=0.0)})

    live.update({"line": frame})

    source, dots = (s for s in live.figure.select({"type": ColumnDataSource}) if s.name == "line")
    assert np.array_equal(source.data["y"], dots.data["y"], equal_nan=True)  # a lane with one score is a dot
    finite = np.isfinite(values)
    assert np.abs(source.data["y"][finite] - values[finite]).max() <= 4e-5
    assert np.isnan(source.data["y"][7])
    assert np.isinf(source.data["y"][8])


def test_a_layer_without_rows_is_named_only_while_it_is_drawn() -> None:
    run = played()
    fit = view(run, "fit")
    layers = fit.data(run, 0)
    assert layers["proposed"].empty  # nothing is swapped at the start

    live = Live(fit, layers | {"test": layers["test"][:0]})

    sources = {source.name: source for source in live.figure.select({"type": ColumnDataSource})}
    assert all(np.isnan(sources[name].data["x"]).tolist() == [True] for name in ("proposed", "test"))
    assert "test" not in [entry.label for entry in live.legend]
    swapped = next(result for result in (fit.data(run, at) for at in range(26)) if len(result["proposed"]))
    live.update(swapped)
    assert np.isfinite(sources["proposed"].data["x"]).all()
    assert "test" in [entry.label for entry in live.legend]
    live.update(layers)
    assert np.isnan(sources["proposed"].data["x"]).tolist() == [True]


def test_steps_are_counted_in_whole_numbers() -> None:
    run = played()
    shown = view(run, "convergence")
    assert Live(shown, shown.data(run, 3)).figure.xaxis[0].ticker.min_interval == 1
    shown.against = "seconds"
    assert Live(shown, shown.data(run, 3)).figure.xaxis[0].ticker.min_interval == 0


def test_the_curve_is_drawn_in_the_units_of_the_file() -> None:
    x = np.linspace(0.0, 6.0, 60)
    near = pd.DataFrame({"x": x, "height": np.sin(2 * x)})
    far = pd.DataFrame({"x": 100.0 * x + 5000.0, "height": 30.0 * np.sin(2 * x) - 700.0})
    frames = []
    for frame in (near, far):
        run = gpx.Spec(method="cholqr", settings={"num_inducing": 6}, kernel="se", dtype="float64").open(data=frame)
        for _ in range(20):
            run.advance()
        layers = view(run, "fit").data(run, 19)
        assert (layers["mean"].attrs["xlabel"], layers["mean"].attrs["ylabel"]) == ("x", "height")
        inducing = run.trace[19].step.state.inducing.numpy()
        split = gpx.data.load(frame)
        assert np.allclose(layers["inducing"]["x"], split.train.X[inducing, 0])
        assert np.allclose(np.sort(layers["test"]["y"]), np.sort(split.test.y))
        prediction = run.posterior(19, of="y")(torch.tensor(layers["mean"]["x"].to_numpy())[:, None])
        band = layers["band_y"]
        assert np.allclose(layers["mean"]["y"], prediction.mean)
        assert np.allclose(band["upper"] - band["lower"], 4 * prediction.var.sqrt())
        assert (layers["band_f"]["upper"] <= band["upper"]).all()
        x, y = split.train.X[:, 0].numpy(), split.train.y.numpy()
        room = 0.06 * float(x.max() - x.min())
        np.testing.assert_allclose(layers["mean"]["x"], np.linspace(x.min() - room, x.max() + room, 240))
        np.testing.assert_allclose(layers["inducing"]["y"], y.min() - 0.12 * (y.max() - y.min()))
        room = 0.25 * float(y.max() - y.min())
        ends = min(y.min() - room, layers["mean"]["y"].min()), max(y.max() + room, layers["mean"]["y"].max())
        assert layers["mean"].attrs["extent"] == pytest.approx(tuple(map(float, ends)))
        predicted = np.interp(layers["train"]["x"], layers["mean"]["x"], layers["mean"]["y"])
        np.testing.assert_allclose(layers["train"]["residual"], layers["train"]["observed"] - predicted)
        frames.append(layers["mean"])
    assert np.allclose(frames[1]["y"], 30.0 * frames[0]["y"] - 700.0, atol=1e-4)
    assert np.allclose(frames[1]["x"], 100.0 * frames[0]["x"] + 5000.0)


@pytest.mark.parametrize("shift", [0.0, 5e3])
def test_sample_paths_are_the_same_functions_at_every_drawing_and_stay_near_the_bands(shift: float) -> None:
    x = np.linspace(0.0, 6.0, 60)
    run = gpx.Spec(method="cholqr", settings={"num_inducing": 6}, kernel="se").open(
        data=pd.DataFrame({"x": x + shift, "height": np.sin(2 * x) - shift})
    )
    for _ in range(12):
        run.advance()
    fit = view(run, "fit")
    assert "paths" not in fit.data(run, 11)
    fit.paths = 6

    layers = fit.data(run, 11)

    paths = layers["paths"]["y"].to_numpy().reshape(6, -1)
    assert np.isnan(paths[:, -1]).all()
    assert np.isfinite(paths[:, :-1]).all()
    assert np.allclose(paths, fit.data(run, 11)["paths"]["y"].to_numpy().reshape(6, -1), equal_nan=True)
    band = layers["band_f"]
    inside = (paths[:, :-1] > band["lower"].to_numpy()) & (paths[:, :-1] < band["upper"].to_numpy())
    assert 0.75 < inside.mean() < 1.0
    assert np.ptp(paths[:, 120]) > 0.1 * float((band["upper"] - band["lower"])[120])
    Live(fit, layers).update(fit.data(run, 5))


@pytest.mark.parametrize("shift", [0.0, 5e3])
def test_a_second_band_is_joint_or_that_of_some_rows(shift: float) -> None:
    x = np.linspace(0.0, 6.0, 60)
    frame = pd.DataFrame({"x": x + shift, "height": np.sin(2 * x) - shift})
    kernel = {"name": "se", "theta": [0.0, -1.2, -1.5]}
    run = gpx.Spec(method="cholesky", settings={"learn": False}, kernel=kernel).open(data=frame)
    run.finish()
    fit = view(run, "fit")
    assert "second" not in fit.data(run, 1)

    width: dict[str, pd.Series] = {}
    for fit.band in ("joint", "some rows"):
        layers = fit.data(run, 1)
        lower, upper = layers["second"]["y"].to_numpy().reshape(2, -1)[:, :-1]
        width[fit.band] = (upper - lower) / (layers["band_f"]["upper"] - layers["band_f"]["lower"])
        Live(fit, layers).update(fit.data(run, 1))

    assert np.ptp(width["joint"]) < 1e-9  # one factor for all inputs
    assert 1.3 < width["joint"].mean() < 2.2
    assert layers["second"].attrs["label"] == "± 2 sd of f, some rows"
    assert width["some rows"].min() > 1.0 - 1e-9
    assert width["some rows"].mean() > 1.2
    other = gpx.Spec(method="cholqr", settings={"num_inducing": 6}, kernel="se").open(data=frame)
    other.advance()
    assert not len(view(other, "fit").data(other, 0).get("second", ()))
    fit = view(other, "fit")
    fit.band = "some rows"
    assert not np.isfinite(fit.data(other, 0)["second"]["y"]).any()


def test_predictions_stand_at_their_observations_with_bars_of_y() -> None:
    layers = view(run := played(5), "fit").data(run, 20)
    test = run.split.test
    of_y = run.posterior(20, of="y")(test.X * test.scale.x_sd + test.scale.x_mean)
    mean, sd, y = of_y.mean, of_y.var.sqrt(), test.y * test.scale.y_sd + test.scale.y_mean
    np.testing.assert_allclose(layers["points"], np.column_stack([y, mean]), rtol=1e-4)
    np.testing.assert_allclose(layers["bars"], np.column_stack([y, mean - 2 * sd, y, mean + 2 * sd]), rtol=1e-4)
    assert layers["bars"].attrs["loose"]  # some may leave the axes, but most do not:
    axis, ends = Live(view(run, "fit"), layers).figure.y_range, np.median(layers["bars"][["y0", "y1"]], axis=0)
    assert axis.start < ends[0] < ends[1] < axis.end
    np.testing.assert_allclose(layers["equal"], [[float(end)] * 2 for end in (y.min(), y.max())], rtol=1e-5)


def test_a_map_reaches_a_little_beyond_its_rows_and_shows_mean_or_sd() -> None:
    run = played(2)
    fit, train = view(run, "fit"), run.problem.train
    X = (train.X * train.scale.x_sd + train.scale.x_mean).numpy()
    room = 0.04 * np.ptp(X, axis=0)
    for fit.show in ("sd", "mean"):
        frame, train_rows = (fit.data(run, 20)[name] for name in ("map", "train"))
        np.testing.assert_allclose(train_rows[["x", "y"]], X)
        prediction = run.posterior(20)(torch.tensor(frame[["x", "y"]].to_numpy()))
        expected = prediction.mean if fit.show == "mean" else prediction.var.sqrt()
        np.testing.assert_allclose(frame["value"], expected, rtol=1e-4)
        np.testing.assert_allclose(frame[["x", "y"]].min(), X.min(0) - room, rtol=1e-5)
        np.testing.assert_allclose(frame[["x", "y"]].max(), X.max(0) + room, rtol=1e-5)


def test_convergence_against_each_axis_is_the_table() -> None:
    run = played()
    shown, table = view(run, "convergence"), run.table()
    for against, column in [("step", "index"), ("seconds", "seconds"), ("entries", "entries")]:
        shown.against, shown.channel = against, "objective"
        series = shown.data(run, 25)["series"]
        assert np.array_equal(series["x"], table[column])  # the start record reports none: it is computed
        assert np.array_equal(series["y"][1:], table["objective"][1:])
        assert series.attrs["ylabel"] == "objective F [nat]"
    shown.channel = "smse"
    assert shown.data(run, 25)["series"]["y"].iloc[-1] == pytest.approx(run.scores()["smse"])


def test_convergence_offers_the_objective_with_its_priors() -> None:
    kernel = {"name": "se", "priors": {"noise": "lognormal(0, 0.1)"}}
    view, run = registry["convergence"](), gpx.Spec("ml", data="snelson-like", kernel=kernel).open()
    run.finish(steps=5)
    assert view.applies(run)
    title = view.data(run, 5)["series"].attrs["title"]
    assert "of the data alone" in title
    view.channel = "map_objective"
    series, table = view.data(run, 5)["series"], run.table()
    assert series["y"].tolist() == table["map_objective"].dropna().tolist()
    assert series["y"].tolist() == pytest.approx((table["objective"] - table["log_prior"]).dropna().tolist())
    assert "MAP" in series.attrs["ylabel"]
    plain = gpx.Spec("ml", data="snelson-like", kernel="se").open()
    plain.finish(steps=2)
    assert view.applies(plain)
    assert view.channel == "objective"


def test_terms_add_up_and_paths_are_theta() -> None:
    run = played(2)
    table = run.table()
    assert np.allclose(table["fit"] + table["logdet"] + table["trace"], table["objective"], equal_nan=True)
    layers = view(run, "terms").data(run, 25)
    assert layers["fit"]["y"].iloc[-1] == pytest.approx(table["fit"].iloc[-1] - table["fit"].iloc[1])
    paths = view(run, "hyperparameters").data(run, 25)
    assert list(paths) == list(run.problem.kernel.names)
    assert paths["noise"]["y"].iloc[-1] == pytest.approx(float(run.trace[-1].step.state.theta[-1].exp()))


def test_a_picture_that_leaves_out_lengthscales_says_so() -> None:
    run = gpx.Spec("cholqr", data={"name": "hypercube", "n": 40, "d": 12}, kernel="se-ard").open()
    run.finish(steps=1)
    layers = view(run, "hyperparameters").data(run, 1)
    count = len(run.problem.kernel.names)
    assert count > len(layers) == 10
    assert list(layers)[-1] == "noise"
    assert f"10 of {count} shown" in next(iter(layers.values())).attrs["ylabel"]
    assert list(layers)[:-1] == list(run.problem.kernel.names[:9])


def test_the_landscape_shows_the_rank_correlation() -> None:
    run = played(2, steps=3)
    layers = view(run, "landscape").data(run, 3)
    exact = layers["exact"]
    assert len(exact) == 54 - 6
    rank = exact["approx"].corr(exact["exact"], method="spearman")
    assert f"rank correlation {rank:.2f}" in exact.attrs["title"]
    at_pivots = layers["pivots"]
    assert np.allclose(at_pivots["approx"], at_pivots["exact"], atol=1e-3)  # the score of a pivot is exact


def test_swaps_are_the_accepted_ones() -> None:
    run = played(5)
    moves = view(run, "swaps").data(run, 25)["moves"]
    accepted = [r for r in run.trace if r.step.info.accepted]
    assert len(moves) == len(accepted) > 0


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    run = played()
    shown = view(run, "hyperparameters")
    assert Live(shown, shown.data(run, 3)).figure.yaxis[0].formatter.format == "%.3g"


def test_ticks_are_written_in_full_where_people_read_them_and_as_powers_beyond() -> None:
    run = played()
    shown = view(run, "convergence")
    formatter = Live(shown, shown.data(run, 3)).figure.yaxis[0].formatter
    assert (formatter.use_scientific, formatter.power_limit_low, formatter.power_limit_high) == (True, -5, 7)


def test_a_landscape_of_equal_values_has_no_rank_correlation_in_its_title() -> None:
    run = gpx.Spec("cholqr", data="snelson-like").open()
    run.finish(steps=1)
    landscape = view(run, "landscape")
    assert "nan" not in landscape.data(run, 0)["exact"].attrs["title"]


def test_small_numbers_stay_on_a_logarithmic_axis_when_the_picture_is_updated():
    def curve(layers: dict[str, pd.DataFrame]) -> hv.Curve:
        return layer(hv.Curve(layers["line"], "x", "y"), "line").opts(logy=True)

    def frame(last: int) -> dict[str, pd.DataFrame]:
        x = np.arange(100.0)
        return {"line": pd.DataFrame({"x": x, "y": 10.0 ** (-last * x / 99)})}

    live = Live(Drawing(curve), frame(2))
    live.update(frame(9))

    shown = live.figure.select_one({"name": "line"}).data["y"]
    np.testing.assert_allclose(shown, frame(9)["line"]["y"], rtol=1e-5)


def test_the_colour_bar_of_a_map_lies_below_it_and_that_of_another_picture_beside_it() -> None:
    run = played(2, 3)
    grief = gpx.Spec("grief", {"num_eigenfunctions": 9}, data=DATA[2], kernel="se").open()
    grief.advance()
    for of_run, key, place in (
        (run, "fit", "below"),
        (run, "landscape", "below"),
        (grief, "grief-covariance", "right"),
    ):
        picture = view(of_run, key)
        figure = Live(picture, picture.data(of_run, len(of_run.trace) - 1)).figure
        (bar,) = figure.select({"type": ColorBar})
        assert [bar in getattr(figure, side) for side in ("below", "right")] == [place == "below", place == "right"]


def test_a_line_of_one_point_is_nothing_to_draw():
    run = played(steps=1).fork(0)
    learned = {"terms", "hyperparameters"}

    assert learned <= {picture.key for picture in views.for_run(run)}
    for key in learned:
        assert not any(map(len, view(run, key).data(run, 0).values()))
    frames = view(played(steps=1), "hyperparameters").data(played(steps=1), 1)
    assert {len(frame) for frame in frames.values()} == {2}
