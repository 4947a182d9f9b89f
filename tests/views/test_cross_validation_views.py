"""The pictures of ADMM: they draw, they follow, and their numbers are those of the run and of dense algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.methods.cross_validation.folds import split
from gpexplorer.problem import Problem
from gpexplorer.runs import Run
from gpexplorer.views.drawing.live import Live
from oracles_admm import held_out

QUICK = {"max_iterations": 5, "rank": 20, "cg_tolerance": 1e-7}


def played(method: str, d: int = 2) -> Run:
    rows = {"name": "hypercube", "n": 60, "d": d, "noise": 0.2, "seed": 3}
    run = gpx.Spec(method, {"folds": 2, **QUICK} if method == "gpcv-admm" else QUICK, data=rows).open()
    run.finish(steps=7)
    return run


def view(run: Run, key: str) -> Any:
    return next(found for found in views.for_run(run) if found.key == key)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("method", ["gpcv-admm", "gpcv-admm-holdout"])
def test_every_picture_draws_its_start_and_follows(method: str, d: int):
    run = played(method, d)
    found = [one for one in views.for_run(run) if one.family == "cross_validation"]

    assert {one.key for one in found} == {"admm-curves", "admm-residuals", "admm-paths"}
    for one in found:
        live = Live(one, one.data(run, 0))
        live.update(one.data(run, 5))
        assert live.figure.xaxis[0].axis_label
        assert live.figure.yaxis[0].axis_label


def test_rivals_without_folds_have_none_of_them():
    run = gpx.Spec("ml", {"evaluations": 3}, data={"name": "hypercube", "n": 40, "d": 2}).open()
    run.finish(steps=3)

    assert not [one for one in views.for_run(run) if one.family == "cross_validation"]


def test_every_curve_is_what_the_run_reported():
    run = played("gpcv-admm")
    curves = view(run, "admm-curves")
    infos = [record.step.info for record in run.trace]
    expected = {
        "a hyperparameter": [float(info.consensus[1].exp()) for info in infos[1:]],
        "norm of z": [info.z_norm for info in infos[1:]],
        "distance of z": np.log10([info.z_gap for info in infos[2:]]),
        "Lagrangian": [info.lagrangian for info in infos[2:]],
    }
    for name, values in expected.items():
        curves.curve = name
        drawn = curves.data(run, len(infos) - 1)["curve"]["y"]
        assert np.allclose(drawn[-len(values) :], values), name


def test_the_surface_is_the_error_that_cholesky_gives_and_paths_end_where_the_folds_are():
    run = played("gpcv-admm")
    paths = view(run, "admm-paths")
    paths.side = 3
    layers, at = paths.data(run, 4), run.trace[4].step
    theta = at.state.mean.clone()
    corner = layers["surface"].iloc[0]
    theta[[1, -1]] = torch.tensor([corner["x"], corner["y"]], dtype=theta.dtype)

    method: Any = run.method
    folds = split(run.problem, method.validation(len(run.problem.train)), method.seed, 1.0)
    total = 0.0
    for fold in folds:
        same = Problem(type(run.problem.train)(fold.X, fold.y), run.problem.kernel, theta)
        T, V = torch.arange(fold.trained), torch.arange(fold.trained, len(fold.y))
        total += float(held_out(same, theta, T, V)[0].square().sum())
    assert corner["value"] == pytest.approx(np.log10(total / len(run.problem.train)), abs=1e-3)
    for k, local in enumerate(at.state.folds):
        assert np.allclose(layers[f"fold {k + 1}"].iloc[-1], local.theta[[1, -1]])


def test_steps_taken_back_are_crosses_on_the_penalty_that_they_raise():
    rows = {"name": "hypercube", "n": 40, "d": 1, "noise": 0.2, "seed": 3}
    run = gpx.Spec("gpcv-admm-holdout", {"largest_gap": 1e-9, "max_iterations": 3, "rank": 10}, data=rows).open()
    run.finish()

    layers = view(run, "admm-residuals").data(run, len(run.trace) - 1)
    back, rho = layers["taken back"], layers["rho"]

    assert back["x"].tolist() == [2, 3, 4]
    np.testing.assert_allclose(back["y"], np.log10(20.0 * 4.0 ** np.array([1, 2, 3])))
    assert set(back["y"]) <= set(rho["y"])
    assert "3 steps taken back" in layers["primal"].attrs["title"]
