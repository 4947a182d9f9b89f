"""Products with a tall matrix equal the plain ones, for few columns and many, with and without a last partial tile."""

from __future__ import annotations

import pytest
import torch

from gpexplorer.linalg.matrix_products import TILE, minus_product, rows_times, times_rows


@pytest.mark.parametrize("n", [1, TILE - 1, TILE, 3 * TILE + 7])
@pytest.mark.parametrize("c", [0, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_both_products_equal_the_plain_ones(n: int, c: int, shift: float):
    draws = torch.Generator().manual_seed(n + c)
    L, W, R = (torch.randn(*size, generator=draws, dtype=torch.float64) + shift for size in ((n, 6), (c, 6), (c, n)))

    torch.testing.assert_close(times_rows(L, W), torch.einsum("nm,cm->cn", L, W), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(rows_times(R, L), torch.einsum("cn,nm->cm", R, L), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("of_g", [torch.float32, torch.float64])
@pytest.mark.parametrize("of_L", [torch.float32, torch.float64])
def test_a_product_is_subtracted_in_the_precision_of_the_vector(of_L: torch.dtype, of_g: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(1)
    L, w, g = (torch.randn(*size, generator=rng, dtype=torch.float64) for size in ((40, 7), (7,), (40,)))

    result = minus_product(g.to(of_g), L.to(of_L), w.to(of_g))

    assert result.dtype == of_g
    exact = torch.float64 in (of_L, of_g) and of_L == of_g
    torch.testing.assert_close(result.double(), g - L @ w, rtol=1e-12 if exact else 1e-4, atol=1e-12 if exact else 1e-5)
