"""What a step costs, from the formulas."""

from __future__ import annotations

from typing import Any

import torch

from ...linalg.blocks import BLOCK_BYTES
from ...problem import Cost, Problem, take
from .fold_steps import Rules

ENTRY = 100.0  # flops that a kernel entry is worth, its exponential counted by its time, beside 2 d for the distance
EVALUATION, A_BLOCK = 60.0, 40.0  # calls: an exact objective; the kernel's slopes for a block of rows
ADVANCE, READ = 500.0, 12.0  # calls: an outer iteration of a fold; a read of M, with what conjugate gradients do there
TRIED = 1.5  # z steps of an outer iteration with all their iterations, two reads each: trials, and the judgement


def dense_cost(problem: Problem, flops: float, matrices: int) -> Cost:
    """A method that holds so many n x n matrices: `flops` beside the kernel and its gradient."""
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    entries = 1.0 * n * n
    arrays = {"n x n matrices": matrices * s * entries}
    calls = EVALUATION + A_BLOCK * (1.0 + 4.0 * s * entries / BLOCK_BYTES)
    return Cost(flops + 2.0 * entries * (ENTRY + 4.0 * d), 10.0 * s * entries, arrays, calls)


def admm_cost(problem: Problem, held: list[slice], rules: Rules, gigabytes: float) -> Cost:
    """An outer iteration of every fold: kernel entries of the theta step, reads of M by conjugate gradients.

    Where z follows: a trial, a slope and the judgement; where it is held still a value, a slope and a trial for every
    step more. A slope that products with M tell computes no entry. Where M is not held, every read computes it again.
    Iterations are those of TRIED z steps.
    """
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    flops = bytes_moved = held_bytes = calls = 0.0
    slope = 0.0 if _told(problem) else 2.0  # fills that it is worth
    for part in held:
        n_T = n - (part.stop - part.start)
        fills, reads = (
            2.0 + slope if rules.follow else (2.0 + slope) * (rules.steps + 1.0),
            2.0 * rules.cg[0] * (TRIED if rules.follow else 1.0) + 10.0,
        )
        beyond = max(0.0, 1.0 - gigabytes * 1e9 / (s * n * n_T))
        entries = n * n_T * (fills + beyond * reads)
        flops += entries * (ENTRY + 3.0 * d) + 2.0 * n * n_T * reads + 4.0 * n_T * min(rules.rank, n_T) ** 2
        bytes_moved += s * (2.0 * entries + n * n_T * reads)
        calls += ADVANCE + READ * reads + A_BLOCK * entries * s / BLOCK_BYTES
        held_bytes = max(held_bytes, min(gigabytes * 1e9, s * n * n_T) * (1.0 if rules.follow else 2.0))
    return Cost(
        flops,
        bytes_moved,
        {
            "kernel of a fold": held_bytes,
            "blocks": (1.5 * slope) * min(1.0 * BLOCK_BYTES, held_bytes),
            "z and lambda": 4.0 * s * n,
        },
        calls,
    )


def _told(problem: Problem) -> bool:
    """Whether the kernel's slope is told by its covariances."""
    kernel: Any = problem.kernel
    X, one = take(problem.train.X, torch.zeros(1, dtype=torch.int64)), problem.train.y.new_ones(1)
    return kernel.theta_gradient_from_matrix(problem.theta, X, X, (one, one), one[:, None]) is not None
