"""Many right-hand sides through the same blocks, beside dense solutions: values, bounds, entries, and continuation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.exact import right_hand_sides
from gpexplorer.methods.exact.block import Block, BlockBuffers, BlockSizes, CoarseRows, fill_block
from gpexplorer.methods.exact.right_hand_sides import Columns, solve_together, target_limit, variance_limit
from gpexplorer.methods.exact.system import System
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs.counting import Counted, Counter

SIZES = BlockSizes(block=40, chunk=10, coarse=30)
CASES = {  # shift of the inputs, log lengthscale, log noise
    "origin": (0.0, -0.6, -1.2),
    "far away": (1000.0, -0.6, -1.2),
    "high signal": (0.0, -0.6, -5.7),
    "short lengthscale": (0.0, -8.0, -1.2),
}


def task(name: str, n: int = 120) -> tuple[Problem, Tensor, Tensor]:
    """A problem with duplicate rows, test inputs near and far, and the dense A."""
    shift, scale, noise = CASES[name]
    rng = torch.Generator().manual_seed(3)
    X = 3.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    X[1] = X[0]
    kernel, theta = kernels.make("se-ard", 2), torch.tensor([0.3, scale, scale + 0.4, noise], dtype=torch.float64)
    A = kernel(theta, X, X) + math.exp(2 * noise) * torch.eye(n, dtype=torch.float64)
    y = torch.linalg.cholesky(A) @ torch.randn(n, generator=rng, dtype=torch.float64)
    Z = torch.cat([X[:9] + 0.02, X[9:12], X[:2] + 50.0])
    return Problem(Dataset(X + shift, y), kernel, theta), Z + shift, A


def finish(system: System, groups: list[Columns], sizes: BlockSizes = SIZES, passes: float = 100.0) -> int:
    return max(solve_together(system, groups, sizes, passes), default=0)


@pytest.mark.parametrize(("name", "conjugate"), [*((name, 0) for name in CASES), ("origin", 2), ("high signal", 2)])
def test_all_columns_equal_dense_solutions_and_their_values_are_the_minimum(name: str, conjugate: int):
    problem, Z, A = task(name)
    K = problem.kernel(problem.theta, problem.train.X, Z)
    s2 = float((2 * problem.theta[-1]).exp())
    limit = target_limit(120, s2, 1e-5 if name == "high signal" else 1e-7)
    y, others = Columns(problem.train.y[:, None].clone(), limit, conjugate), Columns(K.clone(), limit)

    finish(System(problem, problem.theta, 0.0), [y, others])

    R = torch.cat([problem.train.y[:, None], K], 1)
    V, G, values = (torch.cat(pair, -1) for pair in zip(y.result(), others.result(), strict=True))
    expected = torch.linalg.solve(A, R)
    assert float((A @ (V - expected)).norm(dim=0).max()) <= 1.01 * float(limit(torch.zeros(1), torch.zeros(1)))
    torch.testing.assert_close(G, A @ V - R, atol=1e-8, rtol=0)
    torch.testing.assert_close(values, -(R * expected).sum(0), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_variances_stop_within_their_stated_error_which_is_not_empty(name: str):
    problem, Z, A = task(name)
    K, prior = problem.kernel(problem.theta, problem.train.X, Z), problem.kernel.diag(problem.theta, Z)
    exact, s2 = prior - (K * torch.linalg.solve(A, K)).sum(0), float((2 * problem.theta[-1]).exp())
    errors = []
    for tolerance in (0.3, 0.01):
        columns = Columns(K.clone(), variance_limit(prior, s2, tolerance))
        finish(System(problem, problem.theta, 0.0), [columns])
        _, G, values = columns.result()
        bound = G.square().sum(0) / s2
        errors.append((prior + values - exact) / (exact + s2))
        assert float(errors[-1].min()) >= -1e-9
        assert bool((prior + values - bound <= exact + 1e-9).all())
        assert bool((errors[-1] <= tolerance).all())
        assert bool((bound <= tolerance * (prior + values + s2) * (1 + 1e-9)).all())
    assert name == "short lengthscale" or float(errors[0].max()) > 1e-4  # the first stop was early indeed


def test_a_continued_solution_equals_one_from_scratch_and_takes_fewer_blocks():
    problem, Z, A = task("origin")
    K, s2 = problem.kernel(problem.theta, problem.train.X, Z), float((2 * problem.theta[-1]).exp())
    limit = target_limit(120, s2, 1e-6)
    near = torch.linalg.solve(A, K) * (1 + 1e-4)

    fresh, continued = Columns(K.clone(), limit, 1), Columns(K.clone(), limit, 1, (near, A @ near))
    counts = [finish(System(problem, problem.theta, 0.0), [each]) for each in (fresh, continued)]

    assert 0 < counts[1] < counts[0]
    torch.testing.assert_close(A @ continued.result()[0], K, atol=1e-5, rtol=0)
    torch.testing.assert_close(continued.result()[2], fresh.result()[2], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(near, torch.linalg.solve(A, K) * (1 + 1e-4))  # what was handed over does not change


def test_kernel_entries_do_not_depend_on_the_number_of_columns_and_finished_columns_are_left_alone():
    problem, Z, A = task("origin")
    K, s2 = problem.kernel(problem.theta, problem.train.X, Z), float((2 * problem.theta[-1]).exp())
    counter = Counter()
    counted = Problem(problem.train, Counted(problem.kernel, counter), problem.theta)
    entries = []
    for many in (1, 14):
        system = System(counted, problem.theta, 0.0)
        counter.entries = 0
        columns = Columns(K[:, :1].expand(-1, many).clone() * torch.arange(1.0, many + 1), target_limit(120, s2, 0.0))
        assert finish(system, [columns], passes=2.0) == 6  # 2 n / b blocks
        entries.append(counter.entries)
    assert entries[0] == entries[1] > 2 * 120 * 120

    loose, tight = Columns(K.clone(), target_limit(120, s2, 0.5)), Columns(K.clone(), target_limit(120, s2, 1e-8))
    finish(System(problem, problem.theta, 0.0), [tight, loose])
    assert float(loose.result()[1].norm(dim=0).max()) <= 0.5 * math.sqrt(120 * s2)
    assert float(loose.result()[1][:, :-2].norm(dim=0).min()) > 1e-6  # the last two are zero from the beginning
    torch.testing.assert_close(A @ tight.result()[0], K, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["origin", "far away"])
def test_steps_along_the_coarse_rows_are_kept_and_read_where_the_next_block_needs_them(name: str):
    problem, Z, A = task(name)
    K, system = problem.kernel(problem.theta, problem.train.X, Z), System(problem, problem.theta, 0.0)
    columns, weights = Columns(K.clone(), target_limit(120, 1.0, 0.0)), torch.linspace(-1.0, 2.0, len(Z)).double()
    coarse = CoarseRows(system, 30, 0)

    for number in range(3):
        block = Block(system, columns.combined_gradient(weights), coarse, BlockBuffers(coarse.W, 20))
        for _ in fill_block(system, block, SIZES, number):
            pass
        columns.move(block)
        rows = torch.cat([coarse.rows, block.rows])
    estimates = [columns.share_within_limits(torch.arange(120)) for columns.limit in (no_limit, high_limit)]
    combined = columns.combined_gradient(weights)

    assert float(columns.G[rows].abs().max()) > 1e-3  # nothing is written out so far
    V, G, values = columns.result()
    torch.testing.assert_close(G, A @ V - K, rtol=0, atol=1e-9)
    torch.testing.assert_close(combined, G @ weights, rtol=0, atol=1e-9)
    assert float(G[rows].abs().max()) < 1e-9  # the rows of the last block and the coarse rows are solved
    torch.testing.assert_close(values, (V * (G - K)).sum(0), rtol=1e-9, atol=1e-12)
    assert estimates == [2 / len(Z), 1.0]  # two points are so far away that they need no step


def no_limit(columns: Tensor, values: Tensor) -> Tensor:
    return torch.zeros_like(values)


def high_limit(columns: Tensor, values: Tensor) -> Tensor:
    return torch.full_like(values, 1e3)


def test_a_shortlist_of_most_rows_gives_the_block_of_all_rows_and_a_short_one_is_nearly_as_good():
    problem, _, A = task("origin")
    system, g = System(problem, problem.theta, 0.0), -problem.train.y
    coarse, decrease, chosen = CoarseRows(system, 30, 0), [], []

    for shortlist in (0, 5, 2):
        block = Block(system, g, coarse, BlockBuffers(coarse.W, 20))
        gains = torch.cat([*fill_block(system, block, BlockSizes(20, 4, 30, shortlist=shortlist), 0)])
        step = block.moved(torch.zeros(120, dtype=torch.float64), block.minimiser())
        decrease.append(-float(0.5 * step @ A @ step + g @ step))
        chosen.append(block.rows.tolist())
        assert len(gains) == len(set(chosen[-1]) - set(coarse.rows.tolist())) == 20

    assert chosen[0] == chosen[1] != chosen[2]
    assert 0.95 * decrease[0] < decrease[2]


@pytest.mark.parametrize("conjugate", [0, 2])
def test_blocks_are_chosen_for_the_first_column_and_for_combinations_in_turn(
    conjugate: int, monkeypatch: pytest.MonkeyPatch
):
    """The first column only if its steps are combined with previous ones, and as long as it is not finished."""
    problem, Z, A = task("origin")
    K, y = problem.kernel(problem.theta, problem.train.X, Z), problem.train.y[:, None]
    s2 = float((2 * problem.theta[-1]).exp())
    targets = Columns(y.clone(), target_limit(120, s2, 1e-2), conjugate)
    points = Columns(K.clone(), variance_limit(problem.kernel.diag(problem.theta, Z), s2, 1e-4))
    groups, kinds = [(targets, y), (points, K)], []

    def checked(system: System, gradient: Tensor, *others: object) -> Block:
        draw, total, number = generator(3, "combination", len(kinds)), torch.zeros(120).double(), len(kinds)
        for group, R in groups:
            group.write_out()
            G = A @ group.V - R[:, group.active]
            if group is targets and conjugate and len(group.active) and number % 2 == 0:
                torch.testing.assert_close(gradient, G[:, 0])
                kinds.append("first")
                break
            total += G @ (torch.randn(G.shape[1], generator=draw, dtype=torch.float64) / group.limits)
        else:
            torch.testing.assert_close(gradient, total, rtol=1e-6, atol=1e-6 * float(total.abs().max()))
            kinds.append("combination" if len(targets.active) else "points")
        return Block(system, gradient, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(right_hand_sides, "Block", checked)
    finish(System(problem, problem.theta, 0.0), [targets, points], BlockSizes(20, 5, 20, seed=3))

    assert not len(targets.active)
    assert not len(points.active)
    assert "combination" in kinds
    assert ("first" in kinds, "points" in kinds) == (bool(conjugate),) * 2


@pytest.mark.parametrize(("block", "due", "estimates"), [(5, 24, 2), (40, 3, 1)])
def test_norms_are_computed_after_each_pass_and_where_a_fifth_of_the_columns_seems_to_be_finished(
    block: int, due: int, estimates: int, monkeypatch: pytest.MonkeyPatch
):
    problem, Z, _ = task("origin")
    K, prior = problem.kernel(problem.theta, problem.train.X, Z), problem.kernel.diag(problem.theta, Z)
    loose = variance_limit(prior, math.exp(-2.4), 1.0)
    columns = Columns(K[:, :-2].clone(), lambda every, values: loose(every, values) * (every % 2))  # 0 for half of them
    shares, drops = [], []
    share, drop = columns.share_within_limits, columns.drop_finished
    monkeypatch.setattr(columns, "share_within_limits", lambda rows: shares.append(share(rows)) or shares[-1])
    monkeypatch.setattr(columns, "drop_finished", lambda: drops.append(True) or drop())
    passes, seen = 2.3, set()

    for number in solve_together(System(problem, problem.theta, 0.0), [columns], BlockSizes(block, 5, 30), passes):
        in_any_case = number % due == 0 or number * block >= passes * 120
        assert len(shares) == int(number % estimates == 0 and not in_any_case)
        computed = in_any_case or (bool(shares) and shares[0] > 0.2)
        assert len(drops) == int(computed) + int(number == 1)  # norms are computed before the first block, too
        seen.add((in_any_case, bool(shares), computed))
        shares.clear(), drops.clear()

    assert number == math.ceil(passes * 120 / block)
    assert seen >= {(True, False, True), (False, True, False), (False, True, True)}


def test_a_block_and_the_coarse_rows_are_never_more_than_all_rows():
    problem, Z, A = task("origin")
    K, system = problem.kernel(problem.theta, problem.train.X, Z), System(problem, problem.theta, 0.0)
    columns = Columns(K.clone(), target_limit(120, 1.0, 1e-7))

    blocks = finish(system, [columns], BlockSizes(block=100, chunk=10, coarse=100))

    assert blocks == 1  # half of the rows are coarse rows, and the block contains the others
    assert len(system.once("coarse rows", list).rows) == 60
    torch.testing.assert_close(columns.result()[0], torch.linalg.solve(A, K), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("count", [12, 120])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_share_within_limits_is_estimated_from_some_rows_in_either_precision(dtype: torch.dtype, count: int):
    problem, Z, A = task("origin")
    rng = torch.Generator().manual_seed(4)
    K = problem.kernel(problem.theta, problem.train.X, Z)
    V, rows = torch.randn(*K.shape, generator=rng, dtype=torch.float64), torch.randperm(120, generator=rng)[:count]
    estimates = (A @ V - K)[rows].norm(dim=0) * math.sqrt(120 / count)
    median = float(estimates.sort().values[8:10].mean())

    columns = Columns(K.clone(), lambda every, values: torch.full_like(values, median), 0, (V, A @ V), dtype)

    assert columns.share_within_limits(rows) == pytest.approx(9 / 14)
    assert {part.dtype for part in columns.stored()[:2]} == {dtype}
    assert {part.dtype for part in Columns(K.clone(), no_limit, dtype=dtype).stored()[:2]} == {dtype}
    torch.testing.assert_close(columns.result()[1], A @ V - K, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(columns.result()[2], (V * (A @ V - 2.0 * K)).sum(0))
