"""Settings of learning on a finite basis that several methods share."""

from __future__ import annotations

from typing import Any

import param

from ..setting_kinds import count, share


def learn() -> Any:
    """Whether the hyperparameters are learned."""
    return param.Boolean(
        True, doc="Learn the hyperparameters by marginal likelihood. If off, they keep their initial values."
    )


def subset() -> Any:
    """Number of rows of the first likelihood."""
    return count(
        500, (100, 2000), least=2, doc="Number of random rows on which an exact GP first learns the hyperparameters."
    )


def starts() -> Any:
    """Number of initial values tried on the subset."""
    return count(
        2,
        (1, 4),
        most=8,
        doc="Number of initial values tried on the subset: lengthscales times 1, 2, 4, and so on. The likelihood "
        "selects one.",
    )


def evaluations(default: int = 15) -> Any:
    """Number of evaluations of a likelihood in one descent."""
    return count(default, (5, 50), doc="Most evaluations of the likelihood in one descent.")


def max_rounds() -> Any:
    """Number of times that the basis functions are chosen."""
    return count(10, (1, 20), doc="Most rounds; each begins with a choice of basis functions.")


def tolerance() -> Any:
    """Relative decrease of the objective below which learning stops."""
    return share(
        1e-4,
        doc="Stop when a new choice of basis functions lowers the NLML by less than this fraction. A descent stops "
        "when six evaluations together do.",
    )
