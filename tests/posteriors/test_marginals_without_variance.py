"""Distributions of a row that is known exactly, by themselves, transformed, and as parts of a mixture."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpexplorer.posteriors import AveragePosterior, Marginals, MixtureMarginals, NormalMarginals, TransformedMarginals
from gpexplorer.posteriors.in_units import in_units_of
from gpexplorer.posteriors.shifted import LinearMean, ShiftedPosterior
from gpexplorer.problem import Dataset, Scale
from gpexplorer.target_transforms import Log, TargetTransform, YeoJohnson

INF = math.inf


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def known(mean: float, count: int = 4) -> NormalMarginals:
    """The same number at some rows, without variance."""
    return NormalMarginals(torch.full((count,), mean).double(), torch.zeros(count).double())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_known_number_has_all_of_its_probability_in_one_place(dtype: torch.dtype) -> None:
    own = NormalMarginals(torch.full((5,), -3.5, dtype=dtype), torch.zeros(5, dtype=dtype))
    y = torch.tensor([-4.0, -3.5, -3.0, INF, math.nan], dtype=dtype)
    assert own.log_density(y)[:4].tolist() == [-INF, INF, -INF, -INF]
    assert own.cdf(y)[:4].tolist() == [0.0, 0.5, 1.0, 1.0]
    assert own.standardised(y)[:4].tolist() == [-INF, 0.0, INF, INF]
    for values in (own.log_density(y), own.cdf(y), own.standardised(y)):
        assert bool(values[4].isnan())
    assert own.quantile((0.01, 0.5, 0.99)).tolist() == [[-3.5] * 5] * 3
    assert own.widened(torch.full((5,), 9.0, dtype=dtype)).moments[1].tolist() == [0.0] * 5


@pytest.mark.parametrize("transform", [Log(), YeoJohnson(0.4, 1.0, 2.0), YeoJohnson(1.6, 1.0, 2.0)])
def test_a_known_transformed_number_does_too(transform: TargetTransform) -> None:
    scale = Scale(tensor(0.0), tensor(1.0), 0.0, 1.0, transform)
    own = TransformedMarginals(known(0.0, 5), scale)
    middle = float(transform.inverse(tensor(0.0)))
    y = tensor(middle - 0.5, middle, middle + 0.5, INF, -INF)
    assert own.log_density(y).tolist() == [-INF, INF, -INF, -INF, -INF]
    assert own.cdf(y).tolist() == [0.0, 0.5, 1.0, 1.0, 0.0]
    torch.testing.assert_close(own.quantile((0.1, 0.9)), torch.full((2, 5), middle).double())
    mean, var = own.moments
    torch.testing.assert_close(mean, torch.full((5,), middle).double())
    assert float(var.max()) < 1e-20


def wide_and_known() -> MixtureMarginals:
    wide = NormalMarginals(torch.full((4,), 1.0).double(), torch.full((4,), 4.0).double())
    return MixtureMarginals([wide, known(2.0), known(2.0)], [0.5, 0.25, 0.25])


def test_a_mixture_has_the_density_of_the_parts_with_variance() -> None:
    mixture, y = wide_and_known(), tensor(-1.0, 2.0, 5.0, 3.0)
    normal = torch.distributions.Normal(1.0, 2.0)
    expected = math.log(0.5) + normal.log_prob(y)
    expected[1] = INF
    torch.testing.assert_close(mixture.log_density(y), expected)
    torch.testing.assert_close(mixture.cdf(y), 0.5 * normal.cdf(y) + 0.5 * tensor(0.0, 0.5, 1.0, 1.0))
    mean, var = mixture.moments
    torch.testing.assert_close(mean, torch.full((4,), 1.5).double())
    torch.testing.assert_close(var, torch.full((4,), 0.5 * 4.0 + 0.25).double())
    assert bool((mixture.standardised(mean) == 0.0).all())
    torch.testing.assert_close(mixture.quantile(0.6), torch.full((4,), 2.0).double())  # there the probability jumps
    nowhere = MixtureMarginals([known(0.0), known(1.0)], [0.5, 0.5])
    assert nowhere.log_density(tensor(0.0, 1.0, 0.5, 2.0)).tolist() == [INF, INF, -INF, -INF]


def test_an_average_with_a_function_that_is_known_has_a_log_density() -> None:
    """A linear function has no variance of its own, but for the noise of observations."""
    X = tensor(0.0, 1.0, 2.0)[:, None]
    rows = Dataset(X, X[:, 0], ("x",), "y", Scale(tensor(0.0), tensor(1.0), 0.0, 1.0))
    lines: list[Marginals] = []
    parts = []
    for weight in (1.0, 2.0):
        line = ShiftedPosterior(LinearMean(tensor(weight), tensor(0.5)), None, X, 0.3)
        parts.append(in_units_of(line, rows).asked_for("y"))
        lines.append(parts[-1].marginals(X, noise=True))
    average = AveragePosterior(parts, [0.5, 0.5])
    y = tensor(0.5, 1.5, 1.5)
    assert average.log_density(X, y, noise=False).tolist() == [INF, INF, -INF]
    expected = MixtureMarginals(lines, [0.5, 0.5]).log_density(y)
    torch.testing.assert_close(average.log_density(X, y, noise=True), expected)
    assert bool(expected.isfinite().all())
