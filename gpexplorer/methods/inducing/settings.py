"""Settings that the methods of this family share, one function each, so that every method declares its own."""

from __future__ import annotations

from typing import Any

import param

PUBLISHED: dict[str, Any] = {  # CholQR as Cao et al. ran it; they do not say how often they refreshed its pivots
    "start": "random",
    "num_pivots": 16,
    "num_proposals": 1,
    "pivot_policy": "random",
    "pivot_refresh": 8,
    "removal": "random",
    "polish": 0,
}


def num_inducing() -> Any:
    """m."""
    return param.Integer(
        64,
        bounds=(1, None),
        softbounds=(4, 512),
        doc="Inducing points m: more fit better; a step costs m, learning m^2 times the rows.",
    )


def objective() -> Any:
    """VFE or PP."""
    return param.Selector(
        default="vfe",
        objects=["vfe", "pp"],
        doc="vfe bounds the evidence and cannot overfit by its inducing points; pp drops the trace term and can.",
    )


def learn() -> Any:
    """Whether hyperparameters move."""
    return param.Boolean(True, doc="Learn the hyperparameters once points are chosen; off keeps them as they start.")


def optimiser() -> Any:
    """SciPy's."""
    return param.Selector(
        default="CG", objects=["CG", "L-BFGS-B"], doc="SciPy's optimiser for the hyperparameters; the paper uses CG."
    )


def evaluations() -> Any:
    """An epoch's budget for learning."""
    return param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 50),
        doc="Evaluations of the objective an epoch may spend on hyperparameters; 0 means min(20, max(15, 2 d)).",
    )


def max_epochs() -> Any:
    """The last epoch."""
    return param.Integer(100, bounds=(1, None), softbounds=(1, 200), doc="Epochs (points, then learning), at most.")


def tolerance() -> Any:
    """When an epoch is not worth another."""
    return param.Number(
        1e-4, bounds=(0.0, 1.0), doc="Stop when an epoch improves the objective by less than this fraction."
    )


def again() -> Any:
    """Whether learning is followed by choosing anew."""
    return param.Boolean(
        True, doc="Choose all points anew after learning; a new set is taken only where it lowers the objective."
    )
