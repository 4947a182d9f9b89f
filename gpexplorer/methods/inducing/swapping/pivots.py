"""Information pivots: a few residual columns, updated through swaps, that score every row as a replacement.

For pivots J, the residual R = K - K_hat has columns E [z, n]. R is approximated by E' C^+ E with C = E[:, J], and the
column of candidate j by u_j = E' C^+ e_j / sqrt(e_j' C^+ e_j) (Cao et al. 2013, section 3.3.1). With C^+ = F'F and
t_j = F e_j, the terms of eqs 14 to 16 are quadratic forms in t_j / |t_j|, so that all n scores cost O(n z^2).

Beside E, this keeps H = L'E' [m, z], P H, and the products E E' and E y. A swap changes each of them by a low rank, so
that L is not read, and E is read once and written once. With v = L w and w'P^-1 = w'G,

    E v = H'w,   P L'v = w - s2 P w

For a pivot itself the scores are exact, at no cost in n. The paper uses pivots only for scores; here they are
candidates too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..logarithmic_trace import log_reductions
from .factor import Factor
from .swap_effects import Addition, Column, Proposals, Removal, reductions


class Pivots:
    """z residual columns, and the products that a swap needs of them. Memory O(n z).

    Parameters
    ----------
    factor : Factor
    rows : Tensor [z]
        Rows of the data.
    E : Tensor [z, n]
        Their residual columns.
    oldest : int
        Slot of the pivot that is replaced next.
    ranked : Tensor, optional
        Those pivots that were chosen by their score, the best first.

    Notes
    -----
    Construction reads L once.
    """

    def __init__(self, factor: Factor, rows: Tensor, E: Tensor, oldest: int, ranked: Tensor | None) -> None:
        self.factor, self.rows, self.E, self.oldest = factor, rows.clone(), E, oldest
        self.ranked = rows[:0].clone() if ranked is None else ranked
        self.rows_on_host, self.ranked_on_host = self.rows.cpu(), self.ranked.cpu()
        self.H = factor.transposed_times(E)  # [m, z]
        self.multiply()
        self.EE, self.Ey = E @ E.T, E @ factor.train.y  # [z, z], [z]

    def multiply(self) -> None:
        """Compute P H from the factor: 2 m^2 z flops."""
        self.PH = self.factor.P @ self.H  # [m, z]

    def ranks_by_score(self) -> Tensor:
        """Minus the position of each pivot in `ranked` [z]; -inf where it was not chosen by a score. On the host."""
        if not len(self.ranked):
            return torch.full((len(self.rows),), -math.inf, dtype=self.Ey.dtype)
        matches = self.rows_on_host[:, None] == self.ranked_on_host  # [z, ranked]
        position = matches.to(torch.uint8).argmax(1).to(self.Ey.dtype)
        return torch.where(matches.any(1), -position, -math.inf)

    def products(self, w: Tensor, q: Tensor, v: Tensor) -> Tensor:
        """What the exact scores need of the model without w [m], where q [m] = P w and v [n] = L w: [10, z].

        The rows are v_J, E v, H'q, H'P c, the diagonals of E, E E' and H'P H, E y, the smallest residual variance that
        is not rounding, and 1 where a pivot is an inducing point.
        """
        f, rows = self.factor, self.rows
        parts = [v[rows][None], torch.stack([w, q, f.Pc]) @ self.H]
        D, hPh = self.E.gather(1, rows[:, None])[:, 0], torch.linalg.vecdot(self.H, self.PH, dim=0)
        carried = torch.stack([D, self.EE.diagonal(), hPh, self.Ey, f.least[rows], f.is_inducing[rows].to(D)])
        return torch.cat([*parts, carried])

    def without(self, removal: Removal) -> ReplacementScores:
        """Score rows for the model without the removed point. O(n z + m^2 z)."""
        return ReplacementScores(self, removal)

    def accepted(self, scores: ReplacementScores, new: Column, removed: int, slot: int | None) -> None:
        """Follow L <- L + (u - v) w'. If the new row was the pivot in `slot`, the removed point takes its place."""
        removal, v, u, uu, uv, vv = scores.removal, scores.removal.v, new.u, new.uu, new.uv, scores.removal.vv
        # E <- E + vJ v' - uJ u'
        vJ, uJ, Ev, Eu = scores.vJ, u[self.rows], scores.Ev, new.Eu.add(scores.vJ, alpha=uv)
        left, right = [vJ, Ev.add(vJ, alpha=0.5 * vv), -uJ], Eu.sub(uJ, alpha=0.5 * uu)
        self.EE.addmm_(torch.stack([*left, -right], 1), torch.stack([left[1], vJ, right, uJ]))
        self.Ey.add_(vJ, alpha=removal.yv).sub_(uJ, alpha=new.yu)
        self.E.addmm_(torch.stack([vJ, -uJ], 1), torch.stack([v, u]))
        Eu, Ev = torch.sub(Eu, uJ, alpha=uu), torch.add(Ev, vJ, alpha=vv).sub_(uJ, alpha=uv)  # with the new E
        g = new.Nb - removal.w
        self._update_H(removal, new, g, torch.stack([vJ, -uJ, Eu - Ev]))
        if slot is not None:  # the residual column of the removed point is nu v - mu u
            nu, mu = v[removed], u[removed]
            # with the new L, h = nu (L'v + (uv - vv) w) - mu (L'u + (uu - uv) w), and P h = nu N L'v - mu N L'u + ...
            h = torch.mul(removal.Lv, nu).addcmul_(removal.w, nu, value=uv - vv)
            h.addcmul_(new.b, mu, value=-1.0).addcmul_(removal.w, mu, value=uv - uu)
            Ph = torch.mul(removal.w, nu).addcmul_(removal.q, nu, value=-1.0 / removal.kappa)
            Ph.addcmul_(new.Nb, mu, value=-1.0).addcmul_(g, g @ h, value=1.0 / new.s)
            column, products = torch.mul(v, nu).addcmul_(u, mu, value=-1.0), torch.mul(Ev, nu)
            self.put(slot, removed, column, (h, Ph), products.addcmul_(Eu, mu, value=-1.0))

    def _update_H(self, removal: Removal, new: Column, g: Tensor, right: Tensor) -> None:
        """Change H by rank three, `right` [3, z] being multiplied by L'v, L'u and w; and P H with it. O(m z)."""
        w, q, kappa = removal.w, removal.q, removal.kappa
        self.H.addmm_(torch.stack([removal.Lv, new.b, w], 1), right)
        inner = torch.stack([q, g]) @ self.H  # [2, z]
        inner[0].mul_(-1.0 / kappa)
        inner[1].mul_(1.0 / new.s)
        PY = [torch.sub(w, q, alpha=self.factor.s2), torch.addcmul(new.Nb, q, q @ new.b, value=1.0 / kappa), q, q, g]
        self.PH.addmm_(torch.stack(PY, 1), torch.cat([right, inner]))

    def recycle(self, removal: Removal, proposals: Proposals, room: int = 0) -> None:
        """Make pivots of rejected proposals, whose columns are known already.

        The first `room` of them are added; the others replace the oldest pivots.
        """
        for k, row in enumerate(proposals.rows.tolist()):
            if row in self.rows_on_host.tolist():
                continue
            slot = self.oldest
            if room > 0:
                room, slot = room - 1, len(self.rows)
                self._add_empty_slot()
            v_row = float(removal.v[row])
            column = proposals.R[k] - v_row * removal.v  # residual of the model with the point put back
            h = proposals.B[:, k] - v_row * removal.Lv
            self.put(slot, row, column, (h, self.factor.P @ h), self.E @ column)
            self.oldest = self.oldest if slot != self.oldest else (self.oldest + 1) % len(self.rows)

    def _add_empty_slot(self) -> None:
        z = len(self.rows)
        self.rows = torch.cat([self.rows, self.rows.new_full((1,), -1)])
        self.rows_on_host = self.rows.cpu()
        self.E = torch.cat([self.E, self.E.new_zeros(1, self.E.shape[1])])
        self.H, self.PH = (torch.cat([M, M.new_zeros(len(M), 1)], 1) for M in (self.H, self.PH))
        self.Ey = torch.cat([self.Ey, self.Ey.new_zeros(1)])
        EE = self.EE
        self.EE = EE.new_zeros(z + 1, z + 1)
        self.EE[:z, :z] = EE

    def put(self, slot: int, row: int, column: Tensor, h: tuple[Tensor, Tensor], products: Tensor) -> None:
        """Make `row` the pivot in `slot`.

        Parameters
        ----------
        slot, row : int
        column : Tensor [n]
            The residual column of the row.
        h : tuple of two Tensors [m]
            L'column and P L'column.
        products : Tensor [z]
            Products of the column with all rows of E.
        """
        self.rows[slot] = self.rows_on_host[slot] = row
        self.E[slot], (self.H[:, slot], self.PH[:, slot]) = column, h
        self.EE[slot] = self.EE[:, slot] = products
        self.EE[slot, slot] = column @ column
        self.Ey[slot] = self.factor.train.y @ column


class ReplacementScores:
    """Approximate and exact scores of rows for the place that one removal leaves open.

    Parameters
    ----------
    pivots : Pivots
    removal : Removal
    """

    def __init__(self, pivots: Pivots, removal: Removal) -> None:
        self.pivots, self.removal, self.factor = pivots, removal, pivots.factor
        here, self.on_host = removal.pivot_products or self._products()  # [10, z] each
        self.vJ, self.Ev, self.qH, _, self.D = here[:5]  # [z] each

    def _products(self) -> tuple[Tensor, Tensor]:
        here = self.pivots.products(self.removal.w, self.removal.q, self.removal.v)
        return here, here.cpu()

    def exact(self) -> Addition:
        """Compute the exact effect of each pivot (eqs 14 to 16). O(z), on the host; the tight VFE O(n z).

        The host has to know the best pivot in any case. On a GPU, these operations on z numbers would be 60 launches.
        """
        f, r, log_ratios = self.factor, self.removal, None
        if f.is_tight:
            log_ratios = log_reductions(self.pivots.E, self.D.addcmul(self.vJ, self.vJ), r.V, r.v, self.vJ).cpu()
        vJ, Ev, qH, cPH, D, rr, hPh, Ey, least, is_inducing = self.on_host
        qh = qH / r.kappa  # [z]: N h = P h - q (q'h / kappa) for a column h of H
        D = D.addcmul(vJ, vJ)  # [z]
        rr = rr + (2.0 * Ev + r.vv * vJ) * vJ
        hNh = hPh.addcmul(qh, qh, value=-r.kappa)
        bNb = hNh + (2.0 * (Ev - qh) + (r.vv + f.s2 - 1.0 / r.kappa) * vJ) * vJ
        cNb = cPH - r.qc * qh + (r.wc - r.qc / r.kappa) * vJ
        explained = (is_inducing > 0.0) | (D <= least)
        return f.additions(explained, D, rr, Ey + r.yv * vJ, bNb, cNb, log_ratios=log_ratios)

    def approximate(self) -> Tensor:
        """Compute the approximate decrease of the objective by every row [n] (section 3.3.1).

        -inf where a row is an inducing point or already explained. n z^2 flops.
        """
        f, p, r = self.factor, self.pivots, self.removal
        pair = torch.stack([self.vJ, self.Ev.add(self.vJ, alpha=r.vv)])
        EE = p.EE + pair.T @ torch.stack([self.Ev, self.vJ])  # [z, z], of the model without the point, as all below
        B = p.H.addr(r.Lv, self.vJ)  # [m, z]
        NB = p.PH.addr(r.NLv(), self.vJ).addr_(r.q, self.qH, alpha=-1.0 / r.kappa)  # [m, z]
        C = p.E[:, p.rows].addr_(self.vJ, self.vJ)  # [z, z]
        values, vectors = torch.linalg.eigh(0.5 * (C + C.T))
        floor = C.shape[0] * 1e2 * torch.finfo(C.dtype).eps * values[-1].clamp_min(0.0)
        F = torch.where(values > floor, values.clamp_min(1e-300).rsqrt(), 0.0)[:, None] * vectors.T  # [z, z]
        # F is rotated so that both |t|^2 and u'u are diagonal forms: C^+ = F'F still holds.
        lengths, rotation = torch.linalg.eigh(F @ EE @ F.T)
        F = rotation.T @ F
        S = torch.diag(lengths) - F @ (B.T @ NB) @ F.T  # [z, z]: t'S t / |t|^2 = u'u - b'N b
        g = F @ (p.Ey + r.yv * self.vJ - NB.T @ f.c)  # [z]: g't / |t| = e
        # The columns t are formed in full precision; single precision is enough to rank them.
        t = (F @ p.E).addr_(F @ self.vJ, r.v).float()  # [z, n]
        D, uu = torch.stack([torch.ones_like(lengths), lengths]).float() @ t.square()  # [n] each
        s = (S.float() @ t).mul_(t).sum(0).div_(D).add_(f.s2)  # [n]
        dE_V = f.approximate_E_V_reduction(r, t, D, uu.div_(D))
        scores = reductions((g.float() @ t).mul_(D.rsqrt()), s, f.s2, dE_V).to(r.v)
        return scores.masked_fill_(f.is_inducing | (D.to(r.v) <= f.least), -math.inf)

    def pivot_column(self, k: int, addition: Addition) -> Column:
        """Return pivot k as the new column of L."""
        p, r, root = self.pivots, self.removal, math.sqrt(float(addition.D[k]))
        v_k, Ev_k, qH_k = self.on_host[:3, k].tolist()
        Nb = torch.sub(p.PH[:, k], r.q, alpha=(qH_k + v_k) / r.kappa).add_(r.w, alpha=v_k)
        return Column(
            u=p.E[k].add(r.v, alpha=v_k).div_(root),
            b=p.H[:, k].add(r.Lv, alpha=v_k).div_(root),
            Nb=Nb.div_(root),
            uu=float(addition.uu[k]),
            uv=(Ev_k + v_k * r.vv) / root,
            yu=float(addition.yu[k]),
            s=float(addition.s[k]),
            Eu=p.EE[:, k].add(self.Ev, alpha=v_k).div_(root),
        )

    def proposal_column(self, k: int, proposals: Proposals) -> Column:
        """Return proposal k as the new column of L."""
        addition, root = proposals.addition, math.sqrt(float(proposals.addition.D[k]))
        u = proposals.R[k] / root
        return Column(
            u=u,
            b=proposals.B[:, k] / root,
            Nb=proposals.NB[:, k] / root,
            uu=float(addition.uu[k]),
            uv=float(u @ self.removal.v),
            yu=float(addition.yu[k]),
            s=float(addition.s[k]),
            Eu=self.pivots.E @ u,
        )
