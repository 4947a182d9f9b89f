"""Low-rank roots of a kernel matrix: what they equal, and that they stop where nothing is left to explain."""

from __future__ import annotations

import pytest
import torch

from gpexplorer.linalg.cholesky import record_jitter
from gpexplorer.linalg.deferred_reads import RareCases
from gpexplorer.linalg.preconditioners import (
    drawn_root,
    largest_eigenvalue,
    masked_nystrom_root,
    nystrom_root,
    pivoted_root,
    sketched_root,
    sufficient_rank,
    woodbury,
)
from gpexplorer.methods.exact.system import System
from oracles_gbcd import SHIFTS, gram, noise, quick, wavy


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_pivoted_root_is_the_nystrom_approximation_of_rows_that_were_explained_least(shift: float):
    K, requests = gram(wavy(shift)), list[int]()

    def columns(rows: torch.Tensor) -> torch.Tensor:
        requests.extend(rows.tolist())
        return K[:, rows]

    L = pivoted_root(columns, K.diagonal(), 9)

    Khat = K[:, requests] @ torch.linalg.solve(K[requests][:, requests], K[requests])
    torch.testing.assert_close(L @ L.T, Khat, rtol=1e-7, atol=1e-9)
    for k in range(1, 9):
        left = K.diagonal() - L[:, :k].square().sum(1)
        assert float(left[requests[k]]) == pytest.approx(float(left.max()))
    other = nystrom_root(lambda rows: K[:, rows].clone(), torch.tensor(requests))
    torch.testing.assert_close(other @ other.T, Khat, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize(("rank", "s2"), [(0, 0.1), (5, 0.1), (40, 0.1), (6, 0.0)])
def test_drawn_pivots_are_different_rows_and_their_root_is_the_projection_on_them(shift: float, rank: int, s2: float):
    K = gram(wavy(shift))
    A = K + s2 * torch.eye(80, dtype=torch.float64)
    W = K.new_empty(80, rank)

    C = drawn_root(lambda rows: K[rows].clone(), K.diagonal(), W, 3, s2)

    assert len(set(C.tolist())) == rank
    torch.testing.assert_close(W @ W.T, A[:, C] @ torch.linalg.solve(A[C][:, C], A[C]), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("shift", SHIFTS)
def test_pivots_drawn_by_residual_variance_explain_clusters_better_than_uniform_ones(shift: float):
    rng = torch.Generator().manual_seed(1)
    centres = torch.tensor([0.0] * 170 + [3.0, 6.0, 9.0] * 10, dtype=torch.float64)
    X = shift + centres[:, None] + 0.1 * torch.randn(200, 1, generator=rng, dtype=torch.float64)
    K, W = torch.exp(-0.5 * (X - X.T).square()), X.new_empty(200, 8)
    alike = torch.randperm(200, generator=rng)[:8]

    drawn_root(lambda rows: K[rows].clone(), K.diagonal(), W, 0)

    other = nystrom_root(lambda rows: K[:, rows].clone(), alike)
    assert float(K.trace() - W.square().sum()) < 0.5 * float(K.trace() - other.square().sum())


@pytest.mark.parametrize("shift", SHIFTS)
def test_duplicate_rows_end_a_pivoted_root_before_it_divides_by_rounding(shift: float):
    K = gram(wavy(shift))[:6, :6].repeat(5, 5)

    L = pivoted_root(lambda rows: K[:, rows], K.diagonal(), 20)

    assert L.shape == (30, 6)
    torch.testing.assert_close(L @ L.T, K, rtol=1e-9, atol=1e-10)
    v = torch.linspace(-1.0, 1.0, 30, dtype=torch.float64)
    s2 = 0.1
    torch.testing.assert_close(woodbury(L, s2)(v), torch.linalg.solve(K + s2 * torch.eye(30).double(), v))


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_solver_takes_the_noise_off_the_diagonal_before_it_chooses_pivots(shift: float):
    task = wavy(shift)
    K, v = gram(task), torch.linspace(-1.0, 1.0, 80, dtype=torch.float64)

    result = quick("pcg", rank=7, root="pivoted", damped=False)._preconditioner(System(task, task.theta, 1e9))(v)  # type: ignore[attr-defined]

    L = pivoted_root(lambda rows: K[:, rows], K.diagonal(), 7)
    torch.testing.assert_close(result, woodbury(L, noise(task))(v))


@pytest.mark.parametrize("variance", [1e-7, 1e-3, 0.1, 2.0])
def test_a_mask_leaves_the_root_of_the_rows_that_are_enough(variance: float):
    K, rows = smooth(1)
    count = sufficient_rank(K[rows][:, rows], variance)

    L = masked_nystrom_root(lambda rows: K[:, rows].clone(), rows, torch.tensor(variance))

    torch.testing.assert_close(L[:, :count], nystrom_root(lambda rows: K[:, rows].clone(), rows[:count]))
    assert not L[:, count:].any()


def test_a_mask_tells_where_rows_need_jitter():
    for copies in (1, 2):
        K, rows = smooth(copies)
        with (cases := RareCases(K)).assumed_away():
            masked_nystrom_root(lambda rows, K=K: K[:, rows].clone(), rows, torch.tensor(1e-5))
        assert bool(cases.happened) == (copies == 2)


def smooth(copies: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A kernel matrix whose rows occur several times, and some of these in random order."""
    x = torch.linspace(0.0, 3.0, 40, dtype=torch.float64).repeat(copies)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:30]
    return torch.exp(-0.5 * (x[:, None] - x).square()), rows


def test_the_sufficient_rank_leaves_later_rows_at_most_the_given_variance():
    x = torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    K = torch.exp(-0.5 * (x[:, None] - x).square() / 0.3**2)
    left = [1.0 - float(K[j, :j] @ torch.linalg.lstsq(K[:j, :j], K[:j, j]).solution) for j in range(1, 60)]
    for least in (1e-2, 1e-4):
        count = sufficient_rank(K, least)
        assert 3 <= count < 20
        assert max(left[count - 1 :]) <= 1.01 * least
        assert left[count - 2] > 0.99 * least
    assert sufficient_rank(K, 2.0) == 1


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_sketched_root_is_the_nystrom_approximation_of_the_range_of_the_sketch(shift: float):
    K = gram(wavy(shift))[:40, :40]
    sketch = torch.randn(40, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    L = sketched_root(K, sketch)

    expected = K @ sketch @ torch.linalg.solve(sketch.T @ K @ sketch, sketch.T @ K)
    torch.testing.assert_close(L @ L.T, expected, rtol=1e-9, atol=1e-10)
    low = K[:, :3] @ K[:, :3].T  # rank 3, which is less than the sketch has: eps times the trace is added
    L = sketched_root(low, sketch)
    torch.testing.assert_close(L @ L.T, low, rtol=0, atol=1e-11)


def test_power_iteration_finds_the_largest_eigenvalue_of_the_preconditioned_matrix():
    K = gram(wavy())[:30, :30]
    M = torch.diag(torch.linspace(1.0, 3.0, 30, dtype=torch.float64))
    x = torch.ones(30, dtype=torch.float64)

    estimates = [largest_eigenvalue(K, lambda v: v / M.diagonal(), 1e3 * x, turns) for turns in (0, 1, 60)]

    Kx = K @ x
    assert estimates[0] == 0.0
    assert estimates[1] == pytest.approx(float(Kx @ (Kx / M.diagonal())) / float(x @ Kx), rel=1e-12)
    exact = float(torch.linalg.eigvals(torch.linalg.solve(M, K)).real.max())
    assert estimates[2] == pytest.approx(exact, rel=1e-6)
    assert largest_eigenvalue(K, lambda v: v, 0.0 * x) == 0.0


def test_damping_adds_the_smallest_eigenvalue_inside_the_range():
    L = torch.randn(12, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    smallest = float(torch.linalg.eigvalsh(L.T @ L)[0])
    eye = torch.eye(12, dtype=torch.float64)

    for damped, s2 in ((False, 0.3), (True, 0.3 + smallest)):
        applied = woodbury(L, 0.3, damped)(eye)
        torch.testing.assert_close(applied, torch.linalg.inv(L @ L.T + s2 * eye), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("variance", [1e-12, 1e12])
def test_a_pivoted_root_stops_at_rounding_whatever_the_variance(variance: float):
    K = variance * gram(wavy())[:6, :6].repeat(5, 5)

    L = pivoted_root(lambda rows: K[:, rows], K.diagonal(), 20)

    assert L.shape == (30, 6)
    torch.testing.assert_close(L @ L.T, K, rtol=1e-9, atol=1e-10 * variance)


@pytest.mark.parametrize(("rank", "draws"), [(5, [1] * 5), (40, [3] * 13 + [1]), (16, [1] * 16), (17, [2] * 8 + [1])])
@pytest.mark.parametrize("variance", [1e-12, 1e12])
def test_pivots_are_drawn_in_at_most_sixteen_groups_whatever_the_variance(rank: int, draws: list[int], variance: float):
    K, requests = variance * gram(wavy()), list[int]()

    def columns(rows: torch.Tensor) -> torch.Tensor:
        requests.append(len(rows))
        return K[rows].clone()

    W = K.new_empty(80, rank)
    C = drawn_root(columns, K.diagonal(), W, 3, 1e-6 * variance)

    assert requests == draws
    assert (
        C.tolist()
        == drawn_root(lambda rows: K[rows] / variance, K.diagonal() / variance, W / variance, 3, 1e-6).tolist()
    )


def test_jitter_of_a_preconditioner_is_not_reported_and_a_small_eigenvalue_damps_little():
    K = torch.ones(8, 8, dtype=torch.float64)
    jitters: dict[str, float] = {}
    with record_jitter(jitters):
        nystrom_root(lambda rows: K[:, rows].clone(), torch.arange(4))
        sufficient_rank(K, 1e-3)
        woodbury(K, 0.0)
        sketched_root(K, torch.eye(8, 3, dtype=torch.float64))
    assert not jitters

    L = 0.1 * torch.eye(5, 2, dtype=torch.float64)
    expected = torch.linalg.inv(L @ L.T + 0.31 * torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(woodbury(L, 0.3, damped=True)(torch.eye(5, dtype=torch.float64)), expected)
