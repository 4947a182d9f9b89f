"""The factored sparse GP that swaps one inducing point for another without rotating anything.

Rows I of the data are the inducing points; L [n, m] is any root of the Nystrom matrix, Khat = L L', and L_Z its rows I.

    removing i    w = L_Z^-1 e_i / |L_Z^-1 e_i|,   v = L w        Khat - v v' is the model without i
    adding j      u = (k_j - Khat_j + v v_j) / sqrt(D_j)          D = diag(K - Khat)
    both          L <- L + (u - v) w'

since L_Z w is a multiple of e_i: v vanishes at every other inducing point. The paper (Cao et al. 2013, section 3.2)
permutes columns by Givens sweeps and downdates a QR factor; here no column moves. Its Q and R are not kept either:
with P = (L'L + s2 I)^-1, q = P w, kappa = w'q,

    N = P - q q' / kappa                       inverse of the model without i
    log |.| falls by log(1 / kappa)
    adding u: with b = L'u, s = u'u + s2 - b'N b, e = y'u - c'N b, c = L'y
        dE_D = e^2 / (s2 s),  dE_C = log s2 - log s,  dE_V = u'u / s2          eqs 14-16, as reductions

A swap reads L in two sweeps: one multiplies it by the proposals' rows and by the next removal's w together, the
other by the proposals' residuals. Rank-one changes of L, G = L'L + s2 I and P wait and are folded in together.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ....linalg.cholesky import cholesky, logdet
from ....linalg.deferred_updates import DeferredUpdates
from ....objectives import Terms, noise_variance
from ....problem import Dataset, Kernel
from ..distinct_rows import rounding
from .swap_effects import Addition, Change, Column, Proposals, Removal, reductions

QUEUE = 16  # swaps whose changes wait before they are folded into L, G and P


class Factor:
    """L and the few [m] and [m, m] quantities that follow it through swaps. Memory n m numbers + O(m^2)."""

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, inducing: Tensor, objective: str) -> None:
        self.kernel, self.theta, self.train, self.objective = kernel, theta, train, objective
        self.s2, self.yy = noise_variance(theta), float(train.y @ train.y)
        self.prior = kernel.diag(theta, train.X)  # [n]
        self.reads = 0  # passes over L since it was last set to nothing, a write counted as one
        self.least = rounding(train.y.dtype) * self.prior  # [n] below it a residual is rounding
        self.build(inducing)

    def build(self, inducing: Tensor) -> None:
        """Everything from scratch: 2 n m^2 flops, n m kernel entries."""
        n, m, y = len(self.train), len(inducing), self.train.y
        Z = self.train.rows(inducing).X
        L_mm, self.jitter = cholesky(self.kernel(self.theta, Z, Z), "K_mm")
        K_mn = self.kernel(self.theta, Z, self.train.X)
        L = torch.linalg.solve_triangular(L_mm, K_mn, upper=False).T.contiguous()  # [n, m], rows in one piece
        self.inducing = inducing.clone()
        self.is_inducing = torch.zeros(n, dtype=torch.bool, device=y.device)
        self.is_inducing[inducing] = True
        G = L.T @ L  # [m, m] = L'L + s2 I
        self.trace = float(self.prior.sum()) - float(G.diagonal().sum())
        G.diagonal().add_(self.s2)
        L_A = cholesky(G, "L'L + s2 I").L
        P, self.logdet = torch.cholesky_inverse(L_A), logdet(L_A)
        self.T = T = torch.linalg.solve_triangular(L[inducing], torch.eye(m).to(y), upper=False)  # L_Z^-1
        self.TPT, self.TGT = (torch.linalg.vecdot(T, M @ T, dim=0) for M in (P, G))  # [m] diagonals of T'P T, T'G T
        self.c = L.T @ y  # [m]
        self.Pc = P @ self.c  # [m]
        self.D = (self.prior - torch.linalg.vector_norm(L, dim=1).square()).clamp_min_(0.0)  # [n]
        self.L, self._G, self._P = (
            DeferredUpdates(L, QUEUE),
            DeferredUpdates(G, 2 * QUEUE),
            DeferredUpdates(P, 2 * QUEUE),
        )
        self.terms = self._terms()

    @property
    def m(self) -> int:
        return len(self.inducing)

    @property
    def G(self) -> Tensor:
        """L'L + s2 I [m, m]."""
        return self._G.applied()

    @property
    def P(self) -> Tensor:
        """Its inverse."""
        return self._P.applied()

    @property
    def total(self) -> float:
        """The objective, from the carried terms."""
        return self.terms.total(self.objective)

    def _terms(self) -> Terms:
        """Eqs 7-9 from the carried factors."""
        fit = (self.yy - float(self.c @ self.Pc)) / self.s2
        complexity = (len(self.train) - self.m) * math.log(self.s2) + self.logdet
        return Terms(fit, complexity, self.trace / self.s2)

    # -- sweeps over L ---------------------------------------------------------------------------------------------

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

    # -- the swap --------------------------------------------------------------------------------------------------

    def direction(self, position: int) -> Tensor:
        """w [m]: the direction of L that only inducing point `position` uses."""
        t = self.T[:, position]
        return t / t.norm()

    def remove(self, position: int, v: Tensor, products: tuple[Tensor, Tensor] | None = None) -> Removal:
        """The model without the inducing point at `position`, given v = L w [n], and G w and P w [m] if at hand."""
        w = self.direction(position)
        Gw, q = products or (self.G @ w, self.P @ w)
        Lv = Gw - self.s2 * w
        vv = float(w @ Lv)
        kappa, qc, kept = float(w @ q), float(q @ self.c), self.terms
        terms = Terms(
            kept.fit + qc**2 / (kappa * self.s2),
            kept.complexity + math.log(self.s2) + math.log(kappa),
            kept.trace + vv / self.s2,
        )
        return Removal(position, w, v, Lv, vv, float(self.train.y @ v), q, kappa, float(w @ self.c), qc, terms)

    def residual_columns(
        self, index: Tensor, slots: list[int], removal: Removal | None = None
    ) -> tuple[Tensor, Tensor]:
        """Residual columns [c, n] of rows `index`, also without the removed point, and L T [k, n] at `slots`.

        One read of L.
        """
        K = self.kernel(self.theta, self.train.rows(index).X, self.train.X)  # [c, n]
        W = self.rows(index)  # [c, m]
        if removal is not None:
            W.addr_(removal.v[index], removal.w, alpha=-1.0)
        product = self.times(torch.cat([W, self.T[:, slots].T]))
        return K.sub_(product[: len(index)]), product[len(index) :]

    def propose(self, removal: Removal, rows: Tensor, R: Tensor) -> Proposals:
        """What adding each of c `rows` would do, their residual columns R [c, n] given: one read of L."""
        B = self.transposed_times(R)
        NB = removal.solve(self.P, B)
        products = torch.linalg.vecdot(R, R), R @ self.train.y, torch.linalg.vecdot(B, NB, dim=0), self.c @ NB
        return Proposals(rows, R, B, NB, self.exact(rows, R.gather(1, rows[:, None])[:, 0], *products))

    def exact(self, rows: Tensor, D: Tensor, *products: Tensor) -> Addition:
        """Exact effect of c candidates by their unnormalised columns r: D and r'r, y'r, b'N b, c'N b [c], b = L'r."""
        explained = self.is_inducing[rows] | (D <= self.least[rows])
        D = D.masked_fill(explained, 1.0)
        (uu, yu, bNb, cNb), root = products, D.sqrt()
        uu, s = uu / D, (uu - bNb) / D + self.s2
        reduction = reductions((yu - cNb) / root, s, uu, self.s2, self.objective)
        return Addition(D, uu, yu / root, s, reduction.masked_fill_(explained, -math.inf))

    def nothing(self) -> Removal:
        """The model as it is, in the form of one that lacks a point."""
        w, v = torch.zeros_like(self.c), torch.zeros_like(self.D)
        return Removal(-1, w, v, w, 0.0, 0.0, w, 1.0, 0.0, 0.0, self.terms)

    def losses(self) -> Tensor:
        """What the objective would rise by without each of the points [m]. O(m^2)."""
        lengths = torch.linalg.vecdot(self.T, self.T, dim=0)  # a column of T is a direction, but for its length
        kappa, vv = self.TPT / lengths, self.TGT / lengths - self.s2
        rise = (self.Pc @ self.T).square() / (self.TPT * self.s2) + math.log(self.s2) + kappa.log()
        return 0.5 * (rise + vv / self.s2 if self.objective == "vfe" else rise)

    def accept(self, removal: Removal, row: int, new: Column) -> Change:
        """Put data row `row` in the removed point's place. O(m^2) and a few passes over [n]."""
        u, v, w, i = new.u, removal.v, removal.w, removal.position
        a = u - v
        change = self._change(removal, a, row, new)

        root, kept = removal.q / math.sqrt(removal.kappa), change.g / math.sqrt(new.s)
        self._G.add(torch.stack([change.half, w]), torch.stack([w, change.half]))
        self._P.add(torch.stack([-root, kept]), torch.stack([root, kept]))
        self.logdet += math.log(removal.kappa) + math.log(new.s)
        self.c += (new.yu - removal.yv) * w
        self.Pc += float(kept @ self.c) * kept - (removal.qc / removal.kappa) * removal.q
        self.D.addcmul_(v, v).addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.trace += removal.vv - new.uu
        self.is_inducing[self.inducing[i]], self.is_inducing[row] = False, True
        self.inducing[i] = row
        self.terms = self._terms()
        self.reads += 2 * self.L.add(a[None], w[None])
        return change

    def _change(self, removal: Removal, a: Tensor, row: int, new: Column) -> Change:
        """What the swap does to L, G, P and T; T and the diagonals of T'P T and T'G T follow it, T read once."""
        w, i, s2 = removal.w, removal.position, self.s2
        aa = new.uu - 2.0 * new.uv + removal.vv
        half, g = new.b - removal.Lv + (0.5 * aa) * w, new.Nb - w
        swapped = self.rows(torch.stack([self.inducing.new_tensor(row), self.inducing[i]]))  # [2, m]
        tail = a[row] * w + swapped[0] - swapped[1]
        vectors = torch.stack([w, half, g, removal.q, removal.Lv, tail])
        products = vectors @ self.T  # [6, m]
        wT, halfT, gT, qT, LvT, tailT = products
        beta = tailT * (float(wT[i]) / (1.0 + float(tailT[i])))  # Sherman-Morrison: row i of L_Z changes
        self.TGT.addcmul_(beta, beta.mul(removal.vv + s2).sub_(LvT, alpha=2.0).sub_(wT, alpha=2.0 * s2))
        self.TPT.addcmul_(qT, qT, value=-1.0 / removal.kappa)

        self.T.addr_(w, beta, alpha=-1.0)
        products[:3].addr_(vectors[:3] @ w, beta, alpha=-1.0)
        self.TGT.addcmul_(halfT, wT, value=2.0)
        self.TPT.addcmul_(gT, gT, value=1.0 / new.s)
        return Change(a, half, g, new.s, beta, qT, wT, halfT, gT)
