"""Settings that several methods of this family share. Each function makes a new parameter, one per method."""

from __future__ import annotations

from typing import Any

import param

from ..setting_kinds import amount, choice, count

GIGABYTE = 1e9


def refit(default: str) -> Any:
    """Declare how predictions are computed."""
    return choice(
        ["auto", "cholesky", "cg"],
        default=default,
        doc="Predict by one Cholesky factor of all rows, n^3/3, or by conjugate gradients, n^2 per iteration and test "
        "row; auto takes the cheaper one.",
    )


def memory() -> Any:
    """Declare the memory for kernel matrices."""
    return amount(
        2.0,
        (0.0, 16.0),
        doc="Gigabytes for kernel matrices. Rows that do not fit are computed again, in blocks, whenever needed.",
    )


def calibrate() -> Any:
    """Declare whether the scale of the covariance is determined."""
    return param.Boolean(
        True,
        doc="Multiply all sds by one number so that residuals have their predicted size. Squared errors alone leave "
        "it undetermined.",
    )


def restarts() -> Any:
    """Declare the number of random initial values."""
    return count(
        0,
        (0, 10),
        least=0,
        most=100,
        doc="Random initial values in addition to the first. The result with the lowest objective is kept.",
    )
