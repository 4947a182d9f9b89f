"""The family's pictures as data frames, and drawn for every solver and sparse rival."""

from __future__ import annotations

import itertools

import holoviews as hv
import numpy as np
import pytest

from gpexplorer import Spec, methods, views
from gpexplorer.runs.run import Run

hv.extension("bokeh")
MEMBERS = sorted(key for key in methods if methods[key].family == "gbcd")
SMALL = {"block": 6, "chunk": 2, "subset": 20, "evaluations": 2, "num_regressors": 6, "growth": 2, "pairs": 3}


def run_of(method: str, d: int = 2, steps: int = 9) -> Run:
    settings = {name: value for name, value in SMALL.items() if name in methods[method].param}
    run = Spec(method, settings, data={"name": "hypercube", "n": 60, "d": d, "noise": 0.2}, kernel="se").open()
    run.finish(steps=steps)
    return run


@pytest.mark.parametrize("method", MEMBERS)
def test_every_picture_of_a_member_can_be_drawn(method: str) -> None:
    run = run_of(method)
    shown = views.for_run(run)
    keys = {view.key for view in shown}
    assert {"fit", "convergence", "hyperparameters"} <= keys
    assert ("gbcd-gradient" in keys) == ("alpha" in methods[method].State._fields)
    for view, at in itertools.product(shown, (0, 1, len(run.trace) - 1)):
        layers = view.data(run, at)
        assert all(np.isfinite(frame.select_dtypes("number").to_numpy()).all() for frame in layers.values())
        assert view.plot(layers) is not None
