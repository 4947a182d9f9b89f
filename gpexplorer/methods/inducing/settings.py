"""Settings that several methods of this family have: one function per setting, so that each method declares its own."""

from __future__ import annotations

from typing import Any

import param


def num_inducing() -> Any:
    """Return the setting m, the number of inducing points."""
    return param.Integer(
        64,
        bounds=(1, None),
        softbounds=(4, 512),
        doc="Inducing points m. More of them fit better; choosing costs m per row, learning m^2 per row.",
    )


def objective() -> Any:
    """Return the setting that chooses between VFE and PP."""
    return param.Selector(
        default="vfe",
        objects=["vfe", "pp"],
        doc="vfe is a bound of the evidence, and cannot overfit by its inducing points; pp has no trace term and can.",
    )


def learn() -> Any:
    """Return the setting that says whether hyperparameters are learned."""
    return param.Boolean(True, doc="Learn the hyperparameters once points are chosen; off keeps their initial values.")


def optimiser() -> Any:
    """Return the setting that names SciPy's optimiser."""
    return param.Selector(
        default="CG", objects=["CG", "L-BFGS-B"], doc="SciPy's optimiser for the hyperparameters; the paper uses CG."
    )


def evaluations() -> Any:
    """Return the setting that limits the evaluations per epoch."""
    return param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 50),
        doc="Evaluations of the objective per epoch for learning hyperparameters; 0 means min(20, max(15, 2 p)).",
    )


def max_epochs() -> Any:
    """Return the setting that limits the number of epochs."""
    return param.Integer(
        100, bounds=(1, None), softbounds=(1, 200), doc="Largest number of epochs; each chooses points, then learns."
    )


def tolerance() -> Any:
    """Return the setting that says when an epoch was the last one."""
    return param.Number(
        1e-4, bounds=(0.0, 1.0), doc="Stop when an epoch decreases the objective by less than this fraction."
    )


def again() -> Any:
    """Return the setting that says whether points are chosen again after learning."""
    return param.Boolean(
        True, doc="Choose all points again after learning; a new set replaces the old one if its objective is lower."
    )
