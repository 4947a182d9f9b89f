"""Settings that several solvers share, one function each, so that every method declares its own parameters."""

from __future__ import annotations

from typing import Any

import param

from ..setting_kinds import count

GIGABYTE = 1e9  # bytes: memory budgets are settings in gigabytes


LEAST_BLOCK, MOST_BLOCK = 10, 500  # rows of a block whose size follows the number of rows
LEAST_SUBSET, MOST_SUBSET = 500, 2000  # rows for learning, where their number follows the number of rows
MANY_ROWS = 4000  # with at least this many rows, more coarse rows and float32 columns save time


def block() -> Any:
    """Number of rows in a block."""
    return count(
        0,
        (0, 1000),
        doc="Number of rows per block. Each iteration solves for them together, at block^3 / 3 flops. 0 is "
        f"automatic: an eighth of all rows, but at least {LEAST_BLOCK} and at most {MOST_BLOCK}.",
    )


def rows_per_block(block: int, n: int) -> int:
    """Return the number of rows of a block for this setting, of either kind, and this number of rows."""
    automatic = MOST_BLOCK if block < 0 else max(LEAST_BLOCK, min(MOST_BLOCK, n // 8))
    return min(block if block > 0 else automatic, n)


def conjugate(steps: int) -> Any:
    """Number of previous steps that each step is combined with."""
    return count(
        steps,
        (0, 5),
        doc="Number of previous steps that each step is combined with, with the best coefficients. Each takes 2 n "
        "numbers of memory and no kernel entries. 0 is the published method.",
    )


def learn() -> Any:
    """Whether hyperparameters are learned first."""
    return param.Boolean(
        True,
        doc="Learn the hyperparameters first, by maximum likelihood on a random subset. If off, they keep their "
        "initial values.",
    )


def subset() -> Any:
    """Number of rows that hyperparameters are learned on."""
    return count(
        0,
        (0, 2000),
        doc="Number of rows on which the hyperparameters are learned, at subset^3 flops per evaluation. 0 is "
        f"automatic: an eighth of all rows, but at least {LEAST_SUBSET} and at most {MOST_SUBSET}, as in the paper.",
    )


def rows_to_learn_on(subset: int, n: int) -> int:
    """Return the number of rows that hyperparameters are learned on, for this setting and this number of rows."""
    return min(n, max(subset, 2) if subset else max(LEAST_SUBSET, min(MOST_SUBSET, n // 8)))


def evaluations() -> Any:
    """Number of likelihood evaluations for the hyperparameters."""
    return count(25, (5, 100), doc="Number of likelihood evaluations that are spent on the hyperparameters.")


def mixed() -> Any:
    """Whether kernel columns are computed in float32."""
    return param.Boolean(
        False,
        doc="Compute kernel columns in float32, at half the time and memory. Gradients from scratch stay in float64. "
        "Columns become float64 if rounding decides the steps, as it may where the signal variance is more than 10^4 "
        "times the noise variance.",
    )


def refresh() -> Any:
    """Number of iterations between gradients from scratch."""
    return count(
        0,
        (0, 200),
        doc="Number of iterations after which the gradient is computed from scratch, at n^2 / 2 kernel entries. "
        "0 does so only before stopping.",
    )
