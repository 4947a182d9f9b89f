"""What removing an inducing point and adding another one does to the model: the quantities of one swap.

The letters are those of factor.py. With N = P - q q' / kappa, N w = 0 and L'v = P^-1 w - s2 w. Therefore the products
of N with L'v, which the removed column adds, need no product with N:

    N L'v = w - q / kappa,   v'L N L'v = v'v + s2 - 1 / kappa
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from ....objectives import Terms


class Removal(NamedTuple):
    """The model without one inducing point, in terms of the model with it.

    Attributes
    ----------
    position : int
        Slot of the point.
    w : Tensor [m]
        The direction of L that only this point uses, of length 1.
    v : Tensor [n]
        L w, the column that is removed.
    Lv : Tensor [m]
        L'v.
    vv, yv : float
        v'v and y'v.
    q : Tensor [m]
        P w.
    kappa : float
        w'q.
    wc, qc : float
        w'c and q'c.
    terms : Terms
        Terms of the objective without the point.
    inverse_error : float
        |w'P G w - 1|, which is 0 as long as P is the inverse of G.
    V : Tensor [n]
        s2 + diag(K - K_hat) without the point; empty where the objective does not need it.
    pivot_products : two Tensors [10, z], optional
        What `Pivots.products` computed for this removal, on the device and on the host.
    """

    position: int
    w: Tensor
    v: Tensor
    Lv: Tensor
    vv: float
    yv: float
    q: Tensor
    kappa: float
    wc: float
    qc: float
    terms: Terms
    inverse_error: float
    V: Tensor
    pivot_products: tuple[Tensor, Tensor] | None = None

    def NLv(self) -> Tensor:
        """N L'v [m]."""
        return self.w - self.q / self.kappa

    def solve(self, P: Tensor, B: Tensor) -> Tensor:
        """N B [m, k], where N is the inverse of L'L + s2 I without the point."""
        NB = (B.T @ P).T  # P is symmetric; this order reads it once
        return NB.addr_(self.q, self.q @ B, alpha=-1.0 / self.kappa)


class Addition(NamedTuple):
    """Exact effect of adding each of c candidates, as columns u, to the model without the removed point.

    Attributes
    ----------
    D : Tensor [c]
        Residual variance of the candidate; 1 where it is already explained.
    uu, yu, s : Tensor [c]
        u'u, y'u and u'u + s2 - b'N b with b = L'u.
    reduction : Tensor [c]
        Decrease of the objective; -inf where the candidate is already explained.
    """

    D: Tensor
    uu: Tensor
    yu: Tensor
    s: Tensor
    reduction: Tensor


class Proposals(NamedTuple):
    """Candidates that are not pivots, and the effect of adding each.

    Attributes
    ----------
    rows : Tensor [c]
    R : Tensor [c, n]
        Residual columns of the model without the removed point.
    B, NB : Tensor [m, c]
        L'R' and N L'R'.
    addition : Addition
    """

    rows: Tensor
    R: Tensor
    B: Tensor
    NB: Tensor
    addition: Addition


class Column(NamedTuple):
    """A candidate as the new column u of L.

    Attributes
    ----------
    u : Tensor [n]
    b, Nb : Tensor [m]
        L'u and N L'u.
    uu, uv, yu, s : float
        u'u, u'v, y'u and u'u + s2 - b'N b.
    Eu : Tensor [z]
        Products of u with the columns of the pivots.
    """

    u: Tensor
    b: Tensor
    Nb: Tensor
    uu: float
    uv: float
    yu: float
    s: float
    Eu: Tensor


class Change(NamedTuple):
    """What an accepted swap changed.

    L gained a w', T lost w beta', G gained half w' + w half', and P changed by -q q' / kappa + g g' / s. `qT` is q'T
    with T before the swap; `wT`, `halfT` and `gT` are products with T after it.
    """

    a: Tensor  # [n]
    half: Tensor  # [m]
    g: Tensor  # [m]
    s: float
    beta: Tensor  # [m]
    qT: Tensor  # [m]
    wT: Tensor  # [m]
    halfT: Tensor  # [m]
    gT: Tensor  # [m]


def reductions(e: Tensor, s: Tensor, s2: float, dE_V: Tensor | float) -> Tensor:
    """Decrease of the objective by each of c columns u, half the sum of eqs 14 to 16.

    Parameters
    ----------
    e, s : Tensor [c]
        y'u - c'N b and u'u + s2 - b'N b, with b = L'u.
    s2 : float
        Noise variance.
    dE_V : Tensor [c] or float
        Decrease of E_V: u'u / s2 for VFE (eq 16), that of logarithmic_trace.py for tight VFE, and 0 for PP.

    Returns
    -------
    Tensor [c]
        In nat; -inf where it is not a number.
    """
    reduction = e.square() / (s2 * s) + math.log(s2) - s.log()  # dE_D + dE_C                            eqs 14, 15
    return 0.5 * (reduction + dE_V).nan_to_num(nan=-math.inf, posinf=-math.inf)
