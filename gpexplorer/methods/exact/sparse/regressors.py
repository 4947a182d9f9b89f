"""Sparse rivals that write f as a sum over a few rows and still fit every row: the set grows, a few rows a step.

f = K_nm a,   E = |y - f|^2 / 2 + s2 a'K_mm a / 2                       least squares with the GP's own prior
V = L_mm^-1 K_mn,   A = V V' + s2 I,   u = L_A^-1 V y                   so that min E = (y'y - u'u) / 2
E falls by (k_i'(y - f) - s2 f_i)^2 / (2 (|k_i|^2 + s2 k_ii))           when row i alone joins, Keerthi and Chu
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ....linalg.blocks import row_blocks
from ....linalg.cholesky import cholesky
from ....objectives import noise_variance
from ....problem import Channel, Cost, Problem, channel, take
from ..costs import ENTRY, GAINS, REGRESSORS, filling

CHANNELS: tuple[Channel, ...] = (
    channel("objective", "penalised squares E", monotone=True),
    channel("evidence", "NLML on the subset", "nat"),
    channel("jitter", "jitter on K_mm", log=True),
)


class State(NamedTuple):
    """The rows that f is written in, in the order in which they came."""

    step: int
    phase: str  # "learn" | "grow": what the step was part of
    position: int  # steps done in this phase
    theta: Tensor  # [p]
    inducing: Tensor  # int64 [m]


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: float = math.nan
    evidence: float = math.nan
    jitter: float = math.nan
    active: Tensor = torch.zeros(0, dtype=torch.int64)


class Fit:
    """The fit of a growing set of at most `most` rows: n m numbers, n m c flops for c more."""

    def __init__(self, problem: Problem, theta: Tensor, most: int) -> None:
        self.kernel, self.theta, self.train = problem.kernel, theta, problem.train
        self.s2, self.m, self.jitter = noise_variance(theta), 0, 0.0
        y, most = problem.train.y, min(most, len(problem.train))
        self.rows = torch.zeros(0, dtype=torch.int64, device=y.device)
        self.V, self.f = y.new_empty(most, len(y)), torch.zeros_like(y)
        self.L_mm, self.L_A, self.u = y.new_zeros(most, most), y.new_zeros(most, most), y.new_zeros(most)
        self.diag = problem.kernel.diag(theta, problem.train.X)  # [n]
        self.left = self.diag.clone()  # [n] prior variance that the rows chosen do not explain

    def columns(self, rows: Tensor) -> Tensor:
        """K[rows] [c, n]."""
        return self.kernel(self.theta, take(self.train.X, rows), self.train.X)

    def join(self, new: Tensor) -> None:
        """Take these rows in: the factors of K_mm and A grow by a border, and f is that of the larger set."""
        m, to = self.m, self.m + len(new)
        V = self.V[:m]
        K = self.columns(new)  # [c, n]
        l = V[:, new].T  # noqa: E741 - [c, m], the border of L_mm
        L, jitter = cholesky(K.index_select(1, new) - l @ l.T, "K_mm of the regressors [border]", largest=1e-2)
        self.L_mm[m:to, :m], self.L_mm[m:to, m:to] = l, L
        self.V[m:to] = torch.linalg.solve_triangular(L, K.addmm_(l, V, alpha=-1.0), upper=False)

        V_new, y = self.V[m:to], self.train.y
        b = torch.linalg.solve_triangular(self.L_A[:m, :m], V @ V_new.T, upper=False).T  # [c, m]
        inner = V_new @ V_new.T - b @ b.T
        inner.diagonal().add_(self.s2)
        self.L_A[m:to, :m], self.L_A[m:to, m:to] = b, cholesky(inner, "V V' + s2 I [border]").L
        right = (V_new @ y - b @ self.u[:m])[:, None]
        self.u[m:to] = torch.linalg.solve_triangular(self.L_A[m:to, m:to], right, upper=False)[:, 0]

        self.m, self.rows, self.jitter = to, torch.cat([self.rows, new]), max(self.jitter, jitter)
        weights = torch.linalg.solve_triangular(self.L_A[:to, :to].T, self.u[:to, None], upper=True)[:, 0]
        self.f = self.V[:to].T @ weights
        self.left = (self.left - V_new.square().sum(0)).clamp_min_(0.0)
        self.left[new] = 0.0

    @property
    def value(self) -> float:
        """E at its least over this set."""
        return 0.5 * (float(self.train.y @ self.train.y) - float(self.u[: self.m].square().sum()))

    def gains(self, rows: Tensor) -> Tensor:
        """The fall of E [c] that each row alone would bring; -inf where it adds nothing. n kernel entries a row."""
        residual, gain = self.train.y - self.f, self.f.new_empty(len(rows))
        for block in row_blocks(len(rows), self.f.element_size() * len(self.f)):
            at = rows[block]
            K = self.columns(at)
            slope = K @ residual - self.s2 * self.f[at]
            gain[block] = slope.square() / (2.0 * (K.square().sum(1) + self.s2 * self.diag[at]))
        floor = 1e2 * torch.finfo(gain.dtype).eps * float(self.diag.max())
        return gain.masked_fill(self.left[rows] <= floor, -torch.inf)


def regressors_cost(problem: Problem, most: int, growth: int, chunk: int, candidates: int) -> Cost:
    """One step, half way: `growth` rows join in turns of `chunk`, each after `candidates` kernel rows are looked at."""
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    m, c = min(most, n), min(growth, most, n)
    turns = max(1.0, c / min(chunk, c))
    entries = 1.0 * n * (c + candidates * turns)
    flops = 2.0 * n * m * c + turns * n * m + entries * (ENTRY + 2.0 * d + 4.0)
    arrays = {"V [m, n]": 1.0 * s * n * m, "m x m factors": 2.0 * s * m * m, "vectors": 6.0 * s * n}
    calls = turns * (REGRESSORS + (GAINS if candidates else 0.0)) + filling(s * entries)
    return Cost(flops, s * (2.0 * entries + turns * n * m * 1.5), arrays, calls)
