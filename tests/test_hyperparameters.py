"""The table of hyperparameters: values in units, standard errors, names, and what a cell shows."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.errors import PosteriorError, SettingError
from oracles import exact_nlml
from steps_of import small_spec

FRAME = pd.DataFrame({"<b>x</b>": np.linspace(0.0, 30.0, 50), "price": 90.0 * np.sin(np.linspace(0.0, 9.0, 50)) + 5.0})
FRAME["price"] += np.random.default_rng(3).normal(0.0, 10.0, 50)


def learned(method="ml", kernel="se-ard", **fields):
    run = small_spec(method, d=2, kernel=kernel, **fields).open()
    run.finish(steps=200)
    return run


def test_values_are_those_of_theta_in_the_units_of_the_file():
    run = gpx.Spec("ml", data="rows", kernel="se-ard").open(data=FRAME)
    run.finish(steps=20)
    scale, theta = run.problem.train.scale, run.trace[-1].step.state.theta.exp()
    table = run.hyperparameters
    assert [row.name for row in table] == ["se-ard.sd", "se-ard.lengthscale[<b>x</b>]", "noise"]
    assert table["noise"].value == pytest.approx(float(theta[2]) * scale.y_sd)
    assert table["lengthscale"].value == pytest.approx(float(theta[1] * scale.x_sd[0]))
    assert (table["noise"].unit, table["lengthscale"].unit) == ("price", "<b>x</b>")
    assert table["noise"].value == pytest.approx(10.0, rel=0.3)  # as the rows were drawn


@pytest.mark.parametrize(
    ("transform", "unit"), [("log", "log of <b>price</b>"), ("yeo-johnson 0.375", "Yeo-Johnson 0.375 of <b>price</b>")]
)
def test_a_transformed_target_has_a_unit_in_words_wherever_the_table_is_shown(transform, unit):
    frame = FRAME.assign(price=FRAME["price"] + 200.0).rename(columns={"price": "<b>price</b>"})
    run = gpx.Spec("ml", data="rows", kernel="linear-ard", target_transform=transform).open(data=frame)
    run.finish(steps=2)
    table = run.hyperparameters
    assert table["noise"].unit == unit
    assert table["slope sd"].unit == f"{unit} per <b>x</b>"
    assert list(table.frame()["unit"])[-1] == unit
    assert unit in repr(table)
    assert unit.replace("<b>", "&lt;b&gt;").replace("</b>", "&lt;/b&gt;") in table._repr_html_()
    assert not {"(", ")"} & set("".join(table.frame()["unit"]))


def test_gradient_and_standard_error_are_those_of_the_dense_likelihood():
    run = learned(settings={"evaluations": 200, "tolerance": 1e-7})
    problem, theta = run.problem, run.trace[-1].step.state.theta

    def nlml(theta):
        return exact_nlml(problem.kernel, theta, problem.train.X, problem.train.y)

    H = torch.autograd.functional.hessian(nlml, theta)
    table = run.hyperparameters
    sds = torch.linalg.inv(H).diagonal().sqrt()
    expected = [row.value * float(sd) for row, sd in zip(table, sds, strict=True)]
    assert [row.standard_error for row in table] == pytest.approx(expected, rel=1e-4)
    early = run.hyperparameters_at(1)
    alone = run.hyperparameters_at(1, curvature=False, gradient=True)
    assert [row.gradient for row in alone] == [row.gradient for row in early]
    assert all(math.isnan(row.standard_error) for row in alone)
    assert all(math.isnan(row.gradient) for row in run.hyperparameters_at(1, curvature=False))
    at = run.trace[1].step.state.theta.requires_grad_(True)
    (gradient,) = torch.autograd.grad(nlml(at), at)
    assert [row.gradient for row in early] == pytest.approx(gradient.tolist(), rel=1e-6)


def test_a_prior_adds_its_curvature_and_fixed_ones_have_none():
    prior = {"name": "se-ard", "priors": {"*[x1]": "lognormal(0, 0.01)"}, "fixed": ["noise"]}
    table = learned(kernel=prior, settings={"evaluations": 200, "tolerance": 1e-7}).hyperparameters
    assert table["*[x1]"].standard_error / table["*[x1]"].value == pytest.approx(0.01, rel=0.02)
    assert table["noise"].fixed
    assert math.isnan(table["noise"].standard_error)


@pytest.mark.parametrize("method", ["sgpr", "cholqr", "subset-of-data", "gbcd", "kmeans", "titsias", "ml", "loo"])
def test_the_gradient_vanishes_where_a_method_has_converged(method):
    settings = {"tolerance": 1e-9, "evaluations": 80}
    settings = {name: value for name, value in settings.items() if name in gpx.methods[method].param}
    run = learned(method, settings=settings | ({"tolerance": 1e-6} if method in ("ml", "loo") else {}))
    at = next(record.index for record in reversed(list(run.trace)) if record.step.info.phase != "swap")
    now, start = run.hyperparameters_at(at, curvature=True), run.hyperparameters_at(1, curvature=True)
    largest = [max(abs(row.gradient) for row in table) for table in (now, start)]
    assert largest[0] < 0.05 * largest[1] + 1e-3


def test_the_posterior_the_spec_and_the_estimator_show_the_same_table(tmp_path):
    run = learned("sgpr")
    values = [row.value for row in run.hyperparameters]
    assert [row.value for row in run.posterior().hyperparameters] == values
    run.posterior().save(tmp_path / "model.gpx")
    assert [row.value for row in gpx.load_posterior(tmp_path / "model.gpx").hyperparameters] == pytest.approx(values)
    starts = [row.start for row in run.hyperparameters]
    assert [row.value for row in run.spec.hyperparameters] == starts
    X, y = FRAME[["<b>x</b>"]], FRAME["price"]
    estimator = gpx.Estimator("ml", kernel="se").fit(X, y)
    assert estimator.hyperparameters_["noise"].value == pytest.approx(10.0, rel=0.3)


def test_features_of_a_method_have_the_noise_alone():
    run = small_spec("scgd", d=2).open()
    run.finish(steps=4)
    assert [row.name for row in run.hyperparameters] == ["noise"]
    with pytest.raises(PosteriorError, match="ask its run"):
        _ = run.posterior().hyperparameters


def test_a_cell_shows_the_table_with_names_escaped():
    run = gpx.Spec("ml", data="rows", kernel="se-ard").open(data=FRAME)
    html, text = run.hyperparameters._repr_html_(), repr(run.hyperparameters)
    assert "<b>x</b>" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    assert text.splitlines()[0].split() == ["value", "unit", "start", "learned"]
    assert len(text.splitlines()) == 4
    frame = run.hyperparameters.frame()
    assert frame.loc["noise", "value"] == run.hyperparameters["noise"].value
    assert frame.loc["noise", "transform"] == "log"


def test_learning_goes_on_with_other_restrictions_from_the_present_values():
    run = learned(settings={"evaluations": 12})
    kernel = run.hyperparameters.kernel(bounds={"noise": [0.01, 0.2]}, values={"*[x1]": 0.5})
    other = replace(run.spec, kernel=kernel).open()
    table = other.hyperparameters
    assert table["*[x1]"].value == pytest.approx(0.5)
    assert table["*[x2]"].value == pytest.approx(run.hyperparameters["*[x2]"].value, rel=1e-12)
    assert table["noise"].bounds == pytest.approx((0.01, 0.2))
    assert table["noise"].value == pytest.approx(0.2)  # where 0.31 begins
    other.finish()
    assert other.hyperparameters["noise"].value <= 0.2 + 1e-12
    again = replace(run.spec, kernel=other.hyperparameters.kernel()).open()
    assert again.hyperparameters["noise"].bounds == pytest.approx((0.01, 0.2))


COMMAS = pd.DataFrame({"width, mm": FRAME["<b>x</b>"], "height, m": FRAME["<b>x</b>"] ** 2, "price": FRAME["price"]})


def test_tied_parameters_go_on_together_whatever_their_inputs_are_called():
    kernel = {"name": "se-ard", "tied": [["lengthscale"]]}
    run = gpx.Spec("ml", data="rows", kernel=kernel).open(data=COMMAS)
    run.finish(steps=3)
    table = run.hyperparameters
    first, second = (f"se-ard.lengthscale[{name}]" for name in ("width, mm", "height, m"))
    assert (table[first].partners, table[first].tied) == ([second], second)
    for options in ({"values": {first: 7.0}}, {"bounds": {second: [7.0, 7.0]}, "tied": [[first, second]]}):
        once = table.kernel(**options)
        assert (once["values"][first], once["values"][second]) == (7.0, 7.0)
        for again in (
            run.with_hyperparameters(**options),
            gpx.Spec("ml", data="rows", kernel=once).open(data=COMMAS),
        ):
            values = again.hyperparameters_at(-1, curvature=False) if len(again.trace) else again.hyperparameters
            assert [values[first].value, values[second].value] == pytest.approx([7.0, 7.0])


def test_a_new_tie_begins_at_the_fixed_one_or_at_the_first():
    run = learned(settings={"evaluations": 6})
    x1, x2 = (run.hyperparameters[f"*[{name}]"].value for name in ("x1", "x2"))
    for options, common in (({}, x1), ({"fixed": ["*[x2]"]}, x2)):
        table = run.with_hyperparameters(tied=[["lengthscale"]], **options).hyperparameters_at(-1, curvature=False)
        assert [row.value for row in table.matching("lengthscale")] == pytest.approx([common, common])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"values": [1.0]}, "names with their values"),
        ({"values": {"noise": -1.0}}, "The value of noise"),
        ({"values": {"noise": math.nan}}, "The value of noise"),
        ({"values": {"noise": "big"}}, "The value of noise"),
        ({"bounds": {"noise": 3.0}}, "two numbers"),
        ({"bounds": {"noise": [2.0, 1.0]}}, "lower one first"),
        ({"fixed": 3}, "a list of names"),
        ({"tied": 3}, "groups of names"),
        ({"priors": {"noise": 3}}, "give a text"),
    ],
)
def test_what_a_spec_refuses_is_refused_for_a_run_that_goes_on(options, word):
    run = small_spec("ml", d=2).open()
    run.advance()
    for change in (run.hyperparameters_at(0, curvature=False).kernel, run.with_hyperparameters):
        with pytest.raises(SettingError, match=word):
            change(**options)


def test_rows_are_parameters_that_can_be_watched():
    row, seen = learned().hyperparameters["noise"], []
    row.param.watch(lambda event: seen.append(event.new), "value")
    row.value = 0.25
    assert seen == [0.25]
    with pytest.raises(ValueError, match="value"):
        row.value = -1.0


def test_a_name_of_several_or_of_none_is_refused():
    table = learned().hyperparameters
    with pytest.raises(SettingError, match="names 2 hyperparameters"):
        table["lengthscale"]
    with pytest.raises(SettingError, match="did you mean"):
        table["nois"]
    with pytest.raises(SettingError, match="bound"):
        table.kernel(bound={})
    assert "noise" in table
    assert "lengthscale" in table
    assert table[0] in table
    assert "nois" not in table
    assert 3 not in table


def test_a_warm_start_keeps_the_restrictions():
    X, y = FRAME[["<b>x</b>"]], FRAME["price"]
    kernel = {"name": "se", "values": {"noise": 12.0}, "fixed": ["noise"]}
    estimator = gpx.Estimator("ml", kernel=kernel, warm_start=True).fit(X, y)
    again = estimator.fit(X, y)
    assert again.hyperparameters_["noise"].fixed
    assert again.hyperparameters_["noise"].value == pytest.approx(12.0, rel=1e-12)
