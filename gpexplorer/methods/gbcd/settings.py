"""Settings that the solvers share, one function each, so that every method declares its own."""

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


def tolerance() -> Any:
    """When the system counts as solved."""
    return param.Number(
        1e-4,
        bounds=(0.0, None),
        softbounds=(1e-6, 1e-1),
        doc="Stop when no entry of the gradient exceeds this; checked against one computed from scratch.",
    )


def max_iterations() -> Any:
    """When to give up."""
    return param.Integer(
        2000, bounds=(1, None), softbounds=(10, 5000), doc="Iterations after which to stop in any case."
    )


def cache() -> Any:
    """Memory for kernel rows."""
    return param.Number(
        1.0,
        bounds=(0.0, None),
        softbounds=(0.0, 8.0),
        doc="Gigabytes for kernel rows that are kept instead of computed again; 0 keeps none.",
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


def variance_rows() -> Any:
    """Rows behind the predictive variance."""
    return param.Integer(
        2000,
        bounds=(0, None),
        softbounds=(0, 5000),
        doc="Rows behind a predictive variance, an upper bound on the exact; 0 is all, by CG for many points at once.",
    )


def num_regressors() -> Any:
    """Size of a sparse rival."""
    return param.Integer(
        500,
        bounds=(1, None),
        softbounds=(50, 2000),
        doc="Rows that f is a sum over, 2000 published; n numbers each are held.",
    )


def growth() -> Any:
    """Rows a step of a sparse rival."""
    return param.Integer(50, bounds=(1, None), softbounds=(1, 200), doc="Rows that join in one step.")
