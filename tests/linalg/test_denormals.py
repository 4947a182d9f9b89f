"""Numbers that are too small for a normal one are 0, and no other number changes."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer.linalg.denormals import LEAST, exponential, flushed_to_zero

PRECISIONS = [torch.float64, torch.float32]


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_an_exponential_is_that_of_torch_and_zero_where_that_is_hardly_a_normal_number(dtype: torch.dtype):
    least = LEAST[dtype]
    x = torch.linspace(1.2 * least, 0.2 * abs(least), 3001, dtype=dtype)
    expected = torch.where(x > least, x.exp(), 0.0)
    kept, edge = x > least + 1e-3, (x - least).abs() < 1e-3  # rounding decides at the edge

    assert torch.equal(exponential(x.clone())[~edge], expected[~edge])
    assert float(expected[kept].min()) < 2.0 * math.exp(least) < 20.0 * torch.finfo(dtype).tiny
    assert torch.equal(exponential(x[kept].clone()), x[kept].exp())  # where no entry is below
    assert torch.equal(exponential(x[kept].clone(), least + 1.0), x[kept].exp())  # where a bound says so


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_infinite_and_missing_numbers_stay_what_they_are(dtype: torch.dtype):
    values = exponential(torch.tensor([-math.inf, -1e30, math.nan, math.inf, 0.0], dtype=dtype))
    assert torch.equal(values.nan_to_num(7.0, posinf=8.0), torch.tensor([0.0, 0.0, 7.0, 8.0, 1.0], dtype=dtype))
    assert exponential(torch.ones(0, 3, dtype=dtype)).shape == (0, 3)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_derivative_is_the_value(dtype: torch.dtype):
    x = torch.tensor([1.3 * LEAST[dtype], 0.9 * LEAST[dtype], -3.0, 2.0], dtype=dtype).requires_grad_(True)
    y = exponential(x + 0.0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach())
    assert gradient[0] == 0.0 < gradient[1]


def test_processors_replace_denormal_numbers_inside_the_block_only():
    half_of_tiny = torch.tensor([torch.finfo(torch.float64).tiny / 2.0], dtype=torch.float64)

    def is_kept() -> bool:
        return float((half_of_tiny * 1.0).view(torch.int64)) != 0.0  # the bits: a comparison may flush too

    assert is_kept()
    with flushed_to_zero():
        assert not is_kept()
        with flushed_to_zero():
            assert not is_kept()
        assert not is_kept()  # the outer block goes on
    assert is_kept()
    with pytest.raises(ZeroDivisionError), flushed_to_zero():
        raise ZeroDivisionError
    assert is_kept()
