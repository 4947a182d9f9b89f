"""Covariances where a lengthscale is a small part of an input's range: compared with exact differences in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.kernels.base import Covariance
from gpexplorer.kernels.stationary import Stationary
from gpexplorer.linalg.cholesky import cholesky
from gpexplorer.methods.inducing.moving.loop import Gradient, add_gradient
from gpexplorer.posteriors import exact_gp_posterior
from gpexplorer.problem import Dataset

KEYS = ["se", "se-ard", "matern12-ard", "matern32", "matern52-ard", "rq-ard"]
TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-5}  # of a covariance, relative to the prior variance


def exact_covariance(kernel: Stationary, theta: Tensor, X: Tensor, Z: Tensor) -> Tensor:
    """k(X, Z) from differences in float64, without a matrix product; differentiable with respect to theta."""
    theta, symmetric, X, Z = theta.double(), X is Z, X.double(), Z.double()
    scales = theta[1 : 1 + (kernel.d if kernel.ard else 1)].exp()
    r2 = ((X[:, None] - Z[None]) / scales).square().sum(2)
    r2 = r2 - torch.diag_embed(r2.diagonal()) if symmetric else r2  # its square root has no derivative at 0
    return torch.exp(2.0 * theta[0]) * kernel.profile(theta, r2)


def case(key: str, dtype: torch.dtype, share: float, shift: float = 0.0) -> tuple[Stationary, Tensor, Tensor]:
    """Rows in 12 clusters as wide as a lengthscale, which is the given share of the range of the first inputs.

    The last input has a range of three lengthscales if the kernel has one lengthscale per input.
    """
    rng = torch.Generator().manual_seed(3)
    kernel = kernels.make(key, 3)
    scales = torch.tensor([share, 1.5 * share, 0.3] if kernel.ard else [share], dtype=torch.float64)
    centres = torch.rand(12, 3, generator=rng, dtype=torch.float64)
    X = centres.repeat(5, 1) + scales * torch.randn(60, 3, generator=rng, dtype=torch.float64) + shift
    rest = [0.4] if key.startswith("rq") else []
    theta = torch.tensor([0.2, *scales.log().tolist(), *rest, -1.0], dtype=torch.float64)
    return kernel, theta.to(dtype), X.to(dtype)


HARD = [(torch.float64, 1e-4, 0.0), (torch.float64, 1e-4, 7.0), (torch.float64, 1e-6, 0.0), (torch.float32, 1e-3, 0.0)]


@pytest.mark.parametrize(("dtype", "share", "shift"), HARD)
@pytest.mark.parametrize("key", KEYS)
def test_covariances_equal_those_of_exact_differences(key: str, dtype: torch.dtype, share: float, shift: float):
    kernel, theta, X = case(key, dtype, share, shift)
    variance, out = float(torch.exp(2.0 * theta[0])), torch.empty(60, 9, dtype=dtype)
    kernel.fill(theta, X, X[:9], out)

    for K, Z in (
        (out, X[:9]),
        (kernel(theta, X, X), X),
        (kernel(theta, X, X[7:20]), X[7:20]),
        (kernel(theta, X, X[4:5]), X[4:5]),
    ):
        exact = exact_covariance(kernel, theta, X, Z)
        assert float((exact > 0.01 * variance).double().mean()) > 0.05
        assert float((K - exact).abs().max()) < TOLERANCE[dtype] * variance


@pytest.mark.parametrize(("dtype", "share", "shift"), [*HARD, (torch.float64, 1.0, 0.0), (torch.float64, 1.0, 300.0)])
@pytest.mark.parametrize("key", KEYS)
def test_a_kernel_matrix_is_symmetric_whether_it_is_computed_whole_or_in_parts(
    key: str, dtype: torch.dtype, share: float, shift: float
):
    kernel, theta, X = case(key, dtype, share, shift)
    K = kernel(theta, X, X)
    parts = torch.cat([kernel(theta, X[rows], X) for rows in (slice(0, 7), slice(7, 8), slice(8, 60))])

    rounding = 200 * torch.finfo(dtype).eps * float(torch.exp(2.0 * theta[0]))
    assert float((K - K.T).abs().max()) <= rounding
    assert float((parts - parts.T).abs().max()) <= 50 * rounding
    assert float((parts - K).abs().max()) <= 50 * rounding


@pytest.mark.parametrize(("dtype", "share", "shift"), HARD)
@pytest.mark.parametrize("key", KEYS)
def test_gradients_equal_those_of_exact_differences(key: str, dtype: torch.dtype, share: float, shift: float):
    kernel, theta, X = case(key, dtype, share, shift)
    rng = torch.Generator().manual_seed(1)
    u, z = torch.randn(60, generator=rng, dtype=dtype), torch.randn(30, generator=rng, dtype=dtype)
    leaf = theta.double().clone().requires_grad_(True)
    value = u.double() @ exact_covariance(kernel, leaf, X, X[:30]) @ z.double()
    (exact,) = torch.autograd.grad(value, leaf)

    for gradient in gradients(kernel, theta, X, X[:30], (u, z)):
        assert float((gradient - exact).abs().max()) < 50 * TOLERANCE[dtype] * float(exact.abs().max())


def gradients(kernel: Covariance, theta: Tensor, X: Tensor, Z: Tensor, sides: tuple[Tensor, Tensor]) -> list[Tensor]:
    """The gradient of u'K z in each of the ways in which a kernel computes it."""
    u, z = sides
    leaf = theta.clone().requires_grad_(True)
    (by_autograd,) = torch.autograd.grad(u @ kernel(leaf, X, Z) @ z, leaf)
    from_matrix = kernel.theta_gradient_from_matrix(theta, X, Z, sides, kernel(theta, X, Z))
    ways = [kernel.theta_gradient(theta, X, Z, torch.outer(u, z)), kernel.theta_gradient_bilinear(theta, X, Z, sides)]
    return [by_autograd, *ways, *([] if from_matrix is None else [from_matrix])]


@pytest.mark.parametrize(("dtype", "share", "shift"), HARD)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("key", ["se-ard", "matern32", "matern52-ard"])
def test_gradients_with_respect_to_movable_points_equal_those_of_exact_differences(
    key: str, dtype: torch.dtype, share: float, shift: float, symmetric: bool
):
    kernel, theta, X = case(key, dtype, share, shift)
    Z, G = X[:30].clone(), torch.randn(30, 30, generator=torch.Generator().manual_seed(2), dtype=dtype)
    G, X = (G + G.T, Z) if symmetric else (G, X[25:55])
    gradients = [Gradient(torch.zeros_like(theta), torch.zeros_like(Z))]
    add_gradient(gradients[0], kernel, theta, (Z, X), G.clone())
    if kernel.is_own_derivative:
        gradients.append(Gradient(torch.zeros_like(theta), torch.zeros_like(Z)))
        add_gradient(gradients[1], kernel, theta, (Z, X), G.clone(), kernel(theta, Z, X))

    leaf, points = theta.double().clone().requires_grad_(True), Z.double().clone().requires_grad_(True)
    K = exact_covariance(kernel, leaf, points, points if symmetric else X.double())
    in_theta, in_Z = torch.autograd.grad((G.double() * K).sum(), [leaf, points])
    bound = 50 * TOLERANCE[dtype]
    scales = slice(1, -1)  # the log sd is left to the caller
    for gradient in gradients:
        assert float((gradient.theta[scales] - in_theta[scales]).abs().max()) < bound * float(in_theta.abs().max())
        assert float((gradient.Z - in_Z).abs().max()) < bound * float(in_Z.abs().max())


@pytest.mark.parametrize(("dtype", "says"), [(torch.float32, "use dtype float64"), (torch.float64, "Drop duplicate")])
def test_a_matrix_that_float32_cannot_factor_is_blamed_on_float32(dtype: torch.dtype, says: str):
    with pytest.raises(NotPositiveDefinite, match=says):
        cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=dtype), "K_mm")


@pytest.mark.parametrize("shift", [0.0, 40.0])
@pytest.mark.parametrize("key", ["se-ard", "matern52-ard"])
def test_a_mean_is_right_to_a_part_of_the_noise_where_the_signal_is_1e5_times_as_large(key: str, shift: float):
    """Two kinds of rows, which are 170 lengthscales apart: no correlation between them, and no error by them either."""
    rng = torch.Generator().manual_seed(5)
    X = torch.rand(200, 3, generator=rng, dtype=torch.float64) * 3.4 - 1.7
    X[:, 0] = 1.5 * X[:, 0].sign()
    y = X[:, 0] + X[:, 1].sin() * (0.5 * X[:, 2]).cos() + 1e-5 * torch.randn(200, generator=rng, dtype=torch.float64)
    kernel, X = kernels.make(key, 3), X + shift
    theta = torch.tensor([1.0, 0.018, 4.0, 6.0, 1e-5], dtype=torch.float64).log()
    noise = 1e-10 * torch.eye(200, dtype=torch.float64)
    weights = torch.linalg.solve(exact_covariance(kernel, theta, X, X) + noise, y)
    new = X[:50] + torch.tensor([0.0, 0.1, -0.07], dtype=torch.float64)

    mean = exact_gp_posterior(kernel, theta, Dataset(X, y, ("a", "b", "c")))(new).mean

    errors = (mean - exact_covariance(kernel, theta, new, X) @ weights).abs() / 1e-5  # in noise sds
    assert float(errors.mean()) < 0.01


# lengthscales at which the covariance is below the smallest number, in float64 and in float32
REACH = {"se": (40, 15), "matern12": (800, 110), "matern32": (450, 65), "matern52": (350, 50), "rq": (100, 16)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("key", KEYS)
def test_no_covariance_of_distant_rows_is_a_denormal_number(key: str, dtype: torch.dtype):
    """With such numbers a processor takes 100 times as long: entries are 0 or normal, and gradients are finite."""
    kernel, scale = kernels.make(key, 3), 0.02
    rest = [math.log(300.0)] if key.startswith("rq") else []
    theta = torch.tensor([0.0, *[math.log(scale)] * (kernel.size - 1 - len(rest)), *rest, -1.0], dtype=dtype)
    reach = REACH[key.partition("-")[0]][dtype == torch.float32]
    X = torch.zeros(1500, 3, dtype=dtype)
    X[:, 1] = torch.linspace(0.0, reach * scale, 1500)
    filled = torch.empty(2, 1500, dtype=dtype)
    kernel.fill(theta, X[:2], X, filled)

    by_autograd = kernel(theta.clone().requires_grad_(True), X, X).detach()
    for K in (filled, kernel(theta, X[:2], X), kernel(theta, X, X), by_autograd):
        assert not bool(((K != 0.0) & (K < torch.finfo(dtype).tiny)).any())
        assert float(K.min()) == 0.0 < float((K + (K == 0.0)).min()) < 1e6 * torch.finfo(dtype).tiny
    gradient = kernel.theta_gradient(theta, X, X, torch.ones(1500, 1500, dtype=dtype))
    leaf = theta.double().requires_grad_(True)
    (expected,) = torch.autograd.grad(kernel(leaf, X.double(), X.double()).sum(), leaf)
    tolerance = 1e4 * torch.finfo(dtype).eps * float(expected.abs().max())
    assert float((gradient.double() - expected).abs().max()) < tolerance


@pytest.mark.parametrize("key", ["matern12-ard", "matern32-ard", "se-ard", "rq-ard"])
def test_a_far_row_changes_no_covariance_of_the_others_in_float32(key: str) -> None:
    kernel, rng = kernels.make(key, d=2), torch.Generator().manual_seed(0)
    Z = torch.randn(40, 2, generator=rng)
    X = torch.cat([Z[:5] + 0.01 * torch.randn(5, 2, generator=rng), Z[:5]])
    theta = torch.zeros(len(kernel.names))
    far = torch.tensor([[14.0, -9.0]])  # where the product of all rows would round distances up to .01 to zero

    near = kernel(theta, X, Z)
    assert torch.allclose(kernel(theta, torch.cat([X, far]), Z)[:-1], near, rtol=0.0, atol=3e-5)
    assert bool((kernel(theta, torch.cat([X, far]), Z)[5:10].diagonal() == 1.0).all())  # a row with itself
