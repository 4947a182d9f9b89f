"""A matrix with changes waiting multiplies like the one with all of them made, before and after they are folded in."""

from __future__ import annotations

import pytest
import torch

from gpexplorer.linalg.deferred_updates import DeferredUpdates


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
