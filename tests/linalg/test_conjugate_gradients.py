"""Conjugate gradients against dense solves: each iterate, with and without preconditioner, for several columns."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import Tensor

from gpexplorer.methods.exact.cg import begin, cg, from_residual


def system(n: int = 12, k: int = 3, shift: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """A positive definite matrix [n, n], right-hand sides [n, k], and initial values [n, k]."""
    rng = torch.Generator().manual_seed(n)
    root = torch.randn(n, n, generator=rng, dtype=torch.float64)
    A = root @ root.T + torch.diag(torch.linspace(1.0, 20.0, n, dtype=torch.float64))
    return A, *(shift + torch.randn(n, k, generator=rng, dtype=torch.float64) for _ in range(2))


@pytest.mark.parametrize("shift", [0.0, 50.0])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_a_few_more_than_n_iterations_solve_the_system_from_any_initial_value(
    shift: float, columns: int, preconditioned: bool
):
    A, B, X = (part if part.shape[1] == 12 else part[:, :columns] for part in system(shift=shift))
    B, X = (B[:, 0], X[:, 0]) if columns == 1 else (B, X)
    diagonal = A.diagonal()
    scale = diagonal if columns == 1 else diagonal[:, None]
    precondition = (lambda v: v / scale) if preconditioned else None

    iterates = list(islice(cg(A.matmul, begin(A.matmul, B, X, precondition), precondition), 24))

    torch.testing.assert_close(iterates[-1].x, torch.linalg.solve(A, B), rtol=1e-8, atol=1e-8)
    for iterate in iterates[:3]:
        torch.testing.assert_close(iterate.r, B - A @ iterate.x, rtol=1e-9, atol=1e-9)
        z = precondition(iterate.r) if precondition else iterate.r
        torch.testing.assert_close(iterate.rz, (iterate.r * z).sum(0))


def test_each_iterate_minimises_the_energy_over_its_krylov_space():
    A, B, _ = system()
    b = B[:, 0]
    exact, krylov = torch.linalg.solve(A, b), [b]
    for iterate in islice(cg(A.mv, begin(A.mv, b, torch.zeros_like(b))), 5):
        Q = torch.linalg.qr(torch.stack(krylov, 1)).Q
        best = Q @ torch.linalg.solve(Q.T @ A @ Q, Q.T @ b)
        torch.testing.assert_close(iterate.x, best, rtol=1e-7, atol=1e-9)
        krylov.append(A @ krylov[-1])
    assert float((iterate.x - exact).norm()) < float(exact.norm())


def test_no_product_is_needed_where_the_residual_is_known_or_the_initial_value_is_zero():
    A, B, X = system()
    products = []

    def product(v: Tensor) -> Tensor:
        products.append(v)
        return A @ v

    begin(product, B, torch.zeros_like(B))
    started = from_residual(X, B - A @ X)
    assert not products
    begin(product, B, X)
    assert len(products) == 1
    first, second = next(cg(product, started)), next(cg(product, begin(product, B, X)))
    torch.testing.assert_close(first.x, second.x)


def test_a_column_that_has_converged_does_not_change_and_nothing_that_was_yielded_changes():
    A, B, _ = system(k=2)
    B[:, 0] = 0.0
    iterates = cg(A.matmul, begin(A.matmul, B, torch.zeros_like(B)))
    first = next(iterates)
    x = first.x.clone()

    *_, last = islice(iterates, 30)

    assert torch.equal(first.x, x)
    assert torch.equal(last.x[:, 0], torch.zeros(12, dtype=torch.float64))
    torch.testing.assert_close(last.x[:, 1], torch.linalg.solve(A, B[:, 1]))


def test_an_iteration_continues_from_any_iterate():
    A, B, X = system()
    whole = list(islice(cg(A.matmul, begin(A.matmul, B, X)), 6))

    later = list(islice(cg(A.matmul, whole[2]), 3))

    for first, second in zip(later, whole[3:], strict=True):
        assert torch.equal(first.x, second.x)
