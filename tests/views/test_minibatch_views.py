"""The family's pictures draw and follow, and the microscope finds the bias where it is."""

from __future__ import annotations

import re
from functools import cache
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from bokeh.models import ColorBar, ColumnDataSource

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.methods.minibatches import gradient_spread as gradient_spread_module
from gpexplorer.methods.minibatches.exact_likelihood import exact_likelihood
from gpexplorer.methods.minibatches.gradient_spread import gradient_spread, likelihood_course
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.runs import Run
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.families import batch_sizes
from oracles_minibatches import method, problem

SETTINGS = {"width": 8, "batch_size": 16, "minibatches": 4, "evaluate_every": 2, "epochs": 6}


@cache
def played(key: str) -> Run:
    run = gpx.Spec(key, SETTINGS, data={"name": "hypercube", "n": 80, "d": 3, "noise": 0.2, "seed": 3}).open()
    run.finish(steps=8)
    return run


@pytest.mark.parametrize("key", ["scgd", "minimax"])
def test_every_picture_draws_its_start_and_follows(key: str):
    run = played(key)
    pictures = [picture for picture in views.for_run(run) if ".families." in picture.__module__]
    assert {picture.key.removeprefix("stochastic-") for picture in pictures} == {
        "estimate",
        "gap",
        "gradients",
        "batches",
        "features",
    }
    for picture in pictures:
        live = Live(picture, picture.data(run, 0))
        live.update(picture.data(run, len(run.trace) - 1))
        assert live.figure.xaxis[0].axis_label
        assert live.figure.yaxis[0].axis_label


def view(run: Run, key: str) -> views.View:
    return next(picture for picture in views.for_run(run) if picture.key == key)


def test_exact_points_are_the_likelihood_of_their_records():
    run = played("scgd")
    layers = view(run, "stochastic-estimate").data(run, len(run.trace) - 1)
    record = next(entry for entry in run.trace if entry.step.info.phase == "learn")

    with torch.no_grad():
        value = exact_likelihood(Model(run.method, run.problem, run.method.validation), record.step.state.theta).value

    assert layers["exact"]["y"].iloc[0] == pytest.approx(value)
    assert len(layers["estimate"]) >= len(layers["exact"]) > 1


def test_an_estimate_and_an_exact_value_at_the_same_epoch_are_of_the_same_theta():
    rows = {"name": "hypercube", "n": 60, "d": 2, "noise": 0.2, "seed": 3}
    run = gpx.Spec("full-batch", {"width": 8, "epochs": 6, "refit": "none"}, data=rows).open()
    run.finish(steps=6)
    layers = view(run, "stochastic-estimate").data(run, 6)
    exact = dict(zip(layers["exact"]["x"], layers["exact"]["y"], strict=True))
    estimates = dict(zip(layers["estimate"]["x"], layers["estimate"]["y"], strict=True))

    # The method is exact: at one theta both are the same number, and it moves by far more than rounding per epoch.
    assert list(estimates) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    for epoch in (1.0, 2.0, 3.0, 4.0, 5.0):
        assert estimates[epoch] == pytest.approx(exact[epoch], rel=1e-9)
        assert abs(exact[epoch] - exact[epoch + 1.0]) > 0.01


def test_the_estimate_of_several_minibatches_stands_in_the_middle_of_its_step():
    run = played("scgd")
    layers = view(run, "stochastic-estimate").data(run, len(run.trace) - 1)
    learned = [record.step for record in run.trace if record.step.info.phase == "learn"]
    ends = np.array([0, *(step.state.batches for step in learned)])
    per_epoch = learned[-1].state.batches / learned[-1].info.epoch

    middles = [np.mean(np.arange(begin, end)) / per_epoch for begin, end in pairwise(ends)]

    np.testing.assert_allclose(layers["estimate"]["x"], middles)


def test_the_features_are_centred_and_coloured_in_the_units_of_the_file():
    run = played("scgd")
    frame = view(run, "stochastic-features").data(run, 3)["rows"]
    scale = run.problem.train.scale
    assert scale is not None

    assert abs(frame["x"].mean()) < 1e-9
    assert frame["x"].var() >= frame["y"].var()
    expected = run.problem.train.y * scale.y_sd + scale.y_mean
    np.testing.assert_allclose(np.sort(frame["value"]), np.sort(expected))
    assert np.corrcoef(frame["x"], frame["value"])[0, 1] >= 0.0


def test_the_multiplier_is_drawn_where_the_gap_is_known():
    run = played("minimax")
    layers = view(run, "stochastic-gap").data(run, len(run.trace) - 1)
    sizes = [float(record.step.state.matrices[1].norm()) for record in run.trace if np.isfinite(record.step.info.gap)]

    np.testing.assert_allclose(10 ** layers["multiplier"]["y"], sizes)
    assert len(layers["gap"]) == len(layers["multiplier"]) > 1
    assert max(sizes) <= 1.0 + 1e-12
    run = played("scgd")
    assert view(run, "stochastic-gap").data(run, 3)["multiplier"].empty
    assert "press Play" in view(run, "stochastic-gap").data(run, 0)["gap"].attrs["title"]


def test_colours_follow_the_rows_that_are_shown():
    run = played("scgd")
    shown = view(run, "stochastic-features")
    live = Live(shown, shown.data(run, 0))

    live.update(shown.data(run, 3))

    source = next(
        source_of_layer
        for source_of_layer in live.figure.select({"type": ColumnDataSource})
        if source_of_layer.name == "rows"
    )
    exact = shown.data(run, 3)["rows"]["value"]
    np.testing.assert_allclose(source.data["color"], exact, rtol=0, atol=np.ptp(exact) / 2**16)  # rounded when sent
    assert len(live.figure.select({"type": ColorBar})) == 1


def test_smaller_batches_are_studied_from_the_start_and_only_once(monkeypatch: pytest.MonkeyPatch):
    run = played("scgd")
    shown = view(run, "stochastic-batches")
    shown.minibatches = 12
    before, after = shown.data(run, 0), shown.data(run, 5)

    assert "press Play" in before["minimax"].attrs["title"]
    assert before["panels"]["size"].tolist() == [8, 32]
    for key in ("minimax", "scgd", "bsgd"):
        assert before[key].empty
        assert after[key]["y"].isna().sum() == 2  # a line ends with its panel
    starts = {key: after[key].groupby(np.floor(after[key]["x"]))["y"].first() for key in ("scgd", "bsgd")}
    np.testing.assert_allclose(starts["scgd"], starts["bsgd"])
    assert starts["scgd"].nunique() == 1
    assert after["scgd"]["y"].iloc[1] != after["bsgd"]["y"].iloc[1]
    monkeypatch.setattr(batch_sizes, "likelihood_course", lambda *_: pytest.fail("studied again"))
    assert shown.data(run, 8) is after


def test_a_course_that_diverges_ends_there():
    wild = method("scgd", batch_size=8, optimiser="sgd", rate=1e4)

    result = likelihood_course(wild, problem(), 12, 4)

    assert [done for done, value in result if value is not None] == [0]


def test_a_study_can_be_left_after_any_minibatch_and_says_how_long_the_rest_takes():
    run = played("scgd")
    whole, parts = view(run, "stochastic-batches"), view(run, "stochastic-batches")
    whole.minibatches = parts.minibatches = 6
    wanted, parts.patience = whole.data(run, 5), 0.0

    calls, titles = 0, []
    while not calls or parts.unfinished(run, 5):
        result, calls = parts.data(run, 5), calls + 1
        titles.append(result["minimax"].attrs["title"])

    assert calls == 3 * 2 * 7 + 1  # each method in each panel: the start and six minibatches
    assert titles[0].startswith("0% of the minibatches done, about ")
    assert re.match(r"50% of the minibatches done, about \d+ s remaining", titles[calls // 2])
    assert titles[-1] == wanted["minimax"].attrs["title"]
    for key in ("minimax", "scgd", "bsgd"):
        pd.testing.assert_frame_equal(result[key], wanted[key])
    assert not parts.unfinished(run, 0)


def test_the_microscope_finds_bias_only_where_it_is():
    at = problem(n=120, noise=0.5)
    theta = Model(method("scgd"), at).matched(Model(method("scgd"), at).start())

    seen = {key: gradient_spread(method(key, batch_size=8), at, theta, 300) for key in ("minimax", "scgd", "bsgd")}

    assert seen["minimax"].bias < 0.1 * seen["minimax"].sd
    assert seen["bsgd"].bias > 3.0 * seen["minimax"].bias
    assert float(seen["minimax"].along.mean()) == pytest.approx(1.0, abs=0.3)
    all_rows = gradient_spread(method("bsgd", batch_size=120), at, theta, 2)
    assert all_rows.bias < 1e-6
    assert all_rows.sd < 1e-6
    assert gradient_spread(method("bsgd", batch_size=32), at, theta, 100).sd < seen["bsgd"].sd


def test_the_interval_of_a_bias_is_that_of_all_pairs_and_holds_the_truth_as_often_as_it_says():
    E = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.4
    value, error = gradient_spread_module._squared_mean(E)

    def of_pairs(rows):
        pairs = [float(a @ b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
        return sum(pairs) / len(pairs)

    left_out = np.array([of_pairs([row for k, row in enumerate(E) if k != out]) for out in range(7)])
    assert value == pytest.approx(of_pairs(list(E)))
    assert error == pytest.approx(np.sqrt(6 / 7 * np.square(left_out - left_out.mean()).sum()))

    draws = torch.randn(300, 30, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.3
    inside = [abs(value - 4 * 0.09) <= 2.0 * error for value, error in map(gradient_spread_module._squared_mean, draws)]
    assert 0.88 < np.mean(inside) < 0.99


def test_the_picture_of_biases_has_bars_and_says_where_they_overlap():
    run = played("scgd")
    shown = view(run, "stochastic-gradients")
    shown.draws = 3
    layers = shown.data(run, 1)
    assert "3 minibatches per point; too few to tell BSGD from SCGD at" in layers["minimax"].attrs["title"]
    for key in ("scgd", "bsgd", "minimax"):
        bars = layers[f"{key} bars"]
        assert ((bars["y0"] <= layers[key]["y"]) & (layers[key]["y"] <= bars["y1"])).all()
    shown.show = "spread"
    layers = shown.data(run, 1)
    assert layers["minimax"].attrs["title"] == "3 minibatches per point"
    assert all(layers[f"{key} bars"].empty for key in ("scgd", "bsgd", "minimax"))


def run_of(rows: int) -> Any:
    """What the pictures of batch sizes read of a run with so many training rows."""
    step = SimpleNamespace(state=SimpleNamespace(theta=None))
    return SimpleNamespace(method=None, problem=SimpleNamespace(train=range(rows)), trace=[SimpleNamespace(step=step)])


@pytest.mark.parametrize("show", ["bias", "spread"])
@pytest.mark.parametrize(
    ("rows", "sizes"), [(1, [1]), (16, [8]), (17, [16]), (100, [16, 32, 64]), (513, batch_sizes.BIAS_SIZES)]
)
def test_the_gradients_of_each_size_stand_beside_each_other_with_their_bars(show, rows, sizes, monkeypatch):
    factors = {"minimax": 0.1, "scgd": 0.2, "bsgd": 0.3}

    def spread(method: Any, problem: Any, theta: Any, draws: int) -> Any:
        key, size = method
        return SimpleNamespace(bias=factors[key] * size, sd=factors[key] / size, interval=(draws * size, draws + size))

    monkeypatch.setattr(batch_sizes, "same_features", lambda method, key, size: (key, size))
    monkeypatch.setattr(batch_sizes, "gradient_spread", spread)
    picture = batch_sizes.Gradients(draws=3, show=show)

    layers = picture.data(run_of(rows), 0)

    for key, aside in (("minimax", 0.97), ("scgd", 1.0), ("bsgd", 1.03)):
        bars, x = layers[f"{key} bars"], np.array(sizes, float)
        np.testing.assert_array_equal(layers[key]["x"], x)
        np.testing.assert_allclose(layers[key]["y"], factors[key] * x if show == "bias" else factors[key] / x)
        wanted = np.column_stack([aside * x, 3 * x, aside * x, 3 + x]) if show == "bias" else np.empty((0, 4))
        np.testing.assert_allclose(bars[["x0", "y0", "x1", "y1"]], wanted)
    assert layers["minimax"].attrs["ylabel"] == f"{show} / |exact gradient|"


def test_intervals_overlap_only_where_neither_lies_beyond_the_other():
    scgd = [(2.0, 3.0)] * 5
    bsgd = [(0.0, 2.0), (3.0, 4.0), (0.0, 2.1), (2.9, 4.0), (2.4, 2.6)]

    assert batch_sizes.overlap_sentence(range(5), {"scgd": scgd, "bsgd": bsgd}).endswith("SCGD at 2, 3, 4 rows")
    assert batch_sizes.overlap_sentence([8], {"scgd": scgd[:1], "bsgd": bsgd[:1]}).startswith("enough to tell")


@pytest.mark.parametrize(
    ("rows", "sizes"), [(1, [1]), (15, [7]), (16, [8]), (63, [8]), (64, [8, 32]), (256, [8, 32, 128])]
)
def test_a_panel_needs_twice_its_minibatch_and_has_its_name_in_the_middle_of_its_lines(rows: int, sizes: list[int]):
    layers = batch_sizes.Batches().data(run_of(rows), 0)

    assert layers["panels"]["size"].tolist() == sizes
    np.testing.assert_allclose(layers["panels"]["x"], np.arange(len(sizes)) + 0.43)
    assert layers["borders"]["x"].tolist() == [*range(1, len(sizes))]


def test_the_remaining_time_of_a_study_is_in_proportion_to_its_remaining_minibatches(monkeypatch: pytest.MonkeyPatch):
    ticks = count()
    monkeypatch.setattr(batch_sizes.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(batch_sizes, "same_features", lambda method, key, size: size)
    course = [(0, 5.0), (1, None), (2, 4.5), (3, None), (4, 4.25)]
    monkeypatch.setattr(batch_sizes, "likelihood_course", lambda *_: course)
    study = batch_sizes.Study(None, SimpleNamespace(train=range(30)), [8, 32], 4)
    remaining, seconds = [], 0

    while study.remaining:
        study.advance(0.0)  # one tick until it looks at the clock, and one until it stops
        seconds += 2
        remaining.append(study.remaining)
        if 0 < study.remaining < 24:
            done = 24 - study.remaining
            eta = seconds * study.remaining / done
            assert study.title == f"{done / 24:.0%} of the minibatches done, about {eta:.0f} s remaining"

    lines = [[24 - 4 * k - done for done in (0, 1, 2, 3, 4)] for k in range(6)]
    assert remaining == [*(max(each, 1) for each in np.concatenate(lines)), 0]  # the last one also ends the study
    assert study.title == "4 minibatches per panel, 30 rows"
    frame = study.frames()["bsgd"]
    np.testing.assert_allclose(frame["x"], [0.0, 0.43, 0.86, np.nan, 1.0, 1.43, 1.86, np.nan])
    np.testing.assert_allclose(frame["y"], [5.0, 4.5, 4.25, np.nan] * 2)


def test_the_share_of_two_components_is_that_of_the_singular_values_and_both_increase_with_the_targets():
    run = played("scgd")
    model, theta = Model(run.method, run.problem), run.trace[3].step.state.theta
    X = model.rows(torch.arange(model.n))[0]
    Phi = model.features(model.parts(theta), X).Phi.numpy()
    values = np.linalg.svd(Phi - Phi.mean(0), compute_uv=False) ** 2
    frame = view(run, "stochastic-features").data(run, 3)["rows"]

    assert frame.attrs["title"].startswith(f"{values[:2].sum() / values.sum():.0%} of the features' variance")
    np.testing.assert_allclose([(frame[axis] ** 2).sum() for axis in "xy"], values[:2])
    assert all(np.corrcoef(frame[axis], frame["value"])[0, 1] >= 0.0 for axis in "xy")


@pytest.mark.parametrize("method", ["scgd", "svgp"])
def test_features_that_are_equal_in_all_rows_have_no_share_of_their_variance(method: str):
    rows = np.ones((20, 2)), np.random.default_rng(0).normal(size=20)
    run = gpx.Spec(method).open(data=rows)
    run.finish(steps=1)

    titles = [view(run, "stochastic-features").data(run, at)["rows"].attrs["title"] for at in (0, 1)]

    assert titles == ["the features are equal in all rows, coloured by y"] * 2


def test_titles_count_exact_values_and_state_the_newest_gap():
    run = played("minimax")
    at = len(run.trace) - 1
    gaps = [record.step.info.gap for record in run.trace if np.isfinite(record.step.info.gap)]
    assert view(run, "stochastic-gap").data(run, at)["gap"].attrs["title"] == f"gap {gaps[-1]:.2g}"
    estimate = view(run, "stochastic-estimate")
    table = run.table()
    values = table.index[table["epoch"].notna() & table["objective"].notna()]
    titles = [estimate.data(run, k)["estimate"].attrs["title"] for k in (0, values[0], at)]
    assert titles == ["no minibatches yet: press Play", "1 exact value", f"{len(values)} exact values"]


@pytest.mark.parametrize("channel", ["rmse", "snlp", "objective"])
def test_the_held_out_error_is_drawn_against_epochs_and_seconds(channel: str):
    run = played("scgd")
    shown, table = view(run, "convergence"), run.table()
    shown.channel = channel
    for against, column in [("epoch", "epoch"), ("seconds", "seconds")]:
        shown.against = against
        series = shown.data(run, 3)["series"]
        finite = table[np.isfinite(table[channel]) & np.isfinite(table[column])]
        assert len(series) > 1
        np.testing.assert_array_equal(series[["x", "y"]], finite[[column, channel]])
    shown.against = "epoch"
    assert shown.data(run, 3)["series"].attrs["xlabel"] == "epochs"
    live = Live(shown, shown.data(run, 0))  # the start has no epoch
    live.update(shown.data(run, 3))
    assert live.figure.xaxis[0].axis_label == "epochs"


def test_epochs_are_offered_where_a_method_counts_them_and_forgotten_where_it_does_not():
    shown = view(played("scgd"), "convergence")
    shown.against = "epoch"
    other = gpx.Spec("ml", {"evaluations": 2}, data={"name": "hypercube", "n": 30, "d": 2, "noise": 0.2, "seed": 3})

    assert shown.applies(other.open())

    assert shown.against == "step"
    assert "epoch" not in shown.param.against.objects
