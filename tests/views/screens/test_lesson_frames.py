"""The lesson of the first screen: its numbers against dense algebra, and the point that it makes."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.methods.capabilities import Landscape
from gpexplorer.views.drawing import run_rows
from gpexplorer.views.screens import lesson_page
from gpexplorer.views.screens.lesson_page import SWAPS, lesson_of, lesson_spec


@pytest.fixture(scope="module")
def run():
    run = lesson_spec(10).open()
    run.finish()
    return run


@pytest.fixture(scope="module")
def lesson(run):
    return lesson_of(run)


def dense_distance(run, rows) -> float:
    """The free energy with these inducing rows, minus the negative log evidence, from n x n matrices."""
    kernel, theta, train = run.problem.kernel, run.problem.theta, run.problem.train
    K, s2 = kernel(theta, train.X, train.X), float(torch.exp(2 * theta[-1]))
    Q = K[:, rows] @ torch.linalg.solve(K[rows][:, rows], K[rows])

    def nlml(C):
        A = C + s2 * torch.eye(len(C), dtype=C.dtype)
        return 0.5 * float(train.y @ torch.linalg.solve(A, train.y) + torch.logdet(A))

    return nlml(Q) + 0.5 * float((K - Q).diagonal().sum()) / s2 - nlml(K)


def test_distances_are_those_of_dense_matrices(run, lesson):
    for frame in lesson["frames"]:
        assert frame["distance"] == pytest.approx(dense_distance(run, frame["points"]), abs=2e-3)


def test_the_first_frame_is_ten_rows_at_the_left_end(lesson):
    places = [lesson["rows"]["row"].index(row) for row in lesson["frames"][0]["points"]]

    assert len(set(places)) == 10
    assert max(places) < 0.14 * len(lesson["rows"]["x"])
    assert lesson["rows"]["x"] == sorted(lesson["rows"]["x"])


def test_the_first_ten_swaps_bring_nearly_all_of_the_decrease_and_five_most_of_it(lesson):
    distances = np.array([frame["distance"] for frame in lesson["frames"]])

    shares = (distances[0] - distances) / (distances[0] - distances.min())
    assert len(distances) == SWAPS + 1
    assert shares[10] > 0.99
    assert shares[5] > 0.8
    assert np.all(np.diff(distances) <= 1e-9)


def test_the_landscape_says_what_the_next_swap_brings(lesson):
    for before, after in zip(lesson["frames"], lesson["frames"][1:], strict=False):
        offered = before["next"]
        place = lesson["rows"]["row"].index(offered["tested"])
        assert offered["exact"][place] == pytest.approx(offered["values"]["tested"], abs=1e-3)
        assert offered["values"]["best"] == max(value for value in offered["exact"] if value is not None)
        assert offered["removed"] in before["points"]
        gained = before["distance"] - after["distance"]
        if offered["accepted"]:
            assert gained == pytest.approx(offered["values"]["tested"], abs=2e-3)
            assert set(after["points"]) == set(before["points"]) - {offered["removed"]} | {offered["tested"]}
        else:
            assert after["points"] == before["points"]
            assert gained == pytest.approx(0, abs=1e-6)


def test_one_swap_shows_that_few_pivots_can_be_wrong(lesson):
    missed = [f["next"]["values"]["best"] - f["next"]["values"]["tested"] for f in lesson["frames"] if f["next"]]

    assert max(missed) > 30  # nat: the row that a better prediction would have found


def test_curves_are_those_of_the_posterior_in_units_of_the_file(run, lesson):
    mean, variance = run.posterior(5)(torch.tensor(lesson["x"], dtype=torch.float64)[:, None])

    np.testing.assert_allclose(lesson["frames"][5]["mean"], mean, atol=1e-3)
    np.testing.assert_allclose(lesson["frames"][5]["sd"], variance.sqrt(), atol=1e-3)


def test_the_curves_reach_a_fortieth_of_the_rows_beyond_them_and_the_rows_have_their_units(run, lesson):
    train = run.problem.train
    x, y = run_rows.inputs_of(train)[:, 0], run_rows.targets_of(train)
    ends = x.min() - np.ptp(x) / 40, x.max() + np.ptp(x) / 40
    np.testing.assert_allclose(lesson["x"], np.linspace(*ends, 321), atol=1e-4)
    assert lesson["gap"] == pytest.approx(0.03 * np.ptp(x), abs=1e-4)
    rows = lesson["rows"]["row"]
    np.testing.assert_allclose([lesson["rows"]["x"], lesson["rows"]["y"]], [x[rows], y[rows]], atol=1e-4)
    assert [lesson[name] for name in ("points", "swaps", "first")] == [10, 12, 0]
    assert (lesson["xlabel"], lesson["ylabel"]) == (train.names[0], train.target)
    X = (torch.tensor(lesson["x"]).double() - train.scale.x_mean) / train.scale.x_sd
    kernel, theta = run.problem.kernel, run.problem.theta
    A = kernel(theta, train.X, train.X) + torch.exp(2 * theta[-1]) * torch.eye(len(train)).to(train.X)
    cross = kernel(theta, X[:, None].to(train.X), train.X)
    mean = cross @ torch.linalg.solve(A, train.y)
    variance = kernel.diag(theta, X[:, None]) - (cross * torch.linalg.solve(A, cross.T).T).sum(1)
    sd_of_y, mean_of_y = train.scale.y_sd, train.scale.y_mean
    np.testing.assert_allclose(lesson["exact"]["mean"], mean * sd_of_y + mean_of_y, atol=2e-3)
    np.testing.assert_allclose(lesson["exact"]["sd"], variance.sqrt() * sd_of_y, atol=2e-3)


def test_a_swap_is_offered_among_the_rows_that_have_a_number():
    exact, approx = torch.tensor([math.nan, 1.0, 3.0, 9.0]), torch.tensor([5.0, 2.0, 2.5, math.inf])
    landscape = Landscape(torch.arange(4), approx, exact, removed=0, correlation=0.5, pivots=torch.tensor([0, 2]))
    following = SimpleNamespace(proposed=1, removed=3, accepted=True, exact=1.0, approx=2.0)
    order = np.array([2, 0, 3, 1])  # rows by their place

    offered = lesson_page._next_swap(landscape, following, order)

    assert offered == {
        "exact": [3.0, None, None, 1.0], "approx": [2.5, None, None, 2.0], "pivots": [2], "removed": 3, "tested": 1,
        "accepted": True, "best": 2,
        "values": {"best": 3.0, "predicted_best": 2.5, "tested": 1.0, "predicted": 2.0},
    }  # fmt: skip
    following.proposed = 0
    assert lesson_page._next_swap(landscape, following, order) is not None
    following.proposed = -1
    assert lesson_page._next_swap(landscape, following, order) is None
    assert lesson_page._next_swap(landscape, None, order) is None


def test_the_first_record_has_the_points_before_the_first_swap():
    class State(NamedTuple):
        step: int
        inducing: torch.Tensor

    def states(step: int, accepted: bool) -> list[State]:
        begin = State(step, torch.tensor([], dtype=torch.int64))
        after = State(1, torch.tensor([4, 7, 9]))
        infos = [None, SimpleNamespace(accepted=accepted, proposed=7, removed=2)]
        steps = [SimpleNamespace(state=state, info=info) for state, info in zip((begin, after), infos, strict=True)]
        run = SimpleNamespace(trace=[SimpleNamespace(step=step) for step in steps])
        return lesson_page.swap_states(run)

    def points(step: int, accepted: bool) -> list[list[int]]:
        return [state.inducing.tolist() for state in states(step, accepted)]

    assert points(0, True) == [[4, 2, 9], [4, 7, 9]]
    assert points(0, False) == [[4, 7, 9], [4, 7, 9]]
    assert points(3, True) == [[], [4, 7, 9]]  # a run that was continued
    assert [state.step for state in states(0, True)] == [0, 1]  # with the hyperparameters before the swap


def test_numbers_have_four_decimal_places_and_missing_ones_are_none():
    assert lesson_page.rounded([1.00004, 1.00006, math.nan, -math.inf]) == [1.0, 1.0001, None, None]


def test_a_forced_swap_continues_from_its_frame(run, lesson):
    row = lesson["frames"][2]["next"]["best"]
    step = run.method.force_swap(run.problem, run.trace[2].step.state, row, 4)
    forced = run.fork(2, step)
    forced.finish()

    other = lesson_of(forced, 3)

    assert other["first"] == 3
    assert other["frames"][:2] == lesson["frames"][:2]
    assert row in other["frames"][3]["points"]
    distance = dense_distance(forced, other["frames"][3]["points"])
    assert other["frames"][3]["distance"] == pytest.approx(distance, abs=2e-3)


def test_a_lesson_is_strict_json_below_200_kilobytes(lesson):
    assert len(json.dumps(lesson, allow_nan=False)) < 200_000


def test_other_methods_and_more_inputs_are_refused():
    ridge = gpx.Spec("ml", data="snelson-like", kernel="se", budget={"steps": 1}).open()
    with pytest.raises(SettingError, match="one numeric input"):
        lesson_of(ridge)
