"""The pictures of ADMM show the numbers of the run and of dense algebra, and they update."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.methods.cross_validation.folds import split
from gpexplorer.problem import Problem
from gpexplorer.runs import Run
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.runs import likelihood_surface
from oracles_admm import held_out
from steps_of import small_views

QUICK = {"max_iterations": 5, "rank": 20, "cg_tolerance": 1e-7}


def played(method: str, d: int = 2) -> Run:
    rows = {"name": "hypercube", "n": 60, "d": d, "noise": 0.2, "seed": 3}
    run = gpx.Spec(method, {"folds": 2, **QUICK} if method == "gpcv-admm" else QUICK, data=rows).open()
    run.finish(steps=7)
    return run


def view(run: Run, key: str) -> Any:
    return next(shown for shown in views.for_run(run) if shown.key == key)


@pytest.mark.parametrize(("method", "d"), [("gpcv-admm", 1), ("gpcv-admm", 3), ("gpcv-admm-holdout", 1)])
def test_every_picture_draws_the_first_record_and_updates(method: str, d: int):
    run = played(method, d)
    shown = [picture for picture in small_views(run) if ".families." in picture.__module__]

    assert {picture.key for picture in shown} == {"admm-curves", "admm-residuals", "admm-paths"}
    for picture in shown:
        live = Live(picture, picture.data(run, 0))
        live.update(picture.data(run, 5))
        assert live.figure.xaxis[0].axis_label
        assert live.figure.yaxis[0].axis_label


def test_methods_without_folds_have_none_of_these_pictures():
    run = gpx.Spec("ml", {"evaluations": 3}, data={"name": "hypercube", "n": 40, "d": 2}).open()
    run.finish(steps=3)

    assert not [picture for picture in views.for_run(run) if ".families." in picture.__module__]


def test_every_curve_equals_the_reports_of_the_run():
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
    curves.curve = "a hyperparameter"
    frames = {k: curves.data(run, k)["curve"] for k in (1, 2)}
    assert [frame.attrs["title"] for frame in frames.values()] == ["1 step", "2 steps"]
    assert frames[2]["x"].tolist() == [1, 2]
    last = len(run.problem.theta) - 1
    for curves.which, entry in ((0, 0), (last, last), (last + 3, last)):
        frame = curves.data(run, 2)["curve"]
        assert frame["y"].tolist() == [float(info.consensus[entry].exp()) for info in infos[1:3]]
        assert frame.attrs["ylabel"] == f"{run.problem.kernel.names[entry]} (scaled space)"
    residuals = view(run, "admm-residuals")
    assert Live(residuals, residuals.data(run, 3)).figure.yaxis[0].axis_label == "log10 of the residuals and of rho"
    assert residuals.data(run, 3)["primal"].attrs["title"] == f"rho is {infos[3].rho:.3g}"
    assert residuals.data(run, 0)["primal"].attrs["title"] == "no iteration yet"


def test_surface_is_the_error_by_cholesky_and_paths_end_at_the_folds():
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
    consensus = np.array([record.step.info.consensus[[1, -1]].tolist() for record in run.trace[1:5]])
    np.testing.assert_allclose(layers["consensus"], consensus)
    np.testing.assert_allclose(layers["now"], consensus[-1:])
    around = np.concatenate([consensus, *(layers[f"fold {k}"].to_numpy() for k in (1, 2))])
    np.testing.assert_allclose(layers["surface"][["x", "y"]].min(), around.min(0) - 0.6)
    np.testing.assert_allclose(layers["surface"][["x", "y"]].max(), around.max(0) + 0.6)
    assert not layers["surface"].isna().any(axis=None)
    for k, local in enumerate(at.state.folds):
        assert np.allclose(layers[f"fold {k + 1}"].iloc[-1], local.theta[[1, -1]])


def test_a_run_that_moves_on_keeps_its_surface_and_a_record_looked_at_gets_its_own(monkeypatch: pytest.MonkeyPatch):
    run = played("gpcv-admm")
    paths, fresh = view(run, "admm-paths"), view(run, "admm-paths")
    paths.side = fresh.side = 3
    first = paths.data(run, 3)["surface"]
    assert not paths.unfinished(run, 3)

    moved = paths.data(run, 4)["surface"]
    assert paths.unfinished(run, 4)
    pd.testing.assert_frame_equal(moved, first)

    monkeypatch.setattr(likelihood_surface, "QUIET", 0.0)
    own = paths.data(run, 4)["surface"]
    assert not paths.unfinished(run, 4)
    assert not own.equals(first)
    pd.testing.assert_frame_equal(own, fresh.data(run, 4)["surface"])


def test_rolled_back_steps_are_crosses_on_rho():
    rows = {"name": "hypercube", "n": 40, "d": 1, "noise": 0.2, "seed": 3}
    run = gpx.Spec(
        "gpcv-admm-holdout",
        {"theta_method": "z follows", "largest_gap": 1e-9, "max_iterations": 3, "rank": 10},
        data=rows,
    ).open()
    run.finish()

    layers = view(run, "admm-residuals").data(run, len(run.trace) - 1)
    back, rho = layers["taken back"], layers["rho"]

    assert back["x"].tolist() == [2, 3, 4]
    np.testing.assert_allclose(back["y"], np.log10(20.0 * 4.0 ** np.array([1, 2, 3])))
    assert set(back["y"]) <= set(rho["y"])
    rho_of_steps = [record.step.info.rho for record in run.trace[1:]]
    assert rho_of_steps[-1] != rho_of_steps[0]
    assert layers["primal"].attrs["title"] == f"rho is {rho_of_steps[-1]:.3g}, 3 steps taken back"
