"""Products of large float32 matrices, by oneDNN where torch has it, and by the BLAS."""

from __future__ import annotations

import pytest
import torch

from gpexplorer.linalg import matrix_products
from gpexplorer.linalg.matrix_products import add_product, product, product_of_rows


@pytest.mark.parametrize("shift", [0.0, 1e3])
@pytest.mark.parametrize("onednn", [True, False])
def test_products_are_those_of_float64_to_the_rounding_of_float32(
    onednn: bool, shift: float, monkeypatch: pytest.MonkeyPatch
):
    rng = torch.Generator().manual_seed(0)
    M, B = (torch.randn(150, n, generator=rng) + shift for n in (1000, 260))
    start, exact = torch.randn(1000, 260, generator=rng), M.double().T @ B.double()
    calls, linear, available = [], matrix_products._linear, matrix_products.has_onednn()
    monkeypatch.setattr(matrix_products, "TILE_BYTES", 2**18)
    if not onednn:
        monkeypatch.setattr(matrix_products, "has_onednn", lambda: False)
    monkeypatch.setattr(matrix_products, "_linear", lambda *arguments: calls.append(1) or linear(*arguments))
    close = {"rtol": 0.0, "atol": 2e-6 * float(M.norm(dim=0).max() * B.norm(dim=0).max())}

    torch.testing.assert_close(product(M.T, B).double(), exact, **close)
    torch.testing.assert_close(product_of_rows(M.T.contiguous()[:40], B.T.contiguous()).double(), exact[:40], **close)
    num_calls = len(calls)
    added = add_product(start.clone(), M.T, B, -0.5)
    wider = add_product(start.double(), M.T.contiguous(), B, 2.0)

    torch.testing.assert_close(added.double(), start - 0.5 * exact, **close)
    torch.testing.assert_close(wider, start + 2.0 * exact, **{**close, "atol": 4.0 * close["atol"]})
    assert wider.dtype == torch.float64
    if onednn and available:
        assert num_calls == 2
        assert len(calls) > 5  # in tiles
    else:
        assert not calls


def test_float64_few_columns_and_gradients_are_left_to_the_blas(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(matrix_products, "_linear", None)
    rng = torch.Generator().manual_seed(3)
    A, B = torch.randn(200, 150, generator=rng), torch.randn(150, 200, generator=rng)

    assert torch.equal(product(A, B[:, :3]), A @ B[:, :3])
    assert torch.equal(product(A.double(), B.double()), A.double() @ B.double())
    assert product(A, B.clone().requires_grad_()).requires_grad
    torch.testing.assert_close(product_of_rows(A[:3], B.T.contiguous()), A[:3] @ B, rtol=0.0, atol=5e-5)
    torch.testing.assert_close(product_of_rows(A, B.T), A @ B, rtol=0.0, atol=5e-5)  # a copy of B would take longer
    assert torch.equal(
        add_product(torch.ones(200, 3), A, B[:, :3], 2.0), torch.ones(200, 3).addmm(A, B[:, :3], alpha=2.0)
    )


def test_without_the_operation_of_torch_there_is_no_onednn(monkeypatch: pytest.MonkeyPatch):
    def missing(*_: object) -> None:
        raise AttributeError("no such operation")

    monkeypatch.setattr(matrix_products, "_linear", missing)
    matrix_products.has_onednn.cache_clear()
    try:
        assert not matrix_products.has_onednn()
    finally:
        matrix_products.has_onednn.cache_clear()
