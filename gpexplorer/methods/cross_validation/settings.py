"""Settings that several methods of this family share. Each function makes a new parameter, one per method."""

from __future__ import annotations

from typing import Any

import param

GIGABYTE = 1e9


def refit(default: str) -> Any:
    """Declare how predictions are computed."""
    return param.Selector(
        default=default,
        objects=["auto", "cholesky", "cg"],
        doc="Predict by one Cholesky factor of all rows, n^3/3, or by conjugate gradients, n^2 per iteration and test "
        "row; auto takes the cheaper one.",
    )


def memory() -> Any:
    """Declare the memory for kernel matrices."""
    return param.Number(
        2.0,
        bounds=(0.0, None),
        softbounds=(0.0, 16.0),
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
    return param.Integer(
        0,
        bounds=(0, 100),
        softbounds=(0, 10),
        doc="Random initial values in addition to the first. The result with the lowest objective is kept.",
    )
