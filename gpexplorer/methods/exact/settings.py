"""Settings that some solvers share, one function each, so that every method declares its own."""

from __future__ import annotations

from typing import Any

import param


def block() -> Any:
    """Rows of a block."""
    return param.Integer(
        500, bounds=(1, None), softbounds=(10, 1000), doc="Rows solved for together each iteration, at block^3 flops."
    )


def conjugate(steps: int) -> Any:
    """Steps before the present one that it goes along as well."""
    return param.Integer(
        steps,
        bounds=(0, None),
        softbounds=(0, 5),
        doc="Last steps that a step goes along as well, as far as is best, 2 n numbers each; 0 is published.",
    )


def learn() -> Any:
    """Whether hyperparameters move."""
    return param.Boolean(
        True, doc="Learn the hyperparameters by maximum likelihood on a random subset first; off keeps their start."
    )


def subset() -> Any:
    """Rows learned on."""
    return param.Integer(
        500,
        bounds=(2, None),
        softbounds=(100, 2000),
        doc="Rows on which the hyperparameters are learned; the paper takes 2000, at subset^3 an evaluation.",
    )


def evaluations() -> Any:
    """Budget of the learning."""
    return param.Integer(
        25, bounds=(1, None), softbounds=(5, 100), doc="Evaluations of the likelihood spent on the hyperparameters."
    )


def mixed() -> Any:
    """Precision of the kernel columns."""
    return param.Boolean(
        False,
        doc="Kernel columns in float32, at half the cost; gradients from scratch stay exact. Not where the signal's "
        "variance is more than 10^4 times the noise's: rounding is then what a block solves for.",
    )


def refresh() -> Any:
    """When the gradient is computed from scratch."""
    return param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 200),
        doc="Iterations after which the gradient is computed from scratch, n^2 / 2 entries; 0 only before stopping.",
    )
