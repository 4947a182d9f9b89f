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
other by the proposals' residuals. Rank-one changes wait in a short queue and are folded into L by one product.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...linalg.cholesky import cholesky, logdet
from ...linalg.tall import rows_times, times_rows
from ...objectives import Terms, noise_variance
from ...problem import Dataset, Kernel

QUEUE = 8  # rank-one changes that wait before they are folded into L


class Removal(NamedTuple):
    """The model without one inducing point, beside the model with it."""

    position: int
    w: Tensor  # [m]
    v: Tensor  # [n]
    Lv: Tensor  # [m]
    vv: float
    q: Tensor  # [m]
    kappa: float
    terms: Terms  # of the model without it

    def PLv(self, s2: float) -> Tensor:
        """P L'v [m], for L'v = P^-1 w - s2 w."""
        return self.w - s2 * self.q

    def solve(self, P: Tensor, B: Tensor) -> Tensor:
        """N B [m, k], the inverse of the model without the point."""
        NB = (B.T @ P).T  # P is symmetric, and this order reads it once
        return NB.addr_(self.q, self.q @ B, alpha=-1.0 / self.kappa)


class Addition(NamedTuple):
    """Exact effect of adding each of c candidates to the model without the removed point."""

    D: Tensor  # [c] residual variance of the candidate
    uu: Tensor  # [c] u'u
    s: Tensor  # [c]
    e: Tensor  # [c]
    Nb: Tensor  # [m, c] N L'u
    reduction: Tensor  # [c] fall of the objective, -inf where the candidate is already explained


class Column(NamedTuple):
    """A candidate ready to be added."""

    u: Tensor  # [n]
    b: Tensor  # [m] L'u
    uu: float
    s: float
    Nb: Tensor  # [m]


class Factor:
    """L and the few [m] and [m, m] quantities that follow it through swaps. Memory n m numbers + O(m^2)."""

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, inducing: Tensor, objective: str) -> None:
        self.kernel, self.theta, self.train, self.objective = kernel, theta, train, objective
        self.s2, self.yy = noise_variance(theta), float(train.y @ train.y)
        self.prior = kernel.diag(theta, train.X)  # [n]
        self.reads = 0  # passes over L since it was last set to nothing, a write counted as one
        self.least = 1e5 * torch.finfo(train.y.dtype).eps * self.prior  # [n] below it a residual is rounding
        self.build(inducing)

    def build(self, inducing: Tensor) -> None:
        """Everything from scratch: 2 n m^2 flops, n m kernel entries."""
        n, m, y = len(self.train), len(inducing), self.train.y
        Z = self.train.rows(inducing).X
        L_mm, self.jitter = cholesky(self.kernel(self.theta, Z, Z), "K_mm")
        K_mn = self.kernel(self.theta, Z, self.train.X)
        self.L = torch.linalg.solve_triangular(L_mm, K_mn, upper=False).T.contiguous()  # [n, m], rows in one piece
        self.inducing = inducing.clone()
        self.is_inducing = torch.zeros(n, dtype=torch.bool, device=y.device)
        self.is_inducing[inducing] = True
        self.queue_w, self.queue_a, self.queued = y.new_zeros(QUEUE, m), y.new_zeros(QUEUE, n), 0
        eye = torch.eye(m).to(y)
        self.G = self.L.T @ self.L  # [m, m] = L'L + s2 I
        self.trace = float(self.prior.sum()) - float(self.G.diagonal().sum())
        self.G.diagonal().add_(self.s2)
        L_A = cholesky(self.G, "L'L + s2 I").L
        self.P, self.logdet = torch.cholesky_inverse(L_A), logdet(L_A)
        self.T = torch.linalg.solve_triangular(self.L[inducing], eye, upper=False)  # L_Z^-1
        self.c = self.L.T @ y  # [m]
        self.D = (self.prior - torch.linalg.vector_norm(self.L, dim=1).square()).clamp_min_(0.0)  # [n]
        self.terms = self._terms()

    @property
    def m(self) -> int:
        return len(self.inducing)

    @property
    def total(self) -> float:
        """The objective, from the carried terms."""
        return self.terms.total(self.objective)

    def _terms(self) -> Terms:
        """Eqs 7-9 from the carried factors."""
        fit = (self.yy - float(self.c @ (self.P @ self.c))) / self.s2
        complexity = (len(self.train) - self.m) * math.log(self.s2) + self.logdet
        return Terms(fit, complexity, self.trace / self.s2)

    # -- sweeps over L ---------------------------------------------------------------------------------------------

    def rows(self, index: Tensor) -> Tensor:
        """Rows of L [c, m]."""
        waiting = slice(0, self.queued)
        return self.L[index] + self.queue_a[waiting][:, index].T @ self.queue_w[waiting]

    def times(self, W: Tensor) -> Tensor:
        """W L' [c, n] for W [c, m]: one read of L."""
        waiting = slice(0, self.queued)
        self.reads += 1
        return times_rows(self.L, W).addmm_(W @ self.queue_w[waiting].T, self.queue_a[waiting])

    def transposed_times(self, R: Tensor) -> Tensor:
        """L' R' [m, c] for R [c, n]: one read of L."""
        waiting = slice(0, self.queued)
        self.reads += 1
        return rows_times(R, self.L).addmm_(R @ self.queue_a[waiting].T, self.queue_w[waiting]).T

    # -- the swap --------------------------------------------------------------------------------------------------

    def direction(self, position: int) -> Tensor:
        """w [m]: the direction of L that only inducing point `position` uses."""
        return self.directions([position])[0]

    def directions(self, positions: list[int]) -> Tensor:
        """The same for several points [k, m]."""
        W = self.T[:, positions].T
        return W / W.norm(dim=1, keepdim=True)

    def remove(self, position: int, v: Tensor) -> Removal:
        """The model without the inducing point at `position`, given v = L w [n]. O(m^2)."""
        w = self.direction(position)
        Lv = self.G @ w - self.s2 * w
        vv = float(w @ Lv)
        q = self.P @ w
        kappa = float(w @ q)
        kept = self.terms
        terms = Terms(
            kept.fit + float(q @ self.c) ** 2 / (kappa * self.s2),
            kept.complexity + math.log(self.s2) + math.log(kappa),
            kept.trace + vv / self.s2,
        )
        return Removal(position, w, v, Lv, vv, q, kappa, terms)

    def residual_columns(self, removal: Removal, index: Tensor, also: Tensor) -> tuple[Tensor, Tensor]:
        """Residual columns [c, n] of rows `index` without the removed point, and `also` L' [k, n]: one read of L."""
        K = self.kernel(self.theta, self.train.rows(index).X, self.train.X)  # [c, n]
        W = self.rows(index).addr_(removal.v[index], removal.w, alpha=-1.0)  # [c, m]
        product = self.times(torch.cat([W, also]))
        return K.sub_(product[: len(index)]), product[len(index) :]

    def exact(self, D: Tensor, uu: Tensor, yu: Tensor, B: Tensor, Nb: Tensor) -> Addition:
        """Exact effect of c candidates from unnormalised columns r: D, r'r, y'r [c], B = L'r and N B [m, c]. O(m c)."""
        s = (uu - (B * Nb).sum(0)) / D + self.s2
        e = (yu - self.c @ Nb) / D.sqrt()
        reduction = reductions(e, s, uu / D, self.s2, self.objective)
        return Addition(D, uu / D, s, e, Nb / D.sqrt(), reduction)

    def nothing(self) -> Removal:
        """The model as it is, in the form of one that lacks a point."""
        w, v = torch.zeros_like(self.c), torch.zeros_like(self.D)
        return Removal(-1, w, v, w, 0.0, w, 1.0, self.terms)

    def losses(self) -> Tensor:
        """What the objective would rise by without each of the points [m]. 4 m^3 flops, L is not read."""
        W = self.T / self.T.norm(dim=0)  # a column is a direction
        Q = self.P @ W
        kappa = torch.linalg.vecdot(W, Q, dim=0)
        vv = torch.linalg.vecdot(W, self.G @ W, dim=0) - self.s2
        rise = (self.c @ Q).square() / (kappa * self.s2) + math.log(self.s2) + kappa.log()
        return 0.5 * (rise + vv / self.s2 if self.objective == "vfe" else rise)

    def accept(self, removal: Removal, row: int, new: Column) -> tuple[Tensor, Tensor]:
        """Put data row `row` in the removed point's place. O(m^2) and a few passes over [n].

        Returns a = u - v, which with w is the change of L, and beta [m], by which the columns of T fell along T e_i.
        """
        u, b, uu, s, Nb = new
        w, v, i = removal.w, removal.v, removal.position
        a = u - v
        aa = uu - 2.0 * float(u @ v) + removal.vv
        swapped = self.rows(torch.stack([self.inducing.new_tensor(row), self.inducing[i]]))  # [2, m]
        change = a[row] * w + swapped[0] - swapped[1]
        Ti = self.T[:, i].clone()
        tail = change @ self.T  # [m]
        beta = tail / (1.0 + float(tail[i]))
        self.T.addr_(Ti, beta, alpha=-1.0)  # Sherman-Morrison: row i of L_Z changes

        La = b - removal.Lv
        half, g = La + (0.5 * aa) * w, Nb - w
        self.G.addmm_(torch.stack([half, w], 1), torch.stack([w, half]))
        root, kept = removal.q / math.sqrt(removal.kappa), g / math.sqrt(s)
        self.P.addmm_(torch.stack([-root, kept], 1), torch.stack([root, kept]))
        self.logdet += math.log(removal.kappa) + math.log(s)
        self.c += float(self.train.y @ a) * w
        self.D.addcmul_(v, v).addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.trace += removal.vv - uu
        self.is_inducing[self.inducing[i]], self.is_inducing[row] = False, True
        self.inducing[i] = row
        self.terms = self._terms()
        self._enqueue(w, a)
        return a, beta

    def _enqueue(self, w: Tensor, a: Tensor) -> None:
        self.queue_w[self.queued], self.queue_a[self.queued] = w, a
        self.queued += 1
        if self.queued == QUEUE:
            self.L.addmm_(self.queue_a.T, self.queue_w)
            self.reads += 2
            self.queued = 0


def reductions(e: Tensor, s: Tensor, uu: Tensor, s2: float, objective: str) -> Tensor:
    """Half the fall of the objective, eqs 14-16: [c]."""
    fall = e.square() / (s2 * s) + math.log(s2) - s.log()
    if objective == "vfe":
        fall = fall + uu / s2
    return 0.5 * fall.nan_to_num(nan=-math.inf)
