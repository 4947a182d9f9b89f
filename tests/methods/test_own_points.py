"""Inducing points of one's own: every method that has inducing points begins at them, also at those of another run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpexplorer.errors import SettingError
from gpexplorer.methods.base import registry
from gpexplorer.methods.inducing.initial_sets import lloyd
from gpexplorer.runs import Run
from steps_of import alike, small_spec

ROWS = [3, 41, 10, 29, 17]
WITHOUT = {"csi"}  # it validates on rows set aside, and chooses its pivots again for every point of its grid
KEYS = sorted(key for key, method in registry.items() if "start" in method.param)
SELECTIONS = ["greedy-variance", "ivm", "random", "titsias"]
CHOOSERS = [*SELECTIONS, "cholqr", "subset-of-data"]  # among the rows


def opened(key: str, start: object, steps: int) -> Run:
    settings = {"start": start, "iterations": 1, "rate": 1e-9, "epochs": 1, "num_proposals": 1, "num_rows": len(ROWS)}
    own = {name: value for name, value in settings.items() if name in registry[key].param}
    run = small_spec(key, d=2, settings=own).open()
    run.finish(steps=steps)
    assert run.error is None
    return run


def points(run: Run, rows: list[int]) -> np.ndarray:
    assert run.problem.train.scale is not None
    return run.problem.train.scale.inputs_in_units(run.problem.train.X[rows]).numpy()


def test_every_method_with_inducing_points_takes_them():
    with_points = {key for key, method in registry.items() if method.family == "inducing"} | {"svgp"}
    assert set(KEYS) == with_points - WITHOUT
    assert set(CHOOSERS) < with_points


@pytest.mark.parametrize("key", KEYS)
def test_a_method_begins_at_points_of_ones_own(key: str):
    own = points(small_spec(key, d=2).open(), ROWS) + 1e-9
    run = opened(key, own, steps=len(ROWS) if key in SELECTIONS else 1)
    first = own
    if key == "kmeans":
        scale = run.problem.train.scale
        Z, _ = lloyd(run.problem.train.X, scale.scaled_inputs(torch.from_numpy(own)))
        first = scale.inputs_in_units(Z).numpy()
    if key == "cholqr":  # a first swap may have taken the place of one
        assert (np.abs(run.inducing_points()[:, None] - first).max(-1).min(0) < 1e-6).sum() >= len(ROWS) - 1
    else:
        moved = 1e-6 if key in [*CHOOSERS, "kmeans", "svgp"] else 0.5  # a first step of a descent
        assert np.abs(run.inducing_points() - first).max() < moved
    assert len(run.inducing_points()) == len(ROWS)


@pytest.mark.parametrize("key", SELECTIONS)
def test_rows_chosen_by_hand_stay_and_a_resumed_run_continues_with_them(key: str):
    own = [3, 41, 3 + 1, 29, 17, 41 + 1]
    run = opened(key, own, steps=9)
    assert run.trace[len(own)].step.state.inducing.tolist() == own
    assert run.trace[-1].step.info.phase == "learn"
    for at in (2, 7):
        again = run.fork(at=at)
        again.finish(steps=9)
        alike(run, again)


def test_a_point_near_to_the_row_of_another_leaves_its_place_to_the_rule():
    twice = points(small_spec("random", d=2).open(), [3, 3, 17])
    chosen = opened("titsias", twice, steps=3).trace[3].step.state.inducing.tolist()
    assert chosen[:2] == [3, 17]
    assert len(set(chosen)) == 3


def test_points_of_svgp_are_those_of_another_run_and_the_reverse():
    own = opened("sgpr", ROWS, steps=3).inducing_points()
    run = opened("svgp", own, steps=1)
    assert run.inducing_points() == pytest.approx(own, abs=1e-6)
    again = opened("kmeans", run.inducing_points(), steps=1)
    assert len(again.inducing_points()) == len(ROWS)


@pytest.mark.parametrize("key", ["kmeans", "svgp", "titsias"])
def test_what_is_no_list_of_points_is_refused(key: str):
    for start in ([1, 1], [-1, 2], [[1.0], [1.0, 2.0]], [[float("nan"), 0.0]], "middle", 3):
        with pytest.raises(SettingError, match="start"):
            small_spec(key, d=2, settings={"start": start})
    run = small_spec(key, d=2, settings={"start": [[0.0]]}).open()
    run.finish(steps=2)
    assert isinstance(run.error, SettingError)
    assert "1 numbers, but the data have 2 inputs" in str(run.error)
