"""The rows of a block, their promised decreases, and the step of the block, beside a slow choice by dense algebra."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpexplorer.methods.exact.block import Block, BlockBuffers, BlockSizes, CoarseRows, fill_block
from gpexplorer.methods.exact.system import System
from oracles_gbcd import system as dense_system
from oracles_gbcd import wavy


def chosen_by_dense_algebra(
    A: Tensor, g: Tensor, coarse: list[int], sizes: BlockSizes, candidates: int
) -> tuple[list[int], list[float]]:
    """Rows in the order in which they join, and the decrease of f that each promises alone (eq 10)."""
    chosen: list[int] = []
    gains: list[float] = []
    shortlist: list[int] = []
    while len(chosen) < sizes.block:
        solved = coarse + chosen
        step = torch.linalg.solve(A[solved][:, solved], -g[solved]) if solved else g[:0]
        e = g + A[:, solved] @ step
        gain = (e.square() / (2.0 * A.diagonal())).tolist()
        by_gain = sorted(set(range(len(g))) - set(coarse), key=lambda row: -gain[row])
        shortlist = shortlist or by_gain[:candidates]
        free = [row for row in by_gain if row in shortlist and row not in chosen]
        new = free[: min(sizes.chunk, sizes.block - len(chosen))]
        chosen, gains = chosen + new, gains + [gain[row] for row in new]
    return chosen, gains


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("coarse", [0, 7])
@pytest.mark.parametrize("shortlist", [0, 2, 3])
def test_rows_join_in_the_order_of_the_decrease_that_each_promises(shift: float, coarse: int, shortlist: int):
    task, sizes = wavy(shift, n=90), BlockSizes(block=13, chunk=4, coarse=coarse, shortlist=shortlist)
    A, system = dense_system(task), System(task, task.theta, 0.0)
    alpha = 0.1 * torch.randn(90, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    g = A @ alpha - task.train.y
    rows = CoarseRows(system, coarse, seed=0)
    block = Block(system, g, rows, BlockBuffers(rows.W, sizes.block))

    gains = torch.cat([*fill_block(system, block, sizes, number=0)]).tolist()

    expected, promised = chosen_by_dense_algebra(A, g, rows.rows.tolist(), sizes, shortlist * sizes.block or len(g))
    assert block.rows.tolist() == expected
    assert gains == pytest.approx(promised, rel=1e-6)
    minimiser = block.minimiser()
    after = block.moved(alpha, minimiser)
    solved = rows.rows.tolist() + expected
    step = torch.linalg.solve(A[solved][:, solved], -g[solved])
    torch.testing.assert_close(after, alpha.index_add(0, torch.tensor(solved), step), rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(block.gradient(minimiser), A @ after - task.train.y, rtol=1e-7, atol=1e-8)
    value = 0.5 * float(after @ A @ after) - float(task.train.y @ after)
    assert system.value(after, A @ after - task.train.y) == pytest.approx(value)
    assert system.exact_value(after, torch.arange(90)) == pytest.approx(value)


def test_as_many_random_candidates_as_rows_are_all_rows():
    task = wavy(n=60)
    system = System(task, task.theta, 0.0)
    chosen = []
    for pool in (0, 60):
        nothing = CoarseRows(system, 0, 0)
        block = Block(system, -task.train.y, nothing, BlockBuffers(nothing.W, 9))
        list(fill_block(system, block, BlockSizes(block=9, chunk=2, coarse=0, pool=pool), number=0))
        chosen.append(block.rows.tolist())
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("shortlist", [0, 2])
def test_a_block_does_not_depend_on_what_others_left_in_its_buffers(shortlist: int):
    task, sizes = wavy(n=90), BlockSizes(block=13, chunk=4, coarse=7, shortlist=shortlist)
    system, g = System(task, task.theta, 0.0), -task.train.y
    coarse = CoarseRows(system, 7, seed=0)
    used, seen = BlockBuffers(coarse.W, 13), []
    for buffer in (used.A, used.W, used.L, *used.shortlist(26)):
        buffer.fill_(torch.nan)

    for buffers in (BlockBuffers(coarse.W, 13), used):
        block = Block(system, g, coarse, buffers)
        gains = torch.cat([*fill_block(system, block, sizes, number=0)])
        minimiser = block.minimiser()
        seen.append((block.rows, gains, minimiser.t, minimiser.v, block.gradient(minimiser)))

    assert all(torch.equal(one, other) for one, other in zip(*seen, strict=True))
