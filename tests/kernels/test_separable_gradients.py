"""The closed gradient of kernels that are products over inputs, against autograd of the formula written out."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.kernels import separable

CORRELATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "matern12-product": lambda r: torch.exp(-r),
    "matern32-product": lambda r: (1.0 + math.sqrt(3.0) * r) * torch.exp(-math.sqrt(3.0) * r),
    "matern52-product": lambda r: (1.0 + math.sqrt(5.0) * r + 5.0 * r**2 / 3.0) * torch.exp(-math.sqrt(5.0) * r),
    "anova": lambda r: torch.exp(-0.5 * r**2),
    "anova-matern52": lambda r: (1.0 + math.sqrt(5.0) * r + 5.0 * r**2 / 3.0) * torch.exp(-math.sqrt(5.0) * r),
}
HARD = [
    (torch.float64, 1.0, 0.0),
    (torch.float64, 1.0, 300.0),
    (torch.float64, 1e-4, 7.0),
    (torch.float32, 0.3, 0.0),
    (torch.float32, 1e-3, 0.0),
]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}  # relative to the largest entry


def written_out(key: str, theta: Tensor, X: Tensor, Z: Tensor) -> Tensor:
    """The covariance in float64, differentiable with respect to theta."""
    K = torch.exp(2.0 * theta[0])
    for q in range(X.shape[1]):
        factor = CORRELATIONS[key]((X[:, q, None] - Z[None, :, q]).abs() / theta[1 + q].exp())
        w = theta[1 + X.shape[1]].exp()
        K = K * ((1.0 + w * factor) / (1.0 + w) if key.startswith("anova") else factor)
    return K


@pytest.mark.parametrize(("dtype", "share", "shift"), HARD)
@pytest.mark.parametrize("key", CORRELATIONS)
def test_the_gradient_in_theta_is_that_of_the_formula(
    key: str, dtype: torch.dtype, share: float, shift: float, monkeypatch: pytest.MonkeyPatch
):
    rng = torch.Generator().manual_seed(5)
    kernel = kernels.make(key, 3)
    scales = share * torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)  # of inputs with a range of about 1
    centres = torch.rand(8, 3, generator=rng, dtype=torch.float64).repeat(5, 1)
    X = (centres + scales * torch.randn(40, 3, generator=rng, dtype=torch.float64) + shift).to(dtype)
    Z = torch.cat([X[:6], X[20:31]])  # rows at a distance of zero are among them
    interaction = [math.log(0.7)] if key.startswith("anova") else []
    theta = torch.tensor([0.3, *scales.log().tolist(), *interaction, -1.0], dtype=torch.float64)
    G = torch.randn(40, 17, generator=rng, dtype=dtype)
    leaf = theta.to(dtype).double().clone().requires_grad_(True)
    (expected,) = torch.autograd.grad((G.double() * written_out(key, leaf, X.double(), Z.double())).sum(), leaf)
    assert float(expected[1:-1].abs().min()) > 1e-6

    for block_bytes in (separable.GRADIENT_BYTES, 5000):  # all rows together, and a few at a time
        monkeypatch.setattr(separable, "GRADIENT_BYTES", block_bytes)
        gradient = kernel.theta_gradient(theta.to(dtype), X, Z, G)
        assert gradient.dtype == dtype
        assert float(gradient[-1]) == 0.0  # the noise
        assert float((gradient.double() - expected).abs().max()) < TOLERANCE[dtype] * float(expected.abs().max())


def test_where_all_covariances_vanish_the_gradient_is_zero_and_not_nan():
    X = torch.tensor([[0.0, 0.0], [3e4, -5e4]], dtype=torch.float64)
    for key in ("matern12-product", "matern32-product", "matern52-product"):
        kernel = kernels.make(key, 2)
        theta = torch.tensor([0.0, -3.0, -3.0, -1.0], dtype=torch.float64)
        gradient = kernel.theta_gradient(theta, X[:1], X[1:], torch.ones(1, 1, dtype=torch.float64))
        assert torch.equal(gradient, torch.zeros(4, dtype=torch.float64))
