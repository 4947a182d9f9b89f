"""Charts of several runs, models and sizes: what is drawn where, and on which axes."""

from __future__ import annotations

import math
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import pytest

from gpexplorer.runs.studies import power_law
from gpexplorer.views.drawing.palette import CYCLE, ROLES
from gpexplorer.views.runs import comparison_charts as charts
from gpexplorer.views.runs.comparison_charts import CandidateScores

hv.extension("bokeh")


def limits(picture: hv.Overlay, axis: str) -> Any:
    """The ends of an axis that the picture asks for."""
    return picture.opts.get("plot").kwargs.get(f"{axis}lim")


def test_the_picture_shows_each_model_at_its_score_with_its_interval() -> None:
    table = pd.DataFrame({
        "model": ["a", "b", "ridge", "early", "lost", "average of 2 models"],
        "held_out": [60, 60, 60, 20, np.nan, 60], "nlpd": [0.1, 0.2, 0.3, 0.0, np.nan, 0.05],
        "nlpd_low": [0.0, 0.1, 0.2, -0.1, np.nan, 0.0], "nlpd_high": [0.2, 0.3, 0.4, 0.1, np.nan, 0.1],
        "sentence": ["The best Gaussian process.", "Worse.", "A simple model.", "Given up.", "No time.",
                     "The answer: 60 % of a and 40 % of b."],
    })  # fmt: skip
    layers = CandidateScores(table).data()
    assert layers["the answer"][["x", "y"]].to_numpy().tolist() == [[0.05, 1.0]]
    assert layers["best Gaussian process"][["x", "y"]].to_numpy().tolist() == [[0.1, 5.0]]
    assert layers["simple models"]["model"].tolist() == ["ridge"]
    assert layers["other methods"].to_dict("list") == {"x": [0.2], "y": [4.0], "model": ["b"]}
    assert layers["given up early, on fewer rows"]["model"].tolist() == ["early"]
    ends = [[0, 5, 0.2, 5], [0.1, 4, 0.3, 4], [0.2, 3, 0.4, 3], [-0.1, 2, 0.1, 2], [0, 1, 0.1, 1]]
    np.testing.assert_allclose(layers["95 % interval"].to_numpy(), ends)
    alone = CandidateScores(table.iloc[:5].replace("The best Gaussian process.", "The answer.")).data()
    assert alone["the answer"]["model"].tolist() == ["a"]
    assert "best Gaussian process" not in alone


def test_the_answer_is_shown_also_where_twelve_models_have_better_scores():
    frame = pd.DataFrame({"model": [f"m{k}" for k in range(14)], "nlpd": np.arange(14) / 20, "held_out": 9})
    frame = frame.assign(sentence=["Worse."] * 13 + ["The answer."], nlpd_low=frame["nlpd"], nlpd_high=frame["nlpd"])
    layers = CandidateScores(frame).data()
    assert layers["the answer"]["model"].tolist() == ["m13"]
    assert len(layers["other methods"]) == 12


def test_a_long_name_beside_the_picture_of_models_ends_with_a_whole_word_and_dots():
    names = ["boosted trees and a GP on their residuals", "sgpr, matern32-ard, m = 100"]
    columns = {
        "nlpd": [0.1, 0.2],
        "nlpd_low": [0.0, 0.1],
        "nlpd_high": [0.2, 0.3],
        "held_out": 9,
        "sentence": "The answer.",
    }
    scores = CandidateScores(pd.DataFrame({"model": names, **columns}))

    ticks = scores.plot(scores.data()).opts.get("plot").kwargs["yticks"]

    assert ticks == [(2.0, "boosted trees and a GP on their …"), (1.0, "sgpr, matern32-ard, m = 100")]


@pytest.mark.parametrize(("scores", "left"), [
    ([0.0, 0.2, 0.4, 2.3, 2.5], 4),  # 6 times the distance from the best to the median is 2.4
    ([0.0, 0.01, 0.02, 0.29, 0.31], 4),  # the distance counts as at least 0.05
    ([0.0, 0.2, 9.0], 3),  # of three models each is shown
    ([0.0, 0.2, 9.0, 9.0], 4),
    ([0.0, 0.01, 0.02, 9.0], 3),
    ([k / 20 for k in range(14)], 12),
])  # fmt: skip
def test_models_that_are_far_worse_than_the_better_half_are_left_out(scores: list[float], left: int):
    frame = pd.DataFrame({"model": "a", "nlpd": scores, "held_out": 9, "sentence": "Worse."})
    shown = CandidateScores(frame.assign(nlpd_low=frame["nlpd"], nlpd_high=frame["nlpd"]))

    assert len(shown.table) == left
    assert limits(shown.plot(shown.data()), "y") == (0.3, left + 0.7)


def test_powers_go_through_the_first_measurement_and_the_fitted_law_over_all_of_them():
    sizes = np.array([500.0, 1000.0, 2000.0, 4000.0, 8000.0])
    table = pd.DataFrame(
        {"value": sizes, "seconds": 3e-4 * sizes**1.5, "seconds predicted": [2.0, 4.0, np.nan, 8.0, 0.0]}
    )
    fitted = power_law.fit(sizes, table["seconds"])

    layers = charts.scaling_layers(table, fitted)

    assert layers["predicted"].to_numpy().tolist() == [[500, 2], [1000, 4], [4000, 8]]
    for name, power in (("n", 1), ("n²", 2), ("n³", 3)):
        np.testing.assert_allclose(layers[name]["x"], sizes)
        np.testing.assert_allclose(layers[name]["y"], table["seconds"][0] * (sizes / 500) ** power)
    law = layers["fitted"]
    np.testing.assert_allclose(law["x"], np.geomspace(500, 8000, 40))
    np.testing.assert_allclose(law["y"], 3e-4 * law["x"] ** 1.5)
    options = charts.plot_scaling(layers).opts.get("plot").kwargs
    assert (options["logx"], options["logy"]) == (True, True)
    one = charts.scaling_layers(table[:1], power_law.fit(sizes[:1], table["seconds"][:1]))
    assert [len(one[name]) for name in ("measured", "fitted", "n")] == [1, 0, 1]
    assert all(frame.empty for frame in charts.scaling_layers(table[:0], fitted).values())


def test_the_baseline_has_the_colour_of_a_reference_and_the_others_those_of_the_cycle():
    names = [str(k) for k in range(12)]
    assert charts.colours(names[:3], "1") == {"0": CYCLE[0], "1": ROLES["reference"], "2": CYCLE[2]}
    assert list(charts.colours(names).values()) == [*CYCLE, *CYCLE[:2]]


def test_the_growth_of_several_methods_is_compared_from_the_first_point():
    times = {
        name: pd.DataFrame({"value": sizes, "seconds": seconds})
        for name, sizes, seconds in (("a", [1e3, 2e3, 4e3], [0.5, math.nan, 2.5]), ("b", [2e3, 8e3], [0.0, 7.0]))
    }

    layers = charts.growth_layers(times)

    assert layers["a"].to_numpy().tolist() == [[1e3, 0.5], [4e3, 2.5]]
    assert layers["b"].to_numpy().tolist() == [[8e3, 7.0]]
    for name, power in (("n²", 2), ("n³", 3)):
        np.testing.assert_allclose(layers[name], [[x, 0.5 * (x / 1e3) ** power] for x in (1e3, 4e3, 8e3)])
    options = charts.plot_growth(layers).opts.get("plot").kwargs
    assert (options["xticks"], options["logx"], options["logy"]) == ([1000, 8000], True, True)


def test_the_front_has_a_logarithmic_axis_with_room_where_all_costs_are_positive():
    frame = pd.DataFrame({"seconds": [0.5, 8.0, 4.0], "smse": [0.4, 0.1, 0.3], "run": "r", "method": "m"})
    frame["front"] = [True, True, False]

    picture = charts.front(frame)

    assert limits(picture, "x") == pytest.approx((0.5 / 1.3, 8.0 * 1.3))
    assert picture.opts.get("plot").kwargs["logx"]
    assert picture.values()[0].array().tolist() == [[0.5, 0.4], [8.0, 0.1]]
    zero = charts.front(frame.assign(seconds=[0.0, 8.0, 4.0]))
    assert limits(zero, "x") is None
    assert not zero.opts.get("plot").kwargs["logx"]
    assert not charts.front(frame[:0]).opts.get("plot").kwargs["logx"]


@pytest.mark.parametrize(("log", "ends"), [(False, (-1.0, 5.0)), (True, (0.5, 5.0))])
def test_small_pictures_share_the_range_of_all_values(log: bool, ends: tuple[float, float]):
    frames = {
        str(k): {"run": pd.DataFrame({"x": [0, 1], "y": y})} for k, y in enumerate([[-1, 2], [0.5, 5], [np.nan, 3]])
    }

    pictures = charts.multiples(frames, log)

    assert [limits(picture, "y") for picture in pictures.values()] == [ends] * 3
    level = charts.multiples({"a": {"run": pd.DataFrame({"x": [0, 1], "y": [2.0, 2.0]})}}, log)
    assert limits(level["a"], "y") == ((1.0, 4.0) if log else None)  # a logarithmic axis needs a range
    drawn = charts.curves(frames["0"], log=log).values()[0]
    assert drawn.dimension_values("y").tolist() == ([2] if log else [-1, 2])


@pytest.mark.parametrize(
    ("metric", "drawn"), [("smse", [[2, 0.5], [5, 0.1]]), ("snlp", [[2, 0.5], [3, -1], [4, 0], [5, 0.1]])]
)
def test_a_lane_has_the_scores_that_its_axis_can_show(metric: str, drawn: list[list[float]]):
    board = pd.DataFrame(
        {"lane": ["a"] * 5 + ["b"], "seconds": [1, 2, 3, 4, 5, 6], metric: [np.nan, 0.5, -1, 0, 0.1, 7]}
    )

    layers = charts.Lanes(["a", "b"], metric).data(board)

    np.testing.assert_array_equal(layers["a"], drawn)
    np.testing.assert_array_equal(layers["b"], [[6, 7]])
