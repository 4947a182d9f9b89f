"""Names and units of hyperparameters, priors, and what is refused."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.kernels.theta.options import parse_prior
from gpexplorer.kernels.theta.restrictions import kernel_parameters, matching

FRAME = pd.DataFrame({
    "width": np.linspace(0.0, 30.0, 40),
    "height in m": np.random.default_rng(0).uniform(1.0, 9.0, 40),
    "price": np.sin(np.linspace(0.0, 30.0, 40)) * 250.0,
})  # fmt: skip


def opened(kernel, method="ml", data=FRAME, **fields):
    return gpx.Spec(method, data="rows", kernel=kernel, **fields).open(data=data)


def named(run):
    return kernel_parameters(run.problem.kernel, run.problem.train)


def test_names_say_part_and_input_and_values_are_in_units_of_the_file():
    run = opened("se-ard + lp[width]*linear[width] + se-ard")
    names = [each.name for each in named(run)]
    assert names[:3] == ["se-ard 1.sd", "se-ard 1.lengthscale[width]", "se-ard 1.lengthscale[height in m]"]
    assert {"lp.period", "lp.width", "linear.slope sd", "se-ard 2.lengthscale[width]"} <= set(names)
    assert names[-1] == "noise"
    scale, by_name = run.problem.train.scale, {each.name: each for each in named(run)}
    assert by_name["se-ard 1.lengthscale[height in m]"].factor == pytest.approx(float(scale.x_sd[1]))
    assert by_name["lp.period"].factor == pytest.approx(float(scale.x_sd[0]))
    assert by_name["lp.lengthscale"].factor == 1.0  # of a sine
    assert by_name["noise"].factor == pytest.approx(scale.y_sd)
    assert by_name["lp.sd"].unit == "price"
    assert by_name["linear.slope sd"].unit == "1 per width"  # the second factor of a product


def test_the_kernel_in_units_is_that_of_the_file():
    run = opened({"name": "se-ard", "values": {"se-ard.sd": 40.0, "*[width]": 3.0, "*[height in m]": 2.0}})
    scale, X = run.problem.train.scale, run.problem.train.X
    K = run.problem.kernel(run.problem.theta, X, X) * scale.y_sd**2
    x = X * scale.x_sd + scale.x_mean
    expected = 40.0**2 * torch.exp(-0.5 * torch.cdist(x / x.new_tensor([3.0, 2.0]), x / x.new_tensor([3.0, 2.0])) ** 2)
    torch.testing.assert_close(K, expected)


def test_names_may_be_short_and_have_wildcards():
    rows = named(opened("se-ard + lp[width]"))

    def found(pattern):
        return [each.name for each in matching(rows, pattern)]

    assert found("period") == found("lp.per*") == found("lp.period") == ["lp.period"]
    assert found("se-ard.lengthscale") == ["se-ard.lengthscale[width]", "se-ard.lengthscale[height in m]"]
    assert len(found("*.lengthscale")) == 3
    assert found("*[width]") == ["se-ard.lengthscale[width]"]
    with pytest.raises(SettingError, match=r"did you mean 'lp.period'"):
        found("lp.perod")
    with pytest.raises(SettingError, match=r"did you mean 'lengthscale'"):
        found("lenghtscale")


@pytest.mark.parametrize("names", [["*", "noise"], ["noise", "*"]])
def test_the_name_that_means_fewer_counts_in_any_order(names):
    said = {"*": (2.0, [0.1, 9.0], "lognormal(0, 1)"), "noise": (0.3, [0.2, 0.4], "lognormal(-1, 1)")}
    options = {
        option: {name: said[name][k] for name in names} for k, option in enumerate(("values", "bounds", "priors"))
    }
    spec = gpx.Spec("ml", kernel={"name": "se", **options})
    for each in (spec, gpx.Spec.from_json(spec.to_json())):  # JSON keeps no order
        table = each.open().hyperparameters
        assert [row.value for row in table] == pytest.approx([2.0, 2.0, 0.3])
        assert table["noise"].bounds == pytest.approx((0.2, 0.4))
        assert [row.prior for row in table] == ["lognormal(0, 1)", "lognormal(0, 1)", "lognormal(-1, 1)"]


def test_groups_with_a_common_member_are_one_group_in_any_order():
    for groups in (["a.sd", "b.sd"], ["b.sd", "c.sd"]), (["b.sd", "c.sd"], ["a.sd", "b.sd"]):
        names = {"a": "se", "b": "matern32", "c": "matern52"}
        tied = [[name.replace(name[0], names[name[0]], 1) for name in group] for group in groups]
        run = opened({"name": "se+matern32+matern52", "tied": tied, "values": {"se.sd": 7.0}})
        assert [each.value(run.problem.theta) for each in named(run) if each.what == "sd"] == pytest.approx([7.0] * 3)


@pytest.mark.parametrize(
    ("text", "density"),
    [
        ("lognormal(0.3, 0.7)", stats.lognorm(0.7, scale=math.exp(0.3))),
        ("normal(1, 2)", stats.truncnorm(-0.5, np.inf, loc=1.0, scale=2.0)),
        ("gamma(2, 0.5)", stats.gamma(2.0, scale=2.0)),
        ("inverse-gamma(3, 2)", stats.invgamma(3.0, scale=2.0)),
    ],
)
def test_priors_are_the_densities_of_scipy(text, density):
    prior = parse_prior(text)
    for x in (0.05, 0.9, 4.0):
        z, step = math.log(x), 1e-6
        assert prior.at(z).log_density == pytest.approx(density.logpdf(x), rel=1e-10)
        difference = (prior.at(z + step).log_density - prior.at(z - step).log_density) / (2.0 * step)
        assert prior.at(z).derivative == pytest.approx(difference, rel=1e-6, abs=1e-7)
    mass = integrate.quad(lambda z: math.exp(prior.at(z).log_density + z), -30.0, 8.0)[0]
    assert mass == pytest.approx(1.0, abs=1e-6)
    assert parse_prior(str(prior)) == prior


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("lognorml(0, 1)", "did you mean 'lognormal'"),
        ("lognormal(0)", "two numbers"),
        ("lognormal(0, -1)", "above 0"),
        ("gamma(0, 1)", "above 0"),
        ("normal(nan, 1)", "finite"),
        ("__import__('os')", "not known"),
        ("lognormal(0, __import__)", "two numbers"),
        (3, "give a text"),
    ],
)
def test_other_priors_are_refused_before_any_work(text, word):
    with pytest.raises(SettingError, match=word):
        gpx.Spec("ml", kernel={"name": "se", "priors": {"noise": text}})


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"values": {"noise": -1.0}}, "The value of noise"),
        ({"values": {"noise": "big"}}, "The value of noise"),
        ({"values": [1.0]}, "names with their values"),
        ({"fixed": 3}, "a list of names"),
        ({"bounds": {"noise": [2.0, 1.0]}}, "lower one first"),
        ({"bounds": {"noise": 1.0}}, "two numbers"),
        ({"tied": "sd"}, "groups of names"),
        ({"fixd": ["noise"]}, "did you mean 'fixed'"),
    ],
)
def test_wrong_options_are_refused_by_the_spec(options, word):
    with pytest.raises(SettingError, match=word):
        gpx.Spec("ml", kernel={"name": "se-ard"} | options)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"fixed": ["nois"]}, "did you mean 'noise'"),
        ({"values": {"noise": 9.0}, "bounds": {"noise": [None, 2.0]}}, "outside its bounds"),
        ({"values": {"*[width]": 1.0, "*m]": 2.0}, "tied": [["*.lengthscale"]]}, "their values differ"),
        ({"bounds": {"*[width]": [1, 2], "*m]": [5, 6]}, "tied": [["*.lengthscale"]]}, "no value is within the bounds"),
        ({"values": {"*[width]": 5}, "bounds": {"*m]": [1, 2]}, "tied": [["*.lengthscale"]]}, "outside its bounds"),
        (
            {"values": {"*[width]": 5}, "fixed": ["*[width]"], "bounds": {"*m]": [1, 2]}, "tied": ["lengthscale"]},
            "outside its bounds",
        ),
        ({"values": {"lengthscale": 1.0, "se-ard.lengthscale": 2.0}}, "Leave one of them out"),
    ],
)
def test_contradictions_are_refused_when_the_columns_are_known(options, word):
    with pytest.raises(SettingError, match=word):
        opened({"name": "se-ard"} | options)


def test_ties_hold_in_the_units_of_the_file():
    run = opened({"name": "lp[width]", "tied": [["lp.lengthscale", "lp.width"]], "values": {"lp.width": 4.0}})
    by_name = {each.name: each for each in named(run)}
    assert by_name["lp.lengthscale"].value(run.problem.theta) == pytest.approx(4.0)
    run.finish(steps=10)
    theta = run.trace[-1].step.state.theta
    values = [by_name[name].value(theta) for name in ("lp.lengthscale", "lp.width")]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert abs(values[0] - 4.0) > 1e-3


def test_options_survive_json_and_change_the_key():
    kernel = {"name": "se-ard", "values": {"noise": 1}, "fixed": "noise", "bounds": {"*.sd": [0, None]}}
    spec = gpx.Spec("ml", kernel=kernel | {"priors": {"*.sd": " LogNormal(0,1) "}, "tied": ["se-ard.sd", "noise"]})
    assert spec.kernel["fixed"] == ["noise"]
    assert spec.kernel["priors"] == {"*.sd": "lognormal(0, 1)"}
    assert spec.kernel["tied"] == [["se-ard.sd", "noise"]]
    again = gpx.Spec.from_json(spec.to_json())
    assert again == spec
    assert again.key() != gpx.Spec("ml", kernel="se-ard").key()


def test_a_value_ends_the_race_of_starts_and_a_fixed_one_does_not():
    by_hand = opened({"name": "se[width]", "values": {"se.lengthscale": 25.0}})
    assert named(by_hand)[1].value(by_hand.problem.theta) == pytest.approx(25.0)
    fixed = opened({"name": "se[width]", "values": {"noise": 10.0}, "fixed": ["noise"]})
    assert named(fixed)[-1].value(fixed.problem.theta) == pytest.approx(10.0)
    assert named(fixed)[1].value(fixed.problem.theta) < 3.0  # the starts saw the waves


def test_noise_that_is_given_per_row_cannot_be_given_again():
    X, y = FRAME[["width"]].to_numpy(), FRAME["price"].to_numpy()
    estimator = gpx.Estimator("ml", kernel={"name": "se", "values": {"noise": 3.0}})
    with pytest.raises(SettingError, match="leave the value of noise out"):
        estimator.fit(X, y, noise=np.full(40, 2.0))
