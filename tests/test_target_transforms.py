"""Transforms of a target: inverses, derivatives, units, fits, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor

from gpexplorer.data import Split
from gpexplorer.data.standardising import targets as targets_in_units
from gpexplorer.errors import DataError, SettingError
from gpexplorer.problem import Dataset, Scale
from gpexplorer.target_transforms import (
    Log,
    YeoJohnson,
    checked_transform,
    fitted_transform,
    transform_from,
    transform_in_words,
)

TRANSFORMS = [
    Log(),
    *(
        YeoJohnson(power, mean, sd)
        for power in (0.0, 1e-9, 0.3, 1.0, 1.7, 2.0)
        for mean, sd in ((0.0, 1.0), (5e3, 2e-3))
    ),
]


def targets(transform: Log | YeoJohnson) -> Tensor:
    """Values on both sides of the middle, in the units of the transform."""
    u = torch.tensor([-6.0, -1.5, -1e-7, 0.0, 1e-7, 0.4, 3.0, 9.0], dtype=torch.float64)
    return u.exp() if isinstance(transform, Log) else transform.mean + transform.sd * u


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_inverse_and_the_derivative_fit_the_transform(transform: Log | YeoJohnson) -> None:
    y = targets(transform).requires_grad_()
    z = transform.forward(y)
    (derivative,) = torch.autograd.grad(z.sum(), y)

    assert (z.diff() > 0.0).all()
    torch.testing.assert_close(transform.inverse(z), y, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(transform.log_derivative(y), derivative.log(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_yeo_johnson_is_scipys(power: float) -> None:
    u = np.array([-3.0, -0.2, 0.0, 0.7, 5.0])
    np.testing.assert_allclose(
        YeoJohnson(power, 0.0, 1.0).forward(torch.from_numpy(u)), stats.yeojohnson(u, power), rtol=1e-12
    )


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_range_is_all_real_numbers(transform: Log | YeoJohnson) -> None:
    z = torch.tensor([-40.0, 40.0], dtype=torch.float64)
    y = transform.inverse(z)
    assert y.isfinite().all()
    if not isinstance(transform, YeoJohnson) or transform.mean == 0.0:  # else far tails are lost to rounding of y
        torch.testing.assert_close(transform.forward(y), z, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(("skewness", "expected"), [(0.3, 0.4), (-0.3, 1.6), (1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize(("shift", "factor"), [(0.0, 1.0), (-700.0, 8.0), (1e6, 1e-3)])
def test_the_fitted_power_is_the_most_likely_one_in_all_units(
    shift: float, factor: float, skewness: float, expected: float
) -> None:
    x = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.expm1(skewness * x) / skewness if skewness else x
    own = fitted_transform("yeo-johnson", shift + factor * y)
    assert isinstance(own, YeoJohnson)
    u = ((y - y.mean()) / y.std(correction=0)).numpy()
    likelihood = {power: stats.yeojohnson_llf(power, u) for power in np.linspace(0.0, 2.0, 41)}
    peak = max(likelihood, key=likelihood.__getitem__)
    near = (max(0.0, peak - 0.05), min(2.0, peak + 0.05))
    best = optimize.minimize_scalar(lambda power: -stats.yeojohnson_llf(power, u), bounds=near, method="bounded").x

    assert own.power == pytest.approx(best, abs=2e-3)
    assert own.power == pytest.approx(expected, abs=0.2)
    assert (own.mean, own.sd) == pytest.approx((shift + factor * float(y.mean()), factor * float(y.std(correction=0))))
    z = own.forward(shift + factor * y)
    assert abs(stats.skew(z.numpy())) <= max(0.1, 0.5 * abs(stats.skew(u)))


def test_constant_targets_are_transformed_to_themselves() -> None:
    y = torch.full((5,), 3.0, dtype=torch.float64)
    own = fitted_transform("yeo-johnson", y)
    assert isinstance(own, YeoJohnson)
    assert own.sd == 1.0
    torch.testing.assert_close(own.inverse(own.forward(y)), y)


def test_equal_targets_whose_mean_rounds_keep_their_unit() -> None:
    y = torch.full((40,), 123456.789, dtype=torch.float64)
    transform = fitted_transform("yeo-johnson", y)

    assert float(y.std(correction=0)) > 0.0  # by rounding
    assert isinstance(transform, YeoJohnson)
    assert (transform.mean, transform.sd) == (123456.789, 1.0)
    assert float(transform.inverse(transform.forward(y))[0]) == 123456.789


def test_a_logarithm_of_targets_not_above_0_is_refused() -> None:
    y = torch.tensor([1.0, -2.0, 0.0, 4.0], dtype=torch.float64)
    with pytest.raises(DataError, match=r"2 of 4 training targets are not above 0 \(the smallest is -2\)"):
        fitted_transform("log", y)
    assert Log().log_derivative(y).tolist() == [0.0, -math.inf, -math.inf, -math.log(4.0)]


@pytest.mark.parametrize(
    "text",
    [
        "log 3",
        "log 1",
        "yeo-johnson 2.5",
        "yeo-johnson x",
        "yeo-johnson 1 1",
        "yeo-johnson -1",
        "box-cox",
        7,
        None,
        "yeo-johnson nan",
    ],
)
def test_other_names_are_refused(text: object) -> None:
    with pytest.raises(SettingError, match="target_transform is"):
        checked_transform(text)


def test_words_name_what_is_modelled() -> None:
    assert [transform_in_words(text) for text in ("", "log", "yeo-johnson", "yeo-johnson 0.5")] == [
        "the target", "the logarithm of the target", "the target after a Yeo-Johnson transform",
        "the target after a Yeo-Johnson transform with the power 0.5",
    ]  # fmt: skip


def test_names_have_one_form() -> None:
    assert [checked_transform(text) for text in ("", " log ", "yeo-johnson   0.50", "yeo-johnson")] == [
        "", "log", "yeo-johnson 0.5", "yeo-johnson"
    ]  # fmt: skip
    fixed = fitted_transform("yeo-johnson 0.5", torch.arange(5.0))
    assert isinstance(fixed, YeoJohnson)
    assert (fixed.power, fixed.mean) == (0.5, 2.0)


@pytest.mark.parametrize("transform", [Log(), YeoJohnson(0.3, 4.0, 2.0)])
def test_a_description_brings_a_transform_back(transform: Log | YeoJohnson) -> None:
    assert transform_from(json.loads(json.dumps(transform.described()))) == transform
    assert transform_from(GOOD | {"power": 0.0}) == YeoJohnson(0.0, 4.0, 0.5)


GOOD = YeoJohnson(0.3, 4.0, 0.5).described()


@pytest.mark.parametrize(
    "description",
    [
        "log", {}, {"name": "exp"}, {"name": "log", "power": 1.0}, {"name": "yeo-johnson", "power": 1.0},
        GOOD | {"power": 3.0}, GOOD | {"power": -0.5}, GOOD | {"sd": 0.0}, GOOD | {"mean": math.nan},
        GOOD | {"mean": True}, GOOD | {"mean": "4"}, GOOD | {"more": 1.0}, GOOD | {"name": "log"},
    ],
)  # fmt: skip
def test_other_descriptions_are_refused(description: object) -> None:
    with pytest.raises(SettingError, match="does not fit"):
        transform_from(description)


def test_a_scale_joins_the_transform_and_standardising() -> None:
    transform = YeoJohnson(0.4, 1000.0, 20.0)
    scale = Scale(torch.zeros(1), torch.ones(1), 0.7, 3.0, transform)
    y = torch.tensor([960.0, 1001.0, 1100.0], dtype=torch.float64).requires_grad_()
    z = scale.scaled_target(y)
    (derivative,) = torch.autograd.grad(z.sum(), y)

    torch.testing.assert_close(z, (transform.forward(y) - 0.7) / 3.0)
    torch.testing.assert_close(scale.target_in_units(z), y)
    torch.testing.assert_close(scale.log_derivative(y), derivative.log())


def test_test_rows_that_cannot_be_transformed_are_refused() -> None:
    y = torch.tensor([1.0, 2.0, 3.0, -4.0, 5.0], dtype=torch.float64)
    data = Dataset(y[:, None], y, ("x",))
    split = Split(data.rows([0, 1, 2]), data.rows([3, 4]), "rows")

    with pytest.raises(DataError, match=r"1 of 2 targets, the smallest of which is -4, cannot be transformed by 'log'"):
        split.scaled(target_transform="log")
    scaled = split.scaled(target_transform="yeo-johnson 0.5")
    torch.testing.assert_close(targets_in_units(scaled.test.y, scaled.test), data.y[3:])
    assert scaled.key.endswith("/scaled yeo-johnson 0.5")
    with pytest.raises(DataError, match="scaled already"):
        scaled.scaled(target_transform="log")
