"""An estimator that is fitted again or to several targets: what is kept, what begins anew, and what a row decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import gpexplorer as gpx
from gpexplorer.errors import DataError

RNG = np.random.default_rng(7)
X = RNG.uniform(0.0, 4.0, (50, 2))
Y = 30.0 * np.sin(X[:, 0]) + 5.0 * RNG.normal(size=50)
WORDS = RNG.integers(0, 12, 90)
EFFECTS = RNG.normal(0.0, 3.0, (12, 2))
FRAME = pd.DataFrame({"a": RNG.uniform(-2.0, 2.0, 90), "k": [f"w{word}" for word in WORDS]})
TARGETS = EFFECTS[WORDS] + np.sin(FRAME[["a"]].to_numpy()) + RNG.normal(0.0, 0.1, (90, 2))


def estimator(method: str = "ml", **options: Any) -> gpx.Estimator:
    return gpx.Estimator(method, **{"budget": {"steps": 6}, **options})


@pytest.mark.parametrize("factor", [0.2, 40.0])
@pytest.mark.parametrize("method", ["ml", "sgpr", "cholqr"])
def test_a_fixed_value_stays_in_the_units_of_the_data_when_rows_of_another_size_follow(method: str, factor: float):
    kernel = {"name": "matern32", "values": {"noise": 6.0, "lengthscale": 1.5}, "fixed": ["noise", "lengthscale"]}
    own = estimator(method, kernel=kernel, warm_start=True, num_inducing=10).fit(X[:, :1], Y)

    own.fit(X[:, :1] * factor, Y * factor)

    assert own.hyperparameters_["noise"].value == pytest.approx(6.0)
    assert own.hyperparameters_["lengthscale"].value == pytest.approx(1.5)
    assert own.posterior_.noise_variance == pytest.approx(36.0)
    anew = estimator(method, kernel=own.kernel_, num_inducing=10).fit(X[:, :1] * 3.0 * factor, Y)
    assert anew.hyperparameters_["noise"].value == pytest.approx(6.0)


def test_rows_added_to_a_method_that_learns_again_leave_what_is_fixed() -> None:
    kernel = {"name": "se", "values": {"sd": 25.0, "lengthscale": 0.8, "noise": 6.0}, "fixed": ["*"]}
    own = estimator("gpcv-admm", kernel=kernel).fit(X[:40, :1], Y[:40])
    own.partial_fit(X[40:, :1] + 9.0, 8.0 * Y[40:])
    assert [row.value for row in own.hyperparameters_] == pytest.approx([25.0, 0.8, 6.0])


@pytest.mark.parametrize("name", ["noise", "known"])
def test_known_noise_is_no_fixed_value_of_the_kernel(name: str) -> None:
    kernel = {"name": "se", "fixed": ["sd"], "values": {"sd": 25.0}}
    noise = None if name == "noise" else np.full(50, 9.0) + np.arange(50)
    own = estimator(kernel=kernel, warm_start=True).fit(X[:, :1], Y, noise=noise)
    assert own.fit(X[:, :1], 2.0 * Y, noise=noise).hyperparameters_["sd"].value == pytest.approx(25.0)
    assert own.kernel_["values"] == {"se.sd": pytest.approx(25.0)}


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"kernel": "linear"}, X),
        ({"kernel": {"name": "se-ard", "fixed": ["noise"], "values": {"noise": 3.0}}}, X),
        ({"kernel": RBF() + WhiteKernel()}, X),
        ({}, X[:, :1]),
        ({}, pd.DataFrame(X, columns=["u", "v"])),
        ({"target_transform": "yeo-johnson"}, X),
    ],
)
def test_a_warm_start_with_another_kernel_other_inputs_or_another_transform_begins_anew(
    change: dict[str, Any], rows: Any
) -> None:
    own = estimator(warm_start=True).fit(X, Y)
    own.set_params(**change).fit(rows, Y)
    fresh = estimator(**change).fit(rows, Y)
    assert own.theta_.tolist() == fresh.theta_.tolist()
    assert own.fit(rows, Y).log_marginal_likelihood_value_ > fresh.log_marginal_likelihood_value_  # and then goes on


def test_each_of_several_targets_has_the_means_of_its_own_words() -> None:
    joint = estimator().fit(FRAME[:70], TARGETS[:70])
    answers, covariance = joint.predict(FRAME[70:]), joint.predict(FRAME[70:], return_cov=True)[1]
    for k in range(2):
        alone = estimator().fit(FRAME[:70], TARGETS[:70, k])
        assert answers[:, k].tolist() == alone.predict(FRAME[70:]).tolist()
        assert covariance[..., k] == pytest.approx(alone.predict(FRAME[70:], return_cov=True)[1])

    joint.partial_fit(FRAME[70:80], TARGETS[70:80])
    alone.partial_fit(FRAME[70:80], TARGETS[70:80, 1])
    assert joint.predict(FRAME[80:])[:, 1] == pytest.approx(alone.predict(FRAME[80:]))


def test_the_hours_of_a_date_are_inputs_of_the_targets_that_they_matter_for() -> None:
    dates = pd.date_range("2021-01-05", periods=240, freq="5h")
    day = np.asarray(dates.hour >= 8) & np.asarray(dates.hour < 18)
    pair = np.stack([np.linspace(0.0, 3.0, 240), 5.0 * day], 1) + RNG.normal(0.0, 0.1, (240, 2))
    joint = estimator().fit(pd.DataFrame({"t": dates}), pair)
    assert joint.posterior_[0].columns.reader.names == ("t",)
    assert joint.posterior_[1].columns.reader.names == ("t", "t: hour sin", "t: hour cos")


@pytest.mark.parametrize("kind", ["DataFrame", "array", "Arrow"])
def test_rows_without_weight_decide_nothing(kind: str) -> None:
    import pyarrow as pa

    weight = np.repeat([1.0, 0.0], 45)
    y = TARGETS[:, 0] + np.where(weight > 0, 0.0, 500.0)
    forms = {"DataFrame": FRAME, "array": FRAME.to_numpy(dtype=object), "Arrow": pa.Table.from_pandas(FRAME)}
    few = {"DataFrame": FRAME[:45], "array": forms["array"][:45], "Arrow": forms["Arrow"][:45]}[kind]

    weighted = estimator().fit(forms[kind], y, sample_weight=weight)

    assert weighted.predict(few).tolist() == estimator().fit(few, y[:45]).predict(few).tolist()


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(pd.to_timedelta(X[:, 0], unit="h")),
        pd.date_range("2020-03-01", periods=50),
        np.datetime64("2020-01-01", "s") + np.arange(50),
        pd.Series(pd.date_range("2020-03-01", periods=50, tz="Asia/Tokyo")),
    ],
)
def test_dates_and_durations_are_no_targets(y: Any) -> None:
    with pytest.raises(DataError, match=r"y has .*number"):
        estimator().fit(X, y)


@pytest.mark.parametrize(("column", "cell"), [("u", "0,5"), ("v", "yes"), ("v", pd.Timestamp("2020-01-01"))])
def test_a_cell_of_new_rows_that_is_no_number_is_named(column: str, cell: Any) -> None:
    own = estimator().fit(pd.DataFrame(X, columns=["u", "v"]), Y)
    new = pd.DataFrame(X[:4], columns=["u", "v"], index=[5, 5, 7, 9]).astype({column: object})
    new.iloc[1, ["u", "v"].index(column)] = cell
    with pytest.raises(DataError, match=f'Column "{column}" of the new rows has .* in row 2'):
        own.predict(new)
    new.iloc[1, ["u", "v"].index(column)] = "0.25"
    assert own.predict(new).tolist() == own.predict(new.astype(float)).tolist()
