"""Covariances within many small groups of rows."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import KernelError
from gpexplorer.kernels.groups import Groups, check_stationary, correlation_lengths
from gpexplorer.kernels.row_scaled import RowScaled
from gpexplorer.problem import Dataset

STATIONARY = [key for key in kernels.available() if kernels.make(key, 2).stationary]


def theta_of(kernel: kernels.Covariance, scale: float = 1.0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return kernel.start(
        Dataset(scale * torch.rand(20, 2, generator=draw, dtype=torch.float64), torch.ones(20).double())
    )


@pytest.mark.parametrize("shift", [0.0, 1e5])
@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("key", [*STATIONARY, "se + matern12-ard", "periodic * rq"])
def test_matrices_and_gradients_are_those_of_the_kernel(key: str, is_scaled: bool, shift: float):
    draw = torch.Generator().manual_seed(1)
    base = kernels.make(key, 2)
    theta, kernel = theta_of(base), RowScaled(base) if is_scaled else base
    X = torch.rand(4, 5, 3 if is_scaled else 2, generator=draw, dtype=torch.float64)
    X[..., :2] = (X[..., :2] + shift) - 0.0
    u, v = (torch.randn(4, 5, generator=draw, dtype=torch.float64) for _ in range(2))
    groups = Groups(kernel, theta, 5)

    S, gradient = groups.matrices(X), groups.gradient(X, u[..., None], v[..., None])

    origin = X.clone()
    origin[..., :2] -= shift
    leaf = theta.clone().requires_grad_(True)
    expected = torch.stack([kernel(leaf, group, group) for group in origin])
    torch.testing.assert_close(S, expected.detach(), rtol=1e-9, atol=1e-9)
    ((u[:, None] @ expected @ v[:, :, None]).sum()).backward()
    torch.testing.assert_close(gradient, leaf.grad, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_correlation_lengths_are_where_the_correlation_is_one_half(scale: float):
    kernel = kernels.make("se-ard", 2)
    theta = torch.tensor([0.7, math.log(0.01 * scale), math.log(3.0 * scale), -1.0], dtype=torch.float64)

    lengths = correlation_lengths(kernel, theta, torch.tensor([scale, 2.0 * scale], dtype=torch.float64))

    half = math.sqrt(2.0 * math.log(2.0))
    torch.testing.assert_close(lengths, half * theta[1:3].exp(), rtol=5e-3, atol=0.0)


def test_an_input_that_does_not_matter_has_a_long_correlation():
    kernel = kernels.make("matern52-ard", 2)
    theta = torch.tensor([0.0, 0.0, 30.0, -1.0], dtype=torch.float64)

    lengths = correlation_lengths(kernel, theta, torch.ones(2, dtype=torch.float64))

    assert lengths[1] > 1e3 * lengths[0]


def test_other_kernels_and_inputs_are_refused():
    with pytest.raises(KernelError, match="stationary kernel"):
        check_stationary(kernels.make("linear", 2), torch.zeros(3, 2), "Vecchia")
    with pytest.raises(KernelError, match="columns of numbers, but the inputs are str objects"):
        check_stationary(kernels.make("spectrum", 1), ["a", "b"], "Vecchia")
