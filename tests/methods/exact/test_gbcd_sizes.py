"""How many rows a block, a chunk and the coarse rows have, and when columns are float32, by n and the settings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from gpexplorer.methods.exact import gbcd
from gpexplorer.methods.exact.gbcd import GBCD
from gpexplorer.methods.exact.settings import LEAST_BLOCK, MANY_ROWS, MOST_BLOCK, rows_per_block
from gpexplorer.problem import Dataset, Problem
from oracles_gbcd import system, wavy
from whole_run import finished


@pytest.mark.parametrize(
    ("set_to", "n", "rows"),
    [
        (0, 10**6, MOST_BLOCK),
        (0, 8 * LEAST_BLOCK + 80, LEAST_BLOCK + 10),
        (0, 7, 7),
        (30, 1000, 30),
        (30, 20, 20),
        (-1, 10**6, 500),
        (-1, 501, 500),
        (-1, 120, 120),
    ],
)
def test_rows_of_a_block(set_to: int, n: int, rows: int):
    assert rows_per_block(set_to, n) == rows


def sizes(n: int, in_float32: bool = False, **settings: Any) -> tuple[int, int, int]:
    found = GBCD(**settings)._sizes(n, in_float32)
    return found.block, found.chunk, found.coarse


def test_with_few_rows_there_are_as_many_coarse_rows_as_a_block_has():
    block = rows_per_block(-1, 3000)
    assert sizes(3000) == (block, min(gbcd.MOST_CHUNK, block // 10), block)
    assert sizes(3000, coarse=0)[2] == 0
    assert sizes(3000, coarse=-1)[2] == block
    assert sizes(3000, coarse=70)[2] == 70
    assert sizes(3000, coarse=2000)[2] == 1500  # half of the rows at most


def test_the_chunk_is_the_one_that_is_set_but_a_tenth_of_a_default_block_at_most():
    assert sizes(3000, chunk=7)[1] == 7
    assert sizes(3000, chunk=999)[1] == rows_per_block(-1, 3000) // 10
    assert sizes(3000, chunk=999, block=200)[1] == 999
    assert sizes(3000, block=200)[1] == gbcd.MOST_CHUNK
    assert sizes(12)[1] == 1


def hard(n: int, ratio: float) -> Problem:
    """n rows of a GP with this ratio of the variances of signal and noise."""
    task, draw = wavy(), torch.Generator().manual_seed(n)
    X = torch.rand(n, 2, generator=draw, dtype=torch.float64)
    theta = torch.tensor([0.0, -1.0, -1.0, -0.5 * math.log(ratio)], dtype=torch.float64)
    A = task.kernel(theta, X, X) + torch.eye(n, dtype=torch.float64) / ratio
    y = torch.linalg.cholesky(A) @ torch.randn(n, generator=draw, dtype=torch.float64)
    return Problem(Dataset(X, y), task.kernel, theta)


@pytest.mark.parametrize(("n", "ratio"), [(120, 1e6), (333, 1e6), (500, 1e5), (97, 1e8)])
def test_up_to_500_rows_are_one_block_which_is_the_solution(n: int, ratio: float):
    """Blocks of an eighth of 120 rows took 214 steps here, and ended 9 % above the minimum."""
    task = hard(n, ratio)
    steps, outcome = finished(GBCD(learn=False), task)
    A, y = system(task), task.train.y
    assert GBCD()._sizes(n, in_float32=False)[::2] == (n, 0, 0)
    assert (outcome.reason, len(steps) <= 4) == ("converged", True)
    assert steps[-1].info.objective == pytest.approx(-0.5 * float(y @ torch.linalg.solve(A, y)), rel=1e-7)


@pytest.mark.parametrize("n", [4000, 5000, 20_000, 100_000, 10**6])
def test_with_many_rows_a_quarter_of_them_are_coarse_or_two_fifths_in_float32(n: int):
    block, _, coarse = sizes(n)
    assert block == rows_per_block(-1, n)
    room = int(gbcd.COARSE_BYTES / (8 * n))
    assert coarse == max(block, min(n // 4, gbcd.COARSE_ROWS, room))
    assert sizes(n, coarse=-1)[2] == block
    block, chunk, coarse = sizes(n, in_float32=True)
    assert block == min(gbcd.MOST_ROWS_FLOAT32, n // 5)
    assert chunk == block // gbcd.CHUNKS_FLOAT32
    room = int(gbcd.COARSE_BYTES / (4 * n))
    assert coarse == max(block, min(2 * n // 5, gbcd.COARSE_ROWS_FLOAT32, room))


def test_settings_replace_the_sizes_of_float32():
    n = 20_000
    assert sizes(n, in_float32=True, block=300)[:2] == (300, 300 // gbcd.CHUNKS_FLOAT32)
    assert sizes(n, in_float32=True, coarse=50)[0] == rows_per_block(-1, n)
    assert sizes(n, in_float32=True, chunk=4)[1] == 4
    assert sizes(3999, in_float32=True)[0] == rows_per_block(-1, 3999)
    assert sizes(4000, in_float32=True, block=3)[1] == 1


def many_rows(n: int, ratio: float) -> Problem:
    """n rows at which the signal variance is `ratio` times the noise variance."""
    task = wavy()
    X = task.train.X.repeat(-(-n // 80), 1)[:n]
    theta = task.theta.clone()
    theta[-1] = theta[0] - 0.5 * math.log(ratio)
    return Problem(Dataset(X, X[:, 0].clone()), task.kernel, theta)


def test_columns_are_float32_where_asked_for_or_with_many_rows_and_enough_noise():
    most = gbcd.MOST_SIGNAL_TO_NOISE
    noisy, clear = many_rows(MANY_ROWS, 0.999 * most), many_rows(MANY_ROWS, 1.001 * most)
    few = many_rows(MANY_ROWS - 1, 0.5 * most)
    automatic = GBCD(mixed="auto")
    assert automatic.in_float32(noisy, noisy.theta)
    assert not automatic.in_float32(clear, clear.theta)
    assert not automatic.in_float32(few, few.theta)
    assert not GBCD(mixed="auto", coarse=10).in_float32(noisy, noisy.theta)
    assert not automatic.in_float32(noisy, noisy.theta.float())
    assert GBCD(mixed=True).in_float32(clear, clear.theta)
    assert not GBCD(mixed=False).in_float32(noisy, noisy.theta)


def test_steps_on_all_rows_are_counted_and_report_the_gradient_of_the_likelihood():
    task = wavy()
    method = GBCD(learn=False, full_steps=4, probes=2, block=20, chunk=5, max_iterations=3, tolerance=0.0)
    steps = list(method.steps(task))
    full = [step for step in steps if step.info.phase == "full"]
    assert [step.state.step for step in steps] == list(range(len(steps)))
    assert [step.state.position for step in full] == list(range(1, len(full) + 1))
    assert all(step.info.objective == 0.0 for step in full)
    assert all(math.isfinite(step.info.likelihood_gradient) for step in full)
    assert len({tuple(step.state.theta.tolist()) for step in full}) == len(full)
    solved = [step for step in steps if step.info.phase == "solve"]
    assert [step.state.position for step in solved] == [1, 2, 3]
    assert not len(solved[0].state.probes)
    again = next(method.steps(task, full[1].state))
    torch.testing.assert_close(again.state.theta, full[2].state.theta, rtol=1e-6, atol=1e-8)


def test_blocks_follow_from_the_iteration_so_that_a_resumed_run_draws_the_same_ones():
    task = wavy()
    method = GBCD(learn=False, pool=12, block=10, chunk=2, coarse=0, conjugate=0, tolerance=0.0, max_iterations=6)
    steps = list(method.steps(task))
    for k in (1, 3):
        again = next(method.steps(task, steps[k].state))
        assert torch.equal(again.info.active, steps[k + 1].info.active)
