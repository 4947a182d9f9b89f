"""The likelihood over two hyperparameters: its numbers are those of dense algebra, and a click continues there."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize

import gpexplorer as gpx
from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.objectives import evidence
from gpexplorer.ui.playback.open_run import OpenRequest, OpenRun
from gpexplorer.views.base import registry
from gpexplorer.views.runs import likelihood_surface
from gpexplorer.views.runs.likelihood_surface import Likelihood

DATA = {"name": "snelson-like", "n": 70}


def opened(method: str = "ml", kernel: object = "se", steps: int = 4, shift: float = 0.0) -> gpx.Run:
    spec = gpx.Spec(method, {"num_inducing": 5} if method == "sgpr" else {}, DATA, kernel=kernel)
    split = gpx.data.load(DATA)
    moved = [
        type(part)(part.X + shift, 3.0 * part.y + shift, names=part.names, target=part.target)
        for part in (split.train, split.test)
    ]
    run = spec.open(data=type(split)(*moved, name="moved")) if shift else spec.open()
    run.finish(steps=steps)
    return run


@pytest.mark.parametrize("shift", [0.0, 500.0])
def test_heights_axes_and_the_lowest_point_are_those_of_the_exact_model(shift: float):
    run, view = opened(shift=shift), Likelihood(side=7)
    layers = view.data(run, 2)
    surface, problem = layers["surface"], run.problem

    def nlml(lengthscale: float, noise: float) -> float:
        theta = run.trace[2].step.state.theta.clone()
        table = run.hyperparameters_at(2, curvature=False)
        theta[1] += math.log(lengthscale / table["lengthscale"].value)
        theta[-1] += math.log(noise / table["noise"].value)
        return evidence(problem.kernel, theta, problem.train)[0]

    lowest = nlml(*(10.0 ** layers["lowest"].to_numpy()[0]))
    for x, y, value in surface.sample(6, random_state=0)[["x", "y", "value"]].to_numpy():
        assert value == pytest.approx(np.log10(1.0 + nlml(10.0**x, 10.0**y) - lowest), abs=1e-6)
    assert (surface["value"] > -1e-9).all()
    grid = surface[["x", "y"]].to_numpy()
    step = np.diff(np.unique(grid[:, 0]))[0]
    for dx, dy in ((step, 0.0), (-step, 0.0), (0.0, step), (0.0, -step)):
        x, y = layers["lowest"].to_numpy()[0] + 0.05 * np.array([dx, dy])
        assert nlml(10.0**x, 10.0**y) >= lowest - 1e-9
    now = run.hyperparameters_at(2, curvature=False)
    assert 10.0 ** layers["now"].to_numpy()[0] == pytest.approx([now["lengthscale"].value, now["noise"].value])
    assert len(layers["path"]) == 3
    assert layers["begin"].to_numpy().tolist() == layers["path"].to_numpy()[:1].tolist()
    height = nlml(now["lengthscale"].value, now["noise"].value) - lowest
    assert surface.attrs["title"] == f"here {round(height, 2):.3g} nat above the lowest point with the same sd"
    assert surface.attrs["colours"] == (0.0, 3.0)
    assert [surface.attrs[axis] for axis in ("xlabel", "ylabel")] == ["log10 lengthscale [x]", "log10 noise [y]"]
    path, room = layers["path"].to_numpy(), 1.6 / math.log(10.0)
    np.testing.assert_allclose(grid.min(0), path.min(0) - room)
    np.testing.assert_allclose(grid.max(0), path.max(0) + room)


def test_the_run_ends_at_the_lowest_point_where_all_else_is_fixed():
    run = opened(kernel={"name": "se", "fixed": ["se.sd"]}, steps=60)
    layers = Likelihood().data(run, len(run.trace) - 1)
    assert layers["now"].to_numpy()[0] == pytest.approx(layers["lowest"].to_numpy()[0], abs=2e-3)


def test_priors_belong_to_the_height_and_tied_parameters_move_together():
    kernel = {"name": "lp", "tied": [["lengthscale", "width"]], "priors": {"noise": "lognormal(0, 0.2)"}}
    run, view = opened(kernel=kernel), Likelihood(side=3)
    theta = run.trace[-1].step.state.theta
    there = view.placed(run, theta, (0.3, -0.2))
    assert float(there[1] - there[3]) == pytest.approx(float(theta[1] - theta[3]))
    value = evidence(run.problem.kernel, there, run.problem.train)[0]
    assert view.height(run)(there) == pytest.approx(value + run.problem.kernel.restrictions.penalty(there)[0])
    around = np.array([[float(theta[axis]) for axis in view.axes_of(run)]])
    best, lowest = view._lowest(run, theta, view.surface(run, 1, theta, around, 1.0))
    beside = [
        view.height(run)(view.placed(run, theta, best + step))
        for step in 0.02 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    ]
    assert min(beside) >= lowest - 1e-6
    asked = view.hyperparameters_clicked(run, 1, -0.5, 0.25)
    wanted = {"lp.lengthscale": 10**-0.5, "lp.width": 10**-0.5, "noise": 10**0.25}
    assert asked == pytest.approx(wanted)


def test_one_of_two_lengthscales_says_of_which_input_it_is_and_that_the_other_stays():
    def surface(kernel: object) -> pd.DataFrame:
        run = gpx.Spec("ml", data={"name": "hypercube", "n": 40, "d": 2}, kernel=kernel).open()
        run.finish(steps=1)
        return Likelihood(side=3).data(run, 1)["surface"]

    attrs = surface("se-ard").attrs
    assert [attrs[axis] for axis in ("xlabel", "ylabel")] == ["log10 lengthscale of x1", "log10 noise [y]"]
    assert attrs["title"].endswith("nat above the lowest point with the same sd, lengthscale of x2")
    tied = surface({"name": "se-ard", "tied": [["lengthscale[x1]", "lengthscale[x2]"]]})
    assert tied.attrs["title"].endswith("with the same sd")


def test_its_hyperparameters_are_chosen_by_name():
    run, view = opened(kernel="se + lp"), Likelihood(side=3)
    assert view.applies(run)
    names = [row.name for row in run.hyperparameters_at(1, curvature=False)]
    assert view.param.first.objects == names
    assert (view.first, view.second) == ("se.lengthscale", "noise")
    view.first, view.second = "lp.period", "se.sd"
    assert view.axes_of(run) == (names.index("lp.period"), 0)
    surface = view.data(run, 1)["surface"]
    assert surface.attrs["xlabel"] == "log10 period of lp [x]"
    assert surface.attrs["ylabel"] == "log10 sd of se [y]"
    assert view.applies(opened(kernel="se"))  # another kernel has no period
    assert (view.first, view.second) == ("se.lengthscale", "se.sd")


@pytest.mark.parametrize("priors", [{}, {"lengthscale": "lognormal(-1, 0.6)", "noise": "lognormal(0, 0.6)"}])
def test_all_heights_and_the_lowest_point_are_those_of_a_search_without_gradients(priors: dict[str, str]):
    spec = gpx.Spec("ml", data={"name": "snelson-like", "n": 25}, kernel={"name": "se", "priors": priors})
    run, view = spec.open(), Likelihood(side=7)
    run.finish(steps=2)
    theta, parameters = run.trace[2].step.state.theta, likelihood_surface._parameters(run)

    def height(point: np.ndarray) -> float:
        there = theta.clone()
        for axis, place in zip((1, 2), point, strict=True):
            there[axis] = place * math.log(10.0) - math.log(parameters[axis].factor)
        kernel = run.problem.kernel
        penalty = 0.0 if kernel.restrictions is None else float(kernel.restrictions.penalty(there)[0])
        return float(evidence(kernel, there, run.problem.train)[0]) + penalty

    surface, best = (view.data(run, 2)[name] for name in ("surface", "lowest"))

    lowest = height(best.to_numpy()[0])
    ends = list(zip(surface[["x", "y"]].min(), surface[["x", "y"]].max(), strict=True))
    begin = np.clip(best.to_numpy()[0] + 0.05, *np.transpose(ends))
    found = minimize(height, begin, method="Nelder-Mead", bounds=ends)
    assert lowest == pytest.approx(found.fun, abs=1e-3)
    heights = [height(point) for point in surface[["x", "y"]].to_numpy()]
    assert min(heights) < lowest + 1.0
    np.testing.assert_allclose(surface["value"], np.log10(1.0 + np.array(heights) - lowest), atol=1e-6)


def test_the_lowest_point_is_that_of_the_grid_where_nothing_beside_it_is_positive_definite(
    monkeypatch: pytest.MonkeyPatch,
):
    run, view = opened(steps=1), Likelihood(side=2)
    theta = run.trace[1].step.state.theta

    def fail(*_: object) -> None:
        raise NotPositiveDefinite("K", 3, 1.0, "y")

    monkeypatch.setattr(likelihood_surface, "evidence", fail)
    corners = [(0.0, 0.0, 5.0), (1.0, 0.0, math.nan), (0.0, 1.0, 4.0), (1.0, 1.0, 6.0)]
    surface = pd.DataFrame(corners, columns=["x", "y", "value"])
    assert view._lowest(run, theta, surface)[0].tolist() == [0.0, 1.0]
    middle, height = view._lowest(run, theta, surface.assign(value=math.nan))
    assert (middle.tolist(), height) == ([0.5, 0.5], math.inf)


def test_a_surface_stays_while_a_run_plays_inside_it_and_is_drawn_again_after_a_moment_at_one_record(
    monkeypatch: pytest.MonkeyPatch,
):
    run, view, now = opened(steps=1), Likelihood(side=2), [5.0]
    monkeypatch.setattr(likelihood_surface, "time", SimpleNamespace(monotonic=lambda: now[0]))
    theta, inside = run.trace[1].step.state.theta, np.zeros((1, 2))

    def ends(at: int, points: np.ndarray, seconds: float = 0.0) -> tuple[list[float], bool]:
        now[0] += seconds
        surface = view.surface(run, at, theta, points, 1.0)
        return surface[["x", "y"]].agg(["min", "max"]).T.to_numpy().ravel().tolist(), view.unfinished(run, at)

    assert not view.unfinished(run, 0)
    begin, moved = ([-1.0, 1.0, -1.0, 1.0], False), ([-0.5, 1.5, -1.5, 0.5], False)
    assert ends(0, inside) == begin
    there = np.array([[0.5, -0.5]])
    assert ends(0, there, 9.0) == begin  # the same record
    for at in range(1, 9):
        assert ends(at, there, 0.2) == (begin[0], True)  # a run that plays
    assert ends(8, there, 0.2) == (begin[0], True)
    assert ends(8, there, 0.2) == moved  # which has stopped for more than three tenths of a second
    for step, outside in enumerate([[-0.6, -0.5], [1.6, -0.5], [0.5, -1.6], [0.5, 0.6]]):
        view._surface = None
        ends(0, there)
        x, y = outside
        assert ends(1 + step, np.array([outside])) == (pytest.approx([x - 1, x + 1, y - 1, y + 1]), False)
    other = opened(steps=1)
    assert view.surface(other, 4, theta, there, 1.0)["x"].min() == -0.5
    view.side = 3
    assert len(view.surface(other, 4, theta, there, 1.0)) == 9


def test_a_click_goes_on_from_there_and_undo_returns():
    open_run = OpenRun()
    open_run.open(OpenRequest(gpx.Spec("sgpr", {"num_inducing": 5}, DATA, kernel="se")))
    for _ in range(3):
        open_run.advance()
    before = open_run.run.hyperparameters_at(3, curvature=False)

    open_run.click("likelihood", 3, 0.2, -0.7)

    table = open_run.run.hyperparameters_at(4, curvature=False)
    assert (table["lengthscale"].value, table["noise"].value) == pytest.approx((10**0.2, 10**-0.7))
    open_run.undo()
    assert open_run.last == 3
    assert open_run.run.hyperparameters_at(3, curvature=False)["noise"].value == before["noise"].value
    open_run.close()


def test_it_is_offered_where_the_exact_model_is_cheap_and_the_kernel_is_used():
    view = registry["likelihood"]()
    assert view.applies(opened("sgpr", steps=1))
    assert not view.applies(gpx.Spec("svgp", {"num_inducing": 4}, DATA).open())
    assert not view.applies(gpx.Spec("sgpr", {}, {"name": "snelson-like", "n": 900}, kernel="se").open())
    words = (["ab", "ba", "abc", "bca", "cab"], torch.arange(5.0))
    assert view.applies(gpx.Spec("ml", data="words", kernel="spectrum").open(data=words))  # an sd and the noise
    assert view.axes_of(gpx.Spec("ml", data="words", kernel="spectrum").open(data=words)) == (1, 1)
    assert torch.isfinite(torch.tensor(view.height(opened("sgpr", steps=1))(torch.zeros(3, dtype=torch.float64))))
