"""Settings that methods on a finite basis share."""

from __future__ import annotations

from typing import Any

import param


def num_eigenfunctions(default: int = 500) -> Any:
    """p."""
    return param.Integer(
        default, bounds=(1, None), softbounds=(10, 2000), doc="Eigenfunctions p: more fit better, at n p^2 a pass."
    )


def grid_points() -> Any:
    """mbar."""
    return param.Integer(
        10, bounds=(2, None), softbounds=(5, 40), doc="Grid points an input: the grid has that many to the power d."
    )


def spacing() -> Any:
    """Where the points of an axis lie."""
    return param.Selector(
        default="equispaced", objects=["equispaced", "quantile", "by likelihood"],
        doc="quantile puts grid points where rows are: for inputs that crowd in a part of their range; by likelihood "
        "tries both whenever the basis is chosen, at a pass over the training rows each.",
    )  # fmt: skip


def learn() -> Any:
    """Whether theta moves."""
    return param.Boolean(True, doc="Learn the hyperparameters by marginal likelihood; off keeps them as they start.")


def subset(default: int = 500) -> Any:
    """Rows of the first likelihood."""
    return param.Integer(
        default, bounds=(2, None), softbounds=(100, 2000),
        doc="Random rows on which the hyperparameters are learned first.",
    )  # fmt: skip


def starts(default: int = 2) -> Any:
    """Of the descents on the subset."""
    return param.Integer(
        default, bounds=(1, 8), softbounds=(1, 4),
        doc="Descents on the subset from lengthscales once, twice, four times as long ...: the likelihood picks one.",
    )  # fmt: skip


def evaluations(default: int = 15) -> Any:
    """Of a likelihood."""
    return param.Integer(
        default, bounds=(1, None), softbounds=(5, 50), doc="Evaluations of a likelihood before what follows it."
    )


def max_rounds() -> Any:
    """Choices of a basis."""
    return param.Integer(10, bounds=(1, None), softbounds=(1, 20), doc="Times the basis functions are chosen, at most.")


def tolerance() -> Any:
    """Of the likelihood."""
    return param.Number(
        1e-4,
        bounds=(0.0, 1.0),
        doc="Stop when a new choice of the basis, and a descent when six evaluations, gain less than this fraction of "
        "the likelihood.",
    )
