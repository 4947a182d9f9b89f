"""The lesson of the first screen: its numbers against dense algebra, and the point that it makes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.errors import SettingError
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
