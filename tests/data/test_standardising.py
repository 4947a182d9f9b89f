"""Inputs and targets have mean 0 and standard deviation 1 over the training rows, also where a column hardly varies."""

from __future__ import annotations

import pytest
import torch

from gpexplorer.data import Split
from gpexplorer.data.standardising import fit_scale, moments, scale
from gpexplorer.errors import DataError
from gpexplorer.problem import Dataset, MixedRows


def rows(n: int, shift: float = 0.0) -> Dataset:
    draw = torch.Generator().manual_seed(n)
    X = shift + torch.randn(n, 3, generator=draw, dtype=torch.float64) * torch.tensor([0.01, 1.0, 300.0])
    return Dataset(X, shift - 5.0 + 4.0 * torch.randn(n, generator=draw, dtype=torch.float64))


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_the_training_rows_decide_and_the_test_rows_follow(shift: float):
    train, test = rows(50, shift), rows(20, shift)
    split = Split(train, test, "x").scaled()
    for part in (split.train.X, split.train.y[:, None]):
        torch.testing.assert_close(part.mean(0), torch.zeros(part.shape[1]).double(), atol=1e-7, rtol=0.0)
        torch.testing.assert_close(part.std(0, correction=0), torch.ones(part.shape[1]).double(), atol=1e-7, rtol=0.0)
    scale = split.train.scale
    assert scale is not None
    torch.testing.assert_close(scale.x_mean, train.X.mean(0))
    torch.testing.assert_close(scale.x_sd, train.X.std(0, correction=0), rtol=1e-6, atol=0.0)
    assert (scale.y_mean, scale.y_sd) == pytest.approx((float(train.y.mean()), float(train.y.std(correction=0))))
    torch.testing.assert_close(split.test.X * scale.x_sd + scale.x_mean, test.X)
    torch.testing.assert_close(split.test.y * scale.y_sd + scale.y_mean, test.y)
    assert split.scaled() is split


@pytest.mark.parametrize("level", [0.0, 3.0, -1e8])
def test_a_column_that_is_constant_to_rounding_keeps_its_unit_and_one_that_varies_more_does_not(level: float):
    eps = torch.finfo(torch.float64).eps * max(abs(level), 1e-300)
    X = torch.full((40, 2), level, dtype=torch.float64)
    X[::2, 0] += 2.0 * eps  # within eight units in the last place
    X[::2, 1] += 2000.0 * eps if level else 1e-3
    sd = moments(X).sd
    assert float(sd[0]) == 1.0
    assert float(sd[1]) == pytest.approx(float(X[:, 1].std(correction=0)), rel=0.05)
    assert float(sd[1]) < 0.5


@pytest.mark.parametrize("first", [1, 13, 39])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_moments_of_two_blocks_are_those_of_all_rows(first: int, shift: float):
    X = rows(40, shift).X
    joined, whole = moments(X[:first]).joined(moments(X[first:])), moments(X)
    assert joined.rows == 40
    torch.testing.assert_close(joined.mean, whole.mean)
    torch.testing.assert_close(joined.spread, whole.spread, rtol=1e-8, atol=0.0)
    assert torch.equal(joined.largest, whole.largest)
    torch.testing.assert_close(joined.sd, X.std(0, correction=0), rtol=1e-8, atol=0.0)


def test_counts_keep_their_units_and_the_target_does_not():
    train = rows(30)
    fitted = fit_scale(train, inputs=False)
    assert (fitted.x_mean.tolist(), fitted.x_sd.tolist()) == ([0.0] * 3, [1.0] * 3)
    scaled = scale(train, fitted)
    assert torch.equal(scaled.X, train.X)
    assert float(scaled.y.std(correction=0)) == pytest.approx(1.0)


def test_texts_do_not_change_and_the_numbers_beside_them_do():
    train = rows(30)
    words = Dataset(["a", "b"] * 15, train.y)
    fitted = fit_scale(words)
    assert len(fitted.x_mean) == len(fitted.x_sd) == 0
    assert scale(words, fitted).X == words.X
    beside = Dataset(MixedRows(train.X, (tuple("ab" * 15),)), train.y)
    scaled = scale(beside, fit_scale(beside))
    torch.testing.assert_close(scaled.X.numbers, (train.X - train.X.mean(0)) / train.X.std(0, correction=0))
    assert scaled.X.texts == beside.X.texts


@pytest.mark.parametrize(("low", "with_zeros", "factor"), [(1.0, False, 1.0), (12.0, True, 1e-3), (-3.0, True, 1e6)])
def test_logarithms_of_inputs_return_to_the_units_of_the_file(low: float, with_zeros: bool, factor: float):
    draw = torch.Generator().manual_seed(4)
    tail = factor * (low / 4.0 + 2.0 * torch.randn(300, generator=draw, dtype=torch.float64)).clamp(-9, 9).exp()
    tail[::7] = 0.0 if with_zeros else tail[::7]
    X = torch.stack([tail, 50.0 + torch.randn(300, generator=draw, dtype=torch.float64)], 1)
    by = fit_scale(Dataset(X, X[:, 1]), input_transform="log")
    assert by.x_log is not None
    assert float(by.x_log[0]) > 0.0 == float(by.x_log[1])
    Z = by.scaled_inputs(X)
    assert abs(float(Z[:, 0].pow(3).mean())) < 0.7 < abs(float(((X - X.mean(0)) / X.std(0))[:, 0].pow(3).mean()))
    torch.testing.assert_close(by.inputs_in_units(Z), X, rtol=1e-9, atol=1e-9 * factor)
    beyond = torch.tensor([[-5.0 * factor, 0.0], [1e9 * factor, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(by.inputs_in_units(by.scaled_inputs(beyond)), beyond, rtol=1e-9, atol=1e-9)
    assert fit_scale(Dataset(X, X[:, 1])).x_log is None
    assert fit_scale(Dataset(X[:, 1:], X[:, 1]), input_transform="log").x_log is None


def test_rows_that_are_scaled_are_not_transformed():
    split = Split(rows(50), rows(20), "x").scaled()
    with pytest.raises(DataError, match="the inputs cannot be transformed"):
        split.scaled(input_transform="log")
