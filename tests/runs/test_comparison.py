"""Several runs side by side: what differs, which is best, what no other run beats - and the pictures of it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import holoviews as hv
import numpy as np
import pandas as pd
import pytest
from bokeh.models import Scatter

from gpexplorer import Spec, Store
from gpexplorer.data.standardising import targets
from gpexplorer.errors import SettingError
from gpexplorer.runs.studies import comparison, power_law, sweep
from gpexplorer.runs.studies.comparison import Finished
from gpexplorer.views.drawing.palette import CYCLE, ON_DARK, paint
from gpexplorer.views.runs import comparison_charts as pictures
from gpexplorer.views.runs import comparison_charts as scaling_pictures

ROWS = {"name": "hypercube", "n": 80, "d": 2, "noise": 0.2, "seed": 1}
hv.extension("bokeh")


def ended(smse: list[float], seconds: float, memory: float = 1.0, **settings: object) -> Finished:
    """A run whose table is known."""
    count = len(smse)
    frame = pd.DataFrame({"index": range(count), "seconds": np.linspace(0, seconds, count), "entries": range(count)})
    frame["smse"], frame["snlp"] = smse, [-value for value in smse]
    return Finished(Spec("cholqr", dict(settings), ROWS), frame, memory, "budget")


@pytest.fixture
def runs() -> dict[str, Finished]:
    return {
        "slow": ended([0.9, math.nan, 0.1], 9.0, 2.0, num_inducing=40),
        "fast": ended([0.9, 0.4], 1.0, 1.0, num_inducing=10),
        "beaten": ended([0.9, 0.5], 4.0, 3.0, num_inducing=20, learn=False),
    }


def test_the_table_is_ordered_by_a_metric_and_says_what_differs(runs: dict[str, Finished]):
    table = comparison.table(runs)

    assert table.index.tolist() == ["slow", "fast", "beaten"]
    assert table["smse"].tolist() == [0.1, 0.4, 0.5]
    assert table.loc["beaten", "differs"] == "learn=off, num_inducing=20"
    assert comparison.table(runs, by="snlp", top=1).index.tolist() == ["beaten"]
    assert comparison.table(runs, by="seconds").index.tolist() == ["fast", "beaten", "slow"]
    assert len(comparison.table({})) == 0
    with pytest.raises(SettingError, match="no 'colour' to compare by"):
        comparison.table(runs, by="colour")


def test_runs_that_few_test_rows_cannot_tell_apart_are_named(runs: dict[str, Finished]):
    rng = np.random.default_rng(0)
    errors = {"slow": rng.exponential(1.0, 20), "fast": rng.exponential(1.2, 20)}
    errors["beaten"] = errors["slow"] + rng.uniform(0.1, 0.3, 20)  # as large, and worse in every row
    known = {name: replace(run, test_errors=errors[name]) for name, run in runs.items()}

    assert comparison.not_told_apart(known, "slow") == ["fast"]
    assert comparison.not_told_apart(known, "beaten") == ["fast"]
    other_split = known | {"fast": replace(known["fast"], spec=replace(known["fast"].spec, split=3))}
    assert comparison.not_told_apart(other_split, "slow") == []
    assert comparison.not_told_apart(runs, "slow") == []
    assert comparison.alike_by_rows({"a": np.ones(1), "b": np.zeros(1), "c": None}, "b") == ["a"]  # of a single row
    assert comparison.doubt_in_words(20, "SMSE", ["a", "b"]) == (
        "20 test rows cannot tell its SMSE from that of 2 others: compare on more rows or splits."
    )
    assert comparison.doubt_in_words(1, "SNLP", ["a"]).startswith("1 test row cannot tell its SNLP from that of a:")
    assert comparison.doubt_in_words(20, "SMSE", []) == ""


def test_the_errors_of_a_run_are_those_of_its_newest_scores():
    run = Spec("cholqr", {"num_inducing": 5}, ROWS, budget={"steps": 3}).open()
    run.finish()
    finished = Finished.of(run)
    test = run.split.test
    residual = run.posterior(of="y").marginals_at_scaled(test.X).moments[0] - targets(test.y, run.problem.train)
    np.testing.assert_allclose(finished.test_errors, residual.square())
    assert run.test_errors[2].mean() == pytest.approx(finished.last["nlpd"])  # terms of the density beside them
    kept = finished.test_errors.mean() / float(targets(test.y, run.problem.train).var(correction=0))
    assert kept == pytest.approx(finished.last["smse"])
    run.scores(0)
    np.testing.assert_array_equal(Finished.of(run).test_errors, finished.test_errors)


def test_a_transform_of_the_target_is_named_and_its_absence_is_too(runs: dict[str, Finished]):
    specs = {"plain": runs["fast"].spec, "log": replace(runs["fast"].spec, target_transform="log")}

    assert comparison.what_differs(specs) == {"plain": "target_transform=none", "log": "target_transform=log"}
    assert list(sweep.grid(specs["log"], {"target_transform": ["", "yeo-johnson 0.5"]})) == [
        "target_transform=none", "target_transform=yeo-johnson 0.5",
    ]  # fmt: skip


def test_only_what_differs_is_shown(runs: dict[str, Finished]):
    result = comparison.differences({name: run.spec for name, run in runs.items()}, baseline="fast")

    assert set(result) == {"num_inducing", "learn"}
    assert result.index[0] == "fast"
    assert result.loc["slow", "num_inducing"] == 40
    assert isinstance(result.loc["slow", "num_inducing"], int)


def test_settings_differ_among_runs_of_one_method_only():
    pair = {f"a{m}": Spec("cholqr", {"num_inducing": m}, data=ROWS) for m in (4, 8)}
    mixed = comparison.differences(pair | {"b": Spec("gbcd", data=ROWS, seed=4)})

    assert set(mixed) == {"method", "seed", "num_inducing"}
    assert [mixed.loc[name, "num_inducing"] for name in pair] == [4, 8]
    assert math.isnan(mixed.loc["b", "num_inducing"])


def test_best_by_each_metric(runs: dict[str, Finished]):
    assert comparison.best(runs) == {"smse": "slow", "snlp": "beaten"}


def test_beside_a_baseline(runs: dict[str, Finished]):
    result = comparison.against(runs, "fast")

    assert result.loc["slow", "seconds ratio"] == pytest.approx(9.0)
    assert result.loc["slow", "smse"] == pytest.approx(-0.3)
    assert result.loc["fast", ["seconds ratio", "smse"]].tolist() == [1.0, 0.0]
    with pytest.raises(SettingError, match="baseline 'gone' is not among"):
        comparison.against(runs, "gone")


def test_the_front_holds_what_nothing_beats(runs: dict[str, Finished]):
    front = comparison.pareto(runs)

    assert front["run"].tolist() == ["fast", "beaten", "slow"]
    assert front["front"].tolist() == [True, False, True]
    rng = np.random.default_rng(1)
    many = {f"{k}": ended([a], 0.0, b) for k, (a, b) in enumerate(rng.uniform(size=(60, 2)))}
    result = comparison.pareto(many, "memory", "smse").set_index("run")
    for row in result.itertuples():
        beaten = ((result["memory"] <= row.memory) & (result["smse"] <= row.smse)).sum() > 1
        assert row.front == (not beaten)


def test_any_channel_on_any_axis(runs: dict[str, Finished]):
    frames = comparison.overlay(runs, "smse", "seconds")

    assert frames["slow"]["x"].tolist() == [0.0, 9.0]
    assert frames["slow"]["y"].tolist() == [0.9, 0.1]
    assert comparison.overlay(runs, "objective") == {}
    assert frames["slow"].attrs["ylabel"] == "SMSE"
    assert comparison.channels(runs) == {"smse": "SMSE", "snlp": "SNLP"}
    with pytest.raises(SettingError, match="kernel entries"):
        comparison.overlay(runs, "smse", "minutes")


def test_a_run_in_memory_and_the_same_from_a_store_compare_alike(tmp_path: Path):
    store = Store(tmp_path)
    spec = Spec("cholqr", {"num_inducing": 5}, ROWS)
    run = store.open(spec)
    run.finish(steps=3)
    run.close()
    store.annotate(spec.key(), "the <i>first</i> one")

    [kept] = comparison.read_store(store)[0].values()
    in_memory = Finished.of(run)

    assert kept.spec == in_memory.spec == spec
    pd.testing.assert_frame_equal(kept.steps, in_memory.steps)
    assert kept.memory == in_memory.memory > 0
    assert comparison.table({"a": kept, "b": in_memory})["note"].tolist() == ["the <i>first</i> one", ""]
    assert "note" not in comparison.table({"b": in_memory})
    assert in_memory.last["steps"] == 3
    assert "objective" in comparison.overlay({"a": in_memory}, "objective")["a"].attrs["ylabel"]


def test_the_pictures_can_be_drawn(runs: dict[str, Finished]):
    render = hv.renderer("bokeh").get_plot

    lines = pictures.curves(comparison.overlay(runs, "smse", "kernel entries"), baseline="fast", log=True)
    render(lines)
    assert [curve.label for curve in lines] == ["slow", "fast", "beaten"]
    stairs = pictures.front(comparison.pareto(runs))
    render(stairs)
    assert stairs.Curve.I.dimension_values("smse").tolist() == [0.4, 0.1]
    points = comparison.pareto(runs).assign(colour=[CYCLE[0], CYCLE[1], CYCLE[0]])
    figure = render(pictures.front(points)).state
    paint(figure, "dark")
    inks = {each.glyph.fill_color for each in figure.renderers if isinstance(each.glyph, Scatter)}
    assert inks == {ON_DARK[CYCLE[0]], ON_DARK[CYCLE[1]]}  # dots as their curves, on a dark page too
    small = pictures.multiples({name: {name: frame} for name, frame in comparison.overlay(runs, "smse").items()})
    assert len(small) == 3
    render(pictures.curves({}))


@pytest.mark.parametrize("count", [0, 1, 2, 6])
def test_scaling_is_drawn_from_the_first_size_to_the_last(count: int):
    n = np.geomspace(100, 3200, 6)[:count]
    table = pd.DataFrame({"value": n, "seconds": n**2, "seconds predicted": n**2 / 2})
    fitted = power_law.fit(n.tolist(), (n**2).tolist())

    layers = scaling_pictures.scaling_layers(table, fitted)
    hv.renderer("bokeh").get_plot(scaling_pictures.plot_scaling(layers))

    assert len(layers["measured"]) == count
    assert len(layers["fitted"]) == (40 if count == 6 else 0)
    assert layers["n²"]["y"].tolist() == pytest.approx((n**2).tolist())


@pytest.mark.parametrize("count", [0, 1, 2])
def test_logarithmic_axes_end_above_zero_around_a_single_value(count: int, caplog: pytest.LogCaptureFixture):
    n = np.array([500.0, 1000.0])[:count]
    table = pd.DataFrame({"value": n, "seconds": 1e-8 * n**2, "seconds predicted": 1e-8 * n**2})
    charts = [
        pictures.plot_scaling(pictures.scaling_layers(table, power_law.fit([], []))),
        pictures.plot_growth(pictures.growth_layers({"one": table, "two": table[:0]})),
        pictures.curves({"one": pd.DataFrame({"x": n, "y": 0.02 + 0 * n})}, log=True),
    ]

    with caplog.at_level("WARNING"):
        figures = [hv.renderer("bokeh").get_plot(chart).state for chart in charts]

    assert not caplog.records
    for figure in figures if count else ():
        assert 1e-3 <= figure.y_range.start < figure.y_range.end <= 0.1
        assert 100 < figure.x_range.end < 2000


def test_methods_are_drawn_beside_the_powers_from_the_first_point():
    n = np.array([500.0, 1000.0])
    times = {
        "one": pd.DataFrame({"value": n, "seconds": [0.01, 0.03]}),
        "two": pd.DataFrame({"value": n[:1], "seconds": [0.02]}),
    }

    layers = pictures.growth_layers(times)
    chart = pictures.plot_growth(layers)

    assert [len(layers[name]) for name in ("one", "two")] == [2, 1]
    assert layers["n²"]["y"].tolist() == pytest.approx([0.01, 0.04])
    assert layers["n³"]["y"].tolist() == pytest.approx([0.01, 0.08])
    assert {element.label for element in chart} >= {"n²", "n³", "one", "two"}


def test_a_channel_has_the_label_that_all_methods_give_it_and_else_its_name():
    steps = pd.DataFrame({"index": [0], "seconds": [0.1], "objective": [2.0], "exact_least": [1.0], "smse": [0.5]})
    swaps, another, features = (Finished(Spec(key, data=ROWS), steps) for key in ("cholqr", "sgpr", "minimax"))

    alike = comparison.channels({"a": swaps, "b": another})
    assert alike == {
        "smse": "SMSE",
        "objective": "objective F [nat]",
        "exact_least": "lower limit of the exact model's objective [nat]",
    }
    mixed = comparison.channels({"a": swaps, "b": features})
    assert mixed == alike | {"objective": "objective"}
    assert comparison.overlay({"a": swaps}, "objective")["a"].attrs["ylabel"] == "objective F [nat]"


def test_settings_and_methods_have_the_labels_of_the_page_where_they_are_asked_for():
    limits = {"steps": 5, "seconds": 1.5}
    specs = {
        "a": Spec("cholqr", {"num_inducing": 8, "learn": False}, seed=2, kernel="se", budget=limits),
        "b": Spec("cholqr", {"num_inducing": 4}, kernel="se", target_transform="log"),
        "c": Spec("svgp", {"num_inducing": 30}, kernel="se"),
    }
    runs = {name: Finished(spec, pd.DataFrame({"index": [0], "smse": [0.1]})) for name, spec in specs.items()}

    said = comparison.what_differs(specs, labels=True)
    assert said["a"] == (
        "method = CholQR swaps, kernel = se, seed = 2, at most 5 steps, 1.5 seconds, target transform = none, "
        "Learn hyperparameters = off, Inducing points m = 8"
    )
    assert said["b"].endswith("no limit, target transform = log, Learn hyperparameters = on, Inducing points m = 4")
    table = comparison.table(runs, labels=True)
    assert table["method"].tolist() == ["CholQR swaps", "CholQR swaps", "SVGP"]
    assert table["differs"]["c"] == (
        "Kernel on features = gaussian, seed = 0, no limit, target transform = none, Inducing inputs m = 30"
    )
    assert comparison.table(runs)["method"].tolist() == ["cholqr", "cholqr", "svgp"]
    names = list(sweep.grid(specs["c"], {"num_inducing": [20, 30], "split": [1]}, labels=True))
    assert names == ["SVGP, Inducing inputs m = 20, split = 1", "SVGP, Inducing inputs m = 30, split = 1"]
    assert list(sweep.grid(specs["a"], {"method": ["ivm"], "seed": [1]}, labels=True)) == [
        "Informative vector machine, seed = 1"
    ]
    assert comparison.not_default(specs["c"]) == {"num_inducing": 30}


def test_differences_are_written_without_quotes_and_braces():
    specs = {
        "a": Spec("cholqr", data={"name": "hypercube", "n": 100, "d": 2}, kernel="se"),
        "b": Spec(
            "cholqr", data="snelson-like", kernel={"name": "se", "theta": [0.5, 0.0, -2.0]}, budget={"seconds": 5}
        ),
    }

    sentence = comparison.what_differs(specs)

    assert sentence["a"] == "data=hypercube (d 2, n 100), kernel=se, budget=none"
    assert sentence["b"] == "data=snelson-like, kernel=se (theta [0.5 0 -2]), budget=(seconds 5)"
    assert list(sweep.grid(specs["a"], {"split": [0, {"test": 0.2, "seed": 1}]})) == [
        "split=0",
        "split=(test 0.2, seed 1)",
    ]
