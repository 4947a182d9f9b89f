"""Cholesky factors: as little jitter as possible, which is reported, recorded by name, and bounded."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from benchmarks.gpu.simulated_gpu import DeviceWork, SimulatedGPU, SimulatedTensor
from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.linalg import cholesky as module
from gpexplorer.linalg import deferred_reads
from gpexplorer.linalg.cholesky import (
    SLOW_SIZE,
    SMALLEST_PIVOT,
    cholesky,
    cholesky_in_place,
    cholesky_of_each,
    factor,
    independent_rows,
    logdet,
    record_jitter,
)
from gpexplorer.linalg.deferred_reads import WARM_UP, RepeatedEvaluations


def singular(size: int, smallest: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """A symmetric matrix with mean diagonal 3 whose smallest eigenvalue is given, times 3."""
    Q = torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)).Q
    values = torch.linspace(1.0, 2.0, size, dtype=torch.float64)
    values[0] = smallest
    A = (Q * values) @ Q.T
    return (3.0 * A / A.diagonal().mean()).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_positive_definite_matrix_needs_no_jitter(dtype: torch.dtype):
    A = singular(7, 0.5, dtype)

    L, jitter = cholesky(A, "A")

    assert jitter == 0.0
    torch.testing.assert_close(L @ L.T, A)
    assert logdet(L) == pytest.approx(float(torch.logdet(A.double())), rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("negative", [1e-14, 3e-12, 1e-9, 1e-6])
def test_the_jitter_is_the_first_decade_that_suffices(negative: float, scale: float):
    A = scale * singular(7, -negative)
    smallest = -float(torch.linalg.eigvalsh(A)[0])

    L, jitter = cholesky(A, "A")

    first = 8.0 * torch.finfo(torch.float64).eps * float(A.diagonal().mean())
    decades = math.log10(jitter / first)
    assert decades == pytest.approx(round(decades), abs=1e-9)
    assert 0.5 * smallest < jitter < 10.5 * max(smallest, first)
    torch.testing.assert_close(L @ L.T, A + jitter * torch.eye(7, dtype=torch.float64))


@pytest.mark.parametrize(("largest", "succeeds"), [(1e-4, True), (1e-6, False)])
def test_the_largest_jitter_is_relative_to_the_diagonal(largest: float, succeeds: bool):
    A = 100.0 * singular(7, -2e-6)
    if succeeds:
        assert cholesky(A, "A", largest).jitter <= largest * 300.0
        return
    with pytest.raises(NotPositiveDefinite, match=r"A \[7 x 7\] is not positive definite after jitter") as error:
        cholesky(A, "A", largest)
    assert error.value.size == 7
    assert largest * 300.0 < error.value.jitter <= 10.0 * largest * 300.0


def test_matrices_without_a_factor_and_without_rows():
    with pytest.raises(NotPositiveDefinite, match="not finite"):
        cholesky(torch.tensor([[math.inf]]), "A")
    with pytest.raises(NotPositiveDefinite):
        cholesky(torch.zeros(2, 2), "A")
    assert cholesky(torch.zeros(0, 0), "A").L.shape == (0, 0)


def test_the_largest_jitter_of_each_matrix_is_recorded_inside_the_context_only():
    record: dict[str, float] = {}
    small, large = singular(5, -1e-12), singular(5, -1e-9)

    with record_jitter(record):
        of_large, of_small = cholesky(large, "A").jitter, cholesky(small, "A").jitter
        cholesky(small, "B")
        cholesky(small, "no answer depends on it", noted=False)
        cholesky(singular(5, 0.5), "C")
    cholesky(large, "B")

    assert 0.0 < of_small < of_large
    assert record == {"A": of_large, "B": of_small}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("share", "needs_jitter"), [(0.1, True), (0.9, True), (1.2, False), (50.0, False)])
def test_an_accurate_factor_has_no_pivot_that_consists_of_rounding(
    share: float, needs_jitter: bool, dtype: torch.dtype
) -> None:
    least = SMALLEST_PIVOT * torch.finfo(dtype).eps  # of the mean of the diagonal, which is 5
    A = torch.diag(torch.tensor([5.0, 10.0 - 5.0 * share * least, 5.0 * share * least], dtype=dtype))

    L, jitter = cholesky(A, "A", accurate=True)

    assert (jitter > 0.0) == needs_jitter
    assert cholesky(A, "A").jitter == 0.0
    assert float(L.diagonal().min()) ** 2 > 5.0 * least
    torch.testing.assert_close(L @ L.T, A + jitter * torch.eye(3, dtype=dtype))
    with_limit = cholesky(A, "A", largest=least / 1e3, accurate=True)
    assert with_limit.jitter <= 50.0 * least / 1e3, "the largest jitter ends the search, and the factor stays"


def test_an_accurate_factor_of_nothing_is_nothing() -> None:
    assert cholesky(torch.zeros(0, 0), "A", accurate=True).L.shape == (0, 0)


def test_independent_rows_are_those_that_leave_a_residual_variance() -> None:
    rng = torch.Generator().manual_seed(3)
    root = torch.randn(9, 6, generator=rng, dtype=torch.float64)
    root[3] = root[0]  # a duplicate
    root[5] = 0.5 * root[1] - root[2]  # explained by two rows together
    root[7] = root[4] + 1e-3 * root[8]  # explained only to 1e-6 of its variance
    A = root @ root.T

    fine, coarse = (independent_rows(A, least * A.diagonal()) for least in (1e-9, 1e-3))

    assert fine.tolist() == [0, 1, 2, 4, 6, 7]
    assert coarse.tolist() == [0, 1, 2, 4, 6, 8]
    for rows in (fine, coarse):
        residual = [
            float(A[j, j] - A[j, rows[:k]] @ torch.linalg.solve(A[rows[:k]][:, rows[:k]], A[rows[:k], j]))
            for k, j in enumerate(rows.tolist())
        ]
        assert min(residual) > 1e-9
    only_one = torch.full((9,), 1e9, dtype=torch.float64)
    only_one[4] = 0.0
    assert independent_rows(A, only_one).tolist() == [4]


def one_after_another(A: torch.Tensor, least: torch.Tensor) -> list[int]:
    """The definition: each row is compared with the accepted rows before it, by a solution of its own."""
    accepted: list[int] = []
    for j in range(len(A)):
        explained = A[j, accepted] @ torch.linalg.solve(A[accepted][:, accepted], A[accepted, j]) if accepted else 0.0
        if float(A[j, j] - explained) > float(least[j]):
            accepted.append(j)
    return accepted


@pytest.mark.parametrize("block", [1, 7, 64, 500])
@pytest.mark.parametrize("shift", [0.0, 40.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_independent_rows_in_blocks_are_those_found_one_after_another(
    block: int, shift: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = torch.Generator().manual_seed(8)
    X = torch.rand(150, 4, generator=rng, dtype=torch.float64) + shift
    X = torch.cat([X, X[5:9], X[::7] + 1e-9, X[60:63]])[torch.randperm(179, generator=rng)]  # 29 copies
    A = (-0.5 * torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist").square() / 0.3**2).exp().to(dtype)
    least = 1e-3 * A.diagonal()
    expected = one_after_another(A.double(), least.double())
    assert 100 < len(expected) <= 150

    monkeypatch.setattr(module, "INDEPENDENCE_BLOCK", block)
    assert independent_rows(A, least).tolist() == expected
    for most in (0, 1, 70, len(expected), 500):
        assert independent_rows(A, least, most).tolist() == expected[:most]
    assert independent_rows(A[expected][:, expected], least[expected]).tolist() == list(range(len(expected)))


def test_independent_rows_of_a_matrix_without_rows_are_none() -> None:
    assert independent_rows(torch.zeros(0, 0), torch.zeros(0)).tolist() == []


@pytest.mark.parametrize("negative", [-0.5, 3e-12, 1e-6])
def test_a_factor_in_its_own_memory_is_that_of_a_copy(negative: float) -> None:
    A = singular(7, -negative)
    memory, record, expected = torch.full((7, 7), torch.nan, dtype=torch.float64), {}, {}

    def fill(out: Tensor) -> None:
        rows, columns = torch.triu_indices(7, 7)
        out[rows, columns] = A[rows, columns]  # the other entries are never read

    with record_jitter(record):
        L, jitter = cholesky_in_place(fill, memory, "A")
    with record_jitter(expected):
        dense = cholesky(A, "A")

    assert (jitter, record) == (dense.jitter, expected)
    assert L.data_ptr() == memory.data_ptr()
    torch.testing.assert_close(L, dense.L, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
@pytest.mark.parametrize("m", [SLOW_SIZE - 1, SLOW_SIZE, SLOW_SIZE + 1])
def test_a_factor_with_a_border_is_that_of_the_matrix(m: int, scale: float, by_columns: bool, dtype: torch.dtype):
    R = torch.randn(m, m, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    A = (scale * (R @ R.T + torch.eye(m).double())).to(dtype)
    given = A.mT.contiguous().mT if by_columns else A
    before = given.clone()

    L, info = factor(given)

    assert int(info) == 0
    assert torch.equal(given, before)
    assert torch.equal(L, L.tril())
    torch.testing.assert_close(L @ L.T, A, rtol=0.0, atol=20 * torch.finfo(dtype).eps * float(A.diagonal().max()))


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("m", [SLOW_SIZE - 1, SLOW_SIZE + 1, 2 * SLOW_SIZE])
def test_a_factor_of_a_copy_is_that_of_torch_up_to_rounding_and_leaves_the_matrix(m: int, by_columns: bool):
    R = torch.randn(2, m, m, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    A = R @ R.mT
    A = A.tril() + A.tril(-1).mT + torch.eye(m).double()
    A = A.mT.contiguous().mT if by_columns else A
    before, expected = A.clone(), torch.linalg.cholesky(A)

    rounding = {"rtol": 0.0, "atol": 4.0 * torch.finfo(A.dtype).eps * float(A.amax())}
    torch.testing.assert_close(torch.stack([factor(part)[0] for part in A]), expected, **rounding)
    torch.testing.assert_close(cholesky_of_each(A, "A"), expected, **rounding)
    assert torch.equal(A, before)


def test_the_gradient_of_a_factor_is_that_of_torch():
    A = (torch.randn(2 * SLOW_SIZE, 9, generator=torch.Generator().manual_seed(3)).double().square()).requires_grad_()
    gradients = []
    for factored in (lambda K: factor(K)[0], torch.linalg.cholesky):
        (gradient,) = torch.autograd.grad(factored(A @ A.T + torch.eye(len(A)).double()).diagonal().log().sum(), A)
        gradients.append(gradient)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("m", [SLOW_SIZE - 1, SLOW_SIZE, SLOW_SIZE + 1])
def test_the_error_code_is_the_first_row_without_a_pivot(m: int):
    for row in (0, m - 1):
        A = torch.eye(m).double()
        A[row, row] = -1.0
        assert int(factor(A)[1]) == row + 1
    assert int(factor(torch.full((m, m), math.nan).double())[1]) > 0


def test_a_matrix_without_a_factor_in_its_own_memory_is_named() -> None:
    for entry in (math.nan, -1.0):
        with pytest.raises(NotPositiveDefinite, match=r"^K \[2 x 2\] is not positive definite"):
            cholesky_in_place(lambda out, entry=entry: out.fill_(entry), torch.empty(2, 2), "K")


@pytest.mark.parametrize(("smallest", "reads"), [(1.0, 1), (-1e-14, 3)])
def test_several_matrices_take_one_read_of_a_gpu_and_jitter_only_where_it_is_needed(smallest: float, reads: int):
    matrices = torch.stack([singular(12, 0.5), singular(12, smallest)])
    expected = torch.stack([cholesky(part, "A").L for part in matrices])
    torch.testing.assert_close(cholesky_of_each(matrices, "A"), expected)

    with SimulatedGPU() as gpu:
        on_gpu = matrices.to("cuda")
        gpu.work = DeviceWork()
        factors = cholesky_of_each(on_gpu, "A")
        assert gpu.work.reads == 1 if reads == 1 else gpu.work.reads >= reads
        torch.testing.assert_close(factors.cpu(), expected)


def log_determinant(point: torch.Tensor) -> tuple[float, torch.Tensor, torch.Tensor]:
    L, jitter = cholesky(torch.diag(point), "A")
    return jitter, L.diagonal().log().sum(), L


def test_an_evaluation_is_replayed_after_some_and_repeated_with_reads_where_jitter_is_needed():
    points = torch.tensor([[1.0, 2.0], [2.0, 3.0], [3.0, 1.0], [1.0, 4.0], [5.0, 1.0], [4.0, 0.0], [2.0, 2.0]]).double()
    with SimulatedGPU() as gpu:
        like = torch.zeros(1, dtype=torch.float64, device="cuda")
        evaluations = RepeatedEvaluations(lambda point: log_determinant(point.to(like)), like)
        for k, point in enumerate(points):
            gpu.work = DeviceWork()
            result, expected = evaluations(point), log_determinant(point)
            for part, own in zip(result, expected, strict=True):
                torch.testing.assert_close(part, own)
            replayed = k >= WARM_UP and bool(point.all())
            assert (gpu.work.reads == 1) == bool(point.all())
            assert (gpu.work.launches == 2) == replayed or k == WARM_UP


def test_a_case_that_always_happens_costs_hardly_any_evaluation_twice():
    calls = list[float]()

    def work(point: torch.Tensor) -> tuple[float, torch.Tensor]:
        calls.append(1.0)
        return cholesky(torch.diag(point.to("cuda")), "A").jitter, point.to("cuda").sum()

    with SimulatedGPU():
        evaluations = RepeatedEvaluations(work, torch.zeros(1, dtype=torch.float64, device="cuda"))
        for k in range(30):
            jitter, total = evaluations(torch.tensor([1.0 + k, 0.0]).double())
            assert jitter > 0.0
            assert float(total) == 1.0 + k
        assert 30 < len(calls) <= 36
        calls.clear()
        for k in range(40):
            assert evaluations(torch.tensor([1.0 + k, 1.0]).double())[0] == 0.0
        assert len(calls) < 30  # a graph is replayed in the end


def test_a_device_without_graphs_evaluates_piece_by_piece(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SimulatedTensor, "is_cuda", False)
    with SimulatedGPU() as gpu:
        evaluations = RepeatedEvaluations(lambda x: (x.to("cuda").square().sum(),), torch.zeros(1, device="cuda"))
        for k in range(WARM_UP + 2):
            gpu.work = DeviceWork()
            assert float(evaluations(torch.tensor([k, 2.0]))[0]) == k * k + 4.0
            assert gpu.work.launches > 2


def test_an_evaluation_that_reads_is_launched_piece_by_piece(monkeypatch: pytest.MonkeyPatch):
    warnings = list[object]()
    monkeypatch.setattr(deferred_reads._log, "warning", lambda *arguments: warnings.append(arguments))
    with SimulatedGPU():
        evaluations = RepeatedEvaluations(lambda x: (float(x[0]), x.square()), torch.zeros(1, device="cuda"))
        for k in range(WARM_UP + 2):
            number, square = evaluations(torch.tensor([k, 2.0]))
            assert (number, square.tolist()) == (k, [k * k, 4.0])
    assert len(warnings) == 1
