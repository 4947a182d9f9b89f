"""Where near neighbours are sought: short distances are high correlations."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.kernels.correlation_features import CorrelationFeatures
from gpexplorer.kernels.row_scaled import RowScaled
from gpexplorer.problem import Columns

DRAW = torch.Generator().manual_seed(0)
X = torch.rand(200, 2, generator=DRAW, dtype=torch.float64)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (3000.0, 365.0)])
@pytest.mark.parametrize("key", ["periodic", "lp", "se-ard*periodic", "se-ard[a] * periodic[b]", "lp[b] * periodic[a]"])
def test_distances_are_correlations_of_a_product(key: str, shift: float, scale: float):
    kernel = kernels.make(key, 2, Columns(("a", "b")))
    theta = torch.tensor(
        [{"sd": 0.7, "period": -1.5, "width": -0.5}.get(name.rpartition(": ")[2], 0.2) for name in kernel.names],
        dtype=torch.float64,
    )
    of_input = [i for i, name in enumerate(kernel.names) if name.endswith(("period", "width")) or "se" in name]
    theta[[i for i in of_input if not kernel.names[i].endswith("sd")]] += math.log(scale)
    rows = X * scale + shift

    features = CorrelationFeatures(kernel, theta, rows)

    (places,) = (torch.from_numpy(each) for each in features.places(rows))
    K = kernel(theta, rows, rows)
    correlation = K / kernel.diag(theta, rows)[:, None]
    torch.testing.assert_close((-0.5 * torch.cdist(places, places).square()).exp(), correlation, rtol=0.0, atol=5e-3)


@pytest.mark.parametrize("is_scaled", [False, True])
def test_neighbours_are_taken_in_turn_by_the_kernel_and_by_each_term(is_scaled: bool):
    kernel = kernels.make("periodic + matern32", 1)
    theta = torch.tensor([0.0, -0.2, -2.0, -0.5, -3.0, -1.0], dtype=torch.float64)
    t = X[:, :1]
    rows = torch.cat([t, 1.0 + X[:, 1:]], 1) if is_scaled else t
    features = CorrelationFeatures(RowScaled(kernel) if is_scaled else kernel, theta, rows)
    places = [torch.from_numpy(each) for each in features.places(rows)]
    nearest = [torch.cdist(each[:20], each).topk(30, largest=False).indices for each in places]

    neighbours = features.neighbours(rows, rows[:20], nearest)

    K = kernel(theta, t[:20], t)
    for row, own, by_kernel, by_season, by_trend in zip(range(20), neighbours.tolist(), K, *nearest, strict=True):
        candidates = [
            i for i in by_kernel.argsort(descending=True).tolist() if i in {*by_season.tolist(), *by_trend.tolist()}
        ]
        assert own[0] == row
        assert len(set(own)) == 30
        assert {*candidates[:10], *by_season[:10].tolist(), *by_trend[:10].tolist()} <= set(own)


def test_without_a_period_the_lengths_of_the_kernel_are_the_unit():
    kernel = kernels.make("se-ard + matern32", 2)
    theta, lengths = torch.zeros(kernel.size + 1, dtype=torch.float64), torch.tensor([0.3, 5.0], dtype=torch.float64)

    (places,) = CorrelationFeatures(kernel, theta, X, lengths).places(X)

    torch.testing.assert_close(torch.from_numpy(places), X / lengths, rtol=0.0, atol=0.0)


def test_a_change_of_proportions_or_of_a_period_is_a_stretch_and_one_of_the_unit_is_none():
    kernel = kernels.make("periodic + matern32", 1)
    before = torch.tensor([0.0, -0.2, -1.0, -0.5, -1.0, -1.0], dtype=torch.float64)

    def stretch(*changes: float) -> float:
        theta = before + torch.tensor([*changes, 0.0], dtype=torch.float64)
        return CorrelationFeatures(kernel, theta, 10.0 * X[:, :1]).stretch(features)

    features = CorrelationFeatures(kernel, before, 10.0 * X[:, :1])
    assert stretch(0.0, 0.0, 0.0, 0.0, 0.0) == 1.0
    assert stretch(1.0, 0.0, 0.0, 1.0, 0.0) == pytest.approx(1.0)
    assert stretch(1.0, 0.0, 0.0, 0.0, 0.0) == pytest.approx(math.e)  # of the variances of the terms
    width = 10.0 * float(X[:, 0].max() - X[:, 0].min())
    turn = 2.0 * math.pi * width * (math.exp(1.0) - math.exp(0.999))
    assert stretch(0.0, 0.0, 0.001, 0.0, 0.0) == pytest.approx(1.0 + turn, rel=1e-6)
