"""Pictures of the exact family: their data frames, and a drawing for every solver and sparse model."""

from __future__ import annotations

import itertools

import holoviews as hv
import numpy as np
import pytest
import torch

from gpexplorer import Spec, methods, views
from gpexplorer.linalg.randomness import generator
from gpexplorer.runs.run import Run
from steps_of import small_views

hv.extension("bokeh")
MEMBERS = sorted(key for key in methods if methods[key].family == "exact")
SMALL = {
    "block": 6,
    "chunk": 2,
    "subset": 20,
    "evaluations": 2,
    "num_regressors": 6,
    "growth": 2,
    "pairs": 3,
    "coarse": 4,
}


def run_of(method: str, d: int = 2, steps: int = 9) -> Run:
    settings = {name: value for name, value in SMALL.items() if name in methods[method].param}
    run = Spec(method, settings, data={"name": "hypercube", "n": 60, "d": d, "noise": 0.2}, kernel="se").open()
    run.finish(steps=steps)
    return run


@pytest.mark.parametrize("method", MEMBERS)
def test_every_picture_of_every_method_of_the_family_can_be_drawn(method: str) -> None:
    run = run_of(method)
    shown = small_views(run)
    keys = {view.key for view in shown}
    assert {"fit", "convergence", "hyperparameters"} <= keys
    assert ("gbcd-gradient" in keys) == ("alpha" in methods[method].State._fields)
    for view, at in itertools.product(shown, (0, 1, len(run.trace) - 1)):
        layers = view.data(run, at)
        assert all(np.isfinite(frame.select_dtypes("number").to_numpy()).all() for frame in layers.values())
        assert view.plot(layers) is not None


@pytest.mark.parametrize("method", ["gbcd", "cg"])
def test_the_histogram_has_the_correlations_that_numpy_computes(method: str) -> None:
    run = run_of(method, steps=14)
    [view] = [view for view in views.for_run(run) if view.key == "gbcd-correlation"]
    view.window, view.neighbours = 8, 5
    records = [record.step.state for record in run.trace[7:15]]
    train, theta = run.problem.train, records[-1].theta
    A = run.problem.kernel(theta, train.X, train.X) + float((2 * theta[-1]).exp()) * torch.eye(len(train))
    g = np.stack([(A @ state.alpha - train.y).numpy() for state in records])
    centres = torch.randperm(len(train), generator=generator(0, "correlations"))[:20]
    expected = []
    for i in centres.tolist():
        distance = np.linalg.norm((train.X - train.X[i]).numpy(), axis=1)
        near = [j for j in np.argsort(distance)[1:6] if min(g[:, i].std(), g[:, j].std()) > 1e-8]  # not the coarse rows
        expected += [np.corrcoef(g[:, i], g[:, j])[0, 1] for j in near]

    result = view.data(run, 14)["near"]

    shares = np.histogram(expected, np.linspace(-1, 1, 41))[0] / len(expected)
    np.testing.assert_allclose(result["y"].to_numpy()[::2], shares, atol=0.011)  # one pair may lie on an edge of a bin
    assert result["y"].sum() / 2 == pytest.approx(1.0)
    assert "neighbours" in result.attrs["title"]
    assert view.data(run, 0)["near"]["y"].sum() == 0.0


def test_the_gains_picture_shows_the_gains_of_the_step() -> None:
    run = run_of("gbcd", steps=6)
    [view] = [view for view in views.for_run(run) if view.key == "gbcd-gains"]
    gains = run.trace[6].step.info.gains.numpy()

    rows = view.data(run, 6)["rows"]

    assert len(gains) == 6
    np.testing.assert_allclose(10 ** rows["y"].to_numpy(), gains)
    assert rows["x"].tolist() == [1, 2, 3, 4, 5, 6]
    assert rows.attrs["title"] == f"sum if each row moved alone: {gains.sum():.2g}"
    assert view.data(run, 0)["rows"].empty


def test_the_colours_of_gradients_are_those_of_the_start_so_that_rows_that_are_solved_turn_dark():
    rows = {"name": "sin-product", "n": 120}
    run = Spec("bcd-gradient", {"block": 20, "learn": False}, data=rows, kernel="se-ard").open()
    run.finish(steps=3)
    view = next(view for view in views.for_run(run) if view.key == "gbcd-gradient")
    start, later = (view.data(run, at)["rows"] for at in (0, 3))

    low, high = start.attrs["colours"]

    assert later.attrs["colours"] == (low, high)
    assert high == pytest.approx(start["value"].max())
    assert low == high - 3.0
    assert later["value"].min() == -12.0 < low  # the last block
    assert later["value"].max() < high
