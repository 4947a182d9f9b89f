"""The pictures of the eigenfunction methods: they draw every record, and their numbers equal dense algebra."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from bokeh.models import ColorBar, LinearColorMapper

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.features.grid_eigenfunctions import Grid
from gpexplorer.runs import Run
from gpexplorer.views.drawing import run_rows
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.families import approximation_quality
from gpexplorer.views.families.approximation_quality import errors, number_of_points
from gpexplorer.views.families.eigenfunction_curves import _signed

SETTINGS = {
    "num_eigenfunctions": 12,
    "grid_points": 5,
    "subset": 25,
    "evaluations": 3,
    "basis": "eigenvalues",
    "spacing": "equispaced",
}
CHAINS = {"chains": 3, "per_step": 6, "warm_up": 2, "thin": 2, "samples": 6}


@cache
def played(method: str, d: int, **more: Any) -> Run:
    rows = {"name": "hypercube", "n": 80, "d": d, "noise": 0.2, "seed": 3}
    run = gpx.Spec(method, SETTINGS | (CHAINS if method == "grief-mcmc" else {}) | more, data=rows).open()
    run.finish(steps=10 if method == "grief" else 40)
    return run


def view(run: Run, key: str) -> views.View:
    return next(result for result in views.for_run(run) if result.key == key)


def test_a_curve_is_the_eigenfunction_of_its_rank():
    run = played("grief", 1)
    state, train = run.trace[-1].step.state, run.problem.train
    grid = Grid(run.problem.kernel, train.X, 5)
    picture = view(run, "grief-eigenfunctions")
    line = torch.linspace(float(grid.axes[0][0]), float(grid.axes[0][-1]), 200).double()[:, None]
    Phi = grid.features(state.theta, line, grid.spectrum(state.theta, 5).axis_indices)

    layers = picture.data(run, len(run.trace) - 1)
    np.testing.assert_allclose(layers["phi2"]["y"], Phi[:, 1], atol=1e-6)

    picture.rank = 3
    np.testing.assert_allclose(picture.data(run, len(run.trace) - 1)["phi1"]["y"], Phi[:, 2], atol=1e-6)
    x = layers["phi1"]["x"].to_numpy()
    assert x[0] < float((train.X * train.scale.x_sd + train.scale.x_mean).min()) < x[-1]


def weights(run: Run, state: Any, Phi: torch.Tensor) -> torch.Tensor:
    """The posterior mean of the weights [p] of functions with these values Phi [n, p] at the training rows."""
    s2 = run.method.noise_variance(run.problem, state)
    return torch.linalg.solve(Phi.T @ Phi + s2 * torch.eye(Phi.shape[1]), Phi.T @ run.problem.train.y)


def test_the_largest_entry_of_a_vector_is_positive_and_of_mirror_images_the_first():
    V = torch.tensor([[-0.6, 0.7, -0.5], [0.8, -0.7, 0.5], [0.1, 0.1, -0.70]], dtype=torch.float64)

    np.testing.assert_array_equal(_signed(V), V * torch.tensor([1.0, 1.0, -1.0]))
    np.testing.assert_array_equal(_signed(-V), _signed(V))


def test_the_curves_add_up_to_the_prediction_of_as_many_functions():
    run = played("grief", 1)
    at, picture = len(run.trace) - 1, view(run, "grief-eigenfunctions")
    p, state = 5, run.trace[at].step.state  # the grid has five points
    grid = Grid(run.problem.kernel, run.problem.train.X, 5)
    line = torch.linspace(float(grid.axes[0][0]), float(grid.axes[0][-1]), 200).double()[:, None]
    picture.rank = p - 3  # four curves, the last of which is the last function

    layers = picture.data(run, at)

    mean = run.method.posterior(run.problem, state)(line).mean
    np.testing.assert_allclose(layers["sum"]["y"], mean, atol=1e-5)
    w = weights(run, state, grid.features(state.theta, run.problem.train.X, grid.spectrum(state.theta, p).axis_indices))
    title = layers["phi1"].attrs["title"]
    assert title.startswith(f"ranks {p - 3} to {p}, with weights ")
    written = [float(weight.replace("−", "-")) for weight in title.partition("weights ")[2].split(", ")]
    np.testing.assert_allclose(np.abs(written), [float(f"{abs(weight):.2g}") for weight in w[-4:]], rtol=0.02)
    picture.rank = p  # one curve, and no function of the others
    alone = picture.data(run, at)
    assert alone["phi1"].attrs["title"].startswith(f"ranks {p} to {p}, ")
    assert alone["phi1"]["y"].notna().all()
    assert alone["phi2"]["y"].isna().all()


def limits_of(train: Any) -> tuple[float, float]:
    """All but a hundredth of the targets lie within the colours."""
    most = float(train.y.abs().quantile(0.99))
    return -most, most


def test_over_many_inputs_a_function_is_drawn_along_each_with_the_others_at_their_medians():
    run = played("grief", 3)
    picture, at, state = view(run, "grief-eigenfunctions"), len(run.trace) - 1, run.trace[-1].step.state
    X = run.problem.train.X
    grid = Grid(run.problem.kernel, X, 5)
    picture.rank = 3
    layers = picture.data(run, at)

    for q in range(3):
        line = X.median(0).values.repeat(200, 1)
        line[:, q] = torch.linspace(float(grid.axes[q][0]), float(grid.axes[q][-1]), 200)
        phi = grid.features(state.theta, line, grid.spectrum(run.method.origin(state)[0], 12).axis_indices)[
            :, 2
        ].numpy()
        drawn = layers[f"input{q + 1}"]
        np.testing.assert_allclose(drawn["y"], np.sign((phi * drawn["y"]).sum()) * phi, atol=1e-6)
        np.testing.assert_allclose(drawn["x"], np.linspace(0.0, 1.0, 200))
    assert layers["input1"].attrs["title"] == "rank 3"


def tile(frame: Any, column: int, row: int) -> np.ndarray:
    """The values [x2, x1] of the small map in this column and row, counted from the lower left corner."""
    left, bottom = 32 * column, 40 * row + 12
    inside = frame["x"].between(left, left + 28) & frame["y"].between(bottom, bottom + 28)
    return frame[inside].sort_values(["y", "x"])["value"].to_numpy().reshape(28, 28)


def test_the_maps_are_the_functions_in_their_order_and_add_up_to_the_prediction_of_as_many():
    run = played("grief", 2, num_eigenfunctions=6)
    at, picture, state = len(run.trace) - 1, view(run, "grief-eigenfunctions"), run.trace[-1].step.state
    layers = picture.data(run, at)
    grid = Grid(run.problem.kernel, run.problem.train.X, 5)
    index = grid.spectrum(run.method.origin(state)[0], 6).axis_indices
    level = layers["map"].attrs["colours"][1] / 100
    [bar] = [part for part in Live(picture, layers).figure.references() if isinstance(part, ColorBar)]
    assert bar.title == "value of the function [sd of y]"  # signed, in units of that sd

    for rank, (column, row) in enumerate([(0, 2), (1, 2), (0, 1), (1, 1), (0, 0), (1, 0)]):
        sides = [torch.linspace(float(U[0]), float(U[-1]), 28).double() for U in grid.axes]
        expected = grid.features(state.theta, torch.cartesian_prod(*sides), index)[:, rank].reshape(28, 28).T
        drawn = tile(layers["map"], column, row)
        sign = np.sign((drawn * expected.numpy()).sum())  # the library that computes eigenvectors chooses it
        np.testing.assert_allclose(drawn, sign * expected, atol=0.51 * level)
    assert np.isnan(tile(layers["map"], 2, 0)).all()  # the model has six
    sides = [torch.linspace(float(U[0]), float(U[-1]), 60).double() for U in grid.axes]
    mean = run.method.posterior(run.problem, state)(torch.cartesian_prod(*sides)).mean.reshape(60, 60).T
    total = layers["sum"].sort_values(["y", "x"])["value"].to_numpy().reshape(60, 60)
    np.testing.assert_allclose(total, mean, atol=0.51 * level)
    assert layers["words"]["text"].iloc[-1] == "sum of 6"
    train = run.problem.train
    w = weights(run, state, grid.features(state.theta, train.X, index)).abs()
    bars, words = layers["weights"], layers["words"]
    np.testing.assert_allclose(bars["x1"] - bars["x0"], 28 * w / w.max(), atol=1e-3)
    np.testing.assert_allclose(
        [abs(float(t.partition(": ")[2].replace("−", "-"))) for t in words["text"][:6]], w, atol=0.006
    )
    for rank, (column, row) in enumerate([(0, 2), (1, 2), (0, 1), (1, 1), (0, 0), (1, 0)]):
        assert bars["x0"][rank] == 32 * column
        assert words["x"][rank] == 32 * column + 14  # in the middle below its map
        assert 40 * row < words["y"][rank] < bars["y0"][rank] == bars["y1"][rank] < 40 * row + 12
    right = layers["sum"]["x"].max()
    assert words["x"][6] == (layers["sum"]["x"].min() + right) / 2 == right - 29.5
    assert -12 < words["y"][6] - layers["sum"]["y"].min() < 0
    assert limits_of(train) == layers["map"].attrs["colours"]


def test_the_sign_of_a_function_in_a_picture_is_not_that_of_the_library(monkeypatch: pytest.MonkeyPatch):
    run = played("grief", 1)
    at, picture = len(run.trace) - 1, view(run, "grief-eigenfunctions")
    before = picture.data(run, at)["phi2"]["y"]
    eigh = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda A: (eigh(A)[0], -eigh(A)[1]))

    np.testing.assert_allclose(picture.data(run, at)["phi2"]["y"], before)


def test_maps_appear_in_order_with_their_weights_on_one_scale_of_colours_for_all_steps():
    run = played("grief", 2)
    picture, at = view(run, "grief-eigenfunctions"), len(run.trace) - 1
    scales, names = set(), []
    for picture.shown in (1, 3, 8):
        layers = picture.data(run, at)
        scales |= {layers["map"].attrs["colours"], picture.data(run, 0)["map"].attrs["colours"]}
        names.append([text.partition(":")[0] for text in layers["words"]["text"]])
        longest = layers["weights"].eval("x1 - x0").max()
        assert longest == pytest.approx(28.0)
    assert len(scales) == 1
    assert names[0] == ["1", "the first one alone"]
    assert names[1] == ["1", "2", "3", "sum of 3"]
    assert names[2] == [*"12345678", "sum of 8"]
    live = Live(picture, layers)
    assert len({(mapper.low, mapper.high) for mapper in live.figure.select({"type": LinearColorMapper})}) == 1
    picture.rank = 4
    assert picture.data(run, at)["words"]["text"].iloc[-1] == "sum of 11"


def test_errors_for_all_p_equal_those_of_each_matrix():
    rng = torch.Generator().manual_seed(0)
    F = torch.randn(6, 9, generator=rng, dtype=torch.float64)
    K = F.T @ F + 0.1 * torch.eye(9, dtype=torch.float64)

    expected = [float((K - F[:p].T @ F[:p]).norm() / K.norm()) for p in range(1, 7)]

    np.testing.assert_allclose(errors(K, F), expected, rtol=1e-9)


def test_the_grid_is_no_better_than_the_optimum_and_the_matrix_has_the_error_in_its_title():
    run = played("grief", 2)
    layers = view(run, "grief-error").data(run, 9)
    assert (layers["grid"]["y"] >= layers["best"]["y"] - 1e-9).all()
    assert (np.diff(layers["best"]["y"]) <= 1e-12).all()
    assert layers["grid"].attrs["title"] == f"covariance of {len(run.problem.train)} rows"

    frame = view(run, "grief-covariance").data(run, 9)["map"]
    values = frame.sort_values(["y", "x"])["value"].to_numpy().reshape(60, -1)
    exact, rebuilt = values[:, :60], values[:, -60:]
    assert values.shape[1] == 60 + 3 + 60  # the gap is a twentieth
    assert np.isnan(values[:, 60:63]).all()
    error = np.linalg.norm(exact - rebuilt) / np.linalg.norm(exact)
    assert f"{error:.2g}" in frame.attrs["title"]


def test_errors_of_a_matrix_with_known_eigenvalues_end_at_the_smallest_number_that_is_drawn(monkeypatch):
    K, F = torch.diag(torch.tensor([9.0, 4.0, 1.0])).double(), torch.diag(torch.tensor([3.0, 2.0, 1.0])).double()
    monkeypatch.setattr(approximation_quality, "covariance_and_features", lambda run, at, count: (K, F))

    layers = view(played("grief", 2), "grief-error").data(None, 0)
    narrow = view(played("grief", 2), "grief-covariance").data(None, 0)["map"]

    for name in ("grid", "best"):
        assert layers[name]["x"].tolist() == [1, 2, 3]
        np.testing.assert_allclose(layers[name]["y"], [math.sqrt(17 / 98), math.sqrt(1 / 98), 1e-12])
    assert narrow["x"].max() == 3 + 1 + 3 - 1  # a gap of at least one column


def test_the_matrix_of_random_features_is_their_product_at_the_hyperparameters_of_the_step():
    rows = {"name": "hypercube", "n": 80, "d": 2, "noise": 0.2, "seed": 3}
    run = gpx.Spec("rff", {"num_features": 20, "evaluations": 3}, data=rows).open()
    run.finish(steps=4)
    for at in (0, 3):
        frame = view(run, "grief-covariance").data(run, at)["map"]
        values = frame.sort_values(["y", "x"])["value"].to_numpy().reshape(60, -1)[::-1]

        state, train = run.trace[at].step.state, run.problem.train
        X = train.X[run_rows.sampled(len(train), 60)]
        X = X[X[:, 0].argsort()]
        theta = state.theta
        waves = run.method.choose(run.problem, theta).waves
        angles = (X / theta[1:-1].exp()) @ waves.Omega.T
        Phi = theta[0].exp() * torch.cat([angles.cos(), angles.sin()], 1) / angles.shape[1] ** 0.5
        np.testing.assert_allclose(values[:, :60], run.problem.kernel(theta, X, X), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(values[:, -60:], Phi @ Phi.T, rtol=1e-6, atol=1e-9)
        assert "with 20 functions" in frame.attrs["title"]


def test_rows_outside_the_grid_are_counted_above_the_predictions():
    for method, d, name in (("grief", 3, "points"), ("grief-mcmc", 3, "points"), ("grief", 1, "mean")):
        run = played(method, d)
        fit = view(run, "fit")
        assert run.split is not None
        assert "title" not in fit.data(run, 1)[name].attrs

        test, near = run.split.test, run.split.test.X.clone()
        try:
            test.X[:2] += 40.0
            layers = view(run, "fit").data(run, 1)
        finally:
            test.X.copy_(near)

        title = f"2 of {len(test)} test rows lie outside the grid, where predictions go over to the prior"
        assert layers[name].attrs["title"] == title
        assert fit.plot(layers) is not None


@pytest.mark.parametrize("d", [1, 3])
def test_rows_outside_the_grid_are_computed_once_per_run(d: int, monkeypatch: pytest.MonkeyPatch):
    run, calls = played("grief", d), []
    original = type(run.method).is_outside

    def is_outside(method: Any, problem: Any, X: Any) -> Any:
        calls.append(len(X))
        return original(method, problem, X)

    monkeypatch.setattr(type(run.method), "is_outside", is_outside)
    fit = view(run, "fit")
    for at in (0, 1, 1):
        fit.data(run, at)

    assert run.split is not None
    assert calls == [len(run.split.test)]


def test_the_spectrum_shows_the_ranks_of_functions_chosen_by_evidence():
    run = played("grief", 2, basis="evidence", candidates=25, learn=False)
    state, at = run.trace[-1].step.state, len(run.trace) - 1
    grid = run.method.eigenfunctions(run.problem, state).grid
    spectrum = grid.spectrum(state.chosen, 25)
    wanted = {tuple(row) for row in state.functions.tolist()}
    ranks = [k + 1 for k, row in enumerate(spectrum.axis_indices.tolist()) if tuple(row) in wanted]

    layers = view(run, "grief-spectrum").data(run, at)

    assert layers["kept"]["x"].tolist() == ranks
    assert max(ranks) > run.method.num_eigenfunctions
    np.testing.assert_allclose(layers["kept"]["y"], spectrum.log_values[torch.tensor(ranks) - 1] / np.log(10.0))
    assert not set(layers["dropped"]["x"]) & set(ranks)
    s2 = float(state.theta[-1].exp()) ** 2  # eigenvalues are variances, and so is the line
    assert layers["noise"]["y"].tolist() == pytest.approx([np.log10(s2)] * 2)
    points = math.prod(len(U) for U in grid.axes)
    assert layers["kept"].attrs["title"] == f"a grid of {points:,} points"
    assert layers["noise"]["x"].tolist() == [1, len(layers["kept"]) + len(layers["dropped"])]


def test_a_grid_of_ten_million_points_is_written_as_a_power():
    numbers = [
        number_of_points(np.ones(round(side)) for side in sides) for sides in ([3, 4], [215, 215, 216], [10] * 7)
    ]

    assert numbers == ["12", "9,984,600", "10^7"]


def test_of_many_dropped_eigenvalues_every_kth_is_drawn(monkeypatch: pytest.MonkeyPatch):
    run = played("grief", 2)
    whole = view(run, "grief-spectrum").data(run, 9)
    monkeypatch.setattr(approximation_quality, "DROPPED", 5)

    layers = view(run, "grief-spectrum").data(run, 9)

    assert len(whole["dropped"]) == len(whole["kept"]) == 12  # as many as are kept
    assert layers["dropped"]["x"].tolist() == whole["dropped"]["x"].tolist()[::3]
    assert layers["kept"].equals(whole["kept"])
