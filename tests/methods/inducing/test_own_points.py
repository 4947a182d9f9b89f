"""Inducing points of one's own: row numbers, points in the units of the file, and those of another run."""

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.errors import SettingError

FRAME = pd.DataFrame({"x": np.linspace(100.0, 200.0, 60), "y": np.sin(np.linspace(0.0, 9.0, 60))})
POINTS = [[110.0], [145.5], [190.0]]


def opened(method, **settings):
    return gpx.Spec(method, settings, data="rows", kernel="se").open(data=FRAME)


@pytest.mark.parametrize("method", ["sgpr", "fitc"])
def test_points_that_move_begin_where_they_are_given(method):
    run = opened(method, start=POINTS, learn=False)
    run.finish(steps=1)
    assert run.inducing_points() == pytest.approx(np.array(POINTS), rel=1e-12)
    run.finish(steps=20)
    assert len(run.inducing_points()) == 3


@pytest.mark.parametrize("method", ["cholqr", "subset-of-data"])
def test_points_among_rows_begin_at_the_nearest_rows(method):
    run = opened(method, start=POINTS, **({"swaps_per_epoch": 1} if method == "cholqr" else {"num_rows": 3}))
    if method == "subset-of-data":
        run.finish(steps=1)
        nearest = [FRAME["x"][(FRAME["x"] - x).abs().argmin()] for (x,) in POINTS]
        train = run.problem.train.X * run.problem.train.scale.x_sd + run.problem.train.scale.x_mean
        nearest = [float(train[(train[:, 0] - x).abs().argmin(), 0]) for (x,) in POINTS]
        assert sorted(run.inducing_points()[:, 0]) == pytest.approx(sorted(nearest))
    else:
        run.finish(steps=2)
        assert run.inducing_points().shape == (3, 1)


def test_row_numbers_and_another_run():
    run = opened("sgpr", start=[4, 30, 7], learn=False)
    run.finish(steps=1)
    train = run.problem.train
    expected = train.X[[4, 30, 7]] * train.scale.x_sd + train.scale.x_mean
    assert run.inducing_points() == pytest.approx(expected.numpy())
    other = opened("fitc", start=run.inducing_points(), learn=False)
    other.finish(steps=1)
    assert other.inducing_points() == pytest.approx(expected.numpy(), rel=1e-12)
    assert gpx.Spec.from_json(other.spec.to_json()) == other.spec


@pytest.mark.parametrize("wrong", [[], [1, 1], [-1], [1.5], [[float("nan")]], "rndom", [[1.0], [1.0, 2.0]], 3])
def test_other_starts_are_refused(wrong):
    with pytest.raises(SettingError, match="start is"):
        gpx.Spec("sgpr", {"start": wrong})


def test_points_that_do_not_fit_the_rows_end_the_run_with_a_sentence():
    for start, words in (([999], "there are"), ([[1.0, 2.0]], "the data have 1 inputs")):
        run = opened("sgpr", start=start)
        outcome = run.finish(steps=2)
        assert outcome.reason == "failed"
        assert words in outcome.message


def test_methods_without_points_say_so():
    run = opened("ml")
    run.finish(steps=1)
    with pytest.raises(SettingError, match="no inducing points"):
        run.inducing_points()
