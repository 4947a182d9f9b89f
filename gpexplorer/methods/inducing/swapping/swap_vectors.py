"""The vectors [m] by which an accepted swap changes the factors: all of them are linear combinations of seven vectors.

    S = [w, G w, q, b, N b, l_new, l_old]        l_new and l_old are the rows of L of the new and of the removed point

The coefficients follow from numbers that the host has read for the decision, so that one product with S gives all
vectors. On a GPU, where each operation takes a launch, this replaces about forty. With L'v = G w - s2 w and
P L'v = w - s2 q, P b = N b + q (q'b / kappa),

    half = b - L'v + a'a w / 2,   g = N b - w,   tail = l_new + a_new w - l_old
    G <- G + half w' + w half',   P <- P - q q' / kappa + g g' / s

and for the residual column nu v - mu u of the removed point, which becomes a pivot, with the new L and P

    h = nu (L'v + (uv - vv) w) - mu (b + (uu - uv) w)
    P h = nu (w - q / kappa) - mu N b + g (g'h / s)                  except for the last term
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from .swap_effects import Column, Removal, SwapVectors

GROUPS = {  # the rows of each field of SwapVectors
    "G_change": ("half", "w", "w", "half"),
    "P_change": ("-q / sqrt(kappa)", "g / sqrt(s)", "q / sqrt(kappa)", "g / sqrt(s)"),
    "for_T": ("w", "half", "g", "q", "L'v", "tail"),
    "H_rows": ("L'v", "b", "w"),
    "PH_rows": ("P L'v", "P b", "q"),
    "PH_besides": ("q", "g"),
    "PH_weights": ("-q / kappa", "g / s"),
    "pivot": ("h", "P h"),
    "columns": (  # what multiplies -beta, w'T, half'T, q'T and g'T, in t, in G t and in P t
        *("w", "G w", "none"),
        *("none", "half", "none"),
        *("none", "w", "none"),
        *("none", "none", "-q / kappa"),
        *("none", "none", "g / s"),
    ),
}
CHANGE_FACTORS = [  # -beta, w'T, half'T, q'T and g'T, from the products in `update_T`
    (0.0, 0.0, 0.0, 0.0, 0.0, -1.0),
    (1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (0.0, 1.0, 0.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
]
NAMES = [name for group in GROUPS.values() for name in group]
LENGTHS = [len(group) for group in GROUPS.values()]


def swap_vectors(removal: Removal, new: Column, rows_of_L: Tensor) -> SwapVectors:
    """Combine the vectors of a removal and an addition.

    Parameters
    ----------
    removal, new
        The removed point, and the column that takes its place.
    rows_of_L : Tensor [2, m]
        Rows of L before the swap, of the new and of the removed point.

    Notes
    -----
    One upload of 41 x 7 numbers and one product.
    """
    kappa, s, nu, mu, uv, vv = removal.kappa, new.s, removal.nu, new.mu, new.uv, removal.vv
    s2, half_aa = removal.s2, 0.5 * (new.uu - 2.0 * uv + vv)  # a'a / 2
    down, up = 1.0 / math.sqrt(kappa), 1.0 / math.sqrt(s)
    coefficients = {  # of w, G w, q, b, N b, l_new and l_old
        "none": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "w": (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "G w": (0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "q": (0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0),
        "b": (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
        "L'v": (-s2, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "half": (s2 + half_aa, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0),
        "g": (-1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
        "tail": (new.a_new, 0.0, 0.0, 0.0, 0.0, 1.0, -1.0),
        "q / sqrt(kappa)": (0.0, 0.0, down, 0.0, 0.0, 0.0, 0.0),
        "-q / sqrt(kappa)": (0.0, 0.0, -down, 0.0, 0.0, 0.0, 0.0),
        "g / sqrt(s)": (-up, 0.0, 0.0, 0.0, up, 0.0, 0.0),
        "P L'v": (1.0, 0.0, -s2, 0.0, 0.0, 0.0, 0.0),
        "P b": (0.0, 0.0, new.qb / kappa, 0.0, 1.0, 0.0, 0.0),
        "-q / kappa": (0.0, 0.0, -1.0 / kappa, 0.0, 0.0, 0.0, 0.0),
        "g / s": (-1.0 / s, 0.0, 0.0, 0.0, 1.0 / s, 0.0, 0.0),
        "h": (nu * (uv - vv - s2) - mu * (new.uu - uv), nu, 0.0, -mu, 0.0, 0.0, 0.0),
        "P h": (nu, 0.0, -nu / kappa, 0.0, -mu, 0.0, 0.0),
    }
    S = torch.cat([removal.rows, new.b_Nb, rows_of_L])  # [7, m]
    combinations = torch.from_numpy(np.array([coefficients[name] for name in NAMES])).to(S)  # [41, 7]
    return SwapVectors(**dict(zip(GROUPS, (combinations @ S).split(LENGTHS), strict=True)))


def update_T(T: Tensor, diagonals: tuple[Tensor, Tensor], removal: Removal, vectors: SwapVectors, s: float) -> Tensor:
    """Update T = L_Z^-1 in place after an accepted swap, and with it the diagonals of T'G T and T'P T.

    Parameters
    ----------
    T : Tensor [m, m]
    diagonals : two Tensors [m]
    removal, vectors
        What the swap changes.
    s : float
        u'u + s2 - b'N b of the new column.

    Returns
    -------
    Tensor [5, m]
        -beta, w'T, half'T, q'T and g'T; q'T with T before the swap, the others with T after it.

    Notes
    -----
    T is read once and changed once, O(m^2).
    """
    w, i, s2, kappa = removal.w, removal.position, removal.s2, removal.kappa
    products = vectors.for_T @ T  # [6, m] of w, half, g, q, L'v and tail
    beta = products[5]  # tail'T so far
    beta.mul_(products[0, i] / (1.0 + products[5, i]))  # Sherman-Morrison: row i of L_Z changes
    T.addr_(w, beta, alpha=-1.0)
    products[:3].addr_(vectors.for_T[:3] @ w, beta, alpha=-1.0)  # w, half and g times the new T

    left_and_right = [  # of w'T, half'T, g'T, q'T, (L'v)'T and beta: four factors, and what each is multiplied by
        (0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
        (0.0, 2.0, 0.0, 0.0, 0.0, 0.0),
        (0.0, 0.0, 0.0, -1.0 / kappa, 0.0, 0.0),
        (0.0, 0.0, 1.0 / s, 0.0, 0.0, 0.0),
        (-2.0 * s2, 0.0, 0.0, 0.0, -2.0, removal.vv - s2),
        (1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        (0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
        (0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
    ]
    coefficients = torch.from_numpy(np.array(left_and_right + CHANGE_FACTORS)).to(w)  # [13, 6]
    rows = coefficients @ products
    TGT, TPT = (rows[:4] * rows[4:8]).view(2, 2, -1).sum(1)
    diagonals[0].add_(TGT)
    diagonals[1].add_(TPT)
    return rows[8:]
