"""Products with a tall matrix equal the plain ones, for few columns and many, with and without a last partial tile."""

from __future__ import annotations

import pytest
import torch

from gpexplorer.linalg.tall_products import TILE, rows_times, times_rows, times_vector


@pytest.mark.parametrize("n", [1, TILE - 1, TILE, 3 * TILE + 7])
@pytest.mark.parametrize("c", [0, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_both_products_equal_the_plain_ones(n: int, c: int, shift: float):
    draws = torch.Generator().manual_seed(n + c)
    L, W, R = (torch.randn(*size, generator=draws, dtype=torch.float64) + shift for size in ((n, 6), (c, 6), (c, n)))

    torch.testing.assert_close(times_rows(L, W), torch.einsum("nm,cm->cn", L, W), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(rows_times(R, L), torch.einsum("cn,nm->cm", R, L), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("n", [0, 999, 2000, 2345])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_product_by_panels_is_the_product(n: int, dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(n)
    L, w = (torch.randn(*size, generator=rng, dtype=dtype) for size in ((n, 7), (7,)))

    torch.testing.assert_close(times_vector(L, w), L @ w)
