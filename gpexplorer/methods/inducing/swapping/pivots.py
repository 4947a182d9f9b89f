"""Information pivots: a few residual columns, kept up to date, that score every row as a replacement.

For pivots J, the residual R = K - Khat has columns E [z, n]; R is approximated by E' C^+ E with C = E[:, J], and
candidate j's column by u_j = E' C^+ e_j / sqrt(e_j' C^+ e_j) (Cao et al. 2013, section 3.3.1). With C^+ = F'F and
t_j = F e_j, the terms of eqs 14-16 are quadratic forms in t_j / |t_j|, so all n scores cost O(n z^2).

Kept beside E: H = L'E' [m, z], P H, and the products E E', E y. A swap changes each by a rank or a few, so L is not
read, and E once and written once, since with v = L w and w'P^-1 = w'G

    E v = H'w,   P L'v = w - s2 P w

For a pivot itself the scores are exact, and free: the better of the best pivot and the best proposal is taken.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .factor import Factor
from .swap_effects import Addition, Column, Proposals, Removal, reductions


class Pivots:
    """z residual columns and what a swap needs of them. Memory O(n z)."""

    def __init__(self, factor: Factor, rows: Tensor, E: Tensor, oldest: int, ranked: Tensor | None) -> None:
        """Of these rows, their residual columns E [z, n] given; one product with L."""
        self.factor, self.rows, self.E, self.oldest = factor, rows.clone(), E, oldest
        self.ranked = rows[:0].clone() if ranked is None else ranked  # those that a score chose, the best first
        self.H = factor.transposed_times(E)
        self.PH = factor.P @ self.H
        self.EE, self.Ey = E @ E.T, E @ factor.train.y

    def guesses(self) -> Tensor:
        """The order in which scores chose them, upwards; -inf where none did: [z]."""
        if not len(self.ranked):
            return torch.full_like(self.Ey, -math.inf)
        found = self.rows[:, None] == self.ranked
        place = found.to(torch.uint8).argmax(1).to(self.Ey)
        return torch.where(found.any(1), -place, -math.inf)

    def without(self, removal: Removal) -> View:
        """The pivots' view of the model without the removed point. O(n z + m^2 z)."""
        return View(self, removal)

    def accepted(self, view: View, new: Column, row: int, removed: int) -> None:
        """Follow L <- L + (u - v) w'. If `row` was a pivot, the removed point takes its slot for nothing."""
        removal, v, u, uu, uv, vv = view.removal, view.removal.v, new.u, new.uu, new.uv, view.removal.vv
        vJ, uJ, Ev, Eu = view.vJ, u[self.rows], view.Ev, new.Eu.add(view.vJ, alpha=uv)
        left, right = [vJ, Ev.add(vJ, alpha=0.5 * vv), -uJ], Eu.sub(uJ, alpha=0.5 * uu)
        self.EE.addmm_(torch.stack([*left, -right], 1), torch.stack([left[1], vJ, right, uJ]))
        self.Ey.add_(vJ, alpha=removal.yv).sub_(uJ, alpha=new.yu)
        self.E.addmm_(torch.stack([vJ, -uJ], 1), torch.stack([v, u]))
        Eu, Ev = Eu - uu * uJ, Ev + vv * vJ - uv * uJ
        g = new.Nb - removal.w
        self._follow(removal, new, g, torch.stack([vJ, -uJ, Eu - Ev]))
        slot = torch.nonzero(self.rows == row)
        if len(slot):
            i, nu, mu = int(slot[0]), float(v[removed]), float(u[removed])
            h = nu * (removal.Lv + (uv - vv) * removal.w) - mu * (new.b + (uu - uv) * removal.w)  # L'v, L'u: the new L
            Ph = nu * removal.NLv() - mu * new.Nb + (float(g @ h) / new.s) * g
            self.put(i, removed, nu * v - mu * u, (h, Ph), nu * Ev - mu * Eu)

    def _follow(self, removal: Removal, new: Column, g: Tensor, right: Tensor) -> None:
        """H by rank three, `right` [3, z] beside L'v, L'u and w, and P H with it. O(m z)."""
        w, q, kappa = removal.w, removal.q, removal.kappa
        self.H.addmm_(torch.stack([removal.Lv, new.b, w], 1), right)
        pair = torch.stack([q, g])
        along = (pair @ self.H) * pair.new_tensor([[-1.0 / kappa], [1.0 / new.s]])
        PY = [w - self.factor.s2 * q, new.Nb + (float(q @ new.b) / kappa) * q, q, q, g]
        self.PH.addmm_(torch.stack(PY, 1), torch.cat([right, along]))

    def recycle(self, removal: Removal, tested: Proposals, room: int = 0) -> None:
        """Columns already paid for by a rejected proposal replace the oldest pivots, or up to `room` join them."""
        for k, row in enumerate(tested.rows.tolist()):
            if bool((self.rows == row).any()):
                continue
            slot = self.oldest
            if room > 0:
                room, slot = room - 1, len(self.rows)
                self._grow()
            v_row = float(removal.v[row])
            column = tested.R[k] - v_row * removal.v
            h = tested.B[:, k] - v_row * removal.Lv
            self.put(slot, row, column, (h, self.factor.P @ h), self.E @ column)
            self.oldest = self.oldest if slot != self.oldest else (self.oldest + 1) % len(self.rows)

    def _grow(self) -> None:
        """One more slot, empty."""
        z = len(self.rows)
        self.rows = torch.cat([self.rows, self.rows.new_full((1,), -1)])
        self.E = torch.cat([self.E, self.E.new_zeros(1, self.E.shape[1])])
        self.H, self.PH = (torch.cat([held, held.new_zeros(len(held), 1)], 1) for held in (self.H, self.PH))
        self.Ey = torch.cat([self.Ey, self.Ey.new_zeros(1)])
        self.EE, held = self.EE.new_zeros(z + 1, z + 1), self.EE
        self.EE[:z, :z] = held

    def put(self, slot: int, row: int, column: Tensor, h: tuple[Tensor, Tensor], products: Tensor) -> None:
        """Pivot `slot` becomes `row`: its residual column [n], h = L'column and P h [m], its products with all [z]."""
        self.rows[slot], self.E[slot], (self.H[:, slot], self.PH[:, slot]) = row, column, h
        self.EE[slot] = self.EE[:, slot] = products
        self.EE[slot, slot] = column @ column
        self.Ey[slot] = float(self.factor.train.y @ column)


class View:
    """Scores of every row for the place that one removal leaves open."""

    def __init__(self, pivots: Pivots, removal: Removal) -> None:
        self.pivots, self.removal, self.factor = pivots, removal, pivots.factor
        self.vJ = removal.v[pivots.rows]  # [z]
        self.Ev, qH, self.cPH = torch.stack([removal.w, removal.q, self.factor.Pc]) @ pivots.H  # [z] each
        self.along = qH / removal.kappa  # N h = P h - q along, for a column h of H

    def exact(self) -> Addition:
        """The exact effect of adding each pivot: [z]. O(m z)."""
        f, p, r, vJ, Ev, along = self.factor, self.pivots, self.removal, self.vJ, self.Ev, self.along
        D = p.E.gather(1, p.rows[:, None])[:, 0].addcmul(vJ, vJ)
        uu = p.EE.diagonal() + (2.0 * Ev + r.vv * vJ) * vJ
        hNh = torch.linalg.vecdot(p.H, p.PH, dim=0).addcmul_(along, along, value=-r.kappa)
        bNb = hNh + (2.0 * (Ev - along) + (r.vv + f.s2 - 1.0 / r.kappa) * vJ) * vJ
        cNb = self.cPH - r.qc * along + (r.wc - r.qc / r.kappa) * vJ
        return f.exact(p.rows, D, uu, p.Ey + r.yv * vJ, bNb, cNb)

    def approximate(self) -> Tensor:
        """The approximate fall of the objective for every row [n]; -inf where a row is explained or inducing."""
        f, p, r = self.factor, self.pivots, self.removal
        pair = torch.stack([self.vJ, self.Ev.add(self.vJ, alpha=r.vv)])
        EE = p.EE + pair.T @ torch.stack([self.Ev, self.vJ])
        B = p.H.addr(r.Lv, self.vJ)  # [m, z]
        NB = p.PH.addr(r.NLv(), self.vJ).addr_(r.q, self.along, alpha=-1.0)  # [m, z]
        C = p.E[:, p.rows].addr_(self.vJ, self.vJ)
        values, vectors = torch.linalg.eigh(0.5 * (C + C.T))
        floor = C.shape[0] * 1e2 * torch.finfo(C.dtype).eps * values[-1].clamp_min(0.0)
        F = torch.where(values > floor, values.clamp_min(1e-300).rsqrt(), 0.0)[:, None] * vectors.T  # [z, z]
        lengths, turn = torch.linalg.eigh(F @ EE @ F.T)
        F = turn.T @ F  # whitened all the same, and orthogonal in n as well: one form of the two is diagonal
        S = torch.diag(lengths) - F @ (B.T @ NB) @ F.T
        g = F @ (p.Ey + r.yv * self.vJ - NB.T @ f.c)  # [z]
        # The whitened columns are formed in full precision; ranking them needs no more than single.
        Tz = (F @ p.E).addr_(F @ self.vJ, r.v).float()  # [z, n]
        D, uu = torch.stack([torch.ones_like(lengths), lengths]).float() @ Tz.square()
        s = (S.float() @ Tz).mul_(Tz).sum(0).div_(D).add_(f.s2)
        scores = reductions((g.float() @ Tz).mul_(D.rsqrt()), s, uu.div_(D), f.s2, f.objective).to(r.v)
        return scores.masked_fill_(f.is_inducing | (D.to(r.v) <= f.least), -math.inf)

    def pivot(self, k: int, found: Addition) -> Column:
        """Pivot k, ready to be added."""
        p, r, at, root = self.pivots, self.removal, float(self.vJ[k]), math.sqrt(float(found.D[k]))
        Nb = p.PH[:, k] - float(self.along[k]) * r.q + at * r.NLv()
        return Column(
            u=p.E[k].add(r.v, alpha=at).div_(root),
            b=p.H[:, k].add(r.Lv, alpha=at).div_(root),
            Nb=Nb.div_(root),
            uu=float(found.uu[k]),
            uv=(float(self.Ev[k]) + at * r.vv) / root,
            yu=float(found.yu[k]),
            s=float(found.s[k]),
            Eu=p.EE[:, k].add(self.Ev, alpha=at).div_(root),
        )

    def proposal(self, k: int, tested: Proposals) -> Column:
        """Proposal k, ready to be added."""
        found, root = tested.found, math.sqrt(float(tested.found.D[k]))
        u, b, Nb = tested.R[k] / root, tested.B[:, k] / root, tested.NB[:, k] / root
        sizes = float(found.uu[k]), float(u @ self.removal.v), float(found.yu[k]), float(found.s[k])
        return Column(u, b, Nb, *sizes, self.pivots.E @ u)
