"""Hyperparameters set by hand in the middle of a run: every method goes on from there, and the run before stays."""

from __future__ import annotations

import pytest
import torch

from gpexplorer.errors import SettingError
from gpexplorer.methods.base import registry
from gpexplorer.objectives import nystrom
from gpexplorer.runs import Run, Spec

SMALLER = {
    "num_inducing": 6, "restarts": 0, "num_eigenfunctions": 6, "samples": 8, "warm_up": 4, "starts": 1, "epochs": 2,
    "subset": 40, "grid_size": 2, "folds": 2,
}  # fmt: skip
WITH_KERNEL = [key for key in registry if not registry[key].own_kernel]


def opened(method: str, steps: int = 4, **settings: object) -> Run:
    own = {name: value for name, value in (SMALLER | settings).items() if name in registry[method].param}
    one_input = registry[method].most_inputs == 1
    data = {"name": "snelson-like", "n": 60} if one_input else {"name": "friedman1", "n": 60, "noise": 1.0}
    run = Spec(method, own, data=data, kernel=registry[method].example_kernel).open()
    run.finish(steps=steps)
    return run


@pytest.mark.parametrize("method", WITH_KERNEL)
def test_every_method_goes_on_from_hyperparameters_set_by_hand(method: str):
    run = opened(method)
    before, theta = len(run.trace), run.trace[-1].step.state.theta.clone()

    name = "lengthscale[x2]" if run.problem.train.d > 1 else "lengthscale"
    other = run.with_hyperparameters(values={name: 0.7}, fixed=["noise"])

    assert len(other.trace) == before + 1
    assert len(run.trace) == before  # the run before is as it was
    assert torch.equal(run.trace[-1].step.state.theta, theta)
    table = other.hyperparameters_at(before, curvature=False)
    noise = table["noise"].value
    if not getattr(other.trace[-1].step.info, "scale", 0.0):  # a method without a scale of its own changes it
        assert table[name].value == pytest.approx(0.7)
    assert table["noise"].fixed
    mean, var = (torch.as_tensor(part) for part in other.posterior()(run.split.train.X))
    assert bool(mean.isfinite().all())
    assert bool((var >= 0.0).all())
    other.finish(steps=before + 3)
    assert other.hyperparameters_at(curvature=False)["noise"].value == noise
    assert not other.rises


@pytest.mark.parametrize("method", ["cholqr", "titsias", "sgpr", "fitc", "kmeans"])
def test_inducing_points_stay_where_they_are_and_the_objective_is_that_of_the_new_values(method: str):
    run = opened(method, steps=8)
    other = run.with_hyperparameters(values={"lengthscale": 2.0, "noise": 3.0})

    assert (other.inducing_points() == run.inducing_points()).all()
    state, objective = other.trace[-1].step.state, other.trace[-1].step.info.objective
    Z = getattr(state, "Z", None)
    Z = run.problem.train.rows(state.inducing).X if Z is None else Z
    likelihood = "fitc" if method == "fitc" else getattr(run.method, "objective", "vfe")
    wanted = nystrom(run.problem.kernel, state.theta, run.problem.train, Z, likelihood).terms.total(likelihood)
    assert objective == pytest.approx(wanted)
    other.finish(steps=len(other.trace) + 12)
    assert other.trace[-1].step.info.objective < objective - 1.0  # a bad value heals


def test_a_later_change_can_take_the_place_of_the_one_before():
    run = opened("cholqr")
    once = run.with_hyperparameters(values={"noise": 3.0})
    twice = once.with_hyperparameters(after=len(run.trace) - 1, values={"lengthscale[x1]": 2.0})

    assert len(twice.trace) == len(once.trace)
    table = twice.hyperparameters_at(curvature=False)
    assert (table["noise"].value, table["lengthscale[x1]"].value) == pytest.approx((3.0, 2.0))


def test_what_cannot_be_set_is_refused_with_a_sentence():
    run = opened("cholqr")
    with pytest.raises(SettingError, match="no hyperparameter 'lenghtscale'; did you mean"):
        run.with_hyperparameters(values={"lenghtscale": 1.0})
    with pytest.raises(SettingError, match="learns features of its own"):
        opened("svgp", steps=1).with_hyperparameters(values={"noise": 1.0})
    bounded = run.with_hyperparameters(bounds={"noise": [0.1, 5.0]})
    with pytest.raises(SettingError, match="outside its bounds"):
        bounded.with_hyperparameters(values={"noise": 7.0})


def test_bounds_and_ties_of_a_parameter_hold_again_once_it_is_learned():
    kernel = {"name": "lp", "tied": [["lengthscale", "width"]], "bounds": {"period": [0.5, 2.0]}}
    run = Spec("sgpr", {"num_inducing": 5}, data={"name": "hypercube", "n": 40, "d": 1}, kernel=kernel).open()
    run.finish(steps=2)

    locked = run.with_hyperparameters(fixed=["lp.width", "lp.period"])
    table = locked.hyperparameters_at(curvature=False)
    assert [row.name for row in table if row.fixed] == ["lp.lengthscale", "lp.period", "lp.width"]
    assert table["lp.width"].tied == "lp.lengthscale"

    free = locked.with_hyperparameters(fixed=[])
    table = free.hyperparameters_at(curvature=False)
    assert not any(row.fixed for row in table)
    assert table["lp.period"].bounds == pytest.approx((0.5, 2.0))
    assert table["lp.width"].tied == "lp.lengthscale"
    free.finish(steps=12)
    table = free.hyperparameters_at(curvature=False)
    assert table["lp.width"].value == pytest.approx(table["lp.lengthscale"].value)
