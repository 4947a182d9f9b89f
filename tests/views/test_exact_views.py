"""Pictures of the exact family: their data frames, and a drawing for every solver and sparse model."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import holoviews as hv
import numpy as np
import pytest
import torch

from gpexplorer import Spec, methods, views
from gpexplorer.linalg.randomness import generator
from gpexplorer.runs.run import Run
from gpexplorer.views.base import registry
from steps_of import kind_of_drawing, small_views

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


@pytest.fixture(scope="module")
def drawn() -> set[Any]:
    """The kinds of drawings that were drawn."""
    return set()


@pytest.mark.parametrize("method", MEMBERS)
def test_every_picture_of_every_method_of_the_family_can_be_drawn(method: str, drawn: set[Any]) -> None:
    run = run_of(method)
    shown = small_views(run)
    keys = {view.key for view in shown}
    assert {"fit", "convergence", "hyperparameters"} <= keys
    assert ("gbcd-gradient" in keys) == ("alpha" in methods[method].State._fields)
    for view, at in itertools.product(shown, (0, 1, len(run.trace) - 1)):
        layers = view.data(run, at)
        assert all(np.isfinite(frame.select_dtypes("number").to_numpy()).all() for frame in layers.values())
        if (kind := kind_of_drawing(view, layers)) not in drawn:
            drawn.add(kind)
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
    assert result.attrs["title"] == f"median of neighbours {torch.tensor(expected).median():.2f}, over 8 iterations"
    np.testing.assert_allclose(result["x"], np.repeat(np.linspace(-1, 1, 41), 2)[1:-1])
    assert view.data(run, 0)["near"]["y"].sum() == 0.0


def test_a_window_of_iterations_ends_at_the_record_and_begins_at_the_first_one() -> None:
    seen: list[tuple[list[int], tuple[int, int]]] = []

    def correlations(problem: Any, states: list[int], centres: int, neighbours: int) -> Any:
        seen.append((states, (centres, neighbours)))
        return SimpleNamespace(far=torch.tensor([0.62, 0.72, -0.23]), near=torch.tensor([0.26, 0.27]), iterations=3)

    method = SimpleNamespace(gradient_entries=correlations, gradient_correlations=correlations)
    trace = [SimpleNamespace(step=SimpleNamespace(state=k)) for k in range(9)]
    run: Any = SimpleNamespace(method=method, problem=None, trace=trace)
    view = registry["gbcd-correlation"](window=4, neighbours=7)

    layers, *_ = [view.data(run, at) for at in (2, 3, 6)]

    assert [states for states, _ in seen] == [[0, 1, 2], [0, 1, 2, 3], [3, 4, 5, 6]]
    assert {numbers for _, numbers in seen} == {(20, 7)}
    far = layers["far"].groupby("x", sort=False)["y"].max()
    assert [round(float(x), 2) for x in far.index[far > 0]] == [-0.25, -0.2, 0.6, 0.65, 0.7, 0.75]
    assert far.max() == pytest.approx(1 / 3)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_gradients_stand_at_their_rows_or_by_rank_and_rings_are_the_rows_of_the_block(d: int) -> None:
    run = run_of("gbcd", d, steps=6)
    [view] = [view for view in views.for_run(run) if view.key == "gbcd-gradient"]
    step, train = run.trace[6].step, run.problem.train
    theta, alpha = step.state.theta, step.state.alpha
    g = run.problem.kernel(theta, train.X, train.X) @ alpha + (2 * theta[-1]).exp() * alpha - train.y
    X = (train.X * train.scale.x_sd + train.scale.x_mean).numpy()

    layers = view.data(run, 6)

    rows = layers["rows"]
    np.testing.assert_allclose(10 ** rows["value"], g.abs(), atol=1e-8)
    if d < 3:
        np.testing.assert_allclose(rows["x"], X[:, 0])
        np.testing.assert_allclose(rows["y"], X[:, 1] if d == 2 else rows["value"])
    else:
        assert rows.sort_values("x")["value"].is_monotonic_decreasing
        assert sorted(rows["x"]) == [*range(len(train))]
    by_rank, size = "rows, the largest gradient first", "log10 |gradient|"
    axes = {1: (train.names[0], size), 2: train.names, 3: (by_rank, size)}[d]
    assert (rows.attrs["xlabel"], rows.attrs["ylabel"]) == axes
    block = step.info.active.numpy()
    np.testing.assert_array_equal(layers["active"].index, np.sort(block))
    assert rows.attrs["title"] == f"largest of all rows: {step.info.largest:.2g}"
    assert view.data(run, 0)["rows"].attrs["title"] == "no block solved yet"
    top = math.log10(float(train.y.abs().max()))
    assert rows.attrs["colours"] == (top - 3.0, top)
    assert rows.attrs.get("at_least") == (None if d == 2 else (top - 3.0, top))


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
