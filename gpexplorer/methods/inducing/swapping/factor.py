"""The factored sparse GP, in which one inducing point replaces another without rotating any column.

Rows I of the data are the inducing points. L [n, m] is a root of the Nystrom matrix, K_hat = L L'. L_Z are its rows I.

    removing i    w = L_Z^-1 e_i / |L_Z^-1 e_i|,   v = L w        K_hat - v v' is the model without i
    adding j      u = (k_j - K_hat_j + v v_j) / sqrt(D_j)         D_j is entry j of the numerator          eq 13
    both          L <- L + a w',   a = u - v

This holds since L_Z w is a multiple of e_i, so that v vanishes at every other inducing point. The paper (Cao et al.
2013, section 3.2) permutes columns by Givens rotations and downdates a QR factor; here no column moves. Q and R are
not stored either. With c = L'y, P = (L'L + s2 I)^-1, q = P w and kappa = w'q,

    N = P - q q' / kappa                          the inverse for the model without i; N w = 0
    N L'v = w - q / kappa                         since L'v = P^-1 w - s2 w
    log |L'L + s2 I| changes by log(kappa)        when i is removed
    adding u: with b = L'u, s = u'u + s2 - b'N b, e = y'u - c'N b,
        dE_D = e^2 / (s2 s),  dE_C = log s2 - log s,  dE_V = u'u / s2             eqs 14-16, as reductions

A swap with proposals reads L twice: once for the rows of the proposals together with the w of the next removal, and
once for the residuals of the proposals. Rank-one changes of L, of G = L'L + s2 I and of P wait, and several are applied
together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....evidence_limits import BOUNDS, least_from
from ....linalg.blocks import add_gram_, symmetric_from_lower
from ....linalg.cholesky import cholesky, logdet
from ....linalg.matrix_products import DeferredUpdates
from ....objectives import Terms, log_variance_ratio, noise_variance, rounding
from ....problem import Dataset, Kernel
from ..reductions import estimate, log_reductions, reductions, sample_rows

QUEUE = 16  # swaps whose changes wait before they are applied to L, G and P


class RemovalNumbers(NamedTuple):
    """Numbers of one removal, or of several as columns [k, 1]; w, q and v as in `Removal`."""

    vv: Any  # v'v
    yv: Any  # y'v
    nu: Any  # entry of v at the point
    kappa: Any  # w'q
    wc: Any
    qc: Any
    qGw: Any  # 1, as long as P is the inverse of G
    qLv: Any  # q'L'v


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
    numbers: RemovalNumbers
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
        """L'v = G w - s2 w [m], computed at each access."""
        return torch.sub(self.rows[1], self.rows[0], alpha=self.s2)

    def solve(self, P: Tensor, B: Tensor) -> Tensor:
        """N B [m, k], where N is the inverse of L'L + s2 I without the point."""
        NB = (B.T @ P).T  # P is symmetric; this order reads it once
        return NB.addr_(self.q, self.q @ B, alpha=-1.0 / self.numbers.kappa)


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


class Change(NamedTuple):
    """The vectors [m] by which an accepted swap changes what follows L; the letters are those of `change_vectors`.

    L gains a w', T loses w beta', G gains half w' + w half', and P changes by -q q' / kappa + g g' / s.
    """

    G: Tensor  # [4, m] half and w, then w and half: G changes by the products of both pairs
    P: Tensor  # [4, m] -q / sqrt(kappa) and g / sqrt(s), then both with a plus sign
    for_T: Tensor  # [6, m] w, half, g, q, L'v, tail: what is multiplied by T
    H_rows: Tensor  # [3, m] L'v, b, w: columns of H change along them
    PH_rows: Tensor  # [3, m] P times these, with the P before the swap
    PH_besides: Tensor  # [2, m] q, g: columns of P H change along them besides
    PH_weights: Tensor  # [2, m] -q / kappa, g / s, to be multiplied by the new H
    pivot: Tensor  # [2, m] h of the removed point, and P h without g (g'h / s)
    columns: Tensor  # [15, m] for each row of `factors`, what it multiplies in t, G t and P t, t a column of T
    factors: Tensor  # [5, m] -beta, w'T, half'T, q'T and g'T; q'T with T before the swap, the others with T after it


class Factor:
    """L and the [m] and [m, m] quantities that follow it through swaps.

    Parameters
    ----------
    kernel, theta, train : Kernel, Tensor, Dataset
        The model: covariance function, log-hyperparameters [p] and training rows.
    inducing : Tensor [m]
        Rows of the data, no two of them equal to rounding.
    objective : {"vfe", "tight-vfe", "pp"}

    Attributes
    ----------
    inducing, inducing_rows : Tensor [m] and list of int
        The inducing rows, by slot: on the device, and on the host, so that a swap need not wait for the device.
    terms : Terms
        Terms of the objective, carried through swaps.
    T : Tensor [m, m]
        L_Z^-1; its columns are the directions w, except for their lengths.
    TPT, TGT : Tensor [m]
        Diagonals of T'P T and T'G T.
    c, Pc : Tensor [m]
        L'y and P L'y, the rows of `c_and_Pc`.
    D : Tensor [n]
        diag(K - K_hat).
    pending_G, pending_P : DeferredUpdates
        G and P with the changes that wait.
    least : Tensor [n]
        A residual variance below this is rounding.
    reads : int
        Passes over L since the caller set it to 0; a write counts as one more.
    jitter : float
        What was added to the diagonal of K_mm.

    Notes
    -----
    Memory is n m numbers and O(m^2).
    """

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, inducing: Tensor, objective: str) -> None:
        self.kernel, self.theta, self.train, self.objective = kernel, theta, train, objective
        self.s2, self.yy = noise_variance(theta), float(train.y @ train.y)
        self.prior = kernel.diag(theta, train.X)  # [n]
        self.reads = 0
        self.least = rounding(train.y.dtype) * self.prior  # [n]
        self.least_on_host = self.least.cpu()
        self.is_tight = objective == "tight-vfe"
        self.sample = sample_rows(len(train), train.y.device) if self.is_tight else inducing[:0]
        self.build(inducing)

    def build(self, inducing: Tensor) -> None:
        """Compute everything from scratch for these inducing rows [m]: 2 n m^2 flops and n m kernel entries."""
        m, y = len(inducing), self.train.y
        Z = self.train.rows(inducing).X
        L_mm, self.jitter = cholesky(self.kernel(self.theta, Z, Z), "K_mm", accurate=True)  # [m, m]
        K_mn = self.kernel(self.theta, Z, self.train.X)
        L = torch.linalg.solve_triangular(L_mm, K_mn, upper=False).T.contiguous()  # [n, m], each row in one piece
        self.inducing, self.inducing_rows = inducing.clone(), inducing.tolist()
        add_gram_(lower := L.new_zeros(m, m), L.T)
        G = symmetric_from_lower(lower)  # [m, m]; L'L + s2 I after the next two lines
        self.trace = float(self.prior.sum()) - float(G.diagonal().sum())  # tr(K - K_hat)
        G.diagonal().add_(self.s2)
        self.T = torch.linalg.solve_triangular(L[inducing], torch.eye(m).to(y), upper=False)  # [m, m]
        self.D = (self.prior - torch.linalg.vector_norm(L, dim=1).square()).clamp_min_(0.0)  # [n]
        self.L, self.pending_G = DeferredUpdates(L, QUEUE), DeferredUpdates(G, 2 * QUEUE)
        self._build_inverse(L.T @ y)

    def rebuild_inverse(self) -> None:
        """Compute P and all that depends on it from G: m^3 flops, and no read of L.

        Each swap multiplies rounding in P by up to the condition number of G, which is about the signal-to-noise ratio
        times n. G itself is only added to.
        """
        self._build_inverse(self.c)

    def _build_inverse(self, c: Tensor) -> None:
        G = self.G
        L_A = cholesky(G, "L'L + s2 I").L  # [m, m]
        P, self.logdet = torch.cholesky_inverse(L_A), logdet(L_A)  # [m, m]
        self.TPT, self.TGT = (torch.linalg.vecdot(self.T, M @ self.T, dim=0) for M in (P, G))  # [m] each
        self.c_and_Pc = torch.stack([c, P @ c])  # [2, m]
        self.c, self.Pc = self.c_and_Pc
        self.pending_P = DeferredUpdates(P, 2 * QUEUE)
        self._set_terms()

    def _set_terms(self) -> None:
        """Eqs 7 to 9 from the carried quantities."""
        fit = (self.yy - float(self.c @ self.Pc)) / self.s2
        complexity = (len(self.train) - self.m) * math.log(self.s2) + self.logdet
        E_V = log_variance_ratio(self.D, self.s2) if self.is_tight else self.trace / self.s2
        self.terms = Terms(fit, complexity, E_V)

    @property
    def m(self) -> int:
        """Number of inducing points."""
        return len(self.inducing)

    @property
    def G(self) -> Tensor:
        """L'L + s2 I [m, m]."""
        return self.pending_G.applied()

    @property
    def P(self) -> Tensor:
        """(L'L + s2 I)^-1 [m, m]."""
        return self.pending_P.applied()

    @property
    def is_inducing(self) -> Tensor:
        """Which rows [n] are inducing points."""
        return torch.zeros_like(self.least, dtype=torch.bool).index_fill_(0, self.inducing, True)

    @property
    def total(self) -> float:
        """The objective, from the carried terms."""
        return self.terms.total(self.objective)

    def limits(self) -> tuple[float, float]:
        """Return a lower limit of the exact model's objective and the gap above it: m^3 / 3 flops; nan for PP."""
        if self.objective not in BOUNDS:
            return math.nan, math.nan
        fit, complexity, _ = self.terms
        least = least_from(self.G, self.c, self.yy, self.s2, self.trace, complexity)
        return least, 0.5 * (fit + complexity + log_variance_ratio(self.D, self.s2)) - least

    # -- products with L -------------------------------------------------------------------------------------------

    def rows(self, index: Tensor) -> Tensor:
        """Rows of L [c, m]."""
        return self.L.rows(index)

    def times(self, W: Tensor) -> Tensor:
        """W L' [c, n] for W [c, m]: one read of L."""
        self.reads += 1
        return self.L.times_rows(W)

    def transposed_times(self, R: Tensor) -> Tensor:
        """L' R' [m, c] for R [c, n]: one read of L."""
        self.reads += 1
        return self.L.rows_times(R).T

    def residual_columns(
        self, index: Tensor, slots: Sequence[int] = (), removal: Removal | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute columns of the residual, and the columns by which the next points are removed.

        Parameters
        ----------
        index : Tensor [c]
            Rows of the data.
        slots : sequence of int
            Slots whose columns L t are computed in the same product, t being a column of T.
        removal : Removal, optional
            Without it, the residual of the model as it is.

        Returns
        -------
        R : Tensor [c, n]
            Rows `index` of K - K_hat, without the removed point.
        V : Tensor [k, n]
            L t for the slots.

        Notes
        -----
        One read of L, and c n kernel entries.
        """
        K = self.kernel(self.theta, self.train.rows(index).X, self.train.X)  # [c, n]
        W = self.rows(index)  # [c, m]
        if removal is not None:
            W.addr_(removal.v[index], removal.w, alpha=-1.0)
        product = self.times(torch.cat([W, self.T[:, list(slots)].T]))  # [c + k, n]
        return K.sub_(product[: len(index)]), product[len(index) :]

    # -- (I, II) removing a point ----------------------------------------------------------------------------------

    def losses(self) -> Tensor:
        """By how much the objective would increase without each of the points [m]. O(m^2).

        For the tight VFE, whose E_V needs all n rows, the increase of E_V is estimated from a sample of the rows.
        """
        lengths = torch.linalg.vecdot(self.T, self.T, dim=0)  # |t|^2 for the columns t of T, which are |t| w
        kappa, vv = self.TPT / lengths, self.TGT / lengths - self.s2
        increase = (self.Pc @ self.T).square() / (self.TPT * self.s2) + math.log(self.s2) + kappa.log()
        if self.is_tight:
            V, squares = self.s2 + self.D, (self.rows(self.sample) @ self.T).square_().div_(lengths)  # [n], [k, m]
            own = 1.0 / lengths, V[self.inducing]  # L_Z w = e_i / |t|
            increase = increase + estimate(squares, V[self.sample], own, vv, 1.0, len(self.D))
        elif self.objective == "vfe":
            increase = increase + vv / self.s2
        return 0.5 * increase

    def remove(self, position: int) -> Removal:
        """Describe the model without the inducing point in slot `position`: one read of L, and 4 m^2 flops."""
        t, row = self.T[:, position], self.inducing_rows[position]
        w = t / t.norm()
        v = self.times(w[None])[0]  # [n]
        rows = torch.stack([w, self.G @ w, self.P @ w])  # [3, m]
        products = torch.cat([(rows @ rows.T).flatten(), rows @ self.c, (self.train.y @ v)[None], v[row : row + 1]])
        return self.removal(position, v, rows, self.removal_numbers(products.tolist()))

    def removal_numbers(self, products: Sequence[Any]) -> RemovalNumbers:
        """Choose from the products of w, G w and q with one another (9) and with c (3), y'v, and v at the point."""
        ww, wGw, kappa, _, _, qGw, _, _, _, wc, _, qc, yv, nu = products
        vv, qLv = wGw - self.s2 * ww, qGw - self.s2 * kappa
        return RemovalNumbers(vv=vv, yv=yv, nu=nu, kappa=kappa, wc=wc, qc=qc, qGw=qGw, qLv=qLv)

    def removal(
        self, position: int, v: Tensor, rows: Tensor, numbers: RemovalNumbers, pivot_products: Tensor | None = None
    ) -> Removal:
        """Put the description of a removal together; the arguments are those of `Removal`."""
        V = torch.addcmul(self.D, v, v) if self.is_tight else self.D[:0]  # [n] diag(K - K_hat) without the point
        terms = self.terms_without(numbers, V)
        return Removal(
            position=position,
            rows=rows,
            v=v,
            numbers=numbers,
            s2=self.s2,
            terms=terms,
            V=V.add_(self.s2) if self.is_tight else V,
            pivot_products=pivot_products,
        )

    def terms_without(self, removed: RemovalNumbers, D: Tensor | None = None) -> Terms:
        """Terms of the objective without a point; the tight VFE needs diag(K - K_hat) without it, D [n]."""
        fit, complexity, E_V = self.terms
        return Terms(
            fit + removed.qc**2 / (removed.kappa * self.s2),
            complexity + math.log(self.s2) + math.log(removed.kappa),
            log_variance_ratio(D, self.s2) if self.is_tight and D is not None else E_V + removed.vv / self.s2,
        )

    def no_removal(self) -> Removal:
        """The model as it is, in the form of a removal that removes nothing."""
        nothing = RemovalNumbers(vv=0.0, yv=0.0, nu=0.0, kappa=1.0, wc=0.0, qc=0.0, qGw=1.0, qLv=0.0)
        V = self.D + self.s2 if self.is_tight else self.D[:0]
        rows, v = self.c.new_zeros(3, self.m), torch.zeros_like(self.D)
        return Removal(position=-1, rows=rows, v=v, numbers=nothing, s2=self.s2, terms=self.terms, V=V)

    # -- (IV) the exact effect of candidates -----------------------------------------------------------------------

    def propose(self, removal: Removal, rows: Tensor, R: Tensor) -> Proposals:
        """Compute the effect of adding each of c `rows`, whose residual columns are R [c, n]: one read of L."""
        B = self.transposed_times(R)  # [m, c]
        NB = removal.solve(self.P, B)  # [m, c]
        products = torch.linalg.vecdot(R, R), R @ self.train.y, torch.linalg.vecdot(B, NB, dim=0), self.c @ NB
        D = R.gather(1, rows[:, None])[:, 0]  # [c]
        log_ratios = log_reductions(R, D, removal.V) if self.is_tight else None
        explained = self.is_inducing[rows] | (D <= self.least[rows])
        return Proposals(rows, R, B, NB, self.additions(explained, D, *products, log_ratios=log_ratios))

    def additions(self, explained: Tensor, D: Tensor, *products: Tensor, log_ratios: Tensor | None = None) -> Addition:
        """Compute the exact effect of c candidates from products with their residual columns r, on any device.

        Parameters
        ----------
        explained : Tensor [c]
            Whether the row is an inducing point, or explained by them to rounding.
        D : Tensor [c]
            Entry of r at its own row: u = r / sqrt(D).
        *products : four Tensors [c]
            r'r, y'r, b'N b and c'N b with b = L'r.
        log_ratios : Tensor [c], optional
            The decrease of E_V, which the tight VFE needs.
        """
        D = D.masked_fill(explained, 1.0)
        (rr, yr, bNb, cNb), root = products, D.sqrt()
        uu, s = rr / D, (rr - bNb) / D + self.s2
        dE_V = self.trace_reduction(uu) if log_ratios is None else log_ratios
        reduction = reductions((yr - cNb) / root, s, self.s2, dE_V)
        # s >= s2, since r'r - b'N b >= 0. A smaller s is rounding, and so is a reduction that follows from it.
        return Addition(D, uu, yr / root, s, reduction.masked_fill_(explained | (s < self.s2), -math.inf))

    def trace_reduction(self, uu: Tensor) -> Tensor | float:
        """Eq 16, the decrease of E_V by columns with these u'u; 0 where the objective has no E_V."""
        return uu / self.s2 if self.objective == "vfe" else 0.0

    # -- (V) accepting a swap --------------------------------------------------------------------------------------

    def accept(self, removal: Removal, row: int, new: Column) -> Change:
        """Put data row `row` in the place of the removed point. O(m^2) and a few passes over [n]."""
        (v, u, a), removed, i = new.vua, removal.numbers, removal.position
        vectors = change_vectors(removal, new, self.L.each_row([row, self.inducing_rows[i]]))
        change = Change._make([*vectors, self._update_T(removal, vectors[2], new.s)])
        self.pending_G.add_both(change.G)
        self.pending_P.add_both(change.P)
        self.logdet += math.log(removed.kappa) + math.log(new.s)
        self.c.add_(removal.w, alpha=new.yu - removed.yv)
        up = change.P[3]
        self.Pc.addcmul_(up, up @ self.c).sub_(removal.q, alpha=removed.qc / removed.kappa)
        self.D.addcmul_(v, v).addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.trace += removed.vv - new.uu
        self.inducing[i] = self.inducing_rows[i] = row
        self._set_terms()
        self.reads += 2 * self.L.add(a[None], removal.w[None])
        return change

    def swapped(self, position: int, row: int, logdet: float, trace: float) -> None:
        """Follow a swap that a compiled try has written into the arrays; `logdet` and `trace` changed by so much."""
        self.inducing_rows[position] = row
        self.logdet += logdet
        self.trace += trace
        self._set_terms()
        self.pending_G.added(2)
        self.pending_P.added(2)
        self.reads += 2 * self.L.added(1)

    def _update_T(self, removal: Removal, for_T: Tensor, s: float) -> Tensor:
        """Update T = L_Z^-1 and the diagonals of T'G T and T'P T; return `Change.factors`. T is read and changed once.

        Row i of L_Z changes by `tail`, so that T loses w beta' (Sherman-Morrison).
        """
        w, i, kappa = removal.w, removal.position, removal.numbers.kappa
        products = for_T @ self.T  # [6, m] of w, half, g, q, L'v and tail
        beta = products[5]  # tail'T so far
        beta.mul_(products[0, i] / (1.0 + products[5, i]))
        self.T.addr_(w, beta, alpha=-1.0)
        products[:3].addr_(for_T[:3] @ w, beta, alpha=-1.0)  # w, half and g times the new T

        left_and_right = [  # of w'T, half'T, g'T, q'T, (L'v)'T and beta: four factors, and what each is multiplied by
            (0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
            (0.0, 2.0, 0.0, 0.0, 0.0, 0.0),
            (0.0, 0.0, 0.0, -1.0 / kappa, 0.0, 0.0),
            (0.0, 0.0, 1.0 / s, 0.0, 0.0, 0.0),
            (-2.0 * self.s2, 0.0, 0.0, 0.0, -2.0, removal.numbers.vv - self.s2),
            (1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
            (0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
        ]
        coefficients = torch.from_numpy(np.array(left_and_right + CHANGE_FACTORS)).to(w)  # [13, 6]
        rows = coefficients @ products
        TGT, TPT = (rows[:4] * rows[4:8]).view(2, 2, -1).sum(1)
        self.TGT.add_(TGT)
        self.TPT.add_(TPT)
        return rows[8:]


CHANGE_FACTORS = [  # -beta, w'T, half'T, q'T and g'T, from the products in `Factor._update_T`
    (0.0, 0.0, 0.0, 0.0, 0.0, -1.0),
    (1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (0.0, 1.0, 0.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
]


def change_vectors(removal: Removal, new: Column, rows_of_L: Tensor) -> tuple[Tensor, ...]:
    """Return the fields of `Change` but the last, all from one product with seven vectors, S [7, m].

    The host has read the numbers for its decision, so that it writes each vector as coefficients of S. On a GPU, where
    each operation takes a launch, this replaces about forty.

    Parameters
    ----------
    removal, new : Removal, Column
        The removed point, and the column that takes its place.
    rows_of_L : Tensor [2, m]
        Rows of L before the swap, of the new and of the removed point.
    """
    kappa, nu, vv = removal.numbers.kappa, removal.numbers.nu, removal.numbers.vv
    S = torch.cat([removal.rows, new.b_Nb, rows_of_L])
    w, Gw, q, b, Nb, l_new, l_old = np.eye(7)
    zero = np.zeros(7)
    Lv = Gw - removal.s2 * w
    half = b - Lv + 0.5 * (new.uu - 2.0 * new.uv + vv) * w  # b - L'v + (a'a / 2) w: G gains half w' + w half'
    g = Nb - w  # P changes by -q q' / kappa + g g' / s
    down, up = q / math.sqrt(kappa), g / math.sqrt(new.s)
    tail = l_new + new.a_new * w - l_old  # row i of L_Z changes by this
    # the column nu v - mu u of the removed point, which becomes a pivot, with the new L and P: h, and P h - g (g'h / s)
    h = nu * (Lv + (new.uv - vv) * w) - new.mu * (b + (new.uu - new.uv) * w)
    Ph = nu * w - (nu / kappa) * q - new.mu * Nb
    fields = [
        (half, w, w, half),
        (-down, up, down, up),
        (w, half, g, q, Lv, tail),
        (Lv, b, w),
        (w - removal.s2 * q, Nb + (new.qb / kappa) * q, q),  # P L'v, P b = N b + q (q'b / kappa), P w
        (q, g),
        (-q / kappa, g / new.s),
        (h, Ph),
        (w, Gw, zero, zero, half, zero, zero, w, zero, zero, zero, -q / kappa, zero, zero, g / new.s),
    ]
    combinations = torch.from_numpy(np.concatenate([row for field in fields for row in field]).reshape(-1, 7)).to(S)
    return (combinations @ S).split([len(field) for field in fields])
