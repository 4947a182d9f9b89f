"""How much the likelihood changes by the waves that a periodic kernel leaves out, against dense algebra.

docs/neighbours.md states both numbers.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.kernels.states.filtering import merged, nlml
from gpexplorer.kernels.states.transitions import TOLERANCE

DRAWS = 8


def changes(noise: float, period: float, trend: float, n: int = 240) -> tuple[Tensor, Tensor]:
    """Changes of the log likelihood, and y'(K + s2 I)^-1 y, of some draws from the model with a trend added."""
    draw = torch.Generator().manual_seed(7)
    kernel = kernels.make("periodic", 1)
    theta = torch.tensor([0.0, math.log(0.6), math.log(period), math.log(noise)], dtype=torch.float64)
    t = 40.0 * torch.rand(n, generator=draw, dtype=torch.float64)
    A = kernel(theta, t[:, None], t[:, None]) + noise**2 * torch.eye(n, dtype=torch.float64)
    L = torch.linalg.cholesky(A)
    differences, misfits = [], []
    for _ in range(DRAWS):
        y = L @ torch.randn(n, generator=draw, dtype=torch.float64) + trend * t
        misfit = torch.linalg.solve_triangular(L, y[:, None], upper=False).square().sum()
        rows, _ = merged(t, y[None], torch.ones_like(t))
        exact = 0.5 * misfit + L.diagonal().log().sum() - n * math.log(noise)
        differences.append(exact - nlml(kernel, theta, rows))
        misfits.append(misfit)
    return torch.stack(differences), torch.stack(misfits)


@pytest.mark.parametrize(("noise", "period"), [(0.3, 4.0), (0.05, 7.0), (0.01, 3.0)])
def test_on_rows_of_the_model_it_is_less_than_a_millionth_of_a_nat_per_row(noise: float, period: float) -> None:
    difference, misfit = changes(noise, period, 0.0)
    assert abs(float(difference.mean())) < 240 * TOLERANCE
    assert float(misfit.mean()) == pytest.approx(240, rel=0.2)


@pytest.mark.parametrize(("noise", "period"), [(0.3, 4.0), (0.05, 7.0), (0.01, 3.0)])
def test_on_other_rows_it_is_at_most_two_millionths_of_the_misfit(noise: float, period: float) -> None:
    difference, misfit = changes(noise, period, 0.1)
    assert float(misfit.min()) > 3 * 240
    assert float((difference.abs() / misfit).max()) < 2 * TOLERANCE
    assert noise > 0.1 or float(difference.abs().max()) > 10 * 240 * TOLERANCE  # which n / 10^6 would deny
