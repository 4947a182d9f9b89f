"""Conjugate gradients of the folds: which products are computed, when residuals are checked, and where they stop."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpexplorer.methods.cross_validation import solvers
from gpexplorer.methods.cross_validation.solvers import (
    CONFIRMED,
    TRUSTED,
    Solution,
    Target,
    _Residuals,
    _share_of_step,
    solve,
)


class Products:
    """Products with a matrix, counted; the one of number `wrong` has an `offset`."""

    def __init__(self, A: Tensor, wrong: int = 0, offset: Tensor | float = 0.0) -> None:
        self.A, self.wrong, self.offset, self.count = A, wrong, offset, 0

    def __call__(self, V: Tensor) -> Tensor:
        self.count += 1
        return self.A @ V + self.offset if self.count == self.wrong else self.A @ V


def spread(size: int, condition: float) -> tuple[Tensor, Tensor]:
    """A diagonal matrix with this condition number, and one right-hand side [size, 1]."""
    A = torch.diag(torch.logspace(0, math.log10(condition), size, dtype=torch.float64))
    return A, torch.cos(torch.arange(size, dtype=torch.float64))[:, None]


def solved(product: Products, B: Tensor, tolerance: float, most: int = 10**6, X: Tensor | None = None) -> Solution:
    norms = tolerance * torch.ones(B.shape[1], dtype=B.dtype)
    return solve(product, B, torch.zeros_like(B) if X is None else X, lambda R: R, Target(norms, most))


def test_from_the_exact_solution_no_iteration_follows():
    A = torch.diag(2.0 ** torch.arange(6, dtype=torch.float64))
    X = torch.arange(1.0, 7.0, dtype=torch.float64)[:, None]

    solution = solved(product := Products(A), A @ X, 1e-3, X=X)

    assert (solution.iterations, solution.error, product.count) == (0, 0.0, 1)
    assert torch.equal(solution.X, X)
    assert solved(Products(A), A @ X, 1e-3, X=X + 1e-9).iterations == 2


@pytest.mark.parametrize(("most", "restarts"), [(4, 0), (59, 0), (60, 1), (119, 1), (120, 2), (130, 2)])
def test_every_iteration_takes_one_product_and_every_restart_another(most: int, restarts: int):
    """Residuals are orthogonal to at most as many earlier ones as there are rows."""
    A, B = spread(60, 1e10)

    solution = solved(product := Products(A), B, 0.0, most)

    assert (solution.iterations, product.count) == (most, most + restarts)


@pytest.mark.parametrize(("most", "restarts"), [(24, 0), (25, 1), (49, 1), (50, 2)])
def test_iterations_begin_again_where_no_more_residuals_are_kept(
    most: int, restarts: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(solvers, "REMEMBERED", 25)
    A, B = spread(60, 1e10)

    solution = solved(product := Products(A), B, 1e-3, most)

    assert (solution.iterations, product.count) == (most, most + restarts)
    assert solution.error > 1.0


def test_a_system_solved_in_the_fewest_iterations_is_not_made_less_accurate():
    A, B = spread(20, 1.01)
    few, several = solved(Products(A), B, 1e-3), solved(Products(spread(20, 30.0)[0]), B, 1e-3)

    assert few.iterations == 2
    assert few.error < 0.1
    assert float((A @ few.X - B).norm()) == pytest.approx(1e-3 * few.error)
    assert 2 < several.iterations <= TRUSTED
    assert several.error == pytest.approx(1.0 / CONFIRMED)


@pytest.mark.parametrize(("length", "accepted"), [(0.97, True), (1.5, False)])
def test_after_many_iterations_the_residual_from_its_definition_decides(length: float, accepted: bool):
    A, B = spread(40, 1e4)
    usual = solved(product := Products(A), B, 1e-6)
    assert usual.iterations > TRUSTED
    assert product.count == usual.iterations + 1
    offset = B - A @ usual.X - length * 1e-6 * B / B.norm()

    solution = solved(Products(A, wrong=product.count, offset=offset), B, 1e-6)

    assert (solution.iterations == usual.iterations) == accepted
    assert solution.error <= 1.0
    if accepted:
        assert solution.error == pytest.approx(length, rel=1e-6)


def test_a_direction_without_curvature_is_not_followed():
    A = torch.diag(torch.tensor([1.0, 2.0, 0.0, 0.0], dtype=torch.float64))
    B = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, -2.0]], dtype=torch.float64)

    solution = solved(Products(A), B, 1e-9)

    torch.testing.assert_close(solution.X[:, 0], torch.tensor([1.0, 1.5, 0.0, 0.0], dtype=torch.float64))
    assert not solution.X[:, 1].any()


def test_a_step_is_never_longer_than_whole_also_where_its_end_is_too_far_away():
    before = torch.ones(3, 1, dtype=torch.float64)

    assert _share_of_step(before, 0.2 * before, torch.zeros(1, dtype=torch.float64)) == 1.0


def test_residuals_of_a_column_that_is_solved_to_rounding_are_not_used():
    R = torch.linalg.qr(torch.randn(9, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    for size, removed in ((1e-10, True), (1e-17, False)):
        earlier = _Residuals(R[:, :1])
        for column, length in ((0, 1.0), (1, size)):
            column_residual = length * R[:, column : column + 1]
            earlier.append(column_residual, column_residual, column_residual.square().sum(0))

        rest = earlier.orthogonal(R.sum(1, keepdim=True))

        torch.testing.assert_close(rest, R[:, 2:] if removed else R[:, 1:].sum(1, keepdim=True))
