"""What the methods of the family report alike: terms of the objective as channels, and parts of their costs.

F = (E_D + E_C + E_V) / 2        eqs 4 and 5 of Cao et al. 2013; the letters are those of gpexplorer/objectives.py,
and E_V is the trace of VFE, or the sum of logarithms of tight VFE.
"""

from __future__ import annotations

import math
from typing import Annotated

from ...objectives import Terms
from ...problem import Problem, channel

# fields of an Info
Objective = Annotated[float, channel("objective F", "nat")]
Fit = Annotated[float, channel("data fit, E_D / 2", "nat")]
Complexity = Annotated[float, channel("complexity, E_C / 2", "nat")]
Trace = Annotated[float, channel("trace term, E_V / 2", "nat")]
Moved = Annotated[float, channel("how far the points moved, rms", "sd of x", log=True)]
ExactReduction = Annotated[float, channel("exact reduction", "nat")]
ExactLeast = Annotated[float, channel("lower limit of the exact model's objective", "nat")]
Jitter = Annotated[float, channel("jitter on K_mm", log=True)]
UNKNOWN_TERMS = Terms(math.nan, math.nan, math.nan)
EVALUATION_CALLS = 160.0  # tensor operations of one evaluation of a sparse objective with its gradient
ENTRY_FLOPS = 150.0  # flops of a matrix product that take as long as the exponential of a kernel entry


def halves(terms: Terms) -> tuple[float, float, float]:
    """Return half of each term: these add up to the objective."""
    return terms.fit / 2, terms.complexity / 2, terms.trace / 2


def entry_flops(problem: Problem) -> float:
    """Return the time of one kernel entry in flops of a matrix product: 2 d, an exponential and passes over memory."""
    return ENTRY_FLOPS + 2.0 * problem.train.d
