"""Settings of learning on a finite basis that several methods share."""

from __future__ import annotations

from typing import Any

import param


def learn() -> Any:
    """Whether the hyperparameters are learned."""
    return param.Boolean(
        True, doc="Learn the hyperparameters by marginal likelihood. If off, they keep their initial values."
    )


def subset() -> Any:
    """Number of rows of the first likelihood."""
    return param.Integer(
        500, bounds=(2, None), softbounds=(100, 2000),
        doc="Number of random rows on which an exact GP first learns the hyperparameters.",
    )  # fmt: skip


def starts() -> Any:
    """Number of initial values tried on the subset."""
    return param.Integer(
        2, bounds=(1, 8), softbounds=(1, 4),
        doc="Number of initial values tried on the subset: lengthscales times 1, 2, 4, and so on. The likelihood "
        "selects one.",
    )  # fmt: skip


def evaluations(default: int = 15) -> Any:
    """Number of evaluations of a likelihood in one descent."""
    return param.Integer(
        default, bounds=(1, None), softbounds=(5, 50), doc="Most evaluations of the likelihood in one descent."
    )


def max_rounds() -> Any:
    """Number of times that the basis functions are chosen."""
    return param.Integer(
        10, bounds=(1, None), softbounds=(1, 20), doc="Most rounds; each begins with a choice of basis functions."
    )


def tolerance() -> Any:
    """Relative decrease of the objective below which learning stops."""
    return param.Number(
        1e-4,
        bounds=(0.0, 1.0),
        doc="Stop when a new choice of basis functions lowers the NLML by less than this fraction. A descent stops "
        "when six evaluations together do.",
    )
