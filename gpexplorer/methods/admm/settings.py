"""Settings that the methods of this family share, one function each, so that every method declares its own."""

from __future__ import annotations

from typing import Any

import param

from .learning import OPTIMISERS


def optimiser() -> Any:
    """How an exact objective is lowered."""
    return param.Selector(
        default="L-BFGS-B",
        objects=OPTIMISERS,
        doc="How theta moves; gradient descent with Armijo's rule is the paper's benchmark, and the slowest.",
    )


def evaluations() -> Any:
    """Budget of n^3."""
    return param.Integer(
        60, bounds=(1, None), softbounds=(10, 200), doc="Evaluations of the objective at most, n^3 flops each."
    )


def slope_tolerance() -> Any:
    """When theta counts as found."""
    return param.Number(
        1e-4,
        bounds=(0.0, None),
        softbounds=(1e-6, 1e-1),
        doc="Stop when no slope in a log-hyperparameter exceeds this fraction of the objective.",
    )


def refit() -> Any:
    """How predictions are made."""
    return param.Selector(
        default="cholesky",
        objects=["cholesky", "cg"],
        doc="Predict by one Cholesky factor of all rows, or by conjugate gradients that never hold the matrix.",
    )


def memory() -> Any:
    """Kernel held."""
    return param.Number(
        2.0,
        bounds=(0.0, None),
        softbounds=(0.0, 16.0),
        doc="Gigabytes for kernel matrices; beyond it their rows are computed again, in blocks, whenever needed.",
    )


def calibrate() -> Any:
    """Whether the scale is found."""
    return param.Boolean(
        True,
        doc="Multiply all sds so that residuals have the size they claim; squared errors alone leave it open.",
    )


def restarts() -> Any:
    """Starts beside the first."""
    return param.Integer(
        0, bounds=(0, None), softbounds=(0, 10), doc="Random starts beside the first; the lowest objective wins."
    )
