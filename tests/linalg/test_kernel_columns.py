"""Rows of a kernel matrix: the same numbers with any cache, tile and strip, and no more entries than needed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.linalg import kernel_columns
from gpexplorer.linalg.kernel_columns import STRIP, KernelColumns, fill_rows, kernel_rows, large_blocks, strip_product
from gpexplorer.problem import Columns, MixedRows
from gpexplorer.runs.counting import Counted, Counter

N = STRIP + 90


def matrix(n: int = N, shift: float = 0.0) -> tuple[Counted, Counter, Tensor, Tensor, Tensor]:
    """A counted kernel, its counter, theta, inputs [n, 2], and the whole matrix [n, n]."""
    X = shift + torch.rand(n, 2, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    kernel, theta = kernels.make("se-ard", 2), torch.tensor([0.3, -1.0, -0.5, -2.0], dtype=torch.float64)
    counter = Counter()
    return Counted(kernel, counter), counter, theta, X, kernel(theta, X, X)


@pytest.fixture(params=[None, 8 * 40], ids=["whole", "tiles"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without tiles that are much smaller than a row."""
    if request.param:
        monkeypatch.setattr(kernel_columns, "FILL_BYTES", request.param)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_rows_are_those_of_the_whole_matrix_and_each_entry_is_computed_once(shift: float):
    kernel, counter, theta, X, K = matrix(100, shift)
    out = torch.full((7, 120), -1.0, dtype=torch.float64)

    fill_rows(kernel, theta, X[:7], X, out[:, 10:110])

    torch.testing.assert_close(out[:, 10:110], K[:7])
    assert (out[:, :10] == -1.0).all()
    assert (out[:, 110:] == -1.0).all()
    assert counter.entries == 700
    torch.testing.assert_close(kernel_rows(kernel, theta, X[90:], X), K[90:])


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("budget_rows", [0, 3, 6, 8, 200])
def test_cached_rows_are_not_computed_again_and_come_in_the_requested_order(budget_rows: int):
    kernel, counter, theta, X, K = matrix(100)
    columns = KernelColumns(kernel, theta, X, 8.0 * 100 * budget_rows + 7.0)
    first, second = torch.tensor([40, 3, 99, 7, 12]), torch.tensor([5, 99, 40, 60, 3])

    torch.testing.assert_close(columns(first), K[first])
    assert counter.entries == 5 * 100
    out = torch.empty(5, 100, dtype=torch.float64)
    assert columns(second, out) is out
    torch.testing.assert_close(out, K[second])
    computed = 2 if budget_rows else 5  # with room for three rows, 40, 3 and 99 are cached
    assert counter.entries == (5 + computed) * 100
    torch.testing.assert_close(columns(first), K[first])


def test_with_another_map_rows_are_kept_too_and_results_come_in_order():
    kernel, counter, theta, X, K = matrix(100)
    calls: list[int] = []

    def mapped(function: object, *arguments: list[object]) -> list[object]:
        calls.append(len(arguments[0]))
        return [function(*pieces) for pieces in zip(*arguments, strict=True)]  # type: ignore[operator]

    columns = KernelColumns(kernel, theta, X, 8.0 * 100 * 4, apply=mapped)
    rows = torch.tensor([9, 2, 50])
    torch.testing.assert_close(columns(rows), K[rows])
    torch.testing.assert_close(columns(torch.tensor([50, 1])), K[[50, 1]])
    assert calls == [1, 1]
    assert counter.entries == 4 * 100
    V = torch.randn(100, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(columns.product(V), K @ V)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("begin", [0, STRIP])
@pytest.mark.parametrize("columns", [0, 2])
def test_a_strip_contributes_to_its_own_rows_and_to_later_ones(begin: int, columns: int):
    kernel, _, theta, X, K = matrix()
    V = torch.randn(N, max(columns, 1), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    V = V if columns else V[:, 0]
    end = min(begin + STRIP, N)

    own, later = strip_product(kernel, theta, X, begin, V)

    torch.testing.assert_close(own, K[begin:end, begin:] @ V[begin:])
    torch.testing.assert_close(later, K[end:, begin:end] @ V[begin:end])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("budget_rows", [0, 20, STRIP, N])
@pytest.mark.parametrize("asked", [0, 11])
def test_products_are_those_of_the_whole_matrix_whatever_is_cached(dtype: torch.dtype, budget_rows: int, asked: int):
    kernel, _, theta, X, K = matrix()
    columns = KernelColumns(kernel, theta, X, torch.finfo(dtype).bits / 8 * N * budget_rows, dtype)
    columns(torch.arange(N - 1, 0, -13)[:asked])
    V = torch.randn(N, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    for _ in range(2):
        for v in (V, V[:, 1]):
            product = columns.product(v)
            assert product.dtype == torch.float64
            tolerance = 1e-10 if dtype == torch.float64 else 2e-4
            torch.testing.assert_close(product, K @ v, rtol=0.0, atol=tolerance * float((K @ v).abs().max()))


def test_the_second_product_computes_only_the_triangle_of_the_rows_that_are_not_cached():
    kernel, counter, theta, X, _ = matrix()
    columns, v = KernelColumns(kernel, theta, X, 8.0 * N * 50), torch.ones(N, dtype=torch.float64)

    columns.product(v)
    assert counter.entries == 50 * N + triangle(N - 50)
    columns.product(v)
    assert counter.entries == 50 * N + 2 * triangle(N - 50)


def triangle(n: int) -> int:
    """Entries of an n x n matrix from the strips of the diagonal to the right."""
    return sum(min(STRIP, n - begin) * (n - begin) for begin in range(0, n, STRIP))


def test_inputs_that_are_objects_are_taken_one_by_one():
    kernel, theta = kernels.make("spectrum"), torch.tensor([0.2, -1.0], dtype=torch.float64)
    texts = ["CCOCC", "CCO", "NCCN", "CCOCCO", "OCC"]
    columns = KernelColumns(kernel, theta, texts, 8.0 * 5 * 2)

    torch.testing.assert_close(columns(torch.tensor([3, 0])), kernel(theta, [texts[3], texts[0]], texts))
    v = torch.arange(5.0, dtype=torch.float64)
    torch.testing.assert_close(columns.product(v), kernel(theta, texts, texts) @ v)


def test_rows_of_numbers_and_texts_are_computed_in_the_precision_that_is_asked_for():
    """Solvers in float32 check their answer in float64, and failed at it for such rows."""
    numbers = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    X = MixedRows(numbers, (("u", "v", "u", "w", "v"),))
    kernel = kernels.make("se-ard * category[c]", 3, Columns(("a", "b"), ("c",)))
    theta = torch.tensor([0.2, 0.1, -0.3, 0.4, 0.1, -1.0])
    v = torch.arange(5.0, dtype=torch.float64)
    product = KernelColumns(kernel, theta, X, 0.0, torch.float64).product(v)
    double = X.to("cpu", torch.float64)
    torch.testing.assert_close(product, kernel(theta.double(), double, double) @ v, rtol=1e-14, atol=0.0)


def test_blocks_have_enough_rows_however_long_a_row_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel_columns, "BLOCK_BYTES", 1000)

    assert [rows.stop for rows in large_blocks(80, 10**6, torch.zeros(1))] == [32, 64, 80]
    assert [rows.stop for rows in large_blocks(80, 10, torch.zeros(1))] == [80]
    assert [rows.stop for rows in large_blocks(250, 10, torch.zeros(1))] == [100, 200, 250]


@pytest.mark.parametrize("begin", [0, STRIP, 2 * STRIP])
def test_a_strip_between_others_is_computed_in_tiles_of_which_the_last_is_narrower(
    begin: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kernel_columns, "TILE_BYTES", 8 * STRIP * 33)
    kernel, _, theta, X, K = matrix(2 * STRIP + 50)
    V = torch.randn(len(X), 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    end = min(begin + STRIP, len(X))

    own, later = strip_product(kernel, theta, X, begin, V)

    torch.testing.assert_close(own, K[begin:end, begin:] @ V[begin:])
    torch.testing.assert_close(later, K[end:, begin:end] @ V[begin:end])


def test_a_cache_for_one_row_keeps_it_and_row_0_is_not_computed_twice():
    kernel, counter, theta, X, K = matrix(100)
    one = KernelColumns(kernel, theta, X, 8.0 * 100)
    one(torch.tensor([4]))
    one(torch.tensor([4]))
    assert counter.entries == 100

    kernel, counter, theta, X, K = matrix(100)
    some = KernelColumns(kernel, theta, X, 8.0 * 100 * 20)
    some(torch.tensor([0]))
    v = torch.linspace(-1.0, 1.0, 100, dtype=torch.float64)
    torch.testing.assert_close(some.product(v), K @ v)
    assert counter.entries == 20 * 100 + triangle(80)


def test_rows_have_the_precision_that_was_asked_for():
    kernel, _, theta, X, K = matrix(100)
    rows = torch.tensor([3, 50])
    single = KernelColumns(kernel, theta, X, 0.0, torch.float32)(rows)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), K[rows], rtol=0.0, atol=1e-5)
    assert KernelColumns(kernel, theta, X, 0.0)(rows).dtype == torch.float64
