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

from .factor import Addition, Column, Factor, Removal, reductions


class Pivots:
    """z residual columns and what a swap needs of them. Memory O(n z)."""

    def __init__(self, factor: Factor, rows: Tensor, oldest: int = 0) -> None:
        self.factor = factor
        self.ranked = rows[:0].clone()  # those that a score chose, the best first
        self.choose(rows, oldest)

    def choose(self, rows: Tensor, oldest: int) -> None:
        """Take these rows as pivots: z columns of the kernel, two products with L."""
        f = self.factor
        self.rows, self.oldest = rows.clone(), oldest
        K = f.kernel(f.theta, f.train.rows(rows).X, f.train.X)  # [z, n]
        self.E = K - f.times(f.rows(rows))
        self.H = f.transposed_times(self.E)
        self.PH = f.P @ self.H
        self.EE, self.Ey = self.E @ self.E.T, self.E @ f.train.y

    def guesses(self) -> Tensor:
        """The order in which scores chose them, upwards; nan where none did: [z]."""
        if not len(self.ranked):
            return torch.full_like(self.Ey, math.nan)
        found = self.rows[:, None] == self.ranked
        place = found.to(torch.uint8).argmax(1).to(self.Ey)
        return torch.where(found.any(1), -place, math.nan)

    def without(self, removal: Removal) -> View:
        """The pivots' view of the model without the removed point. O(n z + m^2 z)."""
        return View(self, removal)

    def accepted(self, view: View, new: Column, row: int, removed: int) -> None:
        """Follow L <- L + (u - v) w'. If `row` was a pivot, the removed point takes its slot for nothing."""
        removal, u, b, uu = view.removal, new.u, new.b, new.uu
        v, w, vJ, uJ = removal.v, removal.w, view.vJ, u[self.rows]
        uv, vv = float(u @ v), removal.vv
        Eu = (self.E @ u).add_(vJ, alpha=uv)
        self.EE = view.EE.addr_(Eu, uJ, alpha=-1.0).addr_(uJ, Eu, alpha=-1.0).addr_(uJ, uJ, alpha=uu)
        self.Ey = view.Ey.sub_(uJ, alpha=float(self.factor.train.y @ u))
        self.E.addmm_(torch.stack([vJ, -uJ], 1), torch.stack([v, u]))
        Eu, Ev = Eu - uu * uJ, view.Ev + vv * vJ - uv * uJ
        self._follow(removal, new, torch.stack([vJ, -uJ, Eu - Ev]))
        slot = torch.nonzero(self.rows == row)
        if len(slot):
            i, nu, mu = int(slot[0]), float(v[removed]), float(u[removed])
            h = nu * (removal.Lv + (uv - vv) * w) - mu * (b + (uu - uv) * w)  # by L'v and L'u with the new L
            self.put(i, removed, nu * v - mu * u, h, nu * Ev - mu * Eu)

    def _follow(self, removal: Removal, new: Column, right: Tensor) -> None:
        """H by rank three, `right` [3, z] beside L'v, L'u and w, and P H with it. O(m z)."""
        w, q, kappa = removal.w, removal.q, removal.kappa
        self.H.addmm_(torch.stack([removal.Lv, new.b, w], 1), right)
        self.PH.addmm_(torch.stack([removal.PLv(self.factor.s2), new.Nb + (float(q @ new.b) / kappa) * q, q], 1), right)
        pair = torch.stack([q, new.Nb - w])
        scale = pair.new_tensor([[-1.0 / kappa], [1.0 / new.s]])
        self.PH.addmm_(pair.T, scale * (pair @ self.H))

    def recycle(self, removal: Removal, rows: Tensor, R: Tensor, B: Tensor, room: int = 0) -> None:
        """Columns already paid for by a rejected proposal replace the oldest pivots, or up to `room` join them."""
        for k, row in enumerate(rows.tolist()):
            if bool((self.rows == row).any()):
                continue
            slot = self.oldest
            if room > 0:
                room, slot = room - 1, len(self.rows)
                self._grow()
            v_row = float(removal.v[row])
            column = R[k] - v_row * removal.v
            self.put(slot, row, column, B[:, k] - v_row * removal.Lv, self.E @ column)
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

    def put(self, slot: int, row: int, column: Tensor, h: Tensor, products: Tensor) -> None:
        """Pivot `slot` becomes `row`, with residual column [n], h = L'column [m] and its products with all [z]."""
        self.rows[slot], self.E[slot], self.H[:, slot], self.PH[:, slot] = row, column, h, self.factor.P @ h
        self.EE[slot] = self.EE[:, slot] = products
        self.EE[slot, slot] = column @ column
        self.Ey[slot] = float(self.factor.train.y @ column)


class View:
    """Scores of every row for the place that one removal leaves open."""

    def __init__(self, pivots: Pivots, removal: Removal) -> None:
        f = pivots.factor
        self.pivots, self.removal, self.factor = pivots, removal, f
        self.vJ = removal.v[pivots.rows]  # [z]
        self.Ev = removal.w @ pivots.H  # [z]
        self.C = pivots.E[:, pivots.rows].addr(self.vJ, self.vJ)  # [z, z]
        self.EE = pivots.EE.addr(self.Ev, self.vJ).addr_(self.vJ, self.Ev)  # [z, z]
        self.EE.addr_(self.vJ, self.vJ, alpha=removal.vv)
        self.B = pivots.H.addr(removal.Lv, self.vJ)  # [m, z]
        self.NB = pivots.PH.addr(removal.PLv(f.s2), self.vJ)  # [m, z], N = P - q q' / kappa
        self.NB.addr_(removal.q, removal.q @ self.B, alpha=-1.0 / removal.kappa)
        self.Ey = pivots.Ey + float(f.train.y @ removal.v) * self.vJ  # [z]

    def exact(self) -> Addition:
        """The exact effect of adding each pivot: [z]."""
        D, f = self.C.diagonal(), self.factor
        taken = f.is_inducing[self.pivots.rows] | (D <= f.least[self.pivots.rows])
        D = torch.where(taken, torch.ones_like(D), D)
        found = f.exact(D, self.EE.diagonal(), self.Ey, self.B, self.NB)
        return found._replace(reduction=torch.where(taken, -math.inf, found.reduction))

    def approximate(self) -> Tensor:
        """The approximate fall of the objective for every row [n]; -inf where a row is explained or inducing."""
        f, r = self.factor, self.removal
        C = 0.5 * (self.C + self.C.T)
        values, vectors = torch.linalg.eigh(C)
        floor = C.shape[0] * 1e2 * torch.finfo(C.dtype).eps * values[-1].clamp_min(0.0)
        F = torch.where(values > floor, values.clamp_min(1e-300).rsqrt(), 0.0)[:, None] * vectors.T  # [z, z]
        gram = F @ self.EE @ F.T
        half = self.B @ F.T  # [m, z]
        N_half = self.NB @ F.T
        S = gram - half.T @ N_half
        g = F @ self.Ey - N_half.T @ f.c  # [z]
        # The whitened columns are formed in full precision; ranking them needs no more than single.
        Tz = (F @ self.pivots.E).addr_(F @ self.vJ, r.v).float()  # [z, n]
        D = Tz.square().sum(0)
        s = (S.float() @ Tz).mul_(Tz).sum(0).div_(D).add_(f.s2)
        uu = (gram.float() @ Tz).mul_(Tz).sum(0).div_(D) if f.objective == "vfe" else D
        scores = reductions((g.float() @ Tz).mul_(D.rsqrt()), s, uu, f.s2, f.objective).to(r.v)
        return scores.masked_fill_(f.is_inducing | (D.to(r.v) <= f.least), -math.inf)

    def column(self, slot: int) -> tuple[Tensor, Tensor]:
        """Pivot `slot`'s residual column without the removed point: r [n] and L'r [m]."""
        return self.pivots.E[slot] + float(self.vJ[slot]) * self.removal.v, self.B[:, slot]
