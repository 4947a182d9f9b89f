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
from collections.abc import Sequence

import torch
from torch import Tensor

from ..reductions import WIDTH, estimate, log_reductions, reductions
from .factor import Addition, Change, Column, Factor, Proposals, Removal, RemovalNumbers


class Pivots:
    """z residual columns, and the products that a swap needs of them. Memory O(n z).

    Parameters
    ----------
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
        self.HP = torch.stack([factor.transposed_times(E).T] * 2)  # [2, z, m] H' and (P H)'
        self.multiply()
        products = torch.cat([E @ E.T, E.index_select(1, rows), (E @ factor.train.y)[None]]).cpu()
        self.EE, self.C, (self.Ey,) = products.split([len(rows), len(rows), 1])
        self.least = factor.least_on_host[self.rows_on_host]  # [z]
        inducing = set(factor.inducing_rows)
        self.is_inducing = torch.tensor([row in inducing for row in self.rows_on_host.tolist()])  # [z]

    @property
    def H(self) -> Tensor:
        """L'E' [m, z]."""
        return self.HP[0].T

    @property
    def PH(self) -> Tensor:
        """P H [m, z]."""
        return self.HP[1].T

    def multiply(self) -> None:
        """Compute P H from the factor: 2 m^2 z flops."""
        torch.mm(self.HP[0], self.factor.P, out=self.HP[1])

    def ranks_by_score(self) -> Tensor:
        """Minus the position of each pivot in `ranked` [z]; -inf where it was not chosen by a score. On the host."""
        if not len(self.ranked):
            return torch.full((len(self.rows),), -math.inf, dtype=self.Ey.dtype)
        matches = self.rows_on_host[:, None] == self.ranked_on_host  # [z, ranked]
        position = matches.to(torch.uint8).argmax(1).to(self.Ey.dtype)
        return torch.where(matches.any(1), -position, -math.inf)

    def diagonal(self) -> Tensor:
        """The diagonal of H'P H [z]."""
        H, PH = self.HP
        return torch.bmm(H[:, None], PH[:, :, None]).flatten()  # one launch, where a sum of products takes two

    def without(self, removal: Removal) -> ReplacementScores:
        """Score rows for the model without the removed point. O(n z + m^2 z)."""
        return ReplacementScores(self, removal)

    def accepted(self, scores: ReplacementScores, new: Column, change: Change, removed: int, slot: int | None) -> None:
        """Follow L <- L + (u - v) w'. If the new row was the pivot in `slot`, the removed point takes its place."""
        r, uu, uv, uJ = scores.removal.numbers, new.uu, new.uv, new.uJ
        Ev, vJ = scores.on_host[0], scores.on_host[3]
        # E <- E + vJ v' - uJ u'
        Eu = new.Eu.add(vJ, alpha=uv)
        left, right = [vJ, Ev.add(vJ, alpha=0.5 * r.vv), -uJ], Eu.sub(uJ, alpha=0.5 * uu)
        self.EE.addmm_(torch.stack([*left, -right], 1), torch.stack([left[1], vJ, right, uJ]))
        self.Ey.add_(vJ, alpha=r.yv).sub_(uJ, alpha=new.yu)
        self.C.addmm_(torch.stack([vJ, -uJ], 1), torch.stack([vJ, uJ]))
        Eu, Ev = torch.sub(Eu, uJ, alpha=uu), torch.add(Ev, vJ, alpha=r.vv).sub_(uJ, alpha=uv)  # with the new E
        self.is_inducing[self.rows_on_host == removed] = False

        nu, mu = r.nu, new.mu
        own = vJ.new_tensor([[nu, -mu, 0.0]])  # the residual column of the removed point is nu v - mu u
        factors = torch.cat([torch.stack([vJ, -uJ, Eu - Ev], 1), own]).to(new.vua)  # [z + 1, 3]
        self.E.addmm_(factors[:-1, :2], new.vua[:2])
        self.HP[0].addmm_(factors[:-1], change.H_rows)
        besides = change.PH_weights @ self.H  # [2, z]
        self.HP[1].addmm_(factors[:-1], change.PH_rows).addmm_(besides.T, change.PH_besides)
        if slot is None:
            return
        torch.mm(factors[-1:, :2], new.vua[:2], out=self.E[slot : slot + 1])
        h, g = change.pivot[0], change.PH_besides[1]
        self.HP[:, slot] = change.pivot
        self.HP[1, slot].addcmul_(g, g @ h, value=1.0 / new.s)
        self._place(slot, removed, nu * vJ - mu * uJ, nu * Ev - mu * Eu, nu * r.yv - mu * new.yu)
        self.C[slot, slot] = nu**2 - mu**2
        self.EE[slot, slot] = nu**2 * r.vv - 2.0 * nu * mu * uv + mu**2 * uu

    def _place(self, slot: int, row: int, entries: Tensor, products: Tensor, by_y: float) -> None:
        """Write a row into `slot`, with its entries at the pivots, its products with their columns and with y."""
        self.rows[slot] = self.rows_on_host[slot] = row
        self.C[slot] = self.C[:, slot] = entries
        self.EE[slot] = self.EE[:, slot] = products
        self.Ey[slot], self.least[slot], self.is_inducing[slot] = by_y, self.factor.least_on_host[row], False

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
                self.rows = torch.cat([self.rows, self.rows.new_full((1,), -1)])
                self.rows_on_host = self.rows.cpu()
                self.E = torch.cat([self.E, self.E.new_zeros(1, self.E.shape[1])])
                self.HP = torch.cat([self.HP, self.HP.new_zeros(2, 1, self.HP.shape[2])], 1)
                self.EE, self.C = (torch.nn.functional.pad(M, (0, 1, 0, 1)) for M in (self.EE, self.C))
                parts = (self.Ey, self.least, self.is_inducing)
                self.Ey, self.least, self.is_inducing = (torch.cat([part, part.new_zeros(1)]) for part in parts)
            v_row = float(removal.v[row])
            column = proposals.R[k] - v_row * removal.v  # [n] residual of the model with the point put back
            h = proposals.B[:, k] - v_row * removal.Lv  # [m]
            self.E[slot], self.HP[0, slot], self.HP[1, slot] = column, h, self.factor.P @ h
            self.rows[slot] = row
            z, by_y = len(self.rows), (self.factor.train.y @ column)[None]
            host = torch.cat([column[self.rows], self.E @ column, by_y]).cpu()  # [2 z + 1]
            self._place(slot, row, host[:z], host[z:-1], float(host[-1]))
            self.oldest = self.oldest if slot != self.oldest else (self.oldest + 1) % z


class ReplacementScores:
    """Approximate and exact scores of rows for the place that one removal leaves open."""

    def __init__(self, pivots: Pivots, removal: Removal) -> None:
        self.pivots, self.removal, self.factor = pivots, removal, pivots.factor
        self.on_host = self._products() if removal.pivot_products is None else removal.pivot_products  # [8, z]

    def _products(self) -> Tensor:
        """The products of the removal with the pivots; the entries at the removed point are left out."""
        p, r = self.pivots, self.removal
        rows = torch.cat([r.rows, self.factor.c_and_Pc]) @ p.H  # [5, z]
        others = torch.stack([r.v[p.rows], p.diagonal(), torch.zeros_like(rows[0])])
        return torch.cat([rows, others]).cpu()[[0, 1, 2, 5, 3, 4, 6, 7]]

    def exact(self) -> Addition:
        """Compute the exact effect of each pivot (eqs 14 to 16). O(z), on the host; the tight VFE O(n z)."""
        f, p, r = self.factor, self.pivots, self.removal
        if not f.is_tight:
            return exact_effects(p, r.numbers, self.on_host)
        vJ = self.on_host[3].to(r.v)
        with_point = p.C.diagonal().to(r.v).addcmul(vJ, vJ)
        return exact_effects(p, r.numbers, self.on_host, log_reductions(p.E, with_point, r.V, r.v, vJ).cpu())

    def approximate(self) -> Tensor:
        """Compute the approximate decrease of the objective by every row [n] (section 3.3.1).

        -inf where a row is an inducing point or already explained. n z^2 flops.
        """
        f, p, r = self.factor, self.pivots, self.removal
        Ev, qH, vJ = self.on_host[[0, 2, 3]].to(r.v)  # [z] each
        pair = torch.stack([vJ, Ev.add(vJ, alpha=r.numbers.vv)])
        # [z, z], of the model without the point, as all below
        EE = p.EE.to(r.v) + pair.T @ torch.stack([Ev, vJ])
        B = p.H.addr(r.Lv, vJ)  # [m, z]
        NB = p.PH.addr(r.w - r.q / r.numbers.kappa, vJ).addr_(r.q, qH, alpha=-1.0 / r.numbers.kappa)  # [m, z]
        C = p.E[:, p.rows].addr_(vJ, vJ)  # [z, z]
        values, vectors = torch.linalg.eigh(0.5 * (C + C.T))
        floor = C.shape[0] * 1e2 * torch.finfo(C.dtype).eps * values[-1].clamp_min(0.0)
        F = torch.where(values > floor, values.clamp_min(1e-300).rsqrt(), 0.0)[:, None] * vectors.T  # [z, z]
        # F is rotated so that both |t|^2 and u'u are diagonal forms: C^+ = F'F still holds.
        lengths, rotation = torch.linalg.eigh(F @ EE @ F.T)
        F = rotation.T @ F
        S = torch.diag(lengths) - F @ (B.T @ NB) @ F.T  # [z, z]: t'S t / |t|^2 = u'u - b'N b
        g = F @ (p.Ey.to(r.v) + r.numbers.yv * vJ - NB.T @ f.c)  # [z]: g't / |t| = e
        # The columns t are formed in full precision; single precision is enough to rank them.
        t = (F @ p.E).addr_(F @ vJ, r.v).float()  # [z, n]
        D, uu = torch.stack([torch.ones_like(lengths), lengths]).float() @ t.square()  # [n] each
        s = (S.float() @ t).mul_(t).sum(0).div_(D).add_(f.s2)  # [n]
        dE_V = self._estimated_E_V(t, D, uu.div_(D))  # eq 16
        scores = reductions((g.float() @ t).mul_(D.rsqrt()), s, f.s2, dE_V).to(r.v)
        return scores.masked_fill_(f.is_inducing | (D.to(r.v) <= f.least), -math.inf)

    def _estimated_E_V(self, t: Tensor, D: Tensor, uu: Tensor) -> Tensor | float:
        """Estimate the decrease of E_V by every row [n] as a new column u_i = t_i't_j / |t_j|."""
        f = self.factor
        if not f.is_tight:
            return f.trace_reduction(uu)
        V, n, dE_V = self.removal.V.to(t), len(D), torch.empty_like(D)
        of_sample, V_sample = t[:, f.sample].T, V[f.sample]
        for begin in range(0, n, WIDTH):
            rows = slice(begin, begin + WIDTH)
            unit = t[:, rows] * D[rows].clamp_min(torch.finfo(t.dtype).tiny).rsqrt()  # [z, block]
            squares = (of_sample @ unit).square_()  # [k, block]
            dE_V[rows] = estimate(squares, V_sample, (D[rows], V[rows]), uu[rows], -1.0, n)
        return dE_V

    def pivot_column(self, k: int, addition: Addition) -> Column:
        """Return pivot k as the new column of L."""
        p, removal, root = self.pivots, self.removal, math.sqrt(float(addition.D[k]))
        r, v = removal.numbers, removal.v
        Ev, vJ = self.on_host[0], self.on_host[3]
        Ev_k, _, qH_k, v_k, *_, at_removed = self.on_host[:, k].tolist()
        qh, x = qH_k / r.kappa, v_k / root
        vua = v.new_tensor([[1.0, 0.0], [x, 1.0 / root], [x - 1.0, 1.0 / root]]) @ torch.stack([v, p.E[k]])
        b = [-self.factor.s2 * x, x, 0.0, 1.0 / root, 0.0]  # of w, G w, q, h and P h
        Nb = [x, 0.0, -(qh + v_k / r.kappa) / root, 0.0, 1.0 / root]
        uJ = (p.C[k] + v_k * vJ) / root
        return Column(
            vua=vua,
            b_Nb=v.new_tensor([b, Nb]) @ torch.cat([removal.rows, p.HP[:, k]]),
            uu=float(addition.uu[k]),
            uv=(Ev_k + v_k * r.vv) / root,
            yu=float(addition.yu[k]),
            s=float(addition.s[k]),
            qb=(qH_k + v_k * r.qLv) / root,
            mu=(at_removed + v_k * r.nu) / root,
            a_new=float(uJ[k]) - v_k,
            uJ=uJ,
            Eu=(p.EE[:, k] + v_k * Ev) / root,
        )

    def proposal_column(self, k: int, proposals: Proposals, removed: int) -> Column:
        """Return proposal k as the new column of L; `removed` is the row of the removed point."""
        addition, r, row = proposals.addition, self.removal, int(proposals.rows[k])
        root = math.sqrt(float(addition.D[k]))
        u, b, Nb = (part / root for part in (proposals.R[k], proposals.B[:, k], proposals.NB[:, k]))
        numbers = [u @ r.v, r.q @ b, u[removed], u[row] - r.v[row]]
        uv, qb, mu, a_new = torch.stack(numbers).tolist()
        return Column(
            vua=torch.stack([r.v, u, u - r.v]),
            b_Nb=torch.stack([b, Nb]),
            uu=float(addition.uu[k]),
            uv=uv,
            yu=float(addition.yu[k]),
            s=float(addition.s[k]),
            qb=qb,
            mu=mu,
            a_new=a_new,
            uJ=u[self.pivots.rows].cpu(),
            Eu=(self.pivots.E @ u).cpu(),
        )


def exact_effects(
    pivots: Pivots, removed: RemovalNumbers, products: Sequence[Tensor] | Tensor, log_ratios: Tensor | None = None
) -> Addition:
    """Compute the exact effect of each pivot in the place of a removed point, on the host (eqs 14 to 16).

    The host has to know the best pivot in any case. On a GPU, these operations on z numbers would be 60 launches.

    Parameters
    ----------
    removed : RemovalNumbers
        Of one removal, or of k removals as columns [k, 1].
    products : eight Tensors [z] or [k, z]
        As in `Removal.pivot_products`.
    log_ratios : Tensor [z], optional
        The decrease of E_V, which the tight VFE needs.

    Returns
    -------
    Addition
        With entries [z] or [k, z].
    """
    p, r, f = pivots, removed, pivots.factor
    Ev, _, qH, vJ, _, cPH, hPh, _ = products
    qh = qH / r.kappa  # N h = P h - q (q'h / kappa) for a column h of H
    D = vJ.square().add_(p.C.diagonal())
    rr = p.EE.diagonal() + (2.0 * Ev + r.vv * vJ) * vJ
    hNh = hPh - r.kappa * qh.square()
    bNb = hNh + (2.0 * (Ev - qh) + (r.vv + f.s2 - 1.0 / r.kappa) * vJ) * vJ
    cNb = cPH - r.qc * qh + (r.wc - r.qc / r.kappa) * vJ
    explained = p.is_inducing | (D <= p.least)
    return f.additions(explained, D, rr, p.Ey + r.yv * vJ, bNb, cNb, log_ratios=log_ratios)
