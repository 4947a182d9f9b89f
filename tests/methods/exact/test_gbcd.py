"""Solvers of the exact GP compared with dense algebra: alpha, gradients, decreasing objectives, bounded memory."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
import torch

from a_gpu import a_gpu
from gpexplorer import kernels
from gpexplorer.linalg import preconditioners
from gpexplorer.linalg.kernel_columns import KernelColumns
from gpexplorer.methods.base import registry
from gpexplorer.methods.exact import cg
from gpexplorer.methods.exact.gbcd import GBCD
from gpexplorer.methods.exact.system import System, solve_block
from gpexplorer.objectives import evidence
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs.counting import Counted, Counter

SHIFTS = [0.0, 1000.0]
SOLVERS = ["gbcd", "cg", "pcg", "smo", "bcd-cyclic", "bcd-gradient", "cholesky"]
QUICK = {"coarse": 0, "block": 12, "chunk": 3, "rank": 10, "pairs": 200, "max_iterations": 4000, "tolerance": 1e-7}


def problem(shift: float = 0.0, n: int = 80) -> Problem:
    rng = torch.Generator().manual_seed(5)
    X = 3.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * torch.randn(n, generator=rng, dtype=torch.float64)
    theta = torch.tensor([0.1, -0.2, -0.4, -1.2], dtype=torch.float64)
    return Problem(Dataset(X + shift, y), kernels.make("se-ard", 2), theta)


def dense(task: Problem) -> torch.Tensor:
    K = task.kernel(task.theta, task.train.X, task.train.X)
    return K + float((2 * task.theta[-1]).exp()) * torch.eye(len(K), dtype=K.dtype)


def method(key: str, **changes: object):
    kind = registry[key]
    wanted = {"learn": False, **QUICK, **changes}
    return kind(**{name: value for name, value in wanted.items() if name in kind.param})


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", SOLVERS)
def test_every_solver_converges_to_the_alpha_of_a_dense_solution(key: str, shift: float):
    task = problem(shift)
    block = 60 if key == "bcd-cyclic" else 12  # small blocks in turn need very many iterations
    steps = list(method(key, block=block).steps(task))

    expected = torch.linalg.solve(dense(task), task.train.y)
    torch.testing.assert_close(steps[-1].state.alpha, expected, rtol=1e-5, atol=1e-6)
    assert steps[-1].info.largest <= 1e-7
    assert float((dense(task) @ steps[-1].state.alpha - task.train.y).abs().max()) <= 2e-7


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", [key for key in SOLVERS if key != "cholesky"])
def test_reported_objective_and_gradient_equal_dense_ones_and_the_objective_decreases(key: str, shift: float):
    task = problem(shift)
    A, y, values = dense(task), task.train.y, []
    for step in islice(method(key, pairs=5).steps(task), 1, 15):
        alpha = step.state.alpha
        values.append(step.info.objective)
        assert step.info.objective == pytest.approx(float(0.5 * alpha @ A @ alpha - y @ alpha), rel=1e-9)
        assert step.info.largest == pytest.approx(float((A @ alpha - y).abs().max()), rel=1e-6, abs=1e-10)

    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("shift", SHIFTS)
def test_one_block_of_all_rows_solves_the_system_in_one_iteration(shift: float):
    task = problem(shift)
    first = next(islice(method("gbcd", block=80, chunk=80).steps(task), 1, None))

    torch.testing.assert_close(first.state.alpha, torch.linalg.solve(dense(task), task.train.y), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("shift", SHIFTS)
def test_cyclic_descent_with_one_row_per_block_is_gauss_seidel(shift: float):
    task = problem(shift)
    A, y, alpha = dense(task), task.train.y, torch.zeros(80, dtype=torch.float64)
    for step in islice(method("bcd-cyclic", block=1).steps(task), 1, 170):
        i = (step.state.position - 1) % 80
        alpha[i] += (y[i] - A[i] @ alpha) / A[i, i]
        torch.testing.assert_close(step.state.alpha, alpha, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shift", SHIFTS)
def test_with_chunk_1_and_all_rows_as_candidates_the_choice_is_the_published_one(shift: float):
    task = problem(shift)
    A, y = dense(task), task.train.y
    rows: list[int] = []
    gains = []
    for _ in range(12):
        step = torch.linalg.solve(A[rows][:, rows], y[rows]) if rows else y[:0]
        e = A[:, rows] @ step - y
        gain = e.square() / (2 * A.diagonal())
        gain[rows] = -1.0
        rows.append(int(gain.argmax()))
        gains.append(float(gain.max()))

    first = next(islice(method("gbcd", chunk=1, shortlist=0).steps(task), 1, None))

    assert first.info.active.tolist() == rows
    assert first.info.gains.tolist() == pytest.approx(gains, rel=1e-9)


def test_a_small_pool_of_candidates_gives_a_worse_block():
    task = problem(n=200)
    all_rows, drawn = (next(islice(method("gbcd", chunk=1, pool=pool).steps(task), 1, None)) for pool in (0, 5))

    assert all_rows.info.objective < drawn.info.objective
    assert len(set(drawn.info.active.tolist())) == 12


def test_the_first_row_of_a_block_is_chosen_among_all_rows_as_in_algorithm_2():
    task = problem(n=200)
    A = dense(task)
    steps = list(islice(method("gbcd", chunk=1, pool=4, conjugate=0, tolerance=0.0, block=6).steps(task), 8))

    for before, after in pairwise(steps[1:]):
        promised = 0.5 * (A @ before.state.alpha - task.train.y).square() / A.diagonal()
        assert int(after.info.active[0]) == int(promised.argmax())


@pytest.mark.parametrize("pool", [0, 1, 2])
def test_no_row_is_in_a_block_twice_even_with_a_tiny_pool(pool: int):
    task = problem(n=20)
    steps = islice(method("gbcd", chunk=1, pool=pool, tolerance=0.0, block=18).steps(task), 1, 12)

    for step in steps:
        assert len(set(step.info.active.tolist())) == len(step.info.active) == 18


@pytest.mark.parametrize("cache", [0.0, 1e-5, 1.0])
def test_the_cache_changes_the_number_of_computed_entries_and_not_the_result(cache: float):
    task = problem()
    counter = Counter()
    counted = Problem(task.train, Counted(task.kernel, counter), task.theta)
    steps = list(islice(method("gbcd", cache=cache, tolerance=0.0).steps(counted), 8))

    plain = list(islice(method("gbcd", cache=1.0, tolerance=0.0).steps(task), 8))
    torch.testing.assert_close(steps[-1].state.alpha, plain[-1].state.alpha, rtol=1e-10, atol=1e-12)
    rows = set().union(*(step.info.active.tolist() for step in steps[1:]))
    fresh = {0.0: 7 * 12 * 80, 1.0: len(rows) * 80}
    assert cache not in fresh or counter.entries == fresh[cache] + 80  # the diagonal


def test_kernel_rows_in_the_cache_fit_into_the_budget():
    task = problem()
    columns = KernelColumns(task.kernel, task.theta, task.train.X, budget=10.0 * 80 * 8)
    K = task.kernel(task.theta, task.train.X, task.train.X)
    for rows in (torch.arange(7), torch.tensor([3, 50, 9, 4]), torch.arange(80)):
        torch.testing.assert_close(columns(rows), K[rows])
        assert columns._kept.nbytes <= 10 * 80 * 8
    V = torch.randn(80, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(columns.product(V), K @ V)


def test_near_duplicate_rows_do_not_prevent_convergence():
    task = problem()
    X = torch.cat([task.train.X, task.train.X + 1e-9])
    twice = Problem(Dataset(X, task.train.y.repeat(2)), task.kernel, task.theta)

    *_, last = method("gbcd").steps(twice)

    assert last.info.largest <= 1e-7


@pytest.mark.parametrize("shift", SHIFTS)
def test_after_the_exact_step_of_a_block_its_gradient_is_zero(shift: float):
    task = problem(shift)
    system, rows = System(task, task.theta, 0.0), torch.tensor([4, 1, 70])
    g = system.gradient(torch.ones(80, dtype=torch.float64))

    step, after = solve_block(system, rows, g)

    assert float(after[rows].abs().max()) < 1e-12
    torch.testing.assert_close(after, g + dense(task)[:, rows] @ step)


@pytest.mark.parametrize("root", ["pivoted", "nystrom"])
def test_the_preconditioner_applies_the_inverse_of_its_matrix(root: str):
    task = problem()
    K = task.kernel(task.theta, task.train.X, task.train.X)
    rows = torch.arange(0, 80, 8)
    columns = lambda index: K[:, index]  # noqa: E731
    by = {"pivoted": lambda: preconditioners.pivoted_root(columns, K.diagonal(), 10)}
    L = by.get(root, lambda: preconditioners.nystrom_root(columns, rows))()

    apply = preconditioners.woodbury(L, 0.09)

    M = L @ L.T + 0.09 * torch.eye(80, dtype=torch.float64)
    v = torch.randn(80, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(M @ apply(v), v, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(apply(v)[:, 0], apply(v[:, 0]))
    if root == "nystrom":
        torch.testing.assert_close(
            L @ L.T, K[:, rows] @ torch.linalg.solve(K[rows][:, rows], K[rows]), atol=1e-7, rtol=0
        )


@pytest.mark.parametrize("root", ["pivoted", "nystrom", "drawn", "grief"])
def test_preconditioned_cg_takes_fewer_iterations_than_cg(root: str):
    counts = {key: len(list(method(key, rank=30, root=root).steps(problem()))) for key in ("cg", "pcg")}

    assert counts["pcg"] < counts["cg"] / 1.5


def test_cg_with_many_right_hand_sides_equals_cg_for_each():
    A = dense(problem())
    b = torch.randn(80, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    together = cg.begin(A.matmul, b, torch.zeros_like(b))
    *_, last = islice(cg.cg(A.matmul, together), 9)

    for k in range(3):
        alone = cg.begin(A.mv, b[:, k], torch.zeros(80, dtype=torch.float64))
        *_, end = islice(cg.cg(A.mv, alone), 9)
        torch.testing.assert_close(last.x[:, k], end.x, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_log_evidence_and_its_gradient_equal_automatic_differentiation(shift: float):
    task = problem(shift)
    theta = task.theta.clone().requires_grad_(True)
    K = task.kernel(theta, task.train.X, task.train.X)
    A = K + torch.exp(2 * theta[-1]) * torch.eye(80, dtype=torch.float64)
    value = 0.5 * (task.train.y @ torch.linalg.solve(A, task.train.y) + torch.logdet(A))
    value.backward()

    result, gradient = evidence(task.kernel, task.theta, task.train)

    assert result == pytest.approx(value.item(), rel=1e-10)
    torch.testing.assert_close(gradient, theta.grad, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("shift", SHIFTS)
def test_predictions_equal_those_of_a_dense_gp(shift: float):
    task = problem(shift)
    *_, last = method("gbcd", tolerance=1e-10).steps(task)
    X = task.train.X[:9] + 0.05
    k = task.kernel(task.theta, X, task.train.X)

    mean, var = GBCD().posterior(task, last.state)(X)

    torch.testing.assert_close(mean, k @ torch.linalg.solve(dense(task), task.train.y), rtol=1e-7, atol=1e-8)
    exact = task.kernel.diag(task.theta, X) - (k * torch.linalg.solve(dense(task), k.T).T).sum(1)
    torch.testing.assert_close(var, exact, rtol=1e-7, atol=1e-9)
    _, bound = GBCD(variance_rows=20, bands="rows").posterior(task, last.state)(X)
    assert bool((bound >= exact - 1e-12).all())


def test_a_block_that_needs_jitter_is_solved_again_on_a_gpu_as_on_a_cpu(monkeypatch: pytest.MonkeyPatch):
    """Rows that occur twice and hardly any noise: in float32 columns the factor of a block fails without jitter."""
    X = torch.rand(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X, kernel = torch.cat([X, X]), kernels.make("se-ard", 2)
    theta = torch.tensor([0.0, 0.5, 0.5, -10.0], dtype=torch.float64)
    repeats = []
    forget = KernelColumns.forget
    monkeypatch.setattr(KernelColumns, "forget", lambda columns: (repeats.append(1), forget(columns))[1])
    settings = {"learn": False, "block": 30, "chunk": 30, "coarse": 10, "mixed": True, "max_iterations": 3}

    def states(device: str) -> list[torch.Tensor]:
        task = Problem(Dataset(X.to(device), X.sin().sum(1).to(device)), kernel, theta.to(device))
        return [step.state.alpha.cpu() for step in islice(GBCD(**settings).steps(task), 3)]

    here = states("cpu")
    assert not repeats
    with a_gpu():
        there = states("cuda")
    assert repeats
    for alpha, expected in zip(there, here, strict=True):
        rounding = 2e-5 if torch.cuda.is_available() else 1e-6  # a card rounds the float32 factors in its own way
        torch.testing.assert_close(alpha, expected, rtol=rounding, atol=1e-6)
