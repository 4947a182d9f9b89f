"""Inducing points whose K_mm is singular to rounding: the objective is that of a model whose jitter is reported.

The lengthscales are long, so that 60 points in a unit cube are far more than the kernel can tell apart, and the signal
is 1e9 times the noise. The Cholesky factor of K_mm, if there is one, exists by chance: without jitter that makes it
accurate, the objectives below are wrong by 2e-6 to 2e-5 of their size.
"""

from __future__ import annotations

import pytest
import torch

from benchmarks.trust.dense_objectives import sparse_objective
from gpexplorer import kernels
from gpexplorer.methods.inducing.swapping.factor import Factor
from gpexplorer.objectives import nystrom
from gpexplorer.problem import Dataset

m, n, s2 = 60, 150, 1e-4


def singular_problem(lengthscale: float) -> tuple[Dataset, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    X = 2.0 + torch.rand(n, 3, generator=rng, dtype=torch.float64)
    f = X @ X.new_tensor([1.0, -2.0, 0.5]) + torch.sin(X.sum(1))
    y = f - f.mean() + s2**0.5 * torch.randn(n, generator=rng, dtype=torch.float64)
    log_lengthscales = (lengthscale * X.new_tensor([0.75, 1.0, 1.5])).log()
    log_sds = 0.5 * X.new_tensor([1e9 * s2, s2]).log()
    return Dataset(X, y), torch.cat([log_sds[:1], log_lengthscales, log_sds[1:]])


@pytest.mark.parametrize("lengthscale", [4.0, 16.0])
@pytest.mark.parametrize("name", ["vfe", "fitc"])
def test_the_objective_is_that_of_the_model_with_the_jitter_that_is_reported(name: str, lengthscale: float) -> None:
    train, theta = singular_problem(lengthscale)
    kernel, rows = kernels.make("se-ard", 3), torch.arange(m)
    Z = train.X[rows]
    model = nystrom(kernel, theta, train, Z, name)
    reported = [(model.terms.total("vfe" if name == "vfe" else "pp"), model.jitter)]
    if name == "vfe":
        fixed, factor = nystrom(kernel, theta, train, Z), Factor(kernel, theta, train, rows, name)
        reported += [(fixed.terms.total(name), fixed.jitter), (factor.total, factor.jitter)]

    for value, jitter in reported:
        assert value == pytest.approx(sparse_objective(name, theta, train, Z, jitter), rel=1e-6)
        assert 1e-14 < jitter / (1e9 * s2) < 1e-11


def test_points_that_the_kernel_distinguishes_need_no_jitter() -> None:
    train, theta = singular_problem(0.5)

    assert nystrom(kernels.make("se-ard", 3), theta, train, train.X[:m]).jitter == 0.0
