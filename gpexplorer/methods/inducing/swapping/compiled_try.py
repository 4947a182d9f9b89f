"""One try without proposals as one compiled call, in place of about 200 operations of torch (VFE and PP, on a CPU).

With few points, most of an accepted try is the time of Python and of starting small operations. The formulas are those
of factor.py, pivots.py and swap.py, which stay the reference; here they are loops that Numba compiles, so that one loop
has a formula for each entry, and reads and writes each array once. Products over the n rows have at most two terms,
which a loop does as fast as memory allows; there is none for a BLAS. Arrays are changed in place. Sums are in another
order than torch's, so that results differ by rounding.

In the names, j is one of the pivots J, k the best of them, and t a column of T. Rows of an array are taken by their
index, since `a, b = M` gives rows of which Numba does not know that they are in one piece, and loops over them are six
times as slow.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof
from numba.core import event
from numpy.typing import DTypeLike

BLOCK = 1024  # rows of the data, of which the parts of two columns stay in the fastest cache
HOW: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract"}}
PART = HOW | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # only `one_try` calls them
compiled = njit(**PART)


class FactorArrays(NamedTuple):
    """Arrays of a `Factor`; `L`, `G` and `P` have their pending updates beside them, as A and W [2, capacity, .]."""

    Tt: np.ndarray  # [m, m] T', each column t of T in one piece
    TPT: np.ndarray  # [m]
    TGT: np.ndarray  # [m]
    c_Pc: np.ndarray  # [2, m]
    D: np.ndarray  # [n]
    y: np.ndarray  # [n]
    least: np.ndarray  # [n]
    inducing: np.ndarray  # [m]
    L: np.ndarray  # [n, m]
    pending_L: np.ndarray
    pending_G: np.ndarray
    pending_P: np.ndarray


class PivotArrays(NamedTuple):
    """Arrays of `Pivots`."""

    rows: np.ndarray  # [z]
    ranked: np.ndarray
    is_inducing: np.ndarray  # [z]
    least: np.ndarray  # [z]
    E: np.ndarray  # [z, n]
    HP: np.ndarray  # [2, z, m]
    EE: np.ndarray  # [z, z]
    C: np.ndarray  # [z, z]
    Ey: np.ndarray  # [z]


class Numbers(NamedTuple):
    """Numbers of the model and of the decision."""

    s2: float
    has_trace: float  # 1 for VFE, 0 for PP
    fit: float
    complexity: float
    trace: float
    tolerance: float  # of |w'P G w - 1|
    least_gain: float


class Result(NamedTuple):
    """What a try did; nothing, if `inverse_error` is above the tolerance."""

    row: int
    accepted: bool
    exact: float
    regret: float
    inverse_error: float
    logdet: float  # by how much log |L'L + s2 I| changed
    trace: float  # by how much tr(K - K_hat) changed


@compiled
def dot(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@compiled
def copy(out: Any, x: Any) -> None:
    """out <- x; for `out[:] = x`, Numba compiles a sentence about shapes that differ, which takes three seconds."""
    for i in range(len(x)):
        out[i] = x[i]


@compiled
def combine(out: Any, a: float, x: Any, b: float, y: Any) -> None:
    """out <- a x + b y."""
    a, b = out.dtype.type(a), out.dtype.type(b)
    for i in range(len(out)):
        out[i] = a * x[i] + b * y[i]


@compiled
def add(out: Any, a: float, x: Any) -> None:
    """out <- out + a x."""
    a = out.dtype.type(a)
    for i in range(len(out)):
        out[i] += a * x[i]


@compiled
def six_dots(S: Any, t: Any) -> Any:
    """S t for S [6, m], in one loop: of six loops, few are vectorised."""
    a = b = c = d = e = f = t.dtype.type(0)
    for i in range(len(t)):
        x = t[i]
        a += S[0, i] * x
        b += S[1, i] * x
        c += S[2, i] * x
        d += S[3, i] * x
        e += S[4, i] * x
        f += S[5, i] * x
    return a, b, c, d, e, f


@compiled
def add_to_rows(M: Any, a: Any, x: Any, b: Any, y: Any) -> None:
    """M <- M + a x' + b y' for M [k, n]."""
    for begin in range(0, M.shape[1], BLOCK):
        x_block, y_block = x[begin : begin + BLOCK], y[begin : begin + BLOCK]
        for k in range(len(M)):
            part, a_k, b_k = M[k, begin : begin + BLOCK], a[k], b[k]
            for i in range(len(part)):
                part[i] += a_k * x_block[i] + b_k * y_block[i]


@compiled
def row_of_L(f: Any, row: int, pending: int) -> Any:
    out = f.L[row].copy()
    for i in range(pending):
        add(out, f.pending_L[0, i, row], f.pending_L[1, i, : len(out)])
    return out


# -- (I, IV) removing a point, and the exact effect of each pivot ------------------------------------------------------


class Removed(NamedTuple):
    """The model without the point at `row`; the letters are those of `Removal` and `RemovalNumbers`."""

    row: int
    w: np.ndarray  # [m]
    Gw: np.ndarray  # [m]
    q: np.ndarray  # [m]
    v: np.ndarray  # [n]
    vv: float
    yv: float
    nu: float
    kappa: float
    wc: float
    qc: float
    qGw: float


@compiled
def remove(f: Any, Lt: Any, products: Any, row: int, s2: float) -> Any:
    """Divide L t and t, G t, P t by |t|."""
    t = products[0]
    length = math.sqrt(dot(t, t))
    scaled, v, c = products / t.dtype.type(length), np.empty_like(Lt), f.c_Pc[0]
    combine(v, 1.0 / length, Lt, 0.0, Lt)
    w, Gw, q = scaled[0], scaled[1], scaled[2]
    vv, yv, wc, qc = dot(w, Gw) - s2 * dot(w, w), dot(f.y, v), dot(w, c), dot(q, c)
    return Removed(row, w, Gw, q, v, vv, yv, v[row], dot(w, q), wc, qc, dot(q, Gw))


@compiled
def effects(p: Any, r: Any, Pc: Any, x: Any) -> Any:
    """Eqs 14 to 16 for each pivot. Rows [7, z]: E v, q'H, v at the pivots, and D, u'u, s and the reduction."""
    out = np.empty((7, len(p.rows)), r.v.dtype)
    for j in range(len(p.rows)):
        Hj, v_j, Ev = p.HP[0, j], r.v[p.rows[j]], dot(r.w, p.HP[0, j])
        qH = dot(r.q, Hj)
        qh, D = qH / r.kappa, v_j**2 + p.C[j, j]
        rr = p.EE[j, j] + (2.0 * Ev + r.vv * v_j) * v_j
        hNh = dot(Hj, p.HP[1, j]) - r.kappa * qh**2
        bNb = hNh + (2.0 * (Ev - qh) + (r.vv + x.s2 - 1.0 / r.kappa) * v_j) * v_j
        cNb = dot(Pc, Hj) - r.qc * qh + (r.wc - r.qc / r.kappa) * v_j
        uu, s, e = rr / D, (rr - bNb) / D + x.s2, p.Ey[j] + r.yv * v_j - cNb
        gain = 0.5 * (e**2 / (D * x.s2 * s) + math.log(x.s2) - math.log(s) + x.has_trace * uu / x.s2)
        if p.is_inducing[j] or D <= p.least[j] or s < x.s2 or not np.isfinite(gain):
            gain = -np.inf
        out[0, j], out[1, j], out[2, j], out[3, j], out[4, j], out[5, j], out[6, j] = Ev, qH, v_j, D, uu, s, gain
    return out


@compiled
def missed(p: Any, gain: Any) -> float:
    """How much better the best pivot is than the one with the best score; nan without scores."""
    for row in p.ranked:
        for j in range(len(gain)):
            if p.rows[j] == row and gain[j] > -np.inf:
                return gain[np.argmax(gain)] - gain[j]
    return gain.dtype.type(np.nan)


# -- (V) accepting a swap ----------------------------------------------------------------------------------------------


class New(NamedTuple):
    """The new column u of L, and the vectors [m] by which all else changes; the letters are those of `Column`."""

    u: np.ndarray  # [n]
    for_T: np.ndarray  # [6, m] w, half, g, q, L'v, tail
    others: np.ndarray  # [5, m] b, the column h of H for the removed point and its P h, P L'v, P b
    uu: float
    uv: float
    yu: float
    s: float
    mu: float
    root: float


@compiled
def new_column(f: Any, p: Any, r: Any, of_pivot: Any, k: int, pending: int, s2: float) -> Any:
    """Pivot k as the new column (`pivot_column`), with the vectors of `change_vectors`."""
    (Ev, qH, v_k, D, uu, s, _), m = of_pivot, len(r.w)
    root, qh = math.sqrt(D), qH / r.kappa
    x, yu, uv = v_k / root, (p.Ey[k] + r.yv * v_k) / root, (Ev + v_k * r.vv) / root
    qb, mu = (qH + v_k * (r.qGw - s2 * r.kappa)) / root, (p.E[k, r.row] + v_k * r.nu) / root
    a_new = (p.C[k, k] + v_k * v_k) / root - v_k
    u, for_T, others = np.empty_like(r.v), np.empty((6, m), r.v.dtype), np.empty((5, m), r.v.dtype)
    combine(u, x, r.v, 1.0 / root, p.E[k])
    l_new, l_old = row_of_L(f, p.rows[k], pending), row_of_L(f, r.row, pending)
    for i in range(m):
        w, q = r.w[i], r.q[i]
        Lv = r.Gw[i] - s2 * w
        b, Nb = x * Lv + p.HP[0, k, i] / root, x * w - (qh + v_k / r.kappa) / root * q + p.HP[1, k, i] / root
        half = b - Lv + 0.5 * (uu - 2.0 * uv + r.vv) * w
        h, Ph = r.nu * (Lv + (uv - r.vv) * w) - mu * (b + (uu - uv) * w), r.nu * (w - q / r.kappa) - mu * Nb
        for_T[0, i], for_T[1, i], for_T[2, i], for_T[3, i] = w, half, Nb - w, q
        for_T[4, i], for_T[5, i] = Lv, l_new[i] + a_new * w - l_old[i]
        others[0, i], others[1, i], others[2, i] = b, h, Ph
        others[3, i], others[4, i] = w - s2 * q, Nb + qb / r.kappa * q
    return New(u, for_T, others, uu, uv, yu, s, mu, root)


@compiled
def update_factor(f: Any, r: Any, new: Any, pending: Any) -> None:
    """`Factor.accept`, without T."""
    in_L, in_G, in_P = pending
    u, v, w, half, g = new.u, r.v, r.w, new.for_T[1], new.for_T[2]
    c, Pc, m = f.c_Pc[0], f.c_Pc[1], len(r.w)
    combine(f.pending_L[0, in_L], 1.0, u, -1.0, v)
    copy(f.pending_L[1, in_L], w)
    for i in range(len(v)):
        f.D[i] = max(f.D[i] + v[i] * v[i] - u[i] * u[i], f.D.dtype.type(0))
    for i in range(m):
        f.pending_G[0, in_G, i], f.pending_G[1, in_G, i] = half[i], w[i]
        f.pending_G[0, in_G + 1, i], f.pending_G[1, in_G + 1, i] = w[i], half[i]
        down, up = r.q[i] / math.sqrt(r.kappa), g[i] / math.sqrt(new.s)
        f.pending_P[0, in_P, i], f.pending_P[1, in_P, i] = -down, down
        f.pending_P[0, in_P + 1, i], f.pending_P[1, in_P + 1, i] = up, up
    add(c, new.yu - r.yv, w)
    add(Pc, dot(g, c) / new.s, g)
    add(Pc, -r.qc / r.kappa, r.q)


@compiled
def update_T(f: Any, r: Any, new: Any, slot: int, s2: float) -> Any:
    """T <- T - w beta' with T'P T and T'G T; return -beta, w'T, half'T, q'T and g'T (`Factor._update_T`)."""
    w, half, g, tail = new.for_T[0], new.for_T[1], new.for_T[2], new.for_T[5]
    factor = dot(w, f.Tt[slot]) / (1.0 + dot(tail, f.Tt[slot]))
    ww, halfw, gw, out = dot(w, w), dot(half, w), dot(g, w), np.empty((5, len(w)), w.dtype)
    for i in range(len(w)):
        wt, halft, gt, qt, Lvt, tailt = six_dots(new.for_T, f.Tt[i])
        beta = factor * tailt
        wt, halft, gt = wt - beta * ww, halft - beta * halfw, gt - beta * gw  # with the new T
        add(f.Tt[i], -beta, w)
        f.TGT[i] += beta * ((r.vv - s2) * beta - 2.0 * (s2 * wt + Lvt)) + 2.0 * halft * wt
        f.TPT[i] += gt**2 / new.s - qt**2 / r.kappa
        out[0, i], out[1, i], out[2, i], out[3, i], out[4, i] = -beta, wt, halft, qt, gt
    return out


@compiled
def update_pivots(p: Any, r: Any, new: Any, of_pivots: Any, k: int) -> Any:
    """`Pivots.accepted`, except for the removed point. Return u, E v and E u at the pivots (rows 0, 3 and 4)."""
    Ev, vJ, z = of_pivots[0], of_pivots[2], len(p.rows)
    columns = np.empty((6, z), Ev.dtype)
    uJ, mid, right, Ev_new, Eu_new, minus_uJ = columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]
    for j in range(z):
        uJ[j] = (p.C[k, j] + vJ[k] * vJ[j]) / new.root
        Eu = (p.EE[j, k] + vJ[k] * Ev[j]) / new.root + new.uv * vJ[j]
        mid[j], right[j], minus_uJ[j] = Ev[j] + 0.5 * r.vv * vJ[j], Eu - 0.5 * new.uu * uJ[j], -uJ[j]
        Ev_new[j], Eu_new[j] = Ev[j] + r.vv * vJ[j] - new.uv * uJ[j], Eu - new.uu * uJ[j]
        p.Ey[j] += r.yv * vJ[j] - new.yu * uJ[j]
    w, g, q, Lv, b, Pv, Pu = r.w, new.for_T[2], r.q, new.for_T[4], new.others[0], new.others[3], new.others[4]
    for j in range(z):
        Hj, PHj, difference = p.HP[0, j], p.HP[1, j], Eu_new[j] - Ev_new[j]
        for i in range(z):
            p.EE[j, i] += vJ[j] * mid[i] + mid[j] * vJ[i] - uJ[j] * right[i] - right[j] * uJ[i]
            p.C[j, i] += vJ[j] * vJ[i] - uJ[j] * uJ[i]
        for i in range(len(w)):
            Hj[i] += vJ[j] * Lv[i] - uJ[j] * b[i] + difference * w[i]
        of_q, of_g = difference - dot(q, Hj) / r.kappa, dot(g, Hj) / new.s
        for i in range(len(w)):
            PHj[i] += vJ[j] * Pv[i] - uJ[j] * Pu[i] + of_q * q[i] + of_g * g[i]
    add_to_rows(p.E, vJ, r.v, minus_uJ, new.u)
    return columns


@compiled
def place_removed(f: Any, p: Any, r: Any, new: Any, vJ: Any, columns: Any, k: int) -> None:
    """Put the removed point in the place of pivot k (`Pivots.accepted`): its column is nu v - mu u."""
    nu, mu, g, h = r.nu, new.mu, new.for_T[2], new.others[1]
    uJ, Ev, Eu = columns[0], columns[3], columns[4]
    combine(p.E[k], nu, r.v, -mu, new.u)
    copy(p.HP[0, k], h)
    combine(p.HP[1, k], 1.0, new.others[2], dot(g, h) / new.s, g)
    for j in range(len(vJ)):
        p.C[k, j] = p.C[j, k] = nu * vJ[j] - mu * uJ[j]
        p.EE[k, j] = p.EE[j, k] = nu * Ev[j] - mu * Eu[j]
        if p.rows[j] == r.row:
            p.is_inducing[j] = False
    p.C[k, k], p.EE[k, k] = nu**2 - mu**2, nu**2 * r.vv - 2.0 * nu * mu * new.uv + mu**2 * new.uu
    p.Ey[k], p.rows[k], p.least[k], p.is_inducing[k] = nu * r.yv - mu * new.yu, r.row, f.least[r.row], False


@compiled
def update_removals(V: Any, products: Any, slots: Any, r: Any, new: Any, of_T: Any, a: Any) -> None:
    """`Removals.follow`, for the slots after the first."""
    half, g, left = new.for_T[1], new.for_T[2], slots[1:]
    for k in range(len(left)):
        t, Gt, Pt = products[k + 1, 0], products[k + 1, 1], products[k + 1, 2]
        minus_beta, wt, halft, qt, gt = of_T[:, left[k]]
        for i in range(len(t)):
            t[i] += minus_beta * r.w[i]
            Gt[i] += minus_beta * r.Gw[i] + wt * half[i] + halft * r.w[i]
            Pt[i] += gt / new.s * g[i] - qt / r.kappa * r.q[i]
    add_to_rows(V[1:], of_T[0][left], r.v, of_T[1][left], a)


@njit(cache=True, **HOW)
def one_try(f: Any, p: Any, V: Any, products: Any, slots: Any, pending: Any, x: Any) -> Any:
    """Offer the point in slots[0], and replace it by the best pivot if the objective decreases (`Swapper.swap`).

    V [k, n] and products [k, 3, m] are L t, and t, G t and P t, for the slots, as in `Removals`. `pending` are the
    numbers of pending updates of L, G and P.
    """
    # (I) remove the point, (II) evaluate the objective without it, and (IV) the exact reduction by each pivot
    r = remove(f, V[0], products[0], f.inducing[slots[0]], x.s2)
    inverse_error = np.float64(abs(r.qGw - 1.0))
    if not inverse_error <= x.tolerance:
        return Result(0, False, np.nan, np.nan, inverse_error, 0.0, 0.0)
    loss = 0.5 * (r.qc**2 / (r.kappa * x.s2) + math.log(x.s2) + math.log(r.kappa) + x.has_trace * r.vv / x.s2)
    of_pivots = effects(p, r, f.c_Pc[1], x)
    k = np.argmax(of_pivots[6])
    row, exact, regret = p.rows[k], np.float64(of_pivots[6, k] - loss), np.float64(missed(p, of_pivots[6]))

    # (V) accept the best, or leave all as it is; (VI) the pivots, and the removals that are offered next, follow
    if not exact > x.least_gain * abs(0.5 * (x.fit + x.complexity + x.has_trace * x.trace)):
        return Result(row, False, exact, regret, inverse_error, 0.0, 0.0)
    new = new_column(f, p, r, of_pivots[:, k], k, pending[0], x.s2)
    update_factor(f, r, new, pending)
    f.inducing[slots[0]] = row
    of_T = update_T(f, r, new, slots[0], x.s2)
    columns = update_pivots(p, r, new, of_pivots, k)
    place_removed(f, p, r, new, of_pivots[2], columns, k)
    update_removals(V, products, slots, r, new, of_T, f.pending_L[0, pending[0]])
    logdet, trace = np.float64(math.log(r.kappa) + math.log(new.s)), np.float64(r.vv - new.uu)
    return Result(row, True, exact, regret, inverse_error, logdet, trace)


# -- compiled code on disk ---------------------------------------------------------------------------------------------


class NotCompiledError(RuntimeError):
    """The code for these types is not on disk."""


class _Refusal(event.Listener):
    """Raises an error where Numba would compile `one_try`."""

    def on_start(self, event: event.Event) -> None:
        if event.data["dispatcher"] is one_try:
            raise NotCompiledError

    def on_end(self, event: event.Event) -> None:
        """Nothing was compiled."""


def compile_try(dtype: DTypeLike) -> None:
    """Load the code for float32 or float64 from disk, or compile it, which takes ten seconds, and write it to disk."""
    vector, matrix, cube = (np.zeros((1,) * axes, dtype) for axes in (1, 2, 3))
    index, flags = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    factor = FactorArrays(matrix, vector, vector, matrix, vector, vector, vector, index, matrix, cube, cube, cube)
    pivots = PivotArrays(index, index, flags, vector, matrix, cube, matrix, matrix, vector)
    numbers = Numbers(*7 * [0.0])
    one_try.compile(tuple(map(typeof, (factor, pivots, matrix, cube, index, (0, 0, 0), numbers))))


def load_try(dtype: DTypeLike) -> None:
    """Load the code for float32 or float64 from disk.

    Raises
    ------
    NotCompiledError
        It was not compiled on this machine by this version.
    """
    with event.install_listener("numba:compile", _Refusal()):
        compile_try(dtype)
