"""The factored sparse GP, in which one inducing point replaces another without rotating any column.

Rows I of the data are the inducing points. L [n, m] is a root of the Nystrom matrix, K_hat = L L'. L_Z are its rows I.

    removing i    w = L_Z^-1 e_i / |L_Z^-1 e_i|,   v = L w        K_hat - v v' is the model without i
    adding j      u = (k_j - K_hat_j + v v_j) / sqrt(D_j)         D_j is entry j of the numerator          eq 13
    both          L <- L + (u - v) w'

This holds since L_Z w is a multiple of e_i, so that v vanishes at every other inducing point. The paper (Cao et al.
2013, section 3.2) permutes columns by Givens rotations and downdates a QR factor; here no column moves. Q and R are
not stored either. With c = L'y, P = (L'L + s2 I)^-1, q = P w and kappa = w'q,

    N = P - q q' / kappa                          the inverse for the model without i
    log |L'L + s2 I| changes by log(kappa)        when i is removed
    adding u: with b = L'u, s = u'u + s2 - b'N b, e = y'u - c'N b,
        dE_D = e^2 / (s2 s),  dE_C = log s2 - log s,  dE_V = u'u / s2             eqs 14-16, as reductions

A swap with proposals reads L twice: once for the rows of the proposals together with the w of the next removal, and
once for the residuals of the proposals. Rank-one changes of L, of G = L'L + s2 I and of P wait, and several are applied
together.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ....evidence_limits import BOUNDS, least_from
from ....linalg.cholesky import cholesky, logdet
from ....linalg.deferred_updates import DeferredUpdates
from ....objectives import Terms, log_variance_ratio, noise_variance
from ....problem import Dataset, Kernel
from ..distinct_rows import rounding
from ..logarithmic_trace import WIDTH, estimate, log_reductions, sample_rows
from .swap_effects import Addition, Change, Column, Proposals, Removal, RemovalNumbers, reductions, removal_numbers
from .swap_vectors import swap_vectors, update_T

QUEUE = 16  # swaps whose changes wait before they are applied to L, G and P


class Factor:
    """L and the [m] and [m, m] quantities that follow it through swaps.

    Parameters
    ----------
    kernel, theta, train
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
        G = L.T @ L  # [m, m]; L'L + s2 I after the next two lines
        self.trace = float(self.prior.sum()) - float(G.diagonal().sum())  # tr(K - K_hat)
        G.diagonal().add_(self.s2)
        L_A = cholesky(G, "L'L + s2 I").L  # [m, m]
        P, self.logdet = torch.cholesky_inverse(L_A), logdet(L_A)  # [m, m]
        self.T = T = torch.linalg.solve_triangular(L[inducing], torch.eye(m).to(y), upper=False)  # [m, m]
        self.TPT, self.TGT = (torch.linalg.vecdot(T, M @ T, dim=0) for M in (P, G))  # [m] each
        self._set_c(L.T @ y, P)
        self.D = (self.prior - torch.linalg.vector_norm(L, dim=1).square()).clamp_min_(0.0)  # [n]
        self.L = DeferredUpdates(L, QUEUE)
        self._G, self._P = DeferredUpdates(G, 2 * QUEUE), DeferredUpdates(P, 2 * QUEUE)
        self.terms = self._terms()

    def rebuild_inverse(self) -> None:
        """Compute P and all that depends on it from G: m^3 flops, and no read of L.

        Each swap multiplies rounding in P by up to the condition number of G, which is about the signal-to-noise ratio
        times n. G itself is only added to.
        """
        G = self.G
        L_A = cholesky(G, "L'L + s2 I").L
        P, self.logdet = torch.cholesky_inverse(L_A), logdet(L_A)  # [m, m]
        self.TPT, self.TGT = (torch.linalg.vecdot(self.T, M @ self.T, dim=0) for M in (P, G))  # [m] each
        self._set_c(self.c, P)
        self._P = DeferredUpdates(P, 2 * QUEUE)
        self.terms = self._terms()

    def _set_c(self, c: Tensor, P: Tensor) -> None:
        self.c_and_Pc = torch.stack([c, P @ c])  # [2, m]
        self.c, self.Pc = self.c_and_Pc

    @property
    def m(self) -> int:
        """Number of inducing points."""
        return len(self.inducing)

    @property
    def G(self) -> Tensor:
        """L'L + s2 I [m, m]."""
        return self._G.applied()

    @property
    def P(self) -> Tensor:
        """(L'L + s2 I)^-1 [m, m]."""
        return self._P.applied()

    @property
    def is_inducing(self) -> Tensor:
        """Which rows [n] are inducing points."""
        return torch.zeros_like(self.least, dtype=torch.bool).index_fill_(0, self.inducing, True)

    @property
    def total(self) -> float:
        """The objective, from the carried terms."""
        return self.terms.total(self.objective)

    def exact_least(self) -> float:
        """Return a lower limit of the exact model's objective: m^3 / 3 flops; nan for PP, which is no bound of it."""
        if self.objective not in BOUNDS:
            return math.nan
        return least_from(self.G, self.c, self.yy, self.s2, self.trace, self.terms.complexity)

    def _terms(self) -> Terms:
        """Eqs 7 to 9 from the carried quantities."""
        fit = (self.yy - float(self.c @ self.Pc)) / self.s2
        complexity = (len(self.train) - self.m) * math.log(self.s2) + self.logdet
        return Terms(fit, complexity, log_variance_ratio(self.D, self.s2) if self.is_tight else self.trace / self.s2)

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

    # -- removing a point ------------------------------------------------------------------------------------------

    def direction(self, position: int) -> Tensor:
        """w [m]: the direction of L that only the inducing point in slot `position` uses."""
        t = self.T[:, position]
        return t / t.norm()

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

    def remove(self, position: int, v: Tensor) -> Removal:
        """Describe the model without the inducing point in slot `position`; v [n] is L w. 4 m^2 flops."""
        w, row = self.direction(position), self.inducing_rows[position]
        rows = torch.stack([w, self.G @ w, self.P @ w])
        numbers = torch.cat([(rows @ rows.T).flatten(), rows @ self.c, (self.train.y @ v)[None], v[row : row + 1]])
        return self.removal(position, v, rows, removal_numbers(numbers.tolist()))

    def removal(
        self, position: int, v: Tensor, rows: Tensor, numbers: RemovalNumbers, pivot_products: Tensor | None = None
    ) -> Removal:
        """Put the description of a removal together.

        Parameters
        ----------
        position : int
        v : Tensor [n]
            L w.
        rows : Tensor [3, m]
            w, G w and P w.
        numbers : RemovalNumbers
        pivot_products : Tensor [8, z], optional
            See `Removal`.
        """
        D = torch.addcmul(self.D, v, v) if self.is_tight else self.D[:0]  # [n] without the point
        return Removal(
            position=position,
            rows=rows,
            v=v,
            vv=numbers.wGw - self.s2 * numbers.ww,
            yv=numbers.yv,
            nu=numbers.nu,
            kappa=numbers.kappa,
            wc=numbers.wc,
            qc=numbers.qc,
            qLv=numbers.qGw - self.s2 * numbers.kappa,
            s2=self.s2,
            terms=self.terms_without(numbers, D),
            V=D.add_(self.s2) if self.is_tight else D,
            pivot_products=pivot_products,
        )

    def terms_without(self, numbers: RemovalNumbers, D: Tensor | None = None) -> Terms:
        """Terms of the objective without a point; the tight VFE needs diag(K - K_hat) without it, D [n]."""
        vv, current = numbers.wGw - self.s2 * numbers.ww, self.terms
        return Terms(
            current.fit + numbers.qc**2 / (numbers.kappa * self.s2),
            current.complexity + math.log(self.s2) + math.log(numbers.kappa),
            log_variance_ratio(D, self.s2) if self.is_tight and D is not None else current.trace + vv / self.s2,
        )

    def no_removal(self) -> Removal:
        """The model as it is, in the form of a removal that removes nothing."""
        return Removal(
            position=-1,
            rows=self.c.new_zeros(3, self.m),
            v=torch.zeros_like(self.D),
            vv=0.0,
            yv=0.0,
            nu=0.0,
            kappa=1.0,
            wc=0.0,
            qc=0.0,
            qLv=0.0,
            s2=self.s2,
            terms=self.terms,
            V=self.D + self.s2 if self.is_tight else self.D[:0],
        )

    # -- evaluating candidates -------------------------------------------------------------------------------------

    def residual_columns(
        self, index: Tensor, slots: list[int], removal: Removal | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute columns of the residual, and the columns by which the next points are removed.

        Parameters
        ----------
        index : Tensor [c]
            Rows of the data.
        slots : list of int
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
        product = self.times(torch.cat([W, self.T[:, slots].T]))  # [c + k, n]
        return K.sub_(product[: len(index)]), product[len(index) :]

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
        dE_V = self._E_V_reduction(uu) if log_ratios is None else log_ratios
        reduction = reductions((yr - cNb) / root, s, self.s2, dE_V)
        # s >= s2, since r'r - b'N b >= 0. A smaller s is rounding, and so is a reduction that follows from it.
        return Addition(D, uu, yr / root, s, reduction.masked_fill_(explained | (s < self.s2), -math.inf))

    def _E_V_reduction(self, uu: Tensor) -> Tensor | float:
        """Eq 16, the decrease of E_V by columns with these u'u; 0 where the objective has no E_V."""
        return uu / self.s2 if self.objective == "vfe" else 0.0

    def approximate_E_V_reduction(self, removal: Removal, t: Tensor, D: Tensor, uu: Tensor) -> Tensor | float:
        """Estimate the decrease of E_V by every row [n] as a new column u_i = t_i't_j / |t_j|.

        Parameters
        ----------
        removal : Removal
        t : Tensor [z, n]
            A root of the approximated residual, without the removed point.
        D, uu : Tensor [n]
            |t_j|^2 and the approximated u'u.
        """
        if not self.is_tight:
            return self._E_V_reduction(uu)
        V, n, dE_V = removal.V.to(t), len(D), torch.empty_like(D)
        of_sample, V_sample = t[:, self.sample].T, V[self.sample]
        for begin in range(0, n, WIDTH):
            rows = slice(begin, begin + WIDTH)
            unit = t[:, rows] * D[rows].clamp_min(torch.finfo(t.dtype).tiny).rsqrt()  # [z, block]
            squares = (of_sample @ unit).square_()  # [k, block]
            dE_V[rows] = estimate(squares, V_sample, (D[rows], V[rows]), uu[rows], -1.0, n)
        return dE_V

    # -- accepting a swap ------------------------------------------------------------------------------------------

    def accept(self, removal: Removal, row: int, new: Column) -> Change:
        """Put data row `row` in the place of the removed point. O(m^2) and a few passes over [n]."""
        (v, u, a), w, i = new.vua, removal.w, removal.position
        removed = self.inducing_rows[i]
        vectors = swap_vectors(removal, new, self.L.each_row([row, removed]))
        change = Change(vectors, update_T(self.T, (self.TGT, self.TPT), removal, vectors, new.s))
        self._G.add_both(vectors.G_change)
        self._P.add_both(vectors.P_change)
        self.logdet += math.log(removal.kappa) + math.log(new.s)
        self.c.add_(w, alpha=new.yu - removal.yv)
        up = vectors.P_change[3]
        self.Pc.addcmul_(up, up @ self.c).sub_(removal.q, alpha=removal.qc / removal.kappa)
        self.D.addcmul_(v, v).addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.trace += removal.vv - new.uu
        self.inducing[i] = self.inducing_rows[i] = row
        self.terms = self._terms()
        self.reads += 2 * self.L.add(a[None], w[None])
        return change
