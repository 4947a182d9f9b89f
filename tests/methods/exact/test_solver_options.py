"""Options of the solvers beyond the paper: coarse rows, float32 columns, refreshes, bounded memory, variances."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import gpexplorer as gpx
from gpexplorer import kernels
from gpexplorer.linalg.kernel_columns import KernelColumns
from gpexplorer.methods.exact.block import Block, BlockBuffers, CoarseRows
from gpexplorer.methods.exact.gbcd import GBCD
from gpexplorer.methods.exact.posteriors import exact_posterior
from gpexplorer.methods.exact.settings import rows_per_block
from gpexplorer.methods.exact.system import System
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs.counting import Counted, Counter
from oracles_gbcd import SHIFTS, gram, quick, system, wavy

AP = "alternating-projections"
ITERATIVE = ["gbcd", "cg", "pcg", "bcd-cyclic", "block-nystrom", AP]


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_block_and_the_coarse_rows_are_minimised_over_together(shift: float):
    task = wavy(shift)
    A, solver = system(task), System(task, task.theta, 0.0)
    coarse = CoarseRows(solver, 3, seed=0)
    free = torch.tensor([row for row in (9, 12, 55, 60, 2, 3, 40, 71) if row not in coarse.rows])
    joined = torch.cat([coarse.rows, free[:5]])
    g = solver.gradient(torch.linspace(-1.0, 1.0, 80, dtype=torch.float64))
    block = Block(solver, g, coarse, BlockBuffers(coarse.W, 5))
    for new in (joined[3:5], joined[5:6], joined[6:]):
        block.join(new)

    minimiser = block.minimiser()
    step, after = block.moved(torch.zeros_like(g), minimiser), block.gradient(minimiser)

    torch.testing.assert_close(block.gradient(minimiser, torch.tensor([5, 70])), after[[5, 70]])
    expected = torch.zeros_like(g).index_add_(0, joined, -torch.linalg.solve(A[joined][:, joined], g[joined]))
    torch.testing.assert_close(step, expected, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(after, g + A @ step)
    assert float(after[joined].abs().max()) < 1e-11


@pytest.mark.parametrize("shift", SHIFTS)
def test_coarse_rows_save_iterations_and_do_not_change_the_solution(shift: float):
    task = wavy(shift, n=150)
    counts, alphas = {}, {}
    for m in (0, 40):
        *_, last = quick("gbcd", coarse=m, tolerance=1e-8).steps(task)
        counts[m], alphas[m] = last.state.position, last.state.alpha

    assert counts[40] < 0.6 * counts[0]
    torch.testing.assert_close(alphas[40], torch.linalg.solve(system(task), task.train.y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", ITERATIVE)
def test_with_float32_columns_the_solution_is_that_of_float64(key: str, shift: float):
    task = wavy(shift)
    method = quick(key, mixed=True, refresh=40, tolerance=1e-6, coarse=8, block=40, rank=0 if key != "pcg" else 10)
    *_, last = method.steps(task)

    exact = torch.linalg.solve(system(task), task.train.y)
    assert last.info.largest <= 1e-6
    assert float((system(task) @ last.state.alpha - task.train.y).abs().max()) <= 2e-6  # computed in float64 throughout
    torch.testing.assert_close(last.state.alpha, exact, rtol=1e-4, atol=1e-4)
    assert last.state.alpha.dtype == torch.float64


def test_a_refresh_reports_the_drift_of_a_gradient_updated_with_float32_columns():
    task = wavy()
    for mixed, most in ((False, 1e-12), (True, 1e-4)):
        steps = list(islice(quick("gbcd", mixed=mixed, refresh=5, tolerance=0.0).steps(task), 1, 11))
        drifts = [step.info.drift for step in steps]
        assert [drift == drift for drift in drifts] == [False, False, False, False, True] * 2
        assert 0.0 < drifts[4] < most
        assert drifts[4] > 1e-9 or not mixed
        A, alpha = system(task), steps[4].state.alpha
        assert steps[4].info.largest == pytest.approx(float((A @ alpha - task.train.y).abs().max()), rel=1e-9)


@pytest.mark.parametrize("key", ["gbcd", "cg", "pcg", "bcd-gradient"])
def test_a_mixed_run_resumes_from_any_state_up_to_float32_rounding(key: str):
    task = wavy()
    method = quick(key, mixed=True, refresh=4, tolerance=0.0)
    steps = list(islice(method.steps(task), 12))
    for at in (0, 3, 4, 6):
        resumed = list(islice(method.steps(task, resume=steps[at].state), 11 - at))
        torch.testing.assert_close(resumed[-1].state.alpha, steps[-1].state.alpha, rtol=1e-4, atol=1e-5)


def test_float32_columns_take_half_the_memory():
    task = wavy()
    columns = KernelColumns(task.kernel, task.theta, task.train.X, 80.0 * 80 * 4, torch.float32)
    v = torch.linspace(-1.0, 1.0, 80, dtype=torch.float64)

    first = columns.product(v)

    assert first.dtype == torch.float64
    assert columns._kept.dtype == torch.float32
    assert columns._used == 80
    torch.testing.assert_close(first, gram(task) @ v, rtol=1e-5, atol=1e-4)


class Largest(TorchDispatchMode):
    """Records the size in bytes of the largest tensor."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, tuple | list) else [out]:
            if isinstance(part, Tensor):
                self.bytes = max(self.bytes, part.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("key", ["gbcd", "bcd-cyclic", "bcd-gradient", "smo", "block-nystrom", "sdd", AP])
def test_no_tensor_is_larger_than_the_columns_of_a_block(key: str):
    n, b, m = 3000, 40, 10
    task = wavy(n=n)
    with Largest() as seen:
        list(islice(quick(key, block=b, coarse=m, cache=0.0, pairs=4).steps(task), 6))

    assert n * 8 < seen.bytes <= max(n * b * 8, 32 * 2**20)
    assert seen.bytes < n * n * 8 / 2


def test_kernel_entries_are_those_of_the_blocks_and_the_coarse_rows():
    task, counter = wavy(), Counter()
    counted = Problem(task.train, Counted(task.kernel, counter), task.theta)
    list(islice(quick("gbcd", coarse=10, cache=0.0, tolerance=0.0).steps(counted), 6))

    blocks = 5 * 12 * 80
    assert counter.entries == 80 + 10 * (80 + 10) + blocks  # the diagonal, the coarse rows and their own matrix


def test_variance_rows_0_uses_all_rows_and_fewer_rows_give_an_upper_bound():
    task = wavy(n=600)
    *_, last = quick("pcg", tolerance=1e-8).steps(task)
    X = task.train.X[:7] + 0.03
    k = task.kernel(task.theta, task.train.X, X)
    exact = task.kernel.diag(task.theta, X) - (k * torch.linalg.solve(system(task), k)).sum(0)

    var = {
        rows: quick("pcg", tolerance=1e-8, variance_rows=rows, bands="rows").posterior(task, last.state)(X).var
        for rows in (0, 300, 600)
    }

    torch.testing.assert_close(var[0], exact, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(var[600], exact, rtol=1e-7, atol=1e-9)
    assert bool((var[300] > exact).all())


@pytest.mark.parametrize("key", ["cg", "pcg", "gbcd"])
def test_products_by_another_mapper_are_the_same(key: str):
    task, sent = wavy(n=120), []

    def elsewhere(function: Any, *pieces: Any) -> list[Any]:
        sent.append(len(pieces[0]))
        return [
            pickle.loads(pickle.dumps(function))(*pickle.loads(pickle.dumps(piece)))
            for piece in zip(*pieces, strict=True)
        ]

    local = quick(key, cache=0.0, refresh=6, tolerance=1e-6)
    method = local.with_mapper(elsewhere)
    mapped_steps, steps = (list(islice(solver.steps(task), 25)) for solver in (local, method))

    assert sent
    torch.testing.assert_close(steps[-1].state.alpha, mapped_steps[-1].state.alpha, rtol=1e-12, atol=1e-12)


def test_inputs_in_a_memory_mapped_file_give_the_same_steps(tmp_path: Path):
    task = wavy(n=200)
    stored = np.memmap(tmp_path / "X.dat", np.float64, "w+", shape=(200, 2))
    stored[:] = task.train.X.numpy()
    mapped = Problem(Dataset(torch.from_numpy(stored), task.train.y), task.kernel, task.theta)

    alpha, mapped_alpha = (
        list(islice(quick("gbcd", coarse=10).steps(case), 9))[-1].state.alpha for case in (task, mapped)
    )

    torch.testing.assert_close(mapped_alpha, alpha, rtol=0, atol=0)


def test_a_mean_takes_kernel_entries_only_of_rows_with_a_nonzero_coefficient():
    task = wavy()
    state = next(quick("gbcd").steps(task)).state
    alpha = torch.zeros_like(task.train.y)
    alpha[[3, 17, 40]] = torch.tensor([0.5, -1.0, 2.0], dtype=alpha.dtype)
    counter = Counter()
    counted = Problem(task.train, Counted(task.kernel, counter), task.theta)
    for at, entries in ((state, 0), (state._replace(alpha=alpha), 3)):
        predict = exact_posterior(counted, at, 10, 0)
        predict(task.train.X[:1])  # the factor of the 10 rows
        counter.entries = 0
        mean = predict(task.train.X[:7]).mean
        assert counter.entries == 7 * (
            entries + 10 + 1
        )  # the mean, the variance that 10 rows explain, the prior variance
        expected = task.kernel(at.theta, task.train.X[:7], task.train.X) @ at.alpha
        torch.testing.assert_close(mean, expected)


@pytest.mark.parametrize(("n", "rows"), [(8, 8), (60, 10), (900, 112), (4000, 500), (100_000, 500)])
def test_the_default_block_follows_the_number_of_rows(n: int, rows: int):
    assert rows_per_block(0, n) == rows
    assert rows_per_block(500, n) == min(500, n)


@pytest.mark.parametrize("key", ["gbcd", "bcd-cyclic", "bcd-gradient", "alternating-projections", "sdd"])
def test_a_few_hundred_rows_are_solved_in_steps_that_can_be_watched(key: str):
    rows = {"name": "hypercube", "n": 450, "d": 2}

    run = gpx.Spec(key, {"learn": False, "block": 0}, data=rows).open()
    for _ in range(7):
        run.advance()

    f = run.table()["objective"].to_numpy()
    assert run.outcome is None
    assert f[6] < f[2] < f[1] < f[0]
    assert run.trace[1].cost.entries < 0.3 * len(run.problem.train) ** 2


@pytest.mark.parametrize(
    ("n", "coarse"), [(900, 450), (3999, 500), (4000, 1000), (6000, 1500), (33_000, 1500), (60_000, 833), (10**6, 500)]
)
def test_more_coarse_rows_are_the_default_where_they_pay_and_fit(n: int, coarse: int):
    assert GBCD()._sizes(n, in_float32=False).coarse == coarse
    for in_float32 in (False, True):
        assert GBCD(coarse=-1)._sizes(n, in_float32).coarse == min(rows_per_block(-1, n), n // 2)
        assert GBCD(coarse=70)._sizes(n, in_float32).coarse == 70


@pytest.mark.parametrize(
    ("n", "block", "chunk", "coarse"),
    [(3999, 500, 50, 500), (4000, 800, 160, 1600), (10_000, 1000, 200, 2500), (60_000, 1000, 200, 1666)],
)
def test_blocks_of_float32_columns_are_larger_where_rows_are_many(n: int, block: int, chunk: int, coarse: int):
    sizes = GBCD()._sizes(n, in_float32=True)

    assert (sizes.block, sizes.chunk, sizes.coarse) == (block, chunk, coarse)
    chosen_sizes = GBCD(block=70, chunk=7, coarse=30)._sizes(n, in_float32=True)
    assert (chosen_sizes.block, chosen_sizes.chunk, chosen_sizes.coarse) == (70, 7, 30)


def test_columns_are_float32_by_default_only_with_many_rows_enough_noise_and_without_published_settings():
    def columns(n: int, noise_sd: float, dtype: torch.dtype = torch.float64, **settings: Any) -> bool:
        theta = torch.tensor([0.0, 0.0, math.log(noise_sd)], dtype=dtype)
        X = torch.linspace(0.0, 1.0, n, dtype=dtype)[:, None]
        return GBCD(**settings).in_float32(Problem(Dataset(X, X[:, 0]), kernels.make("se", 1), theta), theta)

    assert columns(4000, 0.1)
    assert not columns(3999, 0.1)
    assert columns(4000, 0.0224)  # a ratio of variances of 1993
    assert not columns(4000, 0.0223)
    assert not columns(4000, 0.1, torch.float32)
    assert not columns(4000, 0.1, chunk=1, pool=60, coarse=0, conjugate=0)
    assert columns(40, 0.1, mixed=True)
    assert not columns(4000, 0.1, mixed=False)


def test_a_shortlist_solves_the_same_system_with_hardly_more_blocks():
    task = wavy(1000.0, n=200)
    ends = []
    for shortlist in (0, 4):
        method = GBCD(learn=False, block=12, coarse=12, chunk=2, shortlist=shortlist, tolerance=1e-8)
        *_, last = method.steps(task)
        ends.append(last.state)

    torch.testing.assert_close(ends[0].alpha, ends[1].alpha, rtol=0, atol=1e-6)
    assert ends[0].step != ends[1].step <= 1.3 * ends[0].step


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_posterior_of_cholesky_takes_over_the_factor_of_its_solution(shift: float):
    task = wavy(shift)
    A = gram(task) + float((2 * task.theta[-1]).exp()) * torch.eye(80, dtype=torch.float64)
    some_rows, method = (quick("cholesky", bands=bands, variance_rows=20) for bands in ("rows", "exact"))
    for each in (some_rows, method):
        *_, last = each.steps(task)
        assert last.info.largest <= 1e-9
        assert (each._solver is None) == (each is some_rows)  # bands of some rows have no use for it

    first, second = (method.posterior(task, last.state) for _ in range(2))

    assert first.solver._L is not None
    assert method._solver is second.solver._L is None
    K = task.kernel(task.theta, task.train.X, task.train.X[:9] + 0.01)
    for posterior in (first, second):
        exact = task.kernel.diag(task.theta, K.T) - (K * torch.linalg.solve(A, K)).sum(0)
        torch.testing.assert_close(posterior.var(task.train.X[:9] + 0.01), exact, rtol=1e-8, atol=1e-12)
    *_, last = method.steps(task)
    other = replace(task, theta=task.theta + 0.1)
    assert method.posterior(other, last.state._replace(theta=other.theta)).solver._L is None  # another factor


def test_a_spec_with_a_size_of_blocks_keeps_its_meaning():
    spec = gpx.Spec.from_json(gpx.Spec("gbcd", {"block": 500, "coarse": 500, "learn": False}, "sin-product").to_json())

    run = spec.open()
    run.finish()

    assert run.outcome.reason == "converged"
    assert run.done <= 2
