"""A matrix with changes waiting multiplies like the one with all of them made, before and after they are folded in."""

from __future__ import annotations

import pytest
import torch

from a_gpu import a_gpu
from gpexplorer.linalg.matrix_products import DeferredUpdates


@pytest.mark.parametrize("together", [1, 2])
def test_pending_updates_count_in_all_products_and_are_applied_at_capacity(together: int) -> None:
    rng = torch.Generator().manual_seed(1)
    draw = lambda *shape: 50.0 + torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    dense = draw(300, 7)
    held, folds = DeferredUpdates(dense.clone(), 4), 0
    for _ in range(8 // together):
        A, W = draw(together, 300), draw(together, 7)
        folds += held.add(A, W)
        dense = dense + A.T @ W
        index, B, R = torch.tensor([5, 299, 0]), draw(2, 7), draw(3, 300)
        torch.testing.assert_close(held.rows(index), dense[index])
        torch.testing.assert_close(held.times_rows(B), B @ dense.T)
        torch.testing.assert_close(held.rows_times(R), R @ dense)

    assert folds == 2
    assert held.pending == 0
    held.add(draw(1, 300), dense.new_zeros(1, 7))
    torch.testing.assert_close(held.applied(), dense)
    assert held.pending == 0


@pytest.mark.parametrize("pending", [0, 2])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rows_at_indices_of_the_host_and_pairs_in_one_matrix_are_those_of_the_dense_matrix(pending: int, device: str):
    rng = torch.Generator().manual_seed(0)
    M, pairs = (torch.randn(*size, generator=rng, dtype=torch.float64) for size in ((6, 6), (2 * pending, 6)))
    expected = M + pairs[:pending].T @ pairs[pending:]
    with a_gpu():
        updates = DeferredUpdates(M.clone().to(device), 8)
        if pending:
            assert not updates.add_both(pairs.to(device))
        assert updates.pending == pending
        torch.testing.assert_close(updates.each_row([4, 1]).cpu(), expected[[4, 1]])
        torch.testing.assert_close(updates.applied().cpu(), expected)
