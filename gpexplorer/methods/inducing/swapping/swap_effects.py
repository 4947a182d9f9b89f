"""What removing a point and adding another does to the model: the quantities of one swap, in the letters of factor.py.

With N = P - q q' / kappa, N w = 0 and L'v = P^-1 w - s2 w, so that what the removed column adds to a product with N is
known without one:

    N L'v = w - q / kappa,   v'L N L'v = v'v + s2 - 1 / kappa
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from ....objectives import Terms


class Removal(NamedTuple):
    """The model without one inducing point, beside the model with it."""

    position: int
    w: Tensor  # [m]
    v: Tensor  # [n]
    Lv: Tensor  # [m]
    vv: float
    yv: float
    q: Tensor  # [m]
    kappa: float
    wc: float
    qc: float
    terms: Terms  # of the model without it

    def NLv(self) -> Tensor:
        """N L'v [m]."""
        return self.w - self.q / self.kappa

    def solve(self, P: Tensor, B: Tensor) -> Tensor:
        """N B [m, k], the inverse of the model without the point."""
        NB = (B.T @ P).T  # P is symmetric, and this order reads it once
        return NB.addr_(self.q, self.q @ B, alpha=-1.0 / self.kappa)


class Change(NamedTuple):
    """What an accepted swap did: L + a w', T - w beta', G + half w' + w half', P - q q' / kappa + g g' / s."""

    a: Tensor  # [n]
    half: Tensor  # [m]
    g: Tensor  # [m]
    s: float
    beta: Tensor  # [m]
    qT: Tensor  # [m] q'T with the old T
    wT: Tensor  # [m] the others with the new one
    halfT: Tensor  # [m]
    gT: Tensor  # [m]


class Addition(NamedTuple):
    """Exact effect of adding each of c candidates, as columns u, to the model without the removed point."""

    D: Tensor  # [c] residual variance of the candidate
    uu: Tensor  # [c] u'u
    yu: Tensor  # [c] y'u
    s: Tensor  # [c]
    reduction: Tensor  # [c] fall of the objective, -inf where the candidate is already explained


class Proposals(NamedTuple):
    """Candidates with columns of their own, and what adding each would do."""

    rows: Tensor  # [c]
    R: Tensor  # [c, n] residual columns without the removed point
    B: Tensor  # [m, c] L'R'
    NB: Tensor  # [m, c]
    found: Addition


class Column(NamedTuple):
    """A candidate ready to be added."""

    u: Tensor  # [n]
    b: Tensor  # [m] L'u
    Nb: Tensor  # [m]
    uu: float
    uv: float
    yu: float
    s: float
    Eu: Tensor  # [z] the pivots' columns E u


def reductions(e: Tensor, s: Tensor, uu: Tensor, s2: float, objective: str) -> Tensor:
    """Half the fall of the objective, eqs 14-16: [c]."""
    fall = e.square() / (s2 * s) + math.log(s2) - s.log()
    if objective == "vfe":
        fall = fall + uu / s2
    return 0.5 * fall.nan_to_num(nan=-math.inf)
