"""Pictures of the exact and eigenfunction families: they draw, they update, and their numbers match dense algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.runs import Run
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.families.eigenfunction_curves import basis_at
from steps_of import kind_of_drawing, small_views

SETTINGS = {
    "gbcd": {"block": 8, "chunk": 2, "subset": 25, "evaluations": 4},
    "grief": {"num_eigenfunctions": 12, "grid_points": 5, "subset": 25, "evaluations": 4, "basis": "eigenvalues"},
}


def played(method: str, d: int, **settings: Any) -> Run:
    rows = {"name": "hypercube", "n": 80, "d": d, "noise": 0.2, "seed": 3}
    run = gpx.Spec(method, SETTINGS[method] | settings, data=rows).open()
    for _ in range(9):
        run.advance()
    return run


def view(run: Run, key: str) -> views.View:
    return next(view for view in views.for_run(run) if view.key == key)


@pytest.fixture(scope="module")
def drawn() -> set[Any]:
    """The kinds of drawings that were drawn, at the start and later."""
    return set()


@pytest.mark.parametrize(("method", "d"), [("gbcd", 1), ("gbcd", 2), ("grief", 2), ("grief", 4)])
def test_every_picture_draws_its_start_and_follows(method: str, d: int, drawn: set[Any]):
    run = played(method, d)
    pictures = small_views(run)
    assert any(".families." in picture.__module__ for picture in pictures)
    for picture in pictures:
        start, last = picture.data(run, 0), picture.data(run, 8)
        if (kinds := (kind_of_drawing(picture, start), kind_of_drawing(picture, last))) in drawn:
            continue
        drawn.add(kinds)
        live = Live(picture, start)
        live.update(last)
        assert live.figure.xaxis[0].axis_label
        assert live.figure.yaxis[0].axis_label


def test_the_gradient_drawn_is_the_gradient():
    run = played("gbcd", 1, conjugate=0)  # conjugate steps would move the gradient of the block away from zero again
    state, train = run.trace[8].step.state, run.problem.train
    A = run.problem.kernel(state.theta, train.X, train.X) + torch.exp(2 * state.theta[-1]) * torch.eye(
        len(train), dtype=train.y.dtype
    )
    g = (A @ state.alpha - train.y).abs()

    layers = view(run, "gbcd-gradient").data(run, 8)

    assert np.allclose(10 ** layers["rows"]["y"], g.clamp_min(1e-12), rtol=1e-8)
    assert len(layers["active"]) == 8
    assert float(10 ** layers["active"]["y"].max()) < 1e-9


def test_the_spectrum_drawn_is_the_spectrum_of_the_grid():
    run = played("grief", 2)
    layers = view(run, "grief-spectrum").data(run, 8)
    theta = run.trace[8].step.state.theta

    values = np.concatenate([layers["kept"]["y"], layers["dropped"]["y"]])

    assert len(layers["kept"]) == 12
    assert (np.diff(values) <= 1e-12).all()
    assert layers["noise"]["y"][0] == pytest.approx(float(2 * theta[-1]) / np.log(10))


def test_turning_off_an_eigenfunction_changes_the_mean_and_unchanged_weights_do_not():
    run = played("grief", 1)
    mixer = view(run, "grief-mixer")
    begin = mixer.data(run, 8)
    assert np.allclose(begin["mean"]["y"], begin["mixed"]["y"])
    posterior = run.posterior(8)(torch.tensor(begin["mean"]["x"].to_numpy())[:, None])
    assert np.allclose(begin["mean"]["y"], posterior.mean, atol=1e-6)

    values = np.stack([begin[f"phi{k}"]["y"] for k in range(1, 5)])
    mixer.first, mixer.third = -4.0, 2.0
    changed = mixer.data(run, 8)

    for k, factor in enumerate((1e-2, 1.0, 1e1, 1.0)):  # the root of the weight
        assert np.allclose(changed[f"phi{k + 1}"]["y"], factor * values[k])
    train, s2 = run.problem.train, run.method.noise_variance(run.problem, run.trace[8].step.state)
    grid, basis, _ = basis_at(run, 8)
    line = torch.linspace(float(grid.axes[0][0]), float(grid.axes[0][-1]), 160).to(train.X)[:, None]
    Phi, Phi_line = basis(train.X).T, basis(line).T
    sd = float((train.y * train.scale.y_sd).std(correction=0))
    assert np.allclose(values, sd * Phi_line.T[:4].detach())
    w = torch.tensor([1e-4, 1.0, 1e2, *[1.0] * (Phi.shape[1] - 3)])  # weights, which are variances
    K = Phi @ (w[:, None] * Phi.T) + s2 * torch.eye(len(train))
    mean = Phi_line @ (w[:, None] * Phi.T) @ torch.linalg.solve(K, train.y)
    assert np.allclose(changed["mixed"]["y"], mean.detach() * train.scale.y_sd + train.scale.y_mean, atol=1e-5)
    mixer.third = 0.0
    assert np.abs(mixer.data(run, 8)["mixed"]["y"] - begin["mixed"]["y"]).max() > 0.01
