"""Pictures of the inducing-point methods: the swap landscape, lives of points, and states after polishing."""

from __future__ import annotations

import math
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import holoviews as hv
import numpy as np
import pytest
import torch
from bokeh.models import LinearColorMapper
from scipy import stats

from gpexplorer import Spec, views
from gpexplorer.methods.capabilities import Landscape
from gpexplorer.runs import Run
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.families import landscape_view
from gpexplorer.views.families.swap_history import Survival, lives

hv.extension("bokeh")


@cache
def finished_run(d: int, steps: int = 14, **settings: object) -> Run:
    rows = {"name": "hypercube", "n": 70, "d": d, "noise": 0.2, "seed": 2}
    all_settings = {"num_inducing": 6, "swaps_per_epoch": 5, "evaluations": 4} | settings
    run = Spec("cholqr", all_settings, data=rows).open()
    run.finish(steps=steps)
    return run


def view(run: Run, key: str) -> views.View:
    return next(view for view in views.for_run(run) if view.key == key)


@pytest.mark.parametrize("colour", ["exact", "predicted"])
@pytest.mark.parametrize("d", [2, 5])
def test_the_value_colours_each_row_at_its_position(d: int, colour: str) -> None:
    run = finished_run(d)
    landscape = view(run, "landscape")
    landscape.colour = colour
    layers = landscape.data(run, 13)

    exact, train = layers["exact"], run.problem.train
    assert np.array_equal(exact["value"], exact["exact" if colour == "exact" else "approx"])
    X = (train.X * train.scale.x_sd + train.scale.x_mean).numpy()
    if d == 2:
        assert np.allclose(exact[["x", "y"]], X[exact["row"]])
    else:
        scaled = train.X.numpy() - train.X.numpy().mean(0)
        values, vectors = np.linalg.svd(scaled, full_matrices=False)[1:]
        first, shares = vectors[:2], 100 * values**2 / (values**2).sum()
        assert np.allclose(np.abs(exact[["x", "y"]]), np.abs(scaled[exact["row"]] @ first.T))
        assert exact.attrs["xlabel"] == f"principal component 1 ({shares[0]:.0f} %)"
        assert exact.attrs["ylabel"] == f"principal component 2 ({shares[1]:.0f} %)"
    best = exact.loc[exact["value"].idxmax(), ["x", "y"]]
    assert np.allclose(layers["best"].to_numpy(float), best.to_numpy(float))
    assert landscape.plot(layers) is not None


@pytest.mark.parametrize(("d", "show"), [(1, "over the data"), (2, "over the data"), (5, "predicted against exact")])
def test_axis_and_colours_do_not_magnify_decreases_that_decide_nothing(d: int, show: str, monkeypatch) -> None:
    run = finished_run(d, steps=2)
    landscape = view(run, "landscape")
    landscape.show = show
    value = landscape_view.landscape_at(run, 1)
    ends = []
    for factor in (1e3, 1e-5):
        shown = value._replace(exact=value.exact * factor, approx=value.approx * factor)
        monkeypatch.setattr(landscape_view, "landscape_at", lambda run, at, shown=shown: shown)
        live = Live(landscape, landscape.data(run, 1))
        mapper = live.figure.select_one({"type": LinearColorMapper})
        ends.append(live.figure.y_range.end if mapper is None else mapper.high)
    assert ends[0] >= 1e3 * float(value.exact[value.exact.isfinite()].max()) > 1.2
    assert 1.0 <= ends[1] < 1.2


def test_rank_one_is_the_best_and_ranks_agree_with_the_correlation() -> None:
    run = finished_run(5)
    landscape = view(run, "landscape")
    landscape.show = "ranks"
    exact = landscape.data(run, 13)["exact"]

    assert exact.loc[exact["exact"].idxmax(), "y"] == 1.0
    assert exact.loc[exact["approx"].idxmax(), "x"] == 1.0
    correlation = stats.pearsonr(exact["x"], exact["y"]).statistic
    assert f"rank correlation {correlation:.2f}" in exact.attrs["title"]


def shown_landscape(monkeypatch: pytest.MonkeyPatch, approx: list[float], exact: list[float]) -> Landscape:
    """Every picture is of a landscape with these values in place of row 1, with an information pivot in row 2."""
    correlation, others = math.nan if len(exact) < 3 else 0.254, 63 - len(exact)
    values = torch.tensor([*approx, *[-math.inf] * others]), torch.tensor([*exact, *[math.nan] * others])
    landscape = Landscape(torch.arange(63), *values, 1, correlation, torch.tensor([2]))
    monkeypatch.setattr(landscape_view, "landscape_at", lambda run, at: landscape)
    return landscape


@pytest.mark.parametrize("show", ["over the data", "predicted against exact", "ranks"])
def test_values_over_one_input_or_against_each_other(show: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(1, steps=2)
    x = (run.problem.train.X * run.problem.train.scale.x_sd + run.problem.train.scale.x_mean)[:, 0].numpy()
    shown_landscape(monkeypatch, [0.5, -math.inf, 3.0, -1.0, 0.2], [0.7, math.nan, 2.5, 4.0, math.nan])
    landscape = view(run, "landscape")
    landscape.show = show

    layers = landscape.data(run, 1)

    exact = layers["exact"]
    assert exact["row"].tolist() == [0, 2, 3]  # those with both values
    places = {
        "over the data": [x[[0, 2, 3]], [0.7, 2.5, 4.0]],
        "predicted against exact": [[0.5, 3.0, -1.0], [0.7, 2.5, 4.0]],
        "ranks": [[2, 1, 3], [3, 2, 1]],
    }[show]
    np.testing.assert_allclose(exact[["x", "y"]].T, places)
    assert exact.attrs["title"] == "in place of row 1: rank correlation 0.25"
    np.testing.assert_allclose(layers["pivots"][["x", "y"]], exact[["x", "y"]].iloc[[1]])
    if show == "over the data":  # of every row that has an approximate value, from left to right
        approx = np.array([[x[k], value] for k, value in ((0, 0.5), (2, 3.0), (3, -1.0), (4, 0.2))])
        np.testing.assert_allclose(layers["approx"], approx[approx[:, 0].argsort()])
    else:
        ends = {exact["y"].min(), exact["y"].max()}
        assert set(layers["equal"]["x"]) == set(layers["equal"]["y"]) == ends
    shown_landscape(monkeypatch, [1.0, -math.inf], [2.0, math.nan])
    assert landscape.data(run, 1)["exact"].attrs["title"] == "in place of row 1"  # one value has no correlation
    shown_landscape(monkeypatch, [1.0], [math.nan])
    assert landscape.data(run, 1)["exact"].attrs["title"] == "no other row to swap in, in place of row 1"
    for approx, exact, alike in (
        ([0.0] * 4, [0.0] * 4, "decreases"),
        ([1.0, 1.0002, 1.0004], [0.0, 2.0, 3.0], "predictions"),
        ([1.0, 2.0, 3.0], [-2e-7, 0, 0], "decreases"),
    ):
        shown_landscape(monkeypatch, approx, exact)
        title = landscape.data(run, 1)["exact"].attrs["title"]
        assert title == f"in place of row 1: {alike} within 0.001 nat of each other, nothing to rank"
    shown_landscape(monkeypatch, [1.0], [math.nan])
    if show != "over the data":
        assert landscape.data(run, 1)["equal"]["x"].tolist() == [0.0, 1.0]


def test_no_word_says_0(monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(1, steps=2)
    shown_landscape(monkeypatch, [0.0, -math.inf, 0.02, 9.0], [0.04, math.nan, 0.01, -4.0])
    assert view(run, "landscape").data(run, 1)["words"]["text"].tolist() == ["-4.0"]
    shown_landscape(monkeypatch, [9.0, -math.inf, 0.02, 1.0], [0.04, math.nan, 0.01, -4.0])
    assert view(run, "landscape").data(run, 1)["words"]["text"].tolist() == []


@pytest.mark.parametrize(
    ("approx", "exact", "words"),
    [
        ([0.0, -math.inf, 9.0, 1.0], [120.0, math.nan, 3.0, -4.0], ["best: 120", "3.0"]),
        ([9.0, -math.inf, 0.0, 1.0], [1200.0, math.nan, 3.0, -4.0], ["best: 1,200"]),  # the same row
    ],
)
def test_words_name_the_best_row_and_that_of_the_best_prediction_with_room_above(
    approx: list[float], exact: list[float], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished_run(1, steps=2)
    x = (run.problem.train.X * run.problem.train.scale.x_sd + run.problem.train.scale.x_mean)[:, 0].numpy()
    shown_landscape(monkeypatch, approx, exact)

    layers = view(run, "landscape").data(run, 1)
    live = Live(view(run, "landscape"), layers)

    foreseen = int(np.argmax(approx))
    assert layers["words"]["text"].tolist() == words
    assert layers["foreseen"].to_numpy().tolist() == [[x[foreseen], exact[foreseen]]]
    assert (layers["words"]["y"] > np.array([max(exact), exact[foreseen]])[: len(words)]).all()
    assert layers["words"]["x"].between(x[[0, 2, 3]].min(), x[[0, 2, 3]].max(), inclusive="neither").all()
    span = max(exact[0], 0.0) - min(exact[3], 0.0)
    assert live.figure.y_range.end > max(exact) + 0.1 * span
    assert [entry.label for entry in live.legend][-2:] == ["best prediction", "pivots"]


def test_a_click_swaps_in_the_row_that_is_nearest_where_both_axes_are_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    run, wanted = finished_run(2, steps=2), []
    monkeypatch.setattr(type(run.method), "force_swap", lambda method, problem, state, row: wanted.append(row))
    shown_landscape(monkeypatch, [0.0, 0.0, 100.0, 40.0], [0.0, 1.0, 0.0, 0.9])
    landscape = view(run, "landscape")
    landscape.show = "predicted against exact"
    for x, y in ((45.0, 0.1), (55.0, 0.1), (10.0, 0.8), (38.0, 0.6), (10.0, 0.95)):
        landscape.clicked(run, 1, x, y)
    assert wanted == [0, 2, 1, 3, 1]
    shown_landscape(monkeypatch, [5.0, math.nan, 7.0], [2.0, math.nan, 2.0])  # an axis without a range
    landscape.clicked(run, 1, 6.9, 9.0)
    assert wanted[-1] == 2
    shown_landscape(monkeypatch, [math.nan], [math.nan])
    assert landscape.clicked(run, 1, 0.0, 0.0) is None


def test_segments_lead_from_the_removed_to_the_added_rows_of_the_last_thirty_accepted_swaps() -> None:
    run = finished_run(2, steps=20)
    accepted = [record.step.info for record in run.trace[:18] if getattr(record.step.info, "accepted", False)]
    X = (run.problem.train.X * run.problem.train.scale.x_sd + run.problem.train.scale.x_mean).numpy()

    layers = view(run, "swaps").data(run, 17)

    expected = [[*X[info.removed], *X[info.proposed]] for info in accepted[::-1]]
    assert 1 < len(expected) < 17
    np.testing.assert_allclose(layers["moves"], expected)
    np.testing.assert_allclose(layers["inducing"], X[run.trace[17].step.state.inducing])
    np.testing.assert_allclose(layers["rows"], X)
    step = SimpleNamespace(state=run.trace[17].step.state, info=accepted[0])
    many = SimpleNamespace(problem=run.problem, trace=[SimpleNamespace(step=step)] * 40)
    assert len(view(run, "swaps").data(many, 39)["moves"]) == 30


def test_the_lives_of_points_lie_above_each_other_the_oldest_and_longest_first() -> None:
    class State(NamedTuple):
        inducing: torch.Tensor
        epoch: int

    sets = [(7, 3), (7, 3, 5), (2, 3, 5), (2, 3, 7), (7, 3, 7)]
    states = [State(torch.tensor(rows), epoch) for rows, epoch in zip(sets, (0, 0, 1, 1, 2), strict=True)]
    run: Any = SimpleNamespace(trace=[SimpleNamespace(step=SimpleNamespace(state=state)) for state in states])

    layers = Survival().data(run, 4)

    alive = [[0, 0, 4, 0], [3, 4, 4, 4], [4, 5, 4, 5]]  # row 3 from the start; the others are later
    gone = [[0, 1, 2, 1], [1, 2, 3, 2], [2, 3, 4, 3]]
    np.testing.assert_array_equal(layers["alive"], alive)
    np.testing.assert_array_equal(layers["gone"], gone)
    np.testing.assert_array_equal(layers["epochs"], [[2, 0, 2, 6], [4, 0, 4, 6]])
    assert layers["alive"].attrs["title"] == "6 lines so far; 3 continue, 1 of them since the start"
    np.testing.assert_array_equal(layers["now"], [[4, 0], [4, 4], [4, 5]])
    fewer = SimpleNamespace(trace=[run.trace[1], run.trace[0]])
    assert (
        Survival()
        .data(fewer, 1)["alive"]
        .attrs["title"]
        .endswith(". 2 of 3 points are used: they explain all other rows to rounding")
    )
    np.testing.assert_array_equal(Survival().data(run, 0)["now"], [[0, 0], [0, 1]])  # no line is long enough to be seen


def test_lives_begin_and_end_at_the_expected_steps() -> None:
    sets = [np.array(rows) for rows in ([7, 3], [7, 3, 5], [2, 3, 5], [2, 3, 7], [7, 3, 7])]
    begin, end, alive = lives(sets)
    all_lives = sorted(zip(begin.tolist(), end.tolist(), alive.tolist(), strict=True))
    assert [len(part) for part in lives([np.array([], dtype=int)] * 2)] == [0, 0, 0]
    assert all_lives == [(0, 2, False), (0, 4, True), (1, 3, False), (2, 4, False), (3, 4, True), (4, 4, True)]


@pytest.mark.parametrize("method", ["cholqr", "titsias"])
def test_every_step_has_as_many_lives_as_inducing_points(method: str) -> None:
    run = (
        finished_run(3, steps=25)
        if method == "cholqr"
        else Spec("titsias", {"num_inducing": 5}, data="friedman1").open()
    )
    run.finish(steps=9)
    last = len(run.trace) - 1
    layers = view(run, "survival").data(run, last)
    lives = [layers[name] for name in ("gone", "alive")]
    for at in range(last + 1):
        lived = sum(int(((f["x0"] <= at) & ((f["x1"] > at) | (name == "alive"))).sum())
                    for name, f in zip(("gone", "alive"), lives, strict=True))  # fmt: skip
        assert lived == len(run.trace[at].step.state.inducing)
    assert len(layers["epochs"]) == run.trace[last].step.state.epoch
    assert view(run, "survival").plot(layers) is not None


def test_a_polished_state_has_no_swap_landscape() -> None:
    run = finished_run(2, steps=20, max_epochs=1, polish=8, learn=False)
    last = len(run.trace) - 1
    assert run.trace[last].step.state.Z is not None
    landscape = view(run, "landscape")
    layers = landscape.data(run, last)
    assert "no longer rows of the data" in layers["exact"].attrs["title"]
    assert landscape.plot(layers) is not None
    assert landscape.clicked(run, last, 0.0, 0.0) is None
    moves = view(run, "swaps").data(run, last)["inducing"]
    assert len(moves) == 0
