"""What removing an inducing point and adding another one does to the model: the quantities of one swap.

The letters are those of factor.py. With N = P - q q' / kappa, N w = 0 and L'v = P^-1 w - s2 w. Therefore the products
of N with L'v, which the removed column adds, need no product with N:

    N L'v = w - q / kappa,   v'L N L'v = v'v + s2 - 1 / kappa
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....objectives import Terms


class RemovalNumbers(NamedTuple):
    """Numbers of one removal, or of several as columns [k, 1]; w, q, v and nu as in `Removal`."""

    ww: Any
    wGw: Any
    kappa: Any  # w'q
    qGw: Any  # 1, as long as P is the inverse of G
    wc: Any
    qc: Any
    yv: Any
    nu: Any


class Removal(NamedTuple):
    """The model without one inducing point, in terms of the model with it.

    Attributes
    ----------
    position : int
        Slot of the point.
    rows : Tensor [3, m]
        w, G w and q = P w, where w is the direction of L that only this point uses, of length 1.
    v : Tensor [n]
        L w, the column that is removed.
    vv, yv : float
        v'v and y'v.
    nu : float
        The entry of v at the point.
    kappa : float
        w'q.
    wc, qc, qLv : float
        w'c, q'c and q'L'v.
    s2 : float
        Noise variance.
    terms : Terms
        Terms of the objective without the point.
    V : Tensor [n]
        s2 + diag(K - K_hat) without the point; empty where the objective does not need it.
    pivot_products : Tensor [8, z], optional
        Products with the z pivots, on the host: w'H, w'G H, q'H, v at the pivots, c'H, c'P H, the diagonal of H'P H,
        and the entries of the pivots' columns at the removed point.
    """

    position: int
    rows: Tensor
    v: Tensor
    vv: float
    yv: float
    nu: float
    kappa: float
    wc: float
    qc: float
    qLv: float
    s2: float
    terms: Terms
    V: Tensor
    pivot_products: Tensor | None = None

    @property
    def w(self) -> Tensor:
        """The direction w [m]."""
        return self.rows[0]

    @property
    def q(self) -> Tensor:
        """P w [m]."""
        return self.rows[2]

    @property
    def Lv(self) -> Tensor:
        """L'v [m], computed at each access."""
        return torch.sub(self.rows[1], self.rows[0], alpha=self.s2)

    def NLv(self) -> Tensor:
        """N L'v [m]."""
        return self.w - self.q / self.kappa

    def solve(self, P: Tensor, B: Tensor) -> Tensor:
        """N B [m, k], where N is the inverse of L'L + s2 I without the point."""
        NB = (B.T @ P).T  # P is symmetric; this order reads it once
        return NB.addr_(self.q, self.q @ B, alpha=-1.0 / self.kappa)


def removal_numbers(products: Sequence[Any]) -> RemovalNumbers:
    """Choose from the products of w, G w and q = P w with one another (9) and with c (3), y'v, and v at the point."""
    ww, wGw, kappa, _, _, qGw, _, _, _, wc, _, qc, yv, nu = products
    return RemovalNumbers(ww=ww, wGw=wGw, kappa=kappa, qGw=qGw, wc=wc, qc=qc, yv=yv, nu=nu)


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
    vua : Tensor [3, n]
        v, u, and a = u - v, by which a column of L changes.
    b_Nb : Tensor [2, m]
        b = L'u and N b.
    uu, uv, yu, s : float
        u'u, u'v, y'u and u'u + s2 - b'N b.
    qb : float
        q'b.
    mu, a_new : float
        Entry of u at the removed point, and of a at the new one.
    uJ, Eu : Tensor [z]
        Entries of u at the pivots, and its products with their columns; on the host.
    """

    vua: Tensor
    b_Nb: Tensor
    uu: float
    uv: float
    yu: float
    s: float
    qb: float
    mu: float
    a_new: float
    uJ: Tensor
    Eu: Tensor


class SwapVectors(NamedTuple):
    """What an accepted swap adds to the factors; rows of one product."""

    G_change: Tensor  # [4, m] half and w, then w and half: G changes by the products of both pairs
    P_change: Tensor  # [4, m] -q / sqrt(kappa) and g / sqrt(s), then both with a plus sign
    for_T: Tensor  # [6, m] w, half, g, q, L'v, tail: what is multiplied by T
    H_rows: Tensor  # [3, m] L'v, b, w: columns of H change along them
    PH_rows: Tensor  # [3, m] P times these, with the P before the swap
    PH_besides: Tensor  # [2, m] q, g: columns of P H change along them besides
    PH_weights: Tensor  # [2, m] -q / kappa, g / s, to be multiplied by the new H
    pivot: Tensor  # [2, m] h of the removed point, and P h without g (g'h / s)
    columns: Tensor  # [15, m] for each row of `Change.factors`, what it multiplies in t, G t and P t


class Change(NamedTuple):
    """What an accepted swap changed.

    L gained a w', T lost w beta', G gained half w' + w half', and P changed by -q q' / kappa + g g' / s.
    """

    vectors: SwapVectors
    factors: Tensor  # [5, m] -beta, w'T, half'T, q'T and g'T; q'T with T before the swap, the others with T after it


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
