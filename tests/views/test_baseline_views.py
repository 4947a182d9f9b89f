"""Every picture that applies to a baseline of the inducing-point methods can be drawn and shows its points."""

from __future__ import annotations

import itertools
from typing import Any

import holoviews as hv
import numpy as np
import pytest

from gpexplorer import Spec, methods, views
from gpexplorer.runs.run import Run
from steps_of import kind_of_drawing, small_views

hv.extension("bokeh")
CHOOSING = ["random", "greedy-variance", "titsias", "ivm"]
BASELINES = [*CHOOSING, "kmeans", "subset-of-data", "sgpr", "fitc", "csi"]
SMALL = {"num_inducing": 6, "num_rows": 20, "grid_size": 2}


def run_of(method: str) -> Run:
    settings = {name: value for name, value in SMALL.items() if name in methods[method].param}
    data = {"name": "hypercube", "n": 60, "d": 2, "noise": 0.2}
    run = Spec(method, settings, data=data, kernel="se").open()
    run.finish(steps=9)
    return run


@pytest.fixture(scope="module")
def drawn() -> set[Any]:
    """The kinds of drawings that were drawn."""
    return set()


@pytest.mark.parametrize("method", BASELINES)
def test_every_picture_of_a_baseline_can_be_drawn(method: str, drawn: set[Any]) -> None:
    run = run_of(method)
    shown = small_views(run)
    keys = {view.key for view in shown}
    assert {"fit", "convergence", "hyperparameters"} <= keys
    assert "landscape" not in keys
    assert ("terms" in keys) == (method != "csi")
    for view, at in itertools.product(shown, (0, 1, len(run.trace) - 1)):
        layers = view.data(run, at)
        assert all(np.isfinite(frame.select_dtypes("number").to_numpy()).all() for frame in layers.values())
        if (kind := kind_of_drawing(view, layers)) not in drawn:
            drawn.add(kind)
            assert view.plot(layers) is not None


@pytest.mark.parametrize("method", CHOOSING)
def test_the_picture_of_the_fit_shows_the_points_chosen_so_far(method: str) -> None:
    run = run_of(method)
    fit = next(view for view in views.for_run(run) if view.key == "fit")
    assert [len(fit.data(run, at)["inducing"]) for at in (0, 1, 2, 6)] == [0, 1, 2, 6]
