"""Every method that learns hyperparameters obeys what is fixed, bounded or tied, and finds the mode with priors."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.kernels.theta.restrictions import kernel_parameters
from gpexplorer.methods.base import registry
from oracles import exact_nlml
from steps_of import alike, small_spec

RESTRICTED = {
    "name": "se-ard",
    "values": {"noise": 0.7},
    "fixed": ["noise"],
    "bounds": {"se-ard.lengthscale[x1]": [0.2, 0.25]},
    "tied": [["se-ard.lengthscale[x2]", "se-ard.lengthscale[x3]"]],
}
NOISE = {"name": "se-ard", "values": {"noise": 0.7}, "fixed": ["noise"]}
BOUNDED_NOISE = {"name": "se-ard", "bounds": {"noise": [0.4, 0.45]}}
LEARNS = sorted(key for key, method in registry.items() if not method.own_kernel and method.most_inputs != 1)
OWN = sorted(key for key, method in registry.items() if method.own_kernel)


def thetas(run):
    return [record.step.state.theta for record in run.trace]


def noises(run):
    """The noise of each record; theta ends with it, also where a network comes before."""
    return [math.exp(float(theta[-1])) * run.problem.train.scale.y_sd for theta in thetas(run)]


def parameters(run):
    return kernel_parameters(run.problem.kernel, run.problem.train)


@pytest.mark.parametrize("key", LEARNS)
def test_fixed_entries_do_not_move_bounds_hold_and_tied_entries_are_equal(key):
    run = small_spec(key, d=3, kernel=RESTRICTED).open()
    run.finish(steps=14)
    assert run.error is None
    _, first, second, third, noise = parameters(run)
    for theta in thetas(run):
        assert theta[-1] == run.problem.theta[-1]  # not by a bit
        assert 0.2 - 1e-12 <= first.value(theta) <= 0.25 + 1e-12
        assert second.value(theta) == pytest.approx(third.value(theta), rel=1e-14)
    assert noise.value(run.problem.theta) == pytest.approx(0.7, rel=1e-15)
    assert not run.rises


@pytest.mark.parametrize("key", ["sgpr", "cholqr", "ml", "gbcd", "grief", "gpcv-admm", "loo", "rff", "fitc"])
def test_what_is_free_is_learned(key):
    settings = {"learn_all": 4} if key == "gbcd" and "learn_all" in registry[key].param else {}
    run = small_spec(key, d=3, kernel=RESTRICTED | {"start": "one"}, settings=settings).open()
    run.finish(steps=14)
    moved = thetas(run)[-1] - run.problem.theta
    assert float(moved[2:4].abs().min()) > 1e-3
    assert float(moved[-1]) == 0.0


@pytest.mark.parametrize("key", OWN)
def test_methods_with_features_of_their_own_keep_the_noise(key):
    fixed = small_spec(key, d=3, kernel=NOISE).open()
    fixed.finish(steps=12)
    assert all(theta[-1] == fixed.problem.theta[-1] for theta in thetas(fixed))
    bounded = small_spec(key, d=3, kernel=BOUNDED_NOISE).open()
    bounded.finish(steps=12)
    assert all(0.4 - 1e-12 <= noise <= 0.45 + 1e-12 for noise in noises(bounded))


@pytest.mark.parametrize("key", OWN[:2])
def test_methods_with_features_of_their_own_name_what_they_do_not_have(key):
    with pytest.raises(SettingError, match="restrict noise"):
        small_spec(key, d=3, kernel=RESTRICTED).open()


@pytest.mark.parametrize("key", ["cholqr", "sgpr", "ml", "gbcd", "grief", "gpcv-admm", "svgp", "vecchia"])
def test_a_restricted_run_continues_as_if_it_had_not_stopped(key):
    kernel = NOISE if registry[key].own_kernel else RESTRICTED
    run = small_spec(key, d=3, kernel=kernel).open()
    run.finish(steps=10)
    again = run.fork(at=4)
    again.finish(steps=10)
    alike(run, again)


OF_ONE_INPUT = {
    "name": "matern32+matern12",
    "values": {"noise": 0.7},
    "fixed": ["noise"],
    "bounds": {"matern32.lengthscale": [0.2, 0.25]},
    "tied": [["matern32.sd", "matern12.sd"]],
}


def test_a_method_of_one_input_obeys_too_and_continues_as_if_it_had_not_stopped():
    run = small_spec("states", kernel=OF_ONE_INPUT).open()
    run.finish(steps=14)
    assert run.error is None
    named = {each.name: each for each in parameters(run)}
    for theta in thetas(run):
        assert theta[-1] == run.problem.theta[-1]
        assert 0.2 - 1e-12 <= named["matern32.lengthscale"].value(theta) <= 0.25 + 1e-12
        assert named["matern32.sd"].value(theta) == pytest.approx(named["matern12.sd"].value(theta), rel=1e-14)
    assert float((thetas(run)[-1] - thetas(run)[0]).abs().max()) > 0.05
    again = run.fork(at=4)
    again.finish(steps=14)
    alike(run, again)


def dense_mode(run, priors):
    """The mode by SciPy, from dense algebra and densities written out here."""
    problem, named = run.problem, {each.name: each for each in parameters(run)}

    def minus_log_posterior(numbers):
        theta = torch.tensor(numbers).requires_grad_(True)
        value = exact_nlml(problem.kernel, theta, problem.train.X, problem.train.y)
        for name, (mu, sd) in priors.items():
            log_value = theta[named[name].entry] + math.log(named[name].factor)
            value = value + 0.5 * ((log_value - mu) / sd) ** 2 + log_value  # lognormal, up to its constant
        value.backward()
        return float(value.detach()), theta.grad.numpy()

    options = {"maxiter": 500, "gtol": 1e-9, "ftol": 1e-14}
    return optimize.minimize(minus_log_posterior, problem.theta.numpy(), jac=True, method="L-BFGS-B", options=options).x


PRIORS = {"se-ard.lengthscale[x1]": (-2.5, 0.05), "se-ard.lengthscale[x2]": (1.0, 0.2), "noise": (-0.5, 0.1)}
ALL_ROWS = {"num_inducing": 54, "tolerance": 1e-9, "evaluations": 60}
EXACT = {
    "ml": {"evaluations": 200, "tolerance": 1e-8},
    "subset-of-data": {"num_rows": 100, "tolerance": 1e-9, "optimiser": "L-BFGS-B", "evaluations": 60},
    "sgpr": {"num_inducing": 54, "start": "random", "tolerance": 1e-9, "evaluations": 200},
    "fitc": {"num_inducing": 54, "start": "random", "tolerance": 1e-9, "evaluations": 200},
    **{key: ALL_ROWS for key in ("random", "kmeans")},
    **{key: ALL_ROWS | {"again": False} for key in ("titsias", "ivm", "greedy-variance")},
    "cholqr": ALL_ROWS,
    "cholesky": {"subset": 54, "evaluations": 200},
    "gbcd": {"subset": 54, "evaluations": 200},
}


@pytest.mark.parametrize("key", EXACT)
def test_priors_move_the_optimum_to_the_dense_mode(key):
    texts = {name: f"lognormal({mu}, {sd})" for name, (mu, sd) in PRIORS.items()}
    kernel = {"name": "se-ard", "start": "one", "priors": texts}
    run = small_spec(key, d=3, kernel=kernel, settings=EXACT[key]).open()
    run.finish(steps=700)
    mode = dense_mode(run, PRIORS)
    without = dense_mode(run, {})
    assert np.abs(mode - without).max() > 0.5
    assert thetas(run)[-1].numpy() == pytest.approx(mode, abs=5e-3)
    table = run.table()
    learned = table[run.method.learned_channel].dropna()
    expected = learned.iloc[-1] - table["log_prior"][learned.index[-1]]
    assert table["map_objective"].dropna().iloc[-1] == pytest.approx(expected, rel=1e-12)
    assert not run.rises


@pytest.mark.parametrize("key", [key for key in LEARNS if registry[key].takes_priors and key not in EXACT])
def test_a_narrow_prior_decides_in_every_other_method(key):
    kernel = {"name": "se-ard", "start": "one", "priors": {"*.lengthscale[x1]": "lognormal(-2.5, 0.01)"}}
    run = small_spec(key, d=3, kernel=kernel).open()
    run.finish(steps=60)
    row = run.hyperparameters_at(-1, curvature=False)["*.lengthscale[x1]"]
    assert row.start > 5.0 * math.exp(-2.5)
    assert row.value == pytest.approx(math.exp(-2.5), rel=0.02)
    table = run.table()
    learned = table["map_objective"] - table[run.method.learned_channel]
    assert learned.dropna().iloc[-1] == pytest.approx(-table["log_prior"].iloc[-1], rel=1e-9)


def test_priors_move_states_to_the_dense_mode():
    priors = {"matern32.lengthscale": (-2.5, 0.05), "noise": (-0.5, 0.1)}
    texts = {name: f"lognormal({mu}, {sd})" for name, (mu, sd) in priors.items()}
    kernel = {"name": "matern32", "start": "one", "priors": texts}
    run = small_spec("states", kernel=kernel, settings={"tolerance": 1e-9, "evaluations": 200}).open()
    run.finish(steps=300)
    mode = dense_mode(run, priors)
    assert np.abs(mode - dense_mode(run, {})).max() > 0.5
    assert np.abs(thetas(run)[-1].numpy() - mode).max() < 1e-3


def test_the_noise_of_a_method_with_features_of_its_own_follows_its_prior():
    settings = {"epochs": 300, "refit": "none", "patience": 0, "validation": 0.0, "layers": 0}
    kernel = {"name": "se-ard", "start": "one"}
    free = small_spec("full-batch", d=3, kernel=kernel, settings=settings).open()
    free.finish()
    prior = {"priors": {"noise": "lognormal(0.5, 0.02)"}}
    run = small_spec("full-batch", d=3, kernel=kernel | prior, settings=settings).open()
    run.finish()
    values = [noises(each)[-1] for each in (free, run)]
    expected = -0.5 * ((math.log(values[1]) - 0.5) / 0.02) ** 2 - math.log(values[1] * 0.02 * math.sqrt(2.0 * math.pi))
    assert run.table()["log_prior"].iloc[-1] == pytest.approx(expected, rel=1e-6)
    assert values[1] == pytest.approx(math.exp(0.5), rel=0.1)
    assert values[1] > 1.2 * values[0]


def test_chains_sample_the_prior_of_the_noise():
    settings = {"num_eigenfunctions": 10, "grid_points": 4, "subset": 20, "evaluations": 4, "chains": 4}
    settings |= {"per_step": 50, "warm_up": 10, "samples": 40, "thin": 5}
    means = []
    for mean in (0.0, -1.0):
        kernel = {"name": "se-ard", "start": "one", "priors": {"noise": f"lognormal({mean}, 0.001)"}}
        run = small_spec("grief-mcmc", d=2, kernel=kernel, settings=settings).open()
        run.finish()
        noise = run.method.noise_variance(run.problem, run.trace[-1].step.state)
        means.append(math.sqrt(noise) * run.problem.train.scale.y_sd)
    assert means == pytest.approx([1.0, math.exp(-1.0)], rel=0.02)
    bounded = small_spec("grief-mcmc", d=2, kernel=BOUNDED_NOISE, settings=settings).open()
    bounded.finish()
    low, high = np.log(np.array([0.4, 0.45]) / bounded.problem.train.scale.y_sd) * 2.0
    z = bounded.trace[-1].step.state.z[:, -1]
    assert bool(((z >= low) & (z <= high)).all())
    assert float(z.max() - z.min()) > 0.0


def test_methods_without_a_likelihood_refuse_priors():
    for key in ("gpcv-admm", "loo", "csi"):
        with pytest.raises(SettingError, match="bounds in place of priors"):
            small_spec(key, kernel={"name": "se-ard", "priors": {"noise": "lognormal(0, 1)"}}).open()


def test_the_optimum_at_a_bound_is_that_of_a_bounded_dense_descent():
    kernel = {"name": "se-ard", "start": "one", "bounds": {"*.lengthscale[x1]": [1.5, 3.0], "noise": [None, 0.2]}}
    run = small_spec("ml", d=3, kernel=kernel, settings=EXACT["ml"]).open()
    run.finish()
    problem, (_, first, _, _, noise) = run.problem, parameters(run)

    def nlml(numbers):
        theta = torch.tensor(numbers).requires_grad_(True)
        value = exact_nlml(problem.kernel, theta, problem.train.X, problem.train.y)
        value.backward()
        return float(value.detach()), theta.grad.numpy()

    bounds = [(None, None), (first.log_scaled(1.5), first.log_scaled(3.0)), (None, None), (None, None)]
    bounds.append((None, noise.log_scaled(0.2)))
    dense = optimize.minimize(nlml, problem.theta.numpy(), jac=True, method="L-BFGS-B", bounds=bounds)
    assert thetas(run)[-1].numpy() == pytest.approx(dense.x, abs=2e-3)
    assert first.value(thetas(run)[-1]) == pytest.approx(1.5, rel=1e-9)


def test_all_may_be_fixed():
    kernel = {"name": "se", "values": {"se.sd": 1.0, "se.lengthscale": 0.5, "noise": 0.1}, "fixed": ["*"]}
    for key in ("ml", "sgpr", "gbcd", "gpcv-admm"):
        run = small_spec(key, d=1, kernel=kernel).open()
        run.finish(steps=8)
        assert run.error is None
        assert all(torch.equal(theta, run.problem.theta) for theta in thetas(run))


def test_specs_without_restrictions_keep_their_keys_and_their_problems():
    plain = gpx.Spec("ml", kernel="se-ard")
    empty = gpx.Spec("ml", kernel={"name": "se-ard", "fixed": [], "values": {}, "bounds": {}, "tied": [], "priors": {}})
    assert empty == plain
    assert empty.key() == plain.key()
    assert plain.open().problem.kernel.restrictions is None
